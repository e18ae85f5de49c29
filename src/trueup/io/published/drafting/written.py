"""Writer of drafted specs as TOML, with suggested noise laws and codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trueup.io.published.drafting.apart import label_of
from trueup.io.published.drafting.deviations import entries_by_variance
from trueup.io.published.drafting.keys import Draft, DraftedKey, DraftedTable, meaning_of, said_of
from trueup.io.published.drafting.laws import rounding_base, suggested_law, unit_of
from trueup.io.published.drafting.seen import SeenColumn, SeenTable, counted_names, is_number
from trueup.io.published.perturbed.notes import carried_keys
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, read_number, without_mark
from trueup.model.published_codes import UNKNOWN, read_interval
from trueup.model.toml import inline_table, value_text
from trueup.noise.perturbed import CountInterval

_CONTROLLED = re.compile(
    r"\*{5}|-5{9}(\.0+)?|\(?(controlled|exact|fixed|exakt|exacto?|esatto|benchmark(ed)?)\)?", re.IGNORECASE
)
"""Marks in the place of an error that there is none: the value was set to a number known elsewhere."""


def written(
    whole: Draft, title: str, variances: Mapping[str, str], law: str | None = None
) -> tuple[str, list[str]]:
    """Return the drafted spec as TOML text, and notes on what could not be decided.

    Variances are those that a list gives tables, columns and categories; the law is one that a list gives all tables.
    """
    undecided = list(whole.undecided)
    noisy = [bool(entry.seen.errors or entry.seen.variance) for entry in whole.entries]
    given = [replace(entry, law=None if own else law) for entry, own in zip(whole.entries, noisy)]
    entries = given if law else [own for entry in given for own in entries_by_variance(entry, variances)]
    entries = [part for entry in entries for part in ([entry] if entry.law else _by_law(entry))]
    told = {base for entry in entries if (base := rounding_base(entry)) is not None}
    values = {a.name: set(a.values) for a in whole.attributes}
    parts = [
        _entry(entry, name, told, values, undecided) for entry, name in zip(entries, _entry_names(entries))
    ]
    levels = [_level(level, pointed=whole.pointers is not None) for level in whole.levels]
    attributes = [
        f"[[attribute]]\nname = {value_text(a.name)}\nvalues = {value_text(a.values)}\n"
        for a in whole.attributes
    ]
    head = [
        "format = 1",
        f"title = {value_text(title)}",
        'table = { name = "published", counts = "unit" }',
        *(
            [f"parents = {inline_table({'id': whole.pointers.id, 'parent': whole.pointers.parent})}"]
            if whole.pointers
            else []
        ),
        f"level = [{', '.join(levels)}]",
        "",
    ]
    undecided += [
        f"where the header stands: columns of values have no names of their own ({value_text(a.values)[:80]}); say so in "
        "the entry, `skip` = the rows above the header and `header` = its rows, and name the values of the attribute"
        for a in whole.attributes
        if "" in a.values or len(set(a.values)) < len(a.values)
    ]
    undecided.append("what is counted: `counts` says 'unit'")
    return "\n".join([*head, *attributes, *parts]), undecided


def _level(level: DraftedKey, *, pointed: bool) -> str:
    more = f", column = {value_text(level.column)}" if level.column and not pointed else ""
    return (
        f"{{ name = {value_text(level.name)}{more}{f', prefix = {level.prefix}' if level.prefix else ''} }}"
    )


def _by_law(entry: DraftedTable) -> list[DraftedTable]:
    """Split an entry into one for the total and one for its parts if only the parts are rounded."""
    parts = [c for c in entry.cells if c[1]]
    if not parts or len(parts) == len(entry.cells) or rounding_base(entry) is not None:
        return [entry]
    groups = ([c for c in entry.cells if not c[1]], parts)
    rounded, total = _among(entry, parts), _among(entry, groups[0])
    return [total, rounded] if rounding_base(rounded) is not None else [entry]


def _among(entry: DraftedTable, cells: list[tuple[SeenColumn, dict[str, str]]]) -> DraftedTable:
    return replace(entry, cells=cells, seen=entry.seen._replace(values=[column for column, _ in cells]))


def _entry_names(entries: list[DraftedTable]) -> list[str]:
    names = [label_of(entry.seen) for entry in entries]
    return [name if names.count(name) == 1 else f"{name} {k + 1}" for k, name in enumerate(names)]


def _entry(
    entry: DraftedTable, name: str, told: set[int], values: Mapping[str, set[str]], undecided: list[str]
) -> str:
    seen = entry.seen
    if seen.headless and seen.label is None:
        undecided.append(f"'{seen.file}' has no header: columns are named by their positions")
    lines = ["[[published]]"]
    lines += _settings(name=name, file=seen.file, level=entry.level, sheet=seen.sheet, skip=seen.skip)
    lines += _settings(below=None if seen.skip is None else seen.below, header=0 if seen.headless else None)
    lines += _settings(only=seen.only, constant=seen.constant)
    lines += _settings(columns=entry.columns, attributes=entry.attributes)
    if entry.cells:
        cells = [
            f"  {{ count = {value_text(c.name)}{f', where = {inline_table(where)}' if where else ''}{_variance_key(seen, c)} }},"
            for c, where in entry.cells
        ]
        lines += ["cell = [", *cells, "]"]
    lines += _settings(
        count=None if entry.cells else seen.values[0].name,
        total=entry.totals,
        variance=seen.variance.name if seen.variance and not entry.cells else None,
        headings=bool(seen.groups),
        error=seen.error if seen.errors and seen.error != "variance" else None,
        fill=entry.fill,
        ragged=entry.ragged,
        decimal=_decimal(entry, undecided),
    )
    if (unit := unit_of(seen)) > 1:
        lines.append(f"unit = {unit}")
        undecided.append(f"'{seen.file}': its values are thousands, by its words; if not, take `unit` out")
    law = suggested_law(entry, told, undecided)
    lines.append(f"law = {law}")
    lines += _settings(codes=_codes(entry, law, undecided), unlisted=_unlisted(entry, values, undecided))
    return "\n".join([*lines, ""])


def _settings(**given: Any) -> list[str]:
    """Return the lines of an entry for all settings that are numbers, true or not empty."""
    said = {name: value for name, value in given.items() if value or type(value) is int}
    return [
        f"{name} = {inline_table(value) if isinstance(value, Mapping) else value_text(value)}"
        for name, value in said.items()
    ]


def _variance_key(seen: SeenTable, column: SeenColumn) -> str:
    """Return the spec's setting that names the column of variances for a column of values."""
    common = seen.variance.name if seen.variance else None
    beside = seen.errors[column.name].name if column.name in seen.errors else common
    return f", variance = {value_text(beside)}" if beside else ""


