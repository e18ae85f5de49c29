"""Wang & Reiter (2021), section 5: two noisy parts and a total that reconcile in one way, or in three."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import numpy as np

from papers.item import Found, Item, Setting
from papers.row import claim
from papers.wang.scenarios import Scenario
from trueup.reconciling.multinomial import MultinomialMode

PARTS, TOTAL, AGAIN = (1, 9), 11, 100
PRINTED = "(1, 10, 11)"
NEAREST = "(1, 9, 10) (1, 10, 11) (2, 9, 11)"


class WangReiterExample(Item):
    """The release of parts 1 and 9 with total 11."""

    name: ClassVar[str] = "wangreiter-example"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Section 5"
    shows: ClassVar[str] = "Noisy parts 1 and 9 with noisy total 11: the multinomial mode, and least squares."

    catches: ClassVar[tuple[str, ...]] = ("draws in place of modes",)

    def run(self, setting: Setting) -> Found:
        scenario = Scenario(np.array(PARTS))
        parts = scenario.released(MultinomialMode(), np.array([[TOTAL, *PARTS]] * AGAIN), setting.rng(self))
        released = " ".join(sorted({_shown(each) for each in parts}))
        nearest = " ".join(_shown(np.array(pair)) for pair in least_squares())
        return Found(
            (
                claim(f"Parts and total that {AGAIN} releases give", PRINTED, released, released == PRINTED),
                claim(
                    "Released by least squares in whole numbers",
                    NEAREST,
                    nearest,
                    nearest == NEAREST,
                    "all three are as near to the noisy counts",
                ),
            )
        )


def least_squares() -> list[tuple[int, int]]:
    """Whole parts whose squared distance to the noisy parts and total, their own sum included, is least."""
    distance = {
        (a, b): (a - PARTS[0]) ** 2 + (b - PARTS[1]) ** 2 + (a + b - TOTAL) ** 2
        for a, b in product(range(TOTAL + 1), repeat=2)
    }
    return [pair for pair, squared in distance.items() if squared == min(distance.values())]


def _shown(parts: np.ndarray) -> str:
    return f"({parts[0]}, {parts[1]}, {parts.sum()})"
