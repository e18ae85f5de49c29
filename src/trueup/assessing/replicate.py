"""Simulation of replicates in blocks: noise at every budget, and sums of each method's errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from trueup.assessing.comparators import Comparator
from trueup.assessing.estimators import Estimator
from trueup.assessing.tally import ERROR, MISSED, RATIO, SQUARE, Key, Strata, Tally, tally
from trueup.kernel.statistics.streaming import Scatter
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, simulate_many
from trueup.model.names import COUNTED_UNIT
from trueup.run.local import LocalPool

MIN_REPLICATE_BLOCKS = 20
"""Least number of blocks: errors of variances are estimated from the differences between blocks."""
ENTRIES = 2**21
"""Most values of one block at a time (16 MB)."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ReplicateBlock:
    """A block of successive replicates, whose number determines its random seed."""

    number: int
    start: int
    size: int


@dataclass(frozen=True, eq=False)
class Done:
    """Sums of errors over all finished blocks, for each budget, method and margin.

    Attributes
    ----------
    replicates, blocks
        Numbers of finished replicates and blocks.
    sums
        Sums by position of budget, position of method, and margin.
    versus
        Differences in class means between a method and the first one, on the same noise.
    """

    replicates: int
    blocks: int
    sums: Mapping[tuple[int, int, Margin], Tally]
    versus: Mapping[tuple[int, int, Margin], Mapping[Key, Scatter]]

    def __add__(self, other: Done) -> Done:
        versus = {
            key: {part: scatter + other.versus[key][part] for part, scatter in parts.items()}
            for key, parts in self.versus.items()
        }
        sums = {key: tally + other.sums[key] for key, tally in self.sums.items()}
        return Done(self.replicates + other.replicates, self.blocks + other.blocks, sums, versus)


@dataclass(frozen=True, eq=False)
class Simulation:
    """A function that simulates a block of replicates.

    Attributes
    ----------
    cells, counts
        The cells and their `(n,)` true counts.
    scenarios
        For each budget, what is measured and the prepared methods.
    strata
        The margins, with their counts sorted.
    thresholds
        Limits (counts) by margin and name.
    seed
        Seed of the whole assessment.
    kept
        Number of replicates whose errors are kept for quantiles of single groups, by margin.
    shares
        Share of every block that each method sees.
    additivity
        True to record the distance of every count from the sum of its published parts.
    linked
        Name of the ratio of two linked tables, such as `person per household`; empty for one table.
    """

    cells: Cells
    counts: NDArray[np.int64]
    scenarios: Sequence[tuple[Sequence[Measured], Sequence[Estimator | Comparator]]]
    strata: Sequence[Strata]
    thresholds: Mapping[Margin, Mapping[str, float]]
    seed: int
    kept: Mapping[Margin, int]
    shares: Sequence[float]
    additivity: bool = False
    linked: str = ""

    def __call__(self, block: ReplicateBlock) -> Done:
        """Simulate a block of replicates, and return its sums of errors."""
        sums: dict[tuple[int, int, Margin], Tally] = {}
        versus: dict[tuple[int, int, Margin], dict[Key, Scatter]] = {}
        for budget, (headers, estimators) in enumerate(self.scenarios):
            values = simulate_many(self.cells, self.counts, headers, self._rng(block, 0), block.size)
            first: dict[Margin, dict[Key, NDArray]] = {}
            for number, estimator in enumerate(estimators):
                rows = max(2, ceil(block.size * self.shares[number]))
                for margin, (tally_, means) in self._tally(block, estimator, values[:rows]).items():
                    sums[budget, number, margin] = tally_
                    if not number:
                        first[margin] = means
                        continue
                    versus[budget, number, margin] = {  # replicate by replicate, under the same noise
                        key: Scatter.of(means[key] - first[margin][key][: len(means[key])])
                        for key in (ERROR, SQUARE)
                    }
        return Done(block.size, 1, sums, versus)

    def _rng(self, block: ReplicateBlock, purpose: int) -> np.random.Generator:
        """Return a block's random generator, for noise (`purpose` 0) or for the methods' own draws (1)."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(block.number, purpose)))

    def _tally(
        self, block: ReplicateBlock, estimator: Estimator | Comparator, values: NDArray
    ) -> dict[Margin, tuple[Tally, dict[Key, NDArray]]]:
        margins = [strata.margin for strata in self.strata]
        found = estimator.estimate(self.cells, margins, values, self._rng(block, 1))
        return {
            strata.margin: tally(
                strata,
                found.tables[strata.margin],
                {rule: b for (rule, margin), b in found.intervals.items() if margin == strata.margin},
                self.thresholds.get(strata.margin, {}),
                keep=block.start < self.kept[strata.margin],
                more=self._more(strata, found.tables),
            )
            for strata in self.strata
        }

    def _more(self, strata: Strata, tables: Mapping[Margin, NDArray]) -> dict[Key, NDArray]:
        """Return statistics `(b, groups)` of a margin's counts besides their errors."""
        found = _missed(self.cells, strata.margin, tables) if self.additivity else {}
        if self.linked and strata.margin.attributes == (COUNTED_UNIT,):
            found |= _of_ratios(strata.truth, tables[strata.margin], self.linked)
        return found


