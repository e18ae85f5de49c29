"""Whether shrinking small counts errs less on single trees: the default against `small_counts = "kept"`, by size class.

Whole numbers of Rhode Island's blocks and tracts, New Mexico's districts, and made-up places of which 50 and 90 % are
empty; every node is measured with the same two-sided geometric noise, and both see the same. Differences are paired: z is
that of the mean squared errors over replicates, in their standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks._trees import aggregate
from benchmarks.harness import Case, Harness, Picture
from benchmarks.margins_of_error import DATA, read
from trueup.kernel.tree.topdown import topdown
from trueup.kernel.tree.whole import controlled_rounding

SIZES = ((0, 0), (1, 9), (10, 99), (100, 999), (1000, 10**12))
EPSILONS = (0.7, 0.7 / 3, 0.7 / 4, 0.7 / 16)
FEWEST = 20
"""Classes of fewer counts are not shown."""


def worlds() -> Iterator[tuple[str, NDArray, NDArray]]:
    """Names, places that each leaf is in from the coarsest level to the leaves (levels, leaves), and true counts."""
    rng, places = np.random.default_rng(0), np.arange(20_000)
    for share in (0.5, 0.9):
        counts = np.floor(rng.lognormal(2.4, 1.1, places.size)) * (rng.random(places.size) >= share)
        yield f"made up, {share:.0%} empty", np.stack([places // 1000, places // 25, places]), counts
    if not DATA.is_dir():
        return
    blocks = read("ri_blocks_2010.csv.gz").sort_values("GEOID")
    inside = np.stack([_numbers(blocks.GEOID.str[:k]) for k in (5, 11, 12, 15)])
    for group in ("pop", "pop_asian", "pop_aian", "pop_nhpi"):
        yield f"Rhode Island's blocks, {group}", inside, blocks[group].to_numpy(float)
    first = np.unique(inside[1], return_index=True)[1]
    yield "Rhode Island's tracts, pop", inside[:2, first], np.bincount(inside[1], blocks["pop"])
    districts = read("nm_vtds_2010.csv.gz").sort_values(["county", "vtd"])
    inside = np.stack([_numbers(districts.county), np.arange(len(districts))])
    for group in ("pop", "pop_black", "pop_asian"):
        yield f"New Mexico's districts, {group}", inside, districts[group].to_numpy(float)


def _numbers(keys) -> NDArray[np.int64]:
    return np.unique(keys, return_inverse=True)[1]


def tree(inside: NDArray, counts: NDArray) -> tuple[NDArray, NDArray, int]:
    """The tree in level order, its true counts, and where its leaves begin."""
    levels = [np.zeros(1, np.int64), *(np.unique(row, return_index=True)[1] for row in inside)]
    start = np.cumsum([0, *(len(level) for level in levels)])
    child_ptr = np.full(start[-1] + 1, start[-1])
    for depth, (above, below) in enumerate(pairwise(levels)):
        child_ptr[start[depth] : start[depth + 1]] = start[depth + 1] + np.searchsorted(below, above)
    truth = np.zeros(start[-1])
    truth[start[-2] :] = counts
    return child_ptr, aggregate(child_ptr, truth), int(start[-2])


def errors(child_ptr, truth, epsilon: float, replicates: int) -> tuple[float, list[NDArray]]:
    """Standard deviation of the noise, and squared errors (replicates, nodes) of counts kept and shrunk."""
    rng, success = np.random.default_rng(7), 1 - np.exp(-epsilon)
    shape = (replicates, truth.size)
    noisy = truth + rng.geometric(success, shape) - rng.geometric(success, shape)
    variance = np.full(truth.size, 2 * (1 - success) / success**2)
    lower, upper, seeds = (
        np.zeros(truth.size),
        np.full(truth.size, np.inf),
        np.arange(replicates, dtype=np.uint64),
    )
    found = (topdown(child_ptr, variance, lower, upper, noisy, shrink=shrink)[0] for shrink in (False, True))
    whole = [controlled_rounding(child_ptr, 1 / variance, x, seeds) for x in found]
    return float(np.sqrt(variance[0])), [(x - truth) ** 2.0 for x in whole]


def cases(harness: Harness) -> Iterator[Case]:
    """Nothing is timed."""
    return iter(())


def pictures(harness: Harness) -> Iterator[Picture]:
    """Ratios of root mean squared errors, shrunk to kept, of all leaves and by size of the true count."""
    rows = []
    for name, inside, counts in worlds():
        child_ptr, truth, leaves = tree(inside, counts)
        for epsilon in EPSILONS:
            harness.progress(f"{name}, epsilon {epsilon:.2g}")
            noise, squares = errors(child_ptr, truth, epsilon, 100 if harness.full else 10)
            at = np.arange(truth.size) >= leaves
            inner = _ratio(squares, ~at)
            classes = [
                _ratio(squares, at & (truth >= low) & (truth <= high)) for low, high in ((0, np.inf), *SIZES)
            ]
            rows.append([name, f"{noise:.0f}", *classes, inner])
    columns = ["places", "noise", "all", *(f"{low}-{high}" for low, high in SIZES[:-1]), "1000 up", "above"]
    yield Picture(
        title="root mean squared error, small counts shrunk over kept (z)", columns=columns, rows=rows
    )


def _ratio(squares: list[NDArray], some: NDArray) -> str:
    if some.sum() < FEWEST:
        return "-"
    kept, shrunk = (each[:, some].mean(axis=1) for each in squares)
    change = shrunk - kept
    z = change.mean() / (change.std(ddof=1) / np.sqrt(len(change)) + 1e-300)
    return f"{np.sqrt(shrunk.mean() / kept.mean()):.3f} ({z:+.0f})"
