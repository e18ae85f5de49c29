"""Blocks of a page, without markup: sections of texts, facts, tables, pictures and charts.

Each kind of block has the template of its name in `templates/blocks/`. Everything in a chart stands at percentages, so that it
fits any screen while its text keeps its size, and the style sheet owns the colours. Series differ in shape as well as in colour.

One file: pages are made of every kind of block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.reporting.drawing.pictures import Figure, PictureAxis, Ridges
from trueup.reporting.drawing.words import numbers

MAX_SERIES = 6
"""Most series that can be told apart."""
WHISKER_ERRORS = 2.0
"""Monte Carlo errors that a whisker reaches to either side."""
_SPREAD = 0.5  # of the width of a place, over which the series stand side by side

Point = tuple[float, float]
"""A value and its Monte Carlo error."""


@dataclass(frozen=True)
class Shape:
    """A place on a map: outline, shade, text and key."""

    path: str
    shade: int
    text: str
    key: str = ""


@dataclass(frozen=True)
class Map:
    """A map of places, each shaded by a value.

    Attributes
    ----------
    message, caption
        Text of what the map shows, for readers who do not see it, and a caption on how to read it.
    width, height
        Size of the drawing.
    shapes
        One for each place.
    legend
        Meaning of each shade.
    level
        Level of the places.
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


@dataclass(frozen=True)
class DrawnMarks:
    """The position of a point in a chart, and the ends of its error bar, in percent."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Chart:
    """A chart of several series over named places, with one axis of values.

    Attributes
    ----------
    message
        Text of what the chart shows, for readers who do not see it.
    caption
        Sentence on how to read it.
    across
        Name of what the places are.
    places
        Their names, left to right; each may have a second line.
    axis
        The axis of values.
    series
        For each name its style, which it has on every chart of a page, and its points by place, None where
        there is none.
    joined
        True to join the points of a series, if places have an order.
    reference
        A value that is marked by a line of its own, and what it is.
    """

    kind: ClassVar[str] = "chart"
    message: str
    caption: str
    across: str
    places: tuple[tuple[str, str], ...]
    axis: PictureAxis
    series: tuple[tuple[str, int, tuple[Point | None, ...]], ...]
    joined: bool = True
    reference: tuple[float, str] | None = None

    def drawn(self, number: int) -> list[DrawnMarks | None]:
        """Return the positions of the points in a series; None for a missing point."""
        shift = _SPREAD * ((number + 0.5) / len(self.series) - 0.5)
        width = 100 / len(self.places)
        return [
            None if point is None else self._drawn(width * (at + 0.5 + shift), *point)
            for at, point in enumerate(self.series[number][2])
        ]

    def lines(self, number: int) -> list[tuple[DrawnMarks, DrawnMarks]]:
        """Return the pairs of neighbouring points in a series between which a line is drawn."""
        found = pairwise(self.drawn(number)) if self.joined else []
        return [(a, b) for a, b in found if a is not None and b is not None]

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return the distance from the top (percent) and the text of every tick."""
        return [(round(100 - place, 2), text) for place, text in self.axis.ticks]

    def height(self, value: float) -> float:
        """Return the distance of a value from the top of the chart, in percent."""
        return round(100 - self.axis.place(value), 2)

    def _drawn(self, x: float, value: float, error: float) -> DrawnMarks:
        ends = (
            self.height(value + WHISKER_ERRORS * error),
            self.height(value - WHISKER_ERRORS * error),
        )
        return DrawnMarks(round(x, 2), self.height(value), *ends)


def chart(
    series: Mapping[str, Sequence[Point | None]],
    places: Sequence[tuple[str, str]],
    across: str,
    unit: str,
    message: str,
    caption: str,
    *,
    joined: bool = True,
    from_zero: bool = True,
    reference: tuple[float, str] | None = None,
) -> Chart:
    """Return a chart of each series of points over the named places.

    A series without any point is left out, and the others keep the styles that they have beside it.

    Examples
    --------
    >>> drawn = chart({"a": [(1.0, 0.1), (2.0, 0.1)]}, [("x", ""), ("y", "")], "place", "counts", "message", "caption")
    >>> drawn.axis.low, drawn.axis.high, [p.x for p in drawn.drawn(0)]
    (0.0, 2.5, [25.0, 75.0])
    """
    points = [p for row in series.values() for p in row if p is not None and isfinite(p[0])]
    ends = [value + side * WHISKER_ERRORS * error for value, error in points for side in (-1, 1)]
    ends += [0.0] if from_zero else []
    ends += [reference[0]] if reference else []
    styled = tuple((name, style, tuple(row)) for style, (name, row) in enumerate(series.items()))[:MAX_SERIES]
    shown = tuple(line for line in styled if any(point is not None for point in line[2]))
    return Chart(
        message, caption, across, tuple(places), PictureAxis.around(ends, unit), shown, joined, reference
    )


@dataclass(frozen=True, init=False)
class Text:
    """A block of plain text, one paragraph for each entry."""

    kind: ClassVar[str] = "text"
    paragraphs: tuple[str, ...]

    def __init__(self, *paragraphs: str) -> None:
        object.__setattr__(self, "paragraphs", paragraphs)


@dataclass(frozen=True)
class Notice:
    """A paragraph that the page highlights, such as a warning."""

    kind: ClassVar[str] = "notice"
    text: str


@dataclass(frozen=True)
class FoldedText:
    """Paragraphs that are hidden under one line until a reader opens them."""

    kind: ClassVar[str] = "fold"
    summary: str
    paragraphs: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Pairs of a term and its value, shown as a list."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table: heading with unit, and a text for each row."""

    heading: str
    cells: Sequence[str]
    numeric: bool = False


def numeric(heading: str, values: NDArray | Sequence[str]) -> Column:
    """Return a column of numbers: an array, written with equal decimals, or numbers that are texts already."""
    return Column(heading, numbers(values) if isinstance(values, np.ndarray) else values, numeric=True)


@dataclass(frozen=True)
class Table:
    """A table of texts, in which the first column names the rows.

    Attributes
    ----------
    caption
        Sentence on what it shows.
    columns
        Columns of equal length.
    note
        Note that a reader needs, such as that rows are left out.
    summary
        If given, the table is folded away under this line, and can be searched and sorted.
    unfolded
        True if a folding table starts open.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    note: str = ""
    summary: str = ""
    unfolded: bool = False

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self.columns[0].cells)


@dataclass(frozen=True)
class Links:
    """Names of files beside the page, and words on what each contains."""

    kind: ClassVar[str] = "links"
    rows: tuple[tuple[str, str], ...]


Block = Text | Notice | FoldedText | Facts | Table | Links | Figure | Chart | Ridges | Map


@dataclass(frozen=True)
class Section:
    """A section of a page: heading, blocks, and `id` as the anchor of links."""

    id: str
    heading: str
    blocks: tuple[Block, ...]


def present(*sections: Section | None) -> tuple[Section, ...]:
    """Return the sections that a page has, without those that have nothing to say."""
    return tuple(section for section in sections if section is not None)


@dataclass(frozen=True)
class Page:
    """The content of a whole report.

    Attributes
    ----------
    title, subtitle
        Subject of the report, and the kind of report.
    warning
        If given, stands above everything else.
    summary
        The few facts that a hurried reader needs.
    sections
        The body, in order.
    opening
        The report in plain words, one text for each paragraph.
    """

    title: str
    subtitle: str
    warning: str
    summary: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    opening: tuple[str, ...] = ()
