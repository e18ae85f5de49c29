"""Families of a tree split into pairs, so that sums over many children become convolutions of two."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit

Integers = NDArray[np.int64]


class PairPlan(NamedTuple):
    """A tree whose families are split into pairs: `n` nodes, then auxiliary sums.

    `order` lists children before parents; `family[v]:family[v + 1]` are the auxiliary nodes of
    parent `v`, in the order they are summed.
    """

    left: Integers
    right: Integers
    order: Integers
    family: Integers


@njit(cache=True)
def plan_pairs(child_ptr):
    """Split each family into a balanced tree of pairs, so windows grow as slowly as they can."""
    n = len(child_ptr) - 1
    children = np.diff(child_ptr)
    extra = np.maximum(children - 2, 0)
    family = np.empty(n + 1, np.int64)
    family[0] = n
    family[1:] = n + np.cumsum(extra)
    total = family[n]
    left, right = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    order = np.empty(total, np.int64)
    position = 0
    for v in range(n - 1, -1, -1):
        current = np.arange(child_ptr[v], child_ptr[v + 1])
        fresh = family[v]
        while len(current) > 2:
            # pair neighbours; stop pairing as soon as two sums are left
            upper = np.empty((len(current) + 1) // 2, np.int64)
            for k in range(len(upper)):
                if 2 * k + 1 == len(current):
                    upper[k] = current[2 * k]
                    continue
                left[fresh], right[fresh] = current[2 * k], current[2 * k + 1]
                order[position] = upper[k] = fresh
                fresh += 1
                position += 1
            current = upper
        if len(current) > 0:
            left[v] = current[0]
        if len(current) > 1:
            right[v] = current[1]
        order[position] = v
        position += 1
    return PairPlan(left, right, order, family)


@njit(cache=True)
def above(plan, passed, roots):
    """Return, for each node of the plan, the sum of `passed` over all nodes above it; `roots` (k,) are given for the first k."""
    out = np.zeros(len(passed))
    out[: len(roots)] = roots
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] + passed[v]
    return out


@njit(cache=True)
def sums_below(plan, own):
    """Return, for each node of the plan, the sum over it and all nodes below it."""
    out = own.copy()
    for v in plan.order:
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[v] += out[c]
    return out


@njit(cache=True)
def below_marked(plan, marked):
    """Mark the nodes that are anywhere below marked ones."""
    out = np.zeros(len(marked), np.bool_)
    for place in range(len(plan.order) - 1, -1, -1):
        v = plan.order[place]
        for c in (plan.left[v], plan.right[v]):
            if c >= 0:
                out[c] = out[v] or marked[v]
    return out
