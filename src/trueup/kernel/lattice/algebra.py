"""Exact linear algebra over the integers: bases, particular solutions and reduced bases.

Everything here is Hermite form and LLL from python-flint, imported when first used; matrices
are NumPy int64 at the border.

Sums determined by other sums: membership in a row space over the rationals, exact and fast.
A sum `t` is determined by the sums `R` if and only if `t` is a rational combination of the rows of `R`: then every
change that leaves `R` leaves `t`, and otherwise some integer change leaves `R` and not `t`.

Proof by primes. Let `R` have rank r. If `t` is no combination, then `[R; t]` has a minor of order r + 1 that is a
nonzero integer, by Hadamard at most the product of the r + 1 largest row norms. Where `t` is a combination modulo a
prime, every minor of that order vanishes modulo it. So a `t` that is a combination modulo primes whose product exceeds
the bound is one over the rationals. Doubles only choose which sums are worth the proof.
"""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError

Matrix = NDArray[np.int64]


def integer_matrix(invariants: ArrayLike) -> Matrix:
    """Return the invariants as an `(m, n)` int64 matrix, after checking them.

    Examples
    --------
    >>> integer_matrix([[1, 1, 0], [0, 1, 1]]).shape
    (2, 3)
    """
    try:
        given = np.atleast_2d(np.asarray(invariants))
    except ValueError:  # rows of different lengths
        given = np.array(None)
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise SpecError(
            "the invariants are not a matrix of numbers",
            needed="one row for each invariant, all with equally many whole numbers",
        )
    if not ((given > -(2**53)) & (given < 2**53)).all():
        raise SpecError(
            "a coefficient of an invariant is not a number, or is 2^53 or more in size",
            needed="whole numbers below 2^53 in size",
        )
    matrix = np.asarray(given, dtype=np.int64)
    if not np.array_equal(matrix, given):
        raise SpecError(
            f"invariant {np.flatnonzero((matrix != given).any(axis=1))[0]} has a fraction as a coefficient",
            needed="whole numbers",
            remedy="multiply the invariant by the common denominator of its coefficients",
        )
    empty = np.flatnonzero(~matrix.any(axis=1))
    if len(empty):
        raise SpecError(f"invariant {empty[0]} has only zeros", remedy="leave out this invariant")
    return matrix


def independent_rows(matrix: Matrix) -> NDArray[np.intp]:
    """Return the first linearly independent rows that span the row space of `matrix` `(m, n)`.

    Examples
    --------
    >>> independent_rows(np.array([[1, 1], [2, 2], [0, 1]]))
    array([0, 2])
    """
    return pivots(matrix.T)


def pivots(matrix: Matrix) -> NDArray[np.intp]:
    """Return the first linearly independent columns that span the column space of `matrix` `(m, n)`.

    Examples
    --------
    >>> pivots(np.array([[0, 2, 4, 1], [0, 0, 0, 3]]))
    array([1, 3])
    """
    reduced, _, found = _flint(matrix).rref()
    rows = _entries(reduced)[:found]
    return np.array([next(j for j, entry in enumerate(row) if entry) for row in rows], dtype=np.intp)


