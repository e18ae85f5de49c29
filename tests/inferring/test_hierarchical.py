"""The hierarchical prior: gradient, calibration under its own hyperprior, public shares, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from tests.inferring.calibration import FALSE_ALARM, pit, pit_of_draws, uniform_p
from tests.inferring.problems import laplace_tree, noisy, star, states, tree_constraints
from trueup import parse_spec, read_measurements, release, simulate
from trueup.errors import ConvergenceError, DataError, SpecError
from trueup.inferring import hierarchical, infer, tree_exact
from trueup.inferring.hierarchical import Density, Estimate, ascend
from trueup.inferring.prior_mixture import PriorMixture, Spread, pareto_k
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_state import TreeState
from trueup.kernel.messages.downward import mixed
from trueup.kernel.messages.resolve import mixed_marginals, solve_above
from trueup.kernel.messages.solve import marginals
from trueup.layouts.prior_inputs import total_given_bounds
from trueup.layouts.splits import splits_of
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.nested import chain, nest
from trueup.model.prior import Bounded, Hierarchical
from trueup.model.problem import Problem
from trueup.model.records.drawn import Marginals
from trueup.model.tree import Tree
from trueup.noise import law, law_named
from trueup.run.local import LocalPool

UPPER = 300
CELLS = states([3, 6, 4, 5])


def posterior_of(cells, measured, prior=None, draws=1, **constraints):
    method = TreeExact(prior=prior or Hierarchical(total=Bounded(UPPER)))
    return infer(measured, method, spec=tree_constraints(cells, **constraints), draws=draws)


def from_the_prior(cells, rng, times=1.0, shares=None):
    """Counts `(n,)` drawn from the prior with its hyperprior; `times` makes concentrations wrong."""
    tree = cells.tree
    a = rng.random(len(tree.levels) - 1)
    concentration = times * a / (1 - a)
    counts = np.zeros(tree.level_ptr[-1], np.int64)
    counts[0] = rng.integers(0, UPPER + 1)
    for v in range(tree.level_ptr[-2]):
        first, last = tree.child_ptr[v], tree.child_ptr[v + 1]
        level = int(np.searchsorted(tree.level_ptr, first, side="right")) - 2
        share = np.ones(last - first) if shares is None else shares[first:last] / shares[first:last].mean()
        gamma = np.maximum(rng.standard_gamma(concentration[level] * share), 1e-290)
        counts[first:last] = rng.multinomial(counts[v], gamma / gamma.sum())
    return counts[tree.level_ptr[-2] :]


def transforms(rng, replicates, times=1.0, epsilon="1/20"):
    """Randomised transforms of the total, of a state, of two counties and of how unequal parts are at two levels `(6,)` a
    replicate, and how many of the records say that prior and measurements conflict.

    One of some two hundred is refused, as no bound excludes that more is lost: one, or one in fifty, is passed by.

    Measurements say much of sums and little of how unequal parts are, so the latter rest on the concentrations'
    hyperprior: wrong concentrations show there. Noisier ones show it more.
    """
    out, conflicting, refused = [], 0, 0
    for _ in range(replicates):
        truth = from_the_prior(CELLS, rng, times)
        measured = noisy(CELLS, truth, laplace_tree(CELLS, epsilon), rng)
        try:
            posterior = posterior_of(CELLS, measured, draws=100)
        except ConvergenceError:
            refused += 1
            continue
        conflicting += bool(posterior.conflicts)
        states_truth = CELLS.sum(truth, Margin("state"))
        exact = [
            pit(posterior, 0, Margin("nation"), truth.sum(), rng),
            pit(posterior, 1, Margin("state"), states_truth[1], rng),
            pit(posterior, 0, Margin("county"), truth[0], rng),
            pit(posterior, 17, Margin("county"), truth[17], rng),
        ]
        drawn = zip(inequality(truth), inequality(posterior.draws[0]).T)
        out.append([*exact, *(pit_of_draws(draws, true, rng) for true, draws in drawn)])
    assert refused <= max(1, replicates / 50)
    return np.array(out), conflicting


def inequality(counts):
    """How unequal states are, and counties within theirs `(..., 2)`: sums of `x^2 / total`."""
    by_state = CELLS.sum(counts, Margin("state"))
    parent = CELLS.tree.ancestors(2, 1)
    total = np.maximum(by_state.sum(axis=-1), 1)
    within = counts**2 / np.maximum(by_state[..., parent], 1)
    return np.stack([(by_state**2).sum(axis=-1) / total, within.sum(axis=-1)], axis=-1)


def spread_p(values):
    """p-value of uniformity, and of the mean distance from the middle: wrong concentrations make intervals too wide or narrow."""
    assert np.isfinite(values).all()
    distance = np.abs(values - 0.5).ravel()
    z = (distance.mean() - 0.25) / np.sqrt(1 / 48 / len(values))  # columns of a replicate may go together
    from scipy.stats import norm

    return min(*(uniform_p(column) for column in values.T), 2 * norm.sf(abs(z)))


@pytest.mark.slow
def test_posteriors_are_calibrated_under_the_hyperprior(rng):
    assert spread_p(transforms(rng, 40)[0]) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_posteriors_are_calibrated_under_the_hyperprior_and_wrong_concentrations_are_not(rng):
    """In 500 replicates; concentrations three times as large as the hyperprior has them are rejected.

    Conflict is said of one record in a thousand at most where the truth follows the prior: eight or more of 500 would be
    below 1e-6; at most 1 % are allowed.
    """
    values, conflicting = transforms(rng, 500)
    assert spread_p(values) > FALSE_ALARM
    assert conflicting <= 5
    assert spread_p(transforms(rng, 500, times=3.0)[0]) < FALSE_ALARM


def density(prior, cells, measured, *, kinds=1, **constraints):
    """The log density of hyperparameters, as the search has it, with one or two kinds of parts."""
    built = tree_constraints(cells, **constraints)
    state = TreeExact(prior=prior).prepare(built, measured.headers)
    search = SolutionSearch(state, measured.flat, LocalPool())
    splits = splits_of(prior, state.problem.nested, state.problem.bounds()[1])
    if kinds == 2:
        splits = splits.of_two_kinds(search.state.noisy_total(search.values))
    return search.objective(splits, lambda done, of: None), splits


@pytest.mark.parametrize(
    "kind", ["uniform", "shares", "covariates", "zeros", "two kinds", "zeros and two kinds"]
)
def test_the_gradient_equals_finite_differences(kind, rng):
    truth = rng.negative_binomial(0.7, 0.05, CELLS.n)
    numbers = tuple(float(x) for x in rng.integers(0, 30, CELLS.n))
    constraints = {}
    prior = Hierarchical()
    if kind == "shares":
        prior = Hierarchical(shares=numbers)
    if kind == "covariates":
        prior = Hierarchical(covariates=(numbers, tuple(float(x) for x in rng.normal(size=CELLS.n))))
    if kind.startswith("zeros"):
        upper = np.full(CELLS.n, 10_000)
        upper[:4] = 0  # the first state, whole, and a county of the next
        constraints = {"bounds": (Bound(CELLS.finest, upper=tuple(upper.tolist())),)}
        truth[:4] = 0
    measured = noisy(CELLS, truth, laplace_tree(CELLS, "1/2"), rng)
    objective, splits = density(prior, CELLS, measured, kinds=2 if "two kinds" in kind else 1, **constraints)
    theta = rng.normal(0, 0.7, len(splits.names))
    gradient = objective(theta)[1]
    for k in range(len(theta)):
        step = 1e-3 * np.eye(len(theta))[k]
        slope = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-3
        assert gradient[k] == pytest.approx(slope, abs=2e-3, rel=1e-3)


def test_the_record_says_what_was_estimated(rng):
    truth = from_the_prior(CELLS, rng)
    record = posterior_of(CELLS, noisy(CELLS, truth, laplace_tree(CELLS), rng), draws=50).drawn.stats["prior"]
    assert set(record["estimates"]) == {"log concentration of state", "log concentration of county"}
    assert record["points"] > 1
    assert np.isfinite(record["pareto_k"])


@pytest.mark.parametrize("kinds", [1, 2])
def test_a_cut_tree_has_the_evidence_of_the_whole(kinds, rng, monkeypatch):
    measured = noisy(CELLS, rng.negative_binomial(0.7, 0.05, CELLS.n), laplace_tree(CELLS, "1/2"), rng)
    theta, found = rng.normal(0, 0.7, {1: 2, 2: 5}[kinds]), []
    for largest in (tree_exact.MAX_WHOLE_NODES, 20):
        monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", largest)
        value, gradient = density(Hierarchical(), CELLS, measured, kinds=kinds)[0](theta)[:2]
        found.append([value, *gradient])
    assert np.allclose(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_solved_again_above_equals_what_is_solved_whole(level, rng):
    """Upper splits vary: messages below are kept, and the mixture's marginals come down in one pass."""
    measured = noisy(CELLS, rng.negative_binomial(0.7, 0.05, CELLS.n), laplace_tree(CELLS, "1/2"), rng)
    state = TreeExact().prepare(tree_constraints(CELLS), measured.headers)
    nested = state.problem.nested
    splits = splits_of(Hierarchical(), nested, state.problem.bounds()[1])
    search = SolutionSearch(state, measured.flat, LocalPool())
    mode, pairs = search.at(splits, 1e-9, np.zeros(2)), []
    parents, first = nested.level_ptr[level : level + 2].tolist()
    for _ in range(4):
        theta = np.append(rng.normal(0, 0.3, level), np.zeros(2 - level))
        alpha, total = splits.parameters(theta)[:2]
        tilted = mode.tilted._replace(factors=mode.tilted.factors._replace(alpha=alpha, total=total))
        pairs.append((solve_above(mode, tilted, first, parents, 1e-9), search.at(splits, 1e-9, theta)))
        missing = sum(one.dropped for one in pairs[-1])  # tables were made deep enough for the mode
        assert missing < 1e-5
        assert abs(pairs[-1][0].evidence - pairs[-1][1].evidence) <= 2 * missing + 1e-11
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    ours, rounding = mixed_marginals([one for one, _ in pairs], weights, first, parents)
    assert rounding == 0
    whole = mixed([marginals(other) for _, other in pairs], weights)
    assert np.allclose(Marginals(*ours).mean, Marginals(*whole).mean, rtol=0, atol=1e-4)
    wrong, _ = mixed_marginals([one for one, _ in pairs], weights[::-1], first, parents)
    assert not np.allclose(Marginals(*wrong).mean, Marginals(*whole).mean, rtol=0, atol=1e-3)


