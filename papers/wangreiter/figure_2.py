"""Wang & Reiter (2021), Figure 2: marginal posteriors of two true counts and their total."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from papers.curves import Curve, Plot, plot
from papers.item import Found, Item, Setting
from papers.row import Row, claim
from papers.wang.posterior import RELEASED, Posterior, as_enumerated, posterior

NEAR = 4
"""The paper: most mass is within so many counts of the released ones."""
DRAWN = 12
"""How far from the released count the picture goes."""

Marginal = tuple[NDArray[np.int64], NDArray[np.float64]]


class WangReiterFigure2(Item):
    """Marginal posteriors of N_1, N_2 and N, drawn."""

    name: ClassVar[str] = "wangreiter-figure-2"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Figure 2"
    shows: ClassVar[str] = (
        "Exact marginal posteriors of both true counts and of their total behind released parts 250 and 357."
    )

    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 % off",
        "a prior that falls by 1 % a count",
        "ties to the highest index",
    )

    def run(self, setting: Setting) -> Found:
        joint = posterior()
        found = marginals(joint)
        released = dict(zip(found, (*RELEASED, sum(RELEASED))))
        rows = [row for name in found for row in _rows(name, *found[name], released[name])]
        return Found(
            (*rows, as_enumerated(joint)),
            tuple(_picture(name, *found[name], released[name]) for name in found),
        )


def marginals(found: Posterior) -> dict[str, Marginal]:
    """Values and masses of each part and of the total."""
    sums = (found.first[:, None] + found.second[None, :]).ravel()
    total = np.arange(sums.min(), sums.max() + 1)
    return {
        "N_1": (found.first, found.mass.sum(axis=1)),
        "N_2": (found.second, found.mass.sum(axis=0)),
        "N": (total, np.bincount(sums - sums.min(), found.mass.ravel()).astype(float)),
    }


def _rows(name: str, values: NDArray, mass: NDArray, released: int) -> list[Row]:
    mode, near = int(values[np.argmax(mass)]), float(mass[np.abs(values - released) <= NEAR].sum())
    return [
        claim(f"{name}: mode at the released count", str(released), str(mode), mode == released),
        claim(f"{name}: mass within {NEAR} of it", "most", f"{near:.3f}", near > 0.5),
    ]


def _picture(name: str, values: NDArray, mass: NDArray, released: int) -> Plot:
    shown = np.abs(values - released) <= DRAWN
    edges = [*(values[shown] - 0.5), values[shown][-1] + 0.5]
    return plot(
        [Curve(name, edges, mass[shown].tolist(), "steps")],
        f"{name} (counts)",
        "posterior probability",
        f"The posterior of {name} is centred on the released count {released}.",
        f"Marginal posterior of {name} given the released parts {RELEASED[0]} and {RELEASED[1]}.",
    )
