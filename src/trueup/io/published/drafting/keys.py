"""Levels and attributes in a drafted spec, and pointers from places to their parents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.perturbed.columns import text_of
from trueup.model.tree import Tree


class Pointers(NamedTuple):
    """Parent pointers of places: the names of the two columns, the places, and the depth of the tree."""

    id: str
    parent: str
    places: frozenset[str]
    depth: int


def pointers_of(source: str | Path) -> Pointers | None:
    """Return the columns that name each row's place and its parent, or None if there are none.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "areas.csv"
    >>> _ = file.write_text("area,in\\nuk,\\nengland,uk\\nkent,england\\n")
    >>> pointers_of(file)[::3]
    ('area', 3)
    """
    try:
        table = open_table(source)
        columns = {name: text_of(column).tolist() for name, column in table.select(table.columns()).items()}
    except DataError:  # no plain table
        return None
    for id_, places in columns.items():
        known = frozenset(places)
        for parent, above in columns.items():
            pairs = dict.fromkeys(zip(places, above)) if parent != id_ and len(known) > 1 else ()
            if len(pairs) == len(known) and set(above) - known == {""}:
                try:
                    return Pointers(id_, parent, known, len(Tree.from_parents(*zip(*pairs)).levels))
                except DataError:
                    continue
    return None


@dataclass
class DraftedKey:
    """A level or an attribute in a drafted spec."""

    name: str
    column: str
    prefix: int | None = None
    values: list[str] = field(default_factory=list)
    of: SeenColumn | None = None


@dataclass
class DraftedTable:
    """A table in a drafted spec, with its level, attributes and cells."""

    seen: SeenTable
    level: str
    cells: list[tuple[SeenColumn, dict[str, str]]]
    attributes: list[str]
    columns: dict[str, str]
    totals: dict[str, str]
    ragged: bool = False
    fill: bool = False
    partial: bool = False
    law: str | None = None


@dataclass
class Draft:
    """The content of a drafted spec: levels, attributes and tables."""

    levels: list[DraftedKey]
    attributes: list[DraftedKey]
    entries: list[DraftedTable]
    undecided: list[str]
    pointers: Pointers | None = None


def attribute_of(
    attributes: list[DraftedKey], name: str, values: list[str], taken: Collection[str] = ()
) -> DraftedKey:
    """Return the drafted attribute that has a given name or given values, or a new attribute."""
    fold = {value.casefold() for value in values}
    free = [known for known in attributes if known.name not in taken]
    for known in sorted(free, key=lambda known: known.name.casefold() != name.casefold()):
        held = {value.casefold() for value in known.values}
        if held == fold or (known.name.casefold() == name.casefold() and held & fold):
            known.values += [value for value in values if value.casefold() not in held]
            return known
    while name in {known.name for known in attributes}:
        name += " 2"
    attributes.append(DraftedKey(name, name, values=values))
    return attributes[-1]


def spec_value(drawn: DraftedKey, value: str) -> str:
    """Return an attribute value as the drafted spec writes it."""
    return next((known for known in drawn.values if known.casefold() == value.casefold()), value)


def lacks_above(upper: SeenColumn, finest: SeenColumn, totals: Mapping[str, str]) -> bool:
    """Return True if some row names a finest place but none of the places above it."""
    return any(
        not above and own and own not in totals.values() for above, own in zip(upper.texts, finest.texts)
    )


def lacks_below(upper: SeenColumn, finest: SeenColumn, totals: Mapping[str, str]) -> bool:
    """Return True if some row is about a larger place that has no parts below it, and is not a total."""
    known = {above for above, own in zip(upper.texts, finest.texts) if own and not TOTAL.fullmatch(own)}
    known |= {"", *totals.values()}
    return not all(above in known or TOTAL.fullmatch(above) for above in upper.texts)


def is_repeated(column: SeenColumn) -> bool:
    """Return True if some row repeats the key of the row above, so that blanks have another meaning."""
    return any(one and one == other for one, other in pairwise(column.texts))
