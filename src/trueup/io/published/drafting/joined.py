"""Several tables as one population: their levels, their attributes, and each file's names for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from trueup.io.published.drafting.apart import told_apart, within_their_labels
from trueup.io.published.drafting.codes import code_lengths, without_parts
from trueup.io.published.drafting.keys import (
    Draft,
    DraftedKey,
    DraftedTable,
    Pointers,
    attribute_of,
    is_repeated,
    lacks_above,
    lacks_below,
    spec_value,
)
from trueup.io.published.drafting.names import OF_WHICH, name_of
from trueup.io.published.drafting.seen import TOTAL, YEAR, SeenColumn, SeenTable
from trueup.io.published.drafting.sums import summed_groups, summing
from trueup.io.published.drafting.wholes import summing_value, whole_keys


def joined(seen: Sequence[SeenTable], pointers: Pointers | None = None) -> Draft:
    """Find levels and attributes that tables share; take levels from pointers to parent places if there are any."""
    undecided = [f"'{t.file}': {said}" for t in seen for said in t.ignored]
    if pointers is not None:
        seen = [without for t in seen if (without := _without(t, pointers.parent)).values]
    block = None
    if pointers is None:
        seen, block = within_their_labels(seen, undecided)
    seen = _by_one_name(seen)
    longest = max(seen, key=lambda t: (len(t.places), max((len(set(c.held)) for c in t.places), default=0)))
    levels = [DraftedKey("all", "")]
    whole = set(whole_keys(longest).values())
    for column in longest.places:
        levels += _levels_of(column, undecided, whole, last=column is longest.places[-1])
    for level in levels:
        level.of = block if block and level.column == block.name else level.of
    if pointers is not None:
        levels = [DraftedKey(f"level {k}", pointers.id, of=_pointed(pointers)) for k in range(pointers.depth)]
    attributes: list[DraftedKey] = []
    listed = pointers.places if pointers else frozenset[str]()
    entries = [_drafted_table(table, levels, attributes, undecided, listed) for table in seen]
    entries = told_apart(entries, attributes, undecided)
    return Draft(levels, attributes, entries, undecided, pointers)


def _by_one_name(seen: Sequence[SeenTable]) -> list[SeenTable]:
    """Name places by a label where another table has no codes of theirs, but these labels."""
    alone = [column for table in seen for column in table.places[-1:] if not table.labels]
    found = []
    for table in seen:
        for label in table.labels if table.places else ():
            same = [
                column
                for column in alone
                if len(set(column.held) & set(label.held)) > 0.5 * len(set(label.held))
            ]
            if same and not any(_same(column, table.places[-1]) for column in alone):
                table = table._replace(places=[*table.places[:-1], label], labels=())
        found.append(table)
    return found


def _without(table: SeenTable, name: str) -> SeenTable:
    """Return a table without the column of a name."""
    places, attributes, values = (
        [column for column in columns if column.name != name]
        for columns in (table.places, table.attributes, table.values)
    )
    return table._replace(places=places, attributes=attributes, values=values)


def _pointed(pointers: Pointers) -> SeenColumn:
    return SeenColumn(pointers.id, (pointers.id,), sorted(pointers.places))


def _levels_of(column: SeenColumn, said: list[str], whole: set[str], *, last: bool) -> Iterator[DraftedKey]:
    """Yield the levels of a column: one, or one for each length of code that is a prefix of others."""
    codes = sorted({text for text in column.held if not TOTAL.fullmatch(text)} - whole)
    lengths = code_lengths(codes) if last else []
    short = without_parts(codes, lengths)
    if short:
        said.append(
            f"the codes {', '.join(short[:4])} of '{column.name}' have no parts below; they are taken for places without parts"
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
    columns: dict[str, str] = {}
    totals: dict[str, str] = {}
    level, found = "all", False
    whole = {} if listed else whole_keys(table)
    if not all(map(TOTAL.fullmatch, whole.values())):
        undecided.append(
            f"'{table.file}': '{'/'.join(whole.values())}' is near the sum of all finest places and is taken for their whole; "
            "if it is one beside them, leave its `total` out"
        )
    for place in table.places:
        known = [d for d in reversed(levels) if d.of is not None and _same(d.of, place)]
        at = next((d for d in known if d.column == place.name), known[0] if known else None)
        if at is None:
            undecided.append(f"'{table.file}': nothing tells which level '{place.name}' is; it is left out")
            continue
        level, found = at.name, True
        if at.column != place.name:
            columns[at.column] = place.name
        if listed.issuperset(place.held):
            continue
        if label := _total_of(place) or whole.get(place.name):
            totals[at.column] = label
        is_last = place is table.places[-1]
        if not at.prefix and at.column not in totals and (is_last or "" in table.places[-1].texts):
            root = _root_of(at.column, place) if is_last else {}
            totals |= root or _summing(at.column, place, table, undecided, totals)
    if table.places and not found:
        undecided.append(f"'{table.file}': its places are none of the other tables'")
    named = []
    for column in table.attributes:
        values = [t for t in dict.fromkeys(column.held) if not TOTAL.fullmatch(t)]
        unnamed = re.fullmatch(r"column \d+", column.name) or column.name in [
            place.name for place in table.places
        ]
        drawn = attribute_of(attributes, name_of(values) if unnamed else column.name, values)
        if drawn.column != column.name:
            columns[drawn.column] = column.name
        if label := _total_of(column):
            totals[drawn.column] = label
        totals |= (summed := _summing(drawn.column, column, table, undecided, totals))
        drawn.values = [value for value in drawn.values if value not in summed.values()]
        named.append(drawn.name)
    cells = [] if len(table.values) == 1 else list(attribute_cells(table, attributes, undecided))
    of_codes = [d for d in levels if d.prefix]
    ragged = bool(of_codes) and of_codes[-1] is levels[-1] and level == levels[-1].name
    lacks = any(lacks_above(upper, table.places[-1], totals) for upper in table.places[:-1])
    lacks = lacks or any(
        lacks_below(upper, table.places[-1], totals) for upper in table.places[:-1] if not table.constant
    )
    fill = table.fill or (lacks and not any(is_repeated(upper) for upper in table.places[:-1]))
    return DraftedTable(table, level, cells, named, columns, totals, ragged or (lacks and not fill), fill)


def _root_of(name: str, column: SeenColumn) -> dict[str, str]:
    """Return the code of places with which all others begin, as the one that stands for their sum."""
    codes = sorted(set(column.held))
    first = codes[0] if len(codes) > 2 else "1"
    rooted = first != "1" and " " not in "".join(codes) and all(code.startswith(first) for code in codes)
    return {name: first} if rooted else {}


def _summing(
    name: str, column: SeenColumn, table: SeenTable, undecided: list[str], totals: Mapping[str, str]
) -> dict[str, str]:
    """Return the value of a column of keys whose numbers are the sums of the others, if no word marks a total."""
    if name in totals or (summed := summing_value(column, table)) is None:
        return {}
    beside = "if it is one beside them, leave its `total` out"
    other = f"if it is their whole, give its entry `total = {{ {json.dumps(name)} = {json.dumps(summed.value)} }}`"
    near = f"may be the sum of the other values of '{name}', but is not everywhere ({summed.differs}),"
    near = near if summed.differs else f"is near the sum of the other values of '{name}'"
    undecided.append(
        f"'{table.file}': '{summed.value}' {near} and is taken for "
        + (f"their whole; {beside}" if summed.taken else f"one beside them; {other}")
    )
    return {name: summed.value} if summed.taken else {}


def _same(one: SeenColumn, other: SeenColumn) -> bool:
    a, b = set(one.held), set(other.held)
    named = one.name.casefold() == other.name.casefold() or (one.path == other.path and any(one.path))
    return named or len(a & b) >= 0.5 * min(len(a), len(b))


def _total_of(column: SeenColumn) -> str | None:
    return column.blank or next((text for text in column.held if TOTAL.fullmatch(text)), None)


_CODE = re.compile(r"(?=.*[A-Za-z])(?=.*\d)[\w.-]+")
Cell = tuple[SeenColumn, dict[str, str]]


def attribute_cells(table: SeenTable, attributes: list[DraftedKey], undecided: list[str]) -> Iterator[Cell]:
    """Yield each column with the values of attributes that it is of, which are declared if they are new."""
    paths = _telling_paths([column.path for column in table.values])
    columns = [c._replace(path=path) for c, path in zip(table.values, _parted(paths))]
    if (grid := _grid(columns)) is not None:
        drawn = [attribute_of(attributes, name_of(values), values) for values in grid]
        _say_unnamed(table, drawn, undecided)
        for column in columns:
            yield column, _where(column, grid, drawn)
        return
    total = next((c for c in columns if TOTAL.fullmatch(c.path[-1]) or TOTAL.fullmatch(c.path[0])), None)
    total = total or summing(columns)
    among = columns[0] if total is None and all(map(_is_of_which, columns[1:])) else None
    total = total or among
    if total is not None:
        yield total, {}
    rest = [c for c in columns if c is not total]
    for group in _attribute_groups(rest, total):
        drawn = attribute_of(attributes, _group_name(group), [c.path[-1] for c in group])
        if among is not None or (total is not None and len(group) == 1):
            drawn.values.append(next(n for n in ("other", "all others", "rest") if n not in drawn.values))
        _say_unnamed(table, [drawn], undecided)
        for column in group:
            yield column, {drawn.name: spec_value(drawn, column.path[-1])}


def _parted(paths: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return names that join the values of two attributes in two parts, if every combination has a name.

    Examples
    --------
    >>> _parted([("m_young",), ("m_old",), ("f_young",), ("f_old",), ("total",)])
    [('m', 'young'), ('m', 'old'), ('f', 'young'), ('f', 'old'), ('total',)]
    """
    if len(paths) < 4 or any(len(path) > 1 for path in paths):
        return paths
    for sign in (" / ", " - ", ", ", "; ", ": ", "|", "_", " ", "-"):
        for parted in (str.partition, str.rpartition):
            ways = [parted(path[0], sign) for path in paths]
            found = [
                (way[0].strip(), way[2].strip()) if way[0] and way[2] else path
                for way, path in zip(ways, paths)
            ]
            if _grid([SeenColumn("", path, []) for path in found]) is not None:
                return found
    return paths


