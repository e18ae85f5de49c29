"""Wang & Reiter's simulations: 10,000 replicates of 50 counts, both approximations, from noisy counts to released ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.harness import Case, Harness
from papers.wang.scenarios import RUNS, Integers, Scenario
from papers.wangreiter.table_2 import scenarios
from trueup.reconciling.multinomial import MultinomialMode

METHODS = MultinomialMode(ties="shuffled"), MultinomialMode(total="summed", ties="shuffled")


def cases(harness: Harness) -> Iterator[Case]:
    for number, scenario in scenarios().items():
        noisy = scenario.noisy(RUNS, np.random.default_rng(number))
        yield from harness.compare(
            f"scenario {number}: {RUNS:,} replicates, both approximations",
            lambda scenario=scenario, noisy=noisy: both(scenario, noisy),
            {},
        )


def both(scenario: Scenario, noisy: Integers) -> list[Integers]:
    """Released parts under either approximation."""
    rng = np.random.default_rng(0)
    return [scenario.released(method, noisy, rng) for method in METHODS]
