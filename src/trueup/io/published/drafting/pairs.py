"""Relations among key columns: which columns label others, and which columns of two tables are the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trueup.io.published.drafting.keys import code_lengths
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable

_LABEL = re.compile(
    r".*(name|\bnom|nom_|label|libell|bezeichnung|denominazione|naam|navn|namn).*", re.IGNORECASE
)


def determines_key(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if each value of one column occurs with a single value of another, except in totals."""
    pairs = named_pairs(fine, coarse)
    return len(pairs) == len({a for a, _ in pairs}) and bool(pairs)


def named_pairs(fine: SeenColumn, coarse: SeenColumn) -> set[tuple[str, str]]:
    """Return the pairs of values that occur together in two columns, without blanks and totals."""
    pairs = zip(fine.texts, coarse.texts)
    return {(a, b) for a, b in pairs if a and b and not TOTAL.fullmatch(a) and not TOTAL.fullmatch(b)}


def are_alike(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if the values of two columns correspond one to one."""
    pairs = set(zip(one.texts, other.texts))
    return len(pairs) == len(set(one.texts)) == len(set(other.texts)) > 1


def distinct_keys(keys: list[SeenColumn]) -> int:
    """Return the number of different combinations of keys among the rows."""
    return len(set(zip(*(key.texts for key in keys))))


def pairs_of(columns: list[SeenColumn]) -> Iterator[tuple[SeenColumn, SeenColumn]]:
    """Return all pairs of two different columns."""
    return ((a, b) for k, a in enumerate(columns) for b in columns[k + 1 :])


def without_labels(columns: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Return the key columns without those that only repeat others in words, and notes on these."""
    kept, ignored = list(columns), []
    for one, other in pairs_of(columns):
        if one in kept and other in kept and (_say_the_same(one, other, columns) or _names_codes(one, other)):
            code, label = sorted((one, other), key=_wordy)
            more, less = (distinct_keys([c for c in kept if c is not each]) for each in (code, label))
            left = code if more > less else label
            kept.remove(left)
            why = (
                "is blank for some of the places that another names"
                if left is code
                else "names what the other keys say"
            )
            ignored.append(left.left_out(why))
    return kept, ignored


def _say_the_same(one: SeenColumn, other: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if the values of two columns correspond one to one, everywhere or in each larger place."""
    parts = [
        (a, b) for a, b in zip(one.texts, other.texts) if (a or not one.blank) and (b or not other.blank)
    ]
    filled = [sum(map(bool, texts)) for texts in zip(*parts)]
    both = [pair for pair in parts if all(pair)]
    blank, full = sorted((one, other), key=lambda c: len(c.held))
    numbered = all(any(map(str.isdigit, text)) for text in blank.held) and "" not in full.texts
    rest = {text for text, code in zip(full.texts, blank.texts) if not code}
    apart = numbered and not rest & {text for text, code in zip(full.texts, blank.texts) if code}
    if len(both) < (0.5 if apart else 0.8) * max(filled, default=0):
        return False
    if determines_key(one, other) and determines_key(other, one):
        return True
    fine, coarse = sorted((one, other), key=lambda c: -len(set(c.held)))
    few = 0.8 * len(set(fine.held)) > len(set(coarse.held))
    if not few and _wordy(coarse)[0] > 0.9 and _wordy(fine)[0] < 0.1 and determines_key(fine, coarse):
        return True  # the name of a place and of the one place within it
    if (_LABEL.fullmatch(one.name) is None) == (_LABEL.fullmatch(other.name) is None):
        return False
    for above in (c for c in columns if c is not one and c is not other):
        ways = [
            set(zip(above.texts, *each)) for each in ((one.texts,), (other.texts,), (one.texts, other.texts))
        ]
        if len(set(map(len, ways))) == 1 and len(ways[0]) > len(set(above.texts)):
            return True
    return False


def _names_codes(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if one column names the codes of all levels in another column."""
    label, code = sorted((one, other), key=lambda c: len(set(c.held)))
    lengths = code_lengths(sorted(set(code.held)))
    if not lengths or len(set(code.texts)) < len(code.texts) or len(set(label.held)) < 2:
        return False
    told = [True]  # whether a name tells the code above it, and that is told by the code below
    for length in (*lengths, max(map(len, code.held))):
        pairs = {(text[:length], name) for text, name in zip(code.texts, label.texts) if len(text) >= length}
        if told[-1] and len(pairs) == len({text for text, _ in pairs}):
            return False
        told.append(len(pairs) == len({name for _, name in pairs}))
    return True


def _wordy(column: SeenColumn) -> tuple[float, float]:
    held = column.held
    blank = len(column.texts) - len(held)
    return (
        sum(not any(c.isdigit() for c in text) for text in held) / len(held),
        sum(map(len, held)) / len(held) - blank,
    )


def with_attributes_of_others(table: SeenTable, seen: Sequence[SeenTable]) -> SeenTable:
    """Return a table whose places become attribute values if other tables have them as such."""
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
    """Return the tables with nested codes instead of names for places, if the codes form levels."""
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
    """Return a table in which another column of labels replaces the column of a place or an attribute."""
    ignored = [said for said in table.ignored if not said.startswith(f"column '{other.name}' ")]
    ignored.append(own.left_out("names what the other keys say"))
    places, attributes = (
        [other if column is own else column for column in columns]
        for columns in (table.places, table.attributes)
    )
    return table._replace(places=places, attributes=attributes, labels=(*table.labels, own), ignored=ignored)


def by_one_name(seen: Sequence[SeenTable]) -> list[SeenTable]:
    """Return the tables with one kind of name for places, where some have codes and others have labels."""
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
    """Return the tables with one kind of name for each attribute that several tables have."""
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
    """Return True if two columns contain the same attribute, by their name and by common values."""
    named = [
        {text.casefold() for text in column.held if not TOTAL.fullmatch(text)} for column in (one, other)
    ]
    return one.name.casefold() == other.name.casefold() and not named[0].isdisjoint(named[1])


def _in_a_copy(table: SeenTable, own: SeenColumn, same: SeenColumn, seen: Sequence[SeenTable]) -> str:
    """Return a note on how to edit a copy if one table has codes for an attribute and another has labels."""
    file = next(other.file for other in seen if any(_is_one(same, a) for a in other.attributes))
    pairs = dict(zip(same.texts, own.texts))
    words = ", ".join(f"'{value}' for '{text}'" for text, value in pairs.items())
    return (
        f"'{own.name}' and '{same.name}' are one attribute, as '{table.file}' shows, and count all twice as two: in a copy of "
        f"'{file}' write '{own.name}' for '{same.name}' in the header, and {words} below it; and draft anew from the copy"
    )
