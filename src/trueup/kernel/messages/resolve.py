"""Repeated solutions of a tree with different factors near the root, which reuse the messages below.

Hyperparameters of upper levels change the factors of the first nodes alone, in level order. The messages of all other nodes,
and of the sums of their families, stay as they are. On the way down, the nodes below depend on the hyperparameters
through what is above them alone, and are linear in it: the marginals of a mixture need one pass below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba.typed import List
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan
from trueup.kernel.messages.downward import (
    Exact,
    downward,
    given_to_parts,
    joined_marginals,
    mixed,
    mixed_above,
    products,
)
from trueup.kernel.messages.solve import Solved, rounded_marginals
from trueup.kernel.messages.upward import MASSES, Tilted, upward

Reals = NDArray[np.float64]


def solve_above(solved: Solved, tilted: Tilted, first: int, parents: int, tolerance: float) -> Solved:
    """Solve a tree with one root again after the factors of its first nodes have changed.

    Parameters
    ----------
    solved
        The tree, solved with other factors.
    tilted
        The same tilts and windows, with the new factors.
    first, parents
        Number of nodes, in level order, with other factors (whole levels), and number of those above the last such level.
    tolerance
        Largest posterior mass that may be dropped; if more is, `dropped` comes back larger.
    """
    plan, n = solved.plan, len(tilted.low)
    again = (plan.order < first) | (plan.order >= n) & (plan.order < plan.family[parents])
    share = np.full(len(plan.left), 1e-9 * tolerance)
    messages = upward(plan._replace(order=plan.order[again]), tilted, share, known=solved.messages)
    possible = np.isfinite(messages.passed).all()
    return Solved(plan, tilted, messages, min(float(np.exp(messages.gone[0, 0])), 1.0) if possible else 1.0)


def mixed_marginals(
    solutions: Sequence[Solved], weights: Reals, first: int, parents: int
) -> tuple[Exact, float]:
    """Return the weighted mean of marginals over solutions that differ in the factors of their first nodes.

    Also a bound on the mass that rounding on the way down has moved, as in `rounded_marginals`.

    Parameters
    ----------
    solutions
        Results of `solve_above` for one tree.
    first, parents
        The same as there.
    """
    groups: dict[int, list[int]] = {}
    for at, one in enumerate(solutions):  # of other tilts, or altered all over: each by itself
        whole = first == len(one.tilted.low)
        groups.setdefault(id(one) if whole else id(one.tilted.slope), []).append(at)
    parts = [_mixed_below([solutions[k] for k in at], weights[at], first, parents) for at in groups.values()]
    exact = mixed([one for one, _ in parts], np.array([weights[at].sum() for at in groups.values()]))
    return exact, max(moved for _, moved in parts)


def _mixed_below(
    solutions: Sequence[Solved], weights: Reals, first: int, parents: int
) -> tuple[Exact, float]:
    """Return the weighted mean of marginals over solutions with the same tilts and the same messages below."""
    if len(solutions) == 1:
        return rounded_marginals(solutions[0])
    plan, n, weights = solutions[0].plan, len(solutions[0].tilted.low), weights / weights.sum()
    top, below = _halves(plan, n, parents)
    exact, given, rounding = [], [], 0.0
    for one in solutions:
        down, moved = downward(top, one.tilted, one.messages)
        rounding = max(rounding, moved)
        exact.append(products(one.messages.masses, one.messages.offset, down, 0, first))
        given.append(_given_below(one.tilted, one.messages, down, parents, first))
    last = slice(parents, first)
    offsets = [one.messages.offset[last] for one in solutions]
    low, roots = mixed_above(offsets, given, weights, slice(0, first - parents))
    whole = solutions[0]
    offset, informs = whole.messages.offset.copy(), whole.tilted.informs.copy()
    offset[last], informs[last] = low, False  # `roots` hold their factors
    tilted, messages = whole.tilted._replace(informs=informs), whole.messages._replace(offset=offset)
    down, moved = downward(below, tilted, messages, [np.ones(1)] * parents + roots)
    rest = products(messages.masses, offset, down, first, n)
    return joined_marginals([mixed(exact, weights), rest]), rounding + moved


@njit(cache=True)
def _given_below(tilted, messages, down, parents, first):
    """Return the messages that the nodes `parents:first` pass to their parts."""
    out = List.empty_list(MASSES)
    for v in range(parents, first):
        out.append(given_to_parts(tilted, v, messages, down[v]))
    return out


def _halves(plan: PairPlan, n: int, parents: int) -> tuple[PairPlan, PairPlan]:
    """Divide a plan into the families of the first nodes and the families of all other nodes."""
    first = np.where(plan.order < n, plan.order < parents, plan.order < plan.family[parents])
    return plan._replace(order=plan.order[first]), plan._replace(order=plan.order[~first])
