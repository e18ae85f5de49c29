"""The probability that counts meet the bounds of all places, given the total and the prior.

A flat total that is split among places which differ much meets upper bounds of all the less often the larger it is. Bounds
are to say nothing of the total itself, so its prior is divided by that probability, averaged over concentrations and rates of
uninhabited places. Given these, a part with the count x weighs `Gamma(x + a) / (Gamma(a) x!)` times the probability that what is
below it keeps its bounds; of n parts' sum t the weight is, by the saddle point of their cumulants K,

    exp(K(s) - s t) / sqrt(2 pi K''(s)),    K'(s) = t,

and divided by the same formula without bounds, the sum of which is negative binomial, it is the probability for the place above:
1 where no bound is met, however coarse the formula is. Places that are alike are worked out once.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.gibbs_steps import STRENGTH, TINY
from trueup.kernel.table_walks.place_masses import log_gamma_difference

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

SAMPLED, TOTALS, POINTS = 16, (0.3, 0.6, 0.85, 0.97), (0.05, 0.2, 0.4)
"""Points of concentrations and rates that are averaged over: so many about the prior, and about what agrees with each of some
totals (shares of the largest; given lower bounds, also shares of the points at which totals are known)."""
LOWEST, NOTHING = -700.0, 45.0
"""Least log of a weight above 0; and how far below the largest (nats) one adds nothing to a sum."""
LEAST_VARIANCE, WIDER = 0.1, 1.3
"""Least variance of points about what agrees with a total, and how much wider they lie."""
WIDENED, MOST_ALIKE = 2.0, 500.0
"""How many times as far apart as in the prior logs of concentrations are drawn, as bounds may ask for places far more alike; and
the largest."""
WHOLE, OCTAVE = 32, 24
"""Counts that are added one by one; points at which a law is known between any count above the least one and twice that."""
SLOPES, FLATTEST, STEEPEST = 140, 0.01, 30.0
"""Tilts s of each sign; the least, over the largest count, and the largest."""
INHABITED = (0.0, 1.0)
"""Parameters of the beta law of rates of uninhabited places where there are none."""
NUMBERS = 5
"""Numbers of inhabited parts that stand for all of them."""


class _Kind(NamedTuple):
    """Arguments of the law of a place: its level, its bounds, and its parts of each kind."""

    level: int
    low: int
    high: int
    parts: tuple[tuple[_Kind, int], ...]


class _Prior(NamedTuple):
    """Parameters of the prior of histograms, and the tilts to tabulate."""

    a: Reals
    rates: tuple[float, float]
    tilts: Reals


class TotalsWithin(NamedTuple):
    """Totals of the root with the log probability, up to a constant, that all bounds hold."""

    at: Reals
    log: Reals


def log_within_bounds(
    level_ptr: Integers,
    child_ptr: Integers,
    low: Integers,
    high: Integers,
    concentrations: Reals | None = None,
    lognormal: tuple[float, float] | None = None,
    least: float = 0.0,
) -> TotalsWithin:
    """Return totals of the root, each with the log probability that all counts satisfy their bounds.

    Parameters
    ----------
    level_ptr, child_ptr
        A tree of places in level order.
    low, high
        `(nodes,)` attainable counts.
    concentrations
        Concentration of each level below the root, if all are known and all places inhabited.
    lognormal
        Median of concentrations and standard deviation of their logs, as histograms have; None for the hyperprior of trees,
        `a / (1 + a)` uniform, and all places inhabited.
    least
        The least total that is likely given what was measured: below it less work is done, and logs err by more.
    """
    root = _kind_of_root(level_ptr, child_ptr, low.tolist(), high.tolist())
    tilts = np.geomspace(FLATTEST / max(root.high, 1), STEEPEST, SLOPES)
    tilts, x = np.concatenate([-tilts[::-1], tilts]), _points(root.low, root.high)[0]
    if concentrations is not None:
        return TotalsWithin(x, _log_within(root, _Prior(concentrations, INHABITED, tilts), {}))
    dims = len(level_ptr) - 2 * (
        lognormal is None
    )  # concentrations of all levels but the root's, and two of the rates
    laws, z, log = [(np.zeros(dims), WIDENED * np.eye(dims))], np.zeros((0, dims)), np.zeros((0, len(x)))
    centres = [int(np.searchsorted(x, root.low + share * (x[-1] - root.low))) for share in TOTALS]
    centres += [int(share * len(x)) for share in POINTS] if root.low > 0 else []
    centres = [at for at in centres if x[at] >= least] or [len(x) - 1]
    for at in (*centres, None):
        centre, root_of_covariance = laws[-1]
        fresh = centre + ndtri(_evenly(SAMPLED, dims)) @ root_of_covariance.T
        z, log = (
            np.vstack([z, fresh]),
            np.vstack([log, [_log_within(root, _prior(one, tilts, lognormal), {}) for one in fresh]]),
        )
        if at is not None:
            laws.append(_fitted(z, _weights(z, laws) + log[:, at]))
    return TotalsWithin(x, np.logaddexp.reduce(_weights(z, laws)[:, None] + log, axis=0))


def _prior(z: Reals, tilts: Reals, lognormal: tuple[float, float] | None) -> _Prior:
    """Return the prior's parameters at a point of independent standard normal coordinates."""
    if lognormal is None:
        return _Prior(np.minimum(ndtr(z) / ndtr(-z), MOST_ALIKE), INHABITED, tilts)
    a = np.minimum(lognormal[0] * np.exp(lognormal[1] * z[:-2]), MOST_ALIKE)
    mean, strength = ndtr(z[-2]) ** 2, gammaincinv(STRENGTH[0], ndtr(z[-1])) / STRENGTH[1]
    return _Prior(a, (mean * strength, (1.0 - mean) * strength), tilts)


