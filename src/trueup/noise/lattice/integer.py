"""Exact samplers of noise on a lattice: for one sum, for tables and grids, and for other pieces."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.structure import Piece
from trueup.noise.lattice.choice import (
    CELL,
    LARGEST_COMPOSITION,
    LARGEST_SUM,
    NOISE_REACH_NATS,
    ROW,
    Choice,
    aggregate_gain,
    gaussian_factor,
    half_norm,
    laplace_factor,
    log_mass,
    noise_reach,
    nothing_drawn,
    too_long,
    tries_for,
)
from trueup.noise.law import Words

LARGEST_AGGREGATE = 16
"""Most cells drawn by their sum: what they save grows with the root of their number, their tables with it."""
MOST_INVARIANTS = 150
"""Invariants beyond which free cells are not considered: tries grow exponentially with their number."""
MAX_EXPECTED_SECONDS = 1e9
"""Expected seconds for one vector beyond which a sampler is never considered."""
WIDEST_TABLE = 2**20
"""Largest sigma squared (counts squared) whose law is tabulated."""


@lru_cache(maxsize=1024)
def composition(n: int, epsilon: Fraction) -> Choice:
    """Return the sampler of a piece with one fixed sum."""

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice.tables import Decisions, sizes

        decisions = Decisions()
        return decisions, sizes(decisions, n, epsilon)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import run
        from trueup.kernel.lattice_samplers.free import draw_sums

        decisions, law = tables()
        scratch = np.zeros((int(law.low[0]) + law.floors.shape[1] + n) // 64 + 1, np.uint64)
        return run(draw_sums, (law, scratch), (count, n), words, decisions.settle)

    return Choice("composition", "integer", 1.0, ROW * n, draw, beyond=_wide(n, epsilon))


def _wide(n: int, epsilon: Fraction) -> str:
    """Return words for the limit that the sampler of one sum exceeds, or an empty text."""
    end, entries = half_norm(n, epsilon)
    if end + n > LARGEST_COMPOSITION:
        return f"compositions of {end + n:.3g} places, at most {LARGEST_COMPOSITION:,}"
    return too_long(entries)


def integer_table(piece: Piece, epsilon: Fraction) -> Choice:
    """Return the sampler of a table or grid whose one-way margins are fixed."""
    if piece.cells.ndim == 2 and min(piece.cells.shape) == 2:
        rows, columns = piece.cells.shape
        return _mirrored(rows, columns, epsilon)
    return min(
        (_rows(piece, axes, epsilon) for axes in _orders(piece)),
        key=lambda one: (bool(one.beyond), one.seconds),
    )


def _orders(piece: Piece) -> list[tuple[int, ...]]:
    """Return two orders of a grid's axes: by ascending size, and the same with the first two exchanged."""
    first, second, *others = np.argsort(piece.cells.shape, kind="stable").tolist()
    return [(first, second, *others), (second, first, *others)]


def _mirrored(rows: int, columns: int, epsilon: Fraction) -> Choice:
    """Return the sampler of a table with two rows, the second of which is minus the first."""
    single = composition(max(rows, columns), 2 * epsilon)

    def draw(count: int, words: Words):
        drawn = single.draw(count, words)
        both = np.stack([drawn.vectors, -drawn.vectors], axis=1)
        return drawn._replace(vectors=(both if rows == 2 else both.transpose(0, 2, 1)).reshape(count, -1))

    return Choice("composition", "integer", 1.0, single.seconds, draw, beyond=single.beyond)


def _rows(piece: Piece, axes: tuple[int, ...], epsilon: Fraction) -> Choice:
    shape = tuple(piece.cells.shape[axis] for axis in axes)
    from trueup.noise.lattice.rows import beyond_limits, log_proposals, seconds_for

    if beyond := beyond_limits(shape, float(epsilon)):
        return Choice("rows", "bounded", math.inf, math.inf, nothing_drawn, beyond=beyond)

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice.rows import GridSampler

        return GridSampler(shape, epsilon)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import run
        from trueup.kernel.lattice_samplers.rows import draw_grids

        grids = tables()
        drawn = run(draw_grids, (grids.laws, grids.asked), (count, piece.cells.size), words, grids.settle)
        memory = (*range(len(shape) - 1, 1, -1), 0, 1)  # axes in the order in which cells lie
        vectors = drawn.vectors.reshape(count, *(shape[axis] for axis in memory))
        back = [1 + memory.index(axes.index(axis)) for axis in range(len(shape))]
        return drawn._replace(vectors=vectors.transpose(0, *back).reshape(count, -1))

    factor = laplace_factor(epsilon)
    target = log_mass(piece.invariants, [factor] * piece.cells.size, index=1)
    tries = tries_for(target - log_proposals(shape, float(epsilon)))
    return Choice("rows", "bounded", tries, tries * seconds_for(shape, float(epsilon)), draw)


