"""Algorithm 1 whose total was drawn given the noisy parts' sum: against enumeration, and calibrated."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.inferring.released import HALF, ONE, TWO, alpha, p_value, ranks_within, uniform_p_value
from tests.reference.released import draw_release, enumerate_posterior, enumerate_redrawn, evenly, redrawn
from trueup.errors import SpecError
from trueup.inferring.released import two_parts
from trueup.inferring.released.posterior import draw_posterior, joint_likelihood
from trueup.inferring.released.zero import ZeroPosterior, log_likelihood
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.layouts.released import ReleasedSum
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import Poisson
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian
from trueup.reconciling.multinomial import MultinomialSample

DRAWS = 5000
CASES = [((2, 3), None), ((0, 4), HALF), ((1, 1), TWO)]


def problem_of(k, total_law, law: Any = TWO, **options):
    return ReleasedSum(np.array(k), (law,) * len(k), total_law, "summed", algorithm=1, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "total_law"), CASES)
def test_chains_follow_the_enumerated_posterior(rng, k, total_law):
    """Wrong versions are rejected: a total that ignores n*, other noise, weights that were not drawn."""
    chains = draw_posterior(problem_of(k, total_law), 2, DRAWS, rng)
    assert diagnose(chains)[1].min() > DRAWS  # of twice as many, half of which are kept
    draws, counts = chains[:, ::2].reshape(-1, 2), 26
    inside = draws[(draws < counts).all(axis=1)]
    assert len(inside) > 0.99 * len(draws)
    a, of_total = alpha(TWO), total_law and alpha(total_law)
    assert p_value(inside, enumerate_redrawn(k, a, of_total, counts)) > 1e-6
    release = evenly(draw_release)
    wrong = [
        enumerate_redrawn(k, a**0.8, of_total, counts),
        enumerate_posterior(k, [a, a], of_total or a, counts, release, redrawn),
        enumerate_posterior(k, [a, a], of_total or a, counts, release),
    ]
    for mutant in wrong:
        assert p_value(inside, mutant) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("which", "total_law"), [("prior", HALF), ("prior_total", None)])
def test_priors_multiply_the_flat_posterior(rng, which, total_law):
    prior, flat = Poisson(3.0), enumerate_redrawn((2, 3), alpha(TWO), total_law and alpha(total_law), 26)
    each = np.exp(prior.logpmf(np.arange(26)))
    sums = np.arange(26)[:, None] + np.arange(26)
    factor = np.outer(each, each) if which == "prior" else np.exp(prior.logpmf(sums)) / (sums + 1)
    draws = draw_posterior(problem_of((2, 3), total_law, **{which: prior}), 2, DRAWS, rng)[:, ::2]
    masses = flat * factor
    assert p_value(draws.reshape(-1, 2), masses / masses.sum()) > 1e-6
    assert p_value(draws.reshape(-1, 2), flat) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("total_law", [None, HALF])
def test_the_likelihood_behind_a_total_of_zero(total_law):
    """A release of (0, 0) says that the total was drawn as zero, whatever the weights."""
    masses = enumerate_redrawn((0, 0), alpha(TWO), total_law and alpha(total_law), 12)
    likelihood = np.exp(log_likelihood(problem_of((0, 0), total_law), 22))
    ours = likelihood[np.arange(12)[:, None] + np.arange(12)]
    assert np.abs(ours / ours.sum() - masses).max() < 1e-6
    modes = np.exp(log_likelihood(ReleasedSum(np.zeros(2, int), (TWO, TWO), total_law, "summed"), 22))
    modes = modes[np.arange(12)[:, None] + np.arange(12)]
    assert np.abs(modes / modes.sum() - masses).max() > 1e-3


@pytest.mark.thorough
def test_any_law_and_large_counts(rng):
    """Counts in the thousands under Gaussian noise: both kinds of total stay where they were released."""
    law, k = DiscreteGaussian(Fraction(9)), np.array([4000, 350, 0, 12])
    for total_law in (None, DiscreteGaussian(Fraction(4))):
        problem = ReleasedSum(k, (law,) * 4, total_law, "summed", algorithm=1)
        sums = draw_posterior(problem, 2, 200, rng).sum(axis=2)
        assert abs(sums.mean() - k.sum()) < 12
        assert sums.std() < 12


def test_what_does_not_fit_is_refused():
    with pytest.raises(SpecError, match="the exact posterior"):
        two_parts(problem_of((2, 3), None), drawn=True)
    wide = problem_of((500,) * 3000, DiscreteGaussian(Fraction(40_000)), ONE)
    with pytest.raises(SpecError, match="too large"):
        joint_likelihood(wide)


# --- from the release itself ------------------------------------------------------------------


def released_by(method, measured_total, draws, rng):
    """True counts of three parts and what the method makes of noisy ones; `(draws, 3)` each."""
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]))
    headers = [Measured("q", Margin("area"), ONE)]
    headers = [Measured("q", Margin("all"), ONE), *headers] if measured_total else headers
    true = rng.poisson(1.5, (draws, 3))
    noisy = true + ONE.sample(3 * draws, rng.bytes).reshape(-1, 3)
    if measured_total:
        noisy = np.hstack([true.sum(axis=1, keepdims=True) + ONE.sample(draws, rng.bytes)[:, None], noisy])
    state = method.prepare(Constraints(cells, tuple(h.margin for h in headers)), headers)
    return true, method.apply(state, noisy, rng).values


def calibrated(measured_total, rng, replicates, **believed):
    """p value of the ranks of one of three small counts: zeros and empty splits are common."""
    method = MultinomialSample(algorithm=1, total="summed")
    options = {"total": "summed", "algorithm": 1} | believed
    ranks = []
    for true, k in zip(*released_by(method, measured_total, replicates, rng)):
        problem = ReleasedSum(k, (ONE,) * 3, ONE if measured_total else None, prior=Poisson(1.5), **options)
        zero = not k.any()
        draws = (
            ZeroPosterior.of(problem).draw(31, rng) if zero else draw_posterior(problem, 1, 124, rng)[0, ::4]
        )
        ranks.append(ranks_within(draws, true, rng)[rng.integers(3)])
    return uniform_p_value(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("measured_total", [True, False])
def test_releases_are_calibrated(measured_total, rng):
    assert calibrated(measured_total, rng, 60) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("measured_total", [True, False])
def test_releases_are_calibrated_at_length(measured_total, rng):
    assert calibrated(measured_total, rng, 1500) > 1e-6
