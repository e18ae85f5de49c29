"""What every law of noise knows: its mass, its moments, its exact sampler, its price."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.noise.cost import Cost, Sensitivity

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Words = Callable[[int], bytes]
"""`words(k)` returns `k` fresh random bytes. Only `measure` owns a source of them."""


class Tail(NamedTuple):
    """How far noise goes.

    Attributes
    ----------
    counts
        Smallest count known that the noise exceeds in size with at most the probability asked about.
    exact
        Whether it is the smallest one, up to the rounding of doubles; else it is a bound that is proved.
    """

    counts: int
    exact: bool


@runtime_checkable
class Law(Protocol):
    """A distribution of noise on one count, symmetric about zero.

    A law is a frozen dataclass; its fields are its exact (rational) parameters.
    """

    name: ClassVar[str]
    discrete: ClassVar[bool]

    @property
    def variance(self) -> float:
        """Variance of one draw (counts squared)."""
        ...

    def logpmf(self, noise: ArrayLike) -> Reals:
        """Log mass (log density for a continuous law) at `noise`."""
        ...

    def cdf(self, noise: ArrayLike) -> Reals:
        """Probability that a draw is at most `noise`."""
        ...

    def quantile(self, probability: ArrayLike) -> Reals:
        """Smallest `k` whose cdf reaches `probability`."""
        ...

    def tail(self, probability: float) -> Tail:
        """How far a draw goes, but with that probability at most."""
        ...

    def sample(self, size: int, words: Words) -> Integers:
        """Draw `size` independent values, exactly; refused for continuous laws."""
        ...

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Privacy loss of adding this noise to a vector of that sensitivity."""
        ...

    def parameters(self) -> dict[str, str]:
        """Exact parameters as strings, for manifests: `{"epsilon": "1/2"}`."""
        ...

    def sentence(self) -> str:
        """The law in one plain sentence, for reports and certificates."""
        ...
