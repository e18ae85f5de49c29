"""Zhu et al., Figure 6: the error after projection tends to the noise as parts grow in number."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import numpy as np

from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.row import Row, claim
from papers.zhu.marginal import distribution
from papers.zhu.residuals import PAPER
from trueup.noise import Laplace
from trueup.theory import kolmogorov, projected_error

SCALE, RUNS = 10, 400_000
NOISE = Laplace(Fraction(SCALE))
DIMENSIONS = (2, 5, 20, 100)
AT = np.linspace(-8, 8, 801)
"""Where distribution functions are compared (scales of the noise)."""
CRITICAL = 2.7
"""Of sqrt(runs) times the largest difference of distribution functions: Kolmogorov's law is above it one time in 1e6."""


class ZhuFigure6(Item):
    """Laws of the error for growing numbers of parts beside the Laplace law."""

    name: ClassVar[str] = "zhu-figure-6"
    paper: ClassVar[str] = PAPER
    place: ClassVar[str] = "Figure 6"
    shows: ClassVar[str] = (
        f"Density of the error of a part after projection of n parts with Laplace noise of scale {SCALE} on their known "
        "total, for 2 to 100 parts, beside the Laplace density; the law by Theorem 12, held to simulated errors."
    )
    seconds: ClassVar[float] = 5.0
    catches: ClassVar[tuple[str, ...]] = (
        "a law whose scale is 1 % off",
        "the mean of n + 1 parts for that of n",
        "noise 5 % too narrow",
    )

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        distance = {n: kolmogorov(NOISE, n) for n in DIMENSIONS}
        falls = all(then < now for now, then in pairwise(distance.values()))
        found = " ".join(f"{value:.2g}" for value in distance.values())
        note = "Largest difference of the distribution functions of error and noise, for n = 2, 5, 20, 100."
        rows = [row for n in DIMENSIONS for row in (inverted(n), simulated(n, runs, rng))]
        rows.append(claim("distance to the Laplace law as n grows", "converges", found, falls, note))
        return Found(tuple(rows), (picture(),))


def inverted(n: int) -> Row:
    """The distribution function of the theory beside that of the inverted transform."""
    gap = float(np.abs(projected_error(NOISE, n).cdf(SCALE * AT) - distribution(n, AT)).max())
    return claim(
        f"n = {n}: law of Theorem 12, by its Fourier transform",
        "",
        f"largest difference {gap:.1g}",
        gap < 1e-7,
    )


def simulated(n: int, runs: int, rng: np.random.Generator) -> Row:
    """Kolmogorov's test of simulated errors against the law of Theorem 12, at 801 points."""
    noise = rng.laplace(0, SCALE, (runs, n))
    found = np.searchsorted(np.sort(noise[:, 0] - noise.mean(axis=1)), SCALE * AT, side="right") / runs
    gap, limit = float(np.abs(found - distribution(n, AT)).max()), CRITICAL / np.sqrt(runs)
    text = f"largest difference {gap:.4f} (limit {limit:.4f})"
    return claim(f"n = {n}: {runs:,} simulated errors", "", text, bool(gap < limit))


def picture() -> Plot:
    """Densities of the errors and of the noise."""
    x = np.linspace(-40, 40, 401)
    curves = [
        Curve(f"n = {n}", x.tolist(), projected_error(NOISE, n).density(x).tolist()) for n in DIMENSIONS
    ]
    curves.append(Curve("Laplace noise", x.tolist(), NOISE.pmf(x).tolist()))
    return plot(
        curves,
        "error (counts)",
        "density (per count)",
        "The densities approach the peak of the Laplace density as n grows.",
        "Density of the error of one part after projection of n parts on their known total.",
    )