def _unlisted(entry: DraftedTable, values: Mapping[str, set[str]], undecided: list[str]) -> str | None:
    """Return what the spec says of cells that have no row or column, or None if all have."""
    seen = entry.seen
    if seen.constant or entry.partial:
        return UNKNOWN
    named = {
        name: {where.get(name) for _, where in entry.cells} for _, where in entry.cells for name in where
    }
    lacks = any(values[name] - held for name, held in named.items())
    lacks |= any(values[name] - {*column.held} for name, column in zip(entry.attributes, seen.attributes))
    if seen.attributes and not lacks:
        texts = [column.texts for column in (*seen.places, *seen.attributes)]
        keys = list(zip(*(carried_keys(texts) if entry.fill else texts)))
        every = 1
        for column in (*seen.places[-1:], *seen.attributes):
            every *= len(set(column.held))
        of_parts = {key for key in keys if all(key[len(seen.places[:-1]) :])}  # blanks stand for totals
        if lacks := len(of_parts) < every:
            undecided.append(
                f"'{seen.file}' has no row for some of its places and values: their counts are taken as unknown; places without "
                "any row are not known of: if there are some, list all places in a file, and name it by --geography"
            )
    return UNKNOWN if lacks else None


def _texts(columns: list[SeenColumn]) -> list[str]:
    return [text for column in columns for text in column.texts]


