"""Characteristic functions of the laws of noise, all real since the laws are symmetric about zero."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.noise.law import Law, Reals

DROPPED = 1e-18
"""Mass beyond either end of an integer law's table."""


class Noise(Law, Protocol):
    """A law with a mass and four moments, as all laws of single counts have."""

    @property
    def fourth_moment(self) -> float:
        """Return the mean of the fourth power of one draw (counts^4)."""
        ...

    def pmf(self, noise: ArrayLike) -> Reals:
        """Return the mass (density for a continuous law) at `noise`."""
        ...


def characteristic_reach(law: Law, mass: float = DROPPED) -> float:
    """Return the count that the noise exceeds with probability `mass`.

    Examples
    --------
    >>> from trueup.noise import DiscreteLaplace
    >>> characteristic_reach(DiscreteLaplace("1"), 1e-3)
    6.0
    """
    return float(-law.quantile(mass))


def characteristic(law: Law, t: NDArray) -> Reals:
    """Return the mean of `cos(t noise)` at frequencies `t` (per count).

    Raises
    ------
    SpecError
        For a law of which none is known.

    Examples
    --------
    >>> from trueup.noise import Laplace
    >>> characteristic(Laplace("2"), np.array([0.0, 0.5]))
    array([1. , 0.5])
    """
    return law.characteristic(np.asarray(t, float))
