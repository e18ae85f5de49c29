"""Numbers of columns, bases of their rounding, and laws that published sums exclude."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.io.published.drafting.seen import SeenColumn, is_number
from trueup.io.published.perturbed.numbers import CONTINENTAL, ENGLISH, read_number
from trueup.model.cells import Margin
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import CountInterval


def column_numbers(column: SeenColumn) -> list[float | None]:
    """Return the numbers of a column in the convention that reads most of them, whole if possible; None for others."""
    ways = []
    for by in (ENGLISH, CONTINENTAL):
        read = [read_number(text, by) for text in column.texts]
        if sum(x is not None for x in read) * 2 >= sum(map(is_number, column.held)):
            ways.append([None if x is None else float(x) for x in read])
    if len(ways) < 2 or (column.point and ways[0].count(None) <= ways[1].count(None)):
        return ways[0] if ways else [None for _ in column.texts]
    return min(ways, key=lambda way: (way.count(None), not all(x is None or x == int(x) for x in way)))


def sums_exclude(measured: Measurements, law: str) -> bool:
    """Return True if no counts that a law allows for parts sum to one that it, or an exact value, allows for their total."""
    cells = measured.cells
    ends: dict[Margin, NDArray[np.float64]] = {}
    shown: dict[Margin, NDArray[np.bool_]] = {}
    for header, values in zip(measured.headers, measured.values):
        if header.law.name not in (law, Exact.name, CountInterval.name):
            continue
        margin, size = canonical(cells, header.margin), cells.size(header.margin)
        groups = np.arange(size) if header.groups is None else np.asarray(header.groups)
        every = ends.setdefault(margin, np.array([[0.0] * size, [np.inf] * size]))
        every[:, groups] = [np.asarray(end, float) for end in header.law.bounds(values)]
        shown.setdefault(margin, np.zeros(size, bool))[groups] |= header.law.name == law
    for total, (low, high) in ends.items():
        for parts, (least, most) in ends.items():
            if parts != total and shown[parts].any() and cells.contains(total, parts):
                group = cells.groups(parts, total)
                sums = [np.bincount(group, end, len(low)) for end in (least, most)]
                if ((sums[0] > high) | (sums[1] < low)).any():
                    return True
    return False


_BASE = re.compile(r"(?:base(?: of)?|nearest|multiples? of|to)\s+(\d{1,4})", re.IGNORECASE)


def base_of(found: Sequence[float], said: str) -> int | None:
    """Return the base of a rounding: one that titles state or enough values confirm, dividing all values."""
    told = [int(base) for base in _BASE.findall(said) if 2 <= int(base) <= 1000] if "round" in said else []
    bases = [base for base in (1000, 100, 10, 5, 3) if all(x % base == 0 for x in found)]
    named = next((base for base in told if all(x % base == 0 for x in found)), None)
    several = bases and (bases[0] ** len({x for x in found if x}) >= 81 or len(found) >= 12)
    return named or (bases[0] if several else None)
