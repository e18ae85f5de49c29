"""Priors on the true counts, given as tables of log mass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from trueup.errors import SpecError

Reals = NDArray[np.float64]
Each = float | tuple[float, ...]
"""One parameter for all cells, or one for each of the `n` finest cells."""


@dataclass(frozen=True)
class Flat:
    """Every count equally likely: improper, so measurements must bound every count."""

    name: ClassVar[str] = "flat"


@dataclass(frozen=True)
class Bounded:
    """Every count from 0 to `upper` equally likely."""

    upper: int

    name: ClassVar[str] = "bounded"

    def __post_init__(self) -> None:
        _refuse(self.upper < 0, self, "upper", "0 or more")


@dataclass(frozen=True)
class Poisson:
    """Independent Poisson counts."""

    mean: Each

    name: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        _refuse(bool(np.any(np.less_equal(self.mean, 0))), self, "mean", "above 0")

    def log_mass(self, count: NDArray, cell: int) -> Reals:
        """Log mass at counts of a cell."""
        mean = _of(self.mean, cell)
        return xlogy(count, mean) - mean - gammaln(count + 1.0)


@dataclass(frozen=True)
class NegativeBinomial:
    """Independent negative binomial counts: variance `mean + mean^2 / size`."""

    mean: Each
    size: Each

    name: ClassVar[str] = "negative-binomial"

    def __post_init__(self) -> None:
        _refuse(bool(np.any(np.less_equal(self.mean, 0))), self, "mean", "above 0")
        _refuse(bool(np.any(np.less_equal(self.size, 0))), self, "size", "above 0")

    def log_mass(self, count: NDArray, cell: int) -> Reals:
        """Log mass at counts of a cell."""
        mean, size = _of(self.mean, cell), _of(self.size, cell)
        binomial = gammaln(count + size) - gammaln(size) - gammaln(count + 1.0)
        return binomial + size * np.log(size / (size + mean)) + xlogy(count, mean / (size + mean))


@dataclass(frozen=True)
class Masses:
    """Any masses on 0, 1, ..., the same for every cell; nothing beyond the list is possible."""

    masses: tuple[float, ...]

    name: ClassVar[str] = "masses"

    def __post_init__(self) -> None:
        bad = not self.masses or min(self.masses) < 0 or not 0 < sum(self.masses) < np.inf
        _refuse(bad, self, "masses", "numbers of 0 or more, not all 0")

    @property
    def log(self) -> Reals:
        """Log masses."""
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(self.masses, dtype=float) / sum(self.masses))


@dataclass(frozen=True)
class FlatTotal:
    """Every total from 0 to `upper` equally likely; given it, a stated law of its parts.

    Attributes
    ----------
    upper
        Largest possible total (counts).
    split
        `uniform`: every way to divide the total equally likely. `multinomial`: units fall
        independently into cells with `probabilities` (by default equal).

    References
    ----------
    Wang and Reiter (2021), section 4: "a prior distribution on N directly".
    """

    upper: int
    split: str = "uniform"
    probabilities: tuple[float, ...] = ()

    name: ClassVar[str] = "flat-total"

    def __post_init__(self) -> None:
        _refuse(self.upper < 0, self, "upper", "0 or more")
        _refuse(self.split not in ("uniform", "multinomial"), self, "split", "'uniform' or 'multinomial'")
        _refuse(bool(self.probabilities) and min(self.probabilities) < 0, self, "probabilities", "0 or more")

    def log_total(self, total: NDArray, cells: int) -> Reals:
        """Log factor of the total that makes its own prior flat, for `cells` parts."""
        if self.split == "uniform":  # one over the number of compositions, C(N + S - 1, S - 1)
            return gammaln(total + 1.0) + gammaln(float(cells)) - gammaln(total + float(cells))
        return gammaln(total + 1.0) - xlogy(total, self.centre) + self.centre

    @property
    def centre(self) -> float:
        """Total at which the parts' Poisson factors are centred; it cancels."""
        return max(self.upper / 2, 1.0)

    def shares(self, cells: int) -> Reals:
        """Probability of each of `cells` parts."""
        given = np.asarray(self.probabilities or np.ones(cells), dtype=float)
        if len(given) != cells:
            raise SpecError(
                f"prior '{self.name}' has {len(given)} probabilities", needed=f"one for each of {cells} cells"
            )
        return given / given.sum()

    def log_part(self, count: NDArray, share: float) -> Reals:
        """Log factor of one part: Poisson about its share of the centre."""
        return xlogy(count, share * self.centre) - share * self.centre - gammaln(count + 1.0)


Prior = Flat | Bounded | Poisson | NegativeBinomial | Masses | FlatTotal
PRIORS: tuple[type, ...] = (Flat, Bounded, Poisson, NegativeBinomial, Masses, FlatTotal)


def read_prior(entry: Mapping[str, Any] | str) -> Prior:
    """Make a prior from a spec's entry: a name, or a table with a name and parameters.

    Raises
    ------
    SpecError
        If the name or a parameter is unknown, missing or out of range.

    Examples
    --------
    >>> read_prior({"name": "negative-binomial", "mean": 3, "size": 2})
    NegativeBinomial(mean=3, size=2)
    """
    given = {"name": entry} if isinstance(entry, str) else dict(entry)
    kinds = {kind.name: kind for kind in PRIORS}
    kind = kinds.get(str(given.pop("name", "")))
    if kind is None:
        raise SpecError("the prior's name is unknown", needed=f"one of: {', '.join(kinds)}")
    known = [field.name for field in fields(kind)]
    if unknown := [name for name in given if name not in known]:
        raise SpecError(
            f"prior '{kind.name}' has no parameter '{unknown[0]}'", needed=f"among: {', '.join(known)}"
        )
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
    except TypeError:
        raise SpecError(
            f"prior '{kind.name}' lacks a parameter", needed=f"all of: {', '.join(known)}"
        ) from None


def prior_entry(prior: Prior) -> dict[str, Any]:
    """Write a prior as a spec's entry."""
    return {"name": prior.name, **asdict(prior)}


def _of(each: Each, cell: int) -> float:
    return float(each[cell]) if isinstance(each, tuple) else float(each)


def _refuse(wrong: bool, prior: Any, parameter: str, needed: str) -> None:
    if wrong:
        raise SpecError(f"prior '{prior.name}': parameter '{parameter}' is out of range", needed=needed)
