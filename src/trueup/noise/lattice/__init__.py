"""Noise that leaves all invariants unchanged: laws of integer vectors on `L = {v in Z^n : A v = 0}`.

Each is the law of independent noise per cell, or of an L2 norm, *given* that the noise lies on L. It
compares databases with the same invariants only; `Lattice.sensitivity` says how far one smallest
change that keeps them moves the counts. Source: Dharangutte, Gao, Gong and Yu, "Integer Subspace
Differential Privacy", definitions 9 and 13; here drawn exactly (see `noise.lattice.draw`).

For inference a cell's factor is all that is needed: `p(z | x)` is the product of the factors at `z - x` up to
a constant that does not depend on x, for all x that share the invariants. So these laws *are* the
one-cell laws, except that they sample jointly.

One file: one construction, under three norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, exp, isqrt, log, log1p
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.noise.law import Cost, Integers, Law, Reals, Sensitivity, Tail, Words
from trueup.noise.laws import refuse_extreme_width
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.geometric import DiscreteLaplace
from trueup.noise.losses import Losses


class OnLattice:
    """Base of the lattice laws, which draw the noise of all cells of a lattice together."""

    name: ClassVar[str]
    joint: ClassVar[bool] = True
    weighs: ClassVar[bool] = False  # whole vectors, where their mass is no product over cells
    lattice: Any = None
    bound: Any = None

    def over(self, lattice, **held) -> Self:
        """Return this law bound to a lattice; without samplers (`bound`) it serves to analyse noise that was drawn."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__ | {"lattice": lattice} | held)
        copy.__dict__.pop("smallest_change", None)  # of the lattice before
        return copy

    def on(self, lattice, **options) -> Self:
        """Return this law bound to a lattice, with chosen samplers."""
        from trueup.noise.lattice.draw import choose_sampler

        return self.over(lattice, bound=choose_sampler(self, lattice, **options))

    def as_asked(self, lattice, options: Mapping[str, Any]) -> Self:
        """Return this law bound to a lattice, with samplers chosen by the options of a spec."""
        if unknown := [name for name in options if name not in ("sampler", "slowest")]:
            raise SpecError(
                f"law '{self.name}' has no option '{unknown[0]}'",
                needed="one of the options sampler, slowest",
            )
        slowest = options.get("slowest", 0)
        if not isinstance(slowest, int | float) or isinstance(slowest, bool) or not slowest >= 0:
            raise SpecError(
                f"the option 'slowest' is {str(slowest)[:30]!r}",
                needed="a number of seconds, 0 or more, such as 300",
            )
        return self.on(lattice, **options)

    def scaled(self, factor: Fraction) -> Self:
        """Raise an error, because the law's samplers are chosen for its own privacy cost."""
        return Law.scaled(self, factor)  # type: ignore[arg-type]

    def characteristic(self, t: Reals) -> Reals:
        """Raise an error, because the noise of one cell has a distribution that depends on the invariants."""
        return Law.characteristic(self, t)  # type: ignore[arg-type]

    def losses(self, change: int, cut: float) -> Losses:
        """Raise an error, because the privacy loss concerns a whole vector."""
        return Law.losses(self, change, cut)  # type: ignore[arg-type]

    def tail(self, probability: float) -> Tail:
        """Return the count that no cell's noise exceeds with more than a given probability."""
        from trueup.noise.lattice.tail import cell_tail

        return cell_tail(self, probability)

    @cached_property
    def smallest_change(self) -> Sensitivity | None:
        """Return the smallest change that keeps all sums and moves the hardest cell, or None if not found.

        Two tables that differ in that cell differ at least so much: no smaller change hides what stands in it.
        """
        from trueup.noise.lattice.tail import hardest_change

        return hardest_change(self.lattice)

    @property
    def loss(self) -> Cost | None:
        """Return the privacy loss of `smallest_change`, rounded up, or None if no change was found."""
        law: Any = self
        return None if self.smallest_change is None else law.cost(self.smallest_change)

    def log_vectors(self, noise: Reals) -> Reals:
        """Return the log mass of noise vectors `(..., n)` on the lattice, up to a constant."""
        law: Any = self
        rate, power = law.factor
        return -rate * (np.abs(noise) ** power).sum(axis=-1)

    def around(self, true: Integers, count: int, words: Words) -> Integers:
        """Return noise vectors `(count, n)` for true counts, on which the noise does not depend."""
        return np.stack([self.sample(true.size, words) for _ in range(count)])

    def sample(self, size: int, words: Words) -> Integers:
        """Return one noise vector `(n,)` drawn from the law.

        Raises
        ------
        SpecError
            If the law is not bound to a lattice of `size` cells.
        """
        if self.bound is None or size != self.bound.n:
            raise SpecError(
                "the law is not bound to a lattice of counts with fixed sums"
                if self.bound is None
                else f"the law is bound to a lattice of {self.bound.n} cells",
                needed=f"a law for a lattice of {size} cells",
                remedy="bind the law to such a lattice by law.on(lattice)",
            )
        return self.bound.draw(1, words).vectors[0]


