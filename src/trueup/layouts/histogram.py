"""Measurements of crossing margins on a hierarchy, prepared for histogram methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.kernel.histogram import Marginal, cell_groups
from trueup.kernel.histogram.least_squares import Estimates, HistogramLeastSquares
from trueup.kernel.histogram.spine import Lower, Spine
from trueup.kernel.histogram.structural_zeros import Fold, close, restrict
from trueup.kernel.settling.descend import SettledTables, Settling, node_keys, settle, settling_sequence
from trueup.layouts.histogram_plan import (
    bounded_marginals,
    closed_bounds,
    domain_of,
    level_plans,
    refuse_impossible_bounds,
    refuse_undetermined,
    small_fold,
)
from trueup.model.cells import Cells, Margin, detailed
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split

MAX_INVARIANT_MISS_SHARE = (
    1e-6  # an invariant missed by more than this share of the largest is contradicted by another
)
MAX_PROJECTION_ERROR_COUNTS = 1e-3  # a projection off by more than this (counts) has not been solved
CONFLICT_CELLS = 50_000  # above this, invariants are held against each other in pairs only


@dataclass(frozen=True, eq=False)
class HistogramProblem:
    """Histograms on a hierarchy with their measurements, prepared for least squares.

    Attributes
    ----------
    constraints, headers
        The constraints, and the measured headers.
    tree
        Least squares, prepared.
    zeros
        Per level, `(places, histogram cells)`: which are zero by definition.
    fold
        The way in which structural zeros were taken out of the histograms beforehand, where that was possible.
    lower
        Per level, lower bounds with those of the places below added up (empty if there are none).
    upper
        The same of upper bounds, with all signs turned.
    """

    constraints: Constraints
    headers: tuple[Measured, ...]
    tree: HistogramLeastSquares
    zeros: tuple[NDArray[np.bool_], ...]
    fold: Fold
    lower: tuple[Lower, ...]
    upper: tuple[Lower, ...] = ()

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.constraints.cells

    def answers(self, values: NDArray) -> list[list[NDArray]]:
        """Return measured values `(b, q)` by level and marginal, as arrays `(b * places, groups)`."""
        parts = split(values, self.headers, self.cells)
        table = []
        for level, name in enumerate(self.cells.tree.levels):
            own = [(h.margin, p) for h, p in zip(self.headers, parts, strict=True) if h.margin.level == name]
            places = len(values) * self.cells.tree.sizes[level]
            table.append([self._folded(m, np.asarray(p, float).reshape(places, -1)) for m, p in own])
        return table

    def _folded(self, margin: Margin, answers: NDArray) -> NDArray:
        if self.fold.trivial:
            return answers
        return answers[:, self.fold.columns(self.cells.marginal(margin.attributes))]

    def tiled(self, copies: int) -> HistogramProblem:
        """Return the problem repeated for several rows of values, which are then solved together."""
        if copies == 1:
            return self
        zeros = tuple(np.tile(mask, (copies, 1)) for mask in self.zeros)
        lower, upper = (
            tuple(part.at(np.tile(np.arange(len(part.tables[0])), copies)) for part in bounds)
            for bounds in (self.lower, self.upper)
        )
        return replace(self, tree=self.tree.tiled(copies), zeros=zeros, lower=lower, upper=upper)

    def least_squares(self, values: NDArray) -> tuple[Estimates, float]:
        """Return least-squares estimates of values `(b, q)`, and the largest count left on structural zeros.

        For b other than 1 the problem must be `tiled`.
        """
        self._refuse_excluded(values)
        fit = self.tree.fit(self.answers(values))
        large = MAX_INVARIANT_MISS_SHARE * max(1.0, float(np.abs(values).max(initial=0)))
        if fit.conflict[0] > large and (error := self.conflict(values)):
            raise error
        if not self.zeros:
            return fit, 0.0
        held, left = restrict(self.tree, fit, self.zeros)
        if left > large and (error := self.conflict(values)):
            raise error
        return held, left

    def settle(
        self,
        fit: Estimates,
        chains: Sequence[Sequence[Marginal]],
        seeds: NDArray,
        how: Settling,
        fixed: tuple[Marginal, Sequence[NDArray]] | None = None,
    ) -> SettledTables:
        """Reconcile the estimates of every level from the top down under the problem's rules."""
        spine = self.tree.spine
        leaves = None if how.leaves is None else np.tile(how.leaves, len(seeds))
        return settle(
            self.tree,
            fit.subtree,
            chains,
            replace(how, nonnegative=self.constraints.nonnegative, leaves=leaves),
            required=[self.chain(level, ()) for level in range(spine.depth)],
            zeros=self.zeros or None,
            keys=[
                node_keys(seeds, level, np.arange(spine.size(level) // seeds.size))
                for level in range(spine.depth)
            ],
            bounds=(self.lower, () if how.drawn else self.upper),
            fixed=fixed,
        )

    def chain(self, level: int, wanted: Sequence[Marginal]) -> list[Marginal]:
        """Return the nested marginals to fix in turn at a level: exact ones, bounded ones, others."""
        exact = [m for plan in self.tree.plan[level:] for m, variance in plan if variance == 0]
        bounded = next((part[0].marginals for part in (self.lower, self.upper) if part), ())
        return settling_sequence(wanted, self.fold.marginal(detailed(self.cells)), [*exact, *bounded])

    @property
    def chains(self) -> list[list[Marginal]]:
        """Return, for every level, the nested marginals to fix in turn."""
        plans = [[m for m, _ in plan] for plan in self.tree.plan]
        plans[0].append(self.marginal(()))
        return [self.chain(level, wanted) for level, wanted in enumerate(plans)]

    @property
    def first(self) -> list[Marginal]:
        """Return the marginals to fix at the root: the total, and each marginal measured on some level."""
        return [self.marginal(()), *(m for plan in self.tree.plan for m, _ in plan)]

    def marginal(self, attributes: Sequence[str]) -> Marginal:
        """Return the marginal of the problem's histograms for some attributes and recodes."""
        return self.fold.marginal(self.cells.marginal(attributes))

    def conflict(self, values: NDArray) -> InfeasibleError | None:
        """Return the error that names contradictory rules for some row of values `(b, q)`, or None."""
        from trueup.layouts.linear import LinearProblem  # an error's only user

        linear = LinearProblem(self.constraints, self.headers)
        if self.cells.n > CONFLICT_CELLS:
            return next((error for row in values if (error := linear.disagreement(row))), None)
        return next((error for row in values if (error := linear.conflict(row))), None)

    def _refuse_excluded(self, values: NDArray) -> None:
        """Refuse a positive invariant whose cells are all structural zeros."""
        if self.fold.trivial:
            return
        parts = split(values, self.headers, self.cells)
        for header, part in zip(self.headers, parts, strict=True):
            marginal = self.cells.marginal(header.margin.attributes)
            table = part.reshape(-1, int(cell_groups(marginal).max()) + 1)
            if header.exact and np.delete(table, self.fold.columns(marginal), axis=1).any():
                raise self.conflict(values) or InfeasibleError(
                    f"structural zeros contradict the invariant '{header.margin}'",
                    remedy="correct the zeros or the invariant",
                )


def histogram_problem(
    constraints: Constraints,
    headers: Sequence[Measured],
    *,
    folded: bool = False,
    known: Sequence[Margin] = (),
) -> HistogramProblem:
    """Return the histogram problem, in which each constraint and measured margin has its level.

    Parameters
    ----------
    folded
        Take structural zeros out beforehand by fusing axes, if the fused axes stay small enough.
    known
        Margins whose tables are known before the others are computed.

    Raises
    ------
    SpecError
        If a measured margin is incomplete, or a level's histograms are not determined.
    """
    cells, levels = constraints.cells, constraints.cells.tree.levels
    fold = small_fold(constraints) if folded else None
    fold = fold or Fold.of(cells.shape[1:])
    plan = level_plans(constraints, headers, fold)
    domain = domain_of(cells, fold, plan, known)
    refuse_undetermined(domain, plan[-1], constraints, levels[-1])
    tree = HistogramLeastSquares.prepare(domain, Spine(cells.tree.child_ptr), plan)
    zeros = _zeros(constraints, tree.spine) if fold.trivial else ()
    refuse_impossible_bounds(constraints, fold)
    marginals = bounded_marginals(constraints, fold)
    lower, upper = closed_bounds(constraints, fold, marginals, tree.spine)
    return HistogramProblem(constraints, tuple(headers), tree, zeros, fold, lower, upper)


def _zeros(constraints: Constraints, spine: Spine) -> tuple[NDArray[np.bool_], ...]:
    mask = constraints.zero_cells.reshape(spine.size(spine.depth - 1), -1)
    if not mask.any():
        return ()
    above = [np.zeros((spine.size(level), mask.shape[1]), bool) for level in range(spine.depth - 1)]
    return close(spine, [*above, mask])


def histogram_standard_errors(problem: HistogramProblem) -> dict[Margin, NDArray]:
    """Return the standard errors (counts) of least squares for measured margins and totals."""
    cells, tree = problem.cells, problem.tree
    margins = (
        {Margin(level) for level in cells.tree.levels} | {h.margin for h in problem.headers} | {cells.finest}
    )
    found: dict[Margin, NDArray] = {}
    for names in dict.fromkeys(m.attributes for m in margins):
        same = [m for m in margins if m.attributes == names]
        levels, marginal = [cells.tree.level(m.level) for m in same], problem.marginal(names)
        variances = zip(same, tree.margin_variances(levels, marginal), strict=True)
        found |= {m: _spread(problem, m, np.sqrt(each)) for m, each in variances}
    return {m: found[m] for m in sorted(margins, key=str)}


def _spread(problem: HistogramProblem, margin: Margin, errors: NDArray) -> NDArray:
    """Return the standard errors of a table in its own order, with zero for structural zeros."""
    full = np.zeros((len(errors), problem.cells.size(margin) // len(errors)))
    full[:, problem.fold.columns(problem.cells.marginal(margin.attributes))] = errors
    return full.ravel()
