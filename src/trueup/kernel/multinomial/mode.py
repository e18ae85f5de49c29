"""Modes of multinomial distributions and draws from them: for one vector, many groups, or a whole tree.

The rule of the mode and its derivation are in `trueup.kernel.multinomial.apportion`. A multinomial draw is a chain of binomials:
cell `i` takes `Binomial(left, N_i / (N_i + ... + N_S))`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.kernel.compiled import njit
from trueup.kernel.multinomial.apportion import (
    EMPTY,
    INFEASIBLE,
    OK,
    apportioned_mode,
    mode_tree,
    propagate_exact,
)

Integers = NDArray[np.int64]
Empty = Literal["error", "uniform"]

LARGEST_COUNT = 2**62


def multinomial_mode(weights: ArrayLike, trials: int, *, empty: Empty = "error") -> Integers:
    """Return the mode of Multinomial(trials, weights / sum(weights)) by Finucan's algorithm.

    Parameters
    ----------
    weights
        Nonnegative integers, shape (n,), (counts).
    trials
        Sum of the result (counts).
    empty
        Policy if every weight is zero and `trials` is not: `"error"`, or `"uniform"`
        (all cells equally likely).

    Returns
    -------
    ndarray of int64, shape (n,)
        A mode, ties settled as in the published algorithm with the lowest index first.

    Raises
    ------
    InfeasibleError
        All weights are zero and `empty` is `"error"`, or there is no cell for the trials.
    DataError
        Negative counts, or counts that sum to more than 2^62.

    Notes
    -----
    Wang & Reiter (2021), section 2.2. Exact for all counts; linear in `n`.

    Examples
    --------
    >>> multinomial_mode([1, 9], 11)
    array([ 1, 10])
    """
    weights, trials = as_counts(weights, "weights"), as_trials(trials)
    if not weights.any() and trials:
        if not weights.size or not is_uniform(empty):
            refuse_groups(EMPTY, "the group")
        weights = np.ones_like(weights)
    return apportioned_mode(weights, trials, _sum(weights))


def multinomial_mode_tree(
    child_ptr: ArrayLike,
    weights: ArrayLike,
    total: int,
    *,
    exact: ArrayLike | None = None,
    empty: Empty = "error",
    order: ArrayLike | None = None,
    label: Callable[[int], str] = "node {}".format,
) -> Integers:
    """Return counts on a tree: each parent's count split among its children by a multinomial mode.

    Parameters
    ----------
    child_ptr
        Nodes in level order, children of `v` at `child_ptr[v]:child_ptr[v + 1]`, shape (n + 1,).
    weights
        Nonnegative weight of every node within its parent, shape (n,) (counts).
    total
        Count of the root (counts); ignored where `exact` fixes it, raised where it falls below
        the exact counts.
    exact
        Counts that are known exactly, -1 elsewhere, shape (n,). A parent never falls below its
        exact descendants: its mode is taken given these lower bounds.
    empty
        The same as in `multinomial_mode`, for each parent.
    order
        (n,) the order in which ties are settled: a permutation that keeps siblings together.
        By default their own, lowest index first.
    label
        A function that names a node in an error.

    Returns
    -------
    ndarray of int64, shape (n,)
        Nonnegative counts; each parent's is the sum of its children's.

    Raises
    ------
    InfeasibleError
        Exact counts that contradict each other; a parent without weights below it.
    DataError
        The same cases as in `multinomial_mode`.

    Notes
    -----
    Wang & Reiter (2021), section 3.2 from step 5 on, applied to each parent from the top.

    Examples
    --------
    >>> multinomial_mode_tree([1, 3, 5, 5, 5, 5], [0, 1, 9, 4, 4], 11)
    array([11,  1, 10,  0,  1])
    """
    child_ptr, weights, least, fixed = _given(child_ptr, weights, exact, label)
    counts = np.empty_like(weights)
    counts[0] = least[0] if fixed[0] else max(as_trials(total), least[0])
    places = np.arange(weights.size) if order is None else np.asarray(order, np.int64)
    node, status = mode_tree(child_ptr, weights, least, fixed, is_uniform(empty), places, counts)
    if status != OK:
        refuse_groups(status, label(node))
    return counts


# --- checks -----------------------------------------------------------------------------------


def as_counts(values: ArrayLike, what: str) -> Integers:
    """Return nonnegative whole numbers as an int64 array, or raise an error."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise DataError(f"{what} are of type {array.dtype}", needed="whole numbers")
    if array.size and (array.min() < 0 or array.max() > LARGEST_COUNT):
        raise DataError(f"{what} are out of range", needed="counts from 0 to 2^62")
    return np.asarray(array, np.int64, order="C")


def as_trials(trials: int) -> int:
    """Return the number of trials as an integer, or raise an error."""
    return int(as_counts(np.asarray(trials), "trials"))


def _sum(weights: Integers) -> int:
    """Return the exact sum of the weights, which must stay below 2^62."""
    if float(weights.sum(dtype=np.float64)) > LARGEST_COUNT:
        raise DataError("the weights sum to more than 2^62", needed="weights whose sum is at most 2^62")
    return int(weights.sum())


