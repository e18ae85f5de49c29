"""Priors on true counts: on each of the finest cells, or on their total.

One file: the hierarchical prior holds a prior of one count, which is read from a spec by the list of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator

from trueup.errors import SpecError
from trueup.registry import Registry

# scipy.special is imported by the functions that need it: with the flat prior nothing does.

Reals = NDArray[np.float64]
Each = float | tuple[float, ...]
"""One parameter for all cells, or one for each of the `n` finest cells."""


class BasePrior:
    """Base of the priors, which are frozen dataclasses with the parameters as fields."""

    name: Any
    per_cell: ClassVar[tuple[str, ...]] = ()
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    @property
    def varying(self) -> dict[str, tuple[float, ...]]:
        """Return the parameters that were given for each cell."""
        given = {name: getattr(self, name) for name in self.per_cell}
        return {name: values for name, values in given.items() if isinstance(values, tuple)}

    def refuse_other_than(self, cells: int) -> None:
        """Refuse parameters that were given for a different number of cells."""
        for name, values in self.varying.items():
            if len(values) != cells:
                raise SpecError(
                    f"prior '{self.name}' has {len(values)} values of '{name}'",
                    needed=f"one value for all, or one for each of {cells} cells",
                )

    def refuse_varying(self) -> None:
        """Refuse parameters that were given for each cell."""
        if self.varying:
            raise SpecError(
                f"prior '{self.name}' has a parameter for each cell", needed="one parameter for all cells"
            )

    def at(self, cell: int) -> Self:
        """Return the prior of one cell."""
        own: Any = {name: values[cell] for name, values in self.varying.items()}
        return replace(self, **own) if own else self  # pyright: ignore[reportArgumentType]

    def _require(self, good: bool, parameter: str, needed: str) -> None:
        if not good:
            raise SpecError(f"parameter '{parameter}' of prior '{self.name}' is out of range", needed=needed)

    def _require_whole(self, parameter: str) -> None:
        given = getattr(self, parameter)
        whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
        self._require(bool(whole and given >= 0), parameter, "a whole number, 0 or more")

    def _require_positive(self, parameter: str) -> None:
        given = self._numbers(parameter)
        self._require(bool(np.all(given > 0)), parameter, "above 0")

    def _numbers(self, parameter: str) -> Reals:
        """Read one number or more; refuse text that looks like a number."""
        given = getattr(self, parameter)
        each = tuple(given) if isinstance(given, tuple | list) else (given,)
        if not each or not all(map(_is_number, each)):
            raise SpecError(
                f"parameter '{parameter}' of prior '{self.name}' is not a number or a list of numbers",
                needed="finite numbers without quotation marks",
            )
        return np.asarray(each, float)

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count, up to a constant, under a prior on single counts."""
        raise NotImplementedError

    def window(self) -> tuple[int, int] | None:
        """Return the range of counts that holds all but about 1e-18 of the mass; None if it is unbounded."""
        raise NotImplementedError

    def tabled(self) -> Reals:
        """Return the log masses of the counts 0, 1, ... up to the last count that has mass."""
        if (window := self.window()) is None:
            raise SpecError(
                f"prior '{self.name}' gives arbitrarily large counts a probability that cannot be left out",
                needed="a prior with a largest count, such as 'bounded', or one whose probabilities fall fast",
            )
        return self.logpmf(np.arange(window[1] + 1))


def _is_number(given: Any) -> bool:
    return (
        isinstance(given, Real | np.integer | np.floating) and not isinstance(given, bool) and isfinite(given)
    )


@dataclass(frozen=True)
class Flat(BasePrior):
    """The improper flat prior on counts of 0 or more; measurements must then bound every count.

    Examples
    --------
    >>> Flat().logpmf([-1, 0, 7])
    array([-inf,   0.,   0.])
    """

    name: Literal["flat"] = "flat"

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count, up to a constant."""
        return np.where(np.asarray(count) >= 0, 0.0, -np.inf)

    def window(self) -> tuple[int, int] | None:
        """Return the range of counts that holds all but about 1e-18 of the mass; None if it is unbounded."""
        return None


@dataclass(frozen=True)
class Bounded(BasePrior):
    """The flat prior on counts from 0 to `upper`.

    Examples
    --------
    >>> np.exp(Bounded(3).logpmf([-1, 0, 3, 4]))
    array([0.  , 0.25, 0.25, 0.  ])
    """

    upper: int
    name: Literal["bounded"] = "bounded"

    def __post_init__(self) -> None:
        self._require_whole("upper")

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count."""
        count = np.asarray(count)
        return np.where((count >= 0) & (count <= self.upper), -np.log1p(self.upper), -np.inf)

    def window(self) -> tuple[int, int]:
        """Return the range of counts that have mass."""
        return 0, self.upper


