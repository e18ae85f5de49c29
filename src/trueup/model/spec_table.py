"""The parts of a spec on the confidential table: places, attributes, records, and the protected unit.

One file: parts that are checked against one another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from trueup.files.values import folded_case, plain_text
from trueup.model.linear import parse_sum
from trueup.model.names import is_figure, refuse_date, refuse_repeats, refuse_unknown_name, repeated

_SPELT_OUT = 12  # groups of a recode that a message writes down


Name = Annotated[str, Field(pattern=r"\S")]
"""A name that can be seen."""


_LARGEST = 2**62
"""Largest count; see `trueup.files.values`."""


class SpecPart(BaseModel):
    """A frozen part of the spec that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class Level(SpecPart):
    """One level of the hierarchy; the first is the root and has no column."""

    name: Name
    column: Name | None = None
    prefix: int | None = Field(None, gt=0, description="take this many leading characters of the column")
    label: Name | None = Field(None, description="column with readable names of the places")

    @property
    def key(self) -> str:
        """Return a level's key column in published tables: the column itself, or the level's name if a figure has that name."""
        own = self.column is not None and self.prefix is None and not is_figure(self.column)
        return self.column if own else self.name  # pyright: ignore[reportReturnType]


def refuse_misplaced_columns(levels: Sequence[Level], *, parents: bool) -> None:
    """Refuse a column of the root, and levels without one if no parent pointers say where places lie."""
    if levels[0].column is not None:
        raise ValueError(
            "the first level is the root, which holds every place, but has a column: leave the column out"
        )
    if not parents and (bare := [level.name for level in levels[1:] if level.column is None]):
        raise ValueError(f"level '{bare[0]}' has no column: name the column that holds its keys")


class Parents(SpecPart):
    """A hierarchy given by parent pointers, with one row for every place."""

    id: Name
    parent: Name


class RecodePart(SpecPart):
    """A named grouping of an attribute's values, as declared in a spec."""

    name: Name
    groups: dict[str, tuple[str, ...]] = Field(description="for every group, the values it holds")


