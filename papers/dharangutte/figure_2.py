"""Dharangutte et al., Figures 2 and 8: county populations with noise that keeps every state's total."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from papers.counties import COUNTIES, counts_by_state
from papers.dharangutte.examples import EPSILON_COUNTIES, PAPER, RUNS, Integers, unbiased
from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.lattice.laws import LatticeLaplace
from trueup.reporting.drawing.curves import Curve, Plot, plot
from trueup.reporting.drawing.pictures import Figure, strips

STATE = "Illinois"
USUAL = 30
"""The paper: the overwhelming majority of errors is within so many persons."""


class DharangutteFigure2(Item):
    """Errors of Illinois' counties and of every other state's, drawn."""

    name: ClassVar[str] = "dharangutte-figure-2"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figures 2 and 8"
    shows: ClassVar[str] = (
        "1,000 exact draws of noise on the 2010 populations of counties, L1 norm, epsilon 0.192, every state's total kept."
    )
    files: ClassVar[tuple[str, ...]] = (COUNTIES,)
    seconds: ClassVar[float] = 5.0

    def run(self, setting: Setting) -> Found:
        rng, draws = setting.rng(self), setting.runs(RUNS)
        counts = {state: np.sort(c) for state, c in counts_by_state(setting).items() if c.size > 1}
        errors = {state: county_noise(c.size, draws, rng) for state, c in counts.items()}
        return Found(
            (*_of_illinois(errors[STATE]), *_of_all(counts, errors)),
            (_across_counties(errors[STATE]), _across_states(errors)),
            (
                "The paper shows eleven states, here are all that have more than one county. Its epsilon is not stated "
                "in words: 0.192 is taken from elsewhere as the budget of the county level, unverified. The Census "
                "Bureau's demonstration file is not among the data, so its errors are not drawn.",
            ),
        )


def county_noise(counties: int, draws: int, rng: np.random.Generator) -> Integers:
    """Exact draws `(draws, counties)` of noise that sums to zero."""
    law = LatticeLaplace(EPSILON_COUNTIES).on(Lattice.of(counties, np.ones((1, counties), np.int64)))
    return law.bound.draw(draws, rng.bytes).vectors


def variance(counties: int, epsilon: float) -> float:
    """Variance of one count's noise given that all add up to zero (counts squared).

    The noise is X - Y with X and Y uniform on the ways to write the same K as n numbers, `P(K = k)` proportional to
    `C(n + k - 1, k)^2 e^(-2 epsilon k)`; given K a count's X has variance `K (K + n) (n - 1) / (n^2 (n + 1))`.

    Examples
    --------
    >>> round(variance(102, 0.192), 3)
    52.772
    """
    n, k = counties, np.arange(100 + int(20 * counties / epsilon))
    log = 2 * (gammaln(n + k) - gammaln(k + 1)) - 2 * epsilon * k
    mass = np.exp(log - log.max())
    return float(2 * (n - 1) / (n * n * (n + 1)) * (mass * k * (k + n)).sum() / mass.sum())


def _of_illinois(errors: Integers) -> list[Row]:
    squares, exact = (errors**2).mean(axis=1), variance(errors.shape[1], float(EPSILON_COUNTIES))
    error = squares.std() / np.sqrt(len(squares))
    near, moved = float(np.mean(np.abs(errors) <= USUAL)), int(np.abs(errors.sum(axis=1)).max())
    return [
        claim(f"{STATE}: largest change of the state's total", "0", str(moved), moved == 0),
        unbiased(errors, STATE),
        claim(
            f"{STATE}: variance of a county's error",
            "",
            f"{squares.mean():.2f} (by the law {exact:.2f})",
            abs(squares.mean() - exact) < ERRORS * error,
        ),
        claim(f"{STATE}: errors within {USUAL} persons", "most", f"{near:.2%}", near > 0.99),
    ]


def _of_all(counts: dict[str, Integers], errors: dict[str, Integers]) -> list[Row]:
    moved = max(int(np.abs(e.sum(axis=1)).max()) for e in errors.values())
    below = sum(int(((counts[state] + e) < 0).any(axis=1).sum()) for state, e in errors.items())
    return [
        claim(f"{len(errors)} states: largest change of a state's total", "0", str(moved), moved == 0),
        unbiased(np.hstack(list(errors.values())), f"{len(errors)} states"),
        claim(f"{len(errors)} states: draws with a county below zero", "0", str(below), below == 0),
    ]


def _across_counties(errors: Integers) -> Plot:
    """Quantiles of every county's errors, and one draw, by the rank of its population."""
    rank = list(range(1, errors.shape[1] + 1))
    names = {"95 %": 0.95, "75 %": 0.75, "median": 0.5, "25 %": 0.25, "5 %": 0.05}
    lines = [Curve(name, rank, np.quantile(errors, q, axis=0).tolist()) for name, q in names.items()]
    return plot(
        [*lines, Curve("one draw", rank, errors[0].tolist(), "points")],
        f"{STATE}' counties, from the smallest population to the largest",
        "error (persons)",
        "Errors are centred on zero and equally wide in small and large counties.",
        f"Quantiles of each county's error over {len(errors):,} draws, and one draw.",
    )


def _across_states(errors: dict[str, NDArray]) -> Figure:
    """Quantiles of all errors in a state."""
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    quantiles = {state: np.quantile(e, levels).tolist() for state, e in errors.items()}
    message = "Errors are centred on zero in every state, and narrower where few counties share the total."
    caption = f"Errors of all counties of a state together. {message}"
    return strips(quantiles, "error (persons)", message, caption)
