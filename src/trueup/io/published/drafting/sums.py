"""Numbers of columns, their rounding base, and tests of noise laws against published sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.seen import SeenColumn, is_number
from trueup.io.published.perturbed.agreeing import values_under
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, read_number
from trueup.model.cells import Margin
from trueup.model.published_codes import INSTEAD
from trueup.model.records.measurements import Measurements
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
        return (
            f"'{self.label}' is published as {_ends(*self.own)}, and its parts by {self.parts} sum to {_ends(*self.sums)}; "
            f"{self.missed} of {self.compared} such sums are missed. Either {first}; or {second}"
        )


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


def base_of(found: Sequence[float], said: str) -> int | None:
    """Return the rounding base that titles state or values confirm, or None."""
    told = [int(base) for base in _BASE.findall(said) if 2 <= int(base) <= 1000] if "round" in said else []
    bases = [base for base in (1000, 100, 10, 5, 3) if all(x % base == 0 for x in found)]
    named = next((base for base in told if all(x % base == 0 for x in found)), None)
    several = bases and (bases[0] ** len({x for x in found if x}) >= 81 or len(found) >= 12)
    return named or (bases[0] if several else None)
