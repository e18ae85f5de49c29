"""Nonnegative counts with the same invariants, after the noise: post-processing that costs no privacy.

Given noisy counts z that already keep the invariants, a flat prior on the fibre `{x >= 0 : A x = A z}` has the posterior
`p(x | z) ~ exp(-rate ||z - x||)`: it is the law of `z - v` for fresh noise v, given that no count is negative. So
noise drawn exactly and rejected until `z - v >= 0` draws from it exactly. Where that takes too long, a Markov chain
walks the fibre by moves that connect it: pairs of cells where one sum is fixed, 2 x 2 swaps in a table (Diaconis
and Sturmfels 1998). Its error costs accuracy, never privacy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.kernel.compiled import njit

SINGLES, PAIRS, SWAPS, LISTED = range(4)
"""Kinds of moves: one cell; one cell to another; 2 x 2 swaps of a table; a list of vectors."""


class Walked(NamedTuple):
    """Draws from a fibre by a Markov chain.

    Attributes
    ----------
    draws
        `(chains, d, k)` integers.
    acceptance
        Share of proposals accepted.
    connected
        Whether the moves are known to reach every point of the fibre.
    """

    draws: NDArray[np.int64]
    acceptance: float
    connected: bool


def fibre_mode(invariants: NDArray[np.int64], noisy: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a nonnegative integer `x` with `A x = A z` nearest to `z` in L1: a posterior mode under a flat prior.

    The nearest is not unique in general; this is the one that branch and bound finds.

    Raises
    ------
    ConvergenceError
        The solver stopped early, or its answer failed our check.

    Examples
    --------
    >>> fibre_mode(np.array([[1, 1, 1]]), np.array([-2, 5, 9])).sum()
    np.int64(12)
    """
    return nearest_table(invariants, invariants @ noisy, noisy)


def nearest_table(
    invariants: NDArray[np.int64], values: NDArray[np.int64], target: NDArray
) -> NDArray[np.int64]:
    """Return a nonnegative integer `x` `(k,)` with `A x = b` nearest in L1 to real or integer counts `target`.

    Raises
    ------
    ConvergenceError
        The solver stopped early, or its answer failed our check.

    Examples
    --------
    >>> nearest_table(np.array([[1, 1, 1]]), np.array([4]), np.array([0.3, 1.9, 1.8]))
    array([0, 2, 2])
    """
    k = len(target)
    # Each |x - t| lies below a variable of its own, which is minimised.
    both, ones, infinite = np.eye(k), np.ones(k), np.inf
    wanted: Any = np.asarray(target, float)
    fixed: Any = values.astype(float)
    same: Any = scipy.optimize.LinearConstraint(
        np.hstack([invariants, np.zeros_like(invariants)]), fixed, fixed
    )
    above: Any = scipy.optimize.LinearConstraint(np.hstack([both, -both]), -infinite, wanted)
    below: Any = scipy.optimize.LinearConstraint(np.hstack([both, both]), wanted, infinite)
    constraints = [same, above, below] if len(invariants) else [above, below]
    cost, whole = np.concatenate([0 * ones, ones]), np.concatenate([ones, 0 * ones])
    found = scipy.optimize.milp(
        cost, constraints=constraints, integrality=whole, bounds=scipy.optimize.Bounds(0, np.inf)
    )
    if found.x is None:
        raise ConvergenceError(
            "no nearest nonnegative counts were found", remedy="draw from the posterior instead"
        )
    x = np.rint(found.x[:k]).astype(np.int64)
    if (x < 0).any() or not np.array_equal(invariants @ x, values):
        raise ConvergenceError("the nearest nonnegative counts failed their check", remedy="report this")
    return x


def fibre_walk(
    piece: Any,
    noisy: NDArray[np.int64],
    rate: float,
    power: int,
    count: int,
    thin: int,
    rng: np.random.Generator,
) -> Walked:
    """Walk the fibre of one piece of a lattice: four chains, each dispersed from the mode first.

    Parameters
    ----------
    piece
        A `structure.Piece` with k cells.
    noisy
        Its noisy counts in flat order `(k,)`.
    rate, power
        The target `exp(-rate sum |z - x|^power)`, power 1 or 2.
    count, thin
        Draws kept of each chain, and steps between them (per cell).
    rng
        Seeded from public measurements.
    """
    kinds = {"free": SINGLES, "sum": PAIRS, "table": SWAPS, "general": LISTED}
    kind = kinds[piece.kind]
    listed = np.ascontiguousarray(piece.basis) if kind == LISTED else np.zeros((1, 1), np.int64)
    columns = piece.cells.shape[1] if kind == SWAPS else 1
    start = fibre_mode(piece.invariants, noisy) if len(piece.invariants) else np.maximum(noisy, 0)
    scale = max(1.0, 1 / rate if power == 1 else (2 * rate) ** -0.5)
    chains, accepted, heat = [], 0.0, 1 + count * thin // 4
    for _ in range(4):
        # A dispersed start: some steps at a tenth of the rate, then twice as many at the rate.
        first, _ = _walk(rng, kind, listed, columns, start, noisy, rate / 10, power, 3 * scale, 1, heat)
        warm, _ = _walk(rng, kind, listed, columns, first[0], noisy, rate, power, scale, 1, 2 * heat)
        draws, share = _walk(rng, kind, listed, columns, warm[0], noisy, rate, power, scale, count, thin)
        chains.append(draws)
        accepted += share / 4
    return Walked(np.array(chains), accepted, kind != LISTED)


@njit(cache=True)
def _walk(rng, kind, listed, columns, start, noisy, rate, power, scale, count, thin):
    """Run one chain; `thin` sweeps of one proposal per cell lie between the states kept."""
    x, move = start.copy(), np.zeros(len(start), np.int64)
    states, accepted = np.zeros((count, len(x)), np.int64), 0
    for draw in range(count):
        for _ in range(thin * len(x)):
            _move(rng, kind, listed, columns, move)
            step = np.int64(1 + np.floor(-np.log(1.0 - rng.random()) * scale * rng.random()))
            accepted += _step(rng, x, noisy, move, step if rng.random() < 0.5 else -step, rate, power)
        states[draw] = x
    return states, accepted / (count * thin * len(x))


@njit(cache=True)
def _move(rng, kind, listed, columns, move):
    """Overwrite `move` by a random one."""
    if kind == LISTED:
        move[:] = listed[int(rng.random() * len(listed))]
        return
    move[:] = 0
    n = len(move)
    if kind == SINGLES:
        move[int(rng.random() * n)] = 1
    elif kind == PAIRS:
        i, j = _two(rng, n)
        move[i], move[j] = 1, -1
    else:
        i, k = _two(rng, n // columns)
        j, m = _two(rng, columns)
        move[i * columns + j] = move[k * columns + m] = 1
        move[i * columns + m] = move[k * columns + j] = -1


@njit(cache=True)
def _two(rng, n):
    i = int(rng.random() * n)
    j = int(rng.random() * (n - 1))
    return i, j + 1 if j >= i else j


@njit(cache=True)
def _step(rng, x, noisy, move, step, rate, power):
    """Metropolis step of `x` by `step * move`; stays where a count would be negative."""
    change = 0.0
    for i in range(len(x)):
        if move[i]:
            y = x[i] + step * move[i]
            if y < 0:
                return 0
            change += abs(y - noisy[i]) ** power - abs(x[i] - noisy[i]) ** power
    if change > 0 and rng.random() >= np.exp(-rate * change):
        return 0
    for i in range(len(x)):
        x[i] += step * move[i]
    return 1
