"""Tail bounds on lattice noise in one cell, and the smallest changes of a cell with the same sums.

Let cell i have the factor f and let `g(s)` be the mass of all other cells together where they make up for `v_i = s`. Then
`P(v_i = s) = f(s) g(s) / Z`, and by Fourier inversion over the m sums that are fixed, with `phi_j` the cells' characteristic
functions and `A_j` their columns,

    g(s)  ~  integral over [0, 2 pi)^m of  prod_{j != i} phi_j(theta . A_j) cos(s theta . A_i).

**Few invariants.** On a grid of N points a dimension the integral is exact but for masses at distance N, which are made less than
1e-13. So the tail is exact up to the rounding of doubles.

**Laplace noise, any invariants.** All `phi_j` are positive, so `g(s) <= g(0)`: with `a = exp(-epsilon)`,
`P(v_i = s) <= a^|s| P(v_i = 0)`. If u in the lattice has `u_i != 0` and L1 norm K, adding k u to the vectors with `v_i = 0`
gives others with at least `exp(-epsilon K |k|)` of their mass, so `P(v_i = 0) <= 1 / sum_k exp(-epsilon K |k|)`, that is
`tanh(epsilon K / 2)`. Together `P(|v_i| > t) <= 2 a^(t+1) / (1 - a) tanh(epsilon K / 2)`.

**Gaussian noise, any invariants.** Completing the square, `E exp(c . v) = exp(sigma2 |c|^2 / 2)` times the ratio of the sums of
`exp(-|v - sigma2 c|^2 / (2 sigma2))` and `exp(-|v|^2 / (2 sigma2))`, which is at most 1 by Poisson summation; and c may be
replaced by its projection on the lattice's span. So `P(|v_i| > t) <= 2 exp(-(t + 1)^2 / (2 sigma2 P_ii))`, P the projection.

**L2-norm Laplace noise** is a mixture of these over sigma2 = t, with a density proportional to `t^(-1/2) exp(-epsilon^2 t / 2)`
times `rho_t`, the sum of `exp(-|v|^2 / (2 t))`. It is at most `prod_i rho(sqrt(t) / g_i)` for Gram-Schmidt norms g_i, and at
least 1 and `prod_i sqrt(2 pi t) / g_i`: the first for what exceeds a count, the others for what is divided by.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.lattice.smallest import Exhausted, Search, Vector
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.law import Reals, Sensitivity, Tail

MAX_CHANGE_NORM = 24
"""L1 norm of a change beyond which none is looked for."""
MAX_SEARCH_STEPS = 100_000
"""Partial changes of one piece that the search may visit: a second or two."""
MAX_LISTED_DIMENSIONS, LISTED = 8, 2_000_000
"""Dimensions of a piece up to which its short vectors are listed, and how many of them at most."""


def hardest_change(lattice: Lattice) -> Sensitivity | None:
    """Return both norms of the smallest change of the hardest cell to change, or None if not found."""
    found = [_smallest_of_piece(piece) for piece in _unlike(lattice.pieces)]
    if None in found:
        return None
    l1, square = (max(norms) for norms in zip(*(each for each in found if each is not None), strict=True))
    return Sensitivity(Fraction(l1), Fraction(square))


def _smallest_of_piece(piece: Piece) -> tuple[int, int] | None:
    """Return both norms of the smallest change of a piece's hardest cell, or None if not found."""
    if piece.kind != "general":
        size = {"free": 1, "sum": 2, "table": 4, "grid": 4}[piece.kind]
        return size, size
    if piece.dimension <= MAX_LISTED_DIMENSIONS and (listed := _listed_norms(piece.basis)):
        return listed
    columns, counts = np.unique(piece.invariants, axis=1, return_counts=True)
    search, most = Search(columns, MAX_SEARCH_STEPS), (2, 2) if (counts > 1).any() else (0, 0)
    for cell in np.flatnonzero(counts == 1).tolist():  # cells with a twin lose to it what they gain
        norms = _through(search, cell, counts)
        if norms is None:
            return None
        most = max(most[0], norms[0]), max(most[1], norms[1])
    return most