@pytest.mark.parametrize("level", [1, 2])
def test_points_far_from_the_mode_are_solved_with_tilts_of_their_own(level):
    """Those of the mode would leave what matters below the least floating-point number."""
    cells = states([2, 1])
    measured = noisy(cells, np.zeros(3, int), laplace_tree(cells, "1/4"), np.random.default_rng(0))
    values = np.array([58, 22, 34, -13, 16, 10])
    state = TreeExact().prepare(tree_constraints(cells), measured.headers)
    nested = state.problem.nested
    splits = splits_of(Hierarchical(), nested, state.problem.bounds()[1])
    search, fresh = (SolutionSearch(state, values, LocalPool()) for _ in range(2))
    centre = np.array([0.8, -0.5])
    mode = search.at(splits, 1e-9, centre)
    parents, first = nested.level_ptr[level : level + 2].tolist()
    spread = Spread(mode, first, parents, splits, 1e-9, lambda theta: search.at(splits, 1e-9, theta))
    for moved in ([0.2, 0.3], [-3.6, 4.3], [0.0, 6.0], [-0.7, 4.6], [3.0, -2.0], [5.0, 4.5], [6.0, -5.0]):
        theta = centre + np.append(moved[:level], np.zeros(2 - level))
        solved = spread.at(theta)
        assert solved.evidence == pytest.approx(fresh.at(splits, 1e-9, theta).evidence, abs=1e-7)
        assert np.isfinite(marginals(solved)[2]).all()


