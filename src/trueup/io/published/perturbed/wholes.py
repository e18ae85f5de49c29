"""Places of a level that seem to be the whole of the others: a published total read as one more place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements

MIN_PLACES = 4
"""One of three places is near the sum of the two others by chance."""
MIN_COUNTS = 30
"""The sum of the others that each column needs, in all columns together."""


def wholes_among_parts(measured: Measurements) -> Iterator[str]:
    """Yield a note for each level of which one place is, in every column, about the sum of all others."""
    cells = measured.cells
    for level, size in zip(cells.tree.levels, cells.tree.sizes):
        if size < MIN_PLACES:
            continue
        own = [h for h in measured.headers if h.margin.level == level]
        margins = dict.fromkeys(canonical(cells, h.margin) for h in own)
        near, seen = np.ones(size, bool), 0.0
        for margin in margins:
            shown = measured.shown(margin).reshape(size, -1)
            variance = max(h.law.variance for h in own if canonical(cells, h.margin) == margin)
            agrees, counts = _near_rest(shown, variance)
            near, seen = near & agrees, seen + counts
        for place in np.flatnonzero(near & (seen >= MIN_COUNTS)).tolist()[:1]:
            yield (
                f"'{cells.tree.label(level, place)}' is about the sum of the {size - 1:,} other places of level '{level}' in "
                "every column: if it is their whole, say so in its table, `total = { ... }`, or all is counted twice."
            )


def _near_rest(shown: NDArray, variance: float) -> tuple[NDArray[np.bool_], NDArray]:
    """Return which places `(places,)` are near the sum of the others in each column that is wholly shown, and that sum."""
    whole = np.asarray(shown[:, ~np.ma.getmaskarray(shown).any(axis=0)], float)
    rest = whole.sum(axis=0) - whole
    off = np.abs(whole - rest)
    allowed = 4 * np.sqrt(len(whole) * variance)
    near = (off <= allowed) & (off <= np.maximum(3, 0.1 * rest))
    return near.all(axis=1), rest.sum(axis=1)
