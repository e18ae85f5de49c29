"""Parents of places in one column of keys, proposed by their texts and confirmed by published sums."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trueup.io.published.drafting.agreement import RowNumbers, agreeing, agreement_with_sums, row_numbers
from trueup.io.published.drafting.apart import label_of
from trueup.io.published.drafting.keys import Pointers, are_levels
from trueup.io.published.drafting.proposals import by_codes, by_sums, proposed
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable, counted_names
from trueup.io.published.drafting.wholes import summing_value, whole_keys
from trueup.model.tree import Tree

WHOLE = "all"
"""The place above places in no other, where there are several."""
PARENT = "part of"


class PlacesAbove(NamedTuple):
    """A table with its places in one column, and the list of each place with its parent."""

    table: SeenTable
    pointers: Pointers
    rows: list[tuple[str, str]]


def places_above(table: SeenTable) -> PlacesAbove | None:
    """Return the parents of a table's places if published sums confirm a hierarchy, else None."""
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


def all_above(
    seen: Sequence[SeenTable],
) -> tuple[list[SeenTable], PlacesAbove | None, list[str]]:
    """Return all tables, the parents of places that published sums confirm, and notes."""
    told = {at: each for at, table in enumerate(seen) if (each := places_above(table))}
    if not told:
        return [*seen], None, []
    first = max(told, key=lambda at: len(told[at].rows))
    same = [at for at, table in enumerate(seen) if _column_names(table) == _column_names(seen[first])]
    tables = {at: _with_zeros(seen[at]) for at in same}
    stacked, said = _stacked([*tables.values()])
    every = places_above(stacked) if stacked else None
    if stacked is None or every is None:
        flat, every = told, told[first]
    else:
        lists = [
            told[at].rows if at in told else _own_list(table, every.rows) for at, table in tables.items()
        ]
        one = _below_one(every, [label_of(table) for table in tables.values()], lists)
        every = max(one, every, key=lambda each: _confirmed(stacked, each.rows))
        flat = told | {at: every._replace(table=_flat(table)) for at, table in tables.items()}
    found = [flat[at].table if at in flat else table for at, table in enumerate(seen)]
    return found, every, said


def _confirmed(table: SeenTable, rows: Sequence[tuple[str, str]]) -> int:
    """Return the number of sums that confirm the parents of places, minus the number that contradict them."""
    names, columns, _ = _by_place(table)
    parents = [names.index(above) if above in names else -1 for above in map(dict(rows).__getitem__, names)]
    held, against, *_ = agreeing(row_numbers(table, columns), parents)
    return held - against


