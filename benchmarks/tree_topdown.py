"""The top-down default, continuous and rounded; what it gives up against the global optimum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._nonnegative import nonnegative
from benchmarks._trees import Instance, instance
from benchmarks.harness import Case, Harness
from trueup.kernel.tree.topdown import topdown
from trueup.kernel.tree.whole import controlled_rounding


def cases(harness: Harness) -> Iterator[Case]:
    for nodes in (10**4, 10**5, 10**6, 6_300_000):
        problem = instance(nodes)
        y = problem.measured(np.random.default_rng(1))
        x = _topdown(problem, y)
        yield from harness.compare(
            f"continuous, {problem.size:,} nodes",
            lambda: _topdown(problem, y),  # noqa: B023
            {"ours, global nonnegative optimum": lambda: _global(problem, y)},  # noqa: B023
        )
        yield from harness.compare(
            f"rounding, {problem.size:,} nodes",
            lambda: controlled_rounding(problem.child_ptr, 1 / problem.variance, x),  # noqa: B023
            {"numpy rint (does not add up)": lambda: np.rint(x)},  # noqa: B023
        )


def _topdown(problem: Instance, y):
    zero, infinity = np.zeros(problem.size), np.full(problem.size, np.inf)
    return topdown(problem.child_ptr, problem.variance, zero, infinity, y)[0]


def _global(problem: Instance, y):
    return nonnegative(problem.child_ptr, problem.variance, y)[0]
