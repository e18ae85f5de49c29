"""Values of cells with the same records, which cell keys perturb equally: used once.

A count of which one part alone is not zero has that part's records, hence its key and its published value. It tells
nothing that the part's value does not, and would be taken for a second measurement. Which parts are zero is not published;
where all parts but one are published as zero, and that one with the value of the whole, the whole is left out. Where another
part is not zero in truth, what the whole's value says is left unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements


def measured_once(measured: Measurements) -> tuple[Measurements, int]:
    """Leave out values that repeat that of their only part; return the rest, and how many were left out.

    Examples
    --------
    See `tests/inferring/test_same_records.py`.
    """
    keys = {part.name: part.key for part in getattr(measured.spec, "published", ())}
    every = [
        (header, values)
        for header, values in zip(measured.headers, measured.values)
        if header.law.same_records
    ]
    headers, found, left_out = [], [], 0
    for header, values in zip(measured.headers, measured.values):
        keyed = [pair for pair in every if keys.get(pair[0].query) == keys.get(header.query)]
        keep = ~_repeated(measured.cells, header, values, keyed)
        left_out += len(keep) - int(keep.sum())
        if not keep.all():
            groups = np.arange(len(keep)) if header.groups is None else header.groups
            header, values = replace(header, groups=groups[keep]), values[keep]
        if len(values):
            headers.append(header)
            found.append(values)
    if not left_out:
        return measured, 0
    return replace(measured, headers=tuple(headers), values=tuple(found)), left_out


def _repeated(
    cells: Cells, header: Measured, values: NDArray, keyed: list[tuple[Measured, NDArray]]
) -> NDArray[np.bool_]:
    """Return a mask of values that some finer margin under the same law repeats in one part, with zeros in all others."""
    repeated, size = np.zeros(len(values), bool), cells.size(header.margin)
    at = slice(None) if header.groups is None else header.groups
    for parts, shown in _finer(cells, header, keyed):
        every = cells.groups(canonical(cells, parts.margin), canonical(cells, header.margin))
        of = every if parts.groups is None else every[parts.groups]
        all_shown = np.bincount(of, minlength=size) == np.bincount(every, minlength=size)
        same = (np.bincount(of, shown != 0, size) == 1) & all_shown
        repeated |= same[at] & (np.bincount(of, shown, size)[at] == values)
    return repeated


def _finer(
    cells: Cells, header: Measured, keyed: list[tuple[Measured, NDArray]]
) -> Iterator[tuple[Measured, NDArray]]:
    coarse = canonical(cells, header.margin)
    for other, shown in keyed:
        fine = canonical(cells, other.margin)
        if _drawn_by(other.law) == _drawn_by(header.law) and fine != coarse and cells.contains(coarse, fine):
            yield other, shown


def _drawn_by(law: Any) -> Any:
    """Return the law of the perturbation, without what is hidden before it."""
    return getattr(law, "law", law)
