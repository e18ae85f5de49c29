"""Posteriors of families of tables, against enumeration of all agreeing tables of small families.

Chains are compared by the means of cells and of their squares; a z above 5.5 has a probability of 4e-8, so that all
comparisons of a run fail by chance once in ten thousand runs. A chain under another prior must fail the same test.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trueup as tu
from tests.families import CLINICS, ministry, visits
from tests.parameters import one_in
from tests.reference.families import divided, log_step
from trueup.cli.infer import area_summary
from trueup.errors import SpecError
from trueup.inferring import family_moves
from trueup.inferring.family_moves import FamilyMoves
from trueup.inferring.questions import infer_areas
from trueup.io.bundle.posterior import write_posterior
from trueup.kernel.families import maximal
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.layouts.family_rules import closed_constraints
from trueup.layouts.family_walk import FamilyWalk
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells, family_of
from trueup.model.family_sets import variables
from trueup.model.header import Measured, simulate_many
from trueup.model.prior import Flat, Hierarchical
from trueup.model.problem import Problem
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace

LIMIT, MOST = 5.5, 12
"""Largest z; most records that are enumerated, above which the noisy totals leave less than 1e-8."""
AREAS = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
A, B, C = (Attribute(name, (f"{name}0", f"{name}1")) for name in "abc")
SMALL = {
    "a chain of three": (
        (A, B, C),
        Tree.from_columns(["all"], [{}]),
        [("all", "a", "b"), ("all", "b", "c")],
        (),
    ),
    "nothing but the total": ((A, B), AREAS, [("area",), ("all", "a")], ()),
    "places and attributes": ((A, B), AREAS, [("area", "a"), ("all", "a", "b")], ()),
    "values at several places": ((A, B), AREAS, [("area", "a"), ("all", "b")], ()),
    "a zero at several places": ((A, B), AREAS, [("area", "a"), ("all", "b")], ({"a": "a0"},)),
    "an invariant": ((A, B), AREAS, [("area", "a"), ("all", "a", "b")], ("all", "a")),
    "a cycle": (
        (A, B, C),
        Tree.from_columns(["all"], [{}]),
        [("all", "a", "b"), ("all", "b", "c"), ("all", "a", "c")],
        (),
    ),
    "a zero": ((A, B), AREAS, [("area", "a"), ("all", "a", "b")], ({"a": "a0", "b": "b1"},)),
}


def small(name: str) -> tuple[Constraints, list[Measured], np.ndarray]:
    attributes, tree, tables, rules = SMALL[name]
    fixed = (Margin(rules[0], rules[1:]),) if name == "an invariant" else ()
    zeros = () if fixed else rules
    margins = [Margin(level, names) for level, *names in tables]
    margins = [Margin(m.level, tuple(m.attributes)) for m in margins]
    cells = family_of(Cells(tree, attributes), margins)
    headers = [Measured(f"q{i}", m, DiscreteLaplace(Fraction(1, 2 + i))) for i, m in enumerate(margins)]
    headers.append(Measured("total", Margin("all"), DiscreteLaplace(Fraction(3))))
    constraints = Constraints(cells, tuple(h.margin for h in headers), invariants=fixed, zeros=zeros)
    headers += [Measured.enumerated(cells, margin) for margin in fixed]
    values = np.concatenate([np.arange(h.sums(cells, np.zeros(cells.n, int)).size) % 3 for h in headers])
    values[-1 - 2 * len(fixed)] = 5
    if fixed:
        values[-2:] = 2, 3
    return constraints, headers, values.astype(np.int64)


def agreeing(cells: FamilyCells, open_: np.ndarray, most: int) -> np.ndarray:
    """All agreeing tables of at most so many records, `(tables, n)`: margins of tables of records, each once."""
    records = np.array(list(product(*(range(size) for size in cells.whole.shape))))
    index = np.ravel_multi_index(tuple(records.T), cells.whole.shape)
    units = np.stack([cells.tally(np.array([i]), np.array([1])) for i in index])
    units = units[(units[:, ~open_] == 0).all(axis=1)]
    every = [np.zeros((1, cells.n), np.int64)]
    for _ in range(most):
        grown = np.unique((every[-1][:, None] + units).reshape(-1, cells.n), axis=0)
        every.append(grown)
    return np.concatenate(every)


def log_likelihood(constraints: Constraints, headers, values, tables: np.ndarray) -> np.ndarray:
    total, at = np.zeros(len(tables)), 0
    for header in headers:
        sums = header.sums(constraints.cells, tables)
        gap = values[at : at + sums.shape[1]] - sums
        exact = np.where((gap == 0).all(axis=1), 0.0, -np.inf)
        total += exact if header.exact else header.law.logpmf(gap).sum(axis=1)
        at += sums.shape[1]
    return total


def log_prior(walk: FamilyWalk, tables: np.ndarray, concentrations: np.ndarray | None) -> np.ndarray:
    """Dirichlet-multinomial laws step by step; concentrations given and shares equal, or each summed over a grid."""
    total, logs, middles = np.zeros(len(tables)), np.linspace(-14, 14, 57), (np.arange(40) + 0.5) / 40
    steps = divided(walk.cells, walk.cells.junction().parent, walk.open_, tables)
    for at, (step, counts) in enumerate(steps):
        equal = np.ones(max(1, step.share.max() + 1))
        if concentrations is not None:
            total += log_step(step, counts, concentrations[at], equal)
            continue
        drawn = [np.array([2 * b, 2 - 2 * b]) for b in middles] if step.share.max() == 1 else [equal]
        assert step.share.max() <= 1, "shares of more values are not summed over a grid"
        distinct, which = np.unique(counts, axis=0, return_inverse=True)  # far fewer than tables
        each = [
            log_step(step, distinct, np.exp(t), weights) + t - 2 * np.log1p(np.exp(t))
            for t in logs
            for weights in drawn
        ]
        total += np.logaddexp.reduce(each, axis=0)[which]
    return total


GIVEN = (0.4, 2.0, 0.7, 1.5)
PRIORS = {
    "flat": (Flat(), None),
    "given": (Hierarchical(concentrations=GIVEN), GIVEN),
    "drawn": (Hierarchical(), None),
}


def largest_z(draws: np.ndarray, tables: np.ndarray, log: np.ndarray) -> float:
    masses = np.exp(log - np.logaddexp.reduce(log))
    worst = 0.0
    for power in (1, 2):
        mean = masses @ tables**power
        sd = np.sqrt(np.maximum(masses @ (tables ** (2 * power)) - mean**2, 0))
        sample = draws.astype(float) ** power
        ess = diagnose(sample)[1]
        open_ = sd > 0
        z = (sample.mean(axis=(0, 1)) - mean)[open_] / (sd[open_] / np.sqrt(ess[open_]))
        worst = max(worst, float(np.abs(z).max()))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("name", one_in(3, SMALL))
def test_chains_have_the_moments_of_enumeration(name, prior, rng):
    constraints, headers, values = small(name)
    closed = closed_constraints(constraints)
    walk = FamilyWalk.of(closed, headers)
    tables = agreeing(closed.cells, walk.open_, MOST)
    log = log_likelihood(closed, headers, values, tables)
    given, concentrations = PRIORS[prior]
    if prior == "given":
        given = Hierarchical(concentrations=GIVEN[: walk.steps])
    right = log + (0 if isinstance(given, Flat) else log_prior(walk, tables, concentrations))
    method = FamilyMoves(prior=given)
    assert method.refuses(constraints, headers) is None
    found = method.apply(method.prepare(constraints, headers), values, 20_000, rng, lambda done, of: None)
    assert found.stats["tier"] == "chains"
    assert not found.refused
    shown = constraints.cells.of_closed(tables)
    assert largest_z(found.draws, shown, right) < LIMIT
    wrong = log + log_prior(walk, tables, np.array(GIVEN[::-1] if prior == "given" else [0.1] * 4))
    assert largest_z(found.draws, shown, wrong) > LIMIT


def test_places_that_are_divided_for_each_value_apart_are_told():
    tree = Tree.from_columns(["all", "area"], [{}, {"area": ["x", "y"]}])
    cells = Cells(tree, (A, B, C))

    def said(*margins):
        family = family_of(cells, margins)
        return FamilyMoves().doubt(Constraints(family, margins), [])

    assert "for each value of 'a' apart" in said(Margin("area", ("a", "b")), Margin("all", ("a", "c")))
    assert said(Margin("area", ("a",)), Margin("all", ("a", "c"))) is None  # shares of areas are drawn
    assert said(Margin("area", ("a",)), Margin("all", ("b",))) is None


def test_chains_that_have_not_converged_are_refused_or_said_to_be_approximate(rng, monkeypatch):
    monkeypatch.setattr(family_moves, "MIN_DIAGNOSED_DRAWS", 8)  # too few to agree
    constraints, headers, values = small(next(iter(SMALL)))

    def drawn(tier):
        method = FamilyMoves(tier=tier, sweeps=2)
        return method.apply(method.prepare(constraints, headers), values, 8, rng, lambda done, of: None)

    assert drawn("chains").refused.startswith("after 4")
    for tier in ("auto", "approximate"):
        found = drawn(tier)
        assert not found.refused
        assert found.stats["tier"] == "approximate"
        assert "have not converged (largest R-hat" in found.approximate


def random_case(rng: np.random.Generator) -> tuple[Constraints, list[Measured], np.ndarray]:
    """A family of two or three tables of a few records: pairs of three attributes of two values, perhaps of places."""
    while True:
        tree = [Tree.from_columns(["all"], [{}]), AREAS][rng.integers(2)]
        pairs = [("a", "b"), ("b", "c"), ("a", "c"), ("a",), ("c",), ()]
        chosen = rng.choice(len(pairs), rng.integers(2, 4), replace=False)
        whole = Cells(tree, (A, B, C) if len(tree.levels) == 1 else (A, B))
        named = [Margin(str(rng.choice(tree.levels)), pairs[i]) for i in chosen]
        margins = list(
            dict.fromkeys(m for m in named if set(m.attributes) <= {a.name for a in whole.attributes})
        )
        if len(maximal([variables(whole, m, margins) for m in margins])) > 1:
            break
    cells = family_of(whole, margins)
    laws = [DiscreteLaplace(Fraction(1, int(k))) for k in rng.integers(1, 4, len(margins))]
    headers = [Measured(f"q{i}", m, law) for i, (m, law) in enumerate(zip(margins, laws))]
    headers.append(Measured("total", Margin("all"), DiscreteLaplace(Fraction(3))))
    truth = cells.tally(rng.integers(whole.n, size=5), np.ones(5, np.int64))
    values = simulate_many(cells, truth, headers, rng, 1)[0]
    return Constraints(cells, tuple(h.margin for h in headers)), headers, values


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_posteriors_of_random_families_have_the_moments_of_enumeration(part, rng):
    """A hundred in all, with the prior drawn; another prior fails in most."""
    told = 0
    for _ in range(10):
        constraints, headers, values = random_case(rng)
        closed = closed_constraints(constraints)
        walk = FamilyWalk.of(closed, headers)
        tables = agreeing(closed.cells, walk.open_, MOST)
        log = log_likelihood(closed, headers, values, tables)
        method = FamilyMoves()
        state = method.prepare(constraints, headers)
        found = method.apply(state, values, 10_000, rng, lambda done, of: None)
        assert found.stats["tier"] == "chains"
        assert not found.refused
        shown = constraints.cells.of_closed(tables)
        assert largest_z(found.draws, shown, log + log_prior(walk, tables, None)) < LIMIT
        wrong = log_prior(walk, tables, np.full(walk.steps, 0.1))
        told += largest_z(found.draws, shown, log + wrong) > LIMIT
    assert told >= 7


@pytest.mark.thorough
def test_the_posterior_of_a_ministry(tmp_path, rng):
    """Draws agree, intervals hold about what they say, and shared sums mix."""
    problem, table = Problem.of(ministry(), CLINICS), visits(rng)
    noisy = tu.measure(problem, table)
    posterior = tu.infer(noisy)
    assert posterior.method["method"] == "family-moves"
    cells = posterior.cells
    for draw in posterior.draws.reshape(-1, cells.n)[::100]:
        assert list(cells.disagreements(draw)) == []
        assert draw.min() >= 0
    from trueup.measuring import read_confidential

    truth = read_confidential(problem.spec, problem.cells, table)
    held, counts = 0, 0
    for margin in (*cells.tables, Margin("region"), Margin("district")):
        described = posterior.summary(margin)
        true = cells.sum(truth, margin)
        held += int(((described["low"] <= true) & (true <= described["high"])).sum())
        counts += true.size
        # Chains are long enough if 19 of 20 counts of a table have the effective size that their intervals need.
        assert np.quantile(described["ess"], 0.0 if margin in cells.separators else 0.05) >= 100
    assert held >= 0.8 * counts
    assert posterior.table("region").shape[0] == 4
    assert posterior.quantity("R0 + R1").mean > 0
    write_posterior(tmp_path / "posterior", posterior)
    assert len(pd.read_parquet(tmp_path / "posterior" / "draws.parquet")) == posterior.draws.size
    _ask_the_kept(tmp_path / "posterior", posterior)
    page = tmp_path / "page.html"
    tu.report(posterior).save(page)
    assert "country, month=01" in page.read_text()


def _ask_the_kept(folder, posterior) -> None:
    """Questions to a kept posterior are answered from the table that holds them."""
    kept, region = tu.read_posterior(folder), posterior.sums("region")
    assert kept.cells.tables == posterior.cells.tables
    np.testing.assert_array_equal(tu.ask(kept, "region").asked.draws, region)
    people = posterior.sums("district x sex x age").reshape(*region.shape[:2], 12, 2, 3)
    asked = tu.ask(kept, "'R1/D04, sex=m'").asked.draws
    np.testing.assert_array_equal(asked[..., 0], people[:, :, 4, 1].sum(axis=-1))
    chapter = posterior.sums("region x chapter").reshape(*region.shape[:2], 4, 4)
    asked = tu.ask(kept, "'region, chapter=B'").asked.draws
    np.testing.assert_array_equal(asked, chapter[..., 1])
    clinics = posterior.sums("clinic")
    areas = CLINICS.assign(area=["east", "west"] * 12)
    asked = tu.ask(kept, "'area=west'", areas=areas).asked.draws
    np.testing.assert_array_equal(asked[..., 0], clinics[..., 1::2].sum(axis=-1))
    area = kept.area({"region": "R1", "clinic": "R0/D00/C00"})
    np.testing.assert_array_equal(area.draws, region[..., 1] + clinics[..., 0])
    with pytest.raises(SpecError, match="no measured table determines 'clinic x sex'"):
        tu.ask(kept, "'clinic, sex=f'")


def test_a_kept_family_is_not_read_as_a_full_cross_of_as_many_cells(tmp_path):
    """Two tables of two counts each have as many cells as the full cross."""
    tree = Tree.from_columns(["all"], [{}])
    cells = family_of(Cells(tree, (A, B)), [Margin("all", ("a",)), Margin("all", ("b",))])
    assert cells.n == cells.whole.n
    draws = np.array([[[1, 4, 2, 3], [3, 3, 6, 0]]])
    drawn = Drawn(draws, True, tables=cells.tables)
    write_posterior(tmp_path / "out", Posterior(cells, drawn, {"method": "demo"}, ""))
    kept = tu.read_posterior(tmp_path / "out")
    assert tu.ask(kept, "all").asked.draws.ravel().tolist() == [5, 6]
    assert tu.ask(kept, "'b=b0'").asked.draws.ravel().tolist() == [2, 6]


@pytest.mark.parametrize("asked", [{"minutes": 5}, {"prior": "flat"}, {"method": "family-moves"}])
def test_what_is_said_of_inference_leaves_a_family_a_family(asked):
    assert Problem.of(ministry(infer=asked), CLINICS).constraints.structure() == "family"


@pytest.mark.parametrize(
    "asked", [{"method": "table-moves"}, {"quantity": [{"numerator": "f", "name": "women"}]}]
)
def test_a_method_for_one_table_and_ratios_lay_the_full_cross_out(asked):
    assert Problem.of(ministry(infer=asked), CLINICS).constraints.structure() == "histogram"


def test_a_ring_whose_joint_table_is_large_is_refused_with_its_size(monkeypatch):
    monkeypatch.setattr(family_moves, "MOST_JOINT", 7)
    constraints, headers, _ = small("a cycle")
    assert "'all x a x b x c' of 8 cells" in str(FamilyMoves().refuses(constraints, headers))


def test_what_it_cannot_keep_is_refused():
    constraints, headers, _ = small("places and attributes")
    crossing = replace(constraints, invariants=(Margin("all", ("a",)), Margin("area")))
    assert "nested" in str(FamilyMoves().refuses(crossing, headers))
    other = Problem.of(ministry(), CLINICS)
    wrong = FamilyMoves(prior=Hierarchical(concentrations=(1.0,)))
    assert "concentrations: for each table, one for each step" in str(
        wrong.refuses(other.constraints, other.headers)
    )
    simulated = tu.simulate(other, np.zeros(other.cells.n, int), np.random.default_rng(1))
    with pytest.raises(SpecError, match="does not fit"):
        tu.infer(simulated, "tree-exact")
    with pytest.raises(SpecError, match="no measured table determines 'clinic x sex'"):
        area_summary(other.cells, Path("areas.csv"), "area", "sex")


@pytest.mark.thorough
def test_one_region_is_inferred_from_what_was_measured_in_it(rng):
    """Tables of the country are left out, intervals hold, and areas sum draws."""
    problem = Problem.of(ministry(), CLINICS)
    truth = problem.cells.tally(rng.choice(problem.cells.whole.n, 3000), np.ones(3000, int))
    noisy = tu.simulate(problem, truth, rng)
    posterior = tu.infer(noisy, within="region=R1", draws=400)
    assert [str(table) for table in posterior.cells.tables] == [
        "region x diagnosis",
        "district x sex x age",
        "clinic",
    ]
    for margin, places in (("clinic", 6), ("district x sex x age", 3 * 6), ("region x diagnosis", 20)):
        true = problem.cells.sum(truth, margin).reshape(4, -1)[1]
        described = posterior.summary(margin)
        assert true.size == places
        held = (described["low"] <= true) & (true <= described["high"])
        assert held.mean() > 0.6
    for draw in posterior.draws.reshape(-1, posterior.cells.n)[::50]:
        assert list(posterior.cells.disagreements(draw)) == []
    draws = posterior.to_xarray()["count by region x diagnosis"]
    assert draws.dims == ("chain", "draw", "region", "diagnosis")
    np.testing.assert_array_equal(
        draws.sel(diagnosis="B2").values[..., 0], posterior.sums("region x diagnosis")[..., 7]
    )
    areas = CLINICS[CLINICS.region == "R1"].assign(area=["east", "west"] * 3)
    found = infer_areas(posterior, areas)
    west = posterior.sums("clinic")[..., 1::2].sum(axis=-1)
    assert found["mean"][1] == pytest.approx(west.mean())


@pytest.mark.thorough
def test_released_counts_of_a_region_stand_beside_its_posterior(rng):
    problem = Problem.of(ministry(), CLINICS)
    truth = problem.cells.tally(rng.choice(problem.cells.whole.n, 3000), np.ones(3000, int))
    released = tu.reconcile(tu.simulate(problem, truth, rng))
    posterior = tu.infer(released, within="region=R2", draws=200)
    for table in posterior.cells.tables:
        own = posterior.cells.sum(posterior.released, table)
        np.testing.assert_array_equal(own, released.sums(table).reshape(4, -1)[2])


UNEVEN = """
format = 2
title = "Visits"
table = { name = "visits", kind = "records", counts = "visit" }
privacy = { unit = "visit", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "region", column = "region" }, { name = "clinic", column = "clinic" }]
attribute = [
  { name = "month", values = ["1", "2", "3", "4", "5", "6", "7", "8"] },
  { name = "chapter", values = ["a", "b", "c", "d"] },
]
query = [
  { name = "clinic", epsilon = { clinic = "1/5" } },
  { name = "month", attributes = ["month"], epsilon = { clinic = "1/5" } },
  { name = "chapter", attributes = ["chapter"], epsilon = { region = "1/5" } },
]
"""


@pytest.mark.slow
def test_clinics_that_differ_more_than_their_months_are_not_drawn_towards_each_other(rng):
    """Of 30 clinics three have no visit. With one concentration for clinics and months these had as many as the noise hides."""
    places = pd.DataFrame({"region": np.repeat(list("vwx"), 10), "clinic": [f"{i:02}" for i in range(30)]})
    problem = Problem.of(parse_spec(UNEVEN), places)
    size = rng.gamma(0.5, 300, 30).astype(int)
    size[[3, 14, 25]] = 0
    months, chapters = rng.dirichlet(np.full(8, 30)), rng.dirichlet(np.full(4, 5))
    held, empty, sums = [], [], []
    for _ in range(3):
        clinic = np.repeat(np.arange(30), size)
        drawn = [rng.choice(len(p), clinic.size, p=p) for p in (months, chapters)]
        cell = np.ravel_multi_index((clinic, *drawn), problem.cells.whole.shape)
        truth = problem.cells.tally(cell, np.ones(clinic.size, np.int64))
        posterior = tu.infer(tu.simulate(problem, truth, rng), draws=400)
        found = posterior.summary("clinic")
        held += ((found["low"] <= size) & (size <= found["high"])).tolist()
        empty += found["mean"][size == 0].tolist()
        whole, true = posterior.summary("all x month"), problem.cells.sum(truth, "all x month")
        sums += ((whole["low"] <= true) & (true <= whole["high"])).tolist()
    assert np.mean(held) > 0.82  # 90 intervals of 90 %: 2.6 standard errors below
    assert np.mean(empty) < 12
    assert np.mean(sums) > 0.7  # of three times eight, which err together
