"""Dharangutte et al., Figures 2 and 8: county populations with noise that keeps every state's total."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.census import COUNTIES, counts_by_state
from papers.curves import Curve, Plot, plot
from papers.dharangutte.examples import EPSILON_COUNTIES, PAPER, RUNS, Integers, unbiased
from papers.item import Found, Item, Setting
from papers.row import Row, claim, furthest, held, likely
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.lattice import LatticeLaplace
from trueup.reporting.drawing.pictures import Figure, strips

STATE = "Illinois"
ANGLES = 2**14
"""Sums beyond that count as others: with hundreds of counties their noise has a standard deviation below 200."""
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
    catches: ClassVar[tuple[str, ...]] = ("epsilon 5 % off", "noise that is not given the total")

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


def marginal(counties: int, epsilon: float) -> tuple[Integers, NDArray]:
    """Values and masses of one county's noise given that all add up to zero.

    The mass at k is `exp(-epsilon |k|)` times that of -k for the sum of the others, which the Fourier transform of two-sided
    geometric noise gives, to the power n - 1.

    Examples
    --------
    >>> values, masses = marginal(102, 0.192)
    >>> round(float(masses @ values**2), 3)
    52.772
    """
    a = np.exp(-epsilon)
    angle = 2 * np.pi * np.arange(ANGLES) / ANGLES
    others = np.fft.ifft(((1 - a) ** 2 / (1 - 2 * a * np.cos(angle) + a * a)) ** (counties - 1)).real
    values = np.arange(-ANGLES // 4, ANGLES // 4)
    masses = a ** np.abs(values) * np.maximum(others[-values], 0.0)
    return values, masses / masses.sum()


def variance(counties: int, epsilon: float) -> float:
    """Variance of one county's noise given that all add up to zero (counts squared).

    Examples
    --------
    >>> round(variance(102, 0.192), 3)
    52.772
    """
    values, masses = marginal(counties, epsilon)
    return float(masses @ values**2)


def _of_illinois(errors: Integers) -> list[Row]:
    values, masses = marginal(errors.shape[1], float(EPSILON_COUNTIES))
    exact, within = float(masses @ values**2), float(masses[np.abs(values) <= USUAL].sum())
    squares, near = errors.astype(float) ** 2, (np.abs(errors) <= USUAL).mean(axis=1)
    together, root = squares.mean(axis=1), np.sqrt(len(errors))
    moved = int(np.abs(errors.sum(axis=1)).max())
    return [
        claim(f"{STATE}: largest change of the state's total", "0", str(moved), moved == 0),
        unbiased(errors, STATE),
        held(
            f"{STATE}: variance of a county's error",
            float(together.mean()),
            exact,
            ours_error=float(together.std()) / root,
        ),
        furthest(f"{STATE}: variances of counties", squares.mean(axis=0), exact, squares.std(axis=0) / root),
        claim(f"{STATE}: errors within {USUAL} persons, by the law", "most", f"{within:.2%}", within > 0.99),
        held(
            f"{STATE}: share of errors beyond {USUAL} persons",
            1 - float(near.mean()),
            1 - within,
            ours_error=float(near.std()) / root,
        ),
    ]


def _of_all(counts: dict[str, Integers], errors: dict[str, Integers]) -> list[Row]:
    moved = max(int(np.abs(e.sum(axis=1)).max()) for e in errors.values())
    below = sum(int(((counts[state] + e) < 0).any(axis=1).sum()) for state, e in errors.items())
    expected = sum(_expected_below(counts[state], len(e)) for state, e in errors.items())
    squares = {state: (e.astype(float) ** 2).mean(axis=1) for state, e in errors.items()}
    exact = [variance(e.shape[1], float(EPSILON_COUNTIES)) for e in errors.values()]
    return [
        claim(f"{len(errors)} states: largest change of a state's total", "0", str(moved), moved == 0),
        unbiased(np.hstack(list(errors.values())), f"{len(errors)} states"),
        furthest(
            f"{len(errors)} states: variance of a county's error",
            [s.mean() for s in squares.values()],
            exact,
            [s.std() / np.sqrt(len(s)) for s in squares.values()],
        ),
        likely(
            f"{len(errors)} states: draws with a county below zero",
            "0",
            f"{below} (expected {expected:.1g})",
            _at_least(below, expected),
        ),
    ]


def _expected_below(counts: Integers, draws: int) -> float:
    """Expected number of counties below zero, at least that of draws with one."""
    values, masses = marginal(counts.size, float(EPSILON_COUNTIES))
    tail = np.cumsum(masses)  # of values up to each
    place = -counts - 1 - values[0]
    return draws * float(tail[place[place >= 0]].sum())


def _at_least(found: int, expected: float) -> float:
    """Probability of so many rare events or more."""
    from scipy.stats import poisson  # slow to load

    return float(poisson.sf(found - 1, expected))


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
