"""Bounds on marginals of histograms, level by level, for `kernel.settling.lower_bounds`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.kernel.histogram.marginals import Marginal, marginalise, refines, shape
from trueup.kernel.histogram.structural_zeros import Fold
from trueup.kernel.settling.descend import settling_sequence
from trueup.model.cells import Cells
from trueup.model.constraints import Bound, Constraints


def bounded_marginals(constraints: Constraints, fold: Fold) -> list[Marginal]:
    """Return the marginals of the (folded) histograms that have bounds, coarse to fine."""
    cells = constraints.cells
    found = [fold.marginal(cells.marginal(b.margin.attributes)) for b in constraints.bounds]
    return settling_sequence((), found[-1], found[:-1]) if found else []


def level_bounds(
    constraints: Constraints, fold: Fold, marginals: Sequence[Marginal], level: str
) -> list[NDArray[np.int64]]:
    """Return a level's own lower bounds for every bounded marginal; zero if there is none.

    `(places, groups)`, or `(1, groups)` if they are the same at every place.
    """
    tables = [np.zeros((1, int(np.prod(shape(m)))), np.int64) for m in marginals]
    for bound in constraints.bounds:
        mine = constraints.cells.marginal(bound.margin.attributes)
        at = next(i for i, m in enumerate(marginals) if _same(m, fold.marginal(mine)))
        if bound.margin.level == level:
            least = _least(constraints.cells, bound)[:, fold.columns(mine)]
            tables[at] = np.maximum(tables[at], least)
    return tables


def level_limits(
    constraints: Constraints, fold: Fold, marginals: Sequence[Marginal], level: str
) -> list[NDArray[np.float64]]:
    """Return minus a level's own upper bounds as `level_bounds` returns lower ones; infinite where there is none."""
    tables = [np.full((1, int(np.prod(shape(m)))), -np.inf) for m in marginals]
    for bound in constraints.bounds:
        if bound.margin.level != level or bound.upper is None:
            continue
        mine = constraints.cells.marginal(bound.margin.attributes)
        at = next(i for i, m in enumerate(marginals) if _same(m, fold.marginal(mine)))
        upper = np.asarray(bound.upper, float)
        upper = upper.reshape(-1, _bounded_groups(constraints.cells, bound).size) if upper.ndim else upper
        most = np.where(_bounded_groups(constraints.cells, bound), np.floor(upper), np.inf)
        tables[at] = np.maximum(tables[at], -most[..., fold.columns(mine)])
    return tables


def refuse_impossible_bounds(constraints: Constraints, fold: Fold) -> None:
    """Refuse bounds that require counts where structural zeros allow none.

    Raises
    ------
    InfeasibleError
        Naming the bound's margin.
    """
    for bound in constraints.bounds:
        mine = constraints.cells.marginal(bound.margin.attributes)
        _refuse_impossible(bound, _least(constraints.cells, bound), fold.columns(mine))


def _least(cells: Cells, bound: Bound) -> NDArray[np.int64]:
    inside = _bounded_groups(cells, bound)
    lower = np.maximum(0 if bound.lower is None else bound.lower, 0)
    least = np.ceil(lower.reshape(-1, inside.size) if lower.ndim else lower).astype(np.int64)
    return np.where(inside, least, 0)


def _bounded_groups(cells: Cells, bound: Bound) -> NDArray[np.bool_]:
    """Return which groups of the margin a bound is on, `(1, groups)`."""
    mask = cells.where(dict(bound.where)).reshape(1, -1)
    return marginalise(mask, cells.marginal(bound.margin.attributes)) > 0


def _same(one: Marginal, other: Marginal) -> bool:
    return refines(one, other) and refines(other, one)


def _refuse_impossible(bound: Bound, least: NDArray, possible: NDArray[np.int64]) -> None:
    if np.delete(least, possible, axis=1).any():
        raise InfeasibleError(
            f"the bound on '{bound.margin}' asks for counts where structural zeros allow none",
            remedy="correct one of them",
        )
