"""Tables of equal shape in several sheets or files, which differ in attribute value, year or place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from trueup.io.published.drafting.agreement import agreement_with_sums, row_numbers, summing
from trueup.io.published.drafting.keys import DraftedKey, DraftedTable, are_levels, attribute_of, code_lengths
from trueup.io.published.drafting.kinds import NO_COUNTS
from trueup.io.published.drafting.names import name_of
from trueup.io.published.drafting.seen import TOTAL, YEAR, SeenColumn, SeenTable, counted_names
from trueup.io.published.drafting.sums import column_numbers

MOST_ROWS = 5000
"""Rows of codes whose letters may say of which level they are."""


def told_apart(
    entries: Sequence[DraftedTable], attributes: list[DraftedKey], undecided: list[str]
) -> list[DraftedTable]:
    """Distinguish tables with the same cells by a new attribute, or use those of the last year alone."""
    groups: dict[object, list[DraftedTable]] = {}
    for entry in entries:
        cells = frozenset(
            (column.name if not where else "", *sorted(where.items())) for column, where in entry.cells
        )
        groups.setdefault((entry.level, *sorted(entry.attributes), cells), []).append(entry)
    found: dict[int, DraftedTable | None] = {}
    for same in groups.values():
        if len(same) < 2 or not all(_differ(same[0], other) for other in same[1:]):
            continue
        if of_no_counts := [e for e in same if NO_COUNTS.fullmatch(label_of(e.seen))]:
            found |= dict.fromkeys(map(id, of_no_counts))
            shown = ", ".join(label_of(entry.seen) for entry in of_no_counts)
            undecided.append(f"the tables {shown} hold no counts, by their names, and are left out")
            same = [entry for entry in same if entry not in of_no_counts]
        if len(same) < 2:
            continue
        labels = [label_of(entry.seen) for entry in same]
        if all(YEAR.search(label) for label in labels):
            last = max(range(len(labels)), key=labels.__getitem__)
            undecided.append(
                f"tables before '{labels[last]}' are left out: one spec describes one population"
            )
            found |= {id(entry): None for k, entry in enumerate(same) if k != last}
            continue
        whole = _whole_of(same)
        parts = [
            label for entry, label in zip(same, labels) if not TOTAL.fullmatch(label) and entry is not whole
        ]
        drawn = attribute_of(attributes, name_of(parts), parts)
        undecided.append(
            f"the tables {counted_names(labels)} hold the same cells; they are values of '{drawn.name}'"
        )
        for entry, label in zip(same, labels):
            own = {drawn.name: label} if label in parts else {}
            cells = entry.cells or [(entry.seen.values[0], {})]
            found[id(entry)] = replace(entry, cells=[(column, where | own) for column, where in cells])
    every = [found.get(id(entry), entry) for entry in entries]
    return [entry for entry in every if entry is not None]


def label_of(table: SeenTable) -> str:
    """Return the name of a table: its heading, or else its sheet or file."""
    return table.label or table.sheet or table.file.rpartition(".")[0]


def of_finest_kind(table: SeenTable) -> SeenTable:
    """Leave out the rows of intermediate levels if no column states which places these contain."""
    if len(table.places) != 1 or are_levels(table.places[0].held):
        return table
    place = table.places[0]
    kind = table.kinds[0] if table.kinds else _letters(place, table)
    if kind is None:
        return table
    times = Counter(said for said, _ in dict.fromkeys(zip(kind.texts, place.texts)))
    finest = max(times, key=lambda said: times[said])
    kept = [said for said, often in times.items() if said == finest or often == 1]
    left = [said for said in times if said not in kept]
    if not left or len(kept) > 2:
        return table
    why = (
        f"rows in which '{kind.name}' {'says' if table.kinds else 'begins with'} {', '.join(left)} are left out, as nothing "
        f"tells which {finest} they hold; a list of places with the one above each, given as --geography, tells it"
    )
    rows = [said in kept for said in kind.texts]
    shown = kept if table.kinds else list(dict.fromkeys(compress(place.texts, rows)))
    only = {**table.only, kind.name: shown}
    return table.of_rows(rows)._replace(only=only, ignored=[*table.ignored, why])


def _letters(place: SeenColumn, table: SeenTable) -> SeenColumn | None:
    """Return the letters before the digits of codes as a column, or None if these do not mark levels."""
    found = [re.match(r"([^\W\d]{1,5})\d+$", text) for text in place.texts]
    letters = [each[1] if each else "" for each in found]
    kinds = dict.fromkeys(letters)
    if "" in kinds or not 1 < len(kinds) < 6 or len(letters) > MOST_ROWS or table.attributes:
        return None
    ends = row_numbers(table, table.values)
    rows = [[row for row, own in enumerate(letters) if own == kind] for kind in kinds]
    sums = ends._replace(ends=np.array([ends.ends[own].sum(axis=0) for own in rows]))
    alike = all(agreement_with_sums(sums, 0, [other]).holds for other in range(1, len(rows)))
    return place._replace(texts=letters) if alike else None


def within_their_labels(
    seen: Sequence[SeenTable], undecided: list[str]
) -> tuple[list[SeenTable], SeenColumn | None]:
    """Add a level of larger places, named by the labels of tables with different places."""
    groups: dict[object, list[SeenTable]] = {}
    for table in seen:
        shape = [tuple(c.path for c in columns) for columns in (table.places, table.attributes, table.values)]
        groups.setdefault(tuple(shape), []).append(table)
    same = max(groups.values(), key=len, default=[])
    parts = [{t for t in table.places[-1].held if not TOTAL.fullmatch(t)} for table in same if table.places]
    labels = [label_of(table) for table in same]
    shared = sum(map(len, parts)) - len(set().union(*parts)) if parts else 0
    if (
        len(parts) < 2
        or 4 * shared > sum(map(len, parts))
        or len(same[0].places) > 1
        or len(set(labels)) < len(same)
        or code_lengths(sorted(set().union(*parts)))  # levels of one list of codes, a table each
    ):
        return list(seen), None
    name = next(n for n in ("part", "block", "sheet") if n != same[0].places[0].name)
    shown = counted_names(labels)
    undecided.append(
        f"the tables {shown} hold other places each, which are taken to lie in them: level '{name}'"
    )
    above = {id(table): label for table, label in zip(same, labels)}
    found = [
        table._replace(
            places=[
                SeenColumn(name, (name,), [above[id(table)]] * len(table.places[0].texts)),
                *table.places,
            ],
            constant={name: above[id(table)]},
        )
        if id(table) in above
        else table
        for table in seen
    ]
    return found, SeenColumn(name, (name,), labels)


def _whole_of(same: Sequence[DraftedTable]) -> DraftedTable | None:
    """Return the table whose numbers are about the sums of those in the other tables, or None."""
    columns = [[x for column in entry.seen.values for x in column_numbers(column)] for entry in same]
    if len(same) < 3 or len({*map(len, columns)}) > 1:
        return None
    flat = [
        SeenColumn("", ("",), ["" if x is None else f"{x:g}" for x in column], point=True)
        for column in columns
    ]
    whole = summing([flat[-1], *flat[:-1]], "")
    return None if whole is None else same[next(at for at, column in enumerate(flat) if column is whole)]


def _differ(one: DraftedTable, other: DraftedTable) -> bool:
    """Return True if two tables have different texts in some cell."""
    shown = []
    for entry in (one, other):
        keys = list(zip(*(column.texts for column in (*entry.seen.places, *entry.seen.attributes))))
        shown.append(
            {
                (keys[row] if keys else (), k): text
                for k, column in enumerate(entry.seen.values)
                for row, text in enumerate(column.texts)
            }
        )
    return any(shown[1][cell] != text for cell, text in shown[0].items() if cell in shown[1])
