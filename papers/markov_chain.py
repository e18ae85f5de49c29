"""The paper's Markov chain on a lattice, coupled chains, and what they can certify.

Gibbs-within-Metropolis (Dharangutte et al., algorithm 1): a jump `e B` with independent double-geometric
coefficients e on a basis B, drawn coordinate by coordinate, accepted with `min(1, p(v + e B) / p(v))`. Two chains
driven by maximally coupled jumps (algorithm 2), one L steps ahead, meet at a random time tau (algorithm 3), and

    TV(chain at time t, target)  <=  E max(0, ceil((tau - L - t) / L))        (Biswas, Jacob and Vanetti 2019)

A chain within total variation eta of the target gives `(epsilon, (1 + e^epsilon) eta)`-differential privacy, never a
pure epsilon; and N pairs that have all met certify no eta below about `3 / N`. Start dispersed: zero, which the paper
suggests for convenience, is the mode, and a chain that has not left it looks converged.

Runs in doubles on a NumPy generator. Nothing chooses it in place of an exact sampler.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import ConvergenceError
from trueup.kernel.compiled import njit

L1, L2, SQUARED = 1, 2, 3
"""Targets `exp(-rate ||v||_1)`, `exp(-rate ||v||_2)`, `exp(-rate ||v||_2^2)`."""


class ChainTarget(NamedTuple):
    """What the chain should converge to.

    Attributes
    ----------
    basis
        `(d, n)` integers.
    norm
        `L1`, `L2` or `SQUARED`.
    rate
        What multiplies the norm: epsilon, or `1 / (2 sigma^2)`.
    """

    basis: NDArray[np.int64]
    norm: int
    rate: float


class MixingCertificate(NamedTuple):
    """What coupled chains say about a chain stopped at time t.

    Attributes
    ----------
    eta
        Estimated bound on the total variation distance to the target.
    eta_upper
        Its upper 95 % limit over the pairs: the normal limit, but never below `3 / N` (the rule of three).
    delta
        `(1 + e^epsilon) eta_upper`: what replaces pure epsilon.
    pairs
        Number of coupled pairs N.
    """

    eta: float
    eta_upper: float
    delta: float
    pairs: int


@njit(cache=True)
def run_lattice_chain(rng, target, scale, start, steps, keep):
    """Run one chain from coefficients `start` `(d,)`; return states `(steps // keep, n)` and the acceptance rate."""
    d, n = target.basis.shape
    u, v = start.copy(), _combine(target.basis, start)
    jump, proposal = np.zeros(d, np.int64), np.zeros(n, np.int64)
    states, accepted = np.zeros((steps // keep, n), np.int64), 0
    for step in range(steps):
        for j in range(d):
            jump[j] = _double_geometric(rng, scale)
        _propose(target.basis, jump, v, proposal)
        accepted += _accept(math.log(1.0 - rng.random()), target, jump, proposal, u, v)
        if (step + 1) % keep == 0:
            states[(step + 1) // keep - 1] = v
    return states, accepted / steps


@njit(cache=True)
def meeting_times(rng, target, scale, spread, lag, pairs, longest):
    """Return the meeting time of each pair of chains `(pairs,)`, or -1 for those that had not met.

    Parameters
    ----------
    spread
        Scale of the double-geometric coefficients that chains start from; 0 starts them all at zero.
    lag
        How many steps the first chain is ahead, L.
    longest
        Steps after which a pair is given up.
    """
    d, n = target.basis.shape
    times = np.full(pairs, -1, np.int64)
    jump, other = np.zeros(d, np.int64), np.zeros(d, np.int64)
    proposal, second = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for pair in range(pairs):
        u, w = _start(rng, d, spread), _start(rng, d, spread)
        v, x = _combine(target.basis, u), _combine(target.basis, w)
        for _ in range(lag):
            for j in range(d):
                jump[j] = _double_geometric(rng, scale)
            _propose(target.basis, jump, v, proposal)
            _accept(math.log(1.0 - rng.random()), target, jump, proposal, u, v)
        for t in range(lag + 1, longest + 1):
            for j in range(d):
                jump[j] = _double_geometric(rng, scale)
                other[j] = _coupled(rng, scale, jump[j], u[j] - w[j])
            _propose(target.basis, jump, v, proposal)
            _propose(target.basis, other, x, second)
            uniform = math.log(1.0 - rng.random())
            _accept(uniform, target, jump, proposal, u, v)
            _accept(uniform, target, other, second, w, x)
            if np.array_equal(u, w):
                times[pair] = t
                break
    return times


def total_variation(times: ArrayLike, lag: int, at: ArrayLike) -> NDArray[np.float64]:
    """Bound the distance to the target at times `at` `(k,)` from meeting times `(N,)`.

    Raises
    ------
    ConvergenceError
        Some pairs had not met: the mean is not finite.

    Examples
    --------
    >>> total_variation([5, 9], 2, [1, 7])
    array([2., 0.])
    """
    times = np.asarray(times)
    if (times < 0).any():
        raise ConvergenceError(
            f"{(times < 0).sum()} of {len(times)} pairs of chains have not met",
            needed="all pairs to meet, or no bound follows",
            remedy="run them longer, tune the jumps, or use an exact sampler",
        )
    late = np.ceil((times[None, :] - lag - np.asarray(at)[:, None]) / lag)
    return np.maximum(late, 0).mean(axis=1)


def certify(times: ArrayLike, lag: int, steps: int, epsilon: float) -> MixingCertificate:
    """Say what N coupled pairs certify of a chain stopped after `steps`, for loss `epsilon` of the exact law.

    Examples
    --------
    >>> round(certify([40] * 200, 10, 100, 0.5).delta, 3)
    0.04
    """
    times = np.asarray(times)
    eta = float(total_variation(times, lag, [steps])[0])
    late = np.maximum(np.ceil((times - lag - steps) / lag), 0)
    limit = eta + 1.645 * late.std() / math.sqrt(len(times))
    upper = min(1.0, max(limit, 3 / len(times)))
    return MixingCertificate(eta, upper, min(1.0, (1 + math.exp(epsilon)) * upper), len(times))


def steps_for(times: ArrayLike, lag: int, eta: float) -> int:
    """Return the smallest time at which the estimated bound is at most `eta`.

    Examples
    --------
    >>> steps_for([5, 9], 2, 0.5)
    5
    """
    times = np.asarray(times)
    low, high = 0, int(times.max())
    while low < high:
        middle = (low + high) // 2
        if total_variation(times, lag, [middle])[0] <= eta:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, inline="always")
def _double_geometric(rng, scale):
    first = math.floor(-scale * math.log(1.0 - rng.random()))
    return np.int64(first) - np.int64(math.floor(-scale * math.log(1.0 - rng.random())))


@njit(cache=True)
def _start(rng, d, spread):
    start = np.zeros(d, np.int64)
    if spread > 0:
        for j in range(d):
            start[j] = _double_geometric(rng, spread)
    return start


@njit(cache=True)
def _coupled(rng, scale, jump, apart):
    """Draw the second chain's jump, landing where the first does as often as possible.

    Its law is the same double geometric; the chains' coordinates are `apart`, so landing together means the
    jump `jump + apart` (Thorisson's rejection form of the maximal coupling).
    """
    if apart == 0:
        return jump
    together = jump + apart
    if math.log(1.0 - rng.random()) <= (abs(jump) - abs(together)) / scale:
        return together
    while True:
        other = _double_geometric(rng, scale)
        if math.log(1.0 - rng.random()) > (abs(other) - abs(other - apart)) / scale:
            return other


@njit(cache=True)
def _propose(basis, jump, v, out):
    out[:] = v
    for j in range(len(jump)):
        if jump[j]:
            for i in range(len(v)):
                out[i] += jump[j] * basis[j, i]


@njit(cache=True)
def _combine(basis, coefficients):
    out = np.zeros(basis.shape[1], np.int64)
    _propose(basis, coefficients, out.copy(), out)
    return out


@njit(cache=True)
def _accept(uniform, target, jump, proposal, u, v):
    """Move if the log uniform allows it; tell whether it did."""
    if uniform >= target.rate * (_size(v, target.norm) - _size(proposal, target.norm)):
        return 0
    v[:] = proposal
    for j in range(len(jump)):
        u[j] += jump[j]
    return 1


@njit(cache=True)
def _size(v, norm):
    total = 0.0
    for i in range(len(v)):
        total += abs(v[i]) if norm == L1 else v[i] * v[i]
    return math.sqrt(total) if norm == L2 else total


def smith_basis(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the basis `(d, n)` that the Smith normal form `U A V = D` gives: the last columns of `V`.

    The paper's equation 4; written out, since python-flint gives the Smith form without its transforms.

    Examples
    --------
    >>> smith_basis(np.array([[1, 1, 1]]))
    array([[-1,  1,  0],
           [-1,  0,  1]])
    """
    n = matrix.shape[1]
    work = np.vstack([matrix.astype(object), np.eye(n, dtype=object)])
    m, done = len(matrix), 0
    while np.any(work[:m][done:, done:]):
        _clear(work, m, done)
        done += 1
    return np.ascontiguousarray(work[m:, done:].T.astype(np.int64))


def _clear(work, m: int, k: int) -> None:
    """Bring rows and columns after `k` to zero in row and column `k`; `V` rides below row `m`."""
    while True:
        block = np.abs(work[k:m, k:])
        block[block == 0] = block.max() + 1
        i, j = np.unravel_index(np.argmin(block), block.shape)
        work[[k, k + i]] = work[[k + i, k]]
        work[:, [k, k + j]] = work[:, [k + j, k]]
        pivot = work[k, k]
        work[k + 1 : m] -= np.outer(work[k + 1 : m, k] // pivot, work[k])
        work[:, k + 1 :] -= np.outer(work[:, k], work[k, k + 1 :] // pivot)
        if not (np.any(work[k + 1 : m, k]) or np.any(work[k, k + 1 :])):
            return