def _codes(entry: DraftedTable, law: str, undecided: list[str]) -> dict[str, str]:
    """Return the codes of a table, with their meanings from the file's notes."""
    seen = entry.seen
    every = _texts([*seen.values, *seen.left])
    texts = dict.fromkeys(t for t in every if not is_number(without_mark(t)) or read_interval(t) is not None)
    times = Counter(_texts(seen.values))
    zeros = "0" in every
    codes = {}
    for code in texts:
        said = said_of(code, seen.titles)
        shown = f"'{code}'" if code else "an empty cell"
        often = f"{times[code]:,} time{'s' * (times[code] > 1)}" if times[code] else "in columns left out"
        noted = f'; the file says: "{said}"' if said else ""
        if (range_ := read_interval(code)) is not None:
            told = meaning_of(said or "", zeros=False)
            codes |= {code: told} if told[:1].isdigit() else {}
            taken = (
                f'it is taken as "{told}"' if code in codes else _range_taken(code, range_, law, zeros=zeros)
            )
        else:
            ways = [meaning_of(words, zeros=zeros) for words in (code, said or "")]
            codes[code] = next((way for way in ways if way != UNKNOWN), UNKNOWN)
            taken = f'it is taken as "{codes[code]}"'
            if "-" in codes[code] or "<" in codes[code]:
                taken += f"; if it also hides larger counts that would give small ones away, write {_code(code, UNKNOWN)}"
            if codes[code] == UNKNOWN:
                taken += ', and needs a range such as "1-4" where no published sum holds its cells'
                taken += _of_whole_places(code, seen)
        undecided.append(f"'{seen.file}': what {shown} says ({often}){noted}; {taken}")
    for mark in dict.fromkeys(t for t in _texts([*seen.errors.values()]) if t and not is_number(t)):
        codes[mark] = "0" if _CONTROLLED.fullmatch(mark) else codes.get(mark, UNKNOWN)
        taken = (
            "is exact"
            if codes[mark] == "0"
            else 'says nothing; where it is exact, write "0" in the place of "unknown"'
        )
        undecided.append(
            f"'{seen.file}': what '{mark}' says in the place of an error; it is taken to say that the value {taken}"
        )
    return codes


def _of_whole_places(code: str, seen: SeenTable) -> str:
    """Return a note if a code fills all cells of some places and of no others; otherwise an empty text."""
    texts: dict[str, set[str]] = {}
    for column in seen.values if seen.places and code and not any(map(str.isdigit, code)) else ():
        for place, text in zip(seen.places[-1].texts, column.texts):
            texts.setdefault(place, set()).add(text)
    places = [place for place, held in texts.items() if code in held]
    if not places or any(texts[place] != {code} for place in places):
        return ""
    shown = counted_names([f"'{place}'" for place in places])
    told = f"; it fills the rows of {shown} and no others: if nothing was counted there, and no total holds it, write "
    return told + _code(code, "0")


def _range_taken(code: str, counts: CountInterval, law: str, *, zeros: bool) -> str:
    """Return a note on how a code that states a range is read, and how to declare another meaning."""
    low, high = counts.low, counts.high
    if "gaussian" in law or "laplace" in law:
        return f"it is taken for a range of the noisy number; if it is of the true count, write {_code(code, code)}"
    taken = "it is taken for a range of the true count"
    base = re.search(r"base = (\d+)", law)
    told = zeros and (
        "exact" in law or (base and int(base[1]) <= (high or 0) + 1)
    )  # no larger count gives a 0
    if not low and high:
        more = f"; if zeros are shown, write {_code(code, f'1-{high}')}"
        taken += ", from 1 on, as zeros are shown" if told else more
    if "exact" in law:
        return taken
    return f"{taken}; if it is of the published number, write {_code(code, f'published {code}')}"


def _code(code: str, meaning: str) -> str:
    return f"codes = {inline_table({code: meaning})}"


def _decimal(entry: DraftedTable, undecided: list[str]) -> str | None:
    """Return the decimal sign if the numbers of a table leave it open, else None."""
    columns = entry.seen.values
    held = [text for column in columns for text in column.held]
    texts = [text for text in map(without_mark, held) if is_number(text)]
    ways = [{text: read_number(text, by) for text in texts} for by in (ENGLISH, CONTINENTAL)]
    differ = next((text for text in texts if ways[0][text] != ways[1][text]), None)
    if differ is None or any(None in way.values() for way in ways):
        return None
    pointed, comma = (way[differ] for way in ways)
    english = columns[0].point or pointed == int(pointed or 0)
    sign, kept, other = (".", pointed, comma) if english else (",", comma, pointed)
    if not columns[0].point or pointed != int(pointed or 0):
        undecided.append(
            f"'{entry.seen.file}': whether '{differ}' is {kept} or {other}; it is taken for {kept}"
        )
    return sign
