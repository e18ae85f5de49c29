"""Numbers of columns, tests of noise laws against published sums, and sums that a draft leaves out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.keys import Draft, DraftedTable
from trueup.io.published.drafting.seen import TOTAL, SeenColumn, SeenTable, is_number
from trueup.io.published.perturbed.agreeing import values_under
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, read_number
from trueup.model.cells import Margin
from trueup.model.published_codes import INSTEAD
from trueup.model.records.measurements import Measurements
from trueup.model.toml import inline_table, value_text
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import CountInterval


def column_numbers(column: SeenColumn) -> list[float | None]:
    """Return the number in each cell of a column, or None for cells with other texts."""
    ways = []
    for by in (ENGLISH, CONTINENTAL):
        read = [None if INSTEAD.fullmatch(text) else read_number(text, by) for text in column.texts]
        if sum(x is not None for x in read) * 2 >= sum(map(is_number, column.held)):
            ways.append([None if x is None else float(x) for x in read])
    if len(ways) < 2 or (column.point and ways[0].count(None) <= ways[1].count(None)):
        return ways[0] if ways else [None for _ in column.texts]
    return min(ways, key=lambda way: (way.count(None), not all(x is None or x == int(x) for x in way)))


class SumMissed(NamedTuple):
    """A published total that the noise laws of the table do not allow, given its published parts.

    Attributes
    ----------
    label, own, sums
        The total whose parts are farthest off for its size, and the least and the most that it and its parts' sum may be.
    parts
        Attributes or level by which its parts are distinguished.
    missed, compared
        Number of totals that are missed, and number compared.
    levels
        Levels whose rows one entry has, if the total and its parts are of two of them.
    listed
        True if the total and its parts are of two levels that a list of places distinguishes.
    """

    label: str
    own: tuple[float, float]
    sums: tuple[float, float]
    parts: str
    missed: int
    compared: int
    levels: tuple[str, ...] = ()
    listed: bool = False

    def said(self) -> str:
        """Return a note on the contradiction between total and parts, with its possible causes."""
        far = max(self.sums[0] - self.own[1], self.own[0] - self.sums[1]) > 3 + 0.1 * self.own[1]
        law = (
            "values are not exact: name their law (docs/perturbed.md lists laws, even noise from -k to k too), and where some "
            "are (totals, perhaps), give these an entry of their own"
        )
        if self.levels:
            names = ", ".join(f"'{level}'" for level in self.levels)
            law += f" (levels that have laws of their own: an entry for each of {names}, alike but for `name`, `level` and `law`)"
        layout = (
            "a row or column is no part, or no total, of what it is read as (a sum of some others, a part of one, no count, "
            "another period): leave it out by `only` or out of `cell`, or name it in `total`"
        )
        if self.listed:
            layout += "; or a place stands below another than its own in the list of places: correct the list"
        first, second = (layout, law) if far else (law, layout)
        return f"{self.sums_said()}; {self.missed} of {self.compared} such sums are missed. Either {first}; or {second}"

    def sums_said(self) -> str:
        """Return what is published of the total, and what its parts sum to."""
        return f"'{self.label}' is published as {_ends(*self.own)}, and its parts by {self.parts} sum to {_ends(*self.sums)}"


def _ends(low: float, high: float) -> str:
    return f"{low:,g}" if low == high else f"{low:,g} or more" if np.isinf(high) else f"{low:,g} to {high:,g}"


def sums_missed(measured: Measurements, law: str) -> SumMissed | None:
    """Return a published total that the noise laws do not allow, given its parts; None if there is none."""
    cells = measured.cells
    ends: dict[Margin, NDArray[np.float64]] = {}
    shown: dict[Margin, NDArray[np.bool_]] = {}
    for header, values, margin, groups in values_under(measured, (law, Exact.name, CountInterval.name)):
        size = cells.size(margin)
        every = ends.setdefault(margin, np.array([[0.0] * size, [np.inf] * size]))
        every[:, groups] = [np.asarray(end, float) for end in header.law.bounds(values)]
        shown.setdefault(margin, np.zeros(size, bool))[groups] |= header.law.name == law
    for total, (low, high) in ends.items():
        for parts, (least, most) in ends.items():
            if parts != total and shown[parts].any() and cells.contains(total, parts):
                group = cells.groups(parts, total)
                sums = [np.bincount(group, end, len(low)) for end in (least, most)]
                off = np.maximum(sums[0] - high, low - sums[1])
                if (off > 0).any():
                    worst = int((off / np.maximum(low, 1.0)).argmax())
                    told = sorted(set(parts.attributes) - set(total.attributes))
                    told += [f"level '{parts.level}'"] * (parts.level != total.level)
                    own, of_parts = ((float(a[worst]), float(b[worst])) for a, b in ((low, high), sums))
                    return SumMissed(
                        cells.margin_label(total, worst),
                        own,
                        of_parts,
                        " and ".join(told),
                        int((off > 0).sum()),
                        int(np.isfinite(high).sum()),
                        tuple(_levels_of_one_entry(measured, total.level, parts.level)),
                        parts.level != total.level and getattr(measured.spec, "parents", None) is not None,
                    )
    return None


def _levels_of_one_entry(measured: Measurements, *levels: str) -> list[str]:
    """Return those of the given levels that a single entry of a spec describes, if one describes all."""
    shown: dict[str, set[str]] = {}
    for header in measured.headers:
        shown.setdefault(header.query, set()).add(header.margin.level)
    held = next(
        (each for each in shown.values() if len({*levels}) > 1 and each.issuperset(levels)), set[str]()
    )
    return [level for level in measured.cells.tree.levels if level in held]


_BASE = re.compile(r"(?:base(?: of)?|nearest|multiples? of|to)\s+(\d{1,4})", re.IGNORECASE)


def base_of(found: Sequence[float], said: str, rare: int = 81) -> int | None:
    """Return the rounding base that titles state or values confirm, or None.

    Values confirm it if numbers are its multiples by chance only once in so many tables as `rare` says. Of fewer than ten
    values, equal ones are taken for one. Zeros tell nothing.
    """
    told = [int(base) for base in _BASE.findall(said) if 2 <= int(base) <= 1000] if "round" in said else []
    bases = [base for base in (1000, 100, 10, 5, 3) if all(x % base == 0 for x in found)]
    named = next((base for base in told if all(x % base == 0 for x in found)), None)
    held = [x for x in found if x]
    times = len({*held}) if len(held) < 10 else 10
    return named or (bases[0] if bases and bases[0] ** times >= rare else None)


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
