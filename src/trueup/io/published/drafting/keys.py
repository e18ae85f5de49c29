"""Levels, attributes and codes in a drafted spec, and pointers from places to their parents."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from trueup.errors import DataError
from trueup.files.source import open_table
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.perturbed.columns import text_of
from trueup.model.published_codes import UNKNOWN
from trueup.model.tree import Tree


class Pointers(NamedTuple):
    """Parent pointers of places: the names of the two columns, the places, and the depth of the tree."""

    id: str
    parent: str
    places: frozenset[str]
    depth: int


def columns_of_table(source: Any) -> list[SeenColumn]:
    """Return the columns of a file that holds a table and nothing else, as text."""
    table = open_table(source)
    held = table.select(table.columns())
    return [SeenColumn(name, (name,), text_of(column).tolist()) for name, column in held.items()]


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
        columns = {column.name: column.texts for column in columns_of_table(source)}
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


def parents_by_codes(codes: Sequence[str]) -> list[str]:
    """Return, for each code, the longest other code that is a prefix of it; empty if there is none.

    Examples
    --------
    >>> parents_by_codes(["A", "A.1", "A.1.10", "A.2", "B"])
    ['', 'A', 'A.1', 'A', '']
    """
    held = set(codes)
    return [
        next((code[:end] for end in range(len(code) - 1, 0, -1) if code[:end] in held), "") for code in codes
    ]


def without_parts(codes: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return the codes of higher levels that are no prefix of any other code."""
    begun = {code[:length] for code in codes for length in lengths if len(code) > length}
    return [code for code in codes if len(code) in lengths and code not in begun]


def code_lengths(codes: Sequence[str]) -> list[int]:
    """Return the lengths of codes that are prefixes of most longer codes, without that of a single root."""
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


def begins_all(code: str, codes: Sequence[str]) -> bool:
    """Return True if one code is a prefix of all other codes, as X is of X1 and X2.

    Examples
    --------
    >>> begins_all("X", ["X", "X1", "X2"]), begins_all("X1", ["X", "X1", "X2"])
    (True, False)
    """
    return all(other.startswith(code) for other in codes)


def are_levels(codes: Sequence[str]) -> bool:
    """Return True if the length of each code determines its level, for all codes except a single root.

    Examples
    --------
    >>> are_levels(["A1", "A2", "A11", "A12", "A21"]), are_levels(["A1", "A2", "A11", "A12", "A2101"])
    (True, False)
    """
    held = sorted(set(codes))
    lengths = [*code_lengths(held), max(map(len, held))]
    return len(lengths) > 1 and all(len(code) in lengths or begins_all(code, held) for code in held)


_NONE = re.compile(
    r"\W*(nil|zero|none|null|nul|aucune?|nenhum|cero|nessun[oa]?|ingen|geen|no (cases?|persons?|people|observations?)|"
    r"nichts vorhanden|genau null|not applicable|nicht zutreffend|sans objet|non applicable|no (procede|aplica(ble)?)|"
    r"n[ãa]o (se )?aplic(a|ável)|niet van toepassing|(ikke|ej|inte) (relevan?t|tillämplig\w*)|non applicabile|nie dotyczy)\b",
    re.IGNORECASE,
)
_BELOW = re.compile(
    r"(?:(?:fewer|less|smaller|lower|kleiner|weniger|niedriger|geringer|inférieure?s?|moins|menos|menores?|meno|minder|färre)"
    r"\s+(?:than|als|à|de|que|di|än)?\s*|(?:below|under|unter|sous)\s+|<\s*)(\d{1,4})\b(?!\s*%)",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\b(\d{1,4})\s*(?:-|–|to|bis|à|and|und|et|a|or|oder|ou)\s*(\d{1,4})\b", re.IGNORECASE)
_SHOWN = r"(?:shown|replaced|displayed|marked|denoted|represented|indicated|suppressed)\s+(?:as|by|with)\s+(?:an?\s+)?[\"'“‘(\[]?"


def said_of(code: str, notes: str) -> str | None:
    """Return the note in a file that explains a code, or None if there is none.

    Examples
    --------
    >>> said_of("c", "Wards\\nc = confidential (fewer than 5)"), said_of("*", "Counts 1 to 7 are shown as *, others are rounded")
    ('confidential (fewer than 5)', 'Counts 1 to 7 are')
    >>> said_of(".", "Symbols: - nil; . not known"), said_of("x", "six of ten") is None
    ('not known', True)
    >>> said_of("c", "Pupils (c = confidential)\\nc: fewer than 10"), said_of("c", "Pupils (c = confidential)")
    ('fewer than 10', 'confidential')
    >>> said_of("c", "Counts are rounded to base 5. c = fewer than 3. End.")
    'fewer than 3'
    """
    if not code:
        return None
    blank, quote = r"[ \t]", "[\"'“”]?"
    shown = rf"(?:^|[\n;:,|(]|\d\s[-–]){blank}*{quote}{re.escape(code)}{quote}{blank}*"
    listed = shown + rf"(?:[=:–-]{blank}|[=:]|{blank})([^;|\n]{{2,80}})"
    ended = rf"\.\s{quote}{re.escape(code)}{quote}{blank}*[=:]{blank}*([^.;|\n]{{2,80}})"
    if every := [found[1].strip() for way in (listed, ended) for found in re.finditer(way, notes)]:
        told = next((text for text in every if meaning_of(text, zeros=True) != UNKNOWN), every[0])
        return told if "(" in told else told.rstrip(")")
    found = re.search(rf"([^.;\n]{{3,80}}?)\s+{_SHOWN}{re.escape(code)}(?!\w)", notes)
    return found[1].strip() if found else None


def meaning_of(text: str, *, zeros: bool) -> str:
    """Return the meaning of a code as a spec writes it, such as a range of counts.

    Examples
    --------
    >>> [meaning_of(text, zeros=True) for text in ("- nil", "fewer than 5", "1 to 7; rates below 20: u", "not available")]
    ['0', '1-4', '1-7', 'unknown']
    """
    if _NONE.match(text):
        return "0"
    below, between = _BELOW.search(text), _RANGE.search(text)
    if (
        between
        and int(between[1]) < int(between[2]) <= 100
        and not (below and below.start() < between.start())
    ):
        return f"{between[1]}-{between[2]}"
    if below and int(below[1]) > 1:
        return f"1-{int(below[1]) - 1}" if zeros else f"<{below[1]}"
    return UNKNOWN
