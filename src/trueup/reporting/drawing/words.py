"""Numbers, units and names in the form that readers expect; and maps of places by their margins of error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.digits import to_digits
from trueup.errors import DataError
from trueup.model.cells import Cells, Margin
from trueup.privacy import outward

_PLURALS = {"child": "children", "man": "men", "woman": "women", "person": "persons"}


def number(value: float) -> str:
    """Return a number as text: whole ones in full, others to three digits, with thousands and a true minus.

    Examples
    --------
    >>> number(-1234), number(0.12345), number(1234.5)
    ('−1,234', '0.123', '1,234')
    """
    if not isfinite(value):
        return "–" if value != value else "unlimited"
    whole = float(value).is_integer()
    text = f"{value:,.0f}" if whole or abs(value) >= 100 else to_digits(value, 3)
    return text.replace("-", "−")


def numbers(values: NDArray) -> list[str]:
    """Return a column of numbers with equal decimals, none if all are whole; a dash for missing ones.

    Examples
    --------
    >>> numbers(np.array([5.7, 4.642, np.nan])), numbers(np.array([-2, 2**60 + 1]))
    (['5.70', '4.64', '–'], ['−2', '1,152,921,504,606,846,977'])
    """
    known = np.ma.masked_invalid(values)
    text = "{:,}" if known.dtype.kind in "iu" else "{:,." + str(_decimals(known.compressed())) + "f}"
    return ["–" if v is None else text.format(v).replace("-", "−") for v in known.tolist()]


def _decimals(values: NDArray) -> int:
    """Return the number of decimals: two, one for numbers in the hundreds, more for small ones."""
    if (values == np.floor(values)).all():
        return 0
    largest = float(np.abs(values).max())
    return 1 if largest >= 100 else max(2, 1 - int(np.floor(np.log10(largest))))


def exact(amount: Fraction) -> str:
    """Return an exact amount as text, with its size (never below it) if it is no whole number.

    Examples
    --------
    >>> exact(Fraction(1, 20)), exact(Fraction(2)), exact(Fraction(1, 3))
    ('1/20 (0.05)', '2', '1/3 (about 0.334)')
    """
    if amount.denominator == 1:
        return str(amount)
    near = outward(amount, 3)
    return f"{amount} ({near if Fraction(near) == amount else f'about {near}'})"


def percent(share: float) -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent(0.05), percent(1 / 3)
    ('5 %', '33.3 %')
    """
    return f"{to_digits(100 * share, 3)} %"


def plural(unit: str) -> str:
    """Name several units.

    Examples
    --------
    >>> plural("person"), plural("family"), plural("child")
    ('persons', 'families', 'children')
    """
    if unit in _PLURALS:
        return _PLURALS[unit]
    if unit.endswith("y") and unit[-2:-1] not in "aeiou":
        return f"{unit[:-1]}ies"
    return unit if unit.endswith("s") else f"{unit}s"


def plain(name: str) -> str:
    """Return a name of the spec as words."""
    return name.replace("_", " ")


def table_name(margin: Margin) -> str:
    """Name a marginal table.

    Examples
    --------
    >>> table_name(Margin("block_group", ("sex", "age")))
    'block group by sex and age'
    """
    by = f" by {listing(margin.attributes)}" if margin.attributes else ""
    return plain(margin.level) + plain(by) + margin.whose


def listing(names: Iterable[str]) -> str:
    """Join names into a list.

    Examples
    --------
    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def said(value: Any) -> str:
    """Return a parameter or a statistic as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.number):
        return number(float(value))
    if isinstance(value, Mapping):
        return "; ".join(f"{plain(str(k))}: {said(v)}" for k, v in value.items())
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(said(v) for v in value)
    return str(value)


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
    from trueup.reporting.drawing.outlines import outlines  # without shapes none are drawn

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
