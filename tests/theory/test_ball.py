"""Ball probabilities against mpmath, against enumeration, and against the noise itself."""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import pytest

from tests.parameters import one_in
from trueup.errors import SpecError
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, TruncatedGeometric
from trueup.theory import ball_probability, outside_probability


def printed_laplace(n, x):
    """Lemma 8 as printed: outside, for scale 1."""
    return mpmath.exp(-x) * sum(x**i / mpmath.factorial(i) for i in range(n))


def printed_geometric(n, r, a):
    """The printed version for two-sided geometric noise: outside, with the polynomials h_i on 0..r."""
    h = [mpmath.mpf(1)] * (r + 1)
    total = mpmath.mpf(0)
    for i in range(n):
        total += h[r] * ((1 - a) / (1 + a)) ** i
        h = [sum(h[s - abs(v)] for v in range(-s, s + 1)) for s in range(r + 1)]
    return 2 * a ** (r + 1) / (1 + a) * total


def poisson_tail(n, x):
    """The same sum from its largest term down, for large n."""
    term = mpmath.exp(-x + (n - 1) * mpmath.log(x) - mpmath.loggamma(n))
    total, i = mpmath.mpf(0), n - 1
    while i >= 0 and term > total * mpmath.mpf(10) ** -30:
        total, term, i = total + term, term * i / x, i - 1
    return total


def geometric_recurrence(n, r, a):
    """Inside: coefficients of ((1 + a z) / (1 - a z))^n by their recurrence, at a precision that cancels nothing."""
    before, now = mpmath.mpf(1), 2 * n * a
    total = before + (now if r else 0)
    for k in range(1, r):
        before, now = now, (2 * n * a * now + a * a * (k - 1) * before) / (k + 1)
        total += now
    return ((1 - a) / (1 + a)) ** n * total


@pytest.mark.parametrize("n", [1, 2, 33, 150])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 1.7])
def test_laplace_is_the_printed_sum(n, ratio):
    with mpmath.workdps(60):
        outside = printed_laplace(n, mpmath.mpf(n * ratio))
        inside, outside = float(1 - outside), float(outside)
    law, radius = Laplace("3"), 3 * n * ratio
    assert ball_probability(law, n, radius) == pytest.approx(inside, rel=1e-11)
    assert outside_probability(law, n, radius) == pytest.approx(outside, rel=1e-11)


@pytest.mark.parametrize("sd", [-8, -3, 0, 3, 8, 25])
def test_laplace_is_stable_to_a_million_counts(sd):
    n = 10**6
    x = n + sd * 1000
    with mpmath.workdps(50):
        tail = poisson_tail(n, mpmath.mpf(x))
        inside, outside = float(1 - tail), float(tail)
    assert ball_probability(Laplace("1"), n, x) == pytest.approx(inside, rel=1e-7)
    assert outside_probability(Laplace("1"), n, x) == pytest.approx(outside, rel=1e-7)


