"""Sums determined by other sums: membership in a row space over the rationals, exact and fast.

A sum `t` is determined by the sums `R` if and only if `t` is a rational combination of the rows of `R`: then every
change that leaves `R` leaves `t`, and otherwise some integer change leaves `R` and not `t`.

Proof by primes. Let `R` have rank r. If `t` is no combination, then `[R; t]` has a minor of order r + 1 that is a
nonzero integer, by Hadamard at most the product of the r + 1 largest row norms. Where `t` is a combination modulo a
prime, every minor of that order vanishes modulo it. So a `t` that is a combination modulo primes whose product exceeds
the bound is one over the rationals. Doubles only choose which sums are worth the proof.
"""

from __future__ import annotations

from math import log2

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.lattice.algebra import Matrix

MOST_WORK = 2e10
"""Entries to eliminate beyond which a sum is taken as not determined: that costs budget, never privacy."""


def determined(rows: Matrix, targets: Matrix) -> NDArray[np.bool_]:
    """Return a mask of the target sums that follow from known sums.

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
    """Return a mask of the targets that lie within rounding of the row space."""
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
    """Return a mask of the targets that are combinations of the rows modulo a prime below 2^31: products stay in int64."""
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