def _missed(cells: Cells, margin: Margin, tables: Mapping[Margin, NDArray]) -> dict[Key, NDArray]:
    """Return distances `(b, groups)` between counts and the sums of their parts in the next finer table."""
    finer = [m for m in tables if m != margin and cells.contains(margin, m)]
    if not finer:
        return {}
    parts = min(finer, key=cells.size)
    group, counts = cells.groups(parts, margin), tables[margin]
    sums = np.stack([np.bincount(group, row, cells.size(margin)) for row in tables[parts]])
    return {(MISSED, str(parts)): np.abs(sums - counts)}


def ratio_of(constraints: Constraints) -> str:
    """Return the name of the ratio of two linked tables, or an empty text for a single table."""
    joined = constraints.joined
    return "" if joined is None else " per ".join(table.counts for table in joined.tables)


def _of_ratios(truth: NDArray, counts: NDArray, name: str) -> dict[Key, NDArray]:
    """Return errors of the ratio of two linked tables at each place, NaN if the true ratio is undefined."""
    true, made = (t[..., ::2] / np.maximum(t[..., 1::2], 1) for t in (truth, counts))
    errors = np.full(counts.shape, np.nan)
    errors[:, 1::2] = np.where(truth[1::2] > 0, made - true, np.nan)
    return {(f"bias{RATIO}", name): errors, (f"mean absolute error{RATIO}", name): np.abs(errors)}


def replicate_blocks(replicates: int, cells: int) -> list[ReplicateBlock]:
    """Divide the replicates into blocks of almost equal size."""
    number = min(max(MIN_REPLICATE_BLOCKS, -(-replicates * cells // ENTRIES)), replicates // 2)
    edges = np.linspace(0, replicates, number + 1).astype(int).tolist()
    return [ReplicateBlock(k, start, stop - start) for k, (start, stop) in enumerate(pairwise(edges))]


def carry_out(
    simulation: Simulation, blocks: Sequence[ReplicateBlock], workers: int, progress: Progress
) -> Done:
    """Simulate the blocks and add up their sums, or those of the finished blocks after an interruption."""
    waiting: dict[int, Done] = {}
    done, replicates = None, sum(block.size for block in blocks)
    try:
        with LocalPool(workers) as pool:
            for at, found in pool.map(simulation, blocks):
                waiting[at] = found
                while (next_ := done.blocks if done else 0) in waiting:
                    part = waiting.pop(next_)
                    done = done + part if done else part
                    progress(done.replicates, replicates)
    except KeyboardInterrupt:
        if done is None or done.blocks < 2:
            raise
    assert done is not None
    return done
