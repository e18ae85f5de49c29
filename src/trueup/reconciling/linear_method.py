"""Reconciliation methods that need no structure: one program a row of values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.programs import Answer
from trueup.kernel.status import Status, largest
from trueup.layouts.linear import LinearProblem, refuse_unmeasured_rows
from trueup.layouts.span import OF_PROGRAMS, refuse_wide_span
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Method, Solution

OPEN_TIES = "among equally near points"


class LinearMethod(Method):
    """A method that needs no structure: one program a row of values."""

    effort: ClassVar[int] = 500

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Write everything as rows."""
        problem = LinearProblem(constraints, tuple(headers))
        refuse_unmeasured_rows(problem)
        refuse_wide_span(headers, OF_PROGRAMS)
        return problem

    @abstractmethod
    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Solve for one row of values `(q,)`; the rng settles ties between equally good whole points."""

    def apply(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties between equally good whole points."""
        answers = [self.project(state, row, rng) for row in np.atleast_2d(values)]
        status = Status.worst(a.status for a in answers)
        x = np.stack([a.x for a in answers]).reshape(*values.shape[:-1], state.cells.n)
        x = np.maximum(x, state.lowest)
        stats: dict[str, Any] = {
            "largest residual (counts)": largest(a.residual for a in answers),
            "largest relative gap, proved for the whole problem": largest_gap(answers),
        }
        if not all(a.even for a in answers):
            stats[OPEN_TIES] = "one that is not proved to have the least squares"
        whole = self.integer and status is Status.SOLVED
        return Solution(np.rint(x).astype(np.int64) if whole else x, status, stats)


def largest_gap(answers: Sequence[Answer]) -> float | None:
    """The largest of proved gaps; None where nothing was proved for one of them."""
    gaps = [a.gap for a in answers]
    return None if None in gaps else largest(g for g in gaps if g is not None)
