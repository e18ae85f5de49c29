"""Maps of places by their shapes, shaded by the margins of error of their counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.model.cells import Cells
from trueup.reporting.drawing.outlines import outlines
from trueup.reporting.drawing.words import number, percent, plain

SHADES = (0.01, 0.03, 0.1, 0.3)
"""Margins of error, as shares of the released count, at which the shade changes."""


@dataclass(frozen=True)
class Shape:
    """One place: its outline, its shade, its text, and its keys."""

    path: str
    shade: int
    text: str
    key: str = ""


@dataclass(frozen=True)
class Map:
    """A map.

    Attributes
    ----------
    message, caption
        What it says, for those who do not see it; how to read it.
    width, height
        Of the drawing.
    shapes
        One for each place.
    legend
        What each shade means.
    level
        Of which places the shapes are.
    unmatched
        Places without a shape and shapes of no place, in words.
    """

    kind: ClassVar[str] = "map"
    message: str
    caption: str
    width: int
    height: int
    shapes: tuple[Shape, ...]
    legend: tuple[str, ...]
    level: str = ""
    unmatched: str = ""


def draw_map(
    cells: Cells,
    features: Sequence[Mapping[str, Any]],
    counts: Mapping[str, NDArray],
    margins: Mapping[str, NDArray],
    unit: str,
    confidence: str,
) -> Map:
    """Draw the level that the shapes are of.

    Parameters
    ----------
    features
        Of a GeoJSON file.
    counts, margins
        By level: released counts and their margins of error.
    unit, confidence
        What is counted, and of which level the margins are.
    """
    drawing = outlines(cells, features)
    level, paths = drawing.level, drawing.paths
    if level not in margins:
        raise DataError(
            f"the shapes are those of level '{level}', which was not released with margins of error"
        )
    share = margins[level] / np.maximum(np.abs(counts[level]), 1)
    shade = np.searchsorted(SHADES, share, side="right")
    names = _names(cells, level)
    drawn = tuple(
        Shape(
            path,
            int(shade[at]),
            f"{names[at]}: {number(counts[level][at])} {unit}, ± {number(margins[level][at])}",
            cells.tree.label(level, at),
        )
        for at, path in paths.items()
    )
    certain = float(np.mean(share[list(paths)] <= SHADES[2]))
    return Map(
        f"Map of {len(drawn):,} places of level {plain(level)}: the {confidence} margin of error is at most "
        f"{percent(SHADES[2])} of the released count in {percent(certain)} of them. The tables below hold the numbers.",
        f"How certain the count of each place is: its {confidence} margin of error as a share of the released count. "
        f"Darker places (lighter ones on a dark page) are less certain. {drawing.unmatched}".rstrip(),
        drawing.width,
        drawing.height,
        drawn,
        _legend(),
        level,
        drawing.unmatched,
    )


def shaded_by_count(certain: Map, cells: Cells, held: NDArray, unit: str, confidence: str) -> Map:
    """Draw the places of a map shaded by their counts, a fifth of the places to a shade."""
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


def _legend() -> tuple[str, ...]:
    ends = [percent(share) for share in SHADES]
    return (f"up to {ends[0]}", *(f"to {end}" for end in ends[1:]), f"above {ends[-1]}")


def _names(cells: Cells, level: str) -> list[str]:
    at = cells.tree.level(level)
    held = cells.tree.names[at] if cells.tree.names else None
    if held is not None:
        return [str(name) for name in held]
    return cells.tree.labels(level)
