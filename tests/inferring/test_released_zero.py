"""A released total of zero: against enumeration of the rule that released it, and its priors."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.inferring.released import p_value
from tests.reference.released import _lower_middle, redrawn
from trueup.errors import InfeasibleError
from trueup.inferring.released.zero import ZeroPosterior, log_likelihood
from trueup.layouts.released import ReleasedSum
from trueup.model.prior import FLAT, Bounded, Masses, NegativeBinomial, Poisson
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Exact, TruncatedGeometric

ONE, HALF = DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(1, 2))
NOISE = np.arange(-80, 81)


def zero(parts, total_law: Any = ONE, **options):
    return ReleasedSum(np.zeros(parts, np.int64), (ONE,) * parts, total_law, **options)


def independent(counts, law):
    """P(max(n, 0) = 0 | N)."""
    return np.array([law.pmf(NOISE)[NOISE + n <= 0].sum() for n in range(counts)])


def summed(counts, parts, law):
    """P(the mode of the total is 0 | N) over every n* and n, the mode by search."""
    eta = ONE.pmf(NOISE)
    for _ in range(parts - 1):
        eta = np.convolve(eta, ONE.pmf(NOISE))
    wide = np.arange(eta.size) - eta.size // 2
    out, candidates = np.zeros(counts), np.arange(160)
    log_eta = np.log(np.maximum(eta, 1e-300))
    for of_sum in range(-60, 61):
        for noisy in range(-60, 61):
            at = np.clip(of_sum - candidates + eta.size // 2, 0, eta.size - 1)
            if _lower_middle(log_eta[at] + law.logpmf(noisy - candidates)) != 0:
                continue
            for n in range(counts):
                out[n] += eta[of_sum - n == wide][0] * law.pmf(noisy - n)
    return out


@pytest.mark.parametrize("law", [ONE, HALF, DiscreteGaussian(Fraction(4))], ids=repr)
def test_the_likelihood_of_independent_totals(law):
    ours = np.exp(log_likelihood(zero(3, law), 20))
    assert ours == pytest.approx(independent(21, law), rel=1e-9, abs=1e-15)


@pytest.mark.thorough
def test_the_likelihood_of_summed_totals():
    problem = zero(2, HALF, total="summed")
    assert problem.radius() > 0
    ours = np.exp(log_likelihood(problem, 12))
    assert ours == pytest.approx(summed(13, 2, HALF), rel=1e-6)
    assert np.abs(ours - independent(13, HALF)).max() > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("law", [TruncatedGeometric("1/2", 12), DiscreteGaussian(Fraction(9))], ids=repr)
def test_the_likelihood_of_summed_totals_under_other_laws(law):
    ours = np.exp(log_likelihood(zero(2, law, total="summed"), 12))
    assert ours == pytest.approx(summed(13, 2, law), rel=1e-6)
    assert np.abs(ours - independent(13, law)).max() > 0.01


def test_the_likelihood_of_totals_that_are_drawn_or_not_measured():
    drawn = np.exp(log_likelihood(zero(2, algorithm=1), 15))
    reference = redrawn(np.arange(16), float(np.exp(-1)))[:, 0]
    assert drawn / drawn[0] == pytest.approx(reference / reference[0], rel=1e-9)
    unmeasured = np.exp(log_likelihood(zero(2, None), 15))
    eta = np.convolve(ONE.pmf(NOISE), ONE.pmf(NOISE))
    wide = np.arange(eta.size) - eta.size // 2
    assert unmeasured == pytest.approx([eta[wide + n <= 0].sum() for n in range(16)], rel=1e-9)


PRIORS = [FLAT, Poisson(1.5), NegativeBinomial(2.0, 0.7), Bounded(3), Masses((3.0, 0.0, 1.0, 1.0))]


def enumerated(likelihood, prior, counts):
    mass = np.zeros((counts,) * 3)
    weight = np.exp(prior.logpmf(np.arange(counts)))
    for cell in product(range(counts), repeat=3):
        mass[cell] = likelihood[sum(cell)] * np.prod(weight[list(cell)])
    return mass / mass.sum()


@pytest.mark.parametrize("prior", PRIORS, ids=lambda p: p.name)
def test_draws_follow_the_enumerated_posterior(prior, rng):
    posterior = ZeroPosterior.of(zero(3, prior=prior))
    assert posterior.left_out < 1e-9
    draws = posterior.draw(40_000, rng)
    inside = draws[(draws < 14).all(axis=1)]
    assert len(inside) > 0.99 * len(draws)
    right = enumerated(independent(40, ONE), prior, 14)
    wrong_law = enumerated(independent(40, HALF), prior, 14)
    assert p_value(inside, right) > 1e-6
    assert p_value(inside, wrong_law) < 1e-6


def test_a_prior_on_the_total_and_an_exact_total(rng):
    posterior = ZeroPosterior.of(zero(2, prior_total=Bounded(1)))
    draws = posterior.draw(20_000, rng).sum(axis=1)
    likelihood = independent(2, ONE)
    assert draws.mean() == pytest.approx(likelihood[1] / likelihood.sum(), abs=5.5 * 0.5 / np.sqrt(20_000))
    assert (ZeroPosterior.of(zero(4, Exact())).draw(9, rng) == 0).all()


def test_many_parts_keep_their_precision(rng):
    """The total's mode is where the number of splits outgrows the noise, far in the tail of the noise."""
    draws = ZeroPosterior.of(zero(2000)).draw(400, rng).sum(axis=1)
    q = np.exp(-1.0)
    assert draws.mean() == pytest.approx(2000 * q / (1 - q), rel=0.02)


def test_a_prior_that_excludes_zero_is_refused():
    with pytest.raises(InfeasibleError, match="released as zero"):
        ZeroPosterior.of(zero(2, Exact(), prior=Masses((0.0, 1.0))))
