"""Columns and rows of a table that are sums of others, by their numbers and within rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.io.published.drafting.seen import SeenColumn, SeenTable
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
    near = [
        t + 3 >= max(x) and abs(t - sum(x)) <= 3 + 5 * len(x) ** 0.5 + 0.02 * abs(t)  # pyright: ignore
        for t, x in whole
    ]
    totals, sums = sum(t for t, _ in whole), sum(sum(x) for _, x in whole)
    together = (
        abs(totals - sums) <= 0.25 * totals
    )  # small parts are near a sum by chance, in all rows together not
    return totals > 0 and together and sum(near) >= 0.8 * len(near)


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


def summing(columns: Sequence[SeenColumn]) -> SeenColumn | None:
    """Return the first or last column if the others sum to it, else None."""
    if len(columns) < 3:
        return None
    ends = (columns[0], columns[-1])
    return next((c for c in ends if _adds_up([o for o in columns if o is not c], c)), None)


def summed_groups(columns: list[SeenColumn], total: SeenColumn) -> list[list[SeenColumn]]:
    """Return runs of neighbouring columns that each sum to the total; all in one if there are no such runs."""
    groups, run = [], []
    for column in columns:
        run.append(column)
        if len(run) > 1 and _adds_up(run, total):
            groups.append(run)
            run = []
    return [columns] if run or not groups else groups


def summing_value(column: SeenColumn, table: SeenTable) -> str | None:
    """Return the first or last value of a column of keys whose rows hold the sums of the rows of its other values."""
    others = [key for key in (*table.places, *table.attributes) if key is not column]
    values = list(dict.fromkeys(column.held))
    if len(values) == 3 and column in table.places:  # one of three places is near the sum of two by chance
        few = [value for value in values if not value.strip("0-–")]
        return next((end for end in few if _is_sum(column, end, others, table.values, 3)), None)
    ends = dict.fromkeys((*(values[0], values[-1]), min(values), max(values))) if len(values) > 2 else ()
    return next((end for end in ends if _is_sum(column, end, others, table.values, len(values))), None)


def _is_sum(
    column: SeenColumn, end: str, others: Sequence[SeenColumn], shown: Sequence[SeenColumn], values: int
) -> bool:
    own: dict[tuple[str, ...], float] = {}
    rest: dict[tuple[str, ...], list[float]] = {}
    for value in shown:
        keys = zip(*(key.texts for key in others), [value.name] * len(value.texts))
        for key, text, x in zip(keys, column.texts, column_numbers(value)):
            x = np.nan if x is None else x
            if text == end:
                own[key] = own.get(key, 0.0) + x
            elif text:
                rest.setdefault(key, []).append(x)
    known = [
        (x, rest[key])
        for key, x in own.items()
        if key in rest and x == x and sum(rest[key]) == sum(rest[key])
    ]
    near = [abs(x - sum(parts)) <= min(3 + 5 * len(parts) ** 0.5, 3 + 0.02 * x) for x, parts in known]
    enough = len(known) >= (2 if values == 3 else 1) and 2 * len(known) >= len(own)
    return (
        enough and all(near) and all(len(parts) > 1 for _, parts in known) and sum(x for x, _ in known) >= 30
    )


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