@dataclass(frozen=True)
class Poisson(BasePrior):
    """Independent Poisson counts.

    Attributes
    ----------
    mean
        Their mean (counts), positive: one for all cells, or one for each.

    Examples
    --------
    >>> Poisson(mean=2.0).logpmf(0), Poisson(mean=(2.0, 5.0)).at(1).logpmf(0)
    (array(-2.), array(-5.))
    """

    mean: Each
    name: Literal["poisson"] = "poisson"
    per_cell: ClassVar[tuple[str, ...]] = ("mean",)

    def __post_init__(self) -> None:
        self._require_positive("mean")

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count, for one mean that all cells share."""
        from scipy.special import gammaln, xlogy

        count, mean = np.asarray(count, float), _one(self.mean)
        known = np.maximum(count, 0)
        return np.where(count >= 0, xlogy(known, mean) - mean - gammaln(known + 1), -np.inf)

    def window(self) -> tuple[int, int]:
        """Return the range of counts that holds all but about 1e-18 of the mass."""
        mean = _one(self.mean)
        half = 9 * mean**0.5 + 45  # Bernstein's inequality
        return max(int(mean - half), 0), int(mean + half) + 1


@dataclass(frozen=True)
class NegativeBinomial(BasePrior):
    """Independent negative binomial counts: Poisson counts whose means are gamma variables.

    Attributes
    ----------
    mean
        Their mean (counts), positive: one for all cells, or one for each.
    size
        Their shape, likewise: the variance is `mean + mean^2 / size`.

    Examples
    --------
    >>> NegativeBinomial(mean=3.0, size=1.0).logpmf(0).round(6) == np.log(0.25).round(6)
    np.True_
    """

    mean: Each
    size: Each
    name: Literal["negative-binomial"] = "negative-binomial"
    per_cell: ClassVar[tuple[str, ...]] = ("mean", "size")

    def __post_init__(self) -> None:
        self._require_positive("mean")
        self._require_positive("size")

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count, for one mean and one size that all cells share."""
        from scipy.special import gammaln, xlogy

        count, mean, r = np.asarray(count, float), _one(self.mean), _one(self.size)
        known = np.maximum(count, 0)
        failures = gammaln(known + r) - gammaln(r) - gammaln(known + 1)
        mass = failures - r * np.log1p(mean / r) + xlogy(known, mean / (r + mean))
        return np.where(count >= 0, mass, -np.inf)

    def window(self) -> tuple[int, int]:
        """Return the range of counts that holds all but about 1e-18 of the mass."""
        from scipy.stats import nbinom  # half a second to import, and only this prior needs it

        mean, size = _one(self.mean), _one(self.size)
        return 0, int(nbinom.isf(1e-18, size, size / (size + mean))) + 1


@dataclass(frozen=True)
class Masses(BasePrior):
    """Any prior with finitely many counts: `masses[k]` for the count `k`, up to a constant.

    Examples
    --------
    >>> np.exp(Masses((1, 2, 1)).logpmf([-1, 0, 1, 2, 3]))
    array([0.  , 0.25, 0.5 , 0.25, 0.  ])
    """

    masses: tuple[float, ...]
    name: Literal["masses"] = "masses"

    def __post_init__(self) -> None:
        given = self._numbers("masses")
        self._require(given.min() >= 0 and given.sum() > 0, "masses", "numbers of 0 or more, not all 0")

    def logpmf(self, count: ArrayLike) -> Reals:
        """Return the log mass of a count."""
        count = np.asarray(count).astype(np.int64)
        share = np.asarray(self.masses, float) / np.sum(self.masses)
        inside = (count >= 0) & (count < share.size)
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(share[np.clip(count, 0, share.size - 1)]), -np.inf)

    def window(self) -> tuple[int, int]:
        """Return the range of counts that have mass."""
        return 0, len(self.masses) - 1


