"""Coverage of 90 % intervals on trees under the hierarchical prior, and squared errors against those of releases."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks._coverage import COVERAGE, EVERY, LAWS, Held, figures, replicate, scenarios, together
from benchmarks.harness import Case, Harness, Picture
from trueup.model.prior import Hierarchical

REPLICATES = 8
"""Of each kind of counts and of noise."""
MANY = {"US counties": 15, "NM districts": 25, "Bristol, RI, blocks": 60, "Rhode Island, blocks": 9}
"""With --full, where it is not `MADE_UP`: 2,000 intervals of each kind or more over all noise, of top levels over all counts."""
MADE_UP = 100
PARTS = ("50 % zeros", "90 % zeros", "heavy-tailed", "two-humped", *MANY)
ERRORS = ["MSE / tree-topdown's", "z", "MSE / default's"]


def cases(harness: Harness) -> Iterator[Case]:
    """No times: what is measured stands in the pictures."""
    yield from ()


def pictures(harness: Harness) -> Iterator[Picture]:
    """Held less stated mass by level, for sums of ten places anywhere and for shares of a parent; squared errors.

    z is that of paired differences from 1.01 times the squared error of `tree-topdown`, of all counts from that error itself.
    """
    rows, over, tops = [], [], []
    for scenario in scenarios():
        if harness.part not in (None, scenario.name):
            continue
        many = MANY.get(scenario.name, MADE_UP)
        many = many if harness.full else min(many, REPLICATES)
        found = {}
        for law in LAWS:
            found[law] = replicate(scenario, law, Hierarchical(), many, 1)
            harness.progress(f"{scenario.name}, {law}")
            rows += [
                [scenario.name, law, of, *figures(held), *_errors(held, of)]
                for of, held in found[law].items()
            ]
        every = {of: together(each[of] for each in found.values()) for of in found[law] if of != EVERY}
        over += [[scenario.name, of, *figures(held)] for of, held in every.items()]
        tops.append(every[scenario.cells.tree.levels[0]])
    yield Picture(
        title="coverage and errors", columns=["counts", "noise", "of", *COVERAGE, *ERRORS], rows=rows
    )
    over.append(["all", "top level", *figures(together(tops))])
    yield Picture(title="coverage over all noise", columns=["counts", "of", *COVERAGE], rows=over)


def _errors(held: Held, of: str) -> list[str]:
    ratios = [held.posterior.mean() / max(one.mean(), 1e-12) for one in (held.unshrunk, held.released)]
    return [
        f"{ratios[0]:.3f}",
        f"{held.worse(1.0 if of == EVERY else 1.01, held.unshrunk):.1f}",
        f"{ratios[1]:.3f}",
    ]
