"""The global nonnegative optimum on a tree, against exact oracles (small) and general solvers (large)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import _solvers
from benchmarks._trees import Instance, instance
from benchmarks.harness import Case, Harness, Run, available
from trueup.kernel.tree.nonnegative import nonnegative


def cases(harness: Harness) -> Iterator[Case]:
    for nodes in (500, 10**4, 10**5, 10**6, 6_300_000):
        problem = instance(nodes)
        y = problem.measured(np.random.default_rng(1))

        def ours(passes: int = 60, problem=problem, y=y):
            return nonnegative(problem.child_ptr, problem.variance, y, passes=passes)[0]

        yield from harness.compare(
            f"{problem.size:,} nodes",
            ours,
            _peers(harness, problem, y) | {"ours, by breakpoints": lambda ours=ours: ours(0)},
        )


def _peers(harness: Harness, problem: Instance, y) -> dict[str, Run | str]:
    nodes = problem.size
    peers: dict[str, Run | str] = {}
    if nodes <= 500:
        peers["scipy nnls"] = lambda: _solvers.nnls(problem, y)
        peers["daqp"] = available("daqp", lambda: _solvers.daqp(problem, y))
        peers["hierarchicalforecast"] = available(
            "hierarchicalforecast", lambda: _solvers.hierarchicalforecast(problem, y, True)
        )
    huge = "not run above 1e6" if nodes > 1_010_000 else None
    slow = "run with --full above 1e5" if nodes > 100_010 and not harness.full else None
    peers["piqp"] = huge or available("piqp", lambda: _solvers.piqp(problem, y))
    peers["clarabel"] = huge or slow or available("clarabel", lambda: _solvers.clarabel(problem, y))
    peers["osqp"] = huge or slow or available("osqp", lambda: _solvers.osqp(problem, y))
    return peers
