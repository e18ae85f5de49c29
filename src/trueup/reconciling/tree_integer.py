"""The exact integer optimum on a tree, by squares or by absolute differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.status import Status
from trueup.kernel.tree.integer import ROUNDING, best_move, integer_optimum
from trueup.kernel.tree.topdown import attainable, topdown
from trueup.layouts.linear import log_slope
from trueup.layouts.tree import (
    TreeProblem,
    inverse_variance,
    largest_adjustment,
    refuse_conflicts,
)
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_method import TreeMethod


@dataclass(frozen=True)
class TreeInteger(TreeMethod):
    """Find the additive integers within bounds that are nearest to the measurements.

    With `loss = "absolute"` and discrete Laplace noise it is the maximum-likelihood table: the differences
    are weighted by the slope of the law's log mass, epsilon. Being a mode, it can be far from the mean of totals:
    where 900 parts are measured as 0 and their total, as precisely as all parts together, as 450, the
    continuous total is 225 and the nearest integers are all 0. Use it where the mode is what is asked for.

    Attributes
    ----------
    loss
        `squares`: sum of (X - y)^2 / variance. `absolute`: sum of |X - y| times the slope of the law's log mass,
        1 / scale under discrete Laplace noise (`trueup.layouts.linear.log_slope`).

    References
    ----------
    `absolute` under an invariant total, with nonnegative = false, is the projected discrete Laplace mechanism that
    Dharangutte, Gao, Gong and Yu (2023), appendix, compare with; where many tables are equally near, as
    there, one of them is drawn from the public digest.
    """

    loss: Literal["squares", "absolute"] = "squares"

    name: ClassVar[str] = "tree-integer"
    title: ClassVar[str] = (
        "exact integer optimum, squares or absolute differences; a mode, so it can bias totals"
    )

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = super().prepare(constraints, headers)
        if self.loss == "absolute":
            _refuse_twice_measured(problem)
        return problem

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties between equally good tables."""
        nodes = state.values(values)
        refuse_conflicts(state, nodes)
        rows = np.atleast_2d(nodes)
        start = topdown(state.child_ptr, state.variance, *state.bounds(), rows, weights=state.messages)[0]
        seeds = rng.integers(2**63, size=len(rows), dtype=np.uint64)
        done = [self._solve(state, y, x, seed) for y, x, seed in zip(rows, start, seeds)]
        counts = np.reshape([counts for counts, *_ in done], nodes.shape)
        stats = {
            "largest adjustment": largest_adjustment(state, nodes, counts),
            "rounds": max((rounds for _, rounds, _, _ in done), default=0),
            "best remaining move": max((move for _, _, move, _ in done), default=0.0),
        }
        optimal = all(move <= ROUNDING * size for _, _, move, size in done)
        return Solution(state.finest(counts), Status.SOLVED if optimal else Status.UNSOLVED, stats)

    def _solve(self, state: TreeProblem, y: NDArray, start: NDArray, seed: np.uint64):
        """Counts, rounds, what the best single move would still gain, and the largest change of cost of any."""
        none = np.zeros(len(y))
        square, absolute = (
            (inverse_variance(state), none) if self.loss == "squares" else (none, _slopes(state))
        )
        low, high = state.bounds()
        attainable(state.child_ptr, state.variance == 0, low, high, y, low, high)
        counts, rounds = integer_optimum(state.child_ptr, square, absolute, y, low, high, start, int(seed))
        size = float((square * (2 * np.abs(counts - y) + 1) + absolute).max(initial=0.0))
        return counts, rounds, best_move(state.child_ptr, square, absolute, y, low, high, counts), size


def _slopes(problem: TreeProblem) -> NDArray:
    """Weight of the absolute difference at every node, 0 where nothing noisy was measured."""
    weights = np.zeros(len(problem.variance))
    for header, at in zip(problem.headers, problem.at, strict=True):
        if not header.exact:
            weights[at] = np.where(problem.variance[at] > 0, log_slope(header.law), 0.0)
    return weights


def _refuse_twice_measured(problem: TreeProblem) -> None:
    noisy = np.concatenate([at for header, at in zip(problem.headers, problem.nodes) if not header.exact])
    if len(noisy) > len(np.unique(noisy)):
        raise SpecError(
            "a margin is measured by several queries, and absolute differences from several values "
            "are not those from their average",
            remedy="use loss = 'squares', or measure each margin once",
        )
