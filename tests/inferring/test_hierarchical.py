"""The hierarchical prior: gradient, calibration under its own hyperprior, public shares, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.inferring.calibration import FALSE_ALARM, pit, uniform_p
from tests.inferring.problems import laplace_tree, noisy, star, states, tree_constraints
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring import hierarchical, infer, tree_exact
from trueup.inferring.hierarchical import Estimate, PriorMixture, Spread, pareto_k
from trueup.inferring.tree_exact import SolutionSearch, TreeExact
from trueup.layouts.splits import splits_of
from trueup.model.cells import Margin
from trueup.model.constraints import Bound
from trueup.model.prior import Bounded, Hierarchical
from trueup.noise.laws import base
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


def transforms(rng, replicates, times=1.0):
    """Randomised transforms of the total, of a state and of two counties."""
    out = []
    for _ in range(replicates):
        truth = from_the_prior(CELLS, rng, times)
        measured = noisy(CELLS, truth, laplace_tree(CELLS, "1/4"), rng)
        posterior = posterior_of(CELLS, measured)
        states_truth = CELLS.sum(truth, Margin("state"))
        out.append(
            [
                pit(posterior, 0, Margin("nation"), truth.sum(), rng),
                pit(posterior, 1, Margin("state"), states_truth[1], rng),
                pit(posterior, 0, Margin("county"), truth[0], rng),
                pit(posterior, 17, Margin("county"), truth[17], rng),
            ]
        )
    return np.array(out)


def spread_p(values):
    """p-value of uniformity, and of the mean distance from the middle: wrong concentrations make intervals too wide or narrow."""
    distance = np.abs(values - 0.5).ravel()
    z = (distance.mean() - 0.25) / np.sqrt(1 / 48 / len(values))  # columns of a replicate may go together
    from scipy.stats import norm

    return min(*(uniform_p(column) for column in values.T), 2 * norm.sf(abs(z)))


@pytest.mark.thorough
def test_posteriors_are_calibrated_under_the_hyperprior(rng):
    assert spread_p(transforms(rng, 40)) > FALSE_ALARM


@pytest.mark.slow
def test_posteriors_are_calibrated_under_the_hyperprior_at_length(rng):
    assert spread_p(transforms(rng, 500)) > FALSE_ALARM


def density(prior, cells, measured, **constraints):
    """The log density of hyperparameters, as the search has it."""
    built = tree_constraints(cells, **constraints)
    state = TreeExact(prior=prior).prepare(built, measured.headers)
    splits = splits_of(prior, state.problem.nested, state.problem.bounds()[1])
    return SolutionSearch(state, measured.flat, LocalPool()).objective(splits, lambda done, of: None), splits


@pytest.mark.parametrize("kind", ["uniform", "shares", "covariates", "zeros"])
def test_the_gradient_equals_finite_differences(kind, rng):
    truth = rng.negative_binomial(0.7, 0.05, CELLS.n)
    numbers = tuple(float(x) for x in rng.integers(0, 30, CELLS.n))
    constraints = {}
    prior = Hierarchical()
    if kind == "shares":
        prior = Hierarchical(shares=numbers)
    if kind == "covariates":
        prior = Hierarchical(covariates=(numbers, tuple(float(x) for x in rng.normal(size=CELLS.n))))
    if kind == "zeros":
        upper = np.full(CELLS.n, 10_000)
        upper[:4] = 0  # the first state, whole, and a county of the next
        constraints = {"bounds": (Bound(CELLS.finest, upper=tuple(upper.tolist())),)}
        truth[:4] = 0
    measured = noisy(CELLS, truth, laplace_tree(CELLS, "1/2"), rng)
    objective, splits = density(prior, CELLS, measured, **constraints)
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


def test_a_cut_tree_has_the_evidence_of_the_whole(rng, monkeypatch):
    measured = noisy(CELLS, rng.negative_binomial(0.7, 0.05, CELLS.n), laplace_tree(CELLS, "1/2"), rng)
    theta, found = rng.normal(0, 0.7, 2), []
    for largest in (tree_exact.LARGE, 20):
        monkeypatch.setattr(tree_exact, "LARGE", largest)
        value, gradient, _ = density(Hierarchical(), CELLS, measured)[0](theta)
        found.append([value, *gradient])
    assert np.allclose(*found, rtol=0, atol=1e-5)


def test_points_beyond_the_tolerance_fall_back_to_the_mode_and_say_so(rng, monkeypatch):
    measured = noisy(CELLS, from_the_prior(CELLS, rng), laplace_tree(CELLS), rng)
    assert "more than the tolerance" not in posterior_of(CELLS, measured).promise
    at = Spread.at
    monkeypatch.setattr(hierarchical, "NOTICED", 0.0)  # every parameter is to be integrated over
    monkeypatch.setattr(Spread, "at", lambda self, theta: at(self, theta)._replace(dropped=1.0))
    posterior = posterior_of(CELLS, measured)
    record = posterior.drawn.stats["prior"]
    assert (record["integrated"], record["points"], record["pareto_k"]) == ([], 1, None)
    assert any("more than the tolerance" in doubt for doubt in record["doubts"])
    assert any("log concentration of state" in doubt for doubt in record["doubts"])
    assert all(doubt in posterior.promise for doubt in record["doubts"])


@pytest.mark.parametrize("prior", ["flat", {"name": "hierarchical", "concentrations": [50.0]}])
def test_tables_that_would_be_too_wide_are_no_fault_of_the_law(prior, rng, monkeypatch):
    monkeypatch.setattr(base, "LONGEST", 1 << 10)
    cells = star(2)
    measured = noisy(cells, np.array([3, 4]), laplace_tree(cells), rng)
    apart = replace(measured, values=(measured.values[0] + 20_000, *measured.values[1:]))
    with pytest.raises(ConvergenceError, match="disagree"):
        posterior_of(cells, apart, prior)


@pytest.mark.parametrize(
    ("weights", "settled", "word"),
    [
        (lambda rng: -2.0 * np.log((np.arange(64) + 0.5) / 64), True, "Pareto's k"),
        (lambda rng: rng.normal(0, 0.1, 16), True, "too few"),
        (lambda rng: rng.normal(0, 0.1, 64), False, "settled"),
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
        ({"shares": [1.0, 2.0]}, "one for each of 4"),
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
