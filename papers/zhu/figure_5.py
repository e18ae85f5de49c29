"""Zhu et al., Figure 5: distance between the raw error and the error after projection on a known total."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np

from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.row import ERRORS, Row, claim, held
from papers.zhu.marginal import ACCURACY, distance, distribution
from papers.zhu.residuals import PAPER, mean
from trueup.noise import Laplace
from trueup.theory import wasserstein, wasserstein_bound

SCALE, RUNS = 10, 200_000
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
    catches: ClassVar[tuple[str, ...]] = (
        "a law whose scale is 1 % off",
        "the mean of n + 1 parts for that of n",
        "noise 5 % too narrow",
    )

    def run(self, setting: Setting) -> Found:
        rng = setting.rng(self)
        exact = {n: wasserstein(NOISE, n) for n in DIMENSIONS}
        falls = all(then < now for now, then in pairwise(exact.values()))
        below = all(exact[n] <= wasserstein_bound(NOISE, n) for n in DIMENSIONS)
        rows = (
            *(inverted(n, exact[n]) for n in DIMENSIONS),
            *(simulated(n, setting.runs(RUNS), rng) for n in SIMULATED),
            claim("distance as n grows", "decreases quickly", _listed(exact), falls),
            claim("at most sqrt(variance / n)", "", "at every n" if below else "not at every n", below),
        )
        note = (
            "The figure prints no numbers: the distances of `trueup.theory` are held to an inversion of the error's Fourier "
            "transform, and that to simulated errors."
        )
        return Found(rows, (picture(exact),), (note,))


def inverted(n: int, exact: float) -> Row:
    """The distance of the theory beside that of the inverted transform."""
    right = SCALE * distance(n)
    return held(f"n = {n}: distance", exact, right, right_error=right * ACCURACY / ERRORS)


def simulated(n: int, runs: int, rng: np.random.Generator) -> Row:
    """The distance by simulation: a mean difference, by Kantorovich's duality.

    The distance is the largest difference of the two laws' means of any function with slopes between -1 and 1, and the
    largest has slope 1 where the error is below the noise in law, -1 where it is above.
    """
    x = np.linspace(0, 25, 2_501)
    slope = np.sign(
        1 - 0.5 * np.exp(-x) - distribution(n, x)
    )  # the potential is even: slopes at -x are those at x, turned
    potential = SCALE * np.concatenate([[0.0], np.cumsum(0.5 * (slope[1:] + slope[:-1]) * np.diff(x))])
    noise = rng.laplace(0, SCALE, (runs, n))
    error = noise[:, 0] - noise.mean(axis=1)
    found = mean(
        np.interp(np.abs(error), SCALE * x, potential) - np.interp(np.abs(noise[:, 0]), SCALE * x, potential)
    )
    right = SCALE * distance(n)
    return held(f"n = {n}: distance by {runs:,} runs", abs(found.value), right, ours_error=found.error,
                right_error=right * ACCURACY / ERRORS)  # fmt: skip


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
