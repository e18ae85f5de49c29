"""Noise of totals and their parts that adds up as it is drawn: independent two-sided geometric noise given that it does.

With `v_i` the noise of count i and `epsilon_i` that of its level, the mass is proportional to `exp(-sum epsilon_i |v_i|)` on the
lattice of whole vectors that add up. Neighbours differ by one of them, so the normaliser is the same for both and the loss is
`sum epsilon_i |x_i - x'_i|`, as of independent noise. What a noisy count says of the true one is the same factor too.

The noise of one count has the mass `f(v) g(v)`, with `g` that of all other counts where they make up for v. Products, sums and
marginals of log-concave symmetric masses on a tree are such, so `g` falls with `|v|`, and tails and variance are at most those of
independent noise.

The question is the open one of Wang and Reiter (2021); the noise is that of Dharangutte, Gao, Gong and Yu, definition 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from trueup.noise.lattice.choice import BoundSampler
from trueup.noise.lattice.laws import OnLattice
from trueup.noise.law import Tail
from trueup.noise.laws.discrete_laplace import DiscreteLaplace


@dataclass(frozen=True)
class AddUpLaplace(OnLattice, DiscreteLaplace):
    """Two-sided geometric noise of the counts of one level, given that all levels of a query add up (pure epsilon).

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

    def placed(self, bound: BoundSampler, first: int) -> Self:
        """Return the law of one level of a query, with the sampler of all."""
        copy = self.over(bound.lattice)
        object.__setattr__(copy, "bound", bound)
        object.__setattr__(copy, "first", first)
        return copy

    def tail(self, probability: float) -> Tail:
        """Return the count that the noise of one count exceeds with at most that probability."""
        return Tail(int(self.reach(probability)), exact=False)

    def sentence(self) -> str:
        """Describe the law in one plain sentence."""
        return (
            "Each count receives integer noise with probability proportional to "
            f"exp(-{self.epsilon} |noise|), given that the noise of every total is the sum of its parts'."
        )
