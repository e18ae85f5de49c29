"""Priors on a true count: flat, Poisson, negative binomial, or any list of masses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

from trueup.errors import SpecError

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Flat:
    """Every nonnegative count is equally likely; improper, and fine wherever a noisy count is known.

    Examples
    --------
    >>> Flat().logpmf([-1, 0, 7])
    array([-inf,   0.,   0.])
    """

    name: Literal["flat"] = "flat"

    def logpmf(self, count: ArrayLike) -> Reals:
        """Log mass up to a constant."""
        return np.where(np.asarray(count) >= 0, 0.0, -np.inf)

    def window(self) -> tuple[int, int] | None:
        """Where its mass is, all but about 1e-18 of it (counts); None if that is everywhere."""
        return None


@dataclass(frozen=True)
class Poisson:
    """A Poisson prior.

    Attributes
    ----------
    mean
        Its mean (counts), positive.

    Examples
    --------
    >>> Poisson(mean=2.0).logpmf(0)
    array(-2.)
    """

    mean: float
    name: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        _refuse_unless(0 < self.mean < np.inf, "poisson", "mean", self.mean)

    def logpmf(self, count: ArrayLike) -> Reals:
        """Log mass."""
        count = np.asarray(count, float)
        known = np.maximum(count, 0)
        return np.where(count >= 0, xlogy(known, self.mean) - self.mean - gammaln(known + 1), -np.inf)

    def window(self) -> tuple[int, int]:
        """Where its mass is, all but about 1e-18 of it (counts)."""
        half = 9 * self.mean**0.5 + 45  # Bernstein's inequality
        return max(int(self.mean - half), 0), int(self.mean + half) + 1


@dataclass(frozen=True)
class NegativeBinomial:
    """A negative binomial prior: a Poisson count whose mean is a gamma variable.

    Attributes
    ----------
    mean
        Its mean (counts), positive.
    size
        Its shape: the variance is `mean + mean^2 / size`.

    Examples
    --------
    >>> NegativeBinomial(mean=3.0, size=1.0).logpmf(0).round(6) == np.log(0.25).round(6)
    np.True_
    """

    mean: float
    size: float
    name: Literal["negative-binomial"] = "negative-binomial"

    def __post_init__(self) -> None:
        _refuse_unless(0 < self.mean < np.inf, "negative-binomial", "mean", self.mean)
        _refuse_unless(0 < self.size < np.inf, "negative-binomial", "size", self.size)

    def logpmf(self, count: ArrayLike) -> Reals:
        """Log mass."""
        count, r = np.asarray(count, float), self.size
        known = np.maximum(count, 0)
        failures = gammaln(known + r) - gammaln(r) - gammaln(known + 1)
        mass = failures - r * np.log1p(self.mean / r) + known * np.log(self.mean / (r + self.mean))
        return np.where(count >= 0, mass, -np.inf)

    def window(self) -> tuple[int, int]:
        """Where its mass is, all but about 1e-18 of it (counts)."""
        from scipy.stats import nbinom  # half a second to import, and only this prior needs it

        return 0, int(nbinom.isf(1e-18, self.size, self.size / (self.size + self.mean))) + 1


@dataclass(frozen=True)
class Masses:
    """Any prior with finitely many counts: `masses[k]` for the count `k`, up to a constant.

    Examples
    --------
    >>> np.exp(Masses((1, 2, 1)).logpmf([-1, 0, 1, 2, 3]))
    array([0.  , 0.25, 0.5 , 0.25, 0.  ])
    """

    masses: tuple[float, ...]
    name: Literal["masses"] = "masses"

    def __post_init__(self) -> None:
        given = np.asarray(self.masses, float)
        good = given.size and np.isfinite(given).all() and given.min() >= 0 and given.sum() > 0
        if not good:
            raise SpecError("prior 'masses'", needed="nonnegative numbers, at least one of them positive")

    def logpmf(self, count: ArrayLike) -> Reals:
        """Log mass."""
        count = np.asarray(count).astype(np.int64)
        share = np.asarray(self.masses, float) / np.sum(self.masses)
        inside = (count >= 0) & (count < share.size)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(share[np.clip(count, 0, share.size - 1)]), -np.inf)

    def window(self) -> tuple[int, int]:
        """Where its mass is (counts)."""
        return 0, len(self.masses) - 1


Prior = Flat | Poisson | NegativeBinomial | Masses
FLAT = Flat()


def _refuse_unless(good: bool, prior: str, parameter: str, given: float) -> None:
    if not good:
        raise SpecError(f"prior '{prior}': {parameter} = {given}", needed="a positive number")
