"""Zhu et al., section on fairness: error variances of 15 and 254 counties that share a known total."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.item import Found, Item, Setting
from papers.row import Row, compare, held, variance_error
from trueup.kernel.tree import least_squares
from trueup.noise import Laplace

RUNS, SCALE = 80_000, 10
STATES = {"Arizona": (15, "186.67", "186.88"), "Texas": (254, "199.21", "199.32")}
"""Number of counties, printed theoretical variance, printed empirical variance (counts squared)."""


class ZhuVariances(Item):
    """Variance of one county's error after projection on a known state total."""

    name: ClassVar[str] = "zhu-variances"
    paper: ClassVar[str] = "Zhu, Van Hentenryck & Fioretto (2021)"
    place: ClassVar[str] = "Theorem 12 and the section on fairness"
    shows: ClassVar[str] = (
        "Laplace noise of scale 10 on every county, projected on the state's total: variance of a county's error "
        "by Theorem 12, and over 80,000 runs."
    )
    seconds: ClassVar[float] = 4.0
    catches: ClassVar[tuple[str, ...]] = (
        "a law whose scale is 1 % off",
        "noise 5 % too narrow",
        "no projection",
    )

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        return Found(tuple(row for state in STATES for row in rows(state, runs, rng)))


def rows(state: str, runs: int, rng: np.random.Generator) -> list[Row]:
    """The formula's figure and the simulated one, each beside what the paper prints; ours is over all counties."""
    counties, theory, empirical = STATES[state]
    variance = (1 - 1 / counties) * Laplace(Fraction(SCALE)).variance
    errors = projected(counties, runs, rng)
    squares = (errors**2).mean(axis=1)
    kurtosis = float((errors[:, 0] ** 4).mean() / (errors[:, 0] ** 2).mean() ** 2)
    return [
        compare(f"{state}, {counties} counties: by Theorem 12", theory, variance),
        compare(
            f"{state}: over {runs:,} runs",
            empirical,
            float(squares.mean()),
            ours_error=float(squares.std()) / np.sqrt(runs),
            paper_error=variance_error(variance, RUNS, kurtosis),
        ),
        held(
            f"{state}: over {runs:,} runs, beside 2 scale^2 (1 - 1/n)",
            float(squares.mean()),
            2 * SCALE**2 * (1 - 1 / counties),
            ours_error=float(squares.std()) / np.sqrt(runs),
        ),
    ]


def projected(counties: int, runs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Errors of the counties `(runs, counties)` after least squares on an exact total."""
    noise = np.zeros((runs, 1 + counties))
    noise[:, 1:] = rng.laplace(0, SCALE, (runs, counties))
    star = np.r_[1, np.full(1 + counties, 1 + counties)]
    return least_squares(star, np.r_[0.0, np.ones(counties)], noise)[:, 1:]
