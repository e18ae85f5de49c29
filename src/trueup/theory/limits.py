"""Limits of the error after projection, and the probability that noise lies in a ball.

One file: bounds on the whole vector of noise, of single counts and on lattices.

The tail bounds on lattices are those of the fourth paper: asymptotic statements, with the constants of their proofs. Source:
Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy": Lemma 11, Theorem 12, Theorem 15 (Proposition 18). All
hold **beyond some radius that the paper does not give**: for small ones they may fail, as a test shows. How far the noise of a
release goes is said by `trueup explain`, from the law that is drawn: exactly, or by a bound that is proved at every radius.

Let L be the lattice of integer vectors that change no invariant, of dimension d, and `det` the volume of its cell, the root of
`det(C'C)` for a basis C. With V_d the volume of the unit ball, Landau (1915) gives `N(r) ~ V_d r^d / det` for the number of its
points within r; "large enough" in the paper is where that is right within a factor two. The rest is a geometric series over
shells of width 1:

    P(||v|| >= t)  <=  sum_{k >= floor(t)} w(k) N(k + 1),      w(k) = exp(-epsilon k) or exp(-k^2 / (2 sigma2)),

whose normaliser is at least the mass 1 of zero, and whose terms fall by a half of their exponential rate a step, once
`(1 + 1/k)^d <= exp(epsilon / 2)`, or a similar one.
"""

from __future__ import annotations

import math
from math import exp, expm1, floor, inf, log, log1p, sinh, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.kernel.lattice import algebra
from trueup.noise.law import Law, Reals
from trueup.noise.losses import power
from trueup.theory.marginal import MarginalError, projected_error

MAX_CONVOLVED_RADIUS = 2**14
"""Largest radius (counts) up to which laws without a formula are convolved."""


def ball_probability(law: Law, n: int, radius: float) -> float:
    """Return the probability that independent noise on `n` counts has a norm of at most `radius`.

    The norm is the sum of absolute values; for Gaussian noise it is the Euclidean length, for which there is
    a formula. By Corollary 9 the same number is the probability that noisy counts are in the ball around
    the true ones.

    Parameters
    ----------
    law
        Noise on every count. Laplace, Gaussian and two-sided geometric noise have formulas; other laws
        on the integers are convolved up to a radius of 16,384.
    n
        Number of counts.
    radius
        Radius (counts), real.

    Returns
    -------
    float
        Right to a relative 1e-7, in both tails and up to n = 1e6, for the laws with a formula; to an absolute
        1e-12 for others.

    Raises
    ------
    SpecError
        If `n` is not a positive whole number, or no probability is known for that law and radius.

    Notes
    -----
    Lemma 8: for Laplace noise of scale `s` the probability is `1 - exp(-r/s) sum_{i<n} (r/s)^i / i!`. That is
    the regularised incomplete gamma function P(n, r/s), since the absolute noise is exponential; the printed sum
    overflows near n = 170 and cancels. For noise with `P(k) ~ a^|k|` the printed polynomials h_i are convolutions
    of convolutions. But `|k|` is the sum of a Bernoulli variable of probability `a / (1 + a)` and of a geometric
    one of ratio `a`, because the generating functions multiply to the right one,

        (1 - a) / (1 + a) (1 + 2 sum_k a^k z^k) = (1 + a z) / (1 + a) (1 - a) / (1 - a z),

    so the norm is a binomial plus a negative binomial variable, and the probability is a sum of positive
    terms, each an incomplete beta function.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Lemma 8 and Corollary 9.

    Examples
    --------
    >>> from trueup.noise import DiscreteLaplace, Laplace
    >>> round(ball_probability(Laplace("5"), 33, 348.0), 9)
    0.999999624
    >>> round(ball_probability(DiscreteLaplace("1/5"), 1_000_000, 4_966_821), 4)
    0.5001
    """
    return _inside_and_outside(law, n, radius)[0]


