"""Several tables that share margins: least squares of all at once, then table by table along a junction tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.settling.nearest import tolerance_for
from trueup.kernel.status import Status
from trueup.layouts.family import FamilyProblem, family_problem
from trueup.layouts.family_rules import refuses_bounds
from trueup.layouts.histogram import UNSETTLED
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.from_the_top import FromTheTop, in_chunks, settling_stats
from trueup.reconciling.method import Solution

if TYPE_CHECKING:
    from trueup.reconciling.family_parts import FamilyPlan


@dataclass(frozen=True)
class FamilyTree(FromTheTop):
    """Reconcile several tables that share margins, without the table that would hold them all.

    Least squares uses every table for every margin that they share. Its components are those of the full cross that some
    table sees, each down to the deepest level at which one does. Then tables are settled in the order of a junction tree. The
    first is settled whole, from the top place down; each further one given what it shares with its parent, for every place
    and cell of that a transportation problem, so that whole nonnegative tables always exist and agree. As they agree, they
    are margins of one table of records. A ring of tables is closed by the smallest joint table that makes it acyclic, which
    nothing measures: it is fitted to what is measured of its sums, settled with the others, and not released.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    estimates
        `posterior-means` or `least-squares`: at what the children of a place are settled; see `histogram-tree`.
    """

    name: ClassVar[str] = "family-tree"
    title: ClassVar[str] = (
        "several tables without their full cross: least squares of all, then settled along a junction tree"
    )
    structures: ClassVar[frozenset[str]] = frozenset({"family"})
    effort: ClassVar[int] = 8

    def refuses(self, constraints: Constraints) -> str | None:
        """Refuse bounds that no one table holds."""
        return refuses_bounds(constraints)

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> FamilyProblem:
        """Run the covariance recursion of every component."""
        return family_problem(constraints, headers)

    def refuses_parts(self) -> str | None:
        """Return the reason if the method needs the whole tree at once; whole numbers are settled part by part."""
        return None if self.integer else super().refuses_parts()

    def divide(self, constraints: Constraints, headers: Sequence[Measured]) -> FamilyPlan:
        """Prepare what all segments of the tree share."""
        from trueup.reconciling.family_parts import FamilyPlan

        return FamilyPlan(family_problem(constraints, headers), self.settling())

    def errors(self, state: FamilyProblem) -> dict[Margin, NDArray]:
        """Return the standard errors of the least-squares estimates of every measured margin."""
        return state.standard_errors

    def apply(
        self,
        state: FamilyProblem,
        values: NDArray,
        rng: np.random.Generator,
        drawn: np.random.Generator | None = None,
    ) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties of rounding. With `drawn` tables are drawn."""
        return in_chunks(
            values, state.shown.n, rng, lambda rows, seeds: self._settled(state, rows, seeds, drawn)
        )

    def _settled(
        self, state: FamilyProblem, rows: NDArray, seeds: NDArray, drawn: np.random.Generator | None
    ) -> Solution:
        counts, tables = state.settle(rows, seeds, self.settling(drawn=drawn))
        stats = settling_stats(*tables)
        solved = not stats["units without a place"] and stats[
            "largest optimality residual (counts)"
        ] <= tolerance_for(rows, UNSETTLED)
        counts = state.shown.of_closed(counts)
        counts = np.rint(counts).astype(np.int64) if self.integer else counts
        return Solution(counts, Status.SOLVED if solved else Status.UNSOLVED, stats)
