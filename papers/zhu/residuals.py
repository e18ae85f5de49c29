"""What Figures 1 and 4 of Zhu et al. share: errors of small places, raw and after program (P+)."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from papers.curves import Curve, Plot, plot
from papers.row import ERRORS
from papers.simplex import project_on_total
from trueup.noise import DiscreteLaplace

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

PAPER = "Zhu, Van Hentenryck & Fioretto (2021)"
GROUP, EPSILON, RUNS = "440090510003", 0.5, 200_000
"""Rhode Island's least populous block group of at least 20 blocks most of which have inhabitants; the paper's budget."""
SETTING = (
    "The figure prints no numbers and names neither its counties nor its counts. At the paper's budget of 0.5 no county of "
    f"the 2010 Census could become negative, so the places here are blocks: the 25 of Rhode Island's block group {GROUP}, "
    "with 0 to 20 persons, 184 in all. The noise is as stated, two-sided geometric; exact biases are computed from "
    "the joint law of the parts (`papers/zhu/exact.py`)."
)


class Errors(NamedTuple):
    """Errors of places over runs, (runs, places): of the noisy counts, and after program (P+)."""

    raw: Reals
    projected: Reals

    def bias(self, places: Any) -> Mean:
        """Mean error of chosen places after (P+), measured from (P), whose bias is zero by Theorem 7.

        What the two projections share cancels, and with it most of the Monte Carlo error.
        """
        return mean((self.projected - (self.raw - self.raw.mean(axis=1, keepdims=True)))[:, places])


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
        return f"{self.value:+.3f} ± {self.error:.3f}"


def errors(counts: Integers, runs: int, rng: np.random.Generator) -> Errors:
    """Add noise, then project on the places' total and on counts that are not negative."""
    law = DiscreteLaplace(Fraction(EPSILON))
    noise = law.sample(runs * counts.size, rng.bytes).reshape(runs, -1).astype(float)
    ones, bounds = np.ones(counts.size), np.full(counts.size, np.inf)
    true = counts.astype(float)
    return Errors(noise, project_on_total(ones, 0 * ones, bounds, true.sum(), true + noise) - true)


def mean(values: Reals) -> Mean:
    """Mean over runs, of one place or of several places' mean."""
    each = values.reshape(len(values), -1).mean(axis=1)
    return Mean(float(each.mean()), float(each.std(ddof=1)) / sqrt(len(each)))


def residuals(raw: Reals, projected: Reals, title: str) -> Plot:
    """Histograms of one place's errors, raw and projected."""
    edges = np.arange(-12.5, 13)

    def steps(values: Reals) -> list[float]:
        return (np.histogram(values, edges)[0] / len(values)).tolist()

    return plot(
        [
            Curve("noisy count", edges.tolist(), steps(raw), "steps"),
            Curve("after projection", edges.tolist(), steps(projected), "steps"),
        ],
        f"error of {title} (persons)",
        "share of runs",
        f"Errors of {title}, before and after projection.",
        f"Errors of {title} over {len(raw):,} runs; a count that would be negative becomes zero.",
    )
