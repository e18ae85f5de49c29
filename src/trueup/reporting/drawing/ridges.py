"""Ridgelines: the probability of every value, one curve per row over a common axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.reporting.drawing.pictures import Mark, PictureAxis, Shape

MOST_BINS = 60
"""Steps of a curve; values are gathered until no more are left."""
BINS_OF_DRAWS = 24
"""The same where probabilities are shares of draws: more steps would show chance."""


@dataclass(frozen=True)
class Ridge:
    """One row.

    Attributes
    ----------
    name, note
        Whose values they are, and a smaller line below.
    edges, heights
        Steps of the curve, from 0 to 1: one edge more than heights.
    marks
        What is drawn below it.
    """

    name: str
    note: str
    edges: Sequence[float]
    heights: Sequence[float]
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Ridges:
    """A picture of ridgelines.

    Attributes
    ----------
    message, caption
        What it says, for those who do not see it; how to read it.
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
        """Return the corners of a curve, in percent of its field."""
        steps = zip(row.edges[:-1], row.edges[1:], row.heights, strict=True)
        corners = [(x, 100 - 92 * h) for low, high, h in steps for x in (low, high)]
        closed = [(row.edges[0], 100), *corners, (row.edges[-1], 100)]
        return " ".join(f"{self.axis.place(x)},{y:.4g}" for x, y in closed)


def steps(
    values: NDArray, masses: NDArray, whole: bool, most: int = MOST_BINS
) -> tuple[list[float], list[float]]:
    """Turn masses of values in order into steps of at most one, leaving out tails of a thousandth.

    Parameters
    ----------
    values, masses
        `(v,)` each.
    whole
        Whether values are whole numbers, each as wide as 1.
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
