"""Pictures of named rows over a common axis of values, drawn as SVG.

Marks stand at percentages of the axis, so a picture fits any screen while its text keeps its size;
the style sheet owns the colours, so light, dark and print need no second drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.reporting.drawing.words import number

Shape = Literal["bar", "thin", "join", "tick", "circle", "diamond", "text"]


@dataclass(frozen=True)
class Mark:
    """A mark in a picture, at a value or between two values."""

    shape: Shape
    at: float
    to: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class PictureAxis:
    """An axis of values from `low` to `high`, with its title.

    Examples
    --------
    >>> axis = PictureAxis.around([0, 47], "persons")
    >>> axis.high, axis.place(25), [text for _, text in axis.ticks]
    (50.0, 50.0, ['0', '10', '20', '30', '40', '50'])
    """

    title: str
    low: float
    high: float
    step: float

    @classmethod
    def around(cls, values: Sequence[float], title: str) -> PictureAxis:
        """Return an axis that contains the values, from one round number to another."""
        lowest, highest = min(values), max(values)
        wanted = ((highest - lowest) or 1.0) / 4  # the step is the largest of 1, 2 or 5 times 10^k below it
        power = 10.0 ** floor(log10(wanted))
        step = power * max(lead for lead in (1, 2, 5) if lead * power <= wanted)
        low, high = step * floor(lowest / step), step * ceil(highest / step)
        return cls(title, low, high if high > low else low + step, step)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return the distance from the left (percent of the width) and the text of every tick."""
        steps = range(round(self.low / self.step), round(self.high / self.step) + 1)
        return [(self.place(i * self.step), number(float(f"{i * self.step:.6g}"))) for i in steps]

    def place(self, value: float) -> float:
        """Return the distance of a value from the left, in percent of the width."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)


@dataclass(frozen=True)
class Figure:
    """A picture of named rows over a common axis of values.

    Attributes
    ----------
    message
        Text of what the picture shows, for readers who do not see it.
    caption
        Sentence on how to read it.
    axis
        The axis of values.
    rows
        Name and marks of each row.
    legend
        Meaning of each shape of mark; empty if there is only one.
    """

    kind: ClassVar[str] = "figure"
    message: str
    caption: str
    axis: PictureAxis
    rows: tuple[tuple[str, tuple[Mark, ...]], ...]
    legend: tuple[tuple[Shape, str], ...] = ()


def bars(values: Mapping[str, tuple[float, str]], unit: str, message: str, caption: str) -> Figure:
    """Return a picture with a bar from zero for each value, and a text at the end of the bar."""
    rows = ((name, (Mark("bar", 0, v), Mark("text", v, text=text))) for name, (v, text) in values.items())
    room = 1.15  # for the text at the end of the longest bar
    axis = PictureAxis.around([0, *(room * v for v, _ in values.values())], unit)
    return Figure(message, caption, axis, tuple(rows))


def before_after(
    values: Mapping[str, tuple[float | None, float]],
    names: tuple[str, str],
    unit: str,
    message: str,
    caption: str,
) -> Figure:
    """Return a picture with two joined points in each row, or with the second alone."""
    axis = PictureAxis.around([0, *(v for pair in values.values() for v in pair if v is not None)], unit)
    rows = tuple((name, _pair(*pair)) for name, pair in values.items())
    return Figure(message, caption, axis, rows, (("diamond", names[0]), ("circle", names[1])))


def strips(values: Mapping[str, Sequence[float]], unit: str, message: str, caption: str) -> Figure:
    """Return a picture with the 5, 25, 50, 75 and 95 % quantiles of each row."""
    axis = PictureAxis.around([0, *(v for row in values.values() for v in row)], unit)
    rows = tuple(
        (name, (Mark("thin", q05, q95), Mark("bar", q25, q75), Mark("tick", q50)))
        for name, (q05, q25, q50, q75, q95) in values.items()
    )
    return Figure(
        message, caption, axis, rows, (("tick", "median"), ("bar", "middle half"), ("thin", "90 %"))
    )


def _pair(before: float | None, after: float) -> tuple[Mark, ...]:
    point = Mark("circle", after)
    if before is None:
        return (point,)
    return (Mark("join", min(before, after), max(before, after)), Mark("diamond", before), point)


MOST_BINS = 60
"""Steps of a curve; values are gathered until no more are left."""
BINS_OF_DRAWS = 24
"""Most steps of a picture whose probabilities are shares of draws: more steps would show chance."""


@dataclass(frozen=True)
class Ridge:
    """A row of a ridgeline picture: the curve of a distribution, with marks.

    Attributes
    ----------
    name, note
        Name of the row, and a smaller line below.
    edges, heights
        Steps of the curve, from 0 to 1: one edge more than heights; no heights for a value that is known, without a curve.
    marks
        Marks drawn below the curve.
    """

    name: str
    note: str
    edges: Sequence[float]
    heights: Sequence[float]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Ridges:
    """A picture of the distributions of several counts, as rows of curves.

    Attributes
    ----------
    message, caption
        Text of what the picture shows, for readers who do not see it, and a caption on how to read it.
    axis
        The axis of values; a dashed line stands at zero.
    rows, legend
        Its rows, and what each mark stands for.
    """

    kind: ClassVar[str] = "ridges"
    message: str
    caption: str
    axis: PictureAxis
    rows: tuple[Ridge, ...]
    legend: tuple[tuple[Shape, str], ...]

    def outline(self, row: Ridge) -> str:
        """Return the corners of a row's curve, in percent of the width and of the row's height."""
        steps = zip(row.edges[:-1], row.edges[1:], row.heights, strict=True)
        corners = [(x, 100 - 92 * h) for low, high, h in steps for x in (low, high)]
        closed = [(row.edges[0], 100), *corners, (row.edges[-1], 100)]
        return " ".join(f"{self.axis.place(x)},{y:.4g}" for x, y in closed)


def steps(
    values: NDArray, masses: NDArray, whole: bool, most: int = MOST_BINS
) -> tuple[list[float], list[float]]:
    """Combine a distribution's masses into at most `most` steps; return edges and heights of the steps.

    Parameters
    ----------
    values, masses
        `(v,)` each.
    whole
        True if values are whole numbers, each as wide as 1.
    most
        Most steps.

    Examples
    --------
    >>> steps(np.arange(3), np.array([1.0, 2.0, 1.0]), True)
    ([-0.5, 0.5, 1.5, 2.5], [0.5, 1.0, 0.5])
    """
    running = np.cumsum(masses) / masses.sum()
    low, high = (values[min(np.searchsorted(running, p), len(values) - 1)] for p in (0.0005, 0.9995))
    if whole:
        width = max(-(-(high - low + 1) // most), 1)
        edges = np.arange(low, high + width + 1, width) - 0.5
    else:
        edges = np.linspace(low, high if high > low else low + 1, most + 1)
    heights = np.histogram(values, edges, weights=masses)[0]
    return edges.tolist(), (heights / heights.max()).tolist()
