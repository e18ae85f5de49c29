"""The law of one count's error: closed forms, an oracle, the noise itself, and its limits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from trueup.errors import SpecError
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, TruncatedGeometric
from trueup.theory import (
    MarginalError,
    characteristic,
    kolmogorov,
    projected_error,
    projected_variances,
    variance_limit,
    wasserstein,
    wasserstein_bound,
    weighted_error,
)

INTEGER = [DiscreteLaplace("1/2"), DiscreteGaussian("3"), TruncatedGeometric("1/2", 9)]
CONTINUOUS = {"laplace": (Laplace("3"), "laplace", 3.0), "gaussian": (Gaussian("4"), "normal", 2.0)}
AT = np.array([-9.01, -4.3, -1.2, -0.1, 0.05, 0.7, 2.1, 6.4])


def z_scores(errors, probabilities):
    """Of how many errors are at most AT, where enough are on either side for a normal limit."""
    below = np.searchsorted(np.sort(errors), AT, side="right")
    variance = len(errors) * probabilities * (1 - probabilities)
    return np.where(variance > 50, (below - len(errors) * probabilities) / np.sqrt(variance + 1e-300), 0.0)


@pytest.mark.parametrize("n", [2, 3, 15])
@pytest.mark.parametrize("law", INTEGER, ids=lambda law: law.name)
def test_integer_noise_has_the_law_that_theorem_12_says(law, n, rng):
    noise = law.sample(100_000 * n, rng.bytes).reshape(-1, n)
    errors = noise[:, 0] - noise.mean(1)
    assert np.abs(z_scores(errors, projected_error(law, n).cdf(AT))).max() < 5.5
    assert np.abs(z_scores(errors, law.cdf(AT))).max() > 5.5  # the noise itself is another law


@pytest.mark.parametrize("n", [2, 3, 15])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_noise_has_the_law_that_theorem_12_says(name, n, rng):
    law, sampler, width = CONTINUOUS[name]
    noise = getattr(rng, sampler)(0, width, (100_000, n))
    errors = noise[:, 0] - noise.mean(1)
    assert np.abs(z_scores(errors, projected_error(law, n).cdf(AT))).max() < 5.5
    assert np.abs(z_scores(errors, law.cdf(AT))).max() > 5.5  # the noise itself is another law


def test_two_parts_of_laplace_noise_in_closed_form():
    """(a - b) / 2 is the sum of two Laplace variables of half the scale."""
    x = np.linspace(0, 60, 50)
    y = x / 1.5
    error = projected_error(Laplace("3"), 2)
    np.testing.assert_allclose(error.cdf(x), 1 - np.exp(-y) * (2 + y) / 4, atol=1e-14)
    np.testing.assert_allclose(error.density(x), np.exp(-y) * (1 + y) / 4 / 1.5, atol=1e-7)
    assert wasserstein(Laplace("3"), 2) == pytest.approx(3 - 2.25, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 15])
def test_laplace_against_an_oracle(n):
    share, scale = mpmath.mpf(1) / n, mpmath.mpf(3)

    def phi(t):
        return 1 / (1 + ((1 - share) * scale * t) ** 2) / (1 + (share * scale * t) ** 2) ** (n - 1)

    for x in (0.5, 4.0, 20.0):
        with mpmath.workdps(25):
            wave = mpmath.quad(lambda t, x=x: phi(t) * mpmath.sin(t * x) / t, mpmath.linspace(0, 150, 200))
        assert float(projected_error(Laplace("3"), n).cdf(x)) == pytest.approx(
            float(0.5 + wave / mpmath.pi), abs=1e-8
        )


def test_gaussian_errors_are_gaussian():
    from scipy.special import ndtr

    for n in (2, 50, 10**6):
        error = projected_error(Gaussian("4"), n)
        np.testing.assert_allclose(error.cdf(AT), ndtr(AT / np.sqrt(4 * (1 - 1 / n))), atol=1e-10)
        assert error.kurtosis == pytest.approx(3)


@pytest.mark.parametrize(
    "law", [*INTEGER, *(law for law, *_ in CONTINUOUS.values())], ids=lambda law: law.name
)
def test_variance_and_kurtosis_are_those_of_the_distribution_function(law):
    """Integrated from the distribution function: E e^2 = 4 int x (1 - F), E e^4 = 8 int x^3 (1 - F)."""
    error = projected_error(law, 4)
    x = (np.arange(-1, 1_200_000) + 0.5) / 4e3 if not law.discrete else (np.arange(2_000) + 0.5) / 4
    tail, step = 1 - error.cdf(x), x[1] - x[0]
    slack = 2e-4 if law.discrete else 1e-6
    exact = {True: (np.arange(1, 2_001) / 4), False: x}[law.discrete]
    # on a lattice sum over the steps: int_a^b 4 x dx = 2 (b^2 - a^2), int 8 x^3 dx = 2 (b^4 - a^4)
    edges = np.concatenate([[0.0], exact]) if law.discrete else None
    second = 2 * tail @ np.diff(edges**2) if law.discrete else 4 * step * (x @ tail)
    fourth = 2 * tail @ np.diff(edges**4) if law.discrete else 8 * step * (x**3 @ tail)
    assert second == pytest.approx(error.variance, rel=slack)
    assert fourth / second**2 == pytest.approx(error.kurtosis, rel=slack)


@pytest.mark.parametrize("n", [2, 15, 40])
def test_each_atom_counts_whole_at_itself_and_not_at_all_just_below(n):
    """Against the convolution; a tolerance that grows with the bound took atoms in part at -4 - 1e-9."""
    law = DiscreteLaplace("1/2")
    mass = law.pmf(np.arange(-100, 101))
    rest = np.array([1.0])
    for _ in range(n - 1):
        rest = np.convolve(rest, mass)
    own = np.zeros((n - 1) * 200 + 1)
    own[:: n - 1] = mass
    atoms = np.convolve(own, rest)  # of n times the error, from -2 (n - 1) 100 on
    below = np.cumsum(atoms)
    middle = len(atoms) // 2
    at = np.array([-9 * n, -4 * n - 1, -4 * n, -1, 0, 1, 4 * n, 7 * n + 1])
    error = projected_error(law, n)
    for nudge in (0.0, 1e-9, 1e-7):
        np.testing.assert_allclose(error.cdf(at / n + nudge), below[middle + at], atol=1e-10)
    for nudge in (1e-9, 1e-7):
        np.testing.assert_allclose(error.cdf(at / n - nudge), below[middle + at - 1], atol=1e-10)


def test_unequal_noise_against_draws(rng):
    laws = [DiscreteLaplace("1/2"), DiscreteLaplace("1"), DiscreteGaussian("7"), DiscreteLaplace("1/2")]
    variances = np.array([law.variance for law in laws])
    noise = np.column_stack([law.sample(100_000, rng.bytes) for law in laws])
    for i, law in enumerate(laws):
        error = weighted_error(laws, i)
        drawn = noise[:, i] - variances[i] / variances.sum() * noise.sum(1)
        assert np.abs(z_scores(drawn, error.cdf(AT))).max() < 5.5
        assert error.variance == pytest.approx(projected_variances(variances)[i])
        assert error.variance == pytest.approx(law.variance * (1 - law.variance / variances.sum()))
    equal = MarginalError(laws[1], ((laws[0], 2), (laws[2], 1)), 0.25)  # equal shares are another law
    drawn = noise[:, 1] - variances[1] / variances.sum() * noise.sum(1)
    assert np.abs(z_scores(drawn, equal.cdf(AT))).max() > 5.5


@pytest.mark.parametrize(
    "law", [Laplace("10"), DiscreteLaplace("1/10"), Gaussian("200")], ids=lambda law: law.name
)
def test_the_variance_grows_to_its_limit(law):
    """Theorem 13."""
    variances = [projected_error(law, n).variance for n in (2, 15, 254, 10**6)]
    assert variances == sorted(variances)
    assert variances[-1] == pytest.approx(variance_limit(law), rel=1e-5)
    assert variance_limit(law) - variances[1] == pytest.approx(law.variance / 15)
    np.testing.assert_allclose(projected_variances(np.full(15, law.variance)), variances[1])


@pytest.mark.parametrize(
    "law", [Laplace("10"), Gaussian("9"), DiscreteLaplace("1/2")], ids=lambda law: law.name
)
def test_the_error_converges_to_the_noise(law):
    """Theorem 14, by a distance and its bound."""
    distances = [wasserstein(law, n) for n in (2, 5, 25, 125)]
    assert distances == sorted(distances, reverse=True)
    assert all(d <= wasserstein_bound(law, n) for d, n in zip(distances, (2, 5, 25, 125)))
    assert distances[-1] < 0.1 * np.sqrt(law.variance)
    if not law.discrete:
        assert kolmogorov(law, 125) < 0.1 * kolmogorov(law, 2)


def test_the_distance_is_that_of_sorted_draws(rng):
    noise = rng.laplace(0, 3, (400_000, 4))
    paired = np.abs(np.sort(noise[:, 0] - noise.mean(1)) - np.sort(noise[:, 3])).mean()
    assert paired == pytest.approx(wasserstein(Laplace("3"), 4), abs=0.05)


@pytest.mark.parametrize(
    "law", [*INTEGER, *(law for law, *_ in CONTINUOUS.values())], ids=lambda law: law.name
)
def test_characteristic_functions_match_the_moments(law):
    t = np.array([0.0, 1e-3, 2e-3])
    one, near, far = characteristic(law, t)
    assert one == pytest.approx(1, rel=1e-14)
    assert (1 - near) / (t[1] ** 2 / 2) == pytest.approx(law.variance, rel=1e-3)
    assert far < near


@pytest.mark.parametrize("sigma2", ["1", "3/2", "20"])
def test_discrete_gaussian_waves_are_sums_over_its_mass(sigma2):
    law, t = DiscreteGaussian(sigma2), np.linspace(-9, 9, 41)
    k = np.arange(-80, 81)
    np.testing.assert_allclose(characteristic(law, t), np.cos(np.outer(t, k)) @ law.pmf(k), atol=1e-14)


def test_wide_integer_noise_is_as_good_as_continuous():
    wide = projected_error(DiscreteGaussian(10**8), 7)
    x = np.array([-2e4, -3.3e3, 0.5, 1e4])
    np.testing.assert_allclose(wide.cdf(x), projected_error(Gaussian(10**8), 7).cdf(x), atol=1e-4)


def test_edges():
    law = DiscreteLaplace("1")
    assert projected_error(law, 1).variance == 0
    np.testing.assert_array_equal(projected_error(law, 1).cdf([-0.1, 0.0, 3.0]), [0, 1, 1])
    np.testing.assert_allclose(projected_variances([0.0, 0.0]), 0)
    assert projected_error(law, 10**6).cdf(0.5) == pytest.approx(float(law.cdf(0)), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: projected_error(Laplace("1"), 0), "n, is 0"),
        (lambda: weighted_error([Laplace("1"), DiscreteLaplace("1")], 0), "others continuous"),
        (lambda: projected_error(DiscreteLaplace("1"), 3).density(0.0), "no density"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call()
