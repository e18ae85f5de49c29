"""Projections of millions of counts onto a tree, or onto the margins of a table, without a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import real_vector
from trueup.arrays.lattice import additive_rows
from trueup.arrays.projection import nearest_point
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel import Status
from trueup.kernel.linear import Fit
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import Answer
from trueup.kernel.margins import nearest as nearest_table
from trueup.kernel.margins.whole import whole_table
from trueup.kernel.tree import least_squares, messages, unidentified
from trueup.kernel.tree.whole import controlled_rounding
from trueup.noise.law import Integers, Reals


class LevelOrder(NamedTuple):
    """A tree whose nodes are in the order that compiled functions expect: level after level.

    Attributes
    ----------
    order
        (n,) the node that comes i-th, parents before children and siblings together.
    child_ptr
        (n + 1,) children of the node that comes i-th: `child_ptr[i]` to `child_ptr[i + 1]` of that order.
    """

    order: Integers
    child_ptr: Integers


def level_order(parents: ArrayLike) -> LevelOrder:
    """Return the nodes of a tree ordered by level, given each node's parent and -1 for the root.

    Examples
    --------
    >>> level_order([2, 2, -1, 0])
    LevelOrder(order=array([2, 0, 1, 3]), child_ptr=array([1, 3, 4, 4, 4]))
    """
    up = np.asarray(parents)
    if (
        up.ndim != 1
        or up.dtype.kind not in "iu"
        or (up == -1).sum() != 1
        or (up < -1).any()
        or (up >= up.size).any()
    ):
        raise SpecError(
            "the parents do not form a tree",
            needed="an array (n,) that holds each node's parent, and -1 for the one root",
        )
    children = np.argsort(up, kind="stable")  # by parent, the root first
    first = np.searchsorted(up[children], np.arange(up.size + 1))
    order, position, counted = np.empty(up.size, np.int64), 0, 1
    order[0] = children[0]
    child_ptr = np.empty(up.size + 1, np.int64)
    while position < counted:
        v = order[position]
        below = children[first[v] : first[v + 1]]
        child_ptr[position] = counted
        order[counted : counted + below.size] = below
        position, counted = position + 1, counted + below.size
    if counted < up.size:
        raise SpecError(
            "the parents do not form a tree: some nodes are not below the root",
            needed="parents that lead from every node to the root, without circles",
        )
    child_ptr[-1] = counted
    return LevelOrder(order, child_ptr)


def reconcile_tree(
    values: ArrayLike,
    parents: ArrayLike,
    variances: ArrayLike = 1.0,
    *,
    nonnegative: bool = False,
    whole: bool = False,
) -> NDArray:
    """Return the counts of a tree that add up and are nearest to noisy counts in weighted least squares.

    Parameters
    ----------
    values
        (n,) noisy counts; whatever where not measured.
    parents
        (n,) parent of each node, -1 of the root, in any order.
    variances
        (n,) or one, counts squared: 0 where the value is exact, infinite where there is none.
    nonnegative
        True if counts must not be negative.
    whole
        True for a whole result: each count is the floor or the ceiling of its real one, still additive.

    Returns
    -------
    (n,) counts; int64 where whole.

    Raises
    ------
    SpecError
        The parents make no tree, or what is measured does not determine every count.
    InfeasibleError
        Exact values exclude each other, or counts that are not negative.

    References
    ----------
    Hay, Rastogi, Miklau and Suciu (2010); Zhu, Van Hentenryck and Fioretto (2021), program (P_S).

    Examples
    --------
    >>> reconcile_tree([12.0, 4.0, 4.0], [-1, 0, 0], [2.0, 1.0, 1.0])
    array([10.,  5.,  5.])
    """
    order, child_ptr = level_order(parents)
    q = real_vector(variances, "the variances", order.size, infinite=True)
    if (q < 0).any():
        raise SpecError(
            "a variance is negative",
            needed="0 where the value is exact, inf where nothing was measured, else a number above 0",
        )
    y = real_vector(values, "the values", where=np.isfinite(q))[order]
    q = np.ascontiguousarray(q[order])
    if (node := unidentified(child_ptr, messages(child_ptr, q)[1])) >= 0:
        raise SpecError(
            f"the measurements do not determine the count of node {order[node]}",
            needed="a measurement of every part of a sum except at most one",
        )
    rows = additive_rows(np.append(-1, np.repeat(np.arange(y.size), np.diff(child_ptr))))
    x = _nonnegative(rows, q, y) if nonnegative else least_squares(child_ptr, q, y)
    if not nonnegative:
        _refuse_conflict(rows, q, y, x)
    if whole:
        if (y[q == 0] != np.rint(y[q == 0])).any():
            raise InfeasibleError("an exact value is not whole", remedy="correct it, or give `whole=False`")
        weight = np.divide(1.0, q, out=np.zeros(q.size), where=(q > 0) & np.isfinite(q))
        digest = blake2b(x.tobytes(), digest_size=8).digest()  # a fixed seed would bias totals that tie
        x = controlled_rounding(child_ptr, weight, x, int.from_bytes(digest))
    out = np.empty_like(x)
    out[order] = x
    return out


def _refuse_conflict(rows: scipy.sparse.csr_array, q: Reals, y: Reals, x: Reals) -> None:
    off = max(np.abs(rows @ x).max(initial=0), np.abs(x - y)[q == 0].max(initial=0))
    if off > 1e-6 * max(1.0, float(np.abs(y).max())):
        raise InfeasibleError(
            "exact values (variance 0) contradict each other: a total is not the sum of its parts",
            remedy="correct one of them, or give it a variance above 0",
        )


def _nonnegative(rows: scipy.sparse.csr_array, q: Reals, y: Reals) -> Reals:
    """Return nonnegative least-squares counts of a tree that add up and keep the exact counts."""
    n, known, exact = y.size, np.isfinite(q), q == 0
    one = scipy.sparse.csr_array(scipy.sparse.eye_array(n))
    held = np.flatnonzero(exact)
    polyhedron = Polyhedron.of(n, rows, np.zeros(rows.shape[0]), one[held], y[held], y[held])
    fit = Fit(one[np.flatnonzero(known)], y[known], 1 / np.where(exact, 1.0, q)[known])
    answer = nearest_point(polyhedron, fit)
    if answer.status is not Status.SOLVED:
        raise InfeasibleError(
            "no nonnegative counts agree with the exact values (variance 0)",
            remedy="correct one of them, or give `nonnegative=False`",
        )
    return answer.x


def project_table(
    y: ArrayLike,
    margins: Sequence[tuple[int, ...]],
    sums: Sequence[ArrayLike],
    *,
    variances: ArrayLike | None = None,
    nonnegative: bool = False,
    whole: bool = False,
    seconds: float = 60.0,
) -> Answer:
    """Return the table that has the given margins and is nearest to a noisy table.

    Parameters
    ----------
    y
        (n_1, ..., n_k) noisy table.
    margins
        The axes that each known margin keeps: `(0,)` the sums of the first axis' categories, `()` the total.
    sums
        The known margins, consistent with each other.
    variances
        Table of variances (counts squared); equal by default.
    nonnegative, whole, seconds
        The parameters of `project`.

    Raises
    ------
    SpecError
        Numbers of margins and sums differ, or a shape does not fit.
    InfeasibleError
        The sums of two margins exclude each other, or a sum is one that no such table has.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), programs (P) and (P+), on tables.

    Examples
    --------
    >>> project_table([[-3, 4], [2, 1]], [(0,), (1,)], [[2, 3], [2, 3]], nonnegative=True).x.round(9)
    array([[0., 2.],
           [2., 1.]])
    """
    table = _number_table(y, "the noisy table")
    known = [_number_table(b, "the sums") for b in sums]
    kept = [_axes(margin) for margin in margins]
    if not kept or not table.size:
        raise SpecError(
            "no margin is given" if table.size else "the table has no cells",
            needed="a table with cells, and at least one of its margins",
        )
    if len(known) != len(kept):
        raise SpecError(
            f"{len(kept)} margins and {len(known)} tables of sums are given",
            needed="one table of sums for each margin",
        )
    for margin, b in zip(kept, known, strict=True):
        if not all(0 <= a < table.ndim for a in margin) or b.shape != tuple(table.shape[a] for a in margin):
            raise SpecError(
                f"the sums of margin {margin} have shape {b.shape}",
                needed="one sum for each entry of the margin",
            )
    _refuse_margins(kept, known, nonnegative, whole)
    v = None if variances is None else _number_table(variances, "the variances")
    if v is not None and v.shape not in ((), table.shape):
        raise SpecError(f"the variances have shape {v.shape}", needed="one for each cell, or one number")
    found = nearest_table(table, kept, known, variances=v, nonnegative=nonnegative)
    if not whole or found.status is not Status.SOLVED:
        weights = 1.0 if v is None else v.min() / v
        squares = float((weights * (found.table - table) ** 2).sum())
        return Answer(found.table, found.status, found.residual, squares, None)
    return whole_table(found.table, kept, known, seconds=seconds)


def _number_table(values: ArrayLike, what: str) -> Reals:
    """Return an array of finite numbers of any shape, or refuse anything else."""
    try:
        given = np.asarray(values, float)
    except (TypeError, ValueError, OverflowError):
        raise SpecError(
            f"{what} are not a table of numbers", needed="numbers, equally many in each row"
        ) from None
    real_vector(given.ravel(), what)
    return given


def _axes(margin: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of a table that a margin keeps. Refuse axes that are not in increasing order."""
    try:
        axes = tuple(int(a) for a in margin)
    except (TypeError, ValueError):
        raise SpecError(
            f"the margin {margin!r} is not a tuple of axes", needed="a tuple of axis numbers, such as (0,)"
        ) from None
    if list(axes) != sorted(set(axes)):
        raise SpecError(
            f"the axes of margin {axes} are not in order", needed="each axis once, in increasing order"
        )
    return axes


def _refuse_margins(kept: list[tuple[int, ...]], known: list[Reals], nonnegative: bool, whole: bool) -> None:
    """Refuse margins that no table has: contradictory, negative or fractional ones."""
    for (m, b), (k, c) in combinations(zip(kept, known, strict=True), 2):
        both = [
            t.sum(axis=tuple(i for i, a in enumerate(axes) if a not in set(m) & set(k)))
            for axes, t in ((m, b), (k, c))
        ]
        if np.abs(both[0] - both[1]).max() > 1e-6 * max(1.0, float(np.abs(both[0]).max())):
            raise InfeasibleError(
                f"margins {m} and {k} have different sums along the axes that they share",
                remedy="correct one of them, so that these sums agree",
            )
    if nonnegative and any((b < 0).any() for b in known):
        raise InfeasibleError(
            "a sum is negative, but `nonnegative` is True",
            remedy="correct the sum, or give `nonnegative=False`",
        )
    if whole and any((b != np.rint(b)).any() for b in known):
        raise InfeasibleError("a sum is not whole", remedy="correct it, or give `whole=False`")
