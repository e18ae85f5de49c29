"""Whether 90 % margins of error hold 90 % on random small tables, by size of the released count, each table weighing the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks._random_tables import RandomTable, random_table
from benchmarks.harness import Case, Harness, Picture
from trueup.model.header import simulate_many, split
from trueup.model.records.expected_errors import SIZES
from trueup.model.records.measurements import Measurements
from trueup.reconciling import Prepared, default

TABLES, RELEASES, SIMULATED = 40, 100, 5
"""Random tables, releases of each, and for how many of these the margins are simulated; the others take theirs in turn."""
CLASSES = (0.85, 0.98)
"""What margins of a size of at least `FEWEST` tables must cover."""
FEWEST = 10
WHOLE = (0.80, 0.99)
"""What margins must cover over all counts of a table, for nine of ten tables."""
NARROWEST = 0.90
"""A table whose margins cover more is not too wide if margins one count narrower would cover less than this."""
RATIO = (0.8, 1.4)
"""Within which the median of stated over true root mean squared errors must be."""


class Held(NamedTuple):
    """Counts of a table released within a size class: how many, what margins and narrower ones cover, errors stated and true."""

    size: int
    counts: int
    covered: float
    narrower: float
    stated: float
    true: float


def held(table: RandomTable) -> list[Held]:
    """Release a table with seeded noise, and hold each release's margins against the true counts; exact tables left out."""
    problem = table.problem
    prepared = Prepared.of(problem.constraints, problem.headers, default(problem.constraints))
    rows, simulated = [], []
    values = simulate_many(problem.cells, table.truth, problem.headers, np.random.default_rng(46), RELEASES)
    for number, row in enumerate(values):
        parts = tuple(split(row, problem.headers, problem.cells))
        noisy = Measurements(
            problem.cells, problem.headers, parts, problem.guarantee, simulation=True, spec=problem.spec
        )
        release = prepared.reconcile(noisy)
        if number < SIMULATED:
            simulated.append(release.expected)
        expected = simulated[number % len(simulated)]
        for margin in release.published:
            released, true = release.sums(margin), problem.cells.sum(table.truth, margin)
            if any(problem.cells.contains(margin, i) for i in problem.constraints.invariants):
                continue
            classes = expected.tables[margin]
            at = np.maximum(np.searchsorted([c.lowest for c in classes], released, side="right") - 1, 0)
            stated = np.array([c.rmse for c in classes])[at]
            rows.append(
                [released, np.abs(released - true), expected.margin_of_error(margin, released), stated]
            )
    released, error, margin, stated = (np.concatenate([row[i] for row in rows]) for i in range(4))
    sizes = np.searchsorted(SIZES, released, side="right")
    return [_held(int(k), *(x[sizes == k] for x in (error, margin, stated))) for k in np.unique(sizes)]


def _held(size: int, error, margin, stated) -> Held:
    root = [float(np.sqrt(np.square(x).mean())) for x in (stated, error)]
    return Held(size, error.size, float((error <= margin).mean()), float((error <= margin - 1).mean()), *root)


def over_all(rows: list[Held]) -> tuple[float, float]:
    """What margins, and narrower ones, cover over all counts of a table."""
    counts = [row.counts for row in rows]
    covered = np.average([row.covered for row in rows], weights=counts)
    return float(covered), float(np.average([row.narrower for row in rows], weights=counts))


_FOUND: list[tuple[RandomTable, list[Held]]] = []


def cases(harness: Harness) -> Iterator[Case]:
    """Processor time for all tables; and whether the three bars are met."""
    start = time.process_time()
    for number in range(TABLES):
        table = random_table(number)
        _FOUND.append((table, held(table)))
        harness.progress(f"{number}: {table.words}: {over_all(_FOUND[-1][1])[0]:.3f}")
    found = [over_all(rows) for _, rows in _FOUND]
    within = sum(
        WHOLE[0] <= covered <= WHOLE[1] or (covered > WHOLE[1] and narrower < NARROWEST)
        for covered, narrower in found
    )
    by_size = _by_size()
    met = sum(CLASSES[0] <= share <= CLASSES[1] for _, share in by_size.values())
    ratios = [r.stated / r.true for _, rows in _FOUND for r in rows if r.true and r.counts >= 100]
    text = (
        f"{met} of {len(by_size)} sizes hold {CLASSES[0]:.0%} to {CLASSES[1]:.0%}, {within} of {len(found)} tables "
        f"{WHOLE[0]:.0%} to {WHOLE[1]:.0%}, stated over true error {np.median(ratios):.2f} (median)"
    )
    yield Case(
        case=text,
        ours_s=time.process_time() - start,
        peer=None,
        peer_s=None,
        ratio=None,
        peak_mb=None,
        difference=None,
    )


def _by_size() -> dict[int, tuple[int, float]]:
    """For the sizes that enough tables have, how many these are, and what margins cover of their counts of that size.

    A table is drawn with equal chances, then one of its counts. An average of what margins cover in each table would give as
    much weight to one count in a thousand that noise alone brings to a size as to the counts that belong there.
    """
    found = {}
    for k in sorted({row.size for _, rows in _FOUND for row in rows}):
        weights, shares = [], []
        for _, rows in _FOUND:
            own = [r for r in rows if r.size == k]
            weights += [r.counts / sum(r.counts for r in rows) for r in own]
            shares += [r.covered for r in own]
        if len(shares) >= FEWEST:
            found[k] = len(shares), float(np.average(shares, weights=weights))
    return found


def pictures(harness: Harness) -> Iterator[Picture]:
    """Coverage by size, and every table."""
    rows = [
        [f"{SIZES[k - 1]:,}" if k else "0", str(tables), f"{share:.3f}"]
        for k, (tables, share) in _by_size().items()
    ]
    yield Picture(title="By released count, from", columns=["from", "tables", "covered"], rows=rows)
    rows = [[table.words, *(f"{x:.3f}" for x in over_all(found))] for table, found in _FOUND]
    yield Picture(title="Tables", columns=["table", "covered", "one count narrower"], rows=rows)
