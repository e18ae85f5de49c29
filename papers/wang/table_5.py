"""Wang (2020), Table 5: the true counts behind Algorithm 3, the multinomial mode."""

from __future__ import annotations

from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.wang.posterior import as_enumerated, posterior, ten_highest


class WangTable5(Item):
    """Ten highest posterior probabilities of two true counts behind Algorithm 3."""

    name: ClassVar[str] = "wang-table-5"
    paper: ClassVar[str] = "Wang (2020, draft)"
    place: ClassVar[str] = "Table 5"
    shows: ClassVar[str] = (
        "Exact posterior of the true counts behind released parts 250 and 357, a multinomial mode of counts with noise "
        "of epsilon 1, under flat priors; the same table as Table 3 of Wang & Reiter (2021)."
    )

    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 1 % off",
        "a prior that falls by 1 % a count",
        "ties to the highest index",
    )

    def run(self, setting: Setting) -> Found:
        found = posterior()
        return Found((*ten_highest(found), as_enumerated(found)))
