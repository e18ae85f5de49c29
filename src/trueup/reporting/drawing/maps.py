"""Maps of places: outlines are read, matched with a level, and shaded by margin of error.

Corners are rounded to a grid one by one: neighbours round a common border to the same points, so that simplified shapes
still fit together. Points that repeat, or lie between two others on a straight line, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, radians
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.model.cells import Cells
from trueup.model.tables import place_keys
from trueup.reporting.drawing import Map, Shape
from trueup.reporting.drawing.words import number, percent, plain

WIDTHS = (1920, 960, 640, 400, 240)
"""Grids that are tried, until the map is small enough."""
MAX_COORDINATE = 1e9
"""Largest coordinate: metres of a grid that covers the earth have less."""
_POLYGONS = ("Polygon", "MultiPolygon")
MAX_OUTLINE_CHARACTERS = 2_500_000
"""Characters of all shapes together."""
SHADES = (0.01, 0.03, 0.1, 0.3)
"""Margins of error, as shares of the released count, at which the shade changes."""
MOST_NAMED = 5
"""Places and shapes without each other that are named."""
Ring = NDArray[np.float64]


@dataclass(frozen=True)
class Outlines:
    """Outlines of the places of a level, on a grid of integers.

    Attributes
    ----------
    level
        Level of the places.
    width, height
        Width and height of the grid.
    paths
        The outline of each place that has one.
    without
        The places that have none.
    strays
        Texts of the naming property of shapes that belong to no place.
    """

    level: str
    width: int
    height: int
    paths: Mapping[int, str]
    without: tuple[str, ...]
    strays: tuple[str, ...]

    @property
    def unmatched(self) -> str:
        """Return sentences on places that have no shape, and on shapes that have no place."""
        said = {"Places without a shape": self.without, "Shapes of no place": self.strays}
        return " ".join(f"{what}: {_abridged_names(names)}." for what, names in said.items() if names)


def _abridged_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MOST_NAMED]) + more


def read_shapes(path: str | Path) -> list[Mapping[str, Any]]:
    """Return the polygons of a GeoJSON file, each with its properties."""
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        features = [f for f in held["features"] if f["geometry"]["type"] in _POLYGONS]
        features = [f | {"properties": dict(f.get("properties") or {})} for f in features]
    except OSError:
        raise DataError(f"there is no file '{path}'", remedy="check the path") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        features = []
    if not features:
        raise DataError(
            f"'{Path(path).name}' holds no shapes of places",
            needed="GeoJSON: a FeatureCollection of Polygons or MultiPolygons",
        )
    return features


def matched(
    cells: Cells, features: Sequence[Mapping[str, Any]]
) -> tuple[str, str, dict[int, Mapping[str, Any]]]:
    """Find the level whose keys of places stand in a property of the shapes.

    Returns
    -------
    level, name, shapes
        The level, the property, and the shape of each of its places that has one.
    """
    best: tuple[str, str, dict[int, Mapping[str, Any]]] = ("", "", {})
    names = dict.fromkeys(name for f in features for name in f["properties"])
    for level in reversed(cells.tree.levels):
        for known in _keys(cells, level):
            for name in names:
                found = {known[key]: f for f in features if (key := str(f["properties"].get(name))) in known}
                if len(found) > len(best[2]):
                    best = (level, name, found)
    if not best[2]:
        raise DataError(
            "no property of the shapes contains the key of a place of this release",
            needed="a property with the keys of a level, such as the code of the county",
        )
    return best


def _keys(cells: Cells, level: str) -> Iterator[dict[str, int]]:
    columns = [
        column.astype(str).tolist() for column in place_keys(cells.tree, cells.tree.level(level)).values()
    ]
    for texts in (
        ["".join(row) for row in zip(*columns)],
        ["/".join(row) for row in zip(*columns)],
        columns[-1],
    ):
        if len(set(texts)) == len(texts):
            yield {text: at for at, text in enumerate(texts)}


def outlines(cells: Cells, features: Sequence[Mapping[str, Any]]) -> Outlines:
    """Return the outlines of places on the finest grid that needs at most `MAX_OUTLINE_CHARACTERS` characters.

    Raises
    ------
    DataError
        If the shapes are of no level.
    """
    level, name, shapes = matched(cells, features)
    rings = {place: list(_rings(feature["geometry"])) for place, feature in shapes.items()}
    for width in WIDTHS:
        height, paths = _paths(rings, width)
        if sum(map(len, paths.values())) <= MAX_OUTLINE_CHARACTERS:
            break
    without = tuple(label for place, label in enumerate(cells.tree.labels(level)) if place not in paths)
    used = {str(feature["properties"][name]) for feature in shapes.values()}
    said = (str(feature["properties"].get(name, "")) for feature in features)
    strays = tuple(text for text in said if text not in used)
    return Outlines(level, width, height, paths, without, strays)


def _rings(geometry: Mapping[str, Any]) -> Iterator[Ring]:
    try:
        polygons = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
        rings = [np.array([p[:2] for p in ring], dtype=float) for polygon in polygons for ring in polygon]
        whole = all(ring.shape[1:] == (2,) and (np.abs(ring) <= MAX_COORDINATE).all() for ring in rings)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        whole, rings = False, []
    if not whole:
        raise DataError("the coordinates of a shape cannot be read", needed="two numbers for each point")
    yield from rings


def _paths(rings: Mapping[int, Sequence[Ring]], width: int) -> tuple[int, dict[int, str]]:
    """Return the height of a grid of given width, and the outline of every place on it."""
    points = np.concatenate([ring for held in rings.values() for ring in held])
    degrees = np.abs(points[:, 0]).max() <= 180 and np.abs(points[:, 1]).max() <= 90
    if degrees:
        west = _western_end(points[:, 0])
        rings = {place: [_eastward(ring, west) for ring in held] for place, held in rings.items()}
        points = _eastward(points, west)
    low, high = points.min(0), points.max(0)
    across = cos(radians(float(low[1] + high[1]) / 2)) if degrees else 1.0
    span = max(float(high[0] - low[0]) * across, 1e-12)
    scale = np.array([across, -1.0]) * width / span
    height = max(round(float(high[1] - low[1]) * width / span), 1)
    start = np.array([low[0], high[1]])
    drawn = {place: [(ring - start) * scale for ring in held] for place, held in rings.items()}
    paths = {}
    for place, held in drawn.items():
        if held:  # a unit square stands for a place smaller than a step of the grid
            x, y = np.floor(held[0].mean(0)).astype(int)
            paths[place] = "".join(map(_path, held)) or f"M{x} {y}l1 0l0 1l-1 0z"
    return height, paths


def _western_end(longitudes: NDArray) -> float:
    """Return the longitude east of the widest gap without land, where the map begins.

    Examples
    --------
    >>> float(_western_end(np.array([-170.0, -65.0, 172.0])))
    172.0
    """
    known = np.unique(np.mod(longitudes, 360))
    gaps = np.diff(known, append=known[0] + 360)
    return known[(int(gaps.argmax()) + 1) % known.size]


def _eastward(points: NDArray, west: float) -> NDArray:
    """Return points as degrees east of the western end, and degrees north."""
    return np.column_stack([np.mod(points[:, 0] - west, 360), points[:, 1]])


def _path(ring: Ring) -> str:
    """Return the outline of a ring on the grid; empty if the ring is too small."""
    grid = np.rint(ring).astype(int)
    grid = grid[np.r_[True, (np.diff(grid, axis=0) != 0).any(1)]]
    if len(grid) > 2:
        before, after = grid[1:-1] - grid[:-2], grid[2:] - grid[1:-1]
        turns = before[:, 0] * after[:, 1] != before[:, 1] * after[:, 0]
        grid = grid[np.r_[True, turns, True]]
    if len(grid) < 4:
        return ""
    steps = np.diff(grid[:-1], axis=0)
    return f"M{grid[0, 0]} {grid[0, 1]}" + "".join(f"l{x} {y}" for x, y in steps.tolist()) + "z"


def draw_map(
    cells: Cells,
    features: Sequence[Mapping[str, Any]],
    counts: Mapping[str, NDArray],
    margins: Mapping[str, NDArray],
    unit: str,
    confidence: str,
) -> Map:
    """Return a map of places, each shaded by its margin of error as a share of the count.

    Parameters
    ----------
    features
        Features of a GeoJSON file.
    counts, margins
        Released counts and their margins of error, by level.
    unit, confidence
        Unit that is counted, and confidence of the margins.
    """
    drawing = outlines(cells, features)
    level, paths = drawing.level, drawing.paths
    if level not in margins:
        raise DataError(
            f"the shapes show the places of level '{level}', for which no margins of error were released",
            needed=f"shapes of a level with margins of error: {', '.join(margins) or 'there is none'}",
        )
    share = margins[level] / np.maximum(np.abs(counts[level]), 1)
    shade = np.searchsorted(SHADES, share, side="right")
    held = cells.tree.names[cells.tree.level(level)] if cells.tree.names else None
    names = cells.tree.labels(level) if held is None else [str(name) for name in held]
    drawn = tuple(
        Shape(
            path,
            int(shade[at]),
            f"{names[at]}: {number(counts[level][at])} {unit}, ± {number(margins[level][at])}",
            cells.tree.label(level, at),
        )
        for at, path in paths.items()
    )
    certain, ends = float(np.mean(share[list(paths)] <= SHADES[2])), [percent(end) for end in SHADES]
    return Map(
        f"Map of {len(drawn):,} places of level {plain(level)}: the {confidence} margin of error is at most "
        f"{percent(SHADES[2])} of the released count in {percent(certain)} of them. The tables below hold the numbers.",
        f"How certain the count of each place is: its {confidence} margin of error as a share of the released count. "
        f"Darker places (lighter ones on a dark page) are less certain. {drawing.unmatched}".rstrip(),
        drawing.width,
        drawing.height,
        drawn,
        (f"up to {ends[0]}", *(f"to {end}" for end in ends[1:]), f"above {ends[-1]}"),
        level,
        drawing.unmatched,
    )


def shaded_by_count(certain: Map, cells: Cells, held: NDArray, unit: str, confidence: str) -> Map:
    """Return a map of places, shaded by five classes of counts with equally many places."""
    at = {key: place for place, key in enumerate(cells.tree.labels(certain.level))}
    shown = np.array([at[shape.key] for shape in certain.shapes])
    ends = np.unique(np.quantile(held[shown], [0.2, 0.4, 0.6, 0.8], method="inverted_cdf"))
    ends = ends[ends < held[shown].max()]
    shade = np.searchsorted(ends, held[shown], side="left")
    most = certain.shapes[int(np.argmax(held[shown]))]
    return replace(
        certain,
        message=f"Map of {len(shown):,} places of level {plain(certain.level)} by their released counts. "
        f"The largest is {most.text}.",
        caption=f"Released {unit} of each place; the {confidence} margin of error stands in the place's description. "
        f"Darker places (lighter ones on a dark page) have more. {certain.unmatched}".rstrip(),
        shapes=tuple(replace(shape, shade=int(s)) for shape, s in zip(certain.shapes, shade)),
        legend=(*(f"up to {number(end)}" for end in ends), f"up to {number(held[shown].max())}"),
    )
