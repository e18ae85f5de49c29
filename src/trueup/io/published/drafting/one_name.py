"""One name for places and attributes that some tables name by codes and others by labels."""

from __future__ import annotations

from collections.abc import Sequence

from trueup.io.published.drafting.codes import code_lengths
from trueup.io.published.drafting.pairs import are_alike
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable


def with_attributes_of_others(table: SeenTable, seen: Sequence[SeenTable]) -> SeenTable:
    """Treat the places of a table as an attribute if other tables have them as attribute values and none as places."""
    others = [other for other in seen if other is not table]
    if len(table.places) != 1 or any(
        are_of_one_level(table.places[0], place) for other in others for place in other.places
    ):
        return table
    column, whole = table.places[0], named_whole(table.places[0]) or ""
    own = {text.casefold() for text in column.held} - {whole.casefold()}
    named = [{text.casefold() for text in key.held} for other in others for key in other.attributes]
    named += [{value.name.casefold() for value in other.values} for other in others]
    if not own or not any(own <= values for values in named):
        return table
    attributes, wholes = [column, *table.attributes], {**table.wholes, column.name: whole}
    return table._replace(places=[], attributes=attributes, wholes=wholes)


def by_nested_codes(seen: Sequence[SeenTable]) -> list[SeenTable]:
    """Name places by nested codes that stand beside names, if the codes of several tables form levels."""
    beside = [
        {
            key.name: key
            for key in (*t.keys, *t.labels)
            if key is not t.places[0] and are_alike(key, t.places[0])
        }
        if len(t.places) == 1
        else {}
        for t in seen
    ]
    for name in dict.fromkeys(name for keys in beside for name in keys):
        levels = [sorted(set(keys[name].held)) for keys in beside if name in keys]
        lengths = sorted({len(code) for codes in levels for code in codes})
        alone = all(len({len(code) for code in codes}) == 1 for codes in levels)
        if (
            alone
            and len(lengths) > 1
            and code_lengths(sorted({c for codes in levels for c in codes})) == lengths[:-1]
        ):
            return [
                _named_by(t, t.places[0], keys[name]) if name in keys else t for t, keys in zip(seen, beside)
            ]
    return list(seen)


def _named_by(table: SeenTable, own: SeenColumn, other: SeenColumn) -> SeenTable:
    """Replace the column that names places or an attribute by another column whose values pair off with it."""
    ignored = [said for said in table.ignored if not said.startswith(f"column '{other.name}' ")]
    ignored.append(f"column '{own.name}' names what the other keys say, and is left out")
    places, attributes = (
        [other if column is own else column for column in columns]
        for columns in (table.places, table.attributes)
    )
    return table._replace(places=places, attributes=attributes, labels=(*table.labels, own), ignored=ignored)


def by_one_name(seen: Sequence[SeenTable]) -> list[SeenTable]:
    """Name a table's places by a column of labels, if another table has only these labels and none has the codes."""
    alone = [column for table in seen for column in table.places[-1:] if not table.labels]
    found = []
    for table in seen:
        for label in table.labels if table.places else ():
            same = [
                column
                for column in alone
                if len(set(column.held) & set(label.held)) > 0.5 * len(set(label.held))
            ]
            if same and not any(are_of_one_level(column, table.places[-1]) for column in alone):
                table = table._replace(places=[*table.places[:-1], label], labels=())
        for place in table.places[:-1]:
            others = [other.places[-1] for other in seen if other is not table and other.places]
            coded = [key for key in table.keys if key.name != place.name and are_alike(key, place)]
            same = [key for key in coded if any(set(key.held) >= set(column.held) for column in others)]
            if same and not any(set(place.held) & set(column.held) for column in others):
                table = table._replace(places=[same[0] if own is place else own for own in table.places])
        found.append(table)
    return found


def are_of_one_level(one: SeenColumn, other: SeenColumn) -> bool:
    a, b = set(one.held), set(other.held)
    named = one.name.casefold() == other.name.casefold() or (one.path == other.path and any(one.path))
    return named or len(a & b) >= 0.5 * min(len(a), len(b))


def named_whole(column: SeenColumn) -> str | None:
    return column.blank or next((text for text in column.held if TOTAL.fullmatch(text)), None)


def by_one_attribute(seen: Sequence[SeenTable], undecided: list[str]) -> list[SeenTable]:
    """Name an attribute by another column that pairs off with it, if another table names the attribute that way."""
    found = list(seen)
    for at, table in enumerate(found):
        others = [a for k, other in enumerate(found) if k != at for a in other.attributes]
        for own in table.attributes:
            beside = [key for key in table.keys if key.name != own.name and are_alike(key, own)]
            same = next((key for key in beside if any(_is_one(key, a) for a in others)), None)
            if same is not None and any(_is_one(own, a) for a in others):
                undecided.append(_in_a_copy(table, own, same, found))
            elif same is not None:
                found[at] = table = _named_by(table, own, same)
    return found


def _is_one(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if two columns hold one attribute: they have the same name and some values in common."""
    named = [
        {text.casefold() for text in column.held if not TOTAL.fullmatch(text)} for column in (one, other)
    ]
    return one.name.casefold() == other.name.casefold() and not named[0].isdisjoint(named[1])


def _in_a_copy(table: SeenTable, own: SeenColumn, same: SeenColumn, seen: Sequence[SeenTable]) -> str:
    """Return a note that tells how to edit a copy if one table names an attribute by codes, another by labels."""
    file = next(other.file for other in seen if any(_is_one(same, a) for a in other.attributes))
    pairs = dict(zip(same.texts, own.texts))
    words = ", ".join(f"'{value}' for '{text}'" for text, value in pairs.items())
    return (
        f"'{own.name}' and '{same.name}' are one attribute, as '{table.file}' shows, and count all twice as two: in a copy of "
        f"'{file}' write '{own.name}' for '{same.name}' in the header, and {words} below it; and draft anew from the copy"
    )
