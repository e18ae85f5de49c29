"""Any invariants of low rank: rejection on the free cells, with per-cell laws.

Choose r cells J whose columns of A are independent (r the rank) and draw all others F from their own
laws, independently. `A v = 0` then leaves `v_J = D v_F / q` for an integer matrix D and a positive integer q:
reject unless q divides every entry (rounding would put mass on vectors that break the
invariants, or fold it onto others), and accept with the product of the dependent cells' weights. The accepted
law is the product of all cells' weights on the lattice; the acceptance does not depend on J.

Cells with equal columns and the same law `a^|v|` enter the invariants by their sum S alone, so a dependent cell is
drawn with all m cells of its kind as one aggregate: S is dependent, is accepted with `G_m(S) / G_m(0)`, where
`G_m(S)` is the weight of all v with sum S, and is split among the cells after acceptance. The more
cells the wider is their sum, the less is rejected.

To split S, write `v = X - Y` with X, Y independent vectors of m geometric variables, `P(k) ~ a^k`: that is the cells' law.
Given that `sum X = S + B`, with `B = sum Y`, X is a uniform composition. So draw Y, accept `A = S + B >= 0` with the mass
`f(A) = C(m - 1 + A, A) a^A (1 - a)^m` of a sum of m geometric variables over its largest, and draw the composition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.lattice_samplers.sums import draw_composition
from trueup.kernel.lattice_samplers.tape import (
    POSITION,
    RUNNING,
    START,
    STATUS,
    TRIES,
    Coins,
    Steps,
    coin,
    invert,
)


class FreePlan(NamedTuple):
    """The free cells, and the dependence of the others on them.

    Attributes
    ----------
    free
        Free cells, `(f,)`.
    cells, starts
        Dependent aggregates' cells end to end, and where each aggregate starts, `(r + 1,)`.
    matrix, divisor
        `(r, f)` integers and a positive integer: the aggregates' sums are `matrix @ v[free] / divisor`.
    laws
        Row of each of the n cells in the table of laws, `(n,)`.
    kinds
        Row of each aggregate in the tables of aggregates, `(r,)`.
    """

    free: NDArray[np.int64]
    cells: NDArray[np.int64]
    starts: NDArray[np.int64]
    matrix: NDArray[np.int64]
    divisor: int
    laws: NDArray[np.int64]
    kinds: NDArray[np.int64]


class Aggregates(NamedTuple):
    """Tables that accept and split the sum of m cells, for `t` pairs of a law and m.

    Attributes
    ----------
    sums
        Coins `G_m(k) / G_m(0)`.
    parts
        Laws on 0, 1, ...: `P(k) ~ a^k`.
    heads
        Coins `c f(k - 1) / max f` for a constant c below 1 (coin 0 of a family is certain).
    """

    sums: Coins
    parts: Steps
    heads: Coins


@njit(cache=True)
def draw_free(tape, notes, state, plan, steps, aggregates, scratch, out, done):
    """Draw vectors of the lattice; `steps` are the cells' own laws, `scratch` zeroed words."""
    while done < out.shape[0]:
        v = out[done]
        state[START] = state[POSITION]
        tries = 1
        while not _try(tape, notes, state, plan, steps, aggregates, v):
            tries += 1
        for i in range(plan.kinds.size):
            cells = plan.cells[plan.starts[i] : plan.starts[i + 1]]
            if cells.size > 1:
                _split_aggregate(tape, notes, state, aggregates, plan.kinds[i], cells, scratch, v)
        if state[STATUS] != RUNNING:
            break
        state[TRIES] += tries
        done += 1
    return done


@njit(cache=True)
def _try(tape, notes, state, plan, steps, aggregates, v):
    """Propose a vector with aggregates' sums in their first cells; return True to stop (accepted, or the tape ran out)."""
    for cell in plan.free:
        v[cell] = invert(tape, notes, state, steps, plan.laws[cell])
    accepted = True
    i = 0
    while accepted and i < plan.kinds.size:
        total = 0
        for f in range(plan.free.size):
            total += plan.matrix[i, f] * v[plan.free[f]]
        accepted = total % plan.divisor == 0
        if accepted:
            total //= plan.divisor
            accepted = coin(tape, notes, state, aggregates.sums, plan.kinds[i], abs(total))
            v[plan.cells[plan.starts[i]]] = total
        i += 1
    return accepted or state[STATUS] != RUNNING


@njit(cache=True)
def _split_aggregate(tape, notes, state, aggregates, kind, cells, scratch, v):
    """Split the sum in an aggregate's first cell among its cells."""
    parts, total, accepted = np.zeros(cells.size, np.int64), v[cells[0]], False
    while not accepted and state[STATUS] == RUNNING:
        head = total
        for j in range(cells.size):
            parts[j] = -invert(tape, notes, state, aggregates.parts, kind)
            head -= parts[j]
        accepted = head >= 0 and coin(tape, notes, state, aggregates.heads, kind, head + 1)
    if state[STATUS] == RUNNING:
        draw_composition(tape, state, head, 1, scratch, parts)
        for j in range(cells.size):
            v[cells[j]] = parts[j]
