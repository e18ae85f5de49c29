"""The parts of a spec that decide how a confidential table is tabulated.

Whoever reads confidential rows is given a `Reading` and no spec. So a new key of the spec that changes what is read has to
stand here, and what stands here is in the digest of every question that rests on it: `plain` leaves out what is named below
and keeps the rest, whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trueup.model.cells import Attribute, Recode
from trueup.model.linear import parse_sum
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart, Level, Parents, RecordsPart, TablePart


def plain_attribute(part: AttributePart) -> Attribute:
    """Return an attribute of the spec as a plain `Attribute`, with its values and recodes."""
    recodes = tuple(Recode.of(r.name, r.groups, part.values) for r in part.recodes)
    return Attribute(part.name, part.values, part.partition, recodes)


@dataclass(frozen=True)
class KeptRecords:
    """The rule that limits the records of one unit: the column that identifies units, and the largest number.

    Attributes
    ----------
    id, contribution
        The fields of these names in `[privacy]`.
    """

    id: str | None
    contribution: RecordsPart | None


@dataclass(frozen=True)
class Reading:
    """The parts of a spec that decide how a confidential table is read.

    Attributes
    ----------
    table, levels, parents, attributes
        The parts of these names in the spec; the table has neither name nor file.
    privacy
        The rule for the records of a unit that are kept.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> Reading.of(AREAS).places["levels"]
    [{'name': 'all'}, {'name': 'area', 'column': 'area'}]
    """

    table: TablePart
    levels: tuple[Level, ...]
    parents: Parents | None
    attributes: tuple[AttributePart, ...]
    privacy: KeptRecords

    @classmethod
    def of(cls, spec: Spec | Reading) -> Reading:
        """Return the reading of a spec; a reading is returned unchanged."""
        if isinstance(spec, Reading):
            return spec
        table = spec.table.model_copy(update={"name": "", "file": None, "keys": "confidential"})
        kept = KeptRecords(spec.privacy.id, spec.privacy.contribution)
        return cls(table, spec.levels, spec.parents, spec.attributes, kept)

    @cached_property
    def columns(self) -> tuple[AttributePart, ...]:
        """Return the attributes that are columns of the rows, without numbers of persons."""
        if self.table.join is None:
            return self.table.in_rows(self.attributes)
        return tuple(part for part in self.table.join.attributes if part.persons is None)

    @property
    def source(self) -> dict[str, Any]:
        """Return the description of the rows' source: the table, and the link of a second table."""
        table = _said(self.table, "join", "cells", "name", "keys", "file")
        cells = [[_sum(cell.count), sorted(cell.where.items())] for cell in self.table.cells]
        join = self.table.join and _said(self.table.join, "attributes", "views")
        return {**table, "cells": sorted(cells, key=str), "join": join}

    @property
    def kept(self) -> dict[str, Any]:
        """Return the rule that limits the records of a unit, as JSON values."""
        limit = self.privacy.contribution if self.privacy.id or self.table.join else None
        held = self.table.join.attributes if self.table.join else ()
        linked = [{**stated(part), "persons": _counted(part, held)} for part in held]
        return {"id": self.privacy.id, "limit": limit and _said(limit), "linked": sorted(linked, key=str)}

    @property
    def places(self) -> dict[str, Any]:
        """Return the columns that name the place of a row, as JSON values."""
        levels = [_said(level, "label") for level in self.levels]
        return {"levels": levels, "parents": self.parents and _said(self.parents)}

    def plain(self) -> dict[str, Any]:
        """Return the reading as JSON values; two readings with equal values tabulate every table alike."""
        columns = sorted((stated(part) for part in self.columns), key=str)
        return {"source": self.source, "kept": self.kept, "places": self.places, "columns": columns}


def stated(part: AttributePart) -> dict[str, Any]:
    """Return the column, values and table that identify an attribute apart from its name."""
    said = _said(part, "name", "recodes", "values", "column", "persons")
    return {**said, "column": part.column or part.name, "values": sorted(part.values)}


def _counted(part: AttributePart, held: tuple[AttributePart, ...]) -> Any:
    """Return the condition on persons that an attribute counts, as columns and values; None if it counts none."""
    if part.persons is None:
        return None
    return sorted(_inside(name, wanted, part, held) for name, wanted in part.persons.items())


def _inside(name: str, wanted: Any, part: AttributePart, held: tuple[AttributePart, ...]) -> list[Any]:
    owner = next(a for a in held if name in a.views and a is not part and a.persons is None)
    groups = next((r.groups for r in owner.recodes if r.name == name), {v: (v,) for v in owner.values})
    chosen = [wanted] if isinstance(wanted, str) else wanted
    return [
        owner.of,
        owner.column or owner.name,
        sorted(value for group in chosen for value in groups[group]),
    ]


def topic_of(part: AttributePart) -> str:
    """Return the topic under which a refusal for values outside an attribute's domain is recorded."""
    return f"column {part.of + ' ' if part.of else ''}{(part.column or part.name).casefold()}"


def _said(part: Any, *left_out: str) -> dict[str, Any]:
    """Return a part of the spec as JSON values, without the named keys and without empty ones."""
    return part.model_dump(mode="json", exclude=set(left_out), exclude_none=True)


def _sum(text: str) -> list[list[str]]:
    return sorted([name, str(factor)] for name, factor in parse_sum(text).items())
