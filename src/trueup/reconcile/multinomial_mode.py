"""Wang and Reiter's multinomial mode, applied to every parent from the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.multinomial import multinomial_mode_tree
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.release import Solution
from trueup.reconcile.method import Method
from trueup.reconcile.on_tree import TreeProblem, refuse_unmeasured, tree_problem


@dataclass(frozen=True)
class MultinomialMode(Method):
    """Split each total among its parts by a mode of the multinomial distribution.

    The parts' probabilities are proportional to their noisy counts, negative ones taken as zero.

    Attributes
    ----------
    empty
        What to do where a total is left to split among parts that are all zero: refuse with
        `error`, or split it evenly with `uniform`.

    References
    ----------
    Wang and Reiter (2021), section 3.2, with the total by the independence approximation.
    """

    empty: Literal["error", "uniform"] = "uniform"

    name: ClassVar[str] = "multinomial-mode"
    title: ClassVar[str] = "each total split by a multinomial mode (Wang and Reiter 2021)"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    def refuses(self, constraints: Constraints) -> str | None:
        """Bounds other than zero are not part of the multinomial model."""
        if constraints.bounds:
            return "it knows invariants and structural zeros, but no other bounds"
        return None if constraints.nonnegative else "it makes counts nonnegative"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
        """Lay out the tree."""
        problem = tree_problem(constraints, headers)
        refuse_unmeasured(problem)
        return problem

    def apply(self, state: TreeProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Split from the top; `rng` is not used."""
        nodes = state.filled(np.maximum(state.values(values), 0))
        rows = [self._split(state, row) for row in np.atleast_2d(nodes)]
        return Solution(state.finest(np.reshape(rows, (*values.shape[:-1], -1))))

    def _split(self, state: TreeProblem, nodes: NDArray) -> NDArray[np.int64]:
        weights = np.rint(nodes).astype(np.int64)
        known = (state.variance == 0) | (state.upper == 0)
        exact = np.where(known, np.minimum(weights, state.upper), -1).astype(np.int64)
        return multinomial_mode_tree(state.child_ptr, weights, int(weights[0]), exact=exact, empty=self.empty)
