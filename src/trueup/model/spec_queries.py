"""The parts of a spec on measurements, their privacy loss, and constraints on published counts."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    StrictInt,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from trueup.digits import rational
from trueup.model.linear import parse_linear
from trueup.model.spec_table import _LARGEST, Name, SpecPart
from trueup.noise import law_named
from trueup.noise.law import Currency


def _budget(value: Any) -> Fraction | dict[str, Fraction]:
    if isinstance(value, dict):
        return {
            str(level): rational(amount, f"the budget of level '{level}'") for level, amount in value.items()
        }
    return rational(value, "the budget")


_RATIONAL = {"type": ["string", "integer"], "examples": ["1/2", "0.1", 1]}


_CONDITION = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}


Budget = Annotated[
    Any,
    BeforeValidator(_budget),
    WithJsonSchema({"anyOf": [_RATIONAL, {"type": "object", "additionalProperties": _RATIONAL}]}),
]
"""An exact amount for every level that the query names, or one amount per level."""


MOST_WEIGHT = 1_000_000
"""Largest weight of an invariant's counts."""


Amount = Annotated[
    Any,
    BeforeValidator(lambda given: None if given is None else rational(given, "the budget")),
    WithJsonSchema(_RATIONAL),
]
"""One exact amount."""


Limit = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | Name | None
"""A limit of all groups of a margin, or the name of a public column with one for each place."""


class ContributionPart(SpecPart):
    """The largest number of groups of a query to which one protected unit contributes."""

    cells: int = Field(gt=0, le=_LARGEST, description="how many groups one unit can touch")
    each: int = Field(1, gt=0, le=_LARGEST, description="by how much it can change each of them")


def _refuse_both_or_neither(epsilon: Any, rho: Any) -> None:
    """Refuse a query with both kinds of budget, or with none."""
    if epsilon is None and rho is None:
        raise ValueError("no budget is given: give `epsilon` or `rho`")
    if epsilon is not None and rho is not None:
        raise ValueError("both `epsilon` and `rho` are given: leave one out")


class Query(SpecPart):
    """A marginal table that is measured at one or more levels, each with its own exact budget."""

    name: Name
    attributes: tuple[str, ...] = ()
    noise: str = "discrete-laplace"
    levels: tuple[str, ...] = ()
    epsilon: Budget = None
    rho: Budget = None
    contribution: ContributionPart | None = None
    options: dict[str, Any] = Field(default_factory=dict, description="further parameters of the law")
    counts: Name | None = Field(
        None, description="beside [table.join]: which table's records it counts; by default the persons"
    )
    cumulative: Name | None = Field(
        None,
        description="beside [table.join]: a number of persons among its attributes, measured as `at least k` for every k",
    )
    where: dict[str, str] = Field(
        default_factory=dict, description="written by trueup: which records of two tables it counts"
    )

    @model_validator(mode="after")
    def _budgeted(self):
        _refuse_both_or_neither(self.epsilon, self.rho)
        amount = self.rho if self.epsilon is None else self.epsilon
        if amount == {} or isinstance(amount, dict) == bool(self.levels):
            raise ValueError(
                "the levels are named twice: give `levels = [...]` with one budget, or a budget for each level"
            )
        law_named(self.noise)
        return self

    @property
    def currency(self) -> Currency:
        """Return the unit of the budget: epsilon or rho."""
        return "epsilon" if self.epsilon is not None else "rho"

    @property
    def budgets(self) -> dict[str, Fraction]:
        """Return the exact budget of each level."""
        amount = self.epsilon if self.epsilon is not None else self.rho
        if isinstance(amount, dict):
            return amount
        assert amount is not None
        return dict.fromkeys(self.levels, Fraction(amount))