@dataclass(frozen=True)
class FlatTotal(BasePrior):
    """A flat prior on totals from 0 to `upper`, with a stated law of the parts given the total.

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

    Examples
    --------
    >>> FlatTotal(9, "multinomial", (1.0, 3.0)).shares(2)
    array([0.25, 0.75])
    """

    upper: int
    split: Literal["uniform", "multinomial"] = "uniform"
    probabilities: tuple[float, ...] = ()
    name: Literal["flat-total"] = "flat-total"

    def __post_init__(self) -> None:
        self._require_whole("upper")
        self._require(self.split in ("uniform", "multinomial"), "split", "'uniform' or 'multinomial'")
        if self.probabilities:
            given = self._numbers("probabilities")
            self._require(given.min() >= 0 and given.sum() > 0, "probabilities", "0 or more, not all 0")

    def log_total(self, total: NDArray, cells: int) -> Reals:
        """Return the log factor of a total that makes the prior of the total flat, for `cells` parts."""
        from scipy.special import gammaln, xlogy

        if self.split == "uniform":  # one over the number of compositions, C(N + S - 1, S - 1)
            return gammaln(total + 1.0) + gammaln(float(cells)) - gammaln(total + float(cells))
        return gammaln(total + 1.0) - xlogy(total, self.centre) + self.centre

    @property
    def centre(self) -> float:
        """Return the total (counts) at which the Poisson factors of the parts are centred."""
        return max(self.upper / 2, 1.0)

    def shares(self, cells: int) -> Reals:
        """Return the probability of each of `cells` parts."""
        given = np.asarray(self.probabilities or np.ones(cells), dtype=float)
        if len(given) != cells:
            raise SpecError(
                f"prior '{self.name}' has {len(given)} probabilities", needed=f"one for each of {cells} cells"
            )
        return given / given.sum()

    def log_part(self, count: NDArray, share: float) -> Reals:
        """Return the log factor of one part: a Poisson law whose mean is the part's share of the centre."""
        from scipy.special import gammaln, xlogy

        return xlogy(count, share * self.centre) - share * self.centre - gammaln(count + 1.0)


