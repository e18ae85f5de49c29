"""Zhu et al., Figure 5: distance between the raw error and the error after projection on a known total."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np

from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim, shown
from papers.zhu.residuals import PAPER, mean
from trueup.noise import DiscreteLaplace, Laplace
from trueup.reporting.drawing.curves import Curve, Plot, plot
from trueup.theory import projected_error, wasserstein, wasserstein_bound

SCALE, RUNS = 10, 20_000
NOISE = Laplace(Fraction(SCALE))
DIMENSIONS = (2, 3, 5, 10, 20, 50, 100, 200, 500)
SIMULATED = (2, 10, 50)


class ZhuFigure5(Item):
    """Wasserstein distance of the two laws by the number of parts."""

    name: ClassVar[str] = "zhu-figure-5"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 5"
    shows: ClassVar[str] = (
        f"Wasserstein distance between Laplace noise of scale {SCALE} and the error of a part after projection of n parts "
        "on their known total, exactly and by simulation, for 2 to 500 parts."
    )
    seconds: ClassVar[float] = 4.0

    def run(self, setting: Setting) -> Found:
        rng = setting.rng(self)
        exact = {n: wasserstein(NOISE, n) for n in DIMENSIONS}
        rows = [simulated(n, exact[n], setting.runs(RUNS), rng) for n in SIMULATED]
        falls = all(then < now for now, then in pairwise(exact.values()))
        below = all(exact[n] <= wasserstein_bound(NOISE, n) for n in DIMENSIONS)
        rows += [
            claim("distance as n grows", "decreases quickly", _listed(exact), falls),
            claim("at most sqrt(variance / n)", "", "at every n" if below else "not at every n", below),
            shown("scale 2 on the integers, n = 10", "", wasserstein(DiscreteLaplace(Fraction(1, 2)), 10),
                  "The two-sided geometric noise of the paper's experiments, epsilon = 1/2."),
        ]  # fmt: skip
        note = "The figure prints no numbers; it is asserted that the exact distances are those of simulated errors."
        return Found(tuple(rows), (picture(exact),), (note,))


def simulated(n: int, exact: float, runs: int, rng: np.random.Generator) -> Row:
    """The distance by simulation: a mean difference, by Kantorovich's duality.

    The distance is the largest difference of the two laws' means of any function with slopes between -1 and 1, and the
    largest has slope 1 where the error is below the noise in law, -1 where it is above.
    """
    x = SCALE * np.linspace(-40, 40, 80_001)
    slope = np.sign(NOISE.cdf(x) - projected_error(NOISE, n).cdf(x))
    potential = np.concatenate([[0.0], np.cumsum(0.5 * (slope[1:] + slope[:-1]) * np.diff(x))])
    noise = rng.laplace(0, SCALE, (runs, n))
    error = noise[:, 0] - noise.mean(axis=1)
    found = mean(np.interp(error, x, potential) - np.interp(noise[:, 0], x, potential))
    holds = abs(found.value - exact) < ERRORS * found.error
    return claim(f"n = {n}: exact {exact:.3f}", "", found.text, holds)


def picture(exact: dict[int, float]) -> Plot:
    """Distance by number of parts."""
    n = list(exact)
    bound = [wasserstein_bound(NOISE, k) for k in n]
    return plot(
        [Curve("distance", n, list(exact.values())), Curve("bound sqrt(variance / n)", n, bound)],
        "number of parts n",
        "Wasserstein distance (counts)",
        f"The distance falls from {exact[n[0]]:.2f} counts at n = {n[0]} to {exact[n[-1]]:.3f} at n = {n[-1]}.",
        "Exact distance between the law of the noise and that of the error after projection.",
        log_across=True,
        log_up=True,
    )


def _listed(exact: dict[int, float]) -> str:
    return " ".join(f"{value:.3g}" for value in exact.values())