def pinned(matrix: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the cells `(n,)` that are 0 in every vector of the lattice `{v : A v = 0}`.

    Cell j is if its unit vector is a combination of rows of A, hence a row of the reduced echelon form itself: only that row
    has an entry in its own pivot's column.

    Examples
    --------
    >>> pinned(np.array([[1, 1, 1], [0, 1, 1]])).tolist()
    [True, False, False]
    """
    reduced, _, found = _flint(matrix).rref()
    entries = np.array(_entries(reduced)[:found], object).reshape(found, matrix.shape[1]) != 0
    return np.asarray(entries[entries.sum(axis=1) == 1].any(axis=0))


def basis(matrix: Matrix) -> Matrix:
    """Return a reduced basis `(d, n)` of the lattice `{v in Z^n : A v = 0}`.

    Row operations that bring `[A' | I]` to Hermite form are unimodular, so the rows whose
    left part is zero are a basis of *all* integer solutions (not of a sublattice); LLL
    then shortens it.

    Parameters
    ----------
    matrix
        Invariants `A`, `(m, n)` integers.

    Examples
    --------
    >>> basis(np.array([[1, 1, 1]])).shape
    (2, 3)
    >>> basis(np.array([[2, 4]]))
    array([[ 2, -1]])
    """
    m, n = matrix.shape
    stacked = np.hstack([matrix.T, np.eye(n, dtype=np.int64)])
    kernel = [row[m:] for row in _entries(_flint(stacked).hnf()) if not any(row[:m])]
    return reduced(kernel) if kernel else np.zeros((0, n), np.int64)


def reduced(basis) -> Matrix:
    """Return a shorter basis of a lattice by the LLL algorithm.

    Examples
    --------
    >>> reduced(np.array([[1, 0], [7, 1]])).tolist()
    [[1, 0], [0, 1]]
    """
    return np.array(_entries(_flint(basis).lll()), np.int64)


def dependence(matrix: Matrix, cells: NDArray[np.intp], others: NDArray[np.intp]) -> tuple[Matrix, int]:
    """Solve `A v = 0` for as many cells as A has rows: `v[cells] = D v[others] / q`.

    Parameters
    ----------
    matrix
        Independent invariants `A`, `(m, n)`.
    cells, others
        `m` cells with independent columns, and the cells that they depend on.

    Returns
    -------
    D, q
        Integers `(m, len(others))` and the smallest positive common denominator.

    Examples
    --------
    >>> dependence(np.array([[2, 1, 3]]), np.array([0]), np.array([1, 2]))
    (array([[-1, -3]]), 2)
    """
    if not len(cells):
        return np.zeros((0, len(others)), np.int64), 1
    inverse: Any = _flint(matrix[:, cells]).inv()
    solved = inverse * _flint(-matrix[:, others])
    shared, divisor = solved.numer_denom()
    return np.array(_entries(shared), np.int64), int(divisor)


def index(matrix: Matrix) -> int:
    """Return the index of `A Z^n` in `Z^m`, for independent invariants `A`.

    Examples
    --------
    >>> index(np.array([[2, 4]])), index(np.array([[1, 1, 0], [0, 1, 1]]))
    (2, 1)
    """
    form = _flint(matrix).snf() if len(matrix) else _flint([])
    return int(np.prod([abs(int(form[i, i])) for i in range(len(matrix))], dtype=object))


def hermite(matrix: Matrix) -> Matrix:
    """Return the Hermite normal form of a matrix, without its rows of zeros.

    Examples
    --------
    >>> hermite(np.array([[2, 3], [0, 1], [2, 4]])).tolist()
    [[2, 0], [0, 1]]
    """
    rows = [row for row in _entries(_flint(matrix).hnf()) if any(row)]
    return np.array(rows, dtype=np.int64).reshape(-1, matrix.shape[1])


def _flint(matrix):
    try:
        from flint import fmpz_mat
    except ImportError as missing:
        raise SpecError(
            "noise given these invariants needs the package python-flint, which is not installed",
            remedy="pip install 'trueup[lattice]'",
        ) from missing
    return fmpz_mat([[int(entry) for entry in row] for row in matrix])


def _entries(matrix) -> list[list[int]]:
    return [[int(entry) for entry in row] for row in matrix.tolist()]


MOST_WORK = 2e10
"""Entries to eliminate beyond which a sum is taken as not determined: that costs budget, never privacy."""


def determined(rows: Matrix, targets: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the target sums that known sums determine.

    Parameters
    ----------
    rows
        The known sums, `(m, n)` integers.
    targets
        The sums asked for, `(t, n)` integers.

    Returns
    -------
    `(t,)`; True is proved, False may also stand for a proof that would take too long.

    Examples
    --------
    >>> determined(np.array([[1, 1, 0], [1, 0, 0]]), np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])).tolist()
    [True, False, True]
    """
    found = np.asarray(~targets.any(axis=1))
    if not len(rows) or found.all():
        return found
    open_ = np.flatnonzero(~found)
    both, first = np.unique(np.vstack([rows, targets[open_]]), axis=1), len(rows)
    likely = _near(both[:first], both[first:])
    found[open_[likely]] = _proved(both[:first], both[first:][likely])
    return found


def _near(rows: Matrix, targets: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the targets that lie in the row space of `rows` up to rounding."""
    rows, targets = rows.astype(float), targets.astype(float)
    squares, turn = np.linalg.eigh(rows @ rows.T)
    kept = squares > 1e-10 * squares[-1]
    basis = (turn[:, kept] / np.sqrt(squares[kept])).T @ rows
    return np.asarray(np.linalg.norm(targets - (targets @ basis.T) @ basis, axis=1) < 1e-4)


def _proved(rows: Matrix, targets: Matrix) -> NDArray[np.bool_]:
    inside = np.ones(len(targets), bool)
    if not len(targets):
        return inside
    norms = np.sort((np.vstack([rows, targets]).astype(float) ** 2).sum(axis=1))[::-1][: len(rows) + 1]
    bits = sum(log2(norm) for norm in norms if norm > 1) / 2 + 1
    count = int(bits / 30) + 1
    if count * min(rows.shape) * (len(rows) + len(targets)) * rows.shape[1] > MOST_WORK:
        return ~inside
    for prime in _primes(count):
        inside[inside] = _combination(rows, targets[inside], prime)
    return inside


def _combination(rows: Matrix, targets: Matrix, prime: int) -> NDArray[np.bool_]:
    """Return a mask of the targets that are combinations of the rows modulo a prime below 2^31."""
    work = np.vstack([rows, targets]) % prime
    done, m = 0, len(rows)
    for column in range(work.shape[1]):
        pivots = done + np.flatnonzero(work[done:m, column])
        if not len(pivots):
            continue
        work[[done, pivots[0]]] = work[[pivots[0], done]]
        work[done] = work[done] * pow(int(work[done, column]), -1, prime) % prime
        below = done + 1 + np.flatnonzero(work[done + 1 :, column])
        work[below] = (work[below] - work[below, column][:, None] * work[done]) % prime
        done += 1
    return np.asarray(~work[m:].any(axis=1))


def _primes(count: int):
    """Yield the largest primes below 2^31, each above 2^30."""
    candidate = 2**31 - 1
    while count:
        if all(candidate % d for d in range(3, int(candidate**0.5) + 1, 2)):
            yield candidate
            count -= 1
        candidate -= 2