@dataclass(frozen=True)
class Hierarchical(BasePrior):
    """A flat prior on the total, and Dirichlet-multinomial splits of every count, with a concentration per level.

    Given a count, its `C` parts are Dirichlet-multinomial with parameters `a C m`: the concentration `a` of the
    parts' level times `C` times their shares `m`. Large `a`: parts are close to their shares; small `a`: few parts hold most.

    Attributes
    ----------
    shares
        `uniform`, or the name of a column of the public list of places, such as housing units, with a
        number of 0 or more for each place of the last level; or these numbers, one for each of the finest cells (of histograms
        and linked tables: for each of the lowest places).
    covariates
        Names of columns (or numbers) `z`: shares are proportional to `exp(z . beta)`, `beta` estimated. Fractions and negative
        numbers may be among them.
    concentrations
        One for each margin below the root. By default they are estimated from the noisy values.
    total
        The prior of the root's count.
    most_kinds
        Largest number of kinds of parts on the last level of a tree, such as inhabited and uninhabited ones: 2, if they are alike
        and the noisy values ask for it, or 1.

    Examples
    --------
    >>> Hierarchical(concentrations=(1.0, 0.5)).name, Hierarchical(shares="housing_units").columns
    ('hierarchical', ('housing_units',))
    """

    shares: str | tuple[float, ...] = "uniform"
    covariates: tuple[str | tuple[float, ...], ...] = ()
    concentrations: tuple[float, ...] = ()
    total: Flat | Bounded | Poisson | NegativeBinomial | Masses = Flat()
    most_kinds: Literal[1, 2] = 2
    name: Literal["hierarchical"] = "hierarchical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", read_prior(self.total, COUNT_PRIORS))
        covariates = tuple(tuple(z) if isinstance(z, list) else z for z in self.covariates)
        object.__setattr__(self, "covariates", covariates)
        given = np.asarray(self.concentrations, float)
        self._require(bool(np.all((given > 0) & np.isfinite(given))), "concentrations", "numbers above 0")
        self._require(
            not (given.size and self.covariates), "covariates", "none where concentrations are given"
        )
        self._require(
            self.most_kinds in (1, 2) and not isinstance(self.most_kinds, bool), "most_kinds", "1 or 2"
        )

    @property
    def even(self) -> bool:
        """Return True if no public numbers distinguish the parts."""
        return self.shares == "uniform" and not self.covariates

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the public list of places that the prior reads."""
        named = (self.shares, *self.covariates)
        return tuple(dict.fromkeys(x for x in named if isinstance(x, str) and x != "uniform"))

    def window(self) -> tuple[int, int] | None:
        """Return the range of totals that have mass; None if it is unbounded."""
        return self.total.window()


@dataclass(frozen=True)
class Estimated(BasePrior):
    """A smooth mixture prior for each combination of attribute values, estimated from the published values.

    Examples
    --------
    >>> read_prior("estimated")
    Estimated(name='estimated')
    """

    name: Literal["estimated"] = "estimated"

    def window(self) -> tuple[int, int] | None:
        """Return None, because the range of counts is known only after estimation."""
        return None


COUNT_PRIORS: tuple[type, ...] = tuple(
    Registry(
        "trueup.model",
        {
            "flat": "prior.Flat",
            "bounded": "prior.Bounded",
            "poisson": "prior.Poisson",
            "negative-binomial": "prior.NegativeBinomial",
            "masses": "prior.Masses",
        },
    )
)
"""Priors on one count; one more is a file and a line here."""
PRIORS: tuple[type, ...] = (*COUNT_PRIORS, FlatTotal, Hierarchical, Estimated)
FACTORED = (*COUNT_PRIORS, FlatTotal)
"""Priors that are products of factors given in advance."""
if TYPE_CHECKING:
    CountPrior = Flat | Bounded | Poisson | NegativeBinomial | Masses
    Prior = CountPrior | FlatTotal | Hierarchical | Estimated
else:  # what specs may hold follows from the tuples
    CountPrior, Prior = Union[COUNT_PRIORS], Union[PRIORS]  # noqa: UP007
FLAT = Flat()


def read_prior(entry: Prior | Mapping[str, Any] | str, kinds: tuple[type, ...] = PRIORS) -> Any:
    """Return the prior that a spec's entry names (a name, or a table with parameters); a prior is returned unchanged.

    Parameters
    ----------
    entry
        The entry that the user wrote.
    kinds
        The priors that fit.

    Examples
    --------
    >>> read_prior({"name": "poisson", "mean": 3}), read_prior("flat")
    (Poisson(mean=3, name='poisson'), Flat(name='flat'))
    """
    if isinstance(entry, kinds):
        return entry
    given = {"name": entry} if isinstance(entry, str) else _as_mapping(entry)
    named = {kind.name: kind for kind in kinds}
    name = str(given.pop("name", ""))
    if (kind := named.get(name)) is None:
        what = f"there is no prior '{name[:40]}'" if name else "the prior has no name"
        raise SpecError(what, needed=f"one of: {', '.join(named)}")
    known = [field.name for field in fields(kind) if field.name != "name"]
    if unknown := [name for name in given if name not in known]:
        raise SpecError(
            f"prior '{kind.name}' has no parameter '{unknown[0]}'",
            needed=f"one of: {', '.join(known) or 'no parameter'}",
        )
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
    except SpecError:
        raise
    except (TypeError, ValueError):
        required = [field.name for field in fields(kind) if field.default is MISSING]
        lost = [name for name in required if name not in given]
        raise SpecError(
            f"prior '{kind.name}' {f'lacks the parameter {lost[0]}' if lost else 'has a parameter of the wrong kind'}",
            needed=f"numbers for: {', '.join(required)}",
        ) from None


def _as_mapping(entry: Any) -> dict[str, Any]:
    if isinstance(entry, Mapping):
        return dict(entry)
    if isinstance(entry, PRIORS):
        return {"name": entry.name}
    raise SpecError(
        f"a {type(entry).__name__} is given as the prior",
        needed="the name of a prior, or a table with its name and parameters",
    )


HIERARCHICAL = Hierarchical()


def settle_priors(method: Any, kinds: tuple[type, ...] = FACTORED) -> None:
    """Replace the entries `prior` and `prior_total` of a new method by the priors that they describe.

    Raises
    ------
    SpecError
        As in `read_prior`.
    """
    for name in ("prior", "prior_total"):
        if hasattr(method, name):
            object.__setattr__(method, name, read_prior(getattr(method, name), kinds))


def refuse_unread_priors(*parts: Mapping[str, Any]) -> None:
    """Refuse the entries `prior` and `prior_total` of parts of a spec if they describe no prior."""
    for part in parts:
        for name in ("prior", "prior_total"):
            if name in part:
                read_prior(part[name])


AnyPrior = Annotated[
    Prior,
    BeforeValidator(read_prior, json_schema_input_type=Literal["flat", "hierarchical", "estimated"] | Prior),
]
"""A prior, or how a spec writes it."""
EachPrior = Annotated[
    CountPrior,
    BeforeValidator(
        partial(read_prior, kinds=COUNT_PRIORS), json_schema_input_type=Literal["flat"] | CountPrior
    ),
]
"""A prior on one count, or how a spec writes it."""
SplitPrior = Annotated[
    Hierarchical,
    BeforeValidator(
        partial(read_prior, kinds=(Hierarchical,)),
        json_schema_input_type=Literal["hierarchical"] | Hierarchical,
    ),
]
"""The hierarchical prior, or how a spec writes it."""


def _one(each: Each) -> float:
    if isinstance(each, tuple):
        raise SpecError(
            "the prior has a different parameter for each cell",
            needed="the prior of one cell, which the method `at` returns",
        )
    return float(each)
