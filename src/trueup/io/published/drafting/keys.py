"""Levels and attributes as a drafted spec has them, and the names of attributes that their values tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.io.published.drafting.seen import YEAR, SeenColumn, SeenTable
from trueup.io.published.perturbed.columns import text_of
from trueup.model.tree import Tree


class Pointers(NamedTuple):
    """The columns of a list of places that point from each to its parent, all places, and their depth."""

    id: str
    parent: str
    places: frozenset[str]
    depth: int


def pointers_of(source: str | Path) -> Pointers | None:
    """Find a column that names each row's place and one that names its parent; return None if there are none.

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
        if len(known) < max(len(places), 2):
            continue
        for parent, above in columns.items():
            if parent != id_ and set(above) - known == {""}:
                try:
                    return Pointers(id_, parent, known, len(Tree.from_parents(places, above).levels))
                except DataError:
                    continue
    return None


_SEX = re.compile(
    r"f|m|w|(fe)?males?|(wo)?m[ae]n|girls?|boys?|weiblich|männlich|männer|frauen|mann|frau|hommes?|femmes?|masculin|féminin|"
    r"garçons|filles|hombres?|mujeres?|masch[io]|femmin[ae]|homens|mulheres|mannen|vrouwen|män|kvinnor|mænd|kvinder|menn|kvinner",
    re.IGNORECASE,
)
_AGE = re.compile(
    r"[\d+–—<≥-]+|under|below|over|aged?|to|and|or|years?|older|more|very|jahre|bis|unter|über|adults?|children|young|old|middle|"
    r"ans|et|plus|de|à|anos|ou|mais|menos|años|y|más|anni|e|jaar|en|ouder|år|och|og|äldre",
    re.IGNORECASE,
)
OF_WHICH = re.compile(
    r"(davon|darunter|of which|including|of whom|dont|di cui|de los cuales|waarvan|waaronder|herav|heraf|därav)\W+"
)
"""Words before the name of a part of the count beside it."""


@dataclass
class DraftedKey:
    """A level or an attribute of the drafted spec."""

    name: str
    column: str
    prefix: int | None = None
    values: list[str] = field(default_factory=list)
    of: SeenColumn | None = None


@dataclass
class DraftedTable:
    """One table of the spec."""

    seen: SeenTable
    level: str
    cells: list[tuple[SeenColumn, dict[str, str]]]
    attributes: list[str]
    columns: dict[str, str]
    totals: dict[str, str]
    ragged: bool = False
    fill: bool = False


@dataclass
class Draft:
    """All that a drafted spec declares."""

    levels: list[DraftedKey]
    attributes: list[DraftedKey]
    entries: list[DraftedTable]
    undecided: list[str]
    pointers: Pointers | None = None


def attribute_of(attributes: list[DraftedKey], name: str, values: list[str]) -> DraftedKey:
    """Return the attribute of a name, or with these values; a new one if there is none."""
    fold = {value.casefold() for value in values}
    for known in attributes:
        held = {value.casefold() for value in known.values}
        if held == fold or (known.name.casefold() == name.casefold() and held & fold):
            known.values += [value for value in values if value.casefold() not in held]
            return known
    while name in {known.name for known in attributes}:
        name += " 2"
    attributes.append(DraftedKey(name, name, values=values))
    return attributes[-1]


def spec_value(drawn: DraftedKey, value: str) -> str:
    """Return a value of an attribute as the spec writes it."""
    return next((known for known in drawn.values if known.casefold() == value.casefold()), value)


def name_of(values: Sequence[str]) -> str:
    """Return the name of an attribute that has such values; 'category' if they do not tell it.

    Examples
    --------
    >>> name_of(["Men", "Women"]), name_of(["davon männlich", "davon weiblich"]), name_of(["0-17", "18+"]), name_of(["a", "b"])
    ('sex', 'sex', 'age', 'category')
    >>> name_of(["2023", "2024"]), name_of(["2022-2023", "2023-2024"])
    ('year', 'period')
    """
    bare = [re.sub(r"\s*\(.*\)$|\W+$", "", OF_WHICH.sub("", value.casefold())) or value for value in values]
    if all(_SEX.fullmatch(value) for value in bare):
        return "sex"
    if all(map(YEAR.search, values)):
        return "year" if all(map(YEAR.fullmatch, values)) else "period"
    words = [word for value in values for word in OF_WHICH.sub("", value.casefold()).split()]
    return "age" if all(map(_AGE.fullmatch, words)) else "category"


def lacks_above(upper: SeenColumn, finest: SeenColumn, totals: Mapping[str, str]) -> bool:
    """Return True if some row names a finest place and none above it."""
    return any(
        not above and own and own not in totals.values() for above, own in zip(upper.texts, finest.texts)
    )


def is_repeated(column: SeenColumn) -> bool:
    """Return True if a row repeats the key of the row above, so that a blank need not do so."""
    return any(one and one == other for one, other in pairwise(column.texts))
