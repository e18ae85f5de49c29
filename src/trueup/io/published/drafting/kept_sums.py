"""Sums that a draft leaves out, and the spec entries by which they can be read as well."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

from trueup.io.published.drafting.keys import Draft, DraftedTable
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.model.toml import inline_table, value_text

SUM_OF_GROUP = re.compile(
    rf"({TOTAL.pattern})|(sub|sous|zwischen|del|mellan|vmes|pod)[- ]?(total|summ?[ae]|seš?t)\w*|"
    r"\w*(summe|soma|suma|total|toplam[ıi]?)",
    re.IGNORECASE,
)
"""Names of sums of groups, of which each group may have one."""


def way_to_keep(table: SeenTable, column: SeenColumn, inner: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the spec entries by which sums of values, which a draft leaves out, can be read as well.

    Parameters
    ----------
    table
        The table without the rows of the sums.
    column
        The column of the attribute, with all of them.
    inner
        The sums, and the values that each holds.
    """

    def finest(value: str) -> list[str]:
        return [part for each in inner[value] for part in finest(each)] if value in inner else [value]

    groups = {value: finest(value) for value in inner}
    held = [part for parts in groups.values() for part in parts]
    if not held or len(set(held)) < len(held) or not set(held) <= set(column.held):
        return []
    rest = [value for value in dict.fromkeys(column.held) if value not in (*held, *inner)]
    groups |= {value: [value] for value in rest if not TOTAL.fullmatch(value)}
    name = f"{column.name} (sums)"
    others = [each.name for each in table.attributes if each.name != column.name]
    only = {**table.only, column.name: [*inner]}
    recode = f"name = {value_text(name)}, groups = {inline_table(groups)}"
    read = f"columns = {inline_table({name: column.name})}, only = {inline_table(only)}"
    return [
        "whether these sums say more than their parts, as they do where values are not exact. To read them, too, write below the "
        f"attribute '{column.name}': [[attribute.recode]], {recode}; and a copy of the entry with another name, without its "
        f"`total` of '{column.name}', with {read}, attributes = {value_text([name, *others])} and unlisted = \"unknown\""
    ]


def without_repeated_sums(table: SeenTable) -> SeenTable:
    """Return a table without rows such as "Sub-total" that repeat one name in several groups of places."""
    if len(table.places) != 1 or table.attributes:
        return table
    place = table.places[0]
    times = Counter(place.held)
    sums = [text for text, often in times.items() if often > 1 and SUM_OF_GROUP.fullmatch(text)]
    kept = [text not in sums for text in place.texts]
    if not sums or len(set(compress(place.texts, kept))) < sum(kept):
        return table
    why = f"rows of '{place.name}' that say '{sums[0]}' are the sums of the rows above them, by their name, and are left out"
    only = {**table.only, place.name: list(compress(place.texts, kept))}
    return table.of_rows(kept)._replace(only=only, ignored=[*table.ignored, why])


def without_totals(draft: Draft) -> Draft | None:
    """Return a draft of the finest cells alone, or None if the columns do not show which these are.

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


def way_without_totals(draft: Draft) -> str:
    """Return words that say how to change a drafted spec so that no total is read."""
    finest = without_totals(draft)
    return (
        "; ".join(_changes(*pair) for pair in zip(draft.entries, finest.entries) if pair[0] != pair[1])
        if finest
        else "leave their rows out by `only`, and their columns out of `cell`"
    )


def _changes(entry: DraftedTable, finest: DraftedTable) -> str:
    """Return words that say how to change an entry of a spec so that it reads the finest cells alone."""
    left = [
        column.name for column, _ in entry.cells if all(column.name != kept.name for kept, _ in finest.cells)
    ]
    only = [f"write only = {inline_table(finest.seen.only)}"] * (finest.seen.only != entry.seen.only)
    out = ["`total`"] * bool(entry.totals) + [f"the `cell` of {', '.join(map(value_text, left))}"] * bool(
        left
    )
    where = f" of '{entry.seen.label or entry.seen.sheet or entry.seen.file}'"
    return f"in the entry{where} " + ", ".join([*only, f"leave out {' and '.join(out)}"] if out else only)


def _finest_cells(entry: DraftedTable) -> DraftedTable:
    """Return an entry of a spec with only those rows and columns that are not totals."""
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
