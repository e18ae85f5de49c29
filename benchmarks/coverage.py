"""Coverage of 90 % intervals on trees under the hierarchical prior, and squared errors against the default release."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks._coverage import LAWS, replicate, scenarios
from benchmarks.harness import Case, Harness, Picture
from trueup.model.prior import Hierarchical

REPLICATES, MANY = 40, 2000
"""Of each scenario, and with --full: at least 2,000 intervals at every level, the root's too."""
COLUMNS = [
    "counts",
    "noise",
    "of",
    "intervals",
    "held",
    "stated mass",
    "difference",
    "± s.e.",
    "RMSE / release's",
    "z",
]


def cases(harness: Harness) -> Iterator[Case]:
    """No times: what is measured stands in the pictures."""
    yield from ()


def pictures(harness: Harness) -> Iterator[Picture]:
    """Held less stated mass by level, for sums of ten places anywhere and for shares of a parent."""
    rows = []
    for scenario in scenarios():
        for law in LAWS:
            found = replicate(scenario, law, Hierarchical(), MANY if harness.full else REPLICATES, 1)
            harness.progress(f"{scenario.name}, {law}")
            for of, held in found.items():
                ratio = (held.posterior.mean() / max(held.released.mean(), 1e-12)) ** 0.5
                figures = [held.held.mean(), held.mass.mean(), held.excess, held.error]
                count = held.counts * len(held.held)
                texts = [f"{x:.3f}" for x in figures]
                rows.append(
                    [scenario.name, law, of, f"{count:,}", *texts, f"{ratio:.3f}", f"{held.worse:.1f}"]
                )
    yield Picture(title="coverage", columns=COLUMNS, rows=rows)
