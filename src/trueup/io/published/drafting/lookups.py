"""Lists of places and their parents in separate files, for tables that name places by codes alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

from trueup.errors import DataError
from trueup.files import is_csv, is_parquet
from trueup.io.published.drafting.above import PARENT, WHOLE, PlacesAbove, whole_among
from trueup.io.published.drafting.keys import Pointers, columns_of_table
from trueup.io.published.drafting.pairs import are_alike, determines_key
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable
from trueup.model.tree import Tree


def places_looked_up(files: Sequence[str | Path], seen: Sequence[SeenTable]) -> PlacesAbove | None:
    """Return the parents of the places in the longest table from another file, or None."""
    longest = max(seen, key=lambda table: len(table.values[0].texts))
    if len(longest.places) != 1:
        return None
    lists = [(Path(file).name, _columns_of(file)) for file in files if Path(file).name != longest.file]
    for key in (*longest.places, *longest.attributes):
        table = with_listed_places(longest, frozenset(key.held))
        places = {text for text in key.held if not TOTAL.fullmatch(text)}
        for name, columns in lists if len(table.places) == 1 and table.places[0] is key else ():
            if key in longest.places and (pointed := _pointed(table, places, columns)):
                return _with_named_root(pointed, seen)
            own = next((c for c in columns if places <= {*c.texts} and len({*c.texts}) == len(c.texts)), None)
            others = [set(key.held) for t in seen if t.file not in (longest.file, name) for key in t.keys]
            above = _higher_level_columns(own, [c for c in columns if c is not own], others) if own else []
            if own and above and (placed := _placed(table, own, above)):
                return _with_named_root(placed, seen)
    return None


def _with_named_root(listed: PlacesAbove, seen: Sequence[SeenTable]) -> PlacesAbove:
    """Return a list of places whose top place has the code by which another table names the whole area."""
    names = {
        key.held[0]
        for table in seen
        for key in table.keys
        if key.name == listed.pointers.id and len(set(key.texts)) == 1
    } - listed.pointers.places
    if len(names) != 1:
        return listed
    renamed = {WHOLE: names.pop()}
    rows = [(renamed.get(place, place), renamed.get(above, above)) for place, above in listed.rows]
    pointers = listed.pointers._replace(places=frozenset(place for place, _ in rows))
    return listed._replace(pointers=pointers, rows=rows)


def _pointed(table: SeenTable, places: set[str], columns: Sequence[SeenColumn]) -> PlacesAbove | None:
    """Return the parents of a table's places from a list that has a column of parents, or else None."""
    for own, above in permutations(columns, 2):
        listed = [row for row, code in enumerate(own.texts) if code in places]
        if len(listed) != len(places) or len({own.texts[row] for row in listed}) < len(places):
            continue
        codes = [own.texts[row] for row in listed]
        names = _names_of(codes, [[c.texts[row] for row in listed] for c in columns if c not in (own, above)])
        parents = [_place_in(above.texts[row], own.texts[row], names) for row in listed]
        told = len(codes) - parents.count("")
        if not {""} < set(parents) or (
            told < 0.5 * len(codes) and not {above.texts[row] for row in listed} <= {*codes, ""}
        ):
            continue
        roots = [code for code, parent in zip(codes, parents) if not parent]
        whole = roots[0] if len(roots) == 1 else whole_among(roots, table) or WHOLE
        rows = [(code, parent or whole * (code != whole)) for code, parent in zip(codes, parents)]
        rows = [(WHOLE, ""), *rows] if whole == WHOLE else rows
        try:
            depth = len(Tree.from_parents(*zip(*rows)).levels)
        except DataError:  # circular
            continue
        pointers = Pointers(table.places[0].name, PARENT, frozenset(place for place, _ in rows), depth)
        return PlacesAbove(table, pointers, rows)
    return None


def _names_of(codes: Sequence[str], columns: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the code of each name in a list of places, where every code is also a name of itself."""
    titles = [(title.casefold(), code) for column in columns for title, code in zip(column, codes) if title]
    times = Counter(title for title, _ in titles)
    return {title: code for title, code in titles if times[title] == 1} | {
        code.casefold(): code for code in codes
    }


def _place_in(text: str, own: str, names: Mapping[str, str]) -> str:
    """Return the code of the other place that a text names, or an empty text if this is not clear."""
    words = re.findall(r"[\w.'’-]+", text.casefold())
    for size in range(min(len(words), 6), 0, -1):
        grams = (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
        if found := {names[gram] for gram in grams if gram in names} - {own}:
            return found.pop() if len(found) == 1 else ""
    return names.get(text.casefold(), "") if names.get(text.casefold()) != own else ""


def with_listed_places(table: SeenTable, places: frozenset[str]) -> SeenTable:
    """Return a table in which the column of listed places is the column of places."""
    keys = [*table.places, *table.attributes]
    listed = [key for key in keys if _are_listed(key, places)]
    if len(listed) != 1 or any(_are_listed(key, places) for key in table.places[-1:]):
        return table
    said = [text for text in table.ignored if not text.startswith("whether places stand in ")]
    return table._replace(
        places=listed, attributes=[key for key in keys if key is not listed[0]], ignored=said
    )


def _are_listed(key: SeenColumn, places: frozenset[str]) -> bool:
    held = {text for text in key.held if not TOTAL.fullmatch(text)}
    return bool(held) and held <= places


def without_list(seen: Sequence[SeenTable], listed: PlacesAbove) -> tuple[list[SeenTable], list[str]]:
    """Return the tables without those that are a list of places, and notes on these."""
    counted = {column.name for column in listed.table.values}
    told = {place for place, above in listed.rows if above}
    lists = [
        table
        for table in seen
        if table.file != listed.table.file
        and not counted & {column.name for column in table.values}
        and len([key for key in table.keys if told & set(key.held)]) > 1
    ]
    said = [
        f"'{table.file}' is taken for the list of places, and its numbers are left out" for table in lists
    ]
    return [table for table in seen if all(table is not each for each in lists)], said


def _columns_of(file: str | Path) -> list[SeenColumn]:
    path = Path(file)
    if not (is_csv(path) or is_parquet(path)):
        return []
    try:
        return columns_of_table(file)
    except DataError:  # no plain table
        return []


def _higher_level_columns(
    own: SeenColumn, columns: Sequence[SeenColumn], others: Sequence[set[str]]
) -> list[SeenColumn]:
    """Return the columns of a list that name higher levels, from fine to coarse."""
    coarse = [c for c in columns if "" not in c.texts and 1 < len(set(c.texts)) <= 0.7 * len(own.texts)]
    coarse.sort(key=lambda c: (-len(set(c.texts)), not any(held <= set(c.texts) for held in others)))
    found: list[SeenColumn] = []
    for column in coarse:
        if not any(are_alike(column, known) for known in found) and all(
            determines_key(f, column) for f in found
        ):
            found.append(column)
    return found if any(held <= set(c.texts) for held in others for c in found) else []


def _placed(table: SeenTable, own: SeenColumn, above: Sequence[SeenColumn]) -> PlacesAbove | None:
    levels = [own, *above]
    pairs = [pair for fine, coarse in zip(levels, above) for pair in zip(fine.texts, coarse.texts)]
    pairs += [(top, WHOLE) for top in above[-1].texts]
    rows = [(WHOLE, ""), *dict.fromkeys(pairs)]
    if len({place for place, _ in rows}) < len(rows):
        return None  # a name of two levels
    pointers = Pointers(table.places[0].name, PARENT, frozenset(place for place, _ in rows), len(levels) + 1)
    return PlacesAbove(table, pointers, rows)
