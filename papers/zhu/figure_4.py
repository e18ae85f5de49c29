"""Zhu et al., Figure 4: the bias disappears as all counts are shifted up."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np

from papers.counties import COUNTIES, county_counts
from papers.item import Found, Item, Setting
from papers.row import ERRORS, claim
from papers.zhu.residuals import PAPER, RUNS, SCALE, SETTING, STATE, Mean, errors
from trueup.noise import Laplace
from trueup.reporting.drawing.curves import Curve, Plot, plot
from trueup.theory import nonnegative_bias_bound

SHIFTS = (0, 100, 200, 400, 800, 1600, 4800)


class ZhuFigure4(Item):
    """Bias of a state's smallest county after program (P+), as every count grows by the same number."""

    name: ClassVar[str] = "zhu-figure-4"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 4"
    shows: ClassVar[str] = (
        f"As in Figure 1, with every county of {STATE} increased by {SHIFTS[1]} to {SHIFTS[-1]:,} persons: mean error of "
        "the smallest county after projection."
    )
    files: ClassVar[tuple[str, ...]] = (COUNTIES,)
    seconds: ClassVar[float] = 12.0

    def run(self, setting: Setting) -> Found:
        rng, counts = setting.rng(self), county_counts(setting, STATE).astype(float)
        small = int(np.argmin(counts))
        found = [errors(counts + s, setting.runs(RUNS), rng).bias(small) for s in SHIFTS]
        first, last = found[0], found[-1]
        falls = all(
            then.value <= now.value + ERRORS * (then.error + now.error) for now, then in pairwise(found)
        )
        rows = (
            claim("smallest county: mean error without a shift", "biased up", first.text, first.positive),
            claim(f"shifted by {SHIFTS[-1]:,}", "no bias", last.text, abs(last.value) < 0.01 * first.value),
            claim(
                "mean error as the shift grows",
                "disappears",
                " ".join(f"{m.value:+.1f}" for m in found),
                falls,
            ),
        )
        return Found(rows, (picture(found, float(counts.min())), bound(counts)), (SETTING,))


def picture(found: list[Mean], smallest: float) -> Plot:
    """Mean error of the smallest county by its count."""
    at = [smallest + shift for shift in SHIFTS]
    points = Curve("mean error", at, [m.value for m in found], "points", [2 * m.error for m in found])
    return plot(
        [points],
        "smallest count r_m (persons)",
        "mean error of the smallest county (persons)",
        f"The bias falls from {found[0].text} to {found[-1].text} persons.",
        "Mean error after projection by the smallest true count; bars are two Monte Carlo errors to either side.",
    )


def bound(counts: np.ndarray) -> Plot:
    """Theorem 11's bound on every county's bias, by the smallest count."""
    n, farthest = len(counts), float(counts.sum() - counts.min())
    at = (
        SCALE * n * np.linspace(0.9, 1.6, 71)
    )  # the noise's absolute values add up to about n times the scale
    bounds = [nonnegative_bias_bound(Laplace(Fraction(SCALE)), n, smallest, farthest) for smallest in at]
    return plot(
        [Curve("bound", at.tolist(), bounds)],
        "smallest count r_m (persons)",
        "bound on the bias (persons)",
        "The bound falls steeply once the smallest count exceeds the typical sum of the noise's absolute values.",
        f"Theorem 11's bound for {n} counties. It is far above the bias: it takes every run whose noise adds up to more "
        "than r_m in absolute value for a run that moved one county by the whole state.",
        log_up=True,
    )
