"""Several tables as one population: their levels, their attributes, and each file's names for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trueup.io.published.drafting.pointers import Pointers
from trueup.io.published.drafting.roles import TOTAL, YEAR, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import (
    column_numbers,
    summed_groups,
    summing,
    summing_place,
    sums_of_rows_below,
)

_SEX = re.compile(r"f|m|w|(fe)?males?|(wo)?m[ae]n|girls?|boys?|weiblich|männlich", re.IGNORECASE)
_AGE = re.compile(
    r"[\d+–—<≥-]+|under|below|over|aged?|to|and|or|years?|older|more|very|jahre|bis|unter|über|adults?|children|young|old|middle",
    re.IGNORECASE,
)


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


def joined(seen: Sequence[SeenTable], pointers: Pointers | None = None) -> Draft:
    """Find levels and attributes that tables share; take levels from pointers to parent places if there are any."""
    undecided = [f"'{t.file}': {said}" for t in seen for said in t.ignored]
    if pointers is not None:
        seen = [without for t in seen if (without := _without(t, pointers.parent)).values]
    longest = max(seen, key=lambda t: (len(t.places), max((len(set(c.held)) for c in t.places), default=0)))
    levels = [DraftedKey("all", "")]
    for column in longest.places:
        levels += _levels_of(column, undecided, last=column is longest.places[-1])
    if pointers is not None:
        levels = [DraftedKey(f"level {k}", pointers.id, of=_pointed(pointers)) for k in range(pointers.depth)]
    attributes: list[DraftedKey] = []
    entries = [_entry(table, levels, attributes, undecided) for table in seen]
    return Draft(levels, attributes, entries, undecided, pointers)


def _without(table: SeenTable, name: str) -> SeenTable:
    """Return the a table without the column of a name."""
    places, attributes, values = (
        [column for column in columns if column.name != name]
        for columns in (table.places, table.attributes, table.values)
    )
    return table._replace(places=places, attributes=attributes, values=values)


def _pointed(pointers: Pointers) -> SeenColumn:
    return SeenColumn(pointers.id, (pointers.id,), sorted(pointers.places))


def _levels_of(column: SeenColumn, undecided: list[str], *, last: bool) -> Iterator[DraftedKey]:
    """Yield the levels of a column: one, or one for each length of code that is a prefix of others."""
    codes = sorted({text for text in column.held if not TOTAL.fullmatch(text)})
    lengths = _lengths(codes) if last else []
    short = _without_parts(codes, lengths)
    if short:
        undecided.append(
            f"the codes {', '.join(short[:4])} of '{column.name}' have no parts below; they are taken for places without parts"
        )
    for length in lengths:
        yield DraftedKey(f"{column.name} {length}", column.name, length, of=column)
    yield DraftedKey(column.name, column.name, max(map(len, codes)) if short else None, of=column)


def _without_parts(codes: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return the codes above the last level that no other code begins with."""
    begun = {code[:length] for code in codes for length in lengths if len(code) > length}
    return [code for code in codes if len(code) in lengths and code not in begun]


def _lengths(codes: Sequence[str]) -> list[int]:
    """Return the code lengths that all longer codes begin with and most extend, without that of a single root."""
    if all(code.isdecimal() for code in codes) and len(codes) == 1 + max(map(int, codes)) - min(
        map(int, codes)
    ):
        return []  # counted through: 1 is not above 10
    held, found = set(codes), []
    for length in sorted({len(code) for code in codes})[:-1]:
        own = {code for code in codes if len(code) == length}
        begun = {code[:length] for code in codes if len(code) > length}
        if begun <= held and 2 * len(begun) >= len(own) and (len(own) > 1 or found):
            found.append(length)
    return [] if any(" " in code for code in codes) else found


