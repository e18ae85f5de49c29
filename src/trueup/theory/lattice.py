"""Tail bounds of noise on a lattice from the fourth paper: asymptotic statements, with the constants of their proofs.

Source: Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy": Lemma 11, Theorem 12, Theorem 15 (Proposition 18).
All hold **beyond some radius that the paper does not give**: for small ones they may fail, as a test shows. How far the noise of
a release goes is said by `trueup explain`, from the law that is drawn: exactly, or by a bound that is proved at every radius.

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
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from trueup.kernel.lattice import algebra
from trueup.noise.law import Reals


class LatticeShape(NamedTuple):
    """The figures of a lattice that the bounds depend on.

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
        """Measure the lattice of integer vectors with zero sums under invariants `(m, n)`.

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
    """Return `V_d r^d / det`, about which the number of lattice points within radius r settles (Lemma 11).

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
    """Return the bound `K (t + 1)^d exp(-epsilon (t - 1))` on `P(||noise||_2 >= t)` under L2-norm Laplace noise (Theorem 12).

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
    """Return the bound `K (t + 1)^d exp(-(t - 1)^2 / (2 sigma2))` on `P(||noise||_2 >= t)` under Gaussian noise (Theorem 15).

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
