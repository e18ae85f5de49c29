"""Value columns of a wide table, with the attribute values that their names state."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress, pairwise
from operator import not_

from trueup.io.published.drafting.agreement import are_of_one_whole, summed_groups, summing
from trueup.io.published.drafting.keys import DraftedKey, attribute_of, spec_value
from trueup.io.published.drafting.names import OF_WHICH, name_of, overlapping
from trueup.io.published.drafting.seen import TOTAL, YEAR, SeenColumn, SeenTable, counted_names
from trueup.io.published.drafting.subtotals import (
    columns_apart,
    said_of_larger,
    said_of_sums,
    summed_columns,
)
from trueup.io.published.drafting.sums import column_numbers

_CODE = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[\w.-]+")
_OVER = "take WHOLE out of `where` in all cells of its entry"
"""Remedy if one value of columns includes another."""
_OTHERS = ("other", "all others", "rest")
Cell = tuple[SeenColumn, dict[str, str]]


def attribute_cells(table: SeenTable, attributes: list[DraftedKey], undecided: list[str]) -> Iterator[Cell]:
    """Yield each value column with its attribute values, and add new attributes to the draft."""
    paths = _telling_paths([column.path for column in table.values])
    columns = [c._replace(path=path) for c, path in zip(table.values, _parted(paths))]
    if (grid := _grid(columns)) is not None:
        yield from _grid_cells(table, columns, grid, attributes, undecided)
        return
    total = _named_total(columns) or summing(columns, table.titles)
    among = columns[0] if total is None and all(map(_is_of_which, columns[1:])) else None
    total = total or among
    if among is not None:
        undecided += [
            f"'{table.file}': '{b.name}' may be a part of '{a.name}' or one beside it, which is how it is taken; if it is a part "
            "of it, take it out of `cell` and of `values`"
            for a, b in pairwise(columns[1:])
            if _lies_below(b, a)
        ]
    if total is not None:
        yield total, {}
    rest = [c for c in columns if c is not total]
    if 1 < sum(plain := [not _is_of_which(c) for c in rest]) < len(rest):
        undecided += [
            f"'{table.file}': column '{c.name}' is a part of the columns beside it, by its name, and is left out"
            for c in compress(rest, map(not_, plain))
        ]
        rest = [*compress(rest, plain)]
    if twice := overlapping([c.path[-1] for c in rest]):
        undecided.append(
            f"'{table.file}': the ages {', '.join(twice)} hold others or lie in them, and are left out"
        )
        rest = [c for c in rest if c.path[-1] not in twice]
    summed = summed_columns(rest, [c.name for c in rest], table)
    undecided += [f"'{table.file}': {said}" for said in said_of_sums(summed)]
    if total is None and summed.whole:
        total = next(c for c in rest if c.name == summed.whole)
        yield total, {}
    undecided += [f"'{table.file}': {said}" for said in said_of_larger(summed, _OVER) if total is None]
    rest = [c for c in rest if c.name not in summed.inner and c is not total]
    for group in _attribute_groups(rest, total, table):
        drawn = attribute_of(attributes, _group_name(group), [c.path[-1] for c in group])
        if among is not None:
            own = {c.path[-1] for c in group}
            drawn.values += [next(n for n in _OTHERS if n not in own)] * (
                not {*_OTHERS} & {*drawn.values} - own
            )
        _say_unnamed(table, [drawn], undecided)
        if total is None and drawn.name.startswith("category") and not summed.larger:
            undecided += _said_of_parts(table, group)
        for column in group:
            yield column, {drawn.name: spec_value(drawn, column.path[-1])}


def _grid_cells(
    table: SeenTable,
    columns: list[SeenColumn],
    grid: list[list[str]],
    attributes: list[DraftedKey],
    undecided: list[str],
) -> Iterator[Cell]:
    """Yield the value columns whose names combine two attributes, with their attribute values."""
    found = [
        summed_columns(among, [c.path[end] for c in among], table)
        for end, values in enumerate(grid)
        if (among := [c for c in columns if len(c.path) == 2 and c.path[end] in values])
    ]
    grid = [
        [value for value in values if value != summed.whole and value not in summed.inner]
        for values, summed in zip(grid, found)
    ]
    undecided += [f"'{table.file}': {said}" for summed in found for said in said_of_sums(summed)]
    undecided += [
        f"'{table.file}': {said}"
        for end, summed in enumerate(found)
        if not any(TOTAL.fullmatch(c.path[-end]) for c in columns)
        for said in said_of_larger(summed, _OVER)
    ]
    drawn = [attribute_of(attributes, name_of(values), values) for values in grid]
    _say_unnamed(table, drawn, undecided)
    for column in columns:
        if not any(name in summed.inner for name, summed in zip(column.path, found)):
            yield column, _where(column, grid, drawn)


def _named_total(columns: list[SeenColumn]) -> SeenColumn | None:
    """Return the value column that the header names as the total, or None."""
    whole = [[TOTAL.fullmatch(name) is not None for name in c.path] for c in columns]
    return next(
        (
            c
            for way in (all, lambda told: told[-1] or told[0])
            for c, told in zip(columns, whole)
            if way(told)
        ),
        None,
    )


def _lies_below(part: SeenColumn, whole: SeenColumn) -> bool:
    """Return True if no number of one column exceeds the number of another in the same row."""
    pairs = _in_both(part, whole)
    return bool(pairs) and all(a <= b for a, b in pairs)


def _in_both(one: SeenColumn, other: SeenColumn) -> list[tuple[float, float]]:
    """Return the numbers of two columns in the rows in which both hold one."""
    pairs = zip(column_numbers(one), column_numbers(other))
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _parted(paths: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return column names split into the values of two attributes, if every combination has a column.

    Examples
    --------
    >>> _parted([("m_young",), ("m_old",), ("f_young",), ("f_old",), ("total",)])
    [('m', 'young'), ('m', 'old'), ('f', 'young'), ('f', 'old'), ('total',)]
    """
    if len(paths) < 4 or any(len(path) > 1 for path in paths):
        return paths
    is_total = TOTAL.fullmatch
    for sign in (" / ", " - ", ", ", "; ", ": ", "|", "_", " ", "-"):
        words = [path[0].split(sign) for path in paths]
        for at in (1, -1, 2, -2, 3, -3):
            ways = [(sign.join(each[:at]).strip(), sign.join(each[at:]).strip()) for each in words]
            heads = {
                way[0] for way, path in zip(ways, paths) if not is_total(path[0])
            }  # "Men, total" is of men
            split = [
                all(way) and (is_total(way[0]) or way[0] in heads or not is_total(path[0]))
                for way, path in zip(ways, paths)
            ]
            found = [way if apart else path for apart, way, path in zip(split, ways, paths)]
            if _grid([SeenColumn("", path, []) for path in found]) is not None:
                return found
    return paths