def test_points_beyond_the_tolerance_fall_back_to_the_mode_and_say_so(rng, monkeypatch):
    measured = noisy(CELLS, from_the_prior(CELLS, rng), laplace_tree(CELLS), rng)
    assert "omit more probability than allowed" not in posterior_of(CELLS, measured).promise
    at = Spread.at
    monkeypatch.setattr(hierarchical, "NOTICED_SHIFT_SDS", 0.0)  # every parameter is to be integrated over
    monkeypatch.setattr(Spread, "at", lambda self, theta: at(self, theta)._replace(dropped=1.0))
    posterior = posterior_of(CELLS, measured)
    record = posterior.drawn.stats["prior"]
    assert (record["integrated"], record["points"], record["pareto_k"]) == ([], 1, None)
    assert any("omit more probability than allowed" in doubt for doubt in record["doubts"])
    assert any("log concentration of state" in doubt for doubt in record["doubts"])
    assert all(doubt in posterior.promise for doubt in record["doubts"])


@pytest.mark.parametrize("prior", ["flat", {"name": "hierarchical", "concentrations": [50.0]}])
def test_tables_that_would_be_too_wide_are_no_fault_of_the_law(prior, rng, monkeypatch):
    monkeypatch.setattr(law, "MAX_TABLE_ENTRIES", 1 << 10)
    cells = star(2)
    measured = noisy(cells, np.array([3, 4]), laplace_tree(cells), rng)
    apart = replace(measured, values=(measured.values[0] + 20_000, *measured.values[1:]))
    with pytest.raises(ConvergenceError, match="contradict each other"):
        posterior_of(cells, apart, prior)