@dataclass(frozen=True)
class LatticeLaplace(OnLattice, DiscreteLaplace):
    """Noise with mass proportional to `exp(-epsilon ||v||_1)` on the lattice (pure differential privacy).

    Parameters
    ----------
    epsilon
        Inverse scale, exact.

    Examples
    --------
    >>> import secrets
    >>> from trueup.kernel.lattice.structure import Lattice
    >>> law = LatticeLaplace("1/4").on(Lattice.of(3, [[1, 1, 1]]))
    >>> int(law.sample(3, secrets.token_bytes).sum())
    0
    """

    name: ClassVar[str] = "lattice-laplace"
    title: ClassVar[str] = "Discrete Laplace given the invariants (L1 norm), pure epsilon"

    @property
    def factor(self) -> tuple[float, int]:
        """Return the rate and the power of the factor `exp(-rate |v|^power)` of a cell."""
        return float(self.epsilon), 1

    def of_cell(self, weight: Fraction) -> Fraction:
        """Return the epsilon of a cell whose precision is `weight` times that of the law."""
        return self.epsilon * weight

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "The counts receive joint integer noise that changes no invariant, with probability proportional to "
            f"exp(-{self.epsilon} times the sum of its absolute values)."
        )


@dataclass(frozen=True)
class LatticeGaussian(OnLattice, DiscreteGaussian):
    """Noise with mass proportional to `exp(-||v||_2^2 / (2 sigma2))` on the lattice (zCDP).

    Between two databases `delta` apart it is `rho = ||delta||_2^2 / (2 sigma2)`, as without invariants: completing
    the square, the Renyi divergence of order a is `a ||delta||^2 / (2 sigma2) + log(g((a - 1) delta) / g(0)) / (a - 1)`
    with `g(c)` the sum of `exp(-||v - c||^2 / (2 sigma2))` over L. By Poisson summation `g(c) <= g(0)`, because the
    Fourier coefficients are positive. So no constant of the dimension enters (the paper's theorem 14 has one).

    Parameters
    ----------
    sigma2
        Variance parameter (counts squared), exact.

    Examples
    --------
    >>> LatticeGaussian.for_budget(Fraction(1, 8), Sensitivity.of(cells=2, each=1))
    LatticeGaussian(sigma2=Fraction(8, 1))
    """

    name: ClassVar[str] = "lattice-gaussian"
    title: ClassVar[str] = "Discrete Gaussian given the invariants, zCDP"

    @property
    def factor(self) -> tuple[float, int]:
        """Return the rate and the power of the factor `exp(-rate |v|^power)` of a cell."""
        return float(1 / (2 * self.sigma2)), 2

    def of_cell(self, weight: Fraction) -> Fraction:
        """Return the sigma squared of a cell whose precision is `weight` times that of the law."""
        return self.sigma2 / weight

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "The counts receive joint integer noise that changes no invariant, with probability proportional to "
            f"exp(-||noise||^2 / (2 x {self.sigma2}))."
        )


