"""Wang & Reiter (2021), Table 3: the true counts behind a multinomial mode."""

from __future__ import annotations

from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.wang.posterior import as_enumerated, posterior, ten_highest


class WangReiterTable3(Item):
    """Ten highest posterior probabilities of two true counts."""

    name: ClassVar[str] = "wangreiter-table-3"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Table 3"
    shows: ClassVar[str] = (
        "Exact posterior of the true counts behind released parts 250 and 357, a multinomial mode of counts with noise "
        "of epsilon 1, under flat priors."
    )

    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 % off",
        "a prior that falls by 1 % a count",
        "ties to the highest index",
    )

    def run(self, setting: Setting) -> Found:
        found = posterior()
        note = "The table settles the rule for ties: the lowest index first, both in adding and in removing."
        return Found((*ten_highest(found), as_enumerated(found)), notes=(note,))
