"""Wang (2020), Table 1: Algorithms 1 to 3 on counts of all sizes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from papers.item import Found, Item, Setting
from papers.row import Row
from papers.wang.scenarios import (
    RUNS,
    Scenario,
    described_counts,
    mean_and_variance,
    noise_of_parts,
    reported,
)
from trueup.reconciling.method import Method
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample

ALGORITHMS: dict[str, Method] = {
    "Algorithm 1 (ind)": MultinomialSample(algorithm=1),
    "Algorithm 1 (summed)": MultinomialSample(algorithm=1, total="summed"),
    "Algorithm 2": MultinomialSample(algorithm=2),
    "Algorithm 3": MultinomialMode(ties="shuffled"),
}

PRINTED = {
    "Algorithm 1 (ind)": ("0.9 (2.4)", "60 (63)", "382 (375)", "736 (695)", "977 (940)"),
    "Algorithm 1 (summed)": ("0.9 (2.5)", "60 (63)", "382 (380)", "736 (714)", "977 (936)"),
    "Algorithm 2": ("0.4 (1.2)", "60 (62)", "382 (380)", "736 (708)", "977 (932)"),
    "Algorithm 3": ("0.4 (0.7)", "60 (2)", "382 (2)", "736 (2)", "977 (2)"),
}
"""Average (variance) of N_min, N_q1, N_med, N_q3 and N_max, as printed."""


class WangTable1(Item):
    """Averages and variances of counts released by three algorithms, Example 1."""

    name: ClassVar[str] = "wang-table-1"
    paper: ClassVar[str] = "Wang (2020, draft)"
    place: ClassVar[str] = "Table 1"
    shows: ClassVar[str] = (
        "10,000 releases of 50 counts from 0 to 977 with noise of epsilon 1: multinomial draws (Algorithms 1 and 2) "
        "and the multinomial mode (Algorithm 3)."
    )
    seconds: ClassVar[float] = 14.0
    catches: ClassVar[tuple[str, ...]] = (
        "epsilon 5 % off",
        "draws in place of modes",
        "posterior modes in place of posterior draws",
    )

    def run(self, setting: Setting) -> Found:
        rng, runs = setting.rng(self), setting.runs(RUNS)
        return Found(tuple(rows(Scenario(described_counts()), PRINTED, runs, rng)))


def rows(
    scenario: Scenario, printed: dict[str, tuple[str, ...]], runs: int, rng: np.random.Generator
) -> list[Row]:
    """Rows of every algorithm, all on the same noisy counts."""
    noisy = scenario.noisy(runs, rng)
    found = [noise_of_parts("", scenario, noisy)]
    for algorithm, method in ALGORITHMS.items():
        parts = scenario.released(method, noisy, rng)
        for (name, draws), figure in zip(reported(parts).items(), printed[algorithm]):
            found += mean_and_variance(f"{algorithm}, {name}", draws, figure)
    return found
