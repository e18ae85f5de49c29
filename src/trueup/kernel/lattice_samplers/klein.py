"""Gaussian and L2-norm Laplace noise on any lattice, exact up to the rounding of doubles.

Klein's walk draws the coefficient of each basis vector, the last first, from a discrete Gaussian centred
so that the whole lands near zero. With Gram-Schmidt norms g_i and `rho(s, c) = sum_z exp(-(z - c)^2 / (2 s^2))`,
a vector v comes out with probability `exp(-||v||^2 / (2 sigma^2)) / prod_i rho(sigma / g_i, c_i)`. The
denominator depends on v through the centres, and `rho(s, c) <= rho(s, 0)`, so accepting with
`prod_i rho(sigma / g_i, c_i) / rho(sigma / g_i, 0)` makes the law exact (Brakerski, Langlois, Peikert, Regev and Stehle
2013, lemma 2.3). For sigma at or above the g_i almost every try is accepted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers import POSITION, RUNNING, START, STATUS, TRIES, word


class KleinWalk(NamedTuple):
    """A lattice basis with its Gram-Schmidt form.

    Attributes
    ----------
    basis
        `(d, n)` integers.
    slopes
        `(d, d)`: coefficients `mu[i, j]` of vector i on the orthogonalised vector j < i.
    norms
        `(d,)`: lengths of the orthogonalised vectors.
    """

    basis: NDArray[np.int64]
    slopes: NDArray[np.float64]
    norms: NDArray[np.float64]

    @classmethod
    def of(cls, basis: NDArray[np.int64]) -> KleinWalk:
        """Return the walk of a basis `(d, n)`, with its Gram-Schmidt form."""
        triangle = np.asarray(np.linalg.qr(basis.T.astype(np.float64), mode="r")).T
        norms = np.abs(np.diag(triangle))
        return cls(np.ascontiguousarray(basis), np.ascontiguousarray(triangle / np.diag(triangle)), norms)


@njit(cache=True)
def draw_gaussians(tape, notes, state, walk, sigma, out, done):
    """Draw vectors `v` of the lattice with `p(v) ~ exp(-||v||^2 / (2 sigma^2))`."""
    coefficients = np.zeros(len(walk.norms), np.int64)
    while done < out.shape[0]:
        state[START] = state[POSITION]
        tries = 1
        while _logarithm(tape, state) > _walk(tape, state, walk, sigma, coefficients, True):
            tries += 1
            if state[STATUS] != RUNNING:
                break
        if state[STATUS] != RUNNING:
            break
        _combine(walk.basis, coefficients, out[done])
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def draw_sum_gaussians(tape, notes, state, sigma, out, done):
    """Draw n-cell vectors with sum 0 from the law of `draw_gaussians`, in O(n).

    The basis `e_i - e_(i+1)` has squared Gram-Schmidt norms `(i + 2) / (i + 1)` and each vector leans on
    the one before it alone, by `-i / (i + 1)` for vector i = 1, 2, ...
    """
    n = out.shape[1]
    while done < out.shape[0]:
        state[START] = state[POSITION]
        tries, accepted = 0, False
        while not accepted and state[STATUS] == RUNNING:
            tries += 1
            chance, after = 0.0, 0
            out[done] = 0
            for i in range(n - 2, -1, -1):
                spread = sigma * math.sqrt((i + 1.0) / (i + 2.0))
                centre = after * (i + 1.0) / (i + 2.0)
                after = gaussian(tape, state, spread, centre)
                out[done, i] += after
                out[done, i + 1] -= after
                chance += _shortfall(spread, centre)
            accepted = chance == 0.0 or _logarithm(tape, state) <= chance
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def draw_l2_laplaces(tape, notes, state, walk, epsilon, mixture, out, done):
    """Draw vectors `v` of the lattice with `p(v) ~ exp(-epsilon ||v||_2)`.

    `exp(-epsilon r)` is a mixture of Gaussians, `int t^(-1/2) exp(-epsilon^2 t / 2 - r^2 / (2 t)) dt` up to a factor. So
    draw t, walk with `sigma^2 = t`, and accept the pair. Where t is large the walk's total mass is
    `prod_i s_i sqrt(2 pi)` but for a factor of at most `exp(mixture.high)`, whence t ~ Gamma((d+1)/2, epsilon^2/2); below
    `mixture.split` it is at most `exp(mixture.low)`, whence a density proportional to `t^(-1/2)`.
    """
    d = len(walk.norms)
    coefficients = np.zeros(d, np.int64)
    while done < out.shape[0]:
        state[START] = state[POSITION]
        tries, accepted = 0, False
        while not accepted and state[STATUS] == RUNNING:
            tries += 1
            below = _uniform(tape, state) < mixture.narrow
            t = _variance(tape, state, mixture, d, epsilon, below)
            if state[STATUS] != RUNNING:
                break
            envelope = mixture.low + epsilon * epsilon * t / 2
            if not below:
                envelope = mixture.high
                for norm in walk.norms:
                    envelope += math.log(math.sqrt(2 * math.pi * t) / norm)
            weight = _walk(tape, state, walk, math.sqrt(t), coefficients, False)
            accepted = _logarithm(tape, state) <= weight - envelope
        if state[STATUS] != RUNNING:
            break
        _combine(walk.basis, coefficients, out[done])
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _variance(tape, state, mixture, d, epsilon, below):
    """Propose a variance t of the mixture, below or above the split point."""
    if below:
        return mixture.split * _uniform(tape, state) ** 2
    t = 0.0
    while t < mixture.split and state[STATUS] == RUNNING:
        t = _gamma(tape, state, (d + 1) / 2) * 2 / (epsilon * epsilon)
    return t


class Mixture(NamedTuple):
    """The proposal of the variance t in `draw_l2_laplaces`.

    Attributes
    ----------
    split
        Where its two pieces meet (counts squared).
    high, low
        Logarithms of the envelope's constants above and below the split.
    narrow
        Probability of proposing below it.
    tries
        Expected proposals for one vector, about.
    """

    split: float
    high: float
    low: float
    narrow: float
    tries: float

    @classmethod
    def of(cls, norms: NDArray[np.float64], epsilon: float) -> Mixture:
        """Return the proposal that splits the variance where sigma is 0.9 of the largest Gram-Schmidt norm."""
        from scipy.special import gammaincc, gammaln

        d, rate, narrowest = len(norms), epsilon * epsilon / 2, 0.9
        split = (narrowest * norms.max()) ** 2
        high = d * math.log(rho(narrowest, 0.0) / (narrowest * math.sqrt(2 * math.pi)))
        low = sum(math.log(rho(math.sqrt(split) / norm, 0.0)) for norm in norms)
        shape = (d + 1) / 2
        above = d / 2 * math.log(2 * math.pi) - np.log(norms).sum() + gammaln(shape) - shape * math.log(rate)
        smooth, tail = above, math.log(max(float(gammaincc(shape, rate * split)), 1e-300))
        above += tail + high
        below = low + math.log(2 * math.sqrt(split))
        # The target's mass is about that of the continuous law, and more than that of zero alone.
        target = max(smooth, math.log(math.sqrt(2 * math.pi) / epsilon))
        total = np.logaddexp(above, below)
        tries = math.exp(min(float(total - target), 700.0))
        return cls(split, high, low, float(np.exp(below - total)), tries)


@njit(cache=True)
def rho(spread, centre):
    """Return `sum_z exp(-(z - centre)^2 / (2 spread^2))`, by Poisson summation if that converges faster."""
    centre -= math.floor(centre)
    if spread > 0.6:
        total = 1.0
        for k in range(1, 5):
            falls = math.exp(-2 * (math.pi * spread * k) ** 2)
            total += 2 * falls * math.cos(2 * math.pi * k * centre)
        return spread * math.sqrt(2 * math.pi) * total
    total = 0.0
    for z in range(-8, 10):
        total += math.exp(-((z - centre) ** 2) / (2 * spread * spread))
    return total


@njit(cache=True)
def _shortfall(spread, centre):
    """Return `log(rho(spread, centre) / rho(spread, 0))`, or zero if it is below rounding."""
    if spread > 1.5:  # 4 exp(-2 pi^2 spread^2) < 2^-60
        return 0.0
    return math.log(rho(spread, centre) / rho(spread, 0.0))


@njit(cache=True)
def gaussian(tape, state, spread, centre):
    """Draw z with `P(z) ~ exp(-(z - centre)^2 / (2 spread^2))`."""
    middle = math.floor(centre + 0.5)
    offset = centre - middle
    if spread < 1.5:
        return np.int64(middle) + _by_inversion(tape, state, spread, offset)
    # Discrete Laplace of scale `spread` about the middle: the log ratio of target to proposal,
    # |z| / spread - (z - offset)^2 / (2 spread^2), is at most (1/2 + |offset| / spread).
    peak = 0.5 + abs(offset) / spread
    while True:
        z = _geometric(tape, state, spread) - _geometric(tape, state, spread)
        ratio = abs(z) / spread - (z - offset) ** 2 / (2 * spread * spread)
        if _logarithm(tape, state) <= ratio - peak or state[STATUS] != RUNNING:
            return np.int64(middle) + z


@njit(cache=True)
def _by_inversion(tape, state, spread, offset):
    """Draw an integer near `offset` by inversion, in the order 0, 1, -1, 2, -2, ..."""
    left = _uniform(tape, state) * rho(spread, offset)
    for k in range(64):
        z = (k + 1) // 2 if k % 2 else -(k // 2)
        left -= math.exp(-((z - offset) ** 2) / (2 * spread * spread))
        if left < 0:
            return z
    return 0


@njit(cache=True)
def _walk(tape, state, walk, sigma, coefficients, relative):
    """Draw lattice coefficients in turn; return the log of the product of their normalising sums."""
    total = 0.0
    for i in range(len(walk.norms) - 1, -1, -1):
        centre = 0.0
        for j in range(i + 1, len(walk.norms)):
            centre -= walk.slopes[j, i] * coefficients[j]
        spread = sigma / walk.norms[i]
        coefficients[i] = gaussian(tape, state, spread, centre)
        if relative:
            total += _shortfall(spread, centre)
        elif spread > 0.05:
            total += math.log(rho(spread, centre))
        else:  # the nearest integer carries all the mass, and the sum over z would underflow
            total -= (coefficients[i] - centre) ** 2 / (2 * spread * spread)
    return total


@njit(cache=True)
def _combine(basis, coefficients, out):
    out[:] = 0
    for j in range(len(coefficients)):
        for i in range(len(out)):
            out[i] += coefficients[j] * basis[j, i]


@njit(cache=True, inline="always")
def _uniform(tape, state):
    """Draw a double strictly between 0 and 1."""
    return (np.float64(word(tape, state) >> np.uint64(12)) + 0.5) * 2.0**-52


@njit(cache=True)
def _logarithm(tape, state):
    return math.log(_uniform(tape, state))


@njit(cache=True)
def _geometric(tape, state, scale):
    return np.int64(math.floor(-scale * _logarithm(tape, state)))


@njit(cache=True)
def _gamma(tape, state, shape):
    """Draw a gamma variable of `shape >= 1` (Marsaglia and Tsang 2000)."""
    d = shape - 1 / 3
    while True:
        x = math.sqrt(-2 * _logarithm(tape, state)) * math.cos(2 * math.pi * _uniform(tape, state))
        cube = (1 + x / math.sqrt(9 * d)) ** 3
        if state[STATUS] != RUNNING:
            return d
        if cube > 0 and _logarithm(tape, state) < x * x / 2 + d - d * cube + d * math.log(cube):
            return d * cube