@dataclass(frozen=True)
class LatticeL2Laplace(OnLattice, Law):
    """Noise with mass proportional to `exp(-epsilon ||v||_2)` on the lattice ((epsilon, delta)-privacy).

    The law itself is of pure epsilon. It is drawn in doubles, and the delta that follows from their rounding is part of its cost
    (see `lattice.draw.rounding_of`).

    It is far wider than `lattice-laplace` at equal privacy: its norm grows with the dimension of the
    lattice. It is no product over cells, so it has no mass for one cell.

    Parameters
    ----------
    epsilon
        Inverse scale, exact.

    Examples
    --------
    >>> print(LatticeL2Laplace("1/4").cost(Sensitivity.of(cells=2, each=1)).amount < Fraction(354, 1000))
    True
    """

    name: ClassVar[str] = "lattice-l2-laplace"
    title: ClassVar[str] = (
        "Laplace in the L2 norm given the invariants, epsilon with the delta of drawing it in doubles"
    )
    discrete: ClassVar[bool] = True
    factors: ClassVar[bool] = False
    weighs: ClassVar[bool] = True
    epsilon: Fraction

    def __post_init__(self) -> None:
        epsilon = rational(self.epsilon, "epsilon")
        refuse_extreme_width(1 / epsilon**2, "epsilon", epsilon)
        object.__setattr__(self, "epsilon", epsilon)

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> LatticeL2Laplace:
        """Return the law whose privacy loss epsilon for any smallest possible change is at most `amount`."""
        return cls(rational(amount, "epsilon") / _root_above(sensitivity.l2_squared))

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the privacy loss epsilon, rounded up, with the sampler's delta once a sampler is chosen."""
        amount = self.epsilon * _root_above(sensitivity.l2_squared)
        if self.bound is None or not self.bound.rounding:
            return Cost("epsilon", amount)
        return Cost("epsilon", amount, _delta(amount, self.bound.rounding))

    @property
    def variance(self) -> float:
        """Return the mean variance (counts squared) of a cell's noise under the continuous law."""
        if self.lattice is None:
            raise _joint("variance")
        d = self.lattice.dimension
        return float(d * (d + 1) / (self.lattice.n * float(self.epsilon) ** 2))

    def log_vectors(self, noise: Reals) -> Reals:
        """Return minus epsilon times the L2 norms of noise vectors `(..., n)`."""
        return -float(self.epsilon) * np.linalg.norm(noise, axis=-1)

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Raise an error, because the noise of cells is not independent."""
        raise _joint("mass")

    def cdf(self, noise: ArrayLike) -> Reals:
        """Raise an error, because the noise of cells is not independent."""
        raise _joint("cdf")

    def quantile(self, probability: ArrayLike) -> Reals:
        """Raise an error, because the noise of cells is not independent."""
        raise _joint("quantile")

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "The counts receive joint integer noise that changes no invariant, with probability proportional to "
            f"exp(-{self.epsilon} ||noise||)."
        )


def _delta(epsilon: Fraction, apart: float) -> Fraction:
    """Return the delta `(1 + e^epsilon) apart` of a sampler within total variation `apart` of a law.

    It is rounded up to a power of two, so that it is the same on every machine.
    """
    logarithm = log(apart) + float(epsilon) + log1p(exp(-float(epsilon)))
    return min(Fraction(1), Fraction(2) ** ceil(logarithm / log(2) + 1e-9))


def _joint(what: str) -> SpecError:
    return SpecError(
        f"law 'lattice-l2-laplace' draws the noise of all cells together, so that one cell has no {what} by itself",
        needed="a law with independent noise in each cell",
        remedy="use 'lattice-laplace' or 'lattice-gaussian' to analyse single counts",
    )


def _root_above(square: Fraction) -> Fraction:
    """Return the square root of a fraction: exact if it is rational, else a fraction just above it."""
    scale = 1 << 80
    scaled = square * scale * scale
    root = isqrt(int(scaled))
    return Fraction(root if root * root == scaled else root + 1, scale)
