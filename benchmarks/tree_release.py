"""The default method from measurements to whole, additive counts, with everything around the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks import _solvers
from benchmarks._trees import SCALES, SHAPES, instance
from benchmarks.harness import Case, Harness, available
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.reconciling.tree_topdown import TreeTopDown

LEVELS = ("nation", "state", "county", "tract", "block group", "block")


def cases(harness: Harness) -> Iterator[Case]:
    """Ours: prepare and apply, measurements and geography given. The peer's optimum is neither whole nor unbiased."""
    for nodes in SHAPES:
        problem = instance(nodes)
        values = problem.measured(np.random.default_rng(1)).astype(np.int64)
        tree = Tree(LEVELS, problem.child_ptr, problem.level_ptr)
        margins = tuple(Margin(level) for level in LEVELS)
        laws = (DiscreteLaplace(Fraction(1) / Fraction(scale)) for scale in SCALES)
        headers = tuple(Measured("total", margin, law) for margin, law in zip(margins, laws))

        def release(tree=tree, margins=margins, headers=headers, values=values):
            constraints = Constraints(Cells(tree), margins)
            method = TreeTopDown()
            state = method.prepare(constraints, headers)
            return method.apply(state, values, np.random.default_rng(0)).values

        def optimum(problem=problem, values=values):
            return _solvers.piqp(problem, values.astype(float))[problem.level_ptr[-2] :]

        most = 10**6 if harness.full else 10**5
        peer = available("piqp", optimum) if nodes <= most else f"not run above {most:,}"
        yield from harness.compare(f"{problem.size:,} nodes", release, {"piqp, continuous": peer})
