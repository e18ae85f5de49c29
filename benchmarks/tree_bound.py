"""How much less any rule could err on the places of a single tree than the default, if no size class may err more.

A parent's children are told apart by their estimates alone, which err by two-sided exponential noise. The default
lowers all by one threshold, at which their sum is kept, and sets what is negative to zero. Against it stands the best
of all rules `x = d(estimate)` that keep the sum on average, for counts whose distribution is *known*: no method that
estimates it does better. It is the Bayes rule; to hold a class of true counts to the default's error, the class gets
more weight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from benchmarks.harness import Case, Harness, Picture
from benchmarks.margins_of_error import DATA, read

SIZES = ((0, 0), (1, 9), (10, 99), (100, 999))
SHARE = 0.003
"""Classes with a smaller share of the counts are not looked at."""
EPSILONS = (0.7, 0.35, 0.14, 0.05)
STEPS, RATE = 400, 4.0


def populations() -> dict[str, NDArray]:
    """True counts: made-up places of which 50 and 90 % are empty, and groups of persons in Rhode Island's blocks."""
    rng = np.random.default_rng(0)
    made_up = {
        f"made up, {share:.0%} empty": np.floor(rng.lognormal(2.4, 1.1, 1000)) * (rng.random(1000) >= share)
        for share in (0.5, 0.9)
    }
    if not DATA.is_dir():
        return made_up
    blocks = read("ri_blocks_2010.csv.gz")
    groups = ("pop", "pop_asian", "pop_aian", "pop_nhpi")
    return made_up | {f"Rhode Island's blocks, {g}": blocks[g].to_numpy(float) for g in groups}


class Choice:
    """Rules on a grid of estimates, their risks by size class, and the one that weights of classes make best."""

    def __init__(self, counts: NDArray, epsilon: float) -> None:
        self.sd = float(np.sqrt(2 * np.exp(-epsilon)) / (1 - np.exp(-epsilon)))
        counts = counts[counts < 60 * self.sd]
        step = self.sd / 20
        self.truth, often = np.unique(np.rint(counts / step) * step, return_counts=True)
        self.share = often / often.sum()
        self.grid = np.arange(-8 * self.sd, self.truth[-1] + 8 * self.sd, step)
        law = np.exp(-np.abs(self.grid - self.truth[:, None]) * np.sqrt(2) / self.sd)
        self.law = law / law.sum(axis=1, keepdims=True)
        inside = [(self.truth > low - 0.5) & (self.truth < high + 0.5) for low, high in SIZES]
        self.classes = [some for some in inside if self.share[some].sum() > SHARE]

    def mean_error(self, rule: NDArray) -> float:
        return float(self.share @ (self.law @ rule - self.truth))

    def default(self) -> tuple[NDArray, float]:
        """The default's rule, and its threshold in standard deviations."""
        kept = lambda t: self.mean_error(np.maximum(self.grid - t, 0))  # noqa: E731
        lowered = float(brentq(kept, -3 * self.sd, 8 * self.sd))  # pyright: ignore[reportArgumentType]
        return np.maximum(self.grid - lowered, 0), lowered / self.sd

    def best(self, weights: NDArray) -> NDArray:
        """The Bayes rule where classes have these weights, moved so that the sum is kept."""
        raised = self.share.copy()
        for some, weight in zip(self.classes, weights, strict=True):
            raised[some] *= 1 + weight
        density = raised @ self.law + 1e-300
        mean = (raised * self.truth) @ self.law / density
        along = self.sd * (self.share @ self.law) / density
        move = brentq(lambda t: self.mean_error(np.maximum(mean + t * along, 0)), -50, 50)
        return np.maximum(mean + move * along, 0)

    def risks(self, rule: NDArray) -> NDArray:
        """Mean squared error of every class, and of all counts."""
        squares = (self.law * (rule - self.truth[:, None]) ** 2).sum(axis=1)
        everything = [*self.classes, np.ones(len(self.truth), bool)]
        return np.array([self.share[some] @ squares[some] / self.share[some].sum() for some in everything])

    def ratios(self) -> tuple[float, NDArray, NDArray]:
        """The default's threshold, and errors over the default's: of the best rule, of the best that no class loses by."""
        default, threshold = self.default()
        now, weights = self.risks(default), np.zeros(len(self.classes))
        free = found = np.sqrt(self.risks(self.best(weights)) / now)
        for _ in range(STEPS):
            weights = np.maximum(weights + RATE * (found[:-1] - 1) * (1 + weights), 0)
            found = np.sqrt(self.risks(self.best(weights)) / now)
        return threshold, free, found


def cases(harness: Harness) -> Iterator[Case]:
    """Nothing is timed."""
    return iter(())


def pictures(harness: Harness) -> Iterator[Picture]:
    """Ratios of root mean squared errors to the default's."""
    rows = []
    for name, counts in populations().items():
        for epsilon in EPSILONS:
            harness.progress(f"{name}, epsilon {epsilon}")
            choice = Choice(counts, epsilon)
            threshold, free, held = choice.ratios()
            figures = (threshold, free[-1], free[:-1].max(), held[-1], held[:-1].max())
            rows.append([name, f"{choice.sd:.1f}", *(f"{figure:.2f}" for figure in figures)])
    columns = ["population", "noise", "threshold", "best", "its worst class", "no class above", "its worst"]
    yield Picture(
        title="root mean squared error, default = 1 (threshold in sd of the noise)",
        columns=columns,
        rows=rows,
    )
