"""Wang & Reiter (2021), section 3.3: variance of the sum of the noisy parts."""

from __future__ import annotations

from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.row import compare
from papers.wangreiter.table_2 import scenarios

PRINTED = ("92.1", "0.7", "9991.7", "92.1")


class WangReiterSummedTotals(Item):
    """Variance of the summed noisy total, before any reconciliation."""

    name: ClassVar[str] = "wangreiter-summed-totals"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Section 3.3"
    shows: ClassVar[str] = "Variance of the sum of 50 noisy parts (counts squared), by the law of the noise."

    catches: ClassVar[tuple[str, ...]] = ("epsilon 1 % off", "one part left out")

    def run(self, setting: Setting) -> Found:
        rows = [
            compare(f"Scenario {number}", figure, scenario.counts.size * scenario.laws[1].variance)
            for figure, (number, scenario) in zip(PRINTED, scenarios().items())
        ]
        return Found(tuple(rows))