def _through(search: Search, cell: int, counts: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return both norms of the smallest change of a kind of cell, or None if not found in time.

    No whole vector has a smaller squared L2 than L1 norm, so vectors up to the least square found are all that matter.
    """
    least, square = 0, MAX_CHANGE_NORM**2
    try:
        for limit in range(1, MAX_CHANGE_NORM + 1):
            if limit > square:
                break
            for vector in search.within(cell, limit, every=True):
                least = least or limit
                square = min(square, _square(vector, counts))
    except Exhausted:
        return None
    return (least, square) if least and square <= MAX_CHANGE_NORM else None


def _listed_norms(basis: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return both norms for a piece from a list of candidate vectors, or None if the list is too long.

    A vector is `c B`, so `c = v D` with the dual basis D, and `|c_i| <= |v|_1 max |D_i|` and `|c_i| <= |v|_2 |D_i|_2`. Through
    every cell some vector of the basis has at most the norms that are inserted.
    """
    dual = np.linalg.pinv(basis.astype(float))
    through = np.where(basis != 0, 1.0, np.inf)
    l1, square = (
        float((norms[:, None] * through).min(axis=0).max())
        for norms in (np.abs(basis).sum(axis=1), (basis**2).sum(axis=1))
    )
    reach = np.floor(
        np.maximum(l1 * np.abs(dual).max(axis=0), np.sqrt(square) * np.sqrt((dual**2).sum(axis=0))) + 1e-9
    ).astype(np.int64)
    if np.log(2 * reach + 1).sum() > np.log(LISTED):
        return None
    coefficients = np.indices(2 * reach + 1).reshape(len(reach), -1).T - reach
    v = np.abs(coefficients @ basis)
    norms = [
        np.where(v != 0, norm[:, None], LISTED**2).min(axis=0).max()
        for norm in (v.sum(axis=1), (v**2).sum(axis=1))
    ]
    return int(norms[0]), int(norms[1])


def _square(vector: Vector, counts: NDArray[np.int64]) -> int:
    """Return the smallest squared L2 norm of a change with given sizes within each kind of cell."""
    total = 0
    for kind, value in vector:
        each, left = divmod(abs(value), int(counts[kind]))
        total += left * (each + 1) ** 2 + (int(counts[kind]) - left) * each**2
    return total


LARGEST_GRID = 2**22
"""Points times kinds of cells up to which tails are computed by Fourier inversion."""
LARGEST_LISTED = 300
"""Kinds of cells up to which a reduced basis is looked through for short vectors."""
_ALIAS = 32.0  # exp(-32) < 2e-14


def cell_tail(law: Any, probability: float) -> Tail:
    """Return the count that no cell's noise exceeds in absolute value with more than the given probability.

    Parameters
    ----------
    law
        A lattice law, bound, without weights of its cells.
    probability
        Between 0 and 1.

    Examples
    --------
    >>> from trueup.kernel.lattice.structure import Lattice
    >>> from trueup.noise.lattice import LatticeLaplace
    >>> cell_tail(LatticeLaplace("1/4").on(Lattice.of(4, [[1, 1, 1, 1]])), 0.05)
    Tail(counts=9, exact=True)
    """
    pieces = law.bound.lattice.pieces
    if not hasattr(law, "factor"):
        return _of_norm(float(law.epsilon), pieces, probability)
    rate, power = law.factor
    found = [_of_piece(rate, power, piece, probability) for piece in _unlike(pieces)]
    most = max(tail.counts for tail in found)
    return Tail(most, any(tail.exact for tail in found if tail.counts == most))


def _unlike(pieces: tuple[Piece, ...]) -> list[Piece]:
    """Return one of the lattice's pieces for each distinct shape."""
    return list({(p.kind, p.cells.shape, p.invariants.tobytes()): p for p in pieces}.values())


def _of_piece(rate: float, power: int, piece: Piece, probability: float) -> Tail:
    if piece.kind == "table" and min(piece.cells.shape) == 2:  # the second row is minus the first
        rate, columns, counts = 2 * rate, np.ones((1, 1)), np.array([max(piece.cells.shape)])
    elif piece.kind == "sum":
        columns, counts = np.ones((1, 1)), np.array([piece.cells.size])
    elif piece.kind == "free":
        columns, counts = np.zeros((0, 1)), np.ones(1, np.int64)
    else:
        columns, counts = np.unique(piece.invariants, axis=1, return_counts=True)
    if (size := _grid_points(rate, power, columns, counts)) ** len(columns) * len(counts) <= LARGEST_GRID:
        masses = (_masses(rate, power, columns, counts, size, kind) for kind in range(len(counts)))
        return Tail(max(_exceeded(each, probability) for each in masses), exact=True)
    if power == 1:
        return Tail(_laplace_bound(rate, _norm(piece, columns, counts), probability), exact=False)
    sigma2 = 1 / (2 * rate)
    square = 2 * sigma2 * _projection_share(piece.invariants) * math.log(2 / probability)
    return Tail(max(math.ceil(math.sqrt(square)) - 1, 0), exact=False)


def _grid_points(rate: float, power: int, columns: NDArray, counts: NDArray) -> int:
    """Return the number of grid points per dimension that make aliasing in Fourier space negligible."""
    spread = math.sqrt(1 / (2 * rate) if power == 2 else 1 / (2 * math.sinh(min(rate, 500.0) / 2) ** 2))
    widest = np.sqrt((columns**2 @ counts).max(initial=1)) * spread
    far = _ALIAS / rate * np.abs(columns).max(initial=1) if power == 1 else 0.0
    return int(scipy.fft.next_fast_len(int(2 * (8 * widest + far)) + 16))


def _masses(rate: float, power: int, columns: NDArray, counts: NDArray, size: int, kind: int) -> Reals:
    """Return the probabilities that one cell's noise is 0, 1, 2 and so on."""
    m = len(columns)
    angles = np.indices((size,) * m).reshape(m, -1) if m else np.zeros((0, 1), np.int64)
    places = (columns.T.astype(np.int64) @ angles) % size
    table = _log_characteristic(rate, power, 2 * np.pi * np.arange(size) / size)
    others = counts - (np.arange(len(counts)) == kind)
    log = np.zeros(places.shape[1])
    for place, count in zip(places, others):
        log += count * table[place]
    weight = np.bincount(places[kind], np.exp(log), size)
    s = np.arange(size // 2)
    mass = np.exp(-rate * s.astype(float) ** power) * np.maximum(np.fft.rfft(weight).real[: len(s)], 0)
    return mass / (2 * mass.sum() - mass[0])


def _log_characteristic(rate: float, power: int, angle: Reals) -> Reals:
    """Return the log characteristic function of one cell's noise at given angles."""
    if power == 1:
        a, gap = math.exp(-rate), -math.expm1(-rate)
        return -np.log1p(4 * a * np.sin(angle / 2) ** 2 / gap**2)
    if rate > 0.1:
        k = np.arange(1, int(math.sqrt(750 / rate)) + 2)[:, None]
        mass = np.exp(-rate * k**2)
        return np.log1p(2 * (mass * np.cos(k * angle)).sum(axis=0)) - math.log1p(2 * mass.sum())
    # Poisson summation: the same sum is one of Gaussians about the multiples of 2 pi.
    shifted = angle[None] - 2 * np.pi * np.arange(-1, 3)[:, None]
    log = scipy.special.logsumexp(-(shifted**2) / (4 * rate), axis=0)
    return log - log[0]


def _exceeded(masses: Reals, probability: float) -> int:
    """Return the smallest t with `P(|v| > t) <= probability`."""
    beyond = 2 * (np.cumsum(masses[::-1])[::-1])  # at t: P(|v| >= t) for t above 0
    return int(np.argmax(np.append(beyond[1:], 0.0) <= probability))


def _laplace_bound(epsilon: float, norm: float, probability: float) -> int:
    log = (
        math.log(2 / probability) - math.log(-math.expm1(-epsilon)) + math.log(math.tanh(epsilon * norm / 2))
    )
    return max(math.ceil(log / epsilon) - 1, 0)


def _norm(piece: Piece, columns: NDArray, counts: NDArray) -> float:
    """Return an L1 norm up to which some vector of the lattice changes each cell."""
    if piece.kind in ("sum", "table", "grid"):
        return 2.0 if piece.kind == "sum" else 4.0
    if (counts > 1).all():
        return 2.0
    if len(counts) > LARGEST_LISTED:
        return math.inf
    lengths = np.abs(piece.basis).sum(axis=1).astype(float)
    return float(np.where(piece.basis != 0, lengths[:, None], np.inf).min(axis=0).max())


def _projection_share(invariants: NDArray) -> float:
    """Return the largest diagonal entry of the projection onto the span of the lattice."""
    rows = invariants.astype(float)
    return float(1 - (rows * np.linalg.solve(rows @ rows.T, rows)).sum(axis=0).min()) if len(rows) else 1.0


def _of_norm(epsilon: float, pieces: tuple[Piece, ...], probability: float) -> Tail:
    from trueup.kernel.lattice_samplers.klein import KleinWalk

    norms = np.concatenate([KleinWalk.of(piece.basis).norms for piece in pieces])
    share, d = max(_projection_share(piece.invariants) for piece in pieces), len(norms)
    log_t = np.linspace(math.log(1e-4), math.log((d + 100) ** 2 / epsilon**2), 4000)
    weight = 0.5 * log_t - epsilon**2 * np.exp(log_t) / 2  # the density of log t
    least = weight + np.maximum(0, d / 2 * (math.log(2 * math.pi) + log_t) - np.log(norms).sum())
    most = weight + sum(
        count * _log_rho(np.exp(log_t / 2) / norm)
        for norm, count in zip(*np.unique(norms, return_counts=True))
    )
    total, peak = scipy.special.logsumexp(least), np.exp(log_t)

    def exceeds(t: int) -> bool:
        beyond = np.minimum(0, math.log(2) - (t + 1) ** 2 / (2 * share * peak))
        return scipy.special.logsumexp(most + beyond) - total > math.log(probability)

    low, high = -1, 1
    while exceeds(high):
        low, high = high, 2 * high
    within = bisect_left(range(high), True, low + 1, key=lambda t: not exceeds(t))
    return Tail(within, exact=False)


def _log_rho(spread: Reals) -> Reals:
    """Return the log of the sum of `exp(-z^2 / (2 spread^2))` over the integers."""
    k = np.arange(1, 6)[:, None]
    wide = spread * math.sqrt(2 * math.pi) * (1 + 2 * np.exp(-2 * (np.pi * spread * k) ** 2).sum(axis=0))
    narrow = 1 + 2 * np.exp(-(k**2) / (2 * spread**2)).sum(axis=0)
    return np.log(np.where(spread > 0.6, wide, narrow))
