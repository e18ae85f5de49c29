"""What the tables of Wang & Reiter (2021) and of Wang's draft (2020) share: counts, noise, releases, rows.

The list order of the counts is not published, and the published loop compares quotients in double precision, so that
rounding errors settle part of the ties and the order of the list the others. Most figures are the same however ties are
settled: hence `ties = "shuffled"` where a release is compared. Those that are not are held to the loop itself
(`papers/wangreiter/loop.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from papers.row import Row, compare, held, mean_error, printed, variance_error
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.reconciling.method import Method

Integers = NDArray[np.int64]

RUNS = 10_000
"""Simulation runs of both papers."""
POINTS = {"N_min": 0, "N_q1": 11, "N_med": 24, "N_q3": 37, "N_max": 49}
"""Places of the reported counts among the 50 in order. Scenario 4 settles which: 2 is the 12th, 11 the 38th."""
TOTAL = 21_249

# Wang & Reiter (2021), Table 1: count and number of times it occurs.
_INSTANCES = {1: 7, 2: 5, 3: 3, 4: 6, 5: 3, 6: 2, 7: 2, 8: 4, 9: 4, 10: 1, 11: 1, 12: 1, 13: 1, 14: 2, 16: 1,
              18: 2, 27: 2, 36: 1, 53: 1, 435: 1}  # fmt: skip


def tabulated_counts() -> Integers:
    """Counts of scenario 4, in order.

    Examples
    --------
    >>> counts = tabulated_counts()
    >>> counts.sum(), counts[list(POINTS.values())]
    (np.int64(863), array([  1,   2,   6,  11, 435]))
    """
    return np.repeat(list(_INSTANCES), list(_INSTANCES.values()))


def described_counts() -> Integers:
    """Counts as section 3.3 describes those of scenarios 1 to 3, in order.

    Three 0, one each of 1, 2 and 3, five from 15 to 60, and 39 from 60 to 977 with the printed quartiles and total:
    evenly spaced between the quartiles, each of which is taken twice so that it is the quartile by any convention,
    then moved up alike until the total is right.

    Examples
    --------
    >>> counts = described_counts()
    >>> counts.sum(), counts[list(POINTS.values())], np.quantile(counts, [0.25, 0.5, 0.75])
    (np.int64(21249), array([  0,  60, 382, 736, 977]), array([ 60., 382., 736.]))
    """
    fixed = np.array([11, 12, 13, 24, 25, 36, 37, 49])
    places = np.arange(11, 50)
    counts = np.array([0, 0, 0, 1, 2, 3, 15, 26, 37, 48, 59, *np.zeros(39, int)])
    counts[11:] = np.interp(places, fixed, [60, 60, 60, 382, 382, 736, 736, 977])
    free = np.setdiff1d(places, fixed)
    whole, left = divmod(TOTAL - int(counts.sum()), free.size)
    counts[free] += whole
    counts[free[:left]] += 1
    return counts


@dataclass(frozen=True, eq=False)
class Scenario:
    """True counts of the parts `(n,)` in order, and the epsilon of the total's noise and of each part's."""

    counts: Integers
    epsilon_total: str = "1"
    epsilon_part: str = "1"

    @property
    def laws(self) -> tuple[DiscreteLaplace, DiscreteLaplace]:
        """Laws of the total's noise and of each part's."""
        return DiscreteLaplace(Fraction(self.epsilon_total)), DiscreteLaplace(Fraction(self.epsilon_part))

    def noisy(self, runs: int, rng: np.random.Generator) -> Integers:
        """Noisy total and parts of each run, `(runs, 1 + n)`."""
        of_total, of_part = self.laws
        values = np.empty((runs, 1 + self.counts.size), np.int64)
        values[:, 0] = self.counts.sum() + of_total.sample(runs, rng.bytes)
        values[:, 1:] = self.counts + of_part.sample(runs * self.counts.size, rng.bytes).reshape(runs, -1)
        return values

    def released(self, method: Method, noisy: Integers, rng: np.random.Generator) -> Integers:
        """Released parts of each run, `(runs, n)`."""
        names = [f"{i:03}" for i in range(self.counts.size)]
        cells = Cells(Tree.from_columns(["all", "part"], [{}, {"part": names}]))
        margins = Margin("all"), Margin("part")
        headers = [Measured("counts", margin, law) for margin, law in zip(margins, self.laws)]
        return method.apply(method.prepare(Constraints(cells, margins), headers), noisy, rng).values


def geometric_variance(epsilon: str) -> float:
    """Variance `2 q / (1 - q)^2` of two-sided geometric noise, q = exp(-epsilon): equation (2) of the paper, summed.

    Examples
    --------
    >>> round(geometric_variance("1"), 4)
    1.8413
    """
    q = math.exp(-Fraction(epsilon))
    return 2 * q / (1 - q) ** 2


def noise_of_parts(label: str, scenario: Scenario, noisy: Integers) -> Row:
    """Hold the noise that the releases are made from to its exact variance: all runs and parts together."""
    squares = (noisy[:, 1:] - scenario.counts).astype(float) ** 2
    error = float(squares.std()) / math.sqrt(squares.size)
    right = geometric_variance(scenario.epsilon_part)
    return held(f"{label}noise of a part: variance", float(squares.mean()), right, ours_error=error)


def reported(parts: Integers, *, total: bool = False) -> dict[str, Integers]:
    """Columns of a table: the five reported counts of each run, and their total."""
    columns = {name: parts[:, place] for name, place in POINTS.items()}
    return columns | ({"N": parts.sum(axis=1)} if total else {})


def mean_and_variance(label: str, draws: Integers, figures: str) -> list[Row]:
    """Compare the mean and the variance of our runs with a printed `mean (variance)` of the paper's."""
    mean, variance = figures.rstrip(")").split(" (")
    spread, kurtosis = _spread(draws, printed(variance))
    at = [(mean_error(spread, runs), variance_error(spread, runs, kurtosis)) for runs in (draws.size, RUNS)]
    ours, papers = at
    return [
        compare(f"{label}: average", mean, float(draws.mean()), ours_error=ours[0], paper_error=papers[0]),
        compare(
            f"{label}: variance",
            variance,
            float(draws.var(ddof=1)),
            ours_error=ours[1],
            paper_error=papers[1],
        ),
    ]


def _spread(draws: Integers, variance: float) -> tuple[float, float]:
    """Variance and kurtosis that errors follow from.

    The variance is at least the printed one, which a short run without its rare large errors would miss; both are at
    least what one run off by one would show.
    """
    from_mean = (draws - draws.mean()) ** 2
    second = max(float(from_mean.mean()), 1 / draws.size)
    kurtosis = max(float((from_mean**2).mean()) / second**2, 3.0 if from_mean.any() else draws.size)
    return max(second, variance), kurtosis
