"""Wang & Reiter (2021), Table 3: the true counts behind a multinomial mode."""

from __future__ import annotations

from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.wang.posterior import posterior, ten_highest


class WangReiterTable3(Item):
    """Ten highest posterior probabilities of two true counts."""

    name: ClassVar[str] = "wangreiter-table-3"
    paper: ClassVar[str] = "Wang & Reiter (2021)"
    place: ClassVar[str] = "Table 3"
    shows: ClassVar[str] = (
        "Exact posterior of the true counts behind released parts 250 and 357, a multinomial mode of counts with noise "
        "of epsilon 1, under flat priors."
    )

    def run(self, setting: Setting) -> Found:
        note = "The table settles the rule for ties: the lowest index first, both in adding and in removing."
        return Found(tuple(ten_highest(posterior())), notes=(note,))
