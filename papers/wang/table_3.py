"""Wang (2020), Table 3: Algorithms 1 to 3 on mostly small counts."""

from __future__ import annotations

from typing import ClassVar

from papers.item import Found, Item, Setting
from papers.wang.scenarios import RUNS, Scenario, tabulated_counts
from papers.wang.table_1 import rows

PRINTED = {
    "Algorithm 1 (ind)": ("1.5 (3.5)", "2.2 (4.7)", "6.0 (9.3)", "11.0 (14.0)", "432.5 (256.8)"),
    "Algorithm 1 (summed)": ("1.5 (3.5)", "2.2 (4.9)", "6.0 (9.2)", "11.0 (14.5)", "432.5 (259)"),
    "Algorithm 2": ("1.1 (2.2)", "2.1 (3.6)", "6.0 (7.9)", "11.0 (12.6)", "434.2 (235.1)"),
    "Algorithm 3": ("1.0 (1.1)", "2.0 (1.5)", "5.9 (1.8)", "11.0 (1.8)", "437.6 (19.2)"),
}
"""Average (variance) of N_min, N_q1, N_med, N_q3 and N_max, as printed."""


class WangTable3(Item):
    """Averages and variances of counts released by three algorithms, Example 2."""

    name: ClassVar[str] = "wang-table-3"
    paper: ClassVar[str] = "Wang (2020, draft)"
    place: ClassVar[str] = "Table 3"
    shows: ClassVar[str] = (
        "10,000 releases of the 50 counts of its Table 2 with noise of epsilon 1: multinomial draws (Algorithms 1 and "
        "2) and the multinomial mode (Algorithm 3, ties settled at random)."
    )
    seconds: ClassVar[float] = 14.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 5 % off",
        "draws in place of modes",
        "posterior modes in place of posterior draws",
        "ties to the lowest index",
    )

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        return Found(tuple(rows(Scenario(tabulated_counts()), PRINTED, runs, rng)))
