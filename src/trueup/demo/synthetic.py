"""A synthetic geography with skewed counts, in which no person or place is real."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED = 20200401
STATES, COUNTIES, TRACTS, BLOCKS = 3, 24, 420, 9_000
SEXES = ("female", "male")
AGES = ("0-17", "18-39", "40-64", "65+")
AGE_SHARES = np.array([0.22, 0.30, 0.32, 0.16])


def synthetic_blocks(seed: int = SEED) -> dict[str, NDArray]:
    """Return a table with one row for each block and one column for each sex and age group.

    Places have unequal numbers of children; a third of the blocks are empty, the others are
    lognormal with a long tail, and age structure differs between tracts.

    Examples
    --------
    >>> table = synthetic_blocks()
    >>> len(table["GEOID"]), sorted(table)[:3]
    (9000, ['GEOID', 'female_0_17', 'female_18_39'])
    """
    rng = np.random.default_rng(seed)
    tract_of, codes = _codes(rng)
    density = rng.lognormal(0, 0.6, TRACTS)[tract_of]
    occupied = rng.random(BLOCKS) > 0.33
    people = np.floor(occupied * density * rng.lognormal(3.3, 1.1, BLOCKS)).astype(np.int64)
    shares = rng.dirichlet(20 * np.outer([0.51, 0.49], AGE_SHARES).ravel(), TRACTS)
    counts = rng.multinomial(people, shares[tract_of])
    names = [f"{sex}_{age.replace('-', '_').replace('+', '')}" for sex in SEXES for age in AGES]
    return {"GEOID": codes, **{name: counts[:, i] for i, name in enumerate(names)}}


def _codes(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return the tract and the code of every block: 2 digits for state, 3 county, 6 tract, 4 block."""
    county_of = _children(rng, STATES, COUNTIES)
    tract_county = _children(rng, COUNTIES, TRACTS)
    tract_of = _children(rng, TRACTS, BLOCKS)
    state = [f"{90 + s:02d}" for s in county_of]
    county = [f"{state[c]}{2 * _rank(county_of, c) + 1:03d}" for c in range(COUNTIES)]
    tract = [f"{county[tract_county[t]]}{100 * (_rank(tract_county, t) + 1):06d}" for t in range(TRACTS)]
    first = np.searchsorted(tract_of, np.arange(TRACTS))
    return tract_of, np.array([f"{tract[t]}{1000 + b - first[t]:04d}" for b, t in enumerate(tract_of)])


def _children(rng: np.random.Generator, parents: int, children: int) -> NDArray[np.int64]:
    """Return the parent of every child, with at least one child for each parent."""
    extra = rng.multinomial(children - parents, rng.dirichlet(np.full(parents, 1.5)))
    return np.repeat(np.arange(parents), 1 + extra)


def _rank(parent: NDArray[np.int64], child: int) -> int:
    return int(child - np.searchsorted(parent, parent[child]))


BORDER_SPACING = 1 / 96
"""Spacing of the grid along which borders run; they bend only between its points, so neighbours share every point."""
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def made_up_shapes(codes: Sequence[str], lengths: Sequence[int], name: str) -> dict[str, Any]:
    """Draw a made-up shape for each place, so that places with the same parent are neighbours.

    Parameters
    ----------
    codes
        Codes of the finest places: the more begin with a code, the larger is its shape.
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
    """Divide a box into one box for each place, in proportion to the numbers of places."""
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
    """Return the closed outline of a box after a smooth deformation, which is the same for all boxes."""
    left, bottom, right, top = box
    across, up = _interpolated(left, right), _interpolated(bottom, top)
    x = np.r_[across, np.full(len(up), right), across[::-1], np.full(len(up), left)]
    y = np.r_[np.full(len(across), bottom), up, np.full(len(across), top), up[::-1]]
    bent = np.column_stack(
        [x + 0.035 * np.sin(7 * y + 2 * x), y + 0.045 * np.sin(5 * x + 1) + 0.02 * np.sin(13 * y)]
    )
    return np.vstack([bent, bent[:1]]).round(5)


def _interpolated(low: float, high: float) -> NDArray[np.float64]:
    return np.r_[
        low,
        BORDER_SPACING * np.arange(np.floor(low / BORDER_SPACING) + 1, np.ceil(high / BORDER_SPACING)),
        high,
    ]