def _telling_paths(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the header names of each column, without those that all columns share.

    Examples
    --------
    >>> _telling_paths([("2022", "Men", "number"), ("2022", "Women", "number")])
    [('Men',), ('Women',)]
    >>> _telling_paths([("B01_001E", "Total"), ("B01_002E", "Total", "Male")])
    [('Total',), ('Male',)]
    >>> crossed = [("Head", sex, source) for sex in ("Men", "Women") for source in ("Tap", "Well")]
    >>> _telling_paths([("Total", "Number"), *crossed])[1:]
    [('Men', 'Tap'), ('Men', 'Well'), ('Women', 'Tap'), ('Women', 'Well')]
    """
    below = [path[1:] for path in paths]
    if all(below) and len(set(below)) == len(paths) and all(_CODE.fullmatch(path[0]) for path in paths):
        paths = below
    deep = [set(path) for path in paths if len(path) > 1]
    most = deep if 2 * len(deep) > len(paths) else [set(path) for path in paths]
    shared = set.intersection(*most) if len(paths) > 1 else set()
    told = [_without(path, shared) for path in paths]
    deepest = [set(path) for path in told if len(path) == max(3, *map(len, told))]
    if 2 * len(deepest) > len(told):  # all but a total lie below one name, and cross below it
        crossed = [_without(path, set.intersection(*deepest)) for path in told]
        told = told if _grid([SeenColumn("", path, []) for path in crossed]) is None else crossed
    return told


def _without(path: tuple[str, ...], shared: set[str]) -> tuple[str, ...]:
    return tuple(name for name in path if name not in shared) or path[-1:]


def _grid(columns: Sequence[SeenColumn]) -> list[list[str]] | None:
    """Return the values of the two attributes that cross in the column names, or None."""
    pairs = [c.path for c in columns if len(c.path) == 2]
    times = Counter(path[0] for path in pairs)
    pairs = [path for path in pairs if times[path[0]] > 1 or not TOTAL.fullmatch(path[0])]  # "All / awards"
    upper = list(dict.fromkeys(path[0] for path in pairs))
    lower = [[p[1] for p in pairs if p[0] == name and not TOTAL.fullmatch(p[1])] for name in upper]
    alone = [c.path for c in columns if c.path not in pairs]
    beside = all(TOTAL.fullmatch(path[0]) or (len(path) == 1 and path[0] in upper) for path in alone)
    if len(upper) < 2 or any(names != lower[0] for names in lower) or not beside:
        return None
    values = [[name for name in names if not TOTAL.fullmatch(name)] for names in (upper, lower[0])]
    return values if all(len(names) > 1 for names in values) else None


def _where(column: SeenColumn, grid: Sequence[Sequence[str]], drawn: Sequence[DraftedKey]) -> dict[str, str]:
    """Return the attribute values of a column whose name combines two attributes."""
    return {
        each.name: spec_value(each, name)
        for name, values, each in zip(column.path, grid, drawn)
        if name in values
    }


def _is_of_which(column: SeenColumn) -> bool:
    return OF_WHICH.match(column.path[-1].casefold()) is not None


def _attribute_groups(
    rest: Sequence[SeenColumn], total: SeenColumn | None, table: SeenTable
) -> list[list[SeenColumn]]:
    """Return the value columns grouped by attribute, judged by the header or by sums."""
    upper = list(dict.fromkeys(c.path[0] for c in rest if len(c.path) > 1))
    groups = [[c for c in rest if c.path[0] == name] for name in upper if len(upper) * 2 <= len(rest)]
    groups = [group for group in groups if len(group) > 1]  # above one column stands a unit or a note
    flat = [c for c in rest if not any(c in group for group in groups)]
    if len(groups) > 1 and not flat and are_of_one_whole(groups, total, table.titles):
        return [[*rest]]  # below the names of larger values
    if not flat:
        return groups
    return groups + (summed_groups(flat, total, table.titles) if total else columns_apart(flat, table))


def _group_name(group: Sequence[SeenColumn]) -> str:
    above = {c.path[0] for c in group if len(c.path) > 1}
    named = len(above) == 1 and not YEAR.fullmatch(min(above))
    return min(above) if named else name_of([c.path[-1] for c in group])


def _said_of_parts(table: SeenTable, group: Sequence[SeenColumn]) -> Iterator[str]:
    """Yield notes on columns that may be parts of the column beside them, as they are below it in most rows."""
    for a, b in pairwise(group):
        for whole, part in ((a, b), (b, a)):
            pairs = _in_both(part, whole)
            below = sum(x < y for x, y in pairs)
            if len(pairs) > 3 and 4 * below >= 3 * len(pairs) and all(x <= y for x, y in pairs):
                yield (
                    f"'{table.file}': '{part.name}' is nowhere above '{whole.name}', and is taken for one beside it; if "
                    f"'{part.name}' is a part of '{whole.name}', all is counted twice: leave it out of `cell` and of `values`"
                )


def _say_unnamed(table: SeenTable, drawn: Sequence[DraftedKey], undecided: list[str]) -> None:
    undecided += [
        f"'{table.file}': what tells the columns {counted_names(each.values)} apart; they are values of '{each.name}'"
        for each in drawn
        if each.name.startswith("category")
    ]