def _telling_paths(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the names above each column without header rows that are the same for all, such as a unit.

    Examples
    --------
    >>> _telling_paths([("2022", "Men", "number"), ("2022", "Women", "number")])
    [('Men',), ('Women',)]
    >>> _telling_paths([("B01_001E", "Total"), ("B01_002E", "Total", "Male")])
    [('Total',), ('Male',)]
    """
    below = [path[1:] for path in paths]
    if all(below) and len(set(below)) == len(paths) and all(_CODE.fullmatch(path[0]) for path in paths):
        paths = below
    shared = set.intersection(*map(set, paths)) if len(paths) > 1 else set()
    return [tuple(name for name in path if name not in shared) or path[-1:] for path in paths]


def _grid(columns: Sequence[SeenColumn]) -> list[list[str]] | None:
    """Return the values of two attributes of which every combination has a column, or None if the columns are no such grid."""
    pairs = [c.path for c in columns if len(c.path) == 2]
    upper = list(dict.fromkeys(path[0] for path in pairs))
    lower = [[path[1] for path in pairs if path[0] == name] for name in upper]
    alone = [c.path for c in columns if len(c.path) != 2]
    beside = all(len(path) == 1 and (path[0] in upper or TOTAL.fullmatch(path[0])) for path in alone)
    if len(upper) < 2 or any(names != lower[0] for names in lower) or not beside:
        return None
    values = [[name for name in names if not TOTAL.fullmatch(name)] for names in (upper, lower[0])]
    return values if all(len(names) > 1 for names in values) else None


def _where(column: SeenColumn, grid: Sequence[Sequence[str]], drawn: Sequence[DraftedKey]) -> dict[str, str]:
    """Return the values of a column of a grid; a sum over an attribute has none of it."""
    return {
        each.name: spec_value(each, name)
        for name, values, each in zip(column.path, grid, drawn)
        if name in values
    }


def _is_of_which(column: SeenColumn) -> bool:
    return OF_WHICH.match(column.path[-1].casefold()) is not None


def _attribute_groups(rest: Sequence[SeenColumn], total: SeenColumn | None) -> list[list[SeenColumn]]:
    """Return the columns of each attribute: those below one name, or a group that sums to the total."""
    upper = list(dict.fromkeys(c.path[0] for c in rest if len(c.path) > 1))
    groups = [[c for c in rest if c.path[0] == name] for name in upper if len(upper) * 2 <= len(rest)]
    flat = [c for c in rest if not any(c in group for group in groups)]
    return groups + (summed_groups(flat, total) if total and flat else [flat] if flat else [])


def _group_name(group: Sequence[SeenColumn]) -> str:
    above = {c.path[0] for c in group if len(c.path) > 1}
    named = len(above) == 1 and not YEAR.fullmatch(min(above))
    return min(above) if named else name_of([c.path[-1] for c in group])


def _say_unnamed(table: SeenTable, drawn: Sequence[DraftedKey], undecided: list[str]) -> None:
    undecided += [
        f"'{table.file}': what tells the columns {', '.join(each.values[:4])} apart; they are values of '{each.name}'"
        for each in drawn
        if each.name.startswith("category")
    ]
