"""Places whose names are indented below the place that holds them, by blanks or by marks such as `>>`."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from trueup.io.published.drafting.keys import Pointers
from trueup.io.published.drafting.seen import TOTAL, SeenTable
from trueup.io.published.drafting.sums import column_numbers
from trueup.io.published.drafting.wholes import summing_value
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
    """Return pointers and the list of places of a table with indented names, if most places are near the sums of their parts."""
    if len(table.places) != 1 or len(set(table.indents)) < 2 or table.attributes:
        return None
    names = table.places[0].texts
    if len(set(names)) < len(names) or "" in names or WHOLE in names:
        return None
    parents = parents_of(names, table.indents)
    roots = [name for name, parent in zip(names, parents) if not parent]
    if len(roots) > 1 and (whole := _whole_among(roots, table)):
        parents = [parent or whole * (name != whole) for name, parent in zip(names, parents)]
    if not _mostly_sums(names, parents, table):
        return None
    rows = list(zip(names, parents))
    if parents.count("") > 1:
        rows = [(WHOLE, ""), *((name, parent or WHOLE) for name, parent in rows)]
    depth = len(Tree.from_parents(*zip(*rows)).levels)
    return Pointers(table.places[0].name, PARENT, frozenset(name for name, _ in rows), depth), rows


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


def _mostly_sums(names: Sequence[str], parents: Sequence[str], table: SeenTable) -> bool:
    """Return True if four of five known numbers of places with parts are near the sums of these."""
    near = known = 0
    for column in table.values:
        numbers = dict(zip(names, column_numbers(column)))
        for name in dict.fromkeys(filter(None, parents)):
            parts = [numbers[part] for part, parent in zip(names, parents) if parent == name]
            own = numbers[name]
            if own is not None and None not in parts:
                known += 1
                near += abs(own - sum(parts)) <= 3 + 5 * len(parts) ** 0.5 + 0.02 * abs(own)  # pyright: ignore
    return known > 0 and 5 * near >= 4 * known
