"""Lists that say which places lie in which, in a file of their own: counts name the places by their codes alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from trueup.errors import DataError
from trueup.files import is_csv, is_parquet
from trueup.files.source import open_table
from trueup.io.published.drafting.above import PARENT, WHOLE, PlacesAbove
from trueup.io.published.drafting.keys import Pointers
from trueup.io.published.drafting.pairs import are_alike, determines_key
from trueup.io.published.drafting.seen import SeenColumn, SeenTable
from trueup.io.published.perturbed.columns import text_of
from trueup.model.tree import Tree


def places_looked_up(files: Sequence[str | Path], seen: Sequence[SeenTable]) -> PlacesAbove | None:
    """Return the places above those of the longest table, from a file that lists all of these once; None if there is none."""
    longest = max(seen, key=lambda table: len(table.values[0].texts))
    if len(longest.places) != 1:
        return None
    places = set(longest.places[0].held)
    others = [set(key.held) for table in seen if table.file != longest.file for key in table.places]
    for columns in (_columns_of(file) for file in files if Path(file).name != longest.file):
        if pointed := _pointed(longest, places, columns):
            return pointed
        own = next((c for c in columns if places <= set(c.texts) and len(set(c.texts)) == len(c.texts)), None)
        if own is None:
            continue
        above = _levels(own, [c for c in columns if c is not own], others)
        if above:
            return _placed(longest, own, above)
    return None


def _pointed(table: SeenTable, places: set[str], columns: Sequence[SeenColumn]) -> PlacesAbove | None:
    """Return the places above those of a table, from a list of codes, of other keys, too, that names the code above each."""
    for own, above in permutations(columns, 2):
        pairs = [pair for pair in zip(own.texts, above.texts) if pair[0] in places]
        if len(pairs) == len(places) and {""} < {parent for _, parent in pairs} <= places | {""}:
            rows = [(WHOLE, ""), *((place, parent or WHOLE) for place, parent in pairs)]
            try:
                depth = len(Tree.from_parents(*zip(*rows)).levels)
            except DataError:  # circular
                continue
            pointers = Pointers(table.places[0].name, PARENT, frozenset({WHOLE, *places}), depth)
            return PlacesAbove(table, pointers, rows)
    return None


def without_list(seen: Sequence[SeenTable], listed: PlacesAbove) -> tuple[list[SeenTable], list[str]]:
    """Return tables without the list of places, whose numbers are no counts of what the table counts; and what is said of it."""
    counted = {column.name for column in listed.table.values}
    told = {place for place, above in listed.rows if above}
    lists = [
        table
        for table in seen
        if table.file != listed.table.file
        and not counted & {column.name for column in table.values}
        and len([key for key in table.keys if told & set(key.held)]) > 1
    ]
    said = [
        f"'{table.file}' is taken for the list of places, and its numbers are left out" for table in lists
    ]
    return [table for table in seen if all(table is not each for each in lists)], said


def _columns_of(file: str | Path) -> list[SeenColumn]:
    path = Path(file)
    if not (is_csv(path) or is_parquet(path)):
        return []
    try:
        table = open_table(file)
        held = table.select(table.columns())
    except DataError:  # no plain table
        return []
    return [SeenColumn(name, (name,), text_of(texts).tolist()) for name, texts in held.items()]


def _levels(own: SeenColumn, columns: Sequence[SeenColumn], others: Sequence[set[str]]) -> list[SeenColumn]:
    """Return the columns of levels above, from fine to coarse: one of each pair that says the same, which counts name if any."""
    coarse = [c for c in columns if "" not in c.texts and 1 < len(set(c.texts)) <= 0.7 * len(own.texts)]
    coarse.sort(key=lambda c: (-len(set(c.texts)), not any(held <= set(c.texts) for held in others)))
    found: list[SeenColumn] = []
    for column in coarse:
        if not any(are_alike(column, known) for known in found) and all(
            determines_key(f, column) for f in found
        ):
            found.append(column)
    return found if any(held <= set(c.texts) for held in others for c in found) else []


def _placed(table: SeenTable, own: SeenColumn, above: Sequence[SeenColumn]) -> PlacesAbove | None:
    levels = [own, *above]
    pairs = [pair for fine, coarse in zip(levels, above) for pair in zip(fine.texts, coarse.texts)]
    pairs += [(top, WHOLE) for top in above[-1].texts]
    rows = [(WHOLE, ""), *dict.fromkeys(pairs)]
    if len({place for place, _ in rows}) < len(rows):
        return None  # a name of two levels
    pointers = Pointers(table.places[0].name, PARENT, frozenset(place for place, _ in rows), len(levels) + 1)
    return PlacesAbove(table, pointers, rows)