@pytest.mark.parametrize(
    ("weights", "settled", "word"),
    [
        (lambda rng: -2.0 * np.log((np.arange(64) + 0.5) / 64), True, "Pareto's k"),
        (lambda rng: rng.normal(0, 0.1, 16), True, "too few"),
        (lambda rng: rng.normal(0, 0.1, 64), False, "converged"),
        (lambda rng: rng.normal(0, 0.1, 64), True, None),
    ],
)
def test_the_record_says_what_is_doubtful(weights, settled, word, rng):
    splits = density(Hierarchical(), CELLS, noisy(CELLS, np.ones(CELLS.n, int), laplace_tree(CELLS), rng))[1]
    estimate = Estimate(np.zeros(2), np.eye(2), np.ones(2), 3, settled)
    doubts = PriorMixture([], weights(rng)).record(splits, estimate, np.ones(2, bool))["doubts"]
    assert len(doubts) == (word is not None)
    assert word is None or word in doubts[0]


def test_draws_follow_the_marginals_of_the_mixture(rng):
    truth = from_the_prior(CELLS, rng)
    posterior = posterior_of(CELLS, noisy(CELLS, truth, laplace_tree(CELLS, "1/4"), rng), draws=4000)
    exact, draws = posterior.drawn.marginals[Margin("county")], posterior.draws[0]
    assert (draws >= 0).all()
    z = (draws.mean(axis=0) - exact.mean) / np.maximum(draws.std(axis=0) / np.sqrt(len(draws)), 1e-9)
    assert np.abs(z).max() < 5.5


def test_public_shares_move_the_posterior_towards_them(rng):
    cells = star(4)
    measured = noisy(cells, np.array([25, 25, 25, 25]), laplace_tree(cells, "1/10"), rng)
    prior = {"name": "hierarchical", "concentrations": [9.0], "shares": [1.0, 1.0, 1.0, 7.0]}
    mean = posterior_of(cells, measured, prior).summary()["mean"]
    flat = posterior_of(cells, measured, "flat").summary()["mean"]
    assert mean[3] > flat[3] + 3