def bin_labels(bins: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the ranges that begin at the given whole numbers.

    Examples
    --------
    >>> bin_labels([0, 1, 15])
    ('0', '1-14', '15 and more')
    """
    ranges = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(bins)]
    return (*ranges, f"{bins[-1]} and more")


class AttributePart(SpecPart):
    """An attribute with the public list of its possible values."""

    name: Name
    values: tuple[str, ...] = Field(
        (), description="its domain; a number of persons has that of all numbers that there can be"
    )
    column: Name | None = Field(None, description="column of the table; by default the attribute's name")
    of: Name | None = Field(
        None,
        description="beside [table.join]: whose attribute it is, by what its table counts, or 'reference'; by default "
        "the persons'",
    )
    persons: dict[str, str | tuple[str, ...]] | None = Field(
        None,
        description="beside [table.join]: how many persons of a household have these values; all of them where it is empty",
    )
    bins: tuple[StrictInt, ...] = Field(
        (), description="whole numbers at which ranges begin, in place of values: 0, 15, 65"
    )
    date: Literal["month", "year"] | None = Field(
        None, description="the column holds dates (2026-03-14), and values are their months or years"
    )
    form: Name | None = Field(
        None,
        description="how the column writes dates, if not as 2026-03-14: DD.MM.YYYY, MM/DD/YYYY, YYYYMMDD",
    )
    other: Name | None = Field(
        None,
        description="the value of what is not listed, and is not missing; with bins of numbers alone, with dates of dates",
    )
    missing: Name | None = Field(None, description="the value of what is missing")
    fold: StrictBool = Field(
        False, description="upper and lower case, and how many blanks, make no difference"
    )
    partition: bool = Field(True, description="each unit falls under exactly one value")
    recodes: tuple[RecodePart, ...] = Field((), alias="recode", description="groupings that margins may name")

    @model_validator(mode="before")
    @classmethod
    def _with_values(cls, given: Any) -> Any:
        """Complete an attribute's values: those of bins, one for values not listed, and one for missing values."""
        if not isinstance(given, dict):
            return given
        values, bins = given.get("values", ()), given.get("bins", ())
        if bins and all(type(low) is int for low in bins):
            values = values or bin_labels(bins)
        extra = [given[name] for name in ("other", "missing") if isinstance(given.get(name), str)]
        if values and isinstance(values, list | tuple):
            values = (*values, *dict.fromkeys(each for each in extra if each not in values))
        return {**given, "values": values} if values else given

    @property
    def is_read(self) -> bool:
        """Return True if the values in rows must be translated to the attribute's values."""
        return bool(self.bins or self.date or self.fold or self.other is not None or self.missing is not None)

    @model_validator(mode="after")
    def _readable(self):
        if self.bins:
            if list(self.bins) != sorted(set(self.bins)):
                raise ValueError(
                    "its bins are not in increasing order; needed: whole numbers, each larger than the one before"
                )
            if self.date:
                raise ValueError("it has both bins and dates; needed: either bins or dates")
            labels = bin_labels(self.bins)
            if self.values[: len(labels)] != labels or set(self.values[len(labels) :]) - {
                self.other,
                self.missing,
            }:
                raise ValueError(
                    "it has both bins and values; needed: only bins, from which the values follow"
                )
        if self.date is not None or self.form is not None:
            refuse_date(self.date, self.form, {*self.values} - {self.other, self.missing})
        if self.is_read and self.persons is not None:
            raise ValueError(
                "it is a number of persons, which is counted from the person records; needed: no `bins`, `date` or other "
                "option for reading a column"
            )
        return self

    @property
    def views(self) -> dict[str, tuple[str, ...]]:
        """Return the values of the attribute, and the groups of each of its recodes, by name."""
        return {self.name: self.values, **{r.name: tuple(r.groups) for r in self.recodes}}

    @model_validator(mode="after")
    def _grouped(self):
        if not self.values:
            raise ValueError("it has no values: list them under `values`")
        plain = [folded_case(plain_text(v)) if self.fold else plain_text(v) for v in self.values]
        refuse_repeats(f"value of '{self.name}'", plain)
        for recode in self.recodes:
            self._refuse_misgrouped(recode)
        return self

    def crossed(self, first: str, second: str) -> str:
        """Return advice to declare one recode that replaces two crossing recodes."""
        groups: dict[tuple[str, str], list[str]] = {}
        for value in self.values:
            groups.setdefault((self._group(first, value), self._group(second, value)), []).append(value)
        for view, names in self.views.items():
            pairs = {(key, self._group(view, value)) for key, held in groups.items() for value in held}
            if len(pairs) == len(names) == len(groups):
                return f"name '{view}' alone, which tells apart all that they tell apart together"
        if len(groups) > _SPELT_OUT:
            return f"name one recode of '{self.name}' with a group for each of the {len(groups)} pairs of groups that overlap"
        listed = ", ".join(
            f"{json.dumps(' '.join(key))} = {json.dumps(held)}" for key, held in groups.items()
        )
        return f"name one recode of '{self.name}' with groups = {{ {listed} }}"

    def _group(self, view: str, value: str) -> str:
        recodes = (recode.groups for recode in self.recodes if recode.name == view)
        groups = next(recodes, {each: (each,) for each in self.values})
        return next(name for name, held in groups.items() if value in held)

    def _refuse_misgrouped(self, recode: RecodePart) -> None:
        listed = [value for group in recode.groups.values() for value in group]
        held = set(listed)
        where = f"recode '{recode.name}'"
        if not self.partition:
            raise ValueError(f"{where} sums values of '{self.name}', which overlap: leave the recode out")
        known = set(self.values)
        for value in (each for each in listed if each not in known):
            refuse_unknown_name(value, list(self.values), f"value of '{self.name}'", where)
        if twice := repeated(listed):
            raise ValueError(f"{where} lists the value '{twice[0]}' twice: list each value in one group")
        if lost := [value for value in self.values if value not in held]:
            raise ValueError(f"{where} has no group for the value '{lost[0]}': add the value to a group")
        if empty := [name for name, group in recode.groups.items() if not group]:
            raise ValueError(f"the group '{empty[0]}' of {where} is empty: list at least one value in it")
        if len(recode.groups) in (1, len(self.values)):
            raise ValueError(
                f"{where} puts all values into one group, or each into a group of its own: leave the recode out"
            )


class CellColumn(SpecPart):
    """A column of a wide table: the counts of one combination of attribute values."""

    count: str = Field(description="a column, or a sum of columns such as 'pop - vap'")
    where: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _parses(self):
        parse_sum(self.count)
        return self


class ReferencePart(SpecPart):
    """The reference person of a household, named by a column's value."""

    column: Name = Field(description="a column of the persons")
    value: str = Field(description="what stands there for the one reference person of each household")


Apart = Literal[
    "persons without a household",
    "persons of unknown households",
    "households without persons",
    "households listed twice",
    "households without a reference person",
    "households with several reference persons",
]
"""Records that do not link up, by the names under which they are counted apart."""


class JoinPart(SpecPart):
    """A second table of households, linked to that of persons by an identifier."""

    counts: Name = Field(description="what a record of the second table stands for: household, ...")
    id: Name = Field(description="the column of both tables that says which household it is")
    reference: ReferencePart | None = None
    apart: tuple[Apart, ...] = Field(
        (),
        description="records that are left out and counted apart, for the agency alone; others are refused",
    )
    attributes: tuple[AttributePart, ...] = Field(
        (),
        alias="attribute",
        description="written by trueup: the attributes of both tables as they were declared",
    )
    views: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="written by trueup: what each recode of `record` keeps apart"
    )