class LeftOutPart(SpecPart):
    """The noisy number of records that a limit leaves out, measured once for the whole table."""

    most: int = Field(
        gt=0,
        le=_LARGEST,
        description="of each unit at most so many are counted: the noise is scaled to that",
    )
    noise: str = "discrete-laplace"
    epsilon: Amount = None
    rho: Amount = None
    options: dict[str, Any] = Field(default_factory=dict, description="further parameters of the law")

    name: ClassVar[str] = "records left out"

    @model_validator(mode="after")
    def _budgeted(self):
        _refuse_both_or_neither(self.epsilon, self.rho)
        if law_named(self.noise).joint:
            raise ValueError(
                f"noise '{self.noise}' is for several counts that are drawn together, but this is a single count: choose "
                "another noise"
            )
        return self

    @property
    def currency(self) -> Currency:
        """Return the unit of the budget: epsilon or rho."""
        return "epsilon" if self.epsilon is not None else "rho"

    @property
    def budget(self) -> Fraction:
        """Return the exact budget of the measurement."""
        return self.epsilon if self.epsilon is not None else self.rho


class MarginPart(SpecPart):
    """A margin: the places of a level, crossed with some attributes."""

    level: str
    attributes: tuple[str, ...] = ()


class InvariantPart(MarginPart):
    """A margin that is published exactly, of all units or of those that meet a condition."""

    where: Annotated[
        tuple[Annotated[dict[str, str], Field(min_length=1)], ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, dict) else value),
        WithJsonSchema({"anyOf": [_CONDITION, {"type": "array", "items": _CONDITION}]}),
    ] = Field(
        (),
        description="count the units alone that meet this condition, or one of several; values of attributes or "
        "recodes, or places by their level",
    )
    weights: tuple[StrictInt, ...] = Field(
        (),
        description="publish a weighted sum: how often a unit that meets each condition is counted, whole numbers",
    )

    @model_validator(mode="after")
    def _weighted(self):
        if self.weights and len(self.weights) != len(self.where):
            raise ValueError(
                f"an invariant gives {len(self.weights)} weights for {len(self.where)} conditions in `where`: give one for "
                "each condition"
            )
        if not all(0 < abs(weight) <= MOST_WEIGHT for weight in self.weights):
            raise ValueError(
                f"the weights of an invariant must be whole numbers other than zero, from -{MOST_WEIGHT:,} to "
                f"{MOST_WEIGHT:,}"
            )
        return self


class BoundPart(MarginPart):
    """Limits on the groups of a margin, or on those with given attribute values."""

    lower: Limit = Field(
        None, description="a number, or the column of the geography file that holds one a place"
    )
    upper: Limit = Field(None, description="likewise")
    where: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _limited(self):
        if self.lower is None and self.upper is None:
            raise ValueError("a bound has neither `lower` nor `upper`: give at least one of them")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the geography file that hold the bound's limits."""
        return tuple(limit for limit in (self.lower, self.upper) if isinstance(limit, str))


class LinearPart(SpecPart):
    """A linear constraint at every place of a level (by default the last)."""

    rule: str
    level: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_text(cls, value: Any) -> Any:
        return {"rule": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _parses(self):
        parse_linear(self.rule)
        return self


class AboutPart(SpecPart):
    """The publisher of the counts, for the report."""

    author: Annotated[Name | None, Field(description="person or office")] = None
    date: Annotated[
        Name | None,
        BeforeValidator(lambda given: given if given is None else str(given)),
        Field(description="of publication"),
    ] = None
    contact: Name | None = None
    licence: Name | None = None
    source: Annotated[Name | None, Field(description="the survey or register that was counted")] = None


class ConstraintsPart(SpecPart):
    """Constraints on the published counts, in addition to additivity."""

    nonnegative: bool = True
    invariants: tuple[InvariantPart, ...] = ()
    zeros: tuple[Annotated[dict[str, str], Field(min_length=1)], ...] = ()
    bounds: tuple[BoundPart, ...] = ()
    linear: tuple[LinearPart, ...] = ()
