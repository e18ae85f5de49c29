"""Places above the places in one column of keys: the forms of keys propose them, and published sums decide."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trueup.io.published.drafting.agreement import RowNumbers, agreeing, agreement_with_sums, row_numbers
from trueup.io.published.drafting.codes import are_levels
from trueup.io.published.drafting.keys import Pointers
from trueup.io.published.drafting.proposals import by_codes, by_sums, proposed
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.io.published.drafting.wholes import summing_value, whole_keys
from trueup.model.perturbed import parse_perturbed
from trueup.model.tree import Tree

WHOLE = "all"
"""The place above places in no other, where there are several."""
PARENT = "part of"


class PlacesAbove(NamedTuple):
    """A table whose places stand in one column, and for each of them the place above."""

    table: SeenTable
    pointers: Pointers
    rows: list[tuple[str, str]]


def places_above(table: SeenTable) -> PlacesAbove | None:
    """Return the place above each place of a table whose rows hold sums of each other; None if nothing tells it."""
    table = _with_zeros(table)
    if not table.places or table.constant or "" in table.places[-1].texts:
        return None
    names, columns, first = _by_place(table)
    if len(set(names)) < len(names) or len(names) < 3 or WHOLE in names or not columns:
        return None
    numbers = row_numbers(table, columns)
    beside = [
        key._replace(texts=[key.texts[row] for row in first])
        for key in table.keys
        if key.name != table.places[-1].name
    ]
    whole = whole_keys(table).values() if len(table.places) == 1 else ()
    coded = len(table.places) == 1 and are_levels([name for name in names if name not in whole])
    named = [row for row, name in enumerate(names) if TOTAL.fullmatch(name)]
    ways = [*proposed(names, beside, table.indents), *by_sums(numbers)]
    ways += _below_named(numbers, named[0]) if len(named) == 1 and named[0] in (0, len(names) - 1) else ()
    best = _best(ways, numbers)
    ours = agreeing(numbers, by_codes(names))[0] + len(whole) if coded else -1
    if best is not None and agreeing(numbers, best)[0] > ours:
        return _pointed(table, names, [names[parent] if parent >= 0 else "" for parent in best])
    if coded or len(table.places) > 1 or not table.groups or set(table.groups) & set(names):
        return None
    groups = [table.groups[row] for row in first]
    return _pointed(
        table, names, ["" if TOTAL.fullmatch(name) else group for name, group in zip(names, groups)]
    )


def _with_zeros(table: SeenTable) -> SeenTable:
    """Return a table whose place of all has its code of zeros again: other codes may end in zeros above others, too."""
    if not table.places or not (zeros := table.places[-1].blank):
        return table
    place = table.places[-1]
    whole = place._replace(texts=[text or zeros for text in place.texts], blank="")
    keys = tuple(whole if key.name == place.name else key for key in table.keys)
    return table._replace(places=[*table.places[:-1], whole], keys=keys)


def _below_named(numbers: RowNumbers, whole: int) -> Iterator[list[int]]:
    """Yield the parents by sums of the rows without a named total at an end, in which all others lie."""
    kept = [row for row in range(len(numbers.ends)) if row != whole]
    for way in by_sums(numbers._replace(ends=numbers.ends[kept])):
        parents = [whole] * len(numbers.ends)
        parents[whole] = -1
        for row, parent in zip(kept, way):
            parents[row] = kept[parent] if parent >= 0 else whole
        yield parents


def _best(ways: Sequence[list[int]], numbers: RowNumbers) -> list[int] | None:
    """Return the proposal that most sums confirm, four of five at least, of several places above others."""
    best, most = None, (0, 0, 0, 0.0)
    many = numbers.ends.shape[1] > 5
    for way in ways:
        held, against, open_, off = agreeing(numbers, way)
        enough = held >= 4 * against or (held >= 2 * against and 30 * off <= 1)
        alone = many and open_ and not against and 50 * off <= 1  # hidden parts leave the others open
        if enough and (held > 1 or alone) and (score := (held, -against, -open_, -off)) > most:
            best, most = way, score
    return best


def _pointed(table: SeenTable, names: list[str], parents: list[str]) -> PlacesAbove:
    above = [group for group in dict.fromkeys(parents) if group and group not in names]
    names, parents = [*names, *above], [*parents, *[""] * len(above)]
    roots = [name for name, parent in zip(names, parents) if not parent]
    if len(roots) > 1 and (whole := _whole_among(roots, table)):
        parents = [parent or whole * (name != whole) for name, parent in zip(names, parents)]
    rows = list(zip(names, parents))
    if parents.count("") > 1:
        rows = [(WHOLE, ""), *((name, parent or WHOLE) for name, parent in rows)]
    depth = len(Tree.from_parents(*zip(*rows)).levels)
    said = [
        f"column '{place.name}' says of which kind a place is, or repeats the one above, and is left out"
        for place in table.places[:-1]
    ]
    flat = table._replace(places=table.places[-1:], ignored=[*table.ignored, *said])
    pointers = Pointers(table.places[-1].name, PARENT, frozenset(name for name, _ in rows), depth)
    return PlacesAbove(flat, pointers, rows)


def _by_place(table: SeenTable) -> tuple[list[str], list[SeenColumn], list[int]]:
    """Return the places of a table, a column of values for each combination of attributes, and the first row of each place."""
    places, others = table.places[-1].texts, list(zip(*(column.texts for column in table.attributes)))
    if not others:
        return places, table.values, [*range(len(places))]
    names = list(dict.fromkeys(places))
    rows = {key: row for row, key in enumerate(zip(places, others))}
    if len(rows) < len(places):
        return [], [], []
    times = Counter(others)
    columns = [
        column._replace(
            texts=[column.texts[rows[key]] if (key := (name, other)) in rows else "" for name in names]
        )
        for other, often in times.items()
        if 5 * often >= 4 * len(names)
        for column in table.values
    ]
    first = {name: row for row, name in reversed([*enumerate(places)])}
    return names, columns, [first[name] for name in names]


def _whole_among(roots: Sequence[str], table: SeenTable) -> str:
    """Return the one of the places in no other that holds the others, by its name or its numbers; empty if there is none."""
    if named := [name for name in roots if TOTAL.fullmatch(name)]:
        return named[0]
    flat = table._replace(places=[], keys=())
    among = [name if name in roots else "" for name in table.places[-1].texts]
    summed = summing_value(table.places[-1]._replace(texts=among), flat)
    if summed is not None and not summed.differs:
        return summed.value
    names, columns, _ = _by_place(table._replace(places=table.places[-1:]))
    at = [row for row, name in enumerate(names) if name in roots]
    numbers = row_numbers(table, columns)
    for whole in (at[0], at[-1]) if len(at) > 2 else ():
        if agreement_with_sums(numbers, whole, [row for row in at if row != whole]).holds:
            return names[whole]
    return ""


def write_indented_places(path: Path, spec: str, places: Sequence[tuple[str, str]]) -> Path:
    """Write a list of places, each with the one above, under the names that a spec gives these columns; return the path."""
    columns = parse_perturbed(spec).parents
    assert columns is not None
    with path.open("x", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([(columns.id, columns.parent), *places])
    return path