def is_uniform(empty: Empty) -> bool:
    """Return True if groups without any weight are to be split evenly."""
    if empty not in ("error", "uniform"):
        raise SpecError(f"the option `empty` is {empty!r}", needed="'error', or 'uniform' to split evenly")
    return empty == "uniform"


def _given(
    child_ptr: ArrayLike, weights: ArrayLike, exact: ArrayLike | None, label: Callable[[int], str]
) -> tuple[Integers, Integers, Integers, NDArray[np.bool_]]:
    """Return a tree and its weights as arrays, the least count of every node, and a mask of known counts."""
    weights, child_ptr = as_counts(weights, "weights"), np.asarray(child_ptr, np.int64)
    known = np.full(weights.size, -1, np.int64) if exact is None else np.asarray(exact, np.int64)
    least, fixed = np.zeros_like(weights), known >= 0
    if (node := propagate_exact(child_ptr, known, least, fixed)) >= 0:
        refuse_groups(INFEASIBLE, label(node))
    return child_ptr, weights, least, fixed


def refuse_groups(status: int, where: str) -> None:
    """Raise the error that belongs to a kernel's status, unless the status is good."""
    if status == EMPTY:
        raise InfeasibleError(
            f"{where} has a positive total, but no part has a positive weight",
            remedy="set empty = 'uniform' to split such totals evenly",
        )
    if status == INFEASIBLE:
        raise InfeasibleError(
            f"{where} cannot be the sum of its parts, because exact counts contradict each other",
            needed="exact counts whose parts sum to their totals",
            remedy="correct or drop an invariant",
        )


def multinomial_draw_tree(
    child_ptr: ArrayLike,
    weights: ArrayLike,
    total: int,
    rng: np.random.Generator,
    *,
    exact: ArrayLike | None = None,
    empty: Empty = "error",
    label: Callable[[int], str] = "node {}".format,
) -> Integers:
    """Draw the counts of a tree: each parent's count is split among its children by a multinomial draw.

    Parameters
    ----------
    child_ptr, weights, total
        The same as in `trueup.kernel.multinomial.mode.multinomial_mode_tree`.
    rng
        Source of randomness; post-processing only.
    exact
        Counts known exactly, -1 elsewhere, shape (n,). All or none of a drawn node's descendants
        on a path may be exact only where the node itself then is.
    empty
        The same as in `multinomial_draw`, for each parent.
    label
        A function that names a node in an error.

    Returns
    -------
    ndarray of int64, shape (n,)

    Raises
    ------
    InfeasibleError
        Exact counts that contradict each other or the total; a parent without weights below it.
    SpecError
        An exact count below a node that is itself drawn: a draw could fall under it.

    Notes
    -----
    Wang (2020), section 3.1.1, step 5, applied to each parent from the top.

    Examples
    --------
    >>> counts = multinomial_draw_tree([1, 3, 5, 5, 5, 5], [0, 1, 9, 4, 4], 11, np.random.default_rng(1))
    >>> bool(counts[1] + counts[2] == 11 and counts[3] + counts[4] == counts[1])
    True
    """
    child_ptr, weights, least, fixed = _given(child_ptr, weights, exact, label)
    if (least[~fixed] > 0).any():
        raise SpecError(
            "an exact count is one part of a total whose parts are drawn, and the draw could fall below it",
            needed="exact counts for all parts of a total, or for none of them",
            remedy="use the method multinomial-mode, which keeps exact counts",
        )
    counts = np.empty_like(weights)
    counts[0] = least[0] if fixed[0] else as_trials(total)
    node, status = _draw_tree(child_ptr, weights, least, fixed, is_uniform(empty), rng, counts)
    if status != OK:
        refuse_groups(status, label(node))
    return counts


@njit(cache=True)
def _draw_tree(child_ptr, weights, least, fixed, uniform, rng, counts):
    """Draw the splits of a tree in level order, each parent before its children."""
    for v in range(weights.size):
        first, last = child_ptr[v], child_ptr[v + 1]
        if first < last:
            status = _draw_split(first, last, counts[v], weights, least, fixed, uniform, rng, counts)
            if status != OK:
                return v, status
    return -1, OK


@njit(cache=True)
def _draw_split(first, last, trials, weights, least, fixed, uniform, rng, counts):
    """Draw the split of `trials` among those children that have no fixed counts."""
    left, weight, free = trials, 0, 0
    for i in range(first, last):
        if fixed[i]:
            counts[i] = least[i]
            left -= least[i]
        else:
            weight += weights[i]
            free += 1
    if left < 0 or (free == 0 and left > 0):
        return INFEASIBLE
    even = weight == 0
    if even and left > 0 and not uniform:
        return EMPTY
    for i in range(first, last):
        if fixed[i]:
            continue
        share = 1.0 / free if even else (weights[i] / weight if weight > 0 else 0.0)
        counts[i] = rng.binomial(left, min(share, 1.0)) if left > 0 else 0
        left -= counts[i]
        free -= 1
        weight -= 0 if even else weights[i]
    return OK
