"""Extra zeros of the hierarchical prior: when they are found, what they gain, and calibration where the prior has them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import binom

from tests.inferring.calibration import FALSE_ALARM, pit, pit_of_draws, uniform_p
from tests.inferring.problems import laplace_tree, noisy, states, tree_constraints
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring import infer, tree_estimate, tree_search
from trueup.inferring.prior_mixture import PriorMixture
from trueup.inferring.tree_estimate import Beginning
from trueup.inferring.tree_exact import TreeExact
from trueup.model.cells import Margin
from trueup.model.prior import Bounded, Hierarchical

UPPER = 300
SMALL, WIDE = states([3, 6, 4, 5]), states([40] * 6)
NAME = "logit of the share of extra zeros of county"


def split(total, parts, a, log_odds, rng):
    """Draw the parts of a total from a law with extra zeros: how many are not zero by that, which, and a split among these."""
    j = np.arange(parts + 1)
    with np.errstate(divide="ignore"):
        among = np.where(j > 0, gammaln(total + j * a) - gammaln(np.where(j > 0, j, 1) * a), 0.0)
    among[0] = gammaln(total + 1.0) if total == 0 else -np.inf
    log = gammaln(parts + 1.0) - gammaln(j + 1.0) - gammaln(parts - j + 1.0) + (parts - j) * log_odds + among
    mass = np.exp(log - log.max())
    out = np.zeros(parts, np.int64)
    some = rng.permutation(parts)[: rng.choice(j, p=mass / mass.sum())]
    if len(some):
        gamma = np.maximum(rng.standard_gamma(a, len(some)), 1e-290)
        out[some] = rng.multinomial(total, gamma / gamma.sum())
    return out


def from_the_prior(cells, rng):
    """Counts `(n,)` drawn from the prior with its hyperprior."""
    tree, (of_states, of_counties, rho) = cells.tree, rng.random(3)
    total, sizes = int(rng.integers(0, UPPER + 1)), np.diff(tree.child_ptr[1 : tree.level_ptr[2] + 1])
    gamma = np.maximum(rng.standard_gamma(of_states / (1 - of_states), len(sizes)), 1e-290)
    a, mean = of_counties / (1 - of_counties), max(total, 1) / cells.n / (1 - rho)
    log_odds = np.log(rho / (1 - rho)) + a * np.log1p(mean / a)
    parents = rng.multinomial(total, gamma / gamma.sum())
    return np.concatenate([split(t, k, a, log_odds, rng) for t, k in zip(parents, sizes)])


def transforms(rng, replicates):
    """Randomised transforms `(replicates, 5)` of two counties, a state, the number of zeros and how unequal counties are."""
    out = []
    for _ in range(replicates):
        truth = from_the_prior(SMALL, rng)
        measured = noisy(SMALL, truth, laplace_tree(SMALL, "1/4"), rng)
        method = TreeExact(prior=Hierarchical(total=Bounded(UPPER), extra_zeros=True))
        posterior = infer(measured, method, spec=tree_constraints(SMALL), draws=100)
        draws = posterior.draws[0]
        out.append(
            [
                pit(posterior, 0, Margin("county"), truth[0], rng),
                pit(posterior, 17, Margin("county"), truth[17], rng),
                pit(posterior, 1, Margin("state"), SMALL.sum(truth, Margin("state"))[1], rng),
                pit_of_draws((draws == 0).sum(axis=1), (truth == 0).sum(), rng),
                pit_of_draws((draws**2).sum(axis=1), (truth**2).sum(), rng),
            ]
        )
    return np.array(out)


def least_p(values):
    return min(uniform_p(column) for column in values.T)


@pytest.mark.slow
def test_posteriors_are_calibrated_where_the_prior_has_extra_zeros_and_without_them_are_not(rng, monkeypatch):
    """In 400 replicates. Whether there are some is not asked: where the values do not ask for them, the plain prior serves."""
    monkeypatch.setattr(tree_estimate, "ASKED", np.inf)
    assert least_p(transforms(rng, 400)) < FALSE_ALARM
    monkeypatch.setattr(tree_estimate, "ASKED", -np.inf)
    monkeypatch.setattr(Beginning, "_rises", lambda *_: True)
    assert least_p(transforms(rng, 400)) > FALSE_ALARM


def posterior_of(truth, rng, extra_zeros=True):
    measured = noisy(WIDE, truth, laplace_tree(WIDE, "1/3"), rng)
    method = TreeExact(prior=Hierarchical(extra_zeros=extra_zeros))
    return infer(measured, method, spec=tree_constraints(WIDE), draws=200)


def mostly_zeros(rng):
    return rng.poisson(20.0, WIDE.n) * (rng.random(WIDE.n) < 0.1)


def error(truths, rng):
    """The squared error of posterior means, and the parameters that were estimated."""
    posteriors = [posterior_of(truth, rng) for truth in truths]
    means = [one.draws[0].mean(axis=0) for one in posteriors]
    estimates = [one.drawn.stats["prior"]["estimates"] for one in posteriors]
    return sum(((mean - truth) ** 2).sum() for mean, truth in zip(means, truths)), estimates


@pytest.mark.thorough
def test_extra_zeros_are_found_where_most_counts_are_zero_and_errors_are_smaller(rng, monkeypatch):
    """Their share is about nine in ten; without them the squared error is a tenth larger or more."""
    truths = [mostly_zeros(rng) for _ in range(3)]
    ours, estimates = error(truths, rng)
    low, high = binom.interval(1 - 1e-6, WIDE.n, 0.9)
    for found in estimates:
        share = 1 / (1 + np.exp(-found[NAME]["mode"]))
        assert low / WIDE.n - 0.03 < share < high / WIDE.n + 0.03
    monkeypatch.setattr(tree_estimate, "ASKED", np.inf)
    plain, estimates = error(truths, rng)
    assert not any(NAME in found for found in estimates)
    assert plain > 1.1 * ours


@pytest.mark.thorough
def test_they_are_left_out_where_zeros_are_as_many_as_the_law_of_splits_says(rng):
    """By chance they are asked for in 8 runs of 100 or fewer: 7 of 12 would be one in a hundred thousand."""
    found = 0
    for _ in range(12):
        gamma = rng.standard_gamma(0.5, (6, 40))
        truth = np.concatenate([rng.multinomial(200, g / g.sum()) for g in gamma])
        found += NAME in posterior_of(truth, rng).drawn.stats["prior"]["estimates"]
    assert found < 7


@pytest.mark.parametrize(
    "other", [{"shares": (1.0, 2.0)}, {"covariates": ((1.0, 2.0),)}, {"concentrations": (1.0, 0.1)}]
)
def test_they_are_refused_where_parts_are_not_alike_or_nothing_is_estimated(other):
    with pytest.raises(SpecError, match="extra_zeros"):
        Hierarchical(extra_zeros=True, **other)


def test_whether_there_are_some_is_true_or_false():
    with pytest.raises(SpecError, match="Needed: true or false"):
        Hierarchical(extra_zeros="yes")  # pyright: ignore[reportArgumentType]


def test_they_are_estimated_only_where_they_are_asked_for(rng):
    truth = mostly_zeros(rng)
    assert NAME not in posterior_of(truth, rng, extra_zeros=False).drawn.stats["prior"]["estimates"]


def test_where_windows_do_not_hold_their_posterior_the_prior_without_them_serves(rng, monkeypatch):
    """The search that begins with extra zeros fails at the end, when its prior is known."""
    whole, truth = tree_search.SolutionSearch.whole, mostly_zeros(rng)

    def failing(self, tolerance):
        if tolerance < tree_search.ROUGH and self.splits is not None and (self.splits[3] > 0).any():
            raise ConvergenceError("no window holds it", remedy="none")
        return whole(self, tolerance)

    plain = posterior_of(truth, np.random.default_rng(1), extra_zeros=False)
    monkeypatch.setattr(tree_search.SolutionSearch, "whole", failing)
    found = posterior_of(truth, np.random.default_rng(1))
    assert NAME not in found.drawn.stats["prior"]["estimates"]
    np.testing.assert_array_equal(found.draws, plain.draws)


def test_so_do_many_points_about_the_mode_that_cannot_be_solved(rng, monkeypatch):
    """Without those points the rest would not be the posterior."""
    truth = mostly_zeros(rng)
    assert NAME in posterior_of(truth, np.random.default_rng(1)).drawn.stats["prior"]["estimates"]
    monkeypatch.setattr(PriorMixture, "unsolved", tree_estimate.FAILURES)
    found = posterior_of(truth, np.random.default_rng(1))
    assert NAME not in found.drawn.stats["prior"]["estimates"]


def test_after_a_few_failures_nothing_more_is_tried():
    """Hyperparameters that do not serve take long, one by one."""
    tried = []

    def solve(theta):
        tried.append(theta)
        if theta > 1:
            raise ConvergenceError("no window holds it", remedy="none")
        return theta

    tiring = tree_estimate.until_given_up(solve)
    for _ in range(tree_estimate.FAILURES):
        assert tiring(0) == 0
        with pytest.raises(ConvergenceError, match="no window"):
            tiring(2)
    for theta in (0, 2):
        with pytest.raises(ConvergenceError, match="given up"):
            tiring(theta)
    assert len(tried) == 2 * tree_estimate.FAILURES
