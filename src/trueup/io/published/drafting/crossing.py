"""Relations among a table's key columns: nested places, crossed attributes, labels and row numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from trueup.io.published.drafting.names import name_of
from trueup.io.published.drafting.pairs import (
    are_alike,
    determines_key,
    named_pairs,
    pairs_of,
    without_labels,
)
from trueup.io.published.drafting.seen import KEY, PLACE, TOTAL, SeenColumn, SeenTable
from trueup.model.toml import value_text

_ATTRIBUTE = re.compile(
    r"(.*[\W_])?(sex|gender|ages?|race|ethnic(ity)?|status|education|type|groups?|categor(y|ies)|kind|citizen(ship)?|nationality|"
    r"((country|place|region) of )?birth(place)?|naissance|geburts(land|ort)|geboorteland|födelseland|fødeland|nacimiento|"
    r"nascimento|nascita|syntymämaa|"
    r"tenure|income|geschlecht|alter|sex[eo]|sesso|kön|køn|kjønn|geslacht|gênero|edad|età|âge|leeftijd|alder|ålder|idade)([\W_].*)?",
    re.IGNORECASE,
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


def sorted_keys(
    bare: SeenTable, columns: list[SeenColumn], rows: int, outline: Sequence[str] = ()
) -> SeenTable:
    """Return a table with key columns sorted into places, attributes, and columns to leave out."""
    told = _telling_keys(bare, columns, rows)
    likely = _likely_places(told.attributes, rows) if told.attributes else []
    if not likely:
        return told
    placed = [c for c in likely if PLACE.fullmatch(c.name)]
    named = [label for label in told.labels if PLACE.fullmatch(label.name)]
    placed = placed or [c for c in likely if any(are_alike(c, label) for label in named)]
    finest = _finest_places(
        placed[0] if placed else max(likely, key=_distinct_texts), likely, told.attributes, outline
    )
    above, said = _places_above(finest, likely, told.attributes, outline)
    places = [*sorted(above, key=_distinct_texts), finest]
    crossed = [c.name for c in likely if c not in places and not _is_plainly_crossed(c, finest)]
    if not placed and crossed:
        said.append(
            f"whether places stand in '{finest.name}' or in '{crossed[0]}'; they are taken to stand in '{finest.name}'"
        )
    attributes = [c for c in told.attributes if c not in places]
    return told._replace(places=places, attributes=attributes, ignored=[*told.ignored, *said])


def _telling_keys(bare: SeenTable, columns: list[SeenColumn], rows: int) -> SeenTable:
    """Return a table with the keys that tell more than others as attributes, apart from labels and kinds of places."""
    same = [c for c in columns if len(set(c.texts)) == 1 and rows > 1]
    ignored = [c.left_out(f"says '{c.held[0]}' everywhere") for c in same]
    columns = [c for c in columns if len(set(c.texts)) > 1 or rows == 1]
    kinds = [c for c in columns if _kind_of_place(c, [o for o in columns if o is not c])]
    ignored += [c.left_out("says of which level a row is, as its keys do") for c in kinds]
    columns = [c for c in columns if c not in kinds]
    kept, said = without_labels(columns)
    ids = [c for c in kept if _numbers_rows(c, [o for o in kept if o is not c])]
    ignored += said + [c.left_out("numbers the rows") for c in ids]
    labels = [c for c in columns if c not in kept]
    attributes = [c for c in kept if c not in ids]
    return bare._replace(attributes=attributes, ignored=ignored, labels=labels, kinds=kinds)


def _distinct_texts(column: SeenColumn) -> int:
    return len(set(column.held))


def _finest_places(
    first: SeenColumn, likely: list[SeenColumn], columns: list[SeenColumn], outline: Sequence[str]
) -> SeenColumn:
    """Return the column of the smallest places within those of a first column."""
    under = [
        c
        for c in likely
        if _stands_in(c, first, columns) and (KEY.fullmatch(c.name) or _distinct_texts(first) > 1)
    ]
    finest = _finest(under, first)
    for c in likely:
        finest = c if _indents(finest, c, outline) else finest
    return finest


def _places_above(
    finest: SeenColumn, likely: list[SeenColumn], columns: list[SeenColumn], outline: Sequence[str]
) -> tuple[list[SeenColumn], list[str]]:
    """Return the columns of places in which the smallest ones lie, and a note where these may be an attribute's values."""
    others = [c for c in likely if c is not finest]
    lying = [c for c in others if _stands_in(finest, c, columns)]
    indented = [c for c in others if _indents(c, finest, outline) and c not in lying]
    above = [c for c in others if c in indented or c in lying]
    above += [c for c in others if c not in above and any(_lies_within(each, c) for each in indented)]
    return above, [
        f"'{finest.name}' is taken for places within those of '{c.name}', as other ones stand in each; if its values are of an "
        f"attribute, write `level` without it and level = {value_text(c.name)} in its entry, an [[attribute]] of its name and "
        'values, and its name in `attributes`; and unlisted = "unknown"'
        for c in indented[-1:]
    ]


