"""No figure of privacy loss that is shown is below the exact one."""

import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from trueup.noise.law import Cost
from trueup.privacy import compose, outward

RHOS = [Fraction(i, 100) for i in range(1, 400)]
DELTAS = [Fraction(float(d)) for d in np.logspace(-1, -15, 59)]


def least_epsilon(rho, delta):
    """The least epsilon that rho implies at delta by any alpha, to 50 digits (Canonne, Kamath and Steinke, 2020)."""
    with mpmath.workdps(50):
        r, d = (mpmath.mpf(x.numerator) / x.denominator for x in (rho, delta))

        def bound(t):
            excess = mpmath.exp(t)
            alpha = 1 + excess
            return alpha * r + mpmath.log(excess / alpha) - mpmath.log(alpha * d) / excess

        low, high = mpmath.mpf(-40), mpmath.mpf(40)
        grid = [low + (high - low) * i / 160 for i in range(161)]
        at = min(range(161), key=lambda i: bound(grid[i]))
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, 160)]
        for _ in range(60):
            third = (high - low) / 3
            low, high = (
                (low, high - third) if bound(low + third) < bound(high - third) else (low + third, high)
            )
        return max(bound((low + high) / 2), mpmath.mpf(0))


def shown(rho, delta):
    return outward(compose([Cost("rho", rho)]).at_delta(delta))


def check(pairs):
    for rho, delta in pairs:
        exact, text = compose([Cost("rho", rho)]).at_delta(delta), shown(rho, delta)
        assert exact <= Fraction(text) <= exact * Fraction(1001, 1000)


@pytest.mark.thorough
def test_every_rho_at_the_delta_that_reports_show():
    check((rho, Fraction(1, 10**10)) for rho in RHOS)


def test_pairs_of_rho_and_delta_against_50_digits(rng):
    pairs = [(RHOS[i], DELTAS[j]) for i, j in zip(rng.integers(0, 399, 40), rng.integers(0, 59, 40))]
    check(pairs)
    for rho, delta in pairs:
        assert mpmath.mpf(shown(rho, delta)) >= least_epsilon(rho, delta) * (1 - mpmath.mpf(10) ** -12)


def is_implied(rho, delta, epsilon):
    """Whether rho implies (epsilon, delta): an alpha near the best one witnesses it, to 50 digits."""
    r, log_delta = float(rho), math.log(delta)

    def bound(t):
        alpha = 1 + math.exp(t)
        return alpha * r - math.log1p(math.exp(-t)) - (log_delta + math.log(alpha)) / math.exp(t)

    t = minimize_scalar(bound, bounds=(-10, 25), method="bounded", options={"xatol": 1e-6}).x
    with mpmath.workdps(50):
        r, d = (mpmath.mpf(x.numerator) / x.denominator for x in (rho, delta))
        excess = mpmath.exp(mpmath.mpf(t))
        alpha = 1 + excess
        least = alpha * r + mpmath.log(excess / alpha) - mpmath.log(alpha * d) / excess
        return max(least, mpmath.mpf(0)) <= mpmath.mpf(epsilon.numerator) / epsilon.denominator


def test_the_witness_is_able_to_fail(rng):
    """A figure that is low by one in ten thousand has no witness."""
    for i, j in zip(rng.integers(0, 399, 30), rng.integers(0, 59, 30)):
        exact = compose([Cost("rho", RHOS[i])]).at_delta(DELTAS[j])
        assert is_implied(RHOS[i], DELTAS[j], exact * Fraction(1_000_001, 1_000_000))
        assert not exact or not is_implied(RHOS[i], DELTAS[j], exact * Fraction(9999, 10_000))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_pair_and_ten_thousand_at_random(rng):
    """33,541 pairs: what is shown is proved by an alpha, to 50 digits, and is not far above what was proved exactly."""
    random = (
        (Fraction(int(a), 10**6), Fraction(float(10**b)))
        for a, b in zip(rng.integers(1, 10**7, 10_000), rng.uniform(-15, -1, 10_000))
    )
    for pair in [*((rho, delta) for rho in RHOS for delta in DELTAS), *random]:
        check([pair])
        assert is_implied(*pair, Fraction(shown(*pair)))


def test_any_amount_is_rounded_outward_and_not_far(rng):
    for _ in range(20_000):
        digits, scale = int(rng.integers(1, 16)), int(rng.integers(-320, 320))
        amount = Fraction(int(rng.integers(1, 2**62)), 2**61) * Fraction(10) ** scale
        text = Fraction(Decimal(outward(amount, digits)))
        assert amount <= text <= amount * (1 + Fraction(10) ** (1 - digits))


def test_the_bar_is_able_to_fail():
    """To the nearest, as before, 192 of 399 are below what was proved."""
    exact = [compose([Cost("rho", rho)]).at_delta(Fraction(1, 10**10)) for rho in RHOS]
    assert sum(Fraction(f"{float(e):.4g}") < e for e in exact) > 150
