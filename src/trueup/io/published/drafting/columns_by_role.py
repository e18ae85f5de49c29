"""Roles of a table's columns by names and texts, and the rows and columns that one spec can describe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from trueup.io.published.drafting.kinds import (
    DATED,
    NO_COUNTS,
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
from trueup.io.published.drafting.names import ages_within, overlapping
from trueup.io.published.drafting.numbered import crossing_keys, holds_shares, proportional
from trueup.io.published.drafting.pairs import are_alike, distinct_keys
from trueup.io.published.drafting.seen import (
    TOTAL,
    YEAR,
    SeenColumn,
    SeenTable,
    counted_names,
    is_code,
    is_number,
)
from trueup.io.published.drafting.sums import column_numbers, way_to_keep

_VALUE = re.compile(r"(obs_?)?value|wert|valeur|valore?|waarde|observation", re.IGNORECASE)
_COUNTED = re.compile(r"(obs_?)?(count|number|numerator|n)", re.IGNORECASE)
_ANNOTATION = re.compile(r"annotation of ", re.IGNORECASE)


class Roles(NamedTuple):
    """Columns of a table by role, with the column and the kind of errors for each column of values.

    Those that are `coded` are numbers that repeat what the keys state.
    """

    keys: list[SeenColumn]
    values: list[SeenColumn]
    periods: list[SeenColumn]
    variance: SeenColumn | None
    errors: dict[str, SeenColumn]
    kind: str
    ignored: list[str]
    coded: Sequence[SeenColumn] = ()


def by_role(every: list[SeenColumn]) -> Roles:
    """Return the columns of a table sorted by role, judged by their names and texts."""
    keys, values, periods, ignored = [], [], [], []
    errors: dict[str, SeenColumn] = {}
    variance, kind = None, "variance"
    crossed = crossing_keys(every)
    codes = {t for at, c in enumerate(every) if holds_values(c, at) for t in c.held if not is_number(t)}
    why = _without_counts(every)
    counted = [column for at, column in enumerate(every) if at not in why]
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
            and (before := [c for c in every[:at] if not _ANNOTATION.match(c.name)])
            and before[-1] is values[-1]
        ):
            errors[values[-1].name], kind = column, error
        elif not values and _is_constant(every, at):
            keys.append(column)
        elif at in why:
            ignored.append(column.left_out(why[at]))
        elif marks_values(column, at):
            ignored.append(column.left_out(f"marks values ({_marks_of(held)})"))
        elif _holds_marks(column, every[at - 1 : at + 2], values) or (
            (
                holds_values(column, at)
                or (values and _holds_some(column, codes))
                or stands_among_values(every, at)
                or (at == 0 and stands_before_names(counted))
            )
            and not holds_codes(column, at, every)
        ):
            values.append(column)
        else:
            keys.append(column)
    return Roles(keys, values, periods, variance, errors, kind, ignored)


def _without_counts(every: list[SeenColumn]) -> dict[int, str]:
    """Return why columns hold no counts, by their positions."""
    why = {
        at: f"is proportional to '{other}', as shares of it are" for at, other in proportional(every).items()
    }
    for at, column in enumerate(every):
        if (at and holds_shares(column)) or (len(every) > 2 and holds_no_counts(column)):
            why[at] = "holds no counts, by its name or signs"
    return why


def _holds_some(column: SeenColumn, codes: set[str]) -> bool:
    """Return True if a column contains numbers and, otherwise, only codes in place of numbers."""
    shown = [text for text in column.held if is_number(text)]
    return 0 < len(shown) < len(column.held) and all(
        text in codes for text in column.held if not is_number(text)
    )


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
    for column in rest if distinct_keys(keys) < len(named[0].texts) else ():
        found += [column] if distinct_keys([*found, column]) > distinct_keys(found) else []
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


class SomeRows(NamedTuple):
    """The rows that a spec describes, selected by the texts of a column, and why others are not read."""

    column: SeenColumn
    wanted: list[str]
    why: str
    are_of_period: bool = False


def some_rows(keys: list[SeenColumn], periods: list[SeenColumn], values: list[SeenColumn]) -> SomeRows | None:
    """Return the rows that a spec describes, selected by periods or measures; None for all rows."""
    several = [column for column in periods if len(set(column.texts)) > 1]
    apart = distinct_keys(keys)
    for column in several if distinct_keys([*keys, *several]) > apart else ():
        said = list(dict.fromkeys(column.held))
        last = max(said) if all(YEAR.match(text) for text in said) else said[-1]
        left = [text for text in said if text != last]
        why = f"rows in which '{column.name}' does not say '{last}' are left out ({counted_names(left, 6)}): "
        why += "one spec describes one population"
        if above := [text for text in said if any(other.startswith(text) for other in said if other != text)]:
            why += f"; by their names, {counted_names(above)} may hold others"
        return SomeRows(column, [last], why, are_of_period=True)
    for column in keys:
        said = dict.fromkeys(column.held)
        ages = [text for text in said if not TOTAL.fullmatch(text)]
        if len(said) < len(column.held) and (twice := overlapping(ages)):
            why = f"rows of ages that hold others or lie in them ({', '.join(twice)}) are left out"
            return SomeRows(column, [text for text in dict.fromkeys(column.texts) if text not in twice], why)
        shares = (
            _with_fractions(column, values)
            if len(said) <= 20 and len(said) < len(column.held)
            else set[str]()
        )
        counts = [text for text in said if not NO_COUNTS.fullmatch(text) and text not in shares]
        if 0 < len(counts) < len(said) <= 20 and len(said) < len(column.held):
            shown = ", ".join(f"'{text}'" for text in said if text not in counts)
            why = f"rows in which '{column.name}' says {shown} hold no counts, and are left out"
            return SomeRows(column, counts, why)
    return None


def _with_fractions(column: SeenColumn, values: list[SeenColumn]) -> set[str]:
    """Return the values of a column whose rows have fractions, such as those of rates."""
    if len(values) != 1 or any(map(TOTAL.fullmatch, column.held)):
        return set()
    numbers = column_numbers(values[0])
    if any(x is not None and x != int(x) and not 0 <= x <= 100 for x in numbers):
        return set()  # noise
    broken, shown = Counter[str](), Counter[str]()
    for said, x in zip(column.texts, numbers):
        shown[said] += x is not None
        broken[said] += x is not None and x != int(x)
    found = {said for said, times in broken.items() if 2 * times > shown[said]}
    return found if not any(times for said, times in broken.items() if said not in found) else set()


def last_period(values: list[SeenColumn]) -> tuple[list[SeenColumn], list[SeenColumn], list[str]]:
    """Return the columns of values of the last period, those of earlier ones, and notes."""
    left: list[SeenColumn] = []
    said = []
    stems = [YEAR.sub("", column.name) for column in values]
    for stem in [stem for stem in dict.fromkeys(stems) if stems.count(stem) > 1 and stem]:
        dated = sorted((c for c, own in zip(values, stems) if own == stem), key=lambda c: c.name)
        left += dated[:-1]
    if left:
        shown = counted_names([column.name for column in left], 3)
        said.append(f"columns of earlier years are left out ({shown}): one spec describes one population")
        values = [_undated(column) for column in values if column not in left]
    for end in (0, -1):
        periods = [column.path[end] for column in values]
        if len(set(periods)) > 1 and all(map(DATED.fullmatch, periods)):
            last = max(periods) if all(map(YEAR.match, periods)) else periods[-1]
            said.append(
                f"columns of other periods than {last} are left out: one spec describes one population; a copy of it "
                "with the columns of another period describes that one, and `trueup change` compares their posteriors"
            )
            left += [column for column, period in zip(values, periods) if period != last]
            values = [column for column in values if column not in left]
    return values, left, said


def _undated(column: SeenColumn) -> SeenColumn:
    """Return a column of the last year, with the year removed from its name."""
    name = YEAR.sub("", column.path[-1]).strip(" _-–/,.()")
    return column._replace(path=(*column.path[:-1], name or column.path[-1]))


def restricted_to_rows(columns: list[SeenColumn], kept: list[bool]) -> list[SeenColumn]:
    """Return columns restricted to some rows, without columns that are empty there."""
    some = [each._replace(texts=list(compress(each.texts, kept))) for each in columns]
    return [each for each in some if each.held]


def with_only(table: SeenTable, some: SomeRows, *, filled: bool) -> SeenTable:
    """Return a table that states which rows it has, with notes on how to read the others."""
    column, wanted = some.column, some.wanted
    inner = ages_within([v for v in column.held if v not in wanted], list(dict.fromkeys(column.held)))
    ways = way_to_keep(table, column, inner) if all(inner.values()) else []
    only = {column.name: wanted[0] if len(wanted) == 1 else wanted}
    return table._replace(
        ignored=[some.why, *ways, *table.ignored], only={**only, **table.only}, fill=table.fill or filled
    )
