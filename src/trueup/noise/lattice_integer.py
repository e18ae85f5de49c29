"""The samplers in integer arithmetic: compositions for one sum, rows for a table, free cells for the rest."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.structure import Piece
from trueup.noise.lattice_choice import Choice
from trueup.noise.lattice_cost import (
    CELL,
    ROW,
    gaussian_factor,
    laplace_factor,
    log_mass,
    pair_mass,
    tries_for,
)
from trueup.noise.law import Words

WIDEST_TABLE = 2**20
"""Largest sigma squared (counts squared) whose law is tabulated."""


@lru_cache(maxsize=1024)
def composition(n: int, epsilon: Fraction) -> Choice:
    """One fixed sum."""

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import Decisions, sizes

        decisions = Decisions()
        return decisions, sizes(decisions, n, epsilon)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.sums import draw_sums
        from trueup.kernel.lattice.tape import run

        decisions, law = tables()
        return run(draw_sums, (law, _scratch(law, n)), (count, n), words, decisions.settle)

    return Choice("composition", "integer", 1.0, ROW * n, draw)


def table(piece: Piece, epsilon: Fraction) -> Choice:
    """A two-way table: exact outright with two rows, else by rejection on its last two rows."""
    rows, columns = piece.cells.shape
    if min(rows, columns) == 2:
        return _mirrored(rows, columns, epsilon)
    options = [_rows(piece, rows, columns, epsilon, False), _rows(piece, columns, rows, epsilon, True)]
    return min(options, key=lambda option: option.seconds)


def _mirrored(rows: int, columns: int, epsilon: Fraction) -> Choice:
    """Two rows: the second is minus the first, so the first is one fixed sum at twice epsilon."""
    single = composition(max(rows, columns), 2 * epsilon)

    def draw(count: int, words: Words):
        drawn = single.draw(count, words)
        both = np.stack([drawn.vectors, -drawn.vectors], axis=1)
        return drawn._replace(vectors=(both if rows == 2 else both.transpose(0, 2, 1)).reshape(count, -1))

    return Choice("composition", "integer", 1.0, single.seconds, draw)


def _rows(piece: Piece, rows: int, columns: int, epsilon: Fraction, turned: bool) -> Choice:
    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import Decisions, laplace_pairs, sizes

        decisions = Decisions()
        return decisions, sizes(decisions, columns, epsilon), laplace_pairs(decisions, [epsilon])

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.tables import draw_tables
        from trueup.kernel.lattice.tape import run

        decisions, law, pairs = tables()
        arguments = (rows, columns, law, _scratch(law, columns), pairs)
        drawn = run(draw_tables, arguments, (count, rows * columns), words, decisions.settle)
        if turned:
            vectors = drawn.vectors.reshape(count, rows, columns).transpose(0, 2, 1).reshape(count, -1)
            drawn = drawn._replace(vectors=vectors)
        return drawn

    factor = laplace_factor(epsilon)
    target = log_mass(piece.invariants, [factor] * (rows * columns))
    row = log_mass(np.ones((1, columns), np.int64), [factor] * columns)
    tries = tries_for(target - (rows - 2) * row - (columns - 1) * pair_mass(epsilon))
    return Choice("rows", "integer", tries, tries * (rows - 2) * columns * ROW / 2, draw)


def _scratch(law, n: int) -> np.ndarray:
    return np.zeros((int(law.low[0]) + law.floors.shape[1] + n) // 64 + 1, np.uint64)


def free(piece: Piece, factors: tuple[Fraction, ...], kind: str) -> Choice:
    """Any piece: independent free cells, dependent ones accepted by their weight."""
    parameters = sorted(set(factors))
    cells = [laplace_factor(f) if kind == "laplace" else gaussian_factor(f) for f in factors]
    masses = np.array([mass for mass, _, _ in cells])
    matrix = piece.invariants
    twin = _twins(piece, factors) if kind == "laplace" else np.full(len(factors), -1)
    pair = np.array(
        [2 * masses[i] - pair_mass(factors[i]) if twin[i] >= 0 else masses[i] for i in range(len(factors))]
    )
    order = np.argsort(-pair, kind="stable")
    dependent = order[algebra.pivots(matrix[:, order])] if len(matrix) else np.zeros(0, np.intp)
    proposed = masses.sum() - pair[dependent].sum()
    tries = tries_for(log_mass(matrix, cells) - proposed)

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import (
            Decisions,
            gaussian_pairs,
            gaussian_steps,
            laplace_pairs,
            laplace_steps,
        )

        decisions = Decisions()
        layout = plan(matrix, dependent, twin, [parameters.index(f) for f in factors])
        if kind == "laplace":
            return (
                decisions,
                layout,
                laplace_steps(decisions, parameters),
                laplace_pairs(decisions, parameters),
            )
        return decisions, layout, gaussian_steps(decisions, parameters), gaussian_pairs(decisions, parameters)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.free import draw_free
        from trueup.kernel.lattice.tape import run

        decisions, *arguments = tables()
        return run(draw_free, arguments, (count, len(factors)), words, decisions.settle)

    tabulated = kind == "laplace" or max(factors) <= WIDEST_TABLE
    seconds = tries * len(factors) * CELL if tabulated else math.inf
    return Choice("free", "integer", tries, seconds, draw)


def _twins(piece: Piece, factors) -> np.ndarray:
    """Return for each cell one with the same invariants and factor, or -1."""
    twin, waiting = np.full(len(factors), -1), {}
    for cell, key in enumerate(zip(piece.lumps.tolist(), factors)):
        if key in waiting:
            twin[cell], twin[waiting[key]] = waiting[key], cell
        else:
            waiting[key] = cell
    return twin


def plan(matrix, dependent, twin, laws):
    """Lay out which cells are free and how the others depend on them."""
    from trueup.kernel.lattice.free import Plan

    mates = twin[dependent]
    others = np.setdiff1d(np.arange(matrix.shape[1]), [*dependent, *mates[mates >= 0]])
    shared, divisor = algebra.dependence(matrix, dependent, others)
    free, cells, mates, shared = (
        np.ascontiguousarray(p, np.int64) for p in (others, dependent, mates, shared)
    )
    return Plan(free, cells, mates, shared, divisor, np.array(laws, dtype=np.int64))
