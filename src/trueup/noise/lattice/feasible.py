"""Noise conditioned on adding up over levels, and noise that keeps counts within a feasible set.

**Adding up**: independent two-sided geometric noise given that it does.

With `v_i` the noise of count i and `epsilon_i` that of its level, the mass is proportional to `exp(-sum epsilon_i |v_i|)` on the
lattice of whole vectors that add up. Neighbours differ by one of them, so the normaliser is the same for both and the loss is
`sum epsilon_i |x_i - x'_i|`, as of independent noise. What a noisy count says of the true one is the same factor too.

The noise of one count has the mass `f(v) g(v)`, with `g` that of all other counts where they make up for v. Products, sums and
marginals of log-concave symmetric masses on a tree are such, so `g` falls with `|v|`, and tails and variance are at most those of
independent noise.

The question is the open one of Wang and Reiter (2021); the noise is that of Dharangutte, Gao, Gong and Yu, definition 9.

**Feasible counts**: bounds, sums and inequalities that are known.

What is published is no sum of the count and noise of a law of its own, for near a bound the noise is another one. Which rates
are proved, and how it is drawn, is said in `trueup.arrays.within`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from trueup.errors import SpecError
from trueup.noise.lattice import OnLattice
from trueup.noise.law import Form, Integers, Reals, Tail, Words
from trueup.noise.laws.geometric import DiscreteLaplace


@dataclass(frozen=True)
class AddUpLaplace(OnLattice, DiscreteLaplace):
    """Two-sided geometric noise of one level's counts, given that the noise of all levels adds up.

    Parameters
    ----------
    epsilon
        Inverse scale, exact.

    Examples
    --------
    >>> AddUpLaplace("1/2").tail(0.05)
    Tail(counts=6, exact=False)
    """

    name: ClassVar[str] = "add-up-laplace"
    title: ClassVar[str] = "Discrete Laplace given that a total and its parts add up, pure epsilon"
    first = 0
    """Position of the first count of this level among those of the query."""

    def tail(self, probability: float) -> Tail:
        """Return the count that the noise of one count exceeds with at most the given probability."""
        return Tail(int(self.reach(probability)), exact=False)

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "Each count receives integer noise with probability proportional to "
            f"exp(-{self.epsilon} |noise|), given that the noise of every total is the sum of its parts'."
        )


@dataclass(frozen=True)
class WithinLaplace(OnLattice, DiscreteLaplace):
    """Discrete Laplace noise on a feasible set: counts y in it have mass ~ `exp(-sum rate |x - y|)`.

    Parameters
    ----------
    epsilon
        Loss for each unit of L1 distance, exact.

    Examples
    --------
    >>> WithinLaplace("1/2")
    WithinLaplace(epsilon=Fraction(1, 2))
    """

    name: ClassVar[str] = "within-laplace"
    title: ClassVar[str] = "Discrete Laplace within known bounds, sums and rules, pure epsilon"

    public: ClassVar[Any] = None
    """A public table of the set."""

    @property
    def factors(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return True if the mass of the published counts is a product of one factor for each count."""
        return self.bound is not None and self.bound.constant

    @property
    def attained(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return True if two neighbouring tables exist for which the loss is as large as stated."""
        return self.bound is not None and self.bound.attained

    @property
    def form(self) -> Form | None:
        """Return the form of one count's log factor, or None if the mass is not a product of factors."""
        return super().form if self.factors else None

    @property
    def variance(self) -> float:
        """Return the approximate mean squared error of a count (counts squared)."""
        return super().variance if self.bound is None else self.bound.variance

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Return the log of one count's factor, up to a constant."""
        if not self.factors:
            raise SpecError(
                "this noise is not independent between counts, so that a single count has no probability",
                needed="counts of two possible values each, alone or with one fixed sum",
            )
        return super().logpmf(noise)

    def reach(self, probability: float) -> float:
        """Return a count that the noise of one count exceeds with at most the given probability."""
        return float(self.bound.tail(probability)) if self.bound is not None else super().reach(probability)

    def quantile(self, probability: ArrayLike) -> Reals:
        """Return outer bounds on the quantiles of the noise of one count."""
        p = np.asarray(probability, float)
        return np.sign(p - 0.5) * np.vectorize(self.reach)(2 * np.minimum(p, 1 - p))

    def tail(self, probability: float) -> Tail:
        """Return an upper bound on the count that one count's noise exceeds with a given probability."""
        return Tail(int(self.reach(probability)), exact=False)

    def around(self, true: Integers, count: int, words: Words) -> Integers:
        """Return noise vectors `(count, n)` drawn around confidential counts."""
        return self.bound.draw(true, count, words) - true

    def sample(self, size: int, words: Words) -> Integers:
        """Return one noise vector `(n,)`, drawn around a public table in the feasible set."""
        return self.around(np.asarray(self.public), 1, words)[0]

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        return (
            "Whole counts within the known bounds, sums and rules are published, of which those that are d counts from the true "
            f"ones in all lose at most {self.epsilon} d; near a bound their mean is not the true count."
        )
