"""Relations among the columns of keys of a table: places within each other, attributes that cross, labels, row numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from trueup.io.published.drafting.codes import code_lengths
from trueup.io.published.drafting.names import name_of
from trueup.io.published.drafting.seen import KEY, PLACE, TOTAL, SeenColumn

_ATTRIBUTE = re.compile(
    r"(.*[\W_])?(sex|gender|ages?|race|ethnic(ity)?|status|education|type|groups?|categor(y|ies)|kind|citizen(ship)?|nationality|"
    r"tenure|income|geschlecht|alter|sex[eo]|sesso|kön|køn|kjønn|geslacht|gênero|edad|età|âge|leeftijd|alder|ålder|idade)([\W_].*)?",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r".*(name|\bnom|nom_|label|libell|bezeichnung|denominazione|naam|navn|namn).*", re.IGNORECASE
)
_LEVEL = re.compile(
    r"(countr(y|ies)|nation(al)?|state|province|provincial|regions?|regional|county|counties|districts?|municipalit(y|ies)|ward|"
    r"(upper|lower|unitary)? ?(tier )?local authorit(y|ies).*|utla|ltla|la|land|kreis|gemeinde|région|commune)",
    re.IGNORECASE,
)
_KIND_OF_PLACE = re.compile(
    r".*(level|type|kind|ebene|niveau|layer|soort|szint|nivel|nivå|taso|livello|tipo|poziom|úroveň).*",
    re.IGNORECASE,
)


class SortedKeys(NamedTuple):
    """Columns of keys: places from large to small, attributes, notes on what is left out, labels, and kinds of places."""

    places: list[SeenColumn]
    attributes: list[SeenColumn]
    ignored: list[str]
    labels: list[SeenColumn]
    kinds: list[SeenColumn]


def sorted_keys(columns: list[SeenColumn], rows: int) -> SortedKeys:
    """Sort columns of keys into places, attributes and what says nothing more."""
    ignored = [
        f"column '{c.name}' says '{c.held[0]}' everywhere, and is left out"
        for c in columns
        if len(set(c.texts)) == 1 and rows > 1
    ]
    columns = [c for c in columns if len(set(c.texts)) > 1 or rows == 1]
    kinds = [c for c in columns if _kind_of_place(c, [o for o in columns if o is not c])]
    ignored += [
        f"column '{c.name}' says of which level a row is, as its keys do, and is left out" for c in kinds
    ]
    columns = [c for c in columns if c not in kinds]
    counters = [c for c in columns if _counts_rows(c, [o for o in columns if o is not c])]
    coded = [c for c in columns if c not in counters]
    columns, said = _without_labels(coded)
    labels = [c for c in coded if c not in columns]
    ids = [c for c in columns if _numbers_rows(c, [o for o in columns if o is not c])]
    ignored += said + [f"column '{c.name}' numbers the rows, and is left out" for c in counters + ids]
    columns = [c for c in columns if c not in ids]
    if not columns:
        return SortedKeys([], [], ignored, labels, kinds)
    # Both parts of a column of places and values have its name.
    names = [c.name for c in columns]
    single = [c for at, c in enumerate(columns) if c.name not in names[:at]]
    likely = [c for c in single if not _tells_attribute(c, named=names.count(c.name) == 1)]
    likely = likely if rows > 1 else columns
    if (
        not likely
        and len(columns) == 1
        and re.search(r"sex|gender", columns[0].name, re.IGNORECASE)
        and len(columns[0].held) > 3
    ):
        likely = columns  # more values than it has: the name of another attribute stands above places
    if not likely and len(columns) == 1 and len(set(columns[0].texts)) < rows:
        likely = columns
    if not likely:
        return SortedKeys([], columns, ignored, labels, kinds)
    most = max(likely, key=lambda c: len(set(c.held)))
    named = [c for c in likely if KEY.fullmatch(c.name)]
    placed = [c for c in likely if PLACE.fullmatch(c.name)]
    finest = placed[0] if placed else most
    under = [
        c
        for c in likely
        if (_lies_within(c, finest) or _named_within(c, finest, columns))
        and (c in named or len(set(finest.held)) > 1)
    ]
    finest = _finest(under, finest)
    above = [
        c
        for c in likely
        if c is not finest and (_lies_within(finest, c) or _named_within(finest, c, columns))
    ]
    places = [*sorted(above, key=lambda c: len(set(c.held))), finest]
    if not placed and (crossed := [c.name for c in likely if c not in places]):
        ignored.append(
            f"whether places stand in '{finest.name}' or in '{crossed[0]}'; they are taken to stand in '{finest.name}'"
        )
    return SortedKeys(places, [c for c in columns if c not in places], ignored, labels, kinds)


def _finest(under: list[SeenColumn], above: SeenColumn) -> SeenColumn:
    """Return the column of the smallest places of those `under` one, which lies within most others; it has most values or, where
    most counties have no districts and blanks stand for theirs, fewer.
    """

    def within(column: SeenColumn) -> int:
        others = [other for other in under if other is not column and not determines_key(other, column)]
        return sum(_lies_within(column, other) for other in others)

    return max(
        under,
        key=lambda c: (within(c), len(set(c.held)), not determines_key(above, c)),
        default=above,
    )


def _tells_attribute(column: SeenColumn, *, named: bool) -> bool:
    """Return True if a column is of an attribute, by its name or as ages or sexes that repeat."""
    values = [text for text in dict.fromkeys(column.held) if not TOTAL.fullmatch(text)]
    repeated = 1 < len(values) < len(column.held) and not all(map(str.isdigit, values))
    return (named and _ATTRIBUTE.fullmatch(column.name) is not None) or (
        repeated and name_of(values) in ("sex", "age")
    )


def _lies_within(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if places of one column lie in those of another, as names or codes tell."""
    return determines_key(fine, coarse) or _begins_anew(fine, coarse)