def _weights(z: Reals, laws: list[tuple[Reals, Reals]]) -> Reals:
    """Return the log importance weights `(k,)` of points from a mixture of normal laws."""
    drawn = [
        -0.5 * (np.linalg.solve(root, (z - centre).T) ** 2).sum(axis=0) - np.linalg.slogdet(root)[1]
        for centre, root in laws
    ]
    return -0.5 * (z**2).sum(axis=1) - np.logaddexp.reduce(drawn, axis=0)


def _fitted(z: Reals, log: Reals) -> tuple[Reals, Reals]:
    """Return the mean and covariance root of a widened normal law fitted to weighted points."""
    p = np.exp(np.maximum(log - max(log.max(), LOWEST), LOWEST))
    p /= p.sum()
    centre = p @ z
    spread = (p[:, None] * (z - centre)).T @ (z - centre) + LEAST_VARIANCE * np.eye(z.shape[1])
    return centre, WIDER * np.linalg.cholesky(spread)


def _evenly(count: int, dims: int) -> Reals:
    """Return points `(count, dims)` that fill a cube evenly (Roberts's sequence)."""
    x = 2.0
    for _ in range(50):
        x = (1.0 + x) ** (1.0 / (dims + 1))
    return (0.5 + np.arange(count)[:, None] * x ** -np.arange(1.0, dims + 1)) % 1.0


def _kind_of_root(level_ptr: Integers, child_ptr: Integers, low: list[int], high: list[int]) -> _Kind:
    kinds = [_Kind(0, 0, 0, ())] * len(low)
    for level in range(len(level_ptr) - 2, -1, -1):
        for v in range(level_ptr[level], level_ptr[level + 1]):
            parts = Counter(kinds[child_ptr[v] : child_ptr[v + 1]])
            kinds[v] = _Kind(level, low[v], high[v], tuple(sorted(parts.items())))
    return kinds[0]


def _log_within(kind: _Kind, prior: _Prior, known: dict[_Kind, Reals]) -> Reals:
    """Return the log probability, at each grid total of a place, that all places below meet their bounds."""
    x, _ = _points(kind.low, kind.high)
    if not kind.parts:
        return np.zeros(len(x))
    if kind not in known:
        a, laws = prior.a[kind.level], [_cumulants(part, prior, known) for part, _ in kind.parts]
        known[kind] = np.full(len(x), -np.inf)
        for log, used in _inhabited(kind, prior):
            log_sum, total, variance = np.tensordot(used, laws, 1)
            found = _saddle(log_sum, total, variance, prior.tilts) - _without(total, a * sum(used))
            most = sum(part.high * n for (part, _), n in zip(kind.parts, used))
            found = np.where(x <= most, np.interp(x, total, np.minimum(found, 0.0)), -np.inf)
            known[kind] = np.logaddexp(known[kind], found + log)
    return known[kind]


