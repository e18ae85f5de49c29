"""Wang & Reiter (2021), section 3.3: how often the smallest count's noisy value is below zero."""

from __future__ import annotations

from math import exp
from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.row import claim, compare, share_error
from papers.wang.scenarios import RUNS
from papers.wangreiter.table_2 import scenarios

SETTINGS = ((1.0, 0), (5.0, 0), (0.1, 0), (1.0, 1))
"""Epsilon of a part, and the smallest count, as the paper states them for each scenario."""
PRINTED = ("2714", "72", "4765", "1045")


class WangReiterNegativeCounts(Item):
    """Number of runs whose smallest noisy count is negative."""

    name: ClassVar[str] = "wangreiter-negative-counts"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Section 3.3"
    shows: ClassVar[str] = (
        "Expected number of 10,000 runs in which the noisy value of the smallest count is below zero, by the law of "
        "the noise; the paper's numbers are simulated."
    )

    catches: ClassVar[tuple[str, ...]] = ("epsilon 1 % off", "counts 1 too high")

    def run(self, setting: Setting) -> Found:
        shares = [float(s.laws[1].cdf(-1 - s.counts[0])) for s in scenarios().values()]
        rows = [
            compare(f"Scenario {number}", figure, RUNS * share, paper_error=RUNS * share_error(share, RUNS))
            for number, (figure, share) in enumerate(zip(PRINTED, shares), start=1)
        ]
        formula = [below_zero(epsilon, count) for epsilon, count in SETTINGS]
        gap = max(abs(share - right) for share, right in zip(shares, formula))
        rows.append(
            claim("Shares by equation (2), summed: largest difference", "", f"{gap:.1g}", gap < 1e-12)
        )
        return Found(tuple(rows))


def below_zero(epsilon: float, count: int) -> float:
    """Probability `q^(count + 1) / (1 + q)` that a noisy count is below zero, q = exp(-epsilon)."""
    q = exp(-epsilon)
    return q ** (count + 1) / (1 + q)