def outside_probability(law: Law, n: int, radius: float) -> float:
    """Return the probability that the noise lies outside the ball, also where it is tiny.

    For a law without a formula it is that difference, so it is right to an absolute 1e-12 only.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> print(f"{outside_probability(Laplace('5'), 33, 348.0):.4g}")
    3.758e-07
    """
    return _inside_and_outside(law, n, radius)[1]


def _inside_and_outside(law: Law, n: int, radius: float) -> tuple[float, float]:
    """Return the probabilities that the noise lies inside and outside the ball."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SpecError(f"the number of counts, n, is {n!r}", needed="a whole number of 1 or more")
    if not radius == radius:
        raise SpecError("the radius is not a number", needed="a number of counts")
    if radius < 0:
        return 0.0, 1.0
    if radius == inf:
        return 1.0, 0.0
    if not law.discrete and law.form is not None:  # the norm's power is a gamma variable
        slope, curvature, _ = law.form
        return _gamma(n / 2, radius**2 * curvature) if curvature else _gamma(n, radius * slope)
    if law.rate is not None:
        return _geometric(law.rate, int(n), floor(min(radius, 2.0**62)))
    if law.discrete and law.factors and radius <= MAX_CONVOLVED_RADIUS:
        inside = convolved_norm_probability(law, int(n), floor(radius))
        return inside, max(0.0, 1 - inside)
    raise SpecError(
        f"the probability that the errors lie within {radius:g} counts is not known for the noise '{law.name}'",
        needed=f"Laplace, Gaussian or two-sided geometric noise, or another integer law up to radius {MAX_CONVOLVED_RADIUS:,}",
    )


def _gamma(shape: float, x: float) -> tuple[float, float]:
    from scipy.special import gammainc, gammaincc

    return float(gammainc(shape, x)), float(gammaincc(shape, x))


def _geometric(epsilon: float, n: int, radius: int) -> tuple[float, float]:
    """Return the probabilities that geometric noise lies inside and outside the ball."""
    above = (radius + 1) * sinh(min(epsilon, 700.0)) > n  # the mean of the norm is n / sinh(epsilon)
    part = min(float(_terms(epsilon, n, radius, above).sum()), 1.0)
    return (1 - part, part) if above else (part, 1 - part)


def _terms(epsilon: float, n: int, radius: int, above: bool) -> NDArray[np.float64]:
    """Return the terms `P(binomial = k) P(negative binomial > radius - k)`, or with `<=`, that matter.

    They are found by tilting: with `u` in place of `a = exp(-epsilon)` the norm has its mean at the radius, and the
    terms have their weight where the tilted binomial law has. Its mass, normalised over the window, gives the
    binomial mass back without factorials.
    """
    from scipy.special import betainc, betaincc

    mean = max(radius, 0.5) / n
    u = mean / (1 + sqrt(1 + mean * mean))  # solves 2 u / (1 - u^2) = mean
    centre, spread = n * u / (1 + u), sqrt(n * u) / (1 + u)
    k = np.arange(max(0, floor(centre - 10 * spread) - 60), min(n, floor(centre + 10 * spread) + 60) + 1)
    tilted = np.concatenate([[0.0], np.cumsum(np.log((n - k[:-1]) / (k[:-1] + 1.0)) + log(u))])
    tilted -= tilted.max()
    tilted -= log(np.exp(tilted).sum())
    mass = np.exp(tilted + n * (log1p(u) - log1p(exp(-epsilon))) - k * (log(u) + epsilon))
    left = radius - k
    tail = (betaincc if above else betainc)(n, np.maximum(left, 0) + 1.0, -expm1(-epsilon))
    return mass * np.where(left >= 0, tail, float(above))


def convolved_norm_probability(law: Law, n: int, radius: int) -> float:
    """Return the probability that the norm of the noise is at most the radius, by convolutions."""
    from scipy.signal import fftconvolve

    convolve = np.convolve if radius <= 512 else lambda x, y: np.maximum(fftconvolve(x, y), 0.0)
    masses = np.exp(law.logpmf(np.arange(radius + 1)))
    masses[1:] *= 2
    return float(min(1.0, power(masses, n, lambda x, y: convolve(x, y)[: radius + 1]).sum()))


POINTS = 20_001
"""Points above zero at which distribution functions of continuous errors are compared."""


def variance_limit(law: Law) -> float:
    """Return the limit (counts squared) of the error variance of a part as the number of siblings grows.

    Theorem 13: `Var(error) = (1 - 1/n) Var(noise)` increases with n and tends to the variance of the noise.
    What is missing at n is `Var(noise) / n` exactly, whatever the law.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> variance_limit(Laplace("10"))
    200.0
    """
    return law.variance


def wasserstein(law: Law, n: int) -> float:
    """Return the Wasserstein-1 distance (counts) between the laws of the noise and the projected error.

    It is `integral |F - G|` of the two distribution functions, and at most `wasserstein_bound`.

    Parameters
    ----------
    law
        Noise of every part.
    n
        Number of parts.

    Returns
    -------
    float
        Right to a relative 1e-6 for continuous noise (a sum over 20,000 intervals); for noise on the integers the
        sum over all steps is exact but for rounding.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), Figure 5.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> [round(wasserstein(Laplace("10"), n), 3) for n in (2, 10, 100)]
    [2.5, 0.523, 0.066]
    """
    gaps, widths = _gaps(projected_error(law, n), n)
    return 2 * float(gaps @ widths)


def kolmogorov(law: Law, n: int) -> float:
    """Return the largest difference of the distribution functions of the noise and the projected error.

    Theorem 14: the error converges in distribution to the noise as n grows, so this goes to zero for
    continuous noise. For noise on the integers it does not: the error spreads each integer's mass over
    multiples of 1/n around it, and a distribution function with steps is approached everywhere but at its steps. The
    theorem holds there too, and `wasserstein` shows it.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> [round(kolmogorov(Laplace("10"), n), 3) for n in (2, 10, 100)]
    [0.051, 0.013, 0.003]
    """
    return float(_gaps(projected_error(law, n), n)[0].max())


def wasserstein_bound(law: Law, n: int) -> float:
    """Return `sqrt(Var(noise) / n)`, an upper bound on the distance that `wasserstein` returns.

    Error and noise differ by the mean of all parts' noise, so their mean distance is at most its standard
    deviation. This proves Theorem 14 for every law of finite variance, with a rate.

    Examples
    --------
    >>> from trueup.noise import Gaussian
    >>> wasserstein_bound(Gaussian("4"), 100)
    0.2
    """
    return sqrt(law.variance / n)


def _gaps(error: MarginalError, n: int) -> tuple[NDArray, NDArray]:
    """Return differences of both distribution functions at grid points, and the widths of the grid."""
    if error.discrete:
        # Both functions are constant between multiples of 1/n: their middles stand for whole steps.
        x = (np.arange(int(1 - error.own.quantile(1e-13)) * n) + 0.5) / n
        widths = np.full(len(x), 1 / n)
    else:
        # Most points stand where most mass is.
        ends = -error.own.quantile(1e-12) * np.linspace(0, 1, POINTS) ** 2
        x, widths = 0.5 * (ends[1:] + ends[:-1]), np.diff(ends)
    return np.abs(error.own.cdf(x) - error.cdf(x)), widths


class LatticeShape(NamedTuple):
    """The dimension and the volume of a lattice, on which the bounds depend.

    Attributes
    ----------
    dimension
        d.
    log_volume
        Log of the volume of its cell, the root of `det(C'C)`.
    """

    dimension: int
    log_volume: float

    @classmethod
    def of(cls, invariants: ArrayLike) -> LatticeShape:
        """Return the dimension and the volume of the lattice on which all invariants `(m, n)` are zero.

        Examples
        --------
        >>> shape = LatticeShape.of([[1, 1, 1]])
        >>> shape.dimension, round(float(np.exp(2 * shape.log_volume)))
        (2, 3)
        """
        basis = algebra.basis(algebra.integer_matrix(invariants)).astype(float)
        return cls(len(basis), 0.5 * float(np.linalg.slogdet(basis @ basis.T)[1]))

    @property
    def log_unit_ball(self) -> float:
        """Return the log of the volume of the unit ball in d dimensions."""
        return self.dimension / 2 * math.log(math.pi) - math.lgamma(self.dimension / 2 + 1)


def points_in_ball(shape: LatticeShape, radius: ArrayLike) -> Reals:
    """Return `V_d r^d / det`, the approximate number of lattice points within radius r (Lemma 11).

    Asymptotic: for all r beyond some r_0 the number is between half and twice it. It says nothing of an r_0, and near r = 0,
    where there is one point, it is false.

    Parameters
    ----------
    shape
        The lattice.
    radius
        Radii in the L2 norm (counts).

    Examples
    --------
    >>> round(float(points_in_ball(LatticeShape.of([[1, 1, 1]]), 10.0)))
    181
    """
    r = np.asarray(radius, float)
    with np.errstate(divide="ignore"):
        return np.exp(shape.log_unit_ball + shape.dimension * np.log(r) - shape.log_volume)


def l2_laplace_tail(shape: LatticeShape, epsilon: float, t: ArrayLike) -> Reals:
    """Return `K (t + 1)^d exp(-epsilon (t - 1))`, which bounds `P(||noise||_2 >= t)` (Theorem 12).

    Asymptotic: it holds for all t beyond some t_0. `K = 2 V_d / (det (1 - exp(-epsilon / 2)))` is what the proof needs: a factor
    two of Lemma 11 and the geometric series of the ratio test. It may exceed 1, where it says nothing.

    Parameters
    ----------
    shape
        The lattice.
    epsilon
        Inverse scale of the law.
    t
        Norms (counts).

    Examples
    --------
    >>> bound = l2_laplace_tail(LatticeShape.of([[1, 1, 1]]), 1.0, [20.0, 30.0])
    >>> print(f"{bound[0]:.1g} {bound[1]:.1g}")
    2e-05 2e-09
    """
    t = np.asarray(t, float)
    constant = math.log(2) + shape.log_unit_ball - shape.log_volume - math.log(-math.expm1(-epsilon / 2))
    return np.exp(constant + shape.dimension * np.log(t + 1) - epsilon * (t - 1))


def gaussian_tail(shape: LatticeShape, sigma2: float, t: ArrayLike) -> Reals:
    """Return `K (t + 1)^d exp(-(t - 1)^2 / (2 sigma2))`, which bounds `P(||noise||_2 >= t)` (Theorem 15).

    Asymptotic: it holds for all t beyond some t_0. `K = 2 V_d / (det (1 - exp(-1 / (2 sigma2))))` is what the proof needs: the
    terms fall by `exp(-1 / (2 sigma2))` a step or faster once the ratio test applies. It may exceed 1, where it says nothing.

    Parameters
    ----------
    shape
        The lattice.
    sigma2
        Variance parameter of the law (counts squared).
    t
        Norms (counts), at least 1.

    Examples
    --------
    >>> bound = gaussian_tail(LatticeShape.of([[1, 1, 1]]), 4.0, [12.0, 16.0])
    >>> print(f"{bound[0]:.1g} {bound[1]:.1g}")
    0.001 5e-09
    """
    t = np.asarray(t, float)
    constant = math.log(2) + shape.log_unit_ball - shape.log_volume - math.log(-math.expm1(-1 / (2 * sigma2)))
    return np.exp(constant + shape.dimension * np.log(t + 1) - (t - 1) ** 2 / (2 * sigma2))
