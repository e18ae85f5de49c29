"""Zhu et al., the bound on New Mexico's counties: which total it belongs to, and what the bias is."""

from __future__ import annotations

from fractions import Fraction
from math import exp, factorial, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.item import Found, Item, Setting
from papers.row import Row, claim, corrected, furthest, held, likely
from papers.simplex import project_on_total
from papers.zhu.residuals import PAPER
from trueup.noise import Laplace
from trueup.theory import nonnegative_bias_bound

Reals = NDArray[np.float64]

COUNTIES, SMALLEST, SCALE, RUNS, RUNS_STATED = 33, 348, 5, 80_000, 100
PRINTED, MEANT = 7_289_112, 789_112
"""State totals: as printed, and without its second digit."""
PERSONS = {"Arizona": (2_371_715, 6_392_017), "Texas": (8_887_839, 25_145_561), "New Mexico": (MEANT, 2_059_179)}  # fmt: skip
"""Printed total (New Mexico's as meant), and population in the 2010 Census."""
HOUSEHOLD = (2.3, 3.2)
"""Persons for every household in 2010, those outside households too: from Maine's 2.4 to Utah's 3.1."""

WRONG = (
    "The printed bound does not follow from the printed total of 7,289,112, which is not New Mexico's either: its 33 counties "
    "had 2,059,179 persons in 2010, the smallest 695."
)
TYPED = (
    "So the printed total is 789,112 with one digit typed too many, and the printed bound is .2964 cut off. Like the paper's "
    "totals of Arizona and Texas, 789,112 is a number of households, not of persons."
)
BY_CHANCE = (
    "The exact bias is below 1e-20, so all of the printed 0.06 is Monte Carlo error. The paper does not say here how many "
    "runs it took: 0.06 is usual for the 80,000 that it took elsewhere, and impossible for the 100 that it states."
)


class ZhuNewMexico(Item):
    """Theorem 11's bound for 33 counties, and the bias itself."""

    name: ClassVar[str] = "zhu-new-mexico"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Section on the bias of program (P+), New Mexico"
    shows: ClassVar[str] = (
        f"Theorem 11's bound for {COUNTIES} counties of which the smallest has {SMALLEST}, with Laplace noise of scale "
        f"{SCALE}; and mean and variance of every county's error over {RUNS:,} runs of program (P+)."
    )
    seconds: ClassVar[float] = 1.0
    catches: ClassVar[tuple[str, ...]] = (
        "clip and scale in place of the projection",
        "noise 5 % too narrow",
        "bound 1 % too low",
        "every place 0.15 counts too high",
    )

    def run(self, setting: Setting) -> Found:
        law = Laplace(Fraction(SCALE))
        printed, meant = (
            nonnegative_bias_bound(law, COUNTIES, SMALLEST, t - SMALLEST) for t in (PRINTED, MEANT)
        )
        found = errors(setting.runs(RUNS), setting.rng(self))
        rows = (
            corrected(
                "bound with the printed total of 7,289,112", "0.29", printed, as_printed(PRINTED), WRONG
            ),
            held("bound with 789,112", meant, as_printed(MEANT), right_error=1e-8),
            claim("bound with 789,112, cut off", "0.29", f"{meant:.4f}", 0.29 <= meant < 0.30, TYPED),
            _digits(law),
            _households(),
            *_largest(found),
            _variances(found),
        )
        return Found(rows)


def as_printed(total: int) -> float:
    """Theorem 11 by its printed sum."""
    ratio = SMALLEST / SCALE
    return (total - SMALLEST) * exp(-ratio) * sum(ratio**i / factorial(i) for i in range(COUNTIES))


def _digits(law: Laplace) -> Row:
    """The printed total less one digit: which digit gives the printed bound."""
    digits = str(PRINTED)
    shorter = sorted({int(digits[:i] + digits[i + 1 :]) for i in range(len(digits))})
    fits = [
        t for t in shorter if 0.29 <= nonnegative_bias_bound(law, COUNTIES, SMALLEST, t - SMALLEST) < 0.30
    ]
    text = ", ".join(f"{t:,}" for t in fits)
    return claim("the printed total less one digit, where the bound is 0.29", "", text, fits == [MEANT])


def _households() -> Row:
    sizes = {state: persons / total for state, (total, persons) in PERSONS.items()}
    text = ", ".join(f"{state} {size:.2f}" for state, size in sizes.items())
    low, high = HOUSEHOLD
    label = f"persons of 2010 for each that the paper counts: {low} to {high}, as in a household"
    return claim(label, "", text, all(low < size < high for size in sizes.values()))


def errors(runs: int, rng: np.random.Generator) -> Reals:
    """Errors `(runs, 33)` after (P+); counts from 348 up, in equal ratios, that add up to about 790,000."""
    counts = np.rint(np.geomspace(SMALLEST, 134_474, COUNTIES))
    ones, bounds = np.ones(COUNTIES), np.full(COUNTIES, np.inf)
    noisy = counts + rng.laplace(0, SCALE, (runs, COUNTIES))
    return project_on_total(ones, 0 * ones, bounds, float(counts.sum()), noisy) - counts


def _largest(found: Reals) -> list[Row]:
    """The largest of 33 mean errors, ours and the printed one, by what it is below by chance where nothing is biased."""
    largest, runs = float(np.abs(found.mean(axis=0)).max()), len(found)
    ours = below(largest, runs)
    low, high = (below(edge, RUNS) for edge in (0.055, 0.065))
    few = below(0.065, RUNS_STATED)
    return [
        likely(
            f"largest mean error over {runs:,} runs", "", f"{largest:.3f}", 2 * min(ours, 1 - ours), BY_CHANCE
        ),
        likely(f"largest mean error of unbiased counts over {RUNS:,} runs", "0.06",
               f"below 0.055 with probability {low:.2f}, above 0.065 with {1 - high:.2f}", 2 * min(high, 1 - low)),
        claim(f"largest mean error of unbiased counts over {RUNS_STATED} runs", "0.06",
              f"below 0.065 with probability {few:.1g}", few < 1e-6),
    ]  # fmt: skip


def below(largest: float, runs: int) -> float:
    """Probability that the largest of 33 absolute means is at most that where nothing is biased; counts nearly independent."""
    from scipy.special import erf

    return float(erf(largest / sqrt(2 * variance() / runs)) ** COUNTIES)


def variance() -> float:
    """Variance (counts squared) of a county's error by Theorem 12: here no count comes near zero."""
    return (1 - 1 / COUNTIES) * 2 * SCALE**2


def _variances(found: Reals) -> Row:
    """Hold every county's variance to Theorem 12."""
    spread = (found**2).mean(axis=0)
    errors = np.sqrt((found**4).mean(axis=0) - spread**2) / sqrt(len(found))
    return furthest("variances of the counties' errors by Theorem 12", spread, variance(), errors)
