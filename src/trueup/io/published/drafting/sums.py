"""Columns and rows of a table that are sums of others, by their numbers and within rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.io.published.drafting.roles import SeenColumn, SeenTable
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, read_number
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements


def column_numbers(column: SeenColumn) -> list[float | None]:
    """Return the numbers of a column in the convention that reads most of them, whole if possible; None for others."""
    ways = []
    for by in (ENGLISH, CONTINENTAL):
        read = [read_number(text, by) for text in column.texts]
        if sum(x is not None for x in read) * 2 >= len(column.held):
            ways.append([None if x is None else float(x) for x in read])
    if len(ways) < 2 or (column.point and ways[0].count(None) <= ways[1].count(None)):
        return ways[0] if ways else [None for _ in column.texts]
    return min(ways, key=lambda way: (way.count(None), not all(x is None or x == int(x) for x in way)))


def _adds_up(parts: Sequence[SeenColumn], total: SeenColumn) -> bool:
    rows = zip(column_numbers(total), *(column_numbers(part) for part in parts))
    whole = [(t, x) for t, *x in rows if t is not None and None not in x]
    near = [abs(t - sum(x)) <= 3 + 5 * len(x) ** 0.5 + 0.02 * abs(t) for t, x in whole]  # pyright: ignore
    large = [t for t, _ in whole if t > 0]
    return bool(large) and sum(near) >= 0.8 * len(near)


def sums_exclude(measured: Measurements, law: str) -> bool:
    """Return True if no counts that a law allows for parts sum to one that it allows for their total."""
    cells, ends = measured.cells, {}
    for header, values in zip(measured.headers, measured.values):
        if header.law.name == law and header.groups is None:
            ends[canonical(cells, header.margin)] = [
                np.asarray(end, float) for end in header.law.bounds(values)
            ]
    for total, (low, high) in ends.items():
        for parts, (least, most) in ends.items():
            if parts != total and cells.contains(total, parts):
                group = cells.groups(parts, total)
                sums = [np.bincount(group, end, len(low)) for end in (least, most)]
                if ((sums[0] > high) | (sums[1] < low)).any():
                    return True
    return False


def summing(table: SeenTable) -> SeenColumn | None:
    """Return the first or last column if the others sum to it, else None."""
    ends = (table.values[0], table.values[-1])
    return next(
        (c for c in ends if len(table.values) > 2 and _adds_up([o for o in table.values if o is not c], c)),
        None,
    )


def summed_groups(columns: list[SeenColumn], total: SeenColumn) -> list[list[SeenColumn]]:
    """Return runs of neighbouring columns that each sum to the total; all in one if there are no such runs."""
    groups, run = [], []
    for column in columns:
        run.append(column)
        if len(run) > 1 and _adds_up(run, total):
            groups.append(run)
            run = []
    return [columns] if run or not groups else groups


def summing_place(name: str, column: SeenColumn, table: SeenTable, undecided: list[str]) -> dict[str, str]:
    """Return the first or last place as the total if the others sum to it in every column of values."""
    for place in dict.fromkeys((column.held[0], column.held[-1])):
        sums = [_by_place(column, value, place) for value in table.values]
        near = all(
            own >= 30 and abs(own - rest) <= min(3 + 5 * n**0.5, 3 + 0.02 * own) for own, rest, n in sums
        )
        if len(set(column.held)) > 3 and near:
            undecided.append(
                f"'{table.file}': '{place}' is near the sum of the other places and is taken for their whole; "
                "if it is one beside them, leave its `total` out"
            )
            return {name: place}
    return {}


def _by_place(column: SeenColumn, value: SeenColumn, place: str) -> tuple[float, float, int]:
    """Return the sum of a column's values at one place and at all others (NaN if one is missing), and their number."""
    pairs = [(text, np.nan if x is None else x) for text, x in zip(column.texts, column_numbers(value))]
    own = sum(x for text, x in pairs if text == place)
    return own, sum(x for text, x in pairs if text != place), len(pairs)


def sums_of_rows_below(columns: Sequence[Sequence[float | None]]) -> list[int]:
    """Return rows near the sum of two or more rows below, if the whole table falls into at least two such groups.

    Examples
    --------
    >>> sums_of_rows_below([[63.0, 33.0, 30.0, 36.0, 15.0, 18.0]]), sums_of_rows_below([[63.0, 33.0, 30.0]])
    ([0, 3], [])
    """
    rows, found, at = list(zip(*columns)), [], 0
    while at < len(rows):
        for size in range(2, len(rows) - at):
            sums = [[x for x in column[at : at + size + 1] if x is not None] for column in columns]
            if all(len(own) == size + 1 and abs(own[0] - sum(own[1:])) <= 2 * size + 2 for own in sums):
                break
        else:
            return []
        found.append(at)
        at += size + 1
    return found if len(found) > 1 else []
