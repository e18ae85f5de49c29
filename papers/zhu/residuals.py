"""What Figures 1 and 4 of Zhu et al. share: errors of a state's counties, raw and after program (P+)."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.row import ERRORS
from trueup.kernel.tree.simplex import project
from trueup.reporting.drawing.curves import Curve, Plot, plot

Reals = NDArray[np.float64]

PAPER = "Zhu, Van Hentenryck & Fioretto (2021)"
STATE, SCALE, RUNS = "Texas", 300.0, 5_000
LARGE = 10_000
"""Counties of at least so many persons count as large: their noise cannot make them negative."""
SETTING = (
    "The figure prints no numbers and names neither its counties nor its counts. At the stated budget of 0.5 (noise of "
    "scale 2) no county of the 2010 Census could become negative, so its counts were smaller or its noise wider; here "
    f"Laplace noise has scale {SCALE:g}."
)


class Errors(NamedTuple):
    """Errors of counties over runs, (runs, counties): of the noisy counts, and after program (P+)."""

    raw: Reals
    projected: Reals

    def bias(self, counties: Any) -> Mean:
        """Mean error of chosen counties after (P+), measured from (P), whose bias is zero by Theorem 7.

        What the two projections share cancels, and with it most of the Monte Carlo error.
        """
        return mean((self.projected - (self.raw - self.raw.mean(axis=1, keepdims=True)))[:, counties])


class Mean(NamedTuple):
    """A mean with its Monte Carlo error (counts)."""

    value: float
    error: float

    @property
    def positive(self) -> bool:
        return self.value > ERRORS * self.error

    @property
    def negative(self) -> bool:
        return self.value < -ERRORS * self.error

    @property
    def text(self) -> str:
        return f"{self.value:+.2f} ± {self.error:.2f}"


def errors(counts: Reals, runs: int, rng: np.random.Generator) -> Errors:
    """Add noise, then project on the state's total and on counts that are not negative."""
    noise = rng.laplace(0, SCALE, (runs, counts.size))
    ones, bounds = np.ones(counts.size), np.full(counts.size, np.inf)
    return Errors(noise, project(ones, 0 * ones, bounds, float(counts.sum()), counts + noise) - counts)


def mean(values: Reals) -> Mean:
    """Mean over runs, of one county or of several counties' mean."""
    each = values.reshape(len(values), -1).mean(axis=1)
    return Mean(float(each.mean()), float(each.std(ddof=1)) / sqrt(len(each)))


def residuals(raw: Reals, projected: Reals, title: str) -> Plot:
    """Histograms of one county's errors, raw and projected."""
    reach = 5 * SCALE
    edges = np.linspace(-reach, reach, 51)

    def steps(values: Reals) -> list[float]:
        return (np.histogram(values, edges)[0] / len(values) / np.diff(edges)).tolist()

    return plot(
        [
            Curve("noisy count", edges.tolist(), steps(raw), "steps"),
            Curve("after projection", edges.tolist(), steps(projected), "steps"),
        ],
        f"error of {title} (persons)",
        "share of runs a person",
        f"Errors of {title}, before and after projection.",
        f"Errors of {title} over {len(raw):,} runs; a count that would be negative becomes zero.",
    )