class TablePart(SpecPart):
    """The confidential table: its name, its form and its columns."""

    name: Name = Field(description="the dataset's declared name; budgets are kept under it")
    kind: Literal["counts", "records"]
    counts: Name = Field(description="what one count stands for: person, household, ...")
    count: Name | None = Field(None, description="the column of counts of a long table")
    cells: tuple[CellColumn, ...] = Field(
        (),
        alias="cell",
        description="the columns of a wide table; attributes that none of them names stand in its rows",
    )
    keys: Literal["public", "confidential"] = "confidential"
    place: tuple[Name, ...] | None = Field(
        None,
        min_length=1,
        description="columns that tell the place of a row, where the public list alone says in which larger places it lies; "
        "by default those of all levels",
    )
    file: str | None = None
    join: JoinPart | None = Field(
        None, description="a second table, of the households that the persons live in"
    )

    def in_rows(self, attributes: Sequence[AttributePart]) -> tuple[AttributePart, ...]:
        """Return the attributes whose values rows state in columns of their own."""
        named = {name for cell in self.cells for name in cell.where}
        return tuple(part for part in attributes if part.name not in named)

    @model_validator(mode="after")
    def _one_layout(self):
        wanted = self.kind == "counts"
        if wanted != bool(self.count or self.cells) or (self.count and self.cells):
            raise ValueError(
                f"kind 'counts' is given {'both' if self.count else 'neither'} `count` and [[table.cell]]: give one of them"
                if wanted
                else "kind 'records' is given `count` or [[table.cell]]: leave it out"
            )
        if self.join is not None and (self.kind != "records" or self.join.counts == self.counts):
            raise ValueError(
                "[table.join] links a table of counts, or two tables of one unit: link two tables of records "
                "whose `counts` differ"
            )
        if self.place is not None and (self.keys == "public" or self.join is not None):
            raise ValueError(
                "`place` is given, but the places of the table do not come from a list of their own (--geography "
                "FILE): leave it out"
            )
        if self.kind == "records" and self.keys == "public":
            raise ValueError(
                'places taken from records would reveal which of them are occupied: write keys = "confidential", and '
                "give the list of places by --geography FILE"
            )
        return self


class RecordsPart(SpecPart):
    """The largest number of records of a table that belong to one protected unit."""

    records: int = Field(gt=0, le=_LARGEST, description="how many records one unit holds, or keeps, at most")


class Privacy(SpecPart):
    """The protected unit and the neighbour relation."""

    unit: Name
    neighbours: Literal["add-remove", "replace"]
    id: Name | None = Field(
        None,
        description="column of the unit's identifier in a table of records: its contribution is then enforced",
    )
    contribution: RecordsPart | None = None

    @model_validator(mode="after")
    def _limited(self):
        if self.id is not None and self.contribution is None:
            raise ValueError(
                f"`id` names the column of the {self.unit}, but no limit on the records of one {self.unit} is given: "
                f"write contribution = {{ records = ... }}"
            )
        return self
