"""Places in rows below the place that holds them: by indents of their names, by their codes, or by their numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.codes import are_levels, parents_by_codes
from trueup.io.published.drafting.keys import Pointers
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import base_of, column_numbers
from trueup.io.published.drafting.wholes import ends_of, summing_value
from trueup.model.perturbed import parse_perturbed
from trueup.model.tree import Tree

_INDENT = re.compile(r"[\s.>·•–-]*")
WHOLE = "all"
"""The place above places that are not indented, where there are several."""
PARENT = "part of"


def indent_of(text: str) -> str:
    """Return what stands before a name.

    Examples
    --------
    >>> [indent_of(text) for text in ("  Wales", ">> Bezirk", "......0001 Aeugst", "North")]
    ['  ', '>> ', '......', '']
    """
    found = _INDENT.match(text)
    return found[0] if found else ""


def parents_of(names: Sequence[str], indents: Sequence[str]) -> list[str]:
    """Return the place above each: the last one before it that is less indented; empty for the first of all.

    Blanks count by their number, marks by the order in which they first stand.

    Examples
    --------
    >>> parents_of(["UK", "Wales", "Cardiff", "Kent"], ["", " ", "  ", " "])
    ['', 'UK', 'Wales', 'UK']
    """
    kinds = list(dict.fromkeys(indents))
    blank = not any(indent.strip() for indent in kinds)
    depths = [len(indent) if blank else kinds.index(indent) for indent in indents]
    above: list[tuple[int, str]] = []
    result = []
    for name, depth in zip(names, depths):
        while above and above[-1][0] >= depth:
            above.pop()
        result.append(above[-1][1] if above else "")
        above.append((depth, name))
    return result


def indented_places(table: SeenTable) -> tuple[Pointers, list[tuple[str, str]]] | None:
    """Return pointers and the list of places of a table whose rows stand for each other's sums.

    Places lie in others by indents of names, by codes that begin with codes, or by numbers; most have to be near the sums of
    their parts.
    """
    if len(table.places) != 1 or table.constant:
        return None
    names, columns, indents = _by_place(table)
    if len(set(names)) < len(names) or "" in names or WHOLE in names or not columns:
        return None
    ways: list[list[str]] = []
    if len(set(indents)) > 1:
        ways.append(parents_of(names, indents))
    elif are_levels(names):
        return None  # of one column
    elif not any(" " in name for name in names):
        ways.append(parents_by_codes(names))
    ways.append([names[at] if at >= 0 else "" for at in parents_by_sums(columns, table.titles)])
    if table.groups and not set(table.groups) & set(names):
        ways.append(["" if TOTAL.fullmatch(name) else group for name, group in zip(names, table.groups)])
    parents = next(
        (way for way in ways if len({*way} - {""}) > 1 and _mostly_sums(names, way, columns)), None
    )
    if parents is None:
        return None
    roots = [name for name, parent in zip(names, parents) if not parent]
    if len(roots) > 1 and (whole := _whole_among(roots, table)):
        parents = [parent or whole * (name != whole) for name, parent in zip(names, parents)]
    above = [group for group in dict.fromkeys(parents) if group and group not in names]
    names, parents = [*names, *above], [*parents, *[""] * len(above)]
    rows = list(zip(names, parents))
    if parents.count("") > 1:
        rows = [(WHOLE, ""), *((name, parent or WHOLE) for name, parent in rows)]
    depth = len(Tree.from_parents(*zip(*rows)).levels)
    return Pointers(table.places[0].name, PARENT, frozenset(name for name, _ in rows), depth), rows


def _by_place(table: SeenTable) -> tuple[list[str], list[SeenColumn], list[str]]:
    """Return the places of a table, a column of values for each combination of attributes that all have, and their indents."""
    places, others = table.places[0].texts, list(zip(*(column.texts for column in table.attributes)))
    if not others:
        return places, table.values, [*table.indents]
    names = list(dict.fromkeys(places))
    rows = {key: at for at, key in enumerate(zip(places, others))}
    shared = [other for other in dict.fromkeys(others) if all((name, other) in rows for name in names)]
    columns = [
        column._replace(texts=[column.texts[rows[name, other]] for name in names])
        for other in shared
        for column in table.values
    ]
    indents = dict(zip(reversed(places), reversed(table.indents)))
    return names, columns, [indents[name] for name in names] if indents else []


def parents_by_sums(columns: Sequence[SeenColumn], titles: str) -> list[int]:
    """Return the row above that holds the sums of the rows below it, or the one below of those above it; -1 for the others.

    The rows that hold no sum have to lie in some that do, all of them.
    """
    rows = [np.array(ends) for ends in zip(*(ends_of(column, titles) for column in columns))]
    known = [low for ends in rows for low, high in ends if low == high]
    base = base_of(known, titles.casefold()) or 1
    for order in (range(len(rows) - 1, -1, -1), range(len(rows))):
        parents, tops = _heaped(rows, order, base)
        if len(set(parents.values())) > 1 and set(tops) <= set(parents.values()):
            return [parents.get(at, -1) for at in range(len(rows))]
    return [-1] * len(rows)


def _heaped(rows: Sequence[NDArray], order: Iterable[int], base: int) -> tuple[dict[int, int], list[int]]:
    """Return the row that holds the sums of the last rows before it, for each of these, and the rows that are in none."""
    parents: dict[int, int] = {}
    heap: list[int] = []
    for at in order:
        own, sums, parts = rows[at], np.zeros_like(rows[at]), 0
        for size, other in enumerate(reversed(heap), 1):
            sums = sums + rows[other]
            by_base = min((size + 1) * (base - 1), 2 * base * (size + 1) ** 0.5)
            off = by_base if base > 1 else np.clip(0.05 * own[:, 0], 1, 2 * size + 2)
            if (sums[:, 0] > own[:, 1] + off).any():
                break
            open_ = sums[:, 1] - sums[:, 0] + own[:, 1] - own[:, 0]
            told = (open_ <= 3 + 0.25 * own[:, 0]).any() and own[:, 0].sum() >= 10
            if size > 1 and told and (own[:, 0] <= sums[:, 1] + off).all():
                parts = size
        if parts:
            parents |= dict.fromkeys(heap[-parts:], at)
            del heap[-parts:]
        heap.append(at)
    return parents, heap


def write_indented_places(path: Path, spec: str, places: Sequence[tuple[str, str]]) -> Path:
    """Write a list of places, each with the one above, under the names that a spec gives these columns; return the path."""
    columns = parse_perturbed(spec).parents
    assert columns is not None
    with path.open("x", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([(columns.id, columns.parent), *places])
    return path


def _whole_among(roots: Sequence[str], table: SeenTable) -> str:
    """Return the one of the places in no other that holds the others, by its name or its numbers; empty if there is none."""
    if named := [name for name in roots if TOTAL.fullmatch(name)]:
        return named[0]
    among = [name if name in roots else "" for name in table.places[0].texts]
    summed = summing_value(table.places[0]._replace(texts=among), table._replace(places=[]))
    return summed.value if summed is not None and not summed.differs else ""


def _mostly_sums(names: Sequence[str], parents: Sequence[str], columns: Sequence[SeenColumn]) -> bool:
    """Return True if four of five known numbers of places with parts are near the sums of these."""
    near = known = 0
    for column in columns:
        numbers: dict[str, float | None] = dict(zip(names, column_numbers(column)))
        for name in dict.fromkeys(filter(None, parents)):
            parts = [numbers[part] for part, parent in zip(names, parents) if parent == name]
            own = numbers.get(name)
            if own is not None and None not in parts:
                known += 1
                near += abs(own - sum(parts)) <= 3 + 5 * len(parts) ** 0.5 + 0.02 * abs(own)  # pyright: ignore
    return (known > 0 or not set(parents) & set(names)) and 5 * near >= 4 * known
