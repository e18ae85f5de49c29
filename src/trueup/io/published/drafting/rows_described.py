"""Rows and columns of a table that one spec can describe: those with counts of one period."""

from __future__ import annotations

from collections import Counter
from itertools import compress
from typing import NamedTuple

from trueup.io.published.drafting.kept_sums import way_to_keep
from trueup.io.published.drafting.kinds import DATED, NO_COUNTS
from trueup.io.published.drafting.names import ages_within, overlapping
from trueup.io.published.drafting.pairs import told_rows
from trueup.io.published.drafting.seen import TOTAL, YEAR, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import column_numbers


class SomeRows(NamedTuple):
    """The rows that a spec describes, selected by the texts of a column, and why others are not read."""

    column: SeenColumn
    wanted: list[str]
    why: str


def some_rows(keys: list[SeenColumn], periods: list[SeenColumn], values: list[SeenColumn]) -> SomeRows | None:
    """Return the rows that a spec describes, selected by periods or measures; None for all rows."""
    several = [column for column in periods if len(set(column.texts)) > 1]
    apart = told_rows(keys)
    for column in several if told_rows([*keys, *several]) > apart else ():
        said = list(dict.fromkeys(column.held))
        last = max(said) if all(YEAR.match(text) for text in said) else said[-1]
        why = f"rows in which '{column.name}' does not say '{last}' are left out: one spec describes one population"
        return SomeRows(column, [last], why)
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
        shown = ", ".join(column.name for column in left[:3]) + f" and {len(left) - 3} more" * (len(left) > 3)
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
