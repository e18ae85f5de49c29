"""Histograms on a hierarchy: race (8) x voting age (2), four marginals at five levels, down to blocks.

`difference` is from the peer: for least squares that is an oracle; for `continuous` it is how far apart the two released
block tables are.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import _histograms
from benchmarks._histograms import Histograms
from benchmarks.harness import Case, Harness
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.settling.descend import Settling, settle


def cases(harness: Harness) -> Iterator[Case]:
    small, state = _histograms.synthetic((1, 3, 9, 20, 200)), _histograms.rhode_island()
    for problem in (small, state):
        places = f"{problem.source}, {problem.spine.size(problem.spine.depth - 1):,} blocks"
        tiny = problem is small
        yield from harness.compare(
            f"{places}: least squares",
            lambda problem=problem: problem.tree().fit(problem.answers).values[-1],
            {
                "scipy lsqr": (lambda problem=problem: _histograms.by_lsqr(problem))
                if tiny or harness.full
                else "run with --full: minutes",
                "sparse direct": (lambda problem=problem: _histograms.by_sparse_direct(problem))
                if tiny
                else "not run above 1,000 blocks",
            },
        )
        yield from harness.compare(
            f"{places}: whole, nonnegative, additive",
            lambda problem=problem: _whole(problem, problem.tree()),
            {
                "ours, continuous": lambda problem=problem: _whole(problem, problem.tree(), integer=False),
            },
        )


def _whole(problem: Histograms, tree: HistogramLeastSquares, *, integer: bool = True):
    return settle(
        tree, tree.fit(problem.answers).subtree, problem.chains(), Settling(integer=integer)
    ).values[-1]
