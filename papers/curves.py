"""Plots: curves over two axes, laid out here and written as SVG by their template.

As in `pictures`, places are percentages of the field, so a plot fits any screen while its text and
its strokes keep their size; curves differ by dashes and marks as well as by colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import ClassVar, Literal

from trueup.reporting.drawing.pictures import PictureAxis
from trueup.reporting.drawing.words import number

Drawn = Literal["line", "steps", "points"]


@dataclass(frozen=True)
class LogAxis:
    """Values from `low` to `high`, powers of ten, on a logarithmic scale.

    Examples
    --------
    >>> axis = LogAxis.around([3, 800], "counties")
    >>> axis.place(10), [text for _, text in axis.ticks]
    (33.33, ['1', '10', '100', '1,000'])
    """

    title: str
    low: int
    high: int

    @classmethod
    def around(cls, values: Sequence[float], title: str) -> LogAxis:
        """Span positive values by powers of ten."""
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        return cls(title, low, max(high, low + 1))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Place (percent of the width) and text of every tick."""
        step = ceil((self.high - self.low) / 8)
        return [(self.place(10.0**k), number(10.0**k)) for k in range(self.low, self.high + 1, step)]

    def place(self, value: float) -> float:
        """Where a value stands, in percent of the width."""
        return round(100 * (log10(value) - self.low) / (self.high - self.low), 2)


@dataclass(frozen=True)
class Curve:
    """Points of one name.

    Attributes
    ----------
    name
        What the legend calls it.
    x, y
        Finite values of equal number.
    drawn
        `line` joins the points, `steps` draws a histogram (one `x` more than `y`: edges of the bins),
        `points` draws marks.
    error
        Half lengths of the error bars of points; empty for none.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    drawn: Drawn = "line"
    error: Sequence[float] = ()

    @property
    def corners(self) -> list[tuple[float, float]]:
        """Points that the stroke passes, in values."""
        if self.drawn != "steps":
            return list(zip(self.x, self.y, strict=True))
        bins = zip(self.x[:-1], self.x[1:], self.y, strict=True)
        return [corner for a, b, y in bins for corner in ((a, y), (b, y))]


@dataclass(frozen=True)
class Plot:
    """Curves over two axes.

    Attributes
    ----------
    message
        What it says, for those who do not see it.
    caption
        How to read it.
    across, up
        The two axes.
    curves
        At most six, in the order of the legend.
    """

    kind: ClassVar[str] = "curves"
    message: str
    caption: str
    across: PictureAxis | LogAxis
    up: PictureAxis | LogAxis
    curves: tuple[Curve, ...]

    def path(self, curve: Curve) -> str:
        """The stroke of a curve, in percent of the field."""
        return " ".join(f"{self.across.place(x)},{self.height(y)}" for x, y in curve.corners)

    def height(self, value: float) -> float:
        """Where a value stands, in percent from the top."""
        return round(100 - self.up.place(value), 2)

    def marks(self, curve: Curve) -> list[tuple[float, float, float, float]]:
        """Place across and down of every point, and where its error bar begins and ends."""
        errors = curve.error or [0.0] * len(curve.y)
        return [
            (self.across.place(x), self.height(y), self.height(y + e), self.height(y - e))
            for x, y, e in zip(curve.x, curve.y, errors, strict=True)
        ]


def plot(
    curves: Sequence[Curve],
    across: str,
    up: str,
    message: str,
    caption: str,
    *,
    log_across: bool = False,
    log_up: bool = False,
) -> Plot:
    """Draw curves over axes that span them; linear axes of values include zero.

    Parameters
    ----------
    curves
        At most six.
    across, up
        Titles of the axes, with their units.
    message, caption
        What the chart says, and how to read it.
    log_across, log_up
        Whether an axis is logarithmic (values above zero).

    Examples
    --------
    >>> drawn = plot([Curve("error", [1, 10, 100], [4, 2, 1])], "n", "counts", "m", "c", log_across=True)
    >>> drawn.path(drawn.curves[0])
    '0.0,0.0 50.0,50.0 100.0,75.0'
    """
    x = [float(v) for curve in curves for v, _ in curve.corners]
    y = [float(v) for curve in curves for _, v in curve.corners]
    y += [end for c in curves for v, e in zip(c.y, c.error) for end in (v - e, v + e)]
    horizontal = LogAxis.around(x, across) if log_across else PictureAxis.around(x, across)
    vertical = LogAxis.around(y, up) if log_up else PictureAxis.around([0.0, *y], up)
    return Plot(message, caption, horizontal, vertical, tuple(curves))
