"""Zhu et al., Figure 4: the bias disappears as all counts are shifted up."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np

from papers.census import BLOCKS, block_counts
from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.row import ERRORS, claim, held
from papers.zhu.exact import biases
from papers.zhu.residuals import EPSILON, GROUP, PAPER, RUNS, SETTING, Integers, Mean, errors
from trueup.noise import DiscreteLaplace
from trueup.theory import nonnegative_bias_bound

SHIFTS = (0, 1, 2, 5, 10, 20, 40)


class ZhuFigure4(Item):
    """Bias of the smallest place after program (P+), as every count grows by the same number."""

    name: ClassVar[str] = "zhu-figure-4"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 4"
    shows: ClassVar[str] = (
        f"As in Figure 1, with every block increased by {SHIFTS[1]} to {SHIFTS[-1]} persons: mean error of the smallest "
        "block after projection, beside its exact value."
    )
    files: ClassVar[tuple[str, ...]] = (BLOCKS,)
    seconds: ClassVar[float] = 8.0
    catches: ClassVar[tuple[str, ...]] = (
        "clip and scale in place of the projection",
        "epsilon 2 % off",
        "every place 0.02 counts too high",
    )

    def run(self, setting: Setting) -> Found:
        rng, counts = setting.rng(self), block_counts(setting, GROUP)
        found = [errors(counts + s, setting.runs(RUNS), rng).bias(0) for s in SHIFTS]
        exact = [float(biases(counts + s, EPSILON, np.array([0]))[0]) for s in SHIFTS]
        first, last = found[0], found[-1]
        falls = all(then < now for now, then in pairwise(exact))
        rows = (
            claim("smallest block: mean error without a shift", "biased up", first.text, first.positive),
            *(
                held(f"shifted by {s}: bias", ours.value, right, ours_error=max(ours.error, _least(setting)))
                for s, ours, right in zip(SHIFTS, found, exact)
                if right > 0.01
            ),
            claim(
                f"shifted by {SHIFTS[-1]}: bias",
                "disappears",
                f"{last.text}, exactly {exact[-1]:.1g}",
                exact[-1] < 1e-6 and abs(last.value) <= ERRORS * max(last.error, _least(setting)),
            ),
            claim("exact bias as the shift grows", "disappears", " ".join(f"{b:.2g}" for b in exact), falls),
        )
        return Found(rows, (picture(found, exact), bound(counts)), (SETTING,))


def _least(setting: Setting) -> float:
    """Standard error that one single run off by a count would show: short runs may have none."""
    return 1 / setting.runs(RUNS)


def picture(found: list[Mean], exact: list[float]) -> Plot:
    """Mean error of the smallest place by its count."""
    at = list(map(float, SHIFTS))
    points = Curve("mean error", at, [m.value for m in found], "points", [2 * m.error for m in found])
    return plot(
        [points, Curve("exact bias", at, exact)],
        "smallest count r_m (persons)",
        "mean error of the smallest block (persons)",
        f"The bias falls from {found[0].text} to {found[-1].text} persons.",
        "Mean error after projection by the smallest true count; bars are two Monte Carlo errors to either side.",
    )


def bound(counts: Integers) -> Plot:
    """Theorem 11's bound on every place's bias, by the smallest count."""
    n, farthest = len(counts), float(counts.sum() - counts.min())
    # the noise's absolute values add up to about n times the scale
    at = n / EPSILON * np.linspace(0.9, 2.5, 71)
    law = DiscreteLaplace(Fraction(EPSILON))
    bounds = [nonnegative_bias_bound(law, n, float(smallest), farthest) for smallest in np.rint(at)]
    return plot(
        [Curve("bound", np.rint(at).tolist(), bounds)],
        "smallest count r_m (persons)",
        "bound on the bias (persons)",
        "The bound falls steeply once the smallest count exceeds the typical sum of the noise's absolute values.",
        f"Theorem 11's bound for {n} blocks. It is far above the bias: it takes every run whose noise adds up to more "
        "than r_m in absolute value for a run that moved one place by the whole total.",
        log_up=True,
    )