def _stands_in(fine: SeenColumn, coarse: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if the places of one column lie in those of another, by their rows or by their names."""
    return _lies_within(fine, coarse) or _named_within(fine, coarse, columns)


def _likely_places(columns: list[SeenColumn], rows: int) -> list[SeenColumn]:
    """Return the key columns that may name places, or an empty list if all name attributes."""
    if rows == 1:
        return columns
    names = [c.name for c in columns]  # both parts of a column of places and values have its name
    single = [c for at, c in enumerate(columns) if c.name not in names[:at]]
    likely = [c for c in single if not _tells_attribute(c, named=names.count(c.name) == 1)]
    if likely or len(columns) > 1:
        return likely
    # With more values than sexes, the name of another attribute stands above places.
    of_sex = re.search(r"sex|gender", columns[0].name, re.IGNORECASE) and len(columns[0].held) > 3
    return columns if of_sex or len(set(columns[0].texts)) < rows else []


def _is_plainly_crossed(column: SeenColumn, places: SeenColumn) -> bool:
    """Return True if a column has two or three values that occur in every one of many places, as sexes do."""
    pairs = named_pairs(places, column)
    own, values = {a for a, _ in pairs}, {b for _, b in pairs}
    return len(values) <= 3 and 3 * len(values) <= len(own) and len(pairs) == len(own) * len(values)


def _finest(under: list[SeenColumn], above: SeenColumn) -> SeenColumn:
    """Return the column of the smallest places, which lie within the places of most other columns."""

    def within(column: SeenColumn) -> int:
        others = [other for other in under if other is not column and not determines_key(other, column)]
        return sum(_lies_within(column, other) for other in others)

    return max(
        under,
        key=lambda c: (within(c), len(set(c.held)), not determines_key(above, c)),
        default=above,
    )


def _tells_attribute(column: SeenColumn, *, named: bool) -> bool:
    """Return True if a column names an attribute, judged by its name or by repeated ages or sexes."""
    values = [text for text in dict.fromkeys(column.held) if not TOTAL.fullmatch(text)]
    worded = [text for text in values if any(map(str.isalnum, text))]
    repeated = 1 < len(values) < len(column.held) and not all(map(str.isdigit, worded))
    return (named and _ATTRIBUTE.fullmatch(column.name) is not None) or (
        repeated and name_of(values) in ("sex", "age", "size")
    )


def _lies_within(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if each place of one column lies in one place of another, judged by names or codes."""
    of_total = {own for own, above in zip(fine.texts, coarse.texts) if TOTAL.fullmatch(above)}
    if any(own in of_total for own, _ in named_pairs(fine, coarse)):
        return False  # a place that has a total over the other column is in each of its values
    return determines_key(fine, coarse) or _begins_anew(fine, coarse)


def _named_within(fine: SeenColumn, coarse: SeenColumn, columns: list[SeenColumn]) -> bool:
    """Return True if two columns of place names, of which the first names larger places, are nested."""
    ordered = [c for c in columns if c is fine or c is coarse] == [coarse, fine]
    if not ordered or not all(PLACE.fullmatch(c.name) for c in (fine, coarse)):
        return False
    pairs = named_pairs(fine, coarse)
    own, above = ({pair[k] for pair in pairs} for k in (0, 1))
    return not own & above and 1 < len(pairs) < len(own) * len(above)


def _indents(coarse: SeenColumn, fine: SeenColumn, outline: Sequence[str]) -> bool:
    """Return True if one of two columns of an outline names places within those of the other."""
    if not {coarse.name, fine.name} <= {*outline} or outline.index(coarse.name) >= outline.index(fine.name):
        return False
    pairs = named_pairs(fine, coarse)
    own, above = ({pair[k] for pair in pairs} for k in (0, 1))
    return len(above) > 1 and 3 * len(pairs) <= 2 * len(own) * len(above)


def _begins_anew(fine: SeenColumn, coarse: SeenColumn) -> bool:
    """Return True if codes such as 001 start again within each place of another column."""
    pairs = named_pairs(fine, coarse)
    names, above = Counter(a for a, _ in pairs), {b for _, b in pairs}
    if len(above) >= len(names) or len(pairs) == len(names) * len(above) or len(above) < 2:
        return False
    numbered = all(text.isdigit() for text in (*fine.held, *coarse.held)) and any(
        t[0] == "0" for t in fine.held
    )
    alone = sum(times == 1 for times in names.values())
    return numbered or (2 * alone >= len(names) and 3 * len(pairs) <= 2 * len(names) * len(above))


def _kind_of_place(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True if a column only states the level of the place in each row."""
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


def _numbers_rows(column: SeenColumn, others: list[SeenColumn]) -> bool:
    """Return True if a column numbers the rows, which other columns identify without it."""
    rows = len(column.texts)
    if (
        len(others) < 2
        or len(set(column.texts)) < rows
        or any(len(set(other.texts)) == rows for other in others)
    ):
        return False
    apart = len(set(zip(*(other.texts for other in others)))) == rows
    return apart and any(
        len(set(zip(a.texts, b.texts))) == len(set(a.texts)) * len(set(b.texts)) for a, b in pairs_of(others)
    )