def _cumulants(kind: _Kind, prior: _Prior, known: dict[_Kind, Reals]) -> Reals:
    """Return log sum, mean and variance `(3, tilts)` of a part's count at each tilt."""
    x, log_weight = _points(kind.low, kind.high)
    a = prior.a[kind.level - 1]
    return _tilted(x, log_weight + _log_within(kind, prior, known), a, prior.tilts)


@njit(cache=True)
def _tilted(x, log, a, tilts):
    """Return log sum, mean and variance `(3, tilts)` of a weighted negative binomial at each tilt."""
    own, out, term = np.empty(len(x)), np.empty((3, len(tilts))), np.empty(len(x))
    for k in range(len(x)):
        own[k] = log[k] + log_gamma_difference(x[k], a, 1.0) - math.lgamma(a)
    for i, tilt in enumerate(tilts):
        top = -np.inf
        for k in range(len(x)):
            term[k] = own[k] + tilt * x[k]
            top = max(top, term[k])
        total, first, second = 0.0, 0.0, 0.0
        for k in range(len(x)):
            term[k] = math.exp(term[k] - top) if term[k] > top - NOTHING else 0.0
            total += term[k]
            first += term[k] * x[k]
        for k in range(len(x)):
            second += term[k] * (x[k] - first / total) ** 2
        out[0, i], out[1, i], out[2, i] = top + math.log(total), first / total, second / total
    return out


def _saddle(log: Reals, mean: Reals, variance: Reals, tilt: Reals) -> Reals:
    return log - tilt * mean - 0.5 * np.log(np.maximum(2.0 * math.pi * variance, 1.0))


def _without(total: Reals, a: float) -> Reals:
    """Return the saddlepoint approximation of the law of a total without bounds on its parts."""
    total = np.maximum(total, 1e-300)
    tilt = -np.log1p(a / total)
    return _saddle(a * np.log1p(total / a), total, total * (1.0 + total / a), tilt)


def _inhabited(kind: _Kind, prior: _Prior) -> list[tuple[float, list[int]]]:
    """Return the possible numbers of inhabited parts of each kind, with log probabilities."""
    counts = [many for _, many in kind.parts]
    size = sum(counts)
    if kind.level < len(prior.a) - 1 or size == 1 or any(part.low > 0 for part, _ in kind.parts):
        return [(0.0, counts)]
    log = np.array([_log_beta_binomial(k, size, *prior.rates) for k in range(1, size + 1)])
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    if size > NUMBERS:
        at = np.searchsorted(np.cumsum(mass), (np.arange(NUMBERS) + 0.5) / NUMBERS)
        mass = np.bincount(np.minimum(at, size - 1), minlength=size) / NUMBERS
    return [(math.log(mass[k]), _shared(k + 1, counts)) for k in range(size) if mass[k] > 0.0]


def _shared(number: int, counts: list[int]) -> list[int]:
    """Divide a number of parts among kinds, in proportion to the sizes of the kinds."""
    return np.diff(np.cumsum([0, *counts]) * number // sum(counts)).tolist()


def _log_beta_binomial(k: int, size: int, empty: float, lived: float) -> float:
    """Return the log beta-binomial probability, up to a constant, that k of `size` parts are inhabited."""
    log = math.lgamma(lived + k + TINY) + math.lgamma(empty + size - k + TINY)
    return log - math.lgamma(k + 1) - math.lgamma(size - k + 1)


@lru_cache(maxsize=4096)
def _points(low: int, high: int) -> tuple[Reals, Reals]:
    """Return grid points of a place's count, with the log of each point's quadrature weight."""
    ends = [low + WHOLE]
    while ends[-1] <= high:
        ends.append(low + 2 * (ends[-1] - low))
    nodes, weights = _legendre()
    x, w = [np.arange(low, min(high + 1, ends[0]), dtype=float)], []
    w.append(np.ones(len(x[0])))
    for first, end in pairwise(ends):
        first, end = first - 0.5, min(end, high + 1) - 0.5
        x.append(0.5 * (first + end + (end - first) * nodes))
        w.append(0.5 * (end - first) * weights)
    return np.concatenate(x), np.log(np.concatenate(w))


@lru_cache(maxsize=1)
def _legendre() -> tuple[Reals, Reals]:
    """Return nodes and weights of Gauss-Legendre quadrature on [-1, 1]."""
    return np.polynomial.legendre.leggauss(OCTAVE)