@pytest.mark.parametrize(
    ("prior", "word"),
    [
        ({"shares": [1.0, -1.0, 2.0, 1.0]}, "negative"),
        ({"shares": [0.0, 0.0, 0.0, 0.0]}, "all 0"),
        ({"shares": [1.0, 2.0]}, "one value for each of 4"),
        ({"shares": "homes"}, "'homes'"),
        ({"covariates": [[1.0, 1.0, 1.0, 1.0]]}, "same everywhere"),
        ({"concentrations": [1.0, 2.0]}, "one for each margin"),
        ({"concentrations": [-1.0]}, "out of range"),
    ],
)
def test_wrong_columns_are_refused_by_name(prior, word, rng):
    cells = star(4)
    measured = noisy(cells, np.arange(4), laplace_tree(cells), rng)
    with pytest.raises(SpecError, match=word):
        posterior_of(cells, measured, {"name": "hierarchical", **prior})


def test_levels_without_a_choice_say_nothing_and_do_no_harm(rng):
    """One parent, one child: the concentration keeps its hyperprior, a standard logistic."""
    cells = states([1])
    measured = noisy(cells, np.array([5]), laplace_tree(cells), rng)
    record = posterior_of(cells, measured).drawn.stats["prior"]
    for row in record["estimates"].values():
        assert row["mode"] == pytest.approx(0.0, abs=0.1)
        assert row["sd"] == pytest.approx(2**0.5, abs=0.1)


def test_pareto_k_knows_heavy_tails(rng):
    assert pareto_k(rng.exponential(1 / 4, 4000)) < 0.4
    assert pareto_k(rng.exponential(1.2, 4000)) > 0.9


BY_RAIN = """
format = 2
title = "Demo"
table = { name = "demo", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", levels = ["all", "area"], epsilon = 1 }]
infer = { prior = { name = "hierarchical", covariates = ["rain"] } }
"""


@pytest.mark.thorough
def test_a_public_column_may_hold_fractions_and_goes_with_the_bundle(tmp_path):
    rain = [0.5, -1.25, 3.0, 2.5, 0.0]
    places = pandas.DataFrame({"area": list("abcde"), "rain": rain})
    counts = pandas.DataFrame({"area": list("abcde"), "n": [4, 1, 60, 30, 5]})
    (tmp_path / "spec.toml").write_text(BY_RAIN)
    counts.to_csv(tmp_path / "counts.csv", index=False)
    release(tmp_path / "spec.toml", tmp_path / "counts.csv", tmp_path / "out", geography=places)
    measured = read_measurements(tmp_path / "out")
    assert measured.cells.tree.limits[-1]["rain"].tolist() == rain
    assert measured.cells.tree.digest == Problem.of(parse_spec(BY_RAIN), places).cells.tree.digest
    given = TreeExact(prior=Hierarchical(covariates=(tuple(rain),)))
    found = infer(measured, draws=1).summary("area")["mean"]
    same = infer(measured, given, spec=tree_constraints(measured.cells), draws=1).summary("area")["mean"]
    assert found.tolist() == pytest.approx(same.tolist(), rel=1e-9)
    lacking = Problem.of(parse_spec(BY_RAIN), places.assign(rain=[0.5, None, 3, 2, 0]))
    noisy_counts = simulate(lacking, np.arange(5), np.random.default_rng(1))
    with pytest.raises(SpecError, match="empty for some"):
        infer(noisy_counts, draws=1)
    bounded = BY_RAIN + 'constraints = { bounds = [{ level = "area", upper = "rain" }] }\n'
    for column, text in ((["wet"] * 5, BY_RAIN), (rain, bounded)):
        with pytest.raises(DataError, match="rain"):
            Problem.of(parse_spec(text), places.assign(rain=column))


