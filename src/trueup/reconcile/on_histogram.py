"""What the methods for crossing margins share: measurements laid out on a tree of histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.anova import Domain, Marginal, refines
from trueup.kernel.histogram import Estimates, HistogramTree, determines
from trueup.kernel.settle import Settled, chain, settle
from trueup.kernel.spine import Spine
from trueup.kernel.structural_zeros import close, restrict
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured, split
from trueup.model.release import Solution
from trueup.reconcile.on_linear import LinearProblem

CONFLICT = 1e-6  # an invariant missed by more than this share of the largest is contradicted by another
UNSETTLED = 1e-3  # a projection off by more than this (counts) has not been solved
CHUNK_CELLS = 500_000  # rows of values are solved together up to this many cells
CONFLICT_CELLS = 50_000  # above this, the conflict is located but not narrowed down to single rows


@dataclass(frozen=True, eq=False)
class HistogramProblem:
    """Histograms on a hierarchy: what is measured where, prepared for least squares.

    Attributes
    ----------
    constraints, headers
        What must hold and what was measured.
    tree
        Least squares, prepared.
    zeros
        Per level, `(places, histogram cells)`: which are zero by definition.
    inherited
        Per level, invariants of deeper levels that are repeated there (empty unless asked for).
    """

    constraints: Constraints
    headers: tuple[Measured, ...]
    tree: HistogramTree
    zeros: tuple[NDArray[np.bool_], ...]
    inherited: tuple[tuple[Margin, ...], ...]

    @property
    def cells(self) -> Cells:
        """The finest cells."""
        return self.constraints.cells

    def answers(self, values: NDArray) -> list[list[NDArray]]:
        """Lay values `(b, q)` out: per level and planned marginal, `(b * places, groups)`, row after row."""
        parts = split(values, self.headers, self.cells)
        table = []
        for level, name in enumerate(self.cells.tree.levels):
            own = [p for h, p in zip(self.headers, parts, strict=True) if h.margin.level == name]
            own += [self._summed(m, parts, level) for m in self.inherited[level]]
            places = len(values) * self.cells.tree.sizes[level]
            table.append([np.asarray(p, float).reshape(places, -1) for p in own])
        return table

    def _summed(self, margin: Margin, parts: Sequence[NDArray], level: int) -> NDArray:
        """A deeper invariant `(b, ...)`, summed over the places of a level."""
        at = next(i for i, h in enumerate(self.headers) if h.exact and h.margin == margin)
        place = self.cells.tree.ancestors(self.cells.tree.level(margin.level), level)
        values = np.asarray(parts[at], float).reshape(len(parts[at]), place.size, -1)
        first = np.searchsorted(place, np.arange(self.cells.tree.sizes[level]))
        return np.add.reduceat(values, first, axis=1)

    def tiled(self, copies: int) -> HistogramProblem:
        """The same problem for several rows of values at once."""
        zeros = tuple(np.tile(mask, (copies, 1)) for mask in self.zeros)
        return replace(self, tree=self.tree.tiled(copies), zeros=zeros) if copies > 1 else self

    def least_squares(self, values: NDArray) -> tuple[Estimates, float]:
        """Estimates of values `(b, q)`, structural zeros held; and what is left on the zeros (counts).

        For b other than 1 the problem must be `tiled`.
        """
        fit = self.tree.fit(self.answers(values))
        self._refuse_contradiction(fit, values)
        if not self.zeros:
            return fit, 0.0
        held, left = restrict(self.tree, fit, self.zeros)
        if left > CONFLICT * max(1.0, float(np.abs(values).max(initial=0))):
            raise self.conflict(values) or InfeasibleError(
                "structural zeros and invariants contradict each other", remedy="correct one of them"
            )
        return held, left

    def settle(
        self, fit: Estimates, chains: Sequence[Sequence[Marginal]], seeds: NDArray, *, integer: bool
    ) -> Settled:
        """Settle every level from the top along its chain."""
        return settle(
            self.tree,
            fit,
            chains,
            required=[self.chain(level, ()) for level in range(self.tree.spine.depth)],
            nonnegative=self.constraints.nonnegative,
            integer=integer,
            zeros=self.zeros or None,
            seeds=seeds,
        )

    def chain(self, level: int, wanted: Sequence[Marginal]) -> list[Marginal]:
        """Nested marginals to settle at a level: the exact ones there or below, then what fits of `wanted`."""
        exact = [m for plan in self.tree.plan[level:] for m, variance in plan if variance == 0]
        return chain(wanted, detailed(self.cells), exact)

    def conflict(self, values: NDArray) -> InfeasibleError | None:
        """Name invariants that cannot hold together in some row of values `(b, q)`, if there are any."""
        if self.cells.n > CONFLICT_CELLS:
            return None
        linear = LinearProblem(self.constraints, self.headers)
        return next((error for row in values if (error := linear.conflict(row))), None)

    def _refuse_contradiction(self, fit: Estimates, values: NDArray) -> None:
        miss, level, place = fit.conflict
        if miss <= CONFLICT * max(1.0, float(np.abs(values).max(initial=0))):
            return
        name = self.cells.tree.levels[level]
        label = self.cells.tree.label(name, place % self.cells.tree.sizes[level])
        raise self.conflict(values) or InfeasibleError(
            f"the invariants of '{label}' and of places above or below it contradict each other",
            remedy="correct one of them",
        )


def detailed(cells: Cells) -> Marginal:
    """The histogram itself."""
    return cells.marginal(cells.finest.attributes)


def refuses_on_histogram(constraints: Constraints) -> str | None:
    """What the histogram kernels cannot keep."""
    if constraints.bounds:
        return "it keeps no bounds on crossing margins"
    tables = [constraints.cells.marginal(m.attributes) for m in constraints.invariants]
    for margin, mine in zip(constraints.invariants, tables, strict=True):
        if not all(refines(mine, other) or refines(other, mine) for other in tables):
            return f"its invariants must be nested, and '{margin}' crosses another"
    return None


def histogram_problem(
    constraints: Constraints, headers: Sequence[Measured], *, upward: bool = True
) -> HistogramProblem:
    """Lay constraints and headers out on the tree of places.

    Parameters
    ----------
    upward
        Let every place learn from the places below it. If not, only invariants below are repeated above.

    Raises
    ------
    SpecError
        If a measured margin is incomplete, or a level's histograms are not determined.
    """
    cells, levels = constraints.cells, constraints.cells.tree.levels
    if part := next((h for h in headers if h.groups is not None), None):
        raise SpecError(
            f"only some groups of '{part.margin}' were measured",
            remedy="use the method 'general-projection' or 'general-integer'",
        )
    inherited = tuple(_inherited(cells, headers, level) if not upward else () for level in range(len(levels)))
    plan = [
        [
            (cells.marginal(h.margin.attributes), float(h.law.variance))
            for h in headers
            if h.margin.level == name
        ]
        + [(cells.marginal(m.attributes), 0.0) for m in inherited[level]]
        for level, name in enumerate(levels)
    ]
    domain = Domain.of([detailed(cells), *(m for part in plan for m, _ in part)])
    for level in range(len(levels)) if not upward else [len(levels) - 1]:
        _refuse_undetermined(domain, plan[level], cells, levels[level])
    tree = HistogramTree.prepare(domain, Spine(cells.tree.child_ptr), plan, upward=upward)
    return HistogramProblem(constraints, tuple(headers), tree, _zeros(constraints, tree.spine), inherited)


def _inherited(cells: Cells, headers: Sequence[Measured], level: int) -> tuple[Margin, ...]:
    """Invariants of deeper levels."""
    return tuple(h.margin for h in headers if h.exact and cells.tree.level(h.margin.level) > level)


def _refuse_undetermined(domain: Domain, plan, cells: Cells, level: str) -> None:
    if not determines(domain, plan):
        margin = Margin(level, tuple(a.name for a in cells.attributes))
        raise SpecError(
            f"the measurements at level '{level}' do not determine its histograms cell by cell",
            needed=f"'{margin}' measured, however noisily, or margins that determine it",
            remedy=f"give a query on '{margin}' a budget",
        )


def _zeros(constraints: Constraints, spine: Spine) -> tuple[NDArray[np.bool_], ...]:
    mask = constraints.zero_cells.reshape(spine.size(spine.depth - 1), -1)
    if not mask.any():
        return ()
    above = [np.zeros((spine.size(level), mask.shape[1]), bool) for level in range(spine.depth - 1)]
    return close(spine, [*above, mask])


def solution(
    problem: HistogramProblem,
    values: NDArray,
    chains: Sequence[Sequence[Marginal]],
    rng: np.random.Generator,
    *,
    integer: bool,
) -> Solution:
    """Least squares, then settling, for values `(q,)` or `(b, q)`; many rows of a small problem at once."""
    rows = np.atleast_2d(values)
    seeds = rng.integers(2**63, size=len(rows), dtype=np.uint64)
    size = max(1, CHUNK_CELLS // problem.cells.n)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    tiled = {len(part): problem.tiled(len(part)) for part in parts}
    starts = range(0, len(rows), size)
    done = [
        _solve(tiled[len(part)], part, chains, seeds[i : i + size], integer)
        for i, part in zip(starts, parts, strict=True)
    ]
    counts = np.concatenate([counts for counts, _, _ in done]).reshape(*values.shape[:-1], problem.cells.n)
    status = next((s for _, s, _ in done if s != "solved"), "solved")
    return Solution(counts, status, {key: max(s[key] for _, _, s in done) for key in done[0][2]})


def _solve(
    problem: HistogramProblem, values: NDArray, chains, seeds: NDArray, integer: bool
) -> tuple[NDArray, str, dict]:
    fit, left = problem.least_squares(values)
    settled = problem.settle(fit, chains, seeds, integer=integer)
    stats = {
        "largest optimality residual (counts)": settled.residual,
        "units without a place": settled.misplaced,
        "parents settled without their margins": settled.relaxed,
        "most iterations": settled.iterations,
        "left on structural zeros by least squares (counts)": left,
    }
    status = "solved"
    if settled.misplaced or settled.residual > UNSETTLED:
        if error := problem.conflict(values):
            raise error
        status = "invariants or structural zeros leave no room under some place"
    counts = settled.values[-1].reshape(len(values), -1)
    return (counts.astype(np.int64) if integer else counts), status, stats


def standard_errors(problem: HistogramProblem) -> dict[Margin, NDArray]:
    """Standard errors (counts) of the least-squares estimates, for every measured margin and every level's total."""
    cells, tree = problem.cells, problem.tree
    margins = (
        {Margin(level) for level in cells.tree.levels} | {h.margin for h in problem.headers} | {cells.finest}
    )
    return {
        m: np.sqrt(tree.margin_variances(cells.tree.level(m.level), cells.marginal(m.attributes))).ravel()
        for m in sorted(margins, key=str)
    }