@pytest.mark.parametrize(("n", "r"), [(1, 0), (1, 4), (2, 3), (4, 9), (7, 12)])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "4"])
def test_geometric_is_the_printed_sum(n, r, epsilon):
    with mpmath.workdps(60):
        outside = float(
            printed_geometric(n, r, mpmath.exp(-mpmath.mpf(float(DiscreteLaplace(epsilon).epsilon))))
        )
    law = DiscreteLaplace(epsilon)
    assert outside_probability(law, n, r) == pytest.approx(outside, rel=1e-11)
    assert ball_probability(law, n, r + 0.9) == pytest.approx(1 - outside, rel=1e-11)


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.parametrize("epsilon", ["1/10", "1", "5"])
@pytest.mark.parametrize("sd", one_in(2, [-4, 0, 12, 4]))
def test_geometric_keeps_its_digits_in_both_tails(n, epsilon, sd):
    law = DiscreteLaplace(epsilon)
    a = np.exp(-float(law.epsilon))
    mean, variance = n * 2 * a / (1 - a * a), n * law.variance
    r = max(1, int(mean + sd * np.sqrt(variance)))
    with mpmath.workdps(300):
        inside = geometric_recurrence(
            n, r, mpmath.exp(-mpmath.mpf(law.epsilon.numerator) / law.epsilon.denominator)
        )
        inside, outside = float(inside), float(1 - inside)
    assert ball_probability(law, n, r) == pytest.approx(inside, rel=1e-11)
    assert outside_probability(law, n, r) == pytest.approx(outside, rel=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("sd", [-4, 0, 6])
def test_geometric_keeps_its_digits_where_noise_is_wide(sd):
    law, n = DiscreteLaplace("1/300"), 40
    r = int(n * 300 + sd * np.sqrt(n * law.variance))
    with mpmath.workdps(120):
        inside = geometric_recurrence(n, r, mpmath.exp(-mpmath.mpf(1) / 300))
        inside, outside = float(inside), float(1 - inside)
    assert ball_probability(law, n, r) == pytest.approx(inside, rel=1e-11)
    assert outside_probability(law, n, r) == pytest.approx(outside, rel=1e-11)


def test_geometric_tends_to_laplace_at_a_million_counts():
    """Noise of scale 1,000: its steps are a thousandth of its width."""
    n, fine = 10**6, DiscreteLaplace("1/1000")
    for sd in (-2, 0, 2):
        radius = 1000.0 * (n + 1000 * sd)
        assert ball_probability(fine, n, radius) == pytest.approx(
            ball_probability(Laplace("1000"), n, radius), abs=1e-3
        )


@pytest.mark.parametrize("law", [DiscreteGaussian("3/2"), TruncatedGeometric(1, 5), DiscreteLaplace("2/3")])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_other_laws_are_enumerated(law, n):
    k = np.arange(-6, 7)
    mass = law.pmf(k)
    brute = sum(
        np.prod([mass[6 + v] for v in point]) for point in product(k, repeat=n) if sum(map(abs, point)) <= 6
    )
    assert ball_probability(law, n, 6) == pytest.approx(brute, rel=1e-12)


def test_convolution_agrees_with_the_formula():
    """A discrete Gaussian goes the slow way; the slow way agrees with the formula where both exist."""
    from trueup.theory.limits import convolved_norm_probability

    law = DiscreteLaplace("1/4")
    for n, r in ((1, 3), (5, 20), (64, 250), (64, 700)):
        assert convolved_norm_probability(law, n, r) == pytest.approx(ball_probability(law, n, r), abs=1e-12)


@pytest.mark.parametrize(
    ("law", "norm"),
    [(DiscreteLaplace("1/2"), 1), (DiscreteGaussian("5"), 1), (Gaussian("5"), 2), (Laplace("2"), 1)],
)
def test_the_noise_stays_inside_as_often_as_promised(law, norm, rng):
    n, runs = 12, 20_000
    if law.discrete:
        noise = law.sample(n * runs, rng.bytes).reshape(runs, n)
    else:
        noise = (
            rng.laplace(0, 2, (runs, n)) if law.name == "laplace" else rng.normal(0, np.sqrt(5), (runs, n))
        )
    size = np.linalg.norm(noise, norm, axis=1)
    for quantile in (0.1, 0.5, 0.9):
        radius = float(np.floor(np.quantile(size, quantile))) + 0.5
        p = ball_probability(law, n, radius)
        z = ((size <= radius).mean() - p) / np.sqrt(p * (1 - p) / runs)
        assert abs(z) < 5.2
        wrong = ball_probability(law, n, radius * 1.05)  # a radius 5 % off is noticed
        assert (
            abs((size <= radius).mean() - wrong) / np.sqrt(wrong * (1 - wrong) / runs) > 5.2
            or quantile == 0.9
        )


def test_edges():
    law = DiscreteLaplace("1")
    assert (ball_probability(law, 3, -1), outside_probability(law, 3, -1)) == (0, 1)
    assert (ball_probability(law, 3, np.inf), outside_probability(law, 3, np.inf)) == (1, 0)
    assert (ball_probability(law, 3, 1e300), outside_probability(law, 3, 1e300)) == (1, 0)
    rare = outside_probability(DiscreteLaplace(100), 5, 0)
    assert rare == pytest.approx(5 * 2 * np.exp(-100), rel=1e-12)
    assert ball_probability(law, 3, 0) == pytest.approx(law.pmf(0) ** 3, rel=1e-13)


@pytest.mark.parametrize(
    ("law", "n", "radius", "words"),
    [
        (Laplace("1"), 0, 1, "n, is 0"),
        (Laplace("1"), 2.5, 1, "n, is 2.5"),
        (Laplace("1"), True, 1, "n, is True"),
        (Laplace("1"), 2, float("nan"), "not a number"),
        (DiscreteGaussian("1"), 2, 10**6, "'discrete-gaussian'"),
    ],
)
def test_bad_input_is_refused(law, n, radius, words):
    with pytest.raises(SpecError, match=words):
        ball_probability(law, n, radius)
