"""Weighted least squares on a tree under additivity, against sparse factorisation and general solvers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import _solvers
from benchmarks._trees import instance
from benchmarks.harness import Case, Harness, available
from trueup.kernel.tree import least_squares


def cases(harness: Harness) -> Iterator[Case]:
    for nodes in (500, 10**4, 10**5, 10**6, 6_300_000):
        problem = instance(nodes)
        y = problem.measured(np.random.default_rng(1))
        big = nodes > 10**5 and not harness.full
        slow = "run with --full above 1e5" if big else None
        huge = "not run above 1e6" if nodes > 10**6 else None
        yield from harness.compare(
            f"{problem.size:,} nodes",
            lambda: least_squares(problem.child_ptr, problem.variance, y),  # noqa: B023
            {
                "scipy sparse direct": huge or (lambda: _solvers.sparse_direct(problem, y)),  # noqa: B023
                "clarabel": slow
                or huge
                or available("clarabel", lambda: _solvers.clarabel(problem, y, False)),  # noqa: B023
                "piqp": slow or huge or available("piqp", lambda: _solvers.piqp(problem, y, False)),  # noqa: B023
                "hierarchicalforecast": "dense: not run above 500"
                if nodes > 500
                else available(
                    "hierarchicalforecast",
                    lambda: _solvers.hierarchicalforecast(problem, y, False),  # noqa: B023
                ),
            },
        )
