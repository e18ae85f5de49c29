"""Reconciliation methods that need no structure: one program a row of values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.programs import Answer
from trueup.layouts.linear import LinearProblem, refuse_unmeasured
from trueup.layouts.span import OF_PROGRAMS, refuse_wide_span
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Method, Solution


class LinearMethod(Method):
    """A method that needs no structure: one program a row of values."""

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Write everything as rows."""
        problem = LinearProblem(constraints, tuple(headers))
        refuse_unmeasured(problem)
        refuse_wide_span(headers, OF_PROGRAMS)
        return problem

    @abstractmethod
    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Solve for one row of values `(q,)`; the rng settles ties between equally good whole points."""

    def apply(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties between equally good whole points."""
        answers = [self.project(state, row, rng) for row in np.atleast_2d(values)]
        x = np.stack([a.x for a in answers]).reshape(*values.shape[:-1], state.cells.n)
        if state.constraints.nonnegative:
            x = np.maximum(x, 0)
        gaps = [a.gap for a in answers]
        stats = {
            "largest residual (counts)": max(a.residual for a in answers),
            "largest relative gap": None if None in gaps else max(g for g in gaps if g is not None),
        }
        status = next((a.status for a in answers if a.status != "solved"), "solved")
        return Solution(
            np.rint(x).astype(np.int64) if self.integer and status == "solved" else x, status, stats
        )
