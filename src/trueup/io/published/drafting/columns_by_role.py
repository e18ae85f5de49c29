"""Roles of a table's columns, judged by names and texts: keys, values, periods and errors."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from trueup.io.published.drafting.kinds import (
    VARIANCE,
    error_of,
    holds_ages,
    holds_codes,
    holds_no_counts,
    holds_values,
    is_period,
    marks_values,
    stands_among_values,
    stands_before_names,
)
from trueup.io.published.drafting.numbered import crossing_keys
from trueup.io.published.drafting.pairs import are_alike, told_rows
from trueup.io.published.drafting.seen import SeenColumn, is_code, is_number

_VALUE = re.compile(r"(obs_?)?value|wert|valeur|valore?|waarde|observation", re.IGNORECASE)
_COUNTED = re.compile(r"(obs_?)?(count|number|numerator|n)", re.IGNORECASE)
_ANNOTATION = re.compile(r"annotation of ", re.IGNORECASE)


class Roles(NamedTuple):
    """Columns of a table by role, with the column and the kind of errors for each column of values."""

    keys: list[SeenColumn]
    values: list[SeenColumn]
    periods: list[SeenColumn]
    variance: SeenColumn | None
    errors: dict[str, SeenColumn]
    kind: str
    ignored: list[str]


def by_role(every: list[SeenColumn]) -> Roles:
    """Return the columns of a table sorted by role, judged by their names and texts."""
    keys, values, periods, ignored = [], [], [], []
    errors: dict[str, SeenColumn] = {}
    variance, kind = None, "variance"
    crossed = crossing_keys(every)
    codes = {t for at, c in enumerate(every) if holds_values(c, at) for t in c.held if not is_number(t)}
    for at, column in enumerate(every):
        held = column.held
        if is_period(column, every):
            periods.append(column)
        elif any(column is key for key in crossed) or holds_ages(column):
            keys.append(column)
        elif VARIANCE.fullmatch(column.name):
            variance = column
        elif at and _ANNOTATION.match(column.name):
            ignored.append(column.left_out("annotates another, by its name"))
        elif (
            (error := error_of(column))
            and values
            and (before := _not_annotations(every[:at]))
            and before[-1] is values[-1]
        ):
            errors[values[-1].name], kind = column, error
        elif not values and _is_constant(every, at):
            keys.append(column)
        elif len(every) > 2 and holds_no_counts(column):
            ignored.append(column.left_out("holds no counts, by its name or signs"))
        elif marks_values(column, at):
            ignored.append(column.left_out(f"marks values ({_marks_of(held)})"))
        elif _holds_marks(column, every[at - 1 : at + 2], values) or (
            (
                holds_values(column, at)
                or (values and _holds_some(column, codes))
                or stands_among_values(every, at)
                or stands_before_names(every, at)
            )
            and not holds_codes(column, at, every)
        ):
            values.append(column)
        else:
            keys.append(column)
    return Roles(keys, values, periods, variance, errors, kind, ignored)


def _holds_some(column: SeenColumn, codes: set[str]) -> bool:
    """Return True if a column contains numbers and, otherwise, only codes in place of numbers."""
    shown = [text for text in column.held if is_number(text)]
    return 0 < len(shown) < len(column.held) and all(
        text in codes for text in column.held if not is_number(text)
    )


def _not_annotations(columns: list[SeenColumn]) -> list[SeenColumn]:
    return [column for column in columns if not _ANNOTATION.match(column.name)]


def _is_constant(every: list[SeenColumn], at: int) -> bool:
    """Return True if a column repeats one number in all rows, such as the code of a larger place."""
    numbers = [len(set(c.texts)) > 1 for c in every[at + 1 :] if all(map(is_number, c.held))]
    words = [c for c in every[at + 1 :] if not any(map(is_number, c.held))]
    return len(set(every[at].texts)) == 1 < len(every[at].texts) - 1 and any(numbers) and bool(words)


def _marks_of(held: list[str]) -> str:
    most = Counter(held).most_common(4)
    return ", ".join(f"'{text}' {times:,} times" for text, times in most)


def one_value(
    keys: list[SeenColumn], values: list[SeenColumn]
) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Return the keys of a long table and its column of values, if a name shows which it is."""
    counted = [column for column in values if _COUNTED.fullmatch(column.name)]
    named = counted or [column for column in values if _VALUE.fullmatch(column.name)]
    if counted and not any(_VALUE.fullmatch(column.name) for column in values):
        named = []
    rest = [column for column in values if column not in named]
    if len(named) != 1:
        coded = [c for c in rest if any(len(set(k.texts)) < len(k.texts) and are_alike(k, c) for k in keys)]
        if len(coded) == len(values):
            return keys, values, []
        said = [c.left_out("numbers what another key says") for c in coded]
        return keys, [c for c in values if c not in coded], said
    found = list(keys)
    for column in rest if told_rows(keys) < len(named[0].texts) else ():
        found += [column] if told_rows([*found, column]) > told_rows(found) else []
    said = [
        c.left_out("numbers what another key says")
        if any(are_alike(key, c) for key in keys)
        else c.left_out(f"stands beside '{named[0].name}'")
        for c in rest
        if c not in found
    ]
    return found, named, said


def _holds_marks(column: SeenColumn, beside: list[SeenColumn], values: list[SeenColumn]) -> bool:
    """Return True if a column between two columns of values contains only codes such as `-`."""
    marks = "" not in column.texts and all(
        is_code(text) and not any(map(str.isalnum, text)) for text in column.texts
    )
    return marks and len(beside) == 3 and beside[0] in values and any(map(is_number, beside[2].held))