def _named_within(fine: SeenColumn, coarse: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True for two columns named as places, the larger first, that hold other names and do not cross in full."""
    ordered = [c for c in columns if c is fine or c is coarse] == [coarse, fine]
    if not ordered or not all(PLACE.fullmatch(c.name) for c in (fine, coarse)):
        return False
    pairs = _named_pairs(fine, coarse)
    own, above = ({pair[k] for pair in pairs} for k in (0, 1))
    return not own & above and 1 < len(pairs) < len(own) * len(above)


def _begins_anew(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if names or codes such as 001 begin anew in each place of another column, and places hold different ones."""
    pairs = _named_pairs(fine, coarse)
    names, above = Counter(a for a, _ in pairs), {b for _, b in pairs}
    if len(above) >= len(names) or len(pairs) == len(names) * len(above) or len(above) < 2:
        return False
    numbered = all(text.isdigit() for text in (*fine.held, *coarse.held)) and any(
        t[0] == "0" for t in fine.held
    )
    alone = sum(times == 1 for times in names.values())
    return numbered or (2 * alone >= len(names) and 3 * len(pairs) <= 2 * len(names) * len(above))


def _kind_of_place(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True for a column that names the level of each row, as the row's keys or their lengths confirm."""
    filled = [[bool(t) and not TOTAL.fullmatch(t) for t in other.texts] for other in others]
    lengths = [list(map(len, other.texts)) for other in others if " " not in "".join(other.texts)]
    if not others or "" in column.texts:
        return False
    if any(map(_LEVEL.fullmatch, column.held)) and _KIND_OF_PLACE.fullmatch(column.name):
        return any(determines_key(other, column) for other in others)
    if _ATTRIBUTE.fullmatch(column.name):
        return False
    ways = [
        list(zip(*filled)),
        list(zip(*[[bool(t) for t in other.texts] for other in others if "" in other.texts])),
        *([list(zip(length)) for length in lengths] if _KIND_OF_PLACE.fullmatch(column.name) else []),
    ]
    return any(
        1 < len(set(way)) == len(set(column.texts)) == len(set(zip(way, column.texts))) < len(way)
        for way in ways
    )


def determines_key(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if each value of a column goes with one value of another, blanks and totals aside."""
    pairs = _named_pairs(fine, coarse)
    return len(pairs) == len({a for a, _ in pairs}) and bool(pairs)


def _named_pairs(fine: SeenColumn, coarse: SeenColumn) -> set[tuple[str, str]]:
    """Return the pairs of values that stand in one row, blanks and totals aside."""
    pairs = zip(fine.texts, coarse.texts)
    return {(a, b) for a, b in pairs if a and b and not TOTAL.fullmatch(a) and not TOTAL.fullmatch(b)}


def _without_labels(columns: list[SeenColumn]) -> tuple[list[SeenColumn], list[str]]:
    """Return columns with one of each equivalent pair, and notes: the one that tells more rows apart, or the code."""
    kept, ignored = list(columns), []
    for one, other in _pairs(columns):
        if one in kept and other in kept and (_say_the_same(one, other, columns) or _names_codes(one, other)):
            code, label = sorted((one, other), key=_wordy)
            more, less = (told_rows([c for c in kept if c is not each]) for each in (code, label))
            left = code if more > less else label
            kept.remove(left)
            why = (
                "is blank for some of the places that another names"
                if left is code
                else "names what the other keys say"
            )
            ignored.append(f"column '{left.name}' {why}, and is left out")
    return kept, ignored


def _say_the_same(one: SeenColumn, other: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if the values of two columns pair off, or those of a code and its name do within each place above."""
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
    """Return True if one column names each row's code of the other, which holds all levels: a level of its own would nest."""
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


def _pairs(columns: list[SeenColumn]) -> Iterator[tuple[SeenColumn, SeenColumn]]:
    return ((a, b) for k, a in enumerate(columns) for b in columns[k + 1 :])


def _wordy(column: SeenColumn) -> tuple[float, float]:
    held = column.held
    blank = len(column.texts) - len(held)
    return (
        sum(not any(c.isdigit() for c in text) for text in held) / len(held),
        sum(map(len, held)) / len(held) - blank,
    )


def _counts_rows(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True if a column counts the rows, and another one tells them apart."""
    rows = len(column.texts)
    return column.texts == [str(k + 1) for k in range(rows)] and any(
        len(set(o.texts)) == rows > 1 for o in others
    )


def _numbers_rows(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True if a column has another value in every row, and others that cross tell rows apart without it."""
    rows = len(column.texts)
    if (
        len(others) < 2
        or len(set(column.texts)) < rows
        or any(len(set(other.texts)) == rows for other in others)
    ):
        return False
    apart = len(set(zip(*(other.texts for other in others)))) == rows
    return apart and any(
        len(set(zip(a.texts, b.texts))) == len(set(a.texts)) * len(set(b.texts)) for a, b in _pairs(others)
    )


def are_alike(one: SeenColumn, other: SeenColumn) -> bool:
    """Return True if the values of two columns pair off."""
    pairs = set(zip(one.texts, other.texts))
    return len(pairs) == len(set(one.texts)) == len(set(other.texts)) > 1


def told_rows(keys: list[SeenColumn]) -> int:
    """Return how many rows some columns of keys tell apart."""
    return len(set(zip(*(key.texts for key in keys))))
