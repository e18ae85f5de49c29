"""Totals that an agency added up from perturbed cells; they add no information, and a draft leaves them out."""

from __future__ import annotations

from dataclasses import replace

from trueup.io.published.drafting.keys import Draft, DraftedTable


def without_totals(draft: Draft) -> Draft | None:
    """Return a draft of the finest cells alone, or None if the columns do not show which cells these are.

    They are told where each table has all attributes and the finest level, and names each level in a column.
    """
    every = {attribute.name for attribute in draft.attributes}
    finest = draft.levels[-1].name
    named = draft.pointers is None and not any(level.prefix for level in draft.levels)
    entries = [_finest_cells(entry) for entry in draft.entries]
    told = [
        entry.level == finest and {*entry.attributes}.union(*(where for _, where in entry.cells)) == every
        for entry in draft.entries
    ]
    return replace(draft, entries=entries) if named and all(told) else None


def _finest_cells(entry: DraftedTable) -> DraftedTable:
    """Return a table with the rows and columns that hold no total."""
    most = max((len(where) for _, where in entry.cells), default=0)
    cells = [cell for cell in entry.cells if len(cell[1]) == most]
    labels = {entry.columns.get(column, column): label for column, label in entry.totals.items()}
    only, kept = dict(entry.seen.only), [True] * len(entry.seen.values[0].texts)
    for column in (*entry.seen.places, *entry.seen.attributes):
        shown = [bool(text) and text != labels.get(column.name) for text in column.texts]
        if not all(shown):
            only[column.name] = [t for t in dict.fromkeys(column.held) if t != labels.get(column.name)]
            kept = [one and other for one, other in zip(kept, shown)]
    seen = entry.seen.of_rows(kept)._replace(only=only)
    names = {column.name for column, _ in cells}
    values = [column for column in seen.values if not cells or column.name in names]
    return replace(entry, seen=seen._replace(values=values), cells=cells, totals={}, ragged=False)