def _own_list(table: SeenTable, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the places of a table with their parents, where a total in the first or last row is a parent."""
    names, columns, _ = _by_place(table)
    own = {place: above for place, above in rows if place in names}
    numbers = row_numbers(table, columns)
    for root in (0, len(names) - 1):
        tops = [row for row, name in enumerate(names) if own[name] not in names and row != root]
        if own[names[root]] not in names and agreement_with_sums(numbers, root, tops).holds:
            return [(name, names[root] if names.index(name) in tops else own[name]) for name in names]
    return [*own.items()]


def _below_one(
    every: PlacesAbove, labels: Sequence[str], lists: Sequence[Sequence[tuple[str, str]]]
) -> PlacesAbove:
    """Merge the lists of places of several tables, and add one parent place for each table if needed."""
    known = {place for rows in lists for place, _ in rows}
    found: dict[str, str] = {}
    for label, rows in zip(labels, lists):
        own = {place: above for place, above in rows if place != WHOLE}
        top = label if [*own.values()].count(WHOLE) > 1 and label not in known else ""
        found |= {top: ""} if top else {}
        found |= {place: top if above in ("", WHOLE) else above for place, above in own.items()}
    if [*found.values()].count("") > 1:
        found = {WHOLE: "", **{place: above or WHOLE for place, above in found.items()}}
    rows = [*found.items()]
    depth = len(Tree.from_parents(*zip(*rows)).levels)
    return every._replace(rows=rows, pointers=every.pointers._replace(places=frozenset(found), depth=depth))


def _column_names(table: SeenTable) -> list[list[str]]:
    """Return the names of a table's columns in groups: places, attributes, values, keys."""
    return [
        [column.name for column in columns]
        for columns in (table.places, table.attributes, table.values, table.keys)
    ]


def _stacked(tables: Sequence[SeenTable]) -> tuple[SeenTable | None, list[str]]:
    """Stack tables with equal columns and different places, and return notes. Return None if they conflict.

    Rows of a place that several tables name with the same numbers, such as a nation, are taken once.
    """
    names = [set(table.places[-1].held) if table.places else set() for table in tables]
    times = Counter(name for own in names for name in own)
    shared = [name for name, often in times.items() if often > 1]
    if len(tables) < 2 or 4 * len(shared) > len(times):
        return None, []
    shown = counted_names([*map(label_of, tables)])
    if differs := next((name for name in shared if len({*_rows_of(name, tables)}) > 1), None):
        return None, [
            f"the tables {shown} hold other places each, but several name one '{differs}', with other numbers: in a copy, give "
            "each place a name of its own, and draft the spec anew"
        ]
    kept, known = [], set[str]()
    for table, own in zip(tables, names):
        kept.append(table.of_rows([name not in known for name in table.places[-1].texts]))
        known |= own
    said = f"the tables {shown} hold other places each, and are read as parts of one"
    return _joined_rows(kept), [said]


def _rows_of(place: str, tables: Sequence[SeenTable]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield the texts in the rows of one place, for each table that names it."""
    for table in tables:
        if place in table.places[-1].texts:
            own = table.of_rows([text == place for text in table.places[-1].texts])
            yield tuple(zip(*(column.texts for column in (*own.attributes, *own.values))))


def _joined_rows(tables: Sequence[SeenTable]) -> SeenTable:
    """Return one table with the rows of several tables that have equal columns."""

    def joined(columns: Sequence[Sequence[SeenColumn]]) -> list[SeenColumn]:
        return [
            same[0]._replace(texts=[text for each in same for text in each.texts]) for same in zip(*columns)
        ]

    first = tables[0]
    noisy = all(table.variance for table in tables)
    return first._replace(
        places=joined([table.places for table in tables]),
        attributes=joined([table.attributes for table in tables]),
        values=joined([table.values for table in tables]),
        keys=tuple(joined([table.keys for table in tables])),
        variance=joined([[table.variance] for table in tables if table.variance])[0] if noisy else None,
        indents={name: indent for table in tables for name, indent in table.indents.items()},
        groups=tuple(group for table in tables for group in table.groups),
        kinds=(),
        labels=(),
    )


def _with_zeros(table: SeenTable) -> SeenTable:
    """Return a table in which a code of zeros is again written for the place that contains all others."""
    if not table.places or not (zeros := table.places[-1].blank):
        return table
    place = table.places[-1]
    whole = place._replace(texts=[text or zeros for text in place.texts], blank="")
    keys = tuple(whole if key.name == place.name else key for key in table.keys)
    return table._replace(places=[*table.places[:-1], whole], keys=keys)


def _below_named(numbers: RowNumbers, whole: int) -> Iterator[list[int]]:
    """Yield proposed parents of rows in which all rows are parts of the given total."""
    kept = [row for row in range(len(numbers.ends)) if row != whole]
    for way in by_sums(numbers._replace(ends=numbers.ends[kept])):
        parents = [whole] * len(numbers.ends)
        parents[whole] = -1
        for row, parent in zip(kept, way):
            parents[row] = kept[parent] if parent >= 0 else whole
        yield parents


def _best(ways: Sequence[list[int]], numbers: RowNumbers) -> list[int] | None:
    """Return the proposed parents that most sums confirm, or None if too few sums confirm any."""
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
    if len(roots) > 1 and (whole := whole_among(roots, table)):
        parents = [parent or whole * (name != whole) for name, parent in zip(names, parents)]
    rows = list(zip(names, parents))
    if parents.count("") > 1:
        rows = [(WHOLE, ""), *((name, parent or WHOLE) for name, parent in rows)]
    depth = len(Tree.from_parents(*zip(*rows)).levels)
    pointers = Pointers(table.places[-1].name, PARENT, frozenset(name for name, _ in rows), depth)
    return PlacesAbove(_flat(table), pointers, rows)


def _flat(table: SeenTable) -> SeenTable:
    """Return a table with only the column of the smallest places, and notes on other columns of places."""
    why = "says of which kind a place is, or repeats the one above"
    said = [place.left_out(why) for place in table.places[:-1]]
    return table._replace(places=table.places[-1:], ignored=[*table.ignored, *said])


def _by_place(table: SeenTable) -> tuple[list[str], list[SeenColumn], list[int]]:
    """Return a table's places, its columns of values by place, and each place's first row."""
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


def whole_among(roots: Sequence[str], table: SeenTable) -> str:
    """Return the top place that contains the other top places, or an empty text if there is none."""
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


def write_indented_places(path: Path, columns: tuple[str, str], places: Sequence[tuple[str, str]]) -> Path:
    """Write a list of places with their parents to a CSV file, and return its path."""
    with path.open("x", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *places])
    return path
