"""Synthetic shapes for synthetic places: the unit square, divided in proportion to what lies in each place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEP = 1 / 96
"""Borders run along a grid of so many lines and are bent between its points: neighbours share every one of them."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def made_up_shapes(codes: Sequence[str], lengths: Sequence[int], name: str) -> dict[str, Any]:
    """Draw a shape for each place whose code is a prefix of others, and place those of one parent side by side.

    Parameters
    ----------
    codes
        Of the finest places: the more begin with a code, the larger is its shape.
    lengths
        Characters of the codes of each level, coarse to fine; places of the last have shapes.
    name
        The property that holds the code.

    Returns
    -------
    dict
        A GeoJSON FeatureCollection.

    Examples
    --------
    >>> found = made_up_shapes(["011", "012", "013", "021"], (2,), "area")
    >>> [feature["properties"]["area"] for feature in found["features"]]
    ['01', '02']
    """
    features = [
        {
            "type": "Feature",
            "properties": {name: code},
            "geometry": {"type": "Polygon", "coordinates": [_bent(box).tolist()]},
        }
        for code, box in _nested(sorted(codes), tuple(lengths), (0.0, 0.0, 1.5, 1.0))
    ]
    return {"type": "FeatureCollection", "features": features}


def _nested(codes: Sequence[str], lengths: tuple[int, ...], box: Box) -> Iterator[tuple[str, Box]]:
    if not lengths:
        return
    groups = [list(group) for _, group in groupby(codes, lambda code: code[: lengths[0]])]
    for group, part in _divided(groups, box):
        if len(lengths) == 1:
            yield group[0][: lengths[0]], part
        else:
            yield from _nested(group, lengths[1:], part)


def _divided(groups: list[list[str]], box: Box) -> Iterator[tuple[list[str], Box]]:
    """Halve a box across its longer side, near the middle of what lies in it, until each group has a part."""
    if len(groups) == 1:
        yield groups[0], box
        return
    sizes = np.cumsum([len(group) ** 0.6 for group in groups])
    cut = int(np.argmin(np.abs(sizes[:-1] - sizes[-1] / 2))) + 1
    share = sizes[cut - 1] / sizes[-1]
    left, bottom, right, top = box
    if right - left > top - bottom:
        middle = left + share * (right - left)
        parts = (left, bottom, middle, top), (middle, bottom, right, top)
    else:
        middle = bottom + share * (top - bottom)
        parts = (left, bottom, right, middle), (left, middle, right, top)
    for some, part in zip((groups[:cut], groups[cut:]), parts):
        yield from _divided(some, part)


def _bent(box: Box) -> NDArray[np.float64]:
    """Return the closed ring of a box, its sides bent by one smooth map of the plane."""
    left, bottom, right, top = box
    across, up = _interpolated(left, right), _interpolated(bottom, top)
    x = np.r_[across, np.full(len(up), right), across[::-1], np.full(len(up), left)]
    y = np.r_[np.full(len(across), bottom), up, np.full(len(across), top), up[::-1]]
    bent = np.column_stack(
        [x + 0.035 * np.sin(7 * y + 2 * x), y + 0.045 * np.sin(5 * x + 1) + 0.02 * np.sin(13 * y)]
    )
    return np.vstack([bent, bent[:1]]).round(5)


def _interpolated(low: float, high: float) -> NDArray[np.float64]:
    return np.r_[low, STEP * np.arange(np.floor(low / STEP) + 1, np.ceil(high / STEP)), high]