def _entry(
    table: SeenTable, levels: list[DraftedKey], attributes: list[DraftedKey], undecided: list[str]
) -> DraftedTable:
    columns: dict[str, str] = {}
    totals: dict[str, str] = {}
    level, found = "all", False
    for place in table.places:
        at = next((d for d in reversed(levels) if d.of is not None and _same(d.of, place)), None)
        if at is None:
            undecided.append(f"'{table.file}': nothing tells which level '{place.name}' is; it is left out")
            continue
        level, found = at.name, True
        if at.column != place.name:
            columns[at.column] = place.name
        totals |= _total_of(at.column, place)
        if len(table.places) == 1 and not at.prefix and not _total_of(at.column, place):
            totals |= summing_place(at.column, place, table, undecided)
            if above := sums_of_rows_below([column_numbers(value) for value in table.values]):
                undecided.append(
                    f"'{table.file}': '{place.texts[0]}' and {len(above) - 1} more are near the sums of the places below each; "
                    "where they are regions, give these a column of their own, or leave their rows out"
                )
    if table.places and not found:
        undecided.append(f"'{table.file}': its places are none of the other tables'")
    named = []
    for column in table.attributes:
        drawn = _attribute(
            attributes, column.name, [t for t in dict.fromkeys(column.held) if not TOTAL.fullmatch(t)]
        )
        if drawn.column != column.name:
            columns[drawn.column] = column.name
        totals |= _total_of(drawn.column, column)
        named.append(drawn.name)
    cells = [] if len(table.values) == 1 else list(_cells(table, attributes, undecided))
    of_codes = [d for d in levels if d.prefix]
    ragged = bool(of_codes) and of_codes[-1] is levels[-1] and level == levels[-1].name
    upper = [
        text
        for column in table.places[:-1]
        for text, finest in zip(column.texts, table.places[-1].texts)
        if finest
    ]
    return DraftedTable(table, level, cells, named, columns, totals, ragged, "" in upper)


def _same(one: SeenColumn, other: SeenColumn) -> bool:
    a, b = set(one.held), set(other.held)
    return one.name.casefold() == other.name.casefold() or len(a & b) >= 0.5 * min(len(a), len(b))


def _total_of(name: str, column: SeenColumn) -> dict[str, str]:
    label = next((text for text in column.held if TOTAL.fullmatch(text)), None)
    return {} if label is None else {name: label}


def _attribute(attributes: list[DraftedKey], name: str, values: list[str]) -> DraftedKey:
    """Return the attribute with a name or with these values, adding one if there is none."""
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


def _cells(
    table: SeenTable, attributes: list[DraftedKey], undecided: list[str]
) -> Iterator[tuple[SeenColumn, dict[str, str]]]:
    """Yield each column of a wide table with the combination of values that it holds."""
    total = next((c for c in table.values if TOTAL.fullmatch(c.path[-1]) or TOTAL.fullmatch(c.path[0])), None)
    total = total or summing(table)
    if total is not None:
        yield total, {}
    rest = [c for c in table.values if c is not total]
    upper = list(dict.fromkeys(c.path[0] for c in rest if len(c.path) > 1))
    lower = [[c.path[-1] for c in rest if c.path[0] == name] for name in upper]
    if (
        len(upper) > 1
        and all(names == lower[0] for names in lower)
        and len(upper) * len(lower[0]) == len(rest)
    ):
        one, two = (
            _attribute(attributes, _name_of(upper), upper),
            _attribute(attributes, _name_of(lower[0]), lower[0]),
        )
        _say_unnamed(table, (one, two), undecided)
        for column in rest:
            yield column, {one.name: _value(one, column.path[0]), two.name: _value(two, column.path[-1])}
        return
    groups = [[c for c in rest if c.path[0] == name] for name in upper if len(upper) * 2 <= len(rest)]
    flat = [c for c in rest if not any(c in group for group in groups)]
    groups += summed_groups(flat, total) if total and flat else [flat] if flat else []
    for group in groups:
        values = [c.path[-1] for c in group]
        name = (
            group[0].path[0]
            if len(group[0].path) > 1
            and len({c.path[0] for c in group}) == 1
            and not YEAR.fullmatch(group[0].path[0])
            else _name_of(values)
        )
        drawn = _attribute(attributes, name, values)
        _say_unnamed(table, [drawn], undecided)
        for column in group:
            yield column, {drawn.name: _value(drawn, column.path[-1])}


def _say_unnamed(table: SeenTable, drawn: Sequence[DraftedKey], undecided: list[str]) -> None:
    undecided += [
        f"'{table.file}': what tells the columns {', '.join(each.values[:4])} apart; they are values of '{each.name}'"
        for each in drawn
        if each.name.startswith("category")
    ]


def _value(drawn: DraftedKey, value: str) -> str:
    return next((known for known in drawn.values if known.casefold() == value.casefold()), value)


def _name_of(values: Sequence[str]) -> str:
    if all(_SEX.fullmatch(value) for value in values):
        return "sex"
    return "age" if all(_AGE.fullmatch(word) for value in values for word in value.split()) else "category"
