"""Characteristic functions of the laws of noise, all real since the laws are symmetric about zero."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.noise.law import Law
from trueup.noise.laws.base import IntegerLaw
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.discrete_laplace import DiscreteLaplace
from trueup.noise.laws.gaussian import Gaussian
from trueup.noise.laws.laplace import Laplace

Reals = NDArray[np.float64]
DROPPED = 1e-18
"""Mass beyond either end of an integer law's table."""


class Noise(Law, Protocol):
    """A law with a mass and four moments, as all laws of single counts have."""

    @property
    def fourth_moment(self) -> float:
        """Mean of the fourth power of one draw (counts^4)."""
        ...

    def pmf(self, noise: ArrayLike) -> Reals:
        """Mass (density for a continuous law) at `noise`."""
        ...


def characteristic_reach(law: Law, mass: float = DROPPED) -> float:
    """What the noise exceeds with probability `mass` (counts).

    Examples
    --------
    >>> characteristic_reach(DiscreteLaplace("1"), 1e-3)
    6.0
    """
    return float(-law.quantile(mass))


def characteristic(law: Law, t: NDArray) -> Reals:
    """Mean of `cos(t noise)` at frequencies `t` (per count).

    Raises
    ------
    SpecError
        For a law that is neither on the integers nor Laplace nor Gaussian.

    Examples
    --------
    >>> characteristic(Laplace("2"), np.array([0.0, 0.5]))
    array([1. , 0.5])
    """
    if isinstance(law, Laplace):
        return 1 / (1 + (float(law.scale) * t) ** 2)
    if isinstance(law, Gaussian):
        return np.exp(-0.5 * law.variance * t * t)
    if isinstance(law, DiscreteLaplace):
        # tanh^2 / (tanh^2 cos^2 + sin^2) at half angles: exact at small t, where 1 - 2 a cos t + a^2 cancels.
        square, half = np.tanh(float(law.epsilon) / 2) ** 2, 0.5 * t
        return square / (square * np.cos(half) ** 2 + np.sin(half) ** 2)
    if isinstance(law, DiscreteGaussian) and law.sigma2 >= 1:
        return _theta(float(law.sigma2), t)
    if isinstance(law, IntegerLaw):
        k = np.arange(1, characteristic_reach(law) + 1)
        mass = 2 * law.pmf(k)
        return float(law.pmf(0)) + np.array([mass @ np.cos(k * each) for each in np.ravel(t)]).reshape(
            np.shape(t)
        )
    raise SpecError(f"no characteristic function is known for the noise '{law.name}'")


def _theta(sigma2: float, t: NDArray) -> Reals:
    """The same of a discrete Gaussian law that is not narrow: by Poisson summation, normal curves around 2 pi j."""
    nearest = t - 2 * np.pi * np.rint(t / (2 * np.pi))
    turns = 2 * np.pi * np.arange(-2, 3)
    curves = np.exp(-0.5 * sigma2 * np.subtract.outer(nearest, turns) ** 2).sum(axis=-1)
    return curves / np.exp(-0.5 * sigma2 * turns**2).sum()
