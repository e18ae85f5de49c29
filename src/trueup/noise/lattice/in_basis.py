"""L1 noise on a lattice of few dimensions, drawn by its coordinates in a short basis.

Vectors are `v = sum_j k_j b_j`. Rates `l_j` with `sum_i |v_i| >= sum_j l_j |k_j|` for all k make independent `k_j` of laws
`exp(-epsilon l_j |k_j|)` a proposal with no lighter tails: it is accepted with `exp(-epsilon (|v|_1 - sum_j l_j |k_j|))`.

The rates are proved. For the signs s of k and any y with `|y_i| <= 1`, `|v|_1 >= y . v = sum_j |k_j| s_j (y . b_j)`, so
`l_j` may be the least of `s_j (y_s . b_j)` over all signs, whatever y_s is. Linear programs choose y_s, doubles that are then
rounded to fractions of 2^20; the rates follow from these in whole numbers.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.lattice.structure import Piece
from trueup.noise.lattice.choice import (
    CELL,
    LARGEST_SUM,
    NOISE_REACH_NATS,
    Choice,
    laplace_factor,
    log_mass,
    too_long,
    tries_for,
)
from trueup.noise.law import Words

MOST_DIMENSIONS = 8
"""Dimensions beyond which no rates are looked for: there are as many linear programs as signs."""
PARTS = 8
"""Rates are whole numbers of this part of one."""
_DENOMINATOR = 2**20


class BasisPlan(NamedTuple):
    """A basis, and the rates of its coordinates.

    Attributes
    ----------
    basis
        `(d, n)` integers.
    rates
        `(d,)` rates, in parts of one.
    parts
        Of how many parts one is.
    laws
        Row of each coordinate in the table of laws, `(d,)`.
    """

    basis: NDArray[np.int64]
    rates: NDArray[np.int64]
    parts: int
    laws: NDArray[np.int64]


def proved_rates(basis: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rates `(d,)`, in parts of one, for a basis `(d, n)`: proved, and 0 where nothing better is found.

    Examples
    --------
    >>> rates = proved_rates(np.array([[1, -1, 0], [0, 1, -1]]))  # 8 or less: a linear program rounds
    >>> bool((rates >= 7).all()), proved_rates(np.array([[5, -3]])).tolist()
    (True, [64])
    """
    from scipy.optimize import linprog

    d, n = basis.shape
    norms = np.abs(basis).sum(axis=1)
    least = PARTS * norms
    for rest in product((1, -1), repeat=d - 1):
        signed = np.array([1, *rest])[:, None] * basis
        found = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.hstack([-signed, norms[:, None]]),
            b_ub=np.zeros(d),
            bounds=[(-1, 1)] * n + [(0, None)],
        )
        if found.x is None:
            return np.zeros(d, np.int64)
        y = np.rint(np.clip(found.x[:n], -1, 1) * _DENOMINATOR).astype(np.int64)
        least = np.minimum(least, PARTS * (signed @ y) // _DENOMINATOR)
    return np.maximum(least, 0)


def in_basis(piece: Piece, epsilon: Fraction) -> Choice | None:
    """Return the sampler of a piece of few dimensions whose cells have one law; None if no rates are proved."""
    if piece.dimension > MOST_DIMENSIONS or not (rates := proved_rates(piece.basis)).all():
        return None
    own = [Fraction(int(rate), PARTS) * epsilon for rate in rates]
    mass = log_mass(piece.invariants, [laplace_factor(epsilon)] * piece.cells.size)
    tries = tries_for(mass - sum(laplace_factor(rate)[0] for rate in own))
    reach = PARTS * np.abs(piece.basis).sum() * NOISE_REACH_NATS / float(min(own))
    beyond = too_long(NOISE_REACH_NATS * max(PARTS / float(epsilon), 2 / float(min(own))))
    if not beyond and reach > LARGEST_SUM:
        beyond = f"sums up to {reach:.3g}, at most 2^62"

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice.tables import Decisions, laplace_steps
        from trueup.noise.samplers import Powers

        decisions, laws = Decisions(), sorted(set(own))
        plan = BasisPlan(piece.basis, rates, PARTS, np.array([laws.index(rate) for rate in own], np.int64))
        return decisions, plan, laplace_steps(decisions, laws), decisions.coins([Powers(epsilon / PARTS)])

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import run
        from trueup.kernel.lattice_samplers.free import draw_in_basis

        decisions, *arguments = tables()
        return run(draw_in_basis, arguments, (count, piece.cells.size), words, decisions.settle)

    return Choice("basis", "integer", tries, tries * piece.basis.size * CELL, draw, beyond=beyond)
