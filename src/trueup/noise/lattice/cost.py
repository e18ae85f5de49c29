"""Expected tries of the samplers on a lattice, for the user; they are no part of any law.

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


def laplace_factor(epsilon: Fraction) -> tuple[float, float, float]:
    """Log normaliser, variance and excess kurtosis of one cell."""
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    return math.log((1 + a) / gap), 2 * a / gap**2, (1 + 4 * a + a * a) / (2 * a)


def gaussian_factor(sigma2: Fraction) -> tuple[float, float, float]:
    return 0.5 * math.log(2 * math.pi * float(sigma2)), float(sigma2), 0.0


def pair_mass(epsilon: Fraction) -> float:
    x = 2 * float(epsilon)
    return math.log((1 + math.exp(-x)) / -math.expm1(-x))


def lump_gain(epsilon: Fraction, m: int) -> float:
    """Return by how much (log) a lump of m cells raises the acceptance: minus the log chance that they sum to zero.

    With `a = exp(-epsilon)` the chance is `(1 - a) / (1 + a)^(2m-1) sum_j C(m-1, j)^2 a^(2j)`.
    """
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    series = sum(math.comb(m - 1, j) ** 2 * a ** (2 * j) for j in range(m))
    return (2 * m - 1) * math.log(1 + a) - math.log(gap) - math.log(series)


def log_mass(matrix, cells) -> float:
    """Estimate the log normaliser of independent cells on the lattice of `matrix`."""
    masses, variances, kurtoses = (np.array(part) for part in zip(*cells))
    if not len(matrix):
        return float(masses.sum())
    gram = (matrix * variances) @ matrix.T
    leverages = variances * (matrix * np.linalg.solve(gram, matrix)).sum(axis=0)
    size = len(matrix) * math.log(2 * math.pi) + np.linalg.slogdet(gram)[1]
    return float(masses.sum() - size / 2 + math.log(algebra.index(matrix)) + kurtoses @ leverages**2 / 8)


def tries_for(log_acceptance: float) -> float:
    return math.exp(min(max(-log_acceptance, 0.0), 700.0))
