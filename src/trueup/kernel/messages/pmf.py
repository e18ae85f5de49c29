"""Masses on windows of the integers: log tables of factors, tilted moments, convolution.

A *factor* is a nonnegative function of one node's count: a likelihood, a prior, a bound. Its
logarithm is a table on a window of integers, so a law of noise that a thousand nodes share is
stored once and read at `count - base`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import add_second_kind, add_split

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

OPEN = np.int64(1) << 60
"""A bound that does not bind: counts are far below it in absolute value."""
MANY_NODES, MOST_CODES = 1 << 20, 1 << 16
"""Nodes of a tree from which on numbers that repeat are held once, and how many different ones codes of two bytes tell apart."""
FALLING = 2.0
"""`open_ended` of a table of a function that is at most 1 at every count, and taken to stay as it is at both ends."""


class Factors(NamedTuple):
    """Factors of the counts of `n` nodes: products of tables on windows `lower..upper`.

    Attributes
    ----------
    ptr
        (n + 1,) rows of `base`, `table` that belong to each node.
    base
        (q,) the count at which the table's first entry is read.
    table
        (q,) which table.
    start
        (tables + 1,) where each table starts in `log`.
    log
        Log values of all tables, end to end.
    open_ended
        (tables,) 0 where the table is the whole function. Otherwise the function is extended beyond it: 1 if it is
        log-concave (a law of noise), the size `r` of a negative binomial below 1, which is not; or `FALLING`.
    lower, upper
        (n,) bounds that are known for certain (counts); `-OPEN`, `OPEN` where there is none.
    alpha, total
        (n,) parameters of the split factor of the note in `trueup.kernel.messages`; equal where
        there is none.
    second, odds, parts
        (n,) of parts of two kinds, as the note in `trueup.kernel.messages.kinds` has them, and of sums of such: `b`; the log of
        `q`, minus infinity of all others; and 0 of a part, of a sum how many parts there are.
    """

    ptr: Integers
    base: Integers
    table: Integers
    start: Integers
    log: Reals
    open_ended: Reals
    lower: Integers
    upper: Integers
    alpha: Reals
    total: Reals
    second: Reals
    odds: Reals
    parts: Integers


SPLIT = Factors._fields[-5:]
"""The fields of a split's law."""


def no_splits(n: int) -> tuple[Reals, Reals, Reals, Reals, Integers]:
    """Return the fields `SPLIT` (parameters of splits) of `n` nodes that have no splits."""
    return np.ones(n), np.ones(n), np.ones(n), np.full(n, -np.inf), np.zeros(n, np.int64)


