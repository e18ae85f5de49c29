"""Expected tries of the samplers on a lattice, as information for the user.

A proposal drawn from independent factors is accepted with probability `Z_target / Z_proposal`, and the
lattice's normaliser is `Z_L = prod_i Z_i P(A v = 0)` for independent cells v. By the local limit theorem

    P(A v = 0)  ~  (2 pi)^(-m/2) det(A S A')^(-1/2) [Z^m : A Z^n] exp(sum_i k_i h_i^2 / 8),

S = diag(variances), k_i the excess kurtosis of cell i and h_i its leverage (first Edgeworth term at zero).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from trueup.kernel.lattice import algebra

CELL, ROW, STEP = 1e-8, 4e-8, 1e-7
"""Rough seconds for one cell of a rejection, one cell of a composition, one step of Klein's walk."""
LARGEST_TABLE = 2**18
"""Entries of a sampler's largest table: some seconds and some hundred megabytes to prove it."""
LARGEST_COMPOSITION = 2**31
"""Places that a composition takes: its uniforms are below 2^32."""
LARGEST_SUM = 2**62
"""What sums of noise must stay below, in 64-bit integers."""
NOISE_REACH_NATS = 64
"""Cells with `exp(-epsilon |v|)` below `exp(-64) < 2^-92` are out of the question; see `noise_reach`."""


def noise_reach(parameter: Fraction, laplace: bool) -> float:
    """Return the count that a cell's noise exceeds with a probability below `2^-92`."""
    return (
        NOISE_REACH_NATS / float(parameter) if laplace else math.sqrt(2 * NOISE_REACH_NATS * float(parameter))
    )


def half_norm(n: int, epsilon: Fraction) -> tuple[float, float]:
    """Bound the table of the law of K for one sum of n cells (see `HalfNorm`): return its end and its entries."""
    x = math.exp(-2 * float(epsilon))
    gap = -math.expm1(-2 * float(epsilon))
    spread = math.sqrt((2 * n - 1) * x / gap**2 + n / 8)
    beyond = 10 * spread + NOISE_REACH_NATS / float(epsilon)
    return (2 * n - 1) * x / gap + n / 2 + beyond, 20 * spread + NOISE_REACH_NATS / float(epsilon) + 4


def too_long(entries: float) -> str:
    """Return the reason why a table would exceed `LARGEST_TABLE`, or an empty text."""
    return f"a table of {entries:.3g} entries, at most {LARGEST_TABLE:,}" if entries > LARGEST_TABLE else ""


def laplace_factor(epsilon: Fraction) -> tuple[float, float, float]:
    """Return the log normaliser, variance and excess kurtosis of one cell."""
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    return math.log((1 + a) / gap), 2 * a / gap**2, (1 + 4 * a + a * a) / max(2 * a, 1e-300)


def gaussian_factor(sigma2: Fraction) -> tuple[float, float, float]:
    return 0.5 * math.log(2 * math.pi * float(sigma2)), float(sigma2), 0.0


def aggregate_gain(epsilon: Fraction, m: int) -> float:
    """Return the log factor by which drawing m cells as one raises acceptance: minus the log chance that they sum to zero.

    With `a = exp(-epsilon)` the chance is `(1 - a) / (1 + a)^(2m-1) sum_j C(m-1, j)^2 a^(2j)`.
    """
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    series = sum(math.comb(m - 1, j) ** 2 * a ** (2 * j) for j in range(m))
    return (2 * m - 1) * math.log(1 + a) - math.log(gap) - math.log(series)


def log_mass(matrix, cells, index: int | None = None) -> float:
    """Estimate the log normaliser of independent cells on the lattice of `matrix`, whose index is computed if not known.

    It is at least 0: the zero vector has mass 1.
    """
    masses, variances, kurtoses = (np.array(part) for part in zip(*cells))
    if not len(matrix):
        return float(masses.sum())
    variances = np.maximum(variances, 1e-200)  # noise that vanishes is refused later, by its query's name
    gram = (matrix * variances) @ matrix.T
    leverages = variances * (matrix * np.linalg.solve(gram, matrix)).sum(axis=0)
    size = len(matrix) * math.log(2 * math.pi) + np.linalg.slogdet(gram)[1]
    found = masses.sum() - size / 2 + math.log(index or algebra.index(matrix)) + kurtoses @ leverages**2 / 8
    return float(max(found, 0.0))


def tries_for(log_acceptance: float) -> float:
    return math.exp(min(max(-log_acceptance, 0.0), 700.0))
