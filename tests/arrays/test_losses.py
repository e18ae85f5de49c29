"""zCDP to (epsilon, delta) against mpmath at 40 digits and against dp-accounting."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.arrays.losses import delta_of, epsilon_of, rho_of
from trueup.errors import SpecError

rhos = st.fractions(min_value=Fraction(1, 10**6), max_value=100, max_denominator=10**6)
deltas = st.integers(1, 40).map(lambda digits: Fraction(1, 10**digits))


def exact_epsilon(rho, delta):
    """Infimum over alpha by mpmath, root of the derivative in closed precision."""
    rho, delta = mpmath.mpf(rho.numerator) / rho.denominator, mpmath.mpf(delta.numerator) / delta.denominator

    def bound(t):
        excess = mpmath.exp(t)
        alpha = 1 + excess
        return alpha * rho + t - mpmath.log(alpha) - mpmath.log(alpha * delta) / excess

    return _infimum(bound)


def exact_delta(rho, epsilon):
    """The same for delta, on the log scale."""
    rho, epsilon = (
        mpmath.mpf(rho.numerator) / rho.denominator,
        mpmath.mpf(epsilon.numerator) / epsilon.denominator,
    )

    def bound(t):
        alpha = 1 + mpmath.exp(t)
        return (
            (alpha - 1) * (alpha * rho - epsilon) + alpha * mpmath.log(1 - 1 / alpha) - mpmath.log(alpha - 1)
        )

    return mpmath.exp(_infimum(bound))


def _infimum(bound):
    best = min((mpmath.mpf(t) for t in range(-60, 61)), key=bound)
    low, high = best - 1, best + 1
    for _ in range(90):
        left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (low, right) if bound(left) < bound(right) else (left, high)
    return bound((low + high) / 2)


@given(rhos, deltas)
@settings(max_examples=30, deadline=None)
def test_epsilon_is_above_the_truth_and_close(rho, delta):
    with mpmath.workdps(40):
        truth = max(exact_epsilon(rho, delta), 0)
        stated = epsilon_of(rho, delta)
        stated = mpmath.mpf(stated.numerator) / stated.denominator
        assert stated >= truth
        assert stated <= truth * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -9


@given(rhos, st.fractions(min_value=0, max_value=50, max_denominator=100))
@settings(max_examples=30, deadline=None)
def test_delta_is_above_the_truth_and_close(rho, epsilon):
    with mpmath.workdps(40):
        truth = min(exact_delta(rho, epsilon), 1)
        stated = delta_of(rho, epsilon)
        assert mpmath.mpf(stated.numerator) / stated.denominator >= truth
        assert stated <= Fraction(1, 10**430) or mpmath.mpf(
            stated.numerator
        ) / stated.denominator <= truth * (1 + 1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("rho", ["1/1000", "1/10", "1", "2.556"])
@pytest.mark.parametrize("delta", ["1e-6", "1e-10"])
def test_dp_accounting_agrees(rho, delta):
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = 1 + np.exp(np.linspace(-3, 12, 200_000))
    theirs, _ = rdp.compute_epsilon(orders, orders * float(Fraction(rho)), float(Fraction(delta)))
    ours = float(epsilon_of(Fraction(rho), Fraction(delta)))
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("rho", ["1/100", "1", "4"])
def test_gaussian_noise_needs_less_than_the_bound(rho):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    sigma = float(1 / np.sqrt(2 * float(Fraction(rho))))
    tight = pld.from_gaussian_mechanism(sigma, use_connect_dots=True).get_epsilon_for_delta(1e-6)
    assert tight <= float(epsilon_of(Fraction(rho), Fraction(1, 10**6)))


def test_the_two_directions_meet():
    rho, delta = Fraction(1, 2), Fraction(1, 10**8)
    assert delta_of(rho, epsilon_of(rho, delta)) == pytest.approx(delta, rel=1e-9)


def test_the_production_figure_of_the_2020_census():
    assert float(epsilon_of(Fraction("2.556"), Fraction(1, 10**10))) == pytest.approx(17.14, abs=0.005)


def test_no_loss_costs_nothing():
    assert epsilon_of(Fraction(0), Fraction(1, 10)) == delta_of(Fraction(0), Fraction(0)) == 0
    assert rho_of(Fraction(3)) == Fraction(9, 2)


@pytest.mark.parametrize("rho", [Fraction(1, 10**300), Fraction(10**300)])
def test_extremes_stay_finite_and_quick(rho):
    assert epsilon_of(rho, Fraction(1, 10**300)) >= 0
    assert 0 < delta_of(rho, Fraction(1)) <= 1


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1, 2), 1.5])
def test_a_delta_outside_the_unit_interval_is_refused(delta):
    with pytest.raises(SpecError, match="delta"):
        epsilon_of(Fraction(1), delta)


@pytest.mark.parametrize("bad", [Fraction(-1), -0.5, None, float("nan")])
def test_a_bad_rho_is_refused(bad):
    with pytest.raises(SpecError, match="rho"):
        epsilon_of(bad, Fraction(1, 2))
    with pytest.raises(SpecError, match="rho"):
        delta_of(bad, Fraction(1))


@pytest.mark.thorough
@given(st.fractions(min_value=Fraction(1, 1000), max_value=50, max_denominator=1000), deltas)
@settings(max_examples=20, deadline=None)
def test_rho_for_a_delta_keeps_the_promise_and_more_would_break_it(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    assert epsilon_of(rho * Fraction(1 + 10**9, 10**9), delta) > epsilon


def test_floats_text_and_fractions_are_the_same_number():
    assert (
        epsilon_of(0.1, 1e-6) == epsilon_of("1/10", "1e-6") == epsilon_of(Fraction(1, 10), Fraction(1, 10**6))
    )
    assert rho_of(0.1) == rho_of(np.float32(0.1)) == Fraction(1, 200)