@pytest.mark.thorough
@pytest.mark.parametrize(("bound", "total"), [({"upper": 11}, 784), ({"lower": 3}, 672)])
def test_a_total_is_flat_given_bounds_of_places(bound, total, rng, monkeypatch):
    """A total measured with noise of 100, counties with noise of 1,000: undivided, bounds move it by more than a deviation."""
    cells = states([14] * 8)
    laws = {
        Margin(level): law_named("discrete-gaussian")(v)
        for level, v in (("nation", 10**4), ("county", 10**6))
    }
    measured = noisy(cells, np.full(cells.n, total // cells.n), laws, rng)
    bounded = tree_constraints(cells, bounds=(Bound(Margin("county"), **bound),))
    given = TreeExact(prior=Hierarchical(concentrations=(1.0, 1.0)))

    def moved(method):
        found = infer(measured, method, spec=bounded, draws=400).summary("nation")
        return abs(found["mean"][0] - measured.values[0][0]) / 100

    assert moved(given) < 0.3
    assert moved(TreeExact()) < 0.8
    monkeypatch.setattr(TreeState, "flat_given_bounds", lambda state, values: state)
    assert moved(given) > 1.0


@pytest.mark.parametrize("total", [1000, 3000, 50_000])
def test_totals_given_bounds_are_known_up_to_the_ends(total):
    """Points at which probabilities are worked out end before the largest total: no mass beyond them may be left out."""
    cells = states([2, 3])
    constraints = tree_constraints(cells, bounds=(Bound(Margin("county"), lower=2, upper=total),))
    headers = (Measured("total", Margin("nation"), law_named("discrete-laplace")("1")),)
    at, log = total_given_bounds(constraints, headers, (np.array([total]),), inhabited=True)
    assert at[0] == 10
    assert at[-1] > total + 20
    assert (np.diff(at) > 0).all()
    assert np.isfinite(log).all()


@pytest.mark.parametrize(
    ("places", "values", "estimated"), [(2, 600, False), (2, 400, True), (10, 600, True)]
)
def test_shares_of_many_values_need_places_that_inform_them(places, values, estimated):
    tree = Tree.from_columns(["all", "place"], [{}, {"place": [f"p{k}" for k in range(places)]}])
    cells = Cells(tree, (Attribute("kind", tuple(f"v{k}" for k in range(values))),))
    nested = nest(cells, chain(cells, [Margin("all"), Margin("place"), cells.finest]))
    splits = splits_of(Hierarchical(), nested, np.full(nested.level_ptr[-1], np.inf))
    assert (splits.category >= 0).any() == estimated


def test_an_update_of_an_inverse_curvature_is_that_of_broyden_fletcher_goldfarb_and_shanno(rng):
    inverse, moved, bent = np.diag(rng.gamma(2, size=5)), rng.normal(size=5), rng.normal(size=5)
    bent *= np.sign(moved @ bent)
    left = np.eye(5) - np.outer(moved, bent) / (moved @ bent)
    expected = left @ inverse @ left.T + np.outer(moved, moved) / (moved @ bent)
    np.testing.assert_allclose(hierarchical._updated(inverse, moved, bent), expected, rtol=1e-12)


@pytest.mark.parametrize("error", [0.0, 8e-5, 1e-2])
def test_a_search_ends_where_slopes_do_though_values_err(error):
    """A log density of -1,000 whose values fall off by a share of that as the search goes on; more than they may, it stops."""
    seen = []

    def objective(theta):
        seen.append(theta)
        value = -1000.0 - (away := theta - 3.0) @ away - 1000 * error * np.abs(theta).sum()
        return Density(float(value), -2 * away, np.zeros((2, 1)), np.zeros((1, 1)))

    found = ascend(objective, np.array([2.97]), np.eye(1) / 4, np.array([0]), 0.01)
    assert found.settled == (error < 1e-2)
    assert (abs(found.theta[0] - 3.0) < 0.02) == found.settled
    assert len(seen) < 12