class Coded:
    """An array with few distinct values, stored as these values and a small code for each entry.

    Examples
    --------
    >>> few = Coded(np.array([0.5, 2.0]), np.repeat(np.arange(2, dtype=np.uint8), 3))
    >>> few[np.array([0, 5])], (few + 1.0)[np.array([1])], np.asarray(few).size
    (array([0.5, 2. ]), array([1.5]), 6)
    """

    def __init__(self, values: NDArray, codes: NDArray) -> None:
        self.values, self.codes = values, codes

    def __getitem__(self, nodes: Integers) -> NDArray:
        return self.values[self.codes[nodes]]

    def __add__(self, step: float) -> Coded:
        return Coded(self.values + step, self.codes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self.values[self.codes].astype(dtype or self.values.dtype, copy=False)


def coded(numbers: NDArray | Coded) -> Any:
    """Return an array as distinct values with codes if there are few distinct values."""
    kept = isinstance(numbers, Coded) or len(numbers) < MANY_NODES
    if kept or len(values := np.unique(numbers)) > MOST_CODES:
        return numbers
    return Coded(values, np.searchsorted(values, numbers).astype(np.min_scalar_type(len(values) - 1)))


def held(factors: Factors, splits: Sequence[Any]) -> Factors:
    """Return the factors of a large tree with their numbers and parameters of splits stored as codes."""
    rows = {field: coded(getattr(factors, field)) for field in ("base", "table", "lower", "upper")}
    return factors._replace(**rows, **dict(zip(SPLIT, map(coded, splits))))


def uncoded(factors: Factors) -> Factors:
    """Return the factors with codes replaced by numbers. Parameters for splits of totals are left empty."""
    rows = {field: np.asarray(getattr(factors, field)) for field in ("base", "table", "lower", "upper")}
    return factors._replace(**rows, **dict(zip(SPLIT, no_splits(0))))


@njit(cache=True)
def reach_all(factors):
    """Return the windows on which all tables and bounds of each node exist."""
    low, high = factors.lower.copy(), factors.upper.copy()
    for v in range(len(low)):
        for k in range(factors.ptr[v], factors.ptr[v + 1]):
            table = factors.table[k]
            size = factors.start[table + 1] - factors.start[table]
            low[v] = max(low[v], factors.base[k])
            high[v] = min(high[v], factors.base[k] + size - 1)
    return low, high


def largest_tables(factors: Factors) -> Reals:
    """Return upper bounds on the log of each node's tables."""
    peaks = [np.max(factors.log[first:last]) for first, last in pairwise(factors.start)]
    peaks = np.where(factors.open_ended == FALLING, 0.0, peaks) if peaks else peaks
    before = np.concatenate([[0.0], np.cumsum(np.array(peaks)[factors.table])]) if len(peaks) else np.zeros(1)
    return before[factors.ptr[1:]] - before[factors.ptr[:-1]]


@njit(cache=True)
def log_factor(factors, node, low, size, slope):
    """Return the log factor of a node at `size` counts from `low` on, plus `slope` times the count."""
    out = np.empty(size)
    _fill_factor(factors, node, low, slope, out)
    return out


@njit(cache=True, _nrt=False)
def _fill_factor(factors, node, low, slope, out):
    size = len(out)
    for i in range(size):
        out[i] = slope * (low + i)
    for k in range(factors.ptr[node], factors.ptr[node + 1]):
        first = factors.start[factors.table[k]]
        length = factors.start[factors.table[k] + 1] - first
        shift = low - factors.base[k]
        for i in range(size):
            j = i + shift
            out[i] += factors.log[first + j] if 0 <= j < length else -np.inf
    if factors.alpha[node] != factors.total[node]:
        add_split(out, low, factors.alpha[node], factors.total[node])
    if factors.parts[node] == 0 and factors.odds[node] > -np.inf:
        add_second_kind(out, low, factors.alpha[node], factors.second[node], factors.odds[node])
    for i in range(size):
        if low + i < factors.lower[node] or low + i > factors.upper[node]:
            out[i] = -np.inf


@njit(cache=True)
def moments(log):
    """Return log sum, maximum, mean and variance (of the position) of the masses `exp(log)`."""
    top = log.max()
    total = first = second = 0.0
    for i in range(len(log)):
        mass = math.exp(log[i] - top)
        total += mass
        first += mass * i
        second += mass * i * i
    mean = first / total
    return top + math.log(total), top, mean, max(second / total - mean * mean, 0.0)


@njit(cache=True)
def uniform_moments(slope, low, high):
    """Return log sum, maximum, mean and variance of `exp(slope x)` on an interval, treated as continuous.

    Only the choice of tilts rests on it, so the continuous formula serves for integers.
    """
    width = float(high - low) + 1.0
    u = slope * width
    if abs(u) < 1e-4:
        return (
            math.log(width) + slope * low,
            max(slope * low, slope * high),
            0.5 * (low + high),
            width**2 / 12,
        )
    far = math.exp(-abs(u)) if abs(u) < 700 else 0.0
    tail = width * far / (1 - far)
    end = 1 / abs(slope) - tail
    top = max(slope * low, slope * high)
    mean = high - end if slope > 0 else low + end
    variance = 1 / slope**2 - width * tail / (1 - far)
    return top + math.log((1 - far) / abs(slope)), top, mean, max(variance, 0.0)


@njit(cache=True)
def convolve(a, b):
    """Return the masses of a sum, accurate to rounding even in the tails."""
    if len(a) < len(b):
        a, b = b, a
    out, x = np.zeros(len(a) + len(b) - 1), np.zeros(len(a) + 6)
    x[3 : len(a) + 3] = a
    _add_products(out, x, b)
    return out


def fft_convolve(a: Reals, b: Reals) -> Reals:
    """Return the convolution of two arrays by fast Fourier transform, without importing SciPy's module."""
    from scipy.fft import irfft, next_fast_len, rfft  # slow to import, and wide messages alone need it

    size = len(a) + len(b) - 1
    room = next_fast_len(size, real=True)
    product = np.asarray(rfft(a, room)) * np.asarray(rfft(b, room))
    return np.asarray(irfft(product, room))[:size]


@njit(cache=True)
def correlate(weights, other, shift, size):
    """Return `out[i] = sum_j weights[i + shift + j] other[j]`, which sums a sibling out of a message down."""
    out, x = np.zeros(size), np.zeros(size + len(other) - 1)
    first, last = max(0, -shift), min(len(x), len(weights) - shift)
    if first < last:
        x[first:last] = weights[first + shift : last + shift]
    _add_correlations(out, x, other)
    return out


@njit(cache=True, _nrt=False)
def _add_products(out, x, b):
    """Add the convolution of `b` with `x` to `out`; three zeros precede and follow the values in `x`."""
    n = len(x) - 6
    for j in range(0, len(b) - 3, 4):
        _add_four(out[j : j + n + 3], b[j : j + 4], x[3:], x[2:], x[1:], x)
    for j in range(len(b) // 4 * 4, len(b)):
        _add_one(out[j : j + n], b[j], x[3:])


@njit(cache=True, _nrt=False)
def _add_correlations(out, x, other):
    """Add to `out[i]` the product of `x[i + j]` and `other[j]`."""
    for j in range(0, len(other) - 3, 4):
        _add_four(out, other[j : j + 4], x[j:], x[j + 1 :], x[j + 2 :], x[j + 3 :])
    for j in range(len(other) // 4 * 4, len(other)):
        _add_one(out, other[j], x[j:])


@njit(cache=True, _nrt=False)
def _add_four(out, weights, p, q, r, s):
    """Add four weighted rows to `out`, with one load and store for each entry.

    Positions that count up from 0 let the compiler use wide registers; those of the rows themselves would not.
    """
    a, b, c, d = weights[0], weights[1], weights[2], weights[3]
    for i in range(len(out)):
        out[i] = out[i] + a * p[i] + b * q[i] + c * r[i] + d * s[i]


@njit(cache=True, _nrt=False)
def _add_one(out, weight, p):
    for i in range(len(out)):
        out[i] += weight * p[i]


@njit(cache=True)
def trim(masses, tolerance):
    """Return the window that contains all but `tolerance` of the mass, and the share of the mass outside."""
    budget = 0.5 * tolerance * masses.sum()
    first, last = 0, len(masses)
    left = right = 0.0
    while first < last - 1 and left + masses[first] <= budget:
        left += masses[first]
        first += 1
    while last > first + 1 and right + masses[last - 1] <= budget:
        right += masses[last - 1]
        last -= 1
    total = masses.sum()
    return first, last, (left + right) / total if total > 0 else 0.0
