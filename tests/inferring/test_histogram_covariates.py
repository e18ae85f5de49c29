"""Splits of histograms' totals by public numbers: against all tables listed, written out, calibrated, and what they are worth."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest
from scipy.special import gammaln

from tests.command import run
from tests.inferring.calibration import pit_of_draws, uniform_p
from tests.inferring.histograms import FALSE_ALARM, GAUSSIAN, chain, largest_z, listed, places, record, walked
from tests.inferring.problems import noisy
from tests.inferring.test_histogram_simulated import BURN, CEILING, EACH, FLOOR, KEPT, figures, simulated
from trueup.errors import SpecError
from trueup.inferring import infer
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.kernel.compiled import njit
from trueup.kernel.table_walks import weights
from trueup.kernel.table_walks.gibbs_steps import draw_inhabited
from trueup.layouts.columns import ColumnProblem
from trueup.layouts.prior_inputs import PublicNumbers, numbers_of_places
from trueup.layouts.splits import splits_of
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.nested import nest
from trueup.model.prior import Hierarchical
from trueup.model.tree import Tree


@njit(cache=False)
def log_slope(places, state, slope):
    return weights.log_of_slope(places, state, 0, slope)


@njit(cache=False)
def lived(rng, places, state, seen):
    for i in range(len(seen)):
        draw_inhabited(rng, places, state)
        seen[i] = state.inhabited


def around(z, slope, families):
    """Weights of parts, family by family, whose mean is 1."""
    out, at = [], 0
    for size in families:
        own = np.exp(slope * np.asarray(z[at : at + size]))
        out.append(size * own / own.sum())
        at += size
    return np.concatenate(out)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_small_problems_agree_with_all_tables_listed(rate, rng):
    middles, a, kappa = (1, 2), 0.8, 5.0
    cells = places(middles)
    log = np.array([0.0, 0.9, -0.9, 0.0, -0.7, 0.8])
    measured = record(cells, rng.integers(0, 2, cells.n), rng)
    public = PublicNumbers(log, np.zeros((6, 0)), ())
    own = a * around(log[1:3], 1, (2,)), a * around(log[3:], 1, middles)
    draws = chain(cells, measured, 60_000, rng, (a, kappa, rate), (), public)
    x, mass = listed(cells, measured, middles, own, 2 * (kappa,), 5, rate)
    inside = draws[(draws <= 5).all(axis=1)]
    assert len(inside) > 0.98 * len(draws)
    assert largest_z(cells, inside, x, mass, indicators=False) < FALSE_ALARM
    wrong = own[0][::-1], own[1]  # numbers of the wrong places
    assert (
        largest_z(cells, inside, *listed(cells, measured, middles, wrong, 2 * (kappa,), 5, rate), False)
        > FALSE_ALARM
    )


def regions(rng, families=(3, 4, 5)):
    """Blocks of tracts, of two columns, in a random state, by shares and two covariates with fractions below zero."""
    n = sum(families)
    tract = [f"t{k}" for k, size in enumerate(families) for _ in range(size)]
    tree = Tree.from_columns(
        ["all", "tract", "block"], [{}, {"tract": tract}, {"block": [f"{k:02d}" for k in range(n)]}]
    )
    cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    numbers = [tuple(map(float, rng.normal(size=n))) for _ in range(2)]
    return cells, Hierarchical(shares=tuple(map(float, rng.poisson(3, n))), covariates=tuple(numbers))


@pytest.mark.thorough
def test_weights_and_slopes_are_those_of_trees_and_their_density_is_as_written_out(rng):
    cells, prior = regions(rng)
    laws = {cells.finest: GAUSSIAN("4")}
    measured = noisy(cells, rng.poisson(rng.gamma(0.4, 20, cells.n)), laws, rng)
    public = numbers_of_places(prior, cells.tree)
    problem = ColumnProblem(Constraints(cells, tuple(laws)), measured.headers, measured.values, public=public)
    state = problem.state(measured.values[0].clip(0).reshape(-1, 2), 0.7, 5.0, 0.4)
    totals = Cells(cells.tree)
    splits = splits_of(prior, nest(totals, tuple(map(Margin, cells.tree.levels))), np.ones(totals.n + 4))
    state.inhabited[:] = (state.total[4:] > 0) | (rng.random(12) < 0.5)
    state.inhabited[[0, 3, 7]] = True
    values = []
    for slope in (0.0, 1.3, -0.4):
        state.slope[:] = slope, 0.6
        weights.weigh_parts(problem.places, state)
        alpha, *_ = splits.parameters(np.array([*np.log([0.7, 0.7]), slope, 0.6]))
        assert 0.7 * state.weight[1:] == pytest.approx(alpha[1:], rel=1e-12)
        below, held = alpha * np.append(np.ones(4), state.inhabited), state.total
        log = np.where(
            below[1:] > 0, gammaln(held + below)[1:] - gammaln(np.maximum(below, 1e-300))[1:], 0.0
        ).sum()
        for p in range(4):
            own = below[problem.places.child_ptr[p] : problem.places.child_ptr[p + 1]].sum()
            log -= gammaln(held[p] + own) - gammaln(own)
        values.append(log_slope(problem.places, state, slope) - log + slope**2 / 2 / 2.5**2)
    assert values == pytest.approx(np.zeros(3), abs=1e-9)


@pytest.mark.thorough
def test_which_places_are_inhabited_is_drawn_by_their_weights(rng):
    """Two of four places are empty: four sets, against their probabilities; those of equal weights are others."""
    cells = Cells(
        Tree.from_columns(["all", "block"], [{}, {"block": list("abcd")}]), (Attribute("sex", ("f", "m")),)
    )
    log = np.array([0.0, 1.0, -1.0, 2.0, -0.5])
    headers = noisy(cells, np.ones(8, int), {cells.finest: GAUSSIAN("4")}, rng)
    problem = ColumnProblem(
        Constraints(cells, (cells.finest,)),
        headers.headers,
        headers.values,
        public=PublicNumbers(log, np.zeros((5, 0)), ()),
    )
    state, sets = problem.state(np.array([[2, 1], [0, 0], [0, 0], [3, 0]]), 0.9, 5.0, 0.3), 400_000
    seen = np.zeros((sets, 4), bool)
    lived(rng, problem.places, state, seen)
    assert seen[:, [0, 3]].all()

    def chances(w):
        found = []
        for one, other in ((0, 0), (0, 1), (1, 0), (1, 1)):
            own = 0.9 * (w[0] + w[3] + one * w[1] + other * w[2])
            found.append((one + other) * np.log(0.7 / 0.3) + gammaln(own) - gammaln(own + 6))
        return np.exp(found) / np.exp(found).sum()

    shares = np.bincount(2 * seen[::4, 1] + seen[::4, 2], minlength=4) / len(seen[::4])
    near = 6 * (0.25 / len(seen[::4])) ** 0.5
    assert shares == pytest.approx(chances(around(log[1:], 1, (4,))), abs=near)
    assert shares != pytest.approx(chances(np.ones(4)), abs=near)


REPLICATES = 300


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False])
def test_coefficients_and_counts_are_calibrated(right, rng):
    """Ranks of the coefficient, concentrations and counts are uniform; not where numbers are those of the wrong places.

    The total is flat: noisy totals of a window alone are kept.
    """
    ranks = []
    while len(ranks) < REPLICATES:
        z, slope = rng.normal(size=6), 2.5 * rng.normal()
        z = (z - z.mean()) / z.std()
        weight = around(z.reshape(2, 3).mean(axis=1), slope, (2,)), around(z, slope, (3, 3))
        cells, truth, concentrations = simulated(rng, 1, weight)
        kinds = ((), ("race",), ("sex",), ("race", "sex"))
        laws = {Margin(level, kind): GAUSSIAN("2") for level in cells.tree.levels for kind in kinds}
        measured = noisy(cells, truth, laws, rng)
        if FLOOR <= measured.values[0][0] <= CEILING:
            given = Hierarchical(covariates=(tuple(z if right else z[::-1]),))
            walk = walked(cells, measured, rng, None, (), numbers_of_places(given, cells.tree))
            walk.run(1, BURN, lambda done, of: None)
            draws = walk.run(KEPT, EACH, lambda done, of: None)[0]
            pairs = [(f(draws), f(truth[None])[0]) for f in figures(cells)]
            pairs += zip(walk.concentrations[0].T, [*concentrations, slope], strict=True)
            ranks.append([pit_of_draws(*pair, rng) for pair in pairs])
    smallest = min(uniform_p(rank) for rank in np.array(ranks).T)
    assert smallest > 1e-6 if right else smallest < 1e-6


def score(low, high, truth, level=0.9):
    """Mean interval score."""
    below, above = np.maximum(low - truth, 0), np.maximum(truth - high, 0)
    return float((high - low + 2 / (1 - level) * (below + above)).mean())


@pytest.mark.slow
def test_intervals_of_places_are_better_by_a_number_that_counts_follow(rng):
    """Of 60 blocks whose expected totals follow a public number, with noise of 40: interval scores at least a fifth better."""
    tract = [f"t{k // 12}" for k in range(60)]
    keys = [{}, {"tract": tract}, {"block": [f"{k:02d}" for k in range(60)]}]
    cells = Cells(Tree.from_columns(["all", "tract", "block"], keys), (Attribute("sex", ("f", "m")),))
    z = rng.normal(size=60)
    laws = {Margin(level, kind): GAUSSIAN("1600") for level in cells.tree.levels for kind in ((), ("sex",))}
    scores = []
    for _ in range(2):
        truth = rng.poisson(np.repeat(30 * np.exp(z) * rng.gamma(8, 1 / 8, 60), 2))
        measured = noisy(cells, truth, laws, rng)
        for covariates in ((tuple(z),), ()):
            method = HistogramGibbs(prior=Hierarchical(covariates=covariates), tier="approximate")
            posterior = infer(measured, method, spec=Constraints(cells, tuple(laws)), draws=400)
            ends = np.quantile(
                cells.sum(posterior.draws, Margin("block")).reshape(-1, 60), [0.05, 0.95], axis=0
            )
            scores.append(score(*ends, cells.sum(truth, Margin("block"))))
            if covariates:
                found = posterior.drawn.stats["coefficients"]["coefficient of numbers that were given"]
                assert found["mean"] > 3 * found["sd"]
    assert sum(scores[::2]) < 0.8 * sum(scores[1::2])


SPEC = """
format = 2
title = "Demo"
table = { name = "demo", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [
  { name = "total", epsilon = { all = "1", area = "1" } },
  { name = "sex", attributes = ["sex"], epsilon = { all = "1", area = "1" } },
  { name = "all of it", attributes = ["sex"], epsilon = { area = "1/2" } },
]
infer = { prior = { name = "hierarchical", covariates = ["rain"] } }
"""


@pytest.mark.thorough
def test_a_spec_names_columns_of_places_and_the_record_their_coefficients(tmp_path, rng):
    rain = rng.normal(size=30).round(2)
    keys = [f"{k:02d}" for k in range(30)]
    counts = pandas.DataFrame({"area": np.repeat(keys, 2), "sex": 30 * ["f", "m"]})
    counts["n"] = rng.poisson(np.repeat(8 * np.exp(rain), 2))
    counts.to_csv(tmp_path / "counts.csv", index=False)
    pandas.DataFrame({"area": keys, "rain": rain, "homes": 1}).to_csv(tmp_path / "places.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC)
    given = "--data", tmp_path / "counts.csv", "--geography", tmp_path / "places.csv"
    assert run("release", tmp_path / "spec.toml", *given, "--out", tmp_path / "out").returncode == 0
    done = run("infer", tmp_path / "out", "--draws", 100, "--out", tmp_path / "posterior")
    assert done.returncode == 0, done.stderr
    assert "method 'histogram-gibbs'" in done.stdout
    assert "covariates = rain" in done.stdout
    stats = json.loads((tmp_path / "posterior" / "manifest.json").read_text())["stats"]
    found = stats["coefficients"]["coefficient of column 'rain'"]
    assert abs(found["mean"] - rain.std()) < 5 * found["sd"] < 2
    cut = run("infer", tmp_path / "out", "--engine", "local", "--out", tmp_path / "parts")
    assert "public shares or covariates" in cut.stderr


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"covariates": ["wind"]}, "column 'wind'"),
        ({"covariates": [[1.0, 1.0, 1.0]]}, "same everywhere"),
        ({"covariates": [[1.0, 2.0]]}, "one value for each of 3"),
        ({"shares": [0.0, 0.0, 0.0]}, "all 0"),
        (
            {"covariates": [[1.0, 2.0, 0.5]], "total": {"name": "poisson", "mean": 9}},
            "only a flat prior of the total",
        ),
        ({"covariates": [[1.0, 2.0, 0.5]], "concentrations": [1.0, 2.0]}, "none where concentrations"),
    ],
)
def test_public_numbers_that_do_not_fit_are_refused(prior, message, rng):
    cells = places((1, 2))
    measured = record(cells, np.ones(cells.n, int), rng)
    rules = Constraints(cells, tuple(h.margin for h in measured.headers))
    with pytest.raises(SpecError, match=message):
        infer(measured, HistogramGibbs(prior={"name": "hierarchical", **prior}), spec=rules)


def test_a_table_without_places_has_no_public_numbers_of_them(rng):
    cells = Cells(Tree.from_columns(["all"], [{}]), tuple(Attribute(name, ("x", "y", "z")) for name in "ab"))
    laws = {Margin("all", kind): GAUSSIAN("4") for kind in (("a",), ("b",), ("a", "b"))}
    measured = noisy(cells, np.ones(9, int), laws, rng)
    method = HistogramGibbs(prior=Hierarchical(covariates=((1.0, 2.0, 3.0),)))
    with pytest.raises(SpecError, match="public numbers of places, and the table has no places"):
        infer(measured, method, spec=Constraints(cells, tuple(laws)))
