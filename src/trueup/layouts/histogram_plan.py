"""Measured marginals of histograms by level, and rules that histogram methods cannot satisfy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.histogram import Marginal, marginalise, refines, shape
from trueup.kernel.histogram.anova import Domain, determines
from trueup.kernel.histogram.spine import Lower, Spine, close_bounds
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.kernel.settling.descend import settling_sequence
from trueup.layouts import MAX_VARIANCE_RATIO_IN_HISTOGRAMS, refuse_wide_levels
from trueup.model.cells import Cells, Margin, detailed
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured

FUSED_CODES = 64  # structural zeros are folded away while no fused axis is larger


def small_fold(constraints: Constraints) -> Fold | None:
    """Return the fold that removes structural zeros from histograms, or None if its blocks are too large."""
    cells = constraints.cells
    fold = Fold.of(cells.shape[1:], [cells.where(zero)[0] for zero in constraints.zeros])
    return fold if fold.widest <= FUSED_CODES else None


def level_plans(
    constraints: Constraints, headers: Sequence[Measured], fold: Fold
) -> list[list[tuple[Marginal, float]]]:
    """Return, for every level, the measured marginals of the histograms and their noise variances."""
    refuse_wide_levels(headers, MAX_VARIANCE_RATIO_IN_HISTOGRAMS)
    cells = constraints.cells
    if part := next((h for h in headers if h.groups is not None), None):
        raise SpecError(
            f"only some groups of '{part.margin}' were measured, and this method needs all of them",
            remedy="use the method 'general-projection'",
        )
    return [
        [
            (fold.marginal(cells.marginal(h.margin.attributes)), float(h.law.variance))
            for h in headers
            if h.margin.level == name
        ]
        for name in cells.tree.levels
    ]


def domain_of(
    cells: Cells, fold: Fold, plan: Sequence[Sequence[tuple[Marginal, float]]], known: Sequence[Margin] = ()
) -> Domain:
    """Return the basis of histograms in which all measured marginals are block diagonal."""
    others = (fold.marginal(cells.marginal(m.attributes)) for m in known)
    return Domain.of([fold.marginal(detailed(cells)), *(m for part in plan for m, _ in part), *others])


def refuse_undetermined(domain: Domain, plan, constraints: Constraints, level: str) -> None:
    """Refuse measurements of a level that do not determine the counts of its histograms."""
    cells = constraints.cells
    if not determines(domain, plan):
        from trueup.model.family_sets import cyclic

        if cycle := cyclic(cells, constraints.held):
            raise cycle
        margin = Margin(level, tuple(a.name for a in cells.attributes))
        tables = [f"'{m}'" for m in constraints.margins if m.level == level]
        raise SpecError(
            f"at level '{level}' {' and '.join(tables) or 'no table'} "
            + (
                "are measured separately; nothing says how they combine to"
                if len(tables) > 1
                else "is measured, which leaves open the counts of"
            )
            + f" '{margin}'",
            needed=f"'{margin}' measured, however noisily, or margins that determine it",
            remedy=f"give a query on '{margin}' a budget",
        )


def bounded_marginals(constraints: Constraints, fold: Fold) -> list[Marginal]:
    """Return the marginals of the histograms that have bounds, from coarse to fine."""
    cells = constraints.cells
    found = [fold.marginal(cells.marginal(b.margin.attributes)) for b in constraints.bounds]
    return settling_sequence((), found[-1], found[:-1]) if found else []


def level_bounds(
    constraints: Constraints, fold: Fold, marginals: Sequence[Marginal], level: str, *, upper: bool = False
) -> list[NDArray]:
    """Return the lower bounds on each bounded marginal at one level, or the negated upper bounds if `upper`.

    `(places, groups)`, or `(1, groups)` if they are the same at every place; zero, or minus infinity, where there are none.
    """
    none = -np.inf if upper else 0
    tables = [np.full((1, int(np.prod(shape(m)))), none) for m in marginals]
    for bound in constraints.bounds:
        if bound.margin.level == level and (bound.upper if upper else bound.lower) is not None:
            mine = constraints.cells.marginal(bound.margin.attributes)
            at = next(i for i, m in enumerate(marginals) if _equal_marginals(m, fold.marginal(mine)))
            limits = _place_limits(constraints.cells, bound, upper=upper)[:, fold.columns(mine)]
            tables[at] = np.maximum(tables[at], limits)
    return tables


def closed_bounds(
    constraints: Constraints, fold: Fold, marginals: Sequence[Marginal], spine: Spine
) -> list[tuple[Lower, ...]]:
    """Return the lower bounds level by level with those of the places below added up, and minus the upper ones.

    Each is empty if there are none.
    """
    return [
        close_bounds(
            spine,
            marginals,
            [
                level_bounds(constraints, fold, marginals, name, upper=upper)
                for name in constraints.cells.tree.levels
            ],
        )
        if any((b.upper if upper else b.lower) is not None for b in constraints.bounds)
        else ()
        for upper in (False, True)
    ]


def refuse_impossible_bounds(constraints: Constraints, fold: Fold) -> None:
    """Refuse bounds that require counts where structural zeros allow none.

    Raises
    ------
    InfeasibleError
        Naming the bound's margin.
    """
    for bound in constraints.bounds:
        possible = fold.columns(constraints.cells.marginal(bound.margin.attributes))
        if (
            bound.lower is not None
            and np.delete(_place_limits(constraints.cells, bound), possible, axis=1).any()
        ):
            raise InfeasibleError(
                f"the bound on '{bound.margin}' demands counts in cells that structural zeros exclude",
                remedy="lower the bound, or leave out a structural zero",
            )


def _place_limits(cells: Cells, bound: Bound, *, upper: bool = False) -> NDArray:
    """Return the lower limits of a bound as `(places, groups)`, or minus the upper ones, as in `level_bounds`."""
    where = cells.where(dict(bound.where)).reshape(1, -1)
    inside = marginalise(where, cells.marginal(bound.margin.attributes)) > 0
    if upper:
        limits, none = -np.floor(np.asarray(bound.upper, float)), -np.inf
    else:
        limits, none = np.ceil(np.maximum(bound.lower, 0)).astype(np.int64), 0  # pyright: ignore[reportArgumentType, reportCallIssue]
    return np.where(inside, limits.reshape(-1, inside.size) if limits.ndim else limits, none)


def _equal_marginals(one: Marginal, other: Marginal) -> bool:
    return refines(one, other) and refines(other, one)
