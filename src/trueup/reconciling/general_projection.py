"""Projection of measured values onto any linear constraints, in whole or real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.arrays.projection import Whole, nearest_point
from trueup.kernel import Status, largest
from trueup.kernel.linear.programs import Answer
from trueup.layouts import MAX_VARIANCE_RATIO_IN_PROGRAMS, refuse_wide_span
from trueup.layouts.linear import LinearProblem, log_slope, refuse_unmeasured_rows
from trueup.model.cells import Cells
from trueup.model.constraints import ONE_TABLE, Constraints
from trueup.model.header import Measured, split
from trueup.reconciling.method import Method, Solution

WHOLE: dict[str, Whole] = {"none": False, "controlled": "near", "optimal": "optimal"}
"""Whole-number requirement of each rounding."""
OPEN_TIES = "among equally near points"


@dataclass(frozen=True)
class GeneralProjection(Method):
    """Projection to the nearest counts under any linear constraints, by general solvers.

    For constraints that no faster method handles: it uses no structure. Least squares by PIQP or Clarabel (extra
    `solvers`), least absolute deviations by HiGHS with the least squares among the optima; whole counts by integer
    programming, with a gap from a lower bound that is proved for the whole problem.

    Attributes
    ----------
    norm
        `l2` weights squares by 1 / variance, `l1` weights absolute deviations by it.
    rounding
        `controlled`: the whole point nearest to the projection, in cells and measured sums alike. `optimal`: the whole
        point nearest to the measurements themselves, which can sit far from the projection. `none`: the projection.
    seconds
        Time limit of branch and bound; if it is met, the status says so and the gap is reported.

    Notes
    -----
    With `l1` and `optimal` it is the projected discrete Laplace mechanism that Dharangutte, Gao, Gong & Yu compare with:
    two-sided geometric noise, then an L1 projection in whole numbers. Deviations are then weighted by the slope of the
    law's log mass, 1 / scale, so that the point is the mode of the law given the noisy counts; see `log_slope`. The
    L1-nearest point is seldom unique; among all of them one of least squares is taken, which spreads a gap as evenly as it
    can be spread, in ten of the seconds at most: where it is not found in time the certificate says so. Which of equally
    good points is taken is left to an order of the cells drawn from the rng: by the order given, the first of 102 counties
    would be half a person too low and the last half a person too high.
    """

    norm: Literal["l2", "l1"] = "l2"
    rounding: Literal["controlled", "optimal", "none"] = "controlled"
    seconds: float = 60.0

    name: ClassVar[str] = "general-projection"
    title: ClassVar[str] = (
        "projection under any linear constraints, then the nearest whole counts by integer programming"
    )
    structures: ClassVar[frozenset[str]] = ONE_TABLE
    effort: ClassVar[int] = 500

    @property
    def integer(self) -> bool:
        """Return True if the method returns whole numbers."""
        return self.rounding != "none"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Return the problem with all constraints written as rows of a polyhedron."""
        problem = LinearProblem(constraints, tuple(headers))
        refuse_unmeasured_rows(problem)
        refuse_wide_span(headers, MAX_VARIANCE_RATIO_IN_PROGRAMS)
        return problem

    def apply(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile measured values `(q,)` or `(b, q)` into counts, with ties broken at random."""
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

    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Return the counts nearest to one row of measured values, with ties broken at random."""
        mode = self.rounding == "optimal" and self.norm == "l1"
        answer = nearest_point(
            state.polyhedron(values),
            state.fit(values, log_slope if mode else None),
            norm=self.norm,
            whole=WHOLE[self.rounding],
            seconds=self.seconds,
            rng=rng,
        )
        return state.refused(answer, values, integer=self.integer)


def largest_gap(answers: Sequence[Answer]) -> float | None:
    """Return the largest proved optimality gap of some results, or None if one has no proof."""
    gaps = [a.gap for a in answers]
    return None if None in gaps else largest(g for g in gaps if g is not None)


MAX_PROJECTED_CELLS = 20_000  # above this, the answer is that it was not solved


def at_once(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    rng: np.random.Generator,
    *,
    whole: bool,
    seconds: float = 60.0,
) -> Answer:
    """Return the counts `(n,)` that satisfy all rules and are nearest to measured values `(q,)`.

    Raises
    ------
    InfeasibleError
        If it is proved that the rules exclude each other; it names them.
    """
    problem = LinearProblem(constraints, tuple(headers))
    if constraints.cells.n > MAX_PROJECTED_CELLS:
        return Answer(np.zeros(constraints.cells.n), Status.UNSOLVED, np.inf, np.inf, None)
    general = GeneralProjection(rounding="controlled" if whole else "none", seconds=seconds)
    return general.project(problem, values, rng)


def invariants_kept(
    cells: Cells, headers: Sequence[Measured], values: NDArray, counts: NDArray
) -> NDArray[np.bool_]:
    """Return a mask of the rows of counts `(b, n)` that keep all invariants in the values `(b, q)`."""
    found = np.ones(len(counts), bool)
    for header, part in zip(headers, split(values, headers, cells), strict=True):
        if header.exact:
            table = cells.sum(counts, header.margin)
            found &= ((table if header.groups is None else table[:, header.groups]) == part).all(axis=1)
    return found
