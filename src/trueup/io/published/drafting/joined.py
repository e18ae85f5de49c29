"""Levels and attributes that several published tables of one population have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trueup.io.published.drafting.apart import told_apart, within_their_labels
from trueup.io.published.drafting.keys import (
    Draft,
    DraftedKey,
    DraftedTable,
    Pointers,
    attribute_of,
    code_lengths,
    is_repeated,
    lacks_above,
    lacks_below,
    without_parts,
)
from trueup.io.published.drafting.names import name_of, rest_of_names
from trueup.io.published.drafting.pairs import (
    are_of_one_level,
    by_nested_codes,
    by_one_attribute,
    by_one_name,
    named_whole,
    with_attributes_of_others,
)
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable, counted_names
from trueup.io.published.drafting.subtotals import apart_by_sums, without_subtotals
from trueup.io.published.drafting.wholes import said_of_zeros, summing_value, whole_keys
from trueup.io.published.drafting.wide import attribute_cells
from trueup.model.toml import inline_table


def joined(seen: Sequence[SeenTable], pointers: Pointers | None = None) -> Draft:
    """Return a draft with the levels and attributes that several tables of one population have in common."""
    seen = [part for table in seen for part in apart_by_sums(table)]
    seen = by_nested_codes(seen) if pointers is None else seen
    undecided: list[str] = []
    if pointers is not None:
        seen = [without for t in seen if (without := _without(t, pointers.parent)).values]
    block = None
    if pointers is None:
        seen, block = within_their_labels(seen, undecided)
    seen = [with_attributes_of_others(table, seen) for table in by_one_name(seen)]
    seen = by_one_attribute(seen, undecided)
    undecided = [*(f"'{t.file}': {said}" for t in seen for said in t.ignored), *undecided]
    longest = max(seen, key=lambda t: (len(t.places), max((len(set(c.held)) for c in t.places), default=0)))
    levels = [DraftedKey("all", "")]
    whole = set(whole_keys(longest).values())
    for column in longest.places:
        last = column is longest.places[-1]
        levels += _levels_of(
            _with_codes_of_others(column, seen) if last else column, undecided, whole, last=last
        )
    for level in levels:
        level.of = block if block and level.column == block.name else level.of
    if pointers is not None:
        listed_places = SeenColumn(pointers.id, (pointers.id,), sorted(pointers.places))
        levels = [DraftedKey(f"level {k}", pointers.id, of=listed_places) for k in range(pointers.depth)]
    attributes: list[DraftedKey] = []
    listed = pointers.places if pointers else frozenset[str]()
    entries = [_drafted_table(table, levels, attributes, undecided, listed) for table in seen]
    entries = told_apart(entries, attributes, undecided)
    _mark_partial(entries, undecided if pointers is None else [])
    _with_rests(attributes, entries, undecided)
    return Draft(levels, attributes, entries, undecided, pointers)


def _with_rests(
    attributes: Sequence[DraftedKey], entries: Sequence[DraftedTable], undecided: list[str]
) -> None:
    """Give an attribute that has one value a second value, for the rest of a published total."""
    for drawn in (each for each in attributes if len(each.values) == 1):
        wholes = [whole for entry in entries for whole in _wholes_of(drawn, entry)]
        if wholes:
            names = [rest_of_names(whole, drawn.values[0]) for whole in wholes]
            others = [name for name in (*names, "other", "rest") if name and name != drawn.values[0]]
            drawn.values.append(others[0])
            shown = f"'{wholes[0]}' holds" if wholes[0] else "rows without one hold"
            undecided.append(
                f"'{drawn.values[1]}' of '{drawn.name}' is what {shown} beside '{drawn.values[0]}': nothing shows it by itself"
            )


def _wholes_of(drawn: DraftedKey, entry: DraftedTable) -> Iterator[str]:
    """Yield the label of each total over an attribute in a table, or an empty text if it has none."""
    if any(drawn.name in where for _, where in entry.cells):
        yield from (column.path[-1] for column, where in entry.cells if drawn.name not in where)
    for name, column in zip(entry.attributes, entry.seen.attributes):
        if name == drawn.name and (drawn.column in entry.totals or "" in column.texts):
            yield entry.totals.get(drawn.column, "")


def _mark_partial(entries: Sequence[DraftedTable], undecided: list[str]) -> None:
    """Mark the tables that lack some places of their level that other tables have."""
    held: dict[str, set[str]] = {}
    for entry in entries:
        held.setdefault(entry.level, set()).update(_finest(entry))
    for entry in entries:
        lacks = held[entry.level] - _finest(entry)
        entry.partial = bool(lacks)
        if lacks and not entry.seen.constant:
            undecided.append(
                f"'{entry.seen.file}': {len(lacks)} places of other tables have no row; what they hold is unknown"
            )


def _finest(entry: DraftedTable) -> set[str]:
    totals = entry.totals.values()
    return {
        t
        for column in entry.seen.places[-1:]
        for t in column.held
        if t not in totals and not TOTAL.fullmatch(t)
    }


def _with_codes_of_others(column: SeenColumn, seen: Sequence[SeenTable]) -> SeenColumn:
    """Return a column of codes, with the codes added that other tables have in the column of that name."""
    others = [place for table in seen for place in table.places[-1:] if place.name == column.name]
    return column._replace(texts=[*column.texts, *(text for place in others for text in place.texts)])


def _without(table: SeenTable, name: str) -> SeenTable:
    """Return a table without the columns that have a given name."""
    places, attributes, values = (
        [column for column in columns if column.name != name]
        for columns in (table.places, table.attributes, table.values)
    )
    return table._replace(places=places, attributes=attributes, values=values)


def _levels_of(column: SeenColumn, said: list[str], whole: set[str], *, last: bool) -> Iterator[DraftedKey]:
    """Yield a level for a column of places, and one for each length of prefix that names larger places."""
    codes = sorted({text for text in column.held if not TOTAL.fullmatch(text)} - whole)
    lengths = code_lengths(codes) if last else []
    short = without_parts(codes, lengths)
    if short:
        said.append(
            f"the codes {counted_names(short)} of '{column.name}' have no parts below; they are taken for places without parts"
        )
    for length in lengths:
        yield DraftedKey(f"{column.name} {length}", column.name, length, of=column)
    yield DraftedKey(column.name, column.name, max(map(len, codes)) if short else None, of=column)


def _drafted_table(
    table: SeenTable,
    levels: list[DraftedKey],
    attributes: list[DraftedKey],
    undecided: list[str],
    listed: frozenset[str],
) -> DraftedTable:
    table = without_subtotals(table, undecided)
    columns: dict[str, str] = {}
    totals: dict[str, str] = {}
    level, found = levels[0].name, False
    whole = {} if listed else whole_keys(table)
    if not all(map(TOTAL.fullmatch, whole.values())):
        undecided.append(
            f"'{table.file}': '{'/'.join(whole.values())}' is near the sum of all finest places and is taken for their whole; "
            "if it is one beside them, leave its `total` out"
        )
    for place in table.places:
        known = [d for d in reversed(levels) if d.of is not None and are_of_one_level(d.of, place)]
        named = [d for d in known if d.column == place.name] or known[:1]
        lengths = {len(text) for text in place.held if not TOTAL.fullmatch(text)}
        at = next((d for d in named if {d.prefix} == lengths), named[0] if named else None)
        if at is None:
            undecided.append(f"'{table.file}': nothing tells which level '{place.name}' is; it is left out")
            continue
        level, found = at.name, True
        if at.column != place.name:
            columns[at.column] = place.name
        if listed.issuperset(place.held):
            continue
        if label := named_whole(place) or whole.get(place.name):
            totals[at.column] = label
        is_last = place is table.places[-1]
        if not at.prefix and at.column not in totals and (is_last or "" in table.places[-1].texts):
            totals |= _summing(at.column, place, table, undecided, totals)
        undecided += (
            said_of_zeros(place, table, listed=False) if place.blank or at.column not in totals else []
        )
    totals |= _labels_above(table, columns, totals)
    if table.places and not found:
        undecided.append(f"'{table.file}': its places are none of the other tables'")
    named = []
    for column in table.attributes:
        whole_value = column.blank or table.wholes[column.name]
        values = [t for t in dict.fromkeys(column.held) if t != whole_value]
        unnamed = re.fullmatch(r"column \d+", column.name) or column.name in [
            place.name for place in table.places
        ]
        drawn = attribute_of(attributes, name_of(values) if unnamed else column.name, values, named)
        if drawn.column != column.name:
            columns[drawn.column] = column.name
        undecided += said_of_zeros(column, table, listed=True) if column.blank or not whole_value else []
        if whole_value:
            totals[drawn.column] = whole_value
        named.append(drawn.name)
    cells = [] if len(table.values) == 1 else list(attribute_cells(table, attributes, undecided))
    of_codes = [d for d in levels if d.prefix]
    ragged = bool(of_codes) and of_codes[-1] is levels[-1] and level == levels[-1].name
    uppers = [] if table.constant else table.places[:-1]
    lacks = any(lacks_above(upper, table.places[-1], totals) for upper in uppers)
    fill = table.fill or (lacks and not any(map(is_repeated, uppers)))
    alone = any(lacks_below(upper, table.places[-1], totals) for upper in uppers)
    ragged = ragged or alone or (lacks and not fill)
    return DraftedTable(table, level, cells, named, columns, totals, ragged, fill)


def _labels_above(table: SeenTable, columns: Mapping[str, str], totals: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that mark totals in the columns of larger places, by column."""
    names = {own: name for name, own in columns.items()}
    finest = table.places[-1].texts if table.places else []
    found = {}
    for place in table.places[:-1]:
        name = names.get(place.name, place.name)
        below: dict[str, set[str]] = {}
        for text, own in zip(place.texts, finest):
            below.setdefault(text, set()).add(own)
        label = next((text for text in totals.values() if below.get(text) == {text}), "")
        if name not in totals and label and len(below) > 2:
            found[name] = label
    return found


def _summing(
    name: str, column: SeenColumn, table: SeenTable, undecided: list[str], totals: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of a key column whose numbers are the sums of those of all other values."""
    if name in totals or (summed := summing_value(column, table)) is None:
        return {}
    beside = "if it is one beside them, leave its `total` out"
    other = f"if it is their whole, give its entry `total = {inline_table({name: summed.value})}`"
    near = f"may be the sum of the other values of '{name}', but is not everywhere ({summed.differs}),"
    near = near if summed.differs else f"is near the sum of the other values of '{name}'"
    undecided.append(
        f"'{table.file}': '{summed.value}' {near} and is taken for "
        + (f"their whole; {beside}" if summed.taken else f"one beside them; {other}")
    )
    return {name: summed.value} if summed.taken else {}
