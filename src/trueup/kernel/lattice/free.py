"""Any invariants of low rank: rejection on the free cells, with per-cell laws.

Choose r cells J whose columns of A are independent (r the rank) and draw all others F from their own
laws, independently. `A v = 0` then leaves `v_J = D v_F / q` for an integer matrix D and a positive integer q:
reject unless q divides every entry (rounding would put mass on vectors that break the
invariants, or fold it onto others), and accept with the product of the dependent cells' weights. The accepted
law is the product of all cells' weights on the lattice; the acceptance does not depend on J.

A dependent cell that has a twin (same column, same law `a^|v|`) is better drawn as the pair: the pair's sum is
dependent, is accepted with `G(S) / G(0)` and then split (see `tables`), which raises the acceptance
by `(1 + a)^2 / (1 + a^2)`, about 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from trueup.kernel.lattice.tables import split
from trueup.kernel.lattice.tape import POSITION, RUNNING, START, STATUS, TRIES, coin, invert


class Plan(NamedTuple):
    """Which cells are free and how the others depend on them.

    Attributes
    ----------
    free
        Free cells, `(f,)`.
    cells
        Dependent cells, `(r,)`.
    twins
        Their twins, or -1, `(r,)`; a twin is neither free nor dependent.
    matrix, divisor
        `(r, f)` integers and a positive integer: dependent cells (with their twins) are `matrix @ free / divisor`.
    laws
        Row of each of the n cells in the tables of laws and coins, `(n,)`.
    """

    free: NDArray[np.int64]
    cells: NDArray[np.int64]
    twins: NDArray[np.int64]
    matrix: NDArray[np.int64]
    divisor: int
    laws: NDArray[np.int64]


@njit(cache=True)
def draw_free(tape, notes, state, plan, steps, pairs, out, done):
    """Draw vectors of the lattice; `steps` are the cells' own laws."""
    while done < out.shape[0]:
        v = out[done]
        state[START] = state[POSITION]
        tries = 1
        while not _try(tape, notes, state, plan, steps, pairs, v):
            tries += 1
        for i in range(plan.cells.size):
            cell, twin = plan.cells[i], plan.twins[i]
            if twin >= 0:
                v[twin] = split(tape, notes, state, pairs, plan.laws[cell], v[cell])
                v[cell] -= v[twin]
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _try(tape, notes, state, plan, steps, pairs, v):
    """Propose a vector; tell whether to stop proposing (accepted, or the tape needs attention)."""
    for cell in plan.free:
        v[cell] = invert(tape, notes, state, steps, plan.laws[cell])
    accepted = True
    i = 0
    while accepted and i < plan.cells.size:
        total = 0
        for f in range(plan.free.size):
            total += plan.matrix[i, f] * v[plan.free[f]]
        accepted = total % plan.divisor == 0
        if accepted:
            cell, total = plan.cells[i], total // plan.divisor
            coins = pairs.sums if plan.twins[i] >= 0 else pairs.cells
            accepted = coin(tape, notes, state, coins, plan.laws[cell], abs(total))
            v[cell] = total
        i += 1
    return accepted or state[STATUS] != RUNNING
