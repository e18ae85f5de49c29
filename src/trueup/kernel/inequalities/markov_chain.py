"""A Markov chain under linear inequalities, for cases in which independent draws are hardly ever accepted.

One step moves along a direction `v`: the feasible part of the line is an interval, the density on it
is log-concave, so the slice above a random level is an interval too and is drawn from uniformly
(Neal 2003, with brackets that cover the whole slice). Coordinate directions alone are slow where
many inequalities bind; directions within a facet (two coordinates that leave a row unchanged) move
along it. For discrete laws directions and steps are whole numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, GAUSSIAN

Reals = NDArray[np.float64]


def directions(rows: Reals, free: NDArray[np.bool_]) -> Reals:
    """Return a chain's directions `(k, n)`: single free coordinates, and facets in pairs of them.

    Examples
    --------
    >>> directions(np.array([[1.0, -2.0]]), np.array([True, True])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [-2.0, -1.0]]
    """
    every = [unit for unit, moves in zip(np.eye(len(free)), free) if moves]
    for row in rows:
        support = [i for i in np.flatnonzero(row) if free[i]]
        every += [_facet(row, int(i), int(j)) for k, i in enumerate(support) for j in support[k + 1 :]]
    return np.array(every).reshape(-1, len(free))


def _facet(row: Reals, i: int, j: int) -> Reals:
    out = np.zeros(len(row))
    whole = float(np.gcd(int(row[i]), int(row[j]))) if row[i] % 1 == 0 and row[j] % 1 == 0 else 1.0
    out[i], out[j] = row[j] / whole, -row[i] / whole
    return out


@njit(cache=True)
def _log_change(kind, z, scale, x, direction, step):
    """Return the log density at `x + step direction`, relative to that at `x`."""
    total = 0.0
    for i in range(len(x)):
        if direction[i] != 0.0:
            old, new = x[i] - z[i], x[i] + step * direction[i] - z[i]
            if kind[i] in (GAUSSIAN, DISCRETE_GAUSSIAN):
                total += 0.5 * (old * old - new * new) / (scale[i] * scale[i])
            else:
                total += (abs(old) - abs(new)) / scale[i]
    return total


@njit(cache=True)
def _feasible(x, slack, direction, along, low, high):
    """Return the interval of steps that satisfy every row and bound."""
    first, last = -math.inf, math.inf
    for r in range(len(slack)):
        if along[r] > 0:
            first = max(first, -slack[r] / along[r])
        elif along[r] < 0:
            last = min(last, -slack[r] / along[r])
    for i in range(len(x)):
        if direction[i] != 0.0:
            one, other = (low[i] - x[i]) / direction[i], (high[i] - x[i]) / direction[i]
            first, last = max(first, min(one, other)), min(last, max(one, other))
    return min(first, 0.0), max(last, 0.0)


@njit(cache=True)
def _slice_step(rng, problem, x, slack, direction, along):
    """Draw the step along one direction from its conditional law, by slice sampling."""
    kind, z, scale, low, high = problem
    discrete = kind[0] >= DISCRETE_GAUSSIAN
    first, last = _feasible(x, slack, direction, along, low, high)
    if discrete:
        first, last = np.ceil(first - 1e-9), np.floor(last + 1e-9)
    level = -rng.standard_exponential()
    width = 0.0
    for i in range(len(x)):
        if direction[i] != 0.0:
            width = max(width, scale[i] / abs(direction[i]))
    width = max(width, 1.0) if discrete else width
    down, up = max(first, -width), min(last, width)
    while down > first and _log_change(kind, z, scale, x, direction, down) > level:
        down = max(first, 2 * down)
    while up < last and _log_change(kind, z, scale, x, direction, up) > level:
        up = min(last, 2 * up)
    while True:
        if discrete:
            down, up = np.ceil(down), np.floor(up)
            step = down + np.floor(rng.random() * (up - down + 1))
        else:
            step = down + rng.random() * (up - down)
        if step == 0.0 or _log_change(kind, z, scale, x, direction, step) > level:
            return step
        if step < 0:
            down = step + (1.0 if discrete else 0.0)
        else:
            up = step - (1.0 if discrete else 0.0)


@njit(cache=True)
def run_chain(problem, rows, bounds, moves, start, warmup, draws, thin, rng):
    """Run one Markov chain `(draws, n)` from a feasible start, with every direction tried once per sweep.

    Parameters
    ----------
    problem
        `(kind, z, scale, low, high)`, each `(n,)`; see `tilted.draw_inequalities`. All laws are
        continuous or all are discrete.
    rows, bounds
        `rows @ theta >= bounds`.
    moves
        `(k, n)` directions.
    start
        (n,) feasible; whole numbers for discrete laws.
    warmup, draws, thin
        Sweeps before the first draw, draws, and sweeps per draw.
    rng
        NumPy generator.
    """
    x = start.copy()
    along = moves @ rows.T
    out = np.empty((draws, len(x)))
    for sweep in range(-warmup, draws * thin):
        slack = rows @ x - bounds
        for k in range(len(moves)):
            step = _slice_step(rng, problem, x, slack, moves[k], along[k])
            for i in range(len(x)):
                x[i] = min(max(x[i] + step * moves[k, i], problem[3][i]), problem[4][i])
            for r in range(len(slack)):
                slack[r] += step * along[k, r]
        if sweep >= 0 and (sweep + 1) % thin == 0:
            out[sweep // thin] = x
    return out