def free(piece: Piece, factors: tuple[Fraction, ...], kind: str) -> Choice:
    """Return a rejection sampler by free cells, accepted by the mass of the cells that they determine."""
    if len(piece.invariants) > MOST_INVARIANTS:
        beyond = f"{len(piece.invariants)} dependent cells, at most {MOST_INVARIANTS}"
        return Choice("free", "integer", math.inf, math.inf, nothing_drawn, beyond=beyond)
    laplace = kind == "laplace"
    cells = [laplace_factor(f) if laplace else gaussian_factor(f) for f in factors]
    masses = np.array([mass for mass, _, _ in cells])
    matrix = piece.invariants
    aggregates = _aggregates(piece, factors) if laplace else [[cell] for cell in range(len(factors))]
    gains = np.array(
        [
            aggregate_gain(factors[aggregate[0]], len(aggregate)) if laplace else masses[aggregate[0]]
            for aggregate in aggregates
        ]
    )
    order = np.argsort(-gains, kind="stable")
    firsts = np.array([aggregates[i][0] for i in order])
    chosen = order[algebra.pivots(matrix[:, firsts])] if len(matrix) else np.zeros(0, np.intp)
    dependent = [aggregates[i] for i in chosen]
    tries = tries_for(log_mass(matrix, cells) - masses.sum() + gains[chosen].sum())

    @lru_cache(maxsize=1)
    def tables():
        return _free_tables(matrix, dependent, factors, laplace=laplace)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import run
        from trueup.kernel.lattice_samplers.free import draw_free

        decisions, *layout_and_laws = tables()
        arguments = (*layout_and_laws, np.zeros(64, np.uint64))
        return run(draw_free, arguments, (count, len(factors)), words, decisions.settle)

    seconds = tries * len(factors) * CELL
    beyond = _too_large(dependent, factors, laplace=laplace)
    if not beyond and seconds < MAX_EXPECTED_SECONDS:
        beyond = _sum_too_large(matrix, dependent, factors, laplace=laplace)
    return Choice("free", "integer", tries, seconds, draw, beyond=beyond)


def _free_tables(matrix, dependent, factors: Sequence[Fraction], *, laplace: bool) -> tuple:
    """Return the tables for drawing a piece by its free cells, with exact decisions for undecided words."""
    from trueup.noise.lattice.tables import (
        Decisions,
        gaussian_aggregates,
        gaussian_steps,
        laplace_aggregates,
        laplace_steps,
    )

    decisions, parameters = Decisions(), sorted(set(factors))
    kinds = [(factors[aggregate[0]], len(aggregate)) for aggregate in dependent]
    sorts = sorted(set(kinds)) or [(parameters[0], 1)]
    laws = [parameters.index(f) for f in factors]
    layout = integer_plan(matrix, dependent, laws, [sorts.index(kind) for kind in kinds])
    if laplace:
        return decisions, layout, laplace_steps(decisions, parameters), laplace_aggregates(decisions, sorts)
    aggregated = gaussian_aggregates(decisions, [variance for variance, _ in sorts])
    return decisions, layout, gaussian_steps(decisions, parameters), aggregated


def _too_large(dependent, factors: Sequence[Fraction], *, laplace: bool) -> str:
    """Return words for the table that would be too large, or an empty text."""
    if laplace:
        most = max(map(len, dependent), default=1)
        return too_long(2 * NOISE_REACH_NATS / float(min(factors)) * (1 + most / NOISE_REACH_NATS))
    if max(factors) > WIDEST_TABLE:
        return f"a table of the Gaussian with sigma2 {float(max(factors)):.3g}, at most {WIDEST_TABLE:,}"
    return ""


def _sum_too_large(matrix, dependent, factors: Sequence[Fraction], *, laplace: bool) -> str:
    shared = integer_plan(matrix, dependent, [0] * len(factors), [0] * len(dependent)).matrix
    reach = max(noise_reach(factor, laplace) for factor in set(factors))
    largest = float(np.abs(shared).sum(axis=1).max(initial=0)) * reach
    return f"sums up to {largest:.3g}, at most 2^62" if largest > LARGEST_SUM else ""


def _aggregates(piece: Piece, factors) -> list[list[int]]:
    """Return groups of cells with equal invariants and factors, each within `LARGEST_AGGREGATE` cells."""
    kinds, full = defaultdict(list), []
    for cell, kind in enumerate(zip(piece.aggregates.tolist(), factors)):
        kinds[kind].append(cell)
        if len(kinds[kind]) == LARGEST_AGGREGATE:
            full.append(kinds.pop(kind))
    return full + list(kinds.values())


def integer_plan(matrix, dependent, laws, kinds):
    """Return the plan of a piece's free cells, and how the sums of its aggregates depend on them."""
    from trueup.kernel.lattice_samplers.free import FreePlan

    cells = [cell for aggregate in dependent for cell in aggregate]
    others = np.setdiff1d(np.arange(matrix.shape[1]), cells)
    firsts = np.array([aggregate[0] for aggregate in dependent], dtype=np.intp)
    shared, divisor = algebra.dependence(matrix, firsts, others)
    starts = np.cumsum([0, *map(len, dependent)])
    free, cells, starts, shared, laws, kinds = (
        np.ascontiguousarray(p, np.int64) for p in (others, cells, starts, shared, laws, kinds)
    )
    return FreePlan(free, cells, starts, shared, divisor, laws, kinds)
