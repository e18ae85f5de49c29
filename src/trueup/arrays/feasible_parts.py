"""Exact noise on the independent parts of a feasible set, with a proved bound on the privacy loss.

One file: every kind of part is a law, the proof of its loss and its sampler, in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, floor, inf, log, log2

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.arrays.whole_weights import (
    BITS,
    CellSums,
    draw_numbers_below,
    draw_position,
    factor_above,
    rate_of,
)
from trueup.errors import DataError, PrivacyError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.table_walks.moves import enumerate_fibre
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice.choice import laplace_factor, log_mass, tries_for
from trueup.noise.law import Integers, Reals, Words
from trueup.noise.laws.geometric import DiscreteLaplace

MAX_LISTED_TABLES = 600
"""Tables of a part up to which they are listed."""
MAX_SLOW_BOX_COUNTS = 2**16
"""Largest width of a box that is below 1 / rate."""
MAX_WEIGHT_BITS = 2**18
"""Bits of the weights of sums up to which cells are drawn by them."""
SLACK, MARGIN = 1e-9, 1e-9


@dataclass(frozen=True, eq=False)
class FeasiblePart:
    """A set of cells that share rules with no other cells, with the sampler of their noise.

    Attributes
    ----------
    cells
        Positions of the cells.
    how
        Words on how they are drawn and what is known of the loss.
    rate
        Rate of the law `exp(-rate |x - y|_1)`.
    draw
        `draw(x, count, words)`: feasible counts `(count, k)` given the part's own.
    mean
        The mean of what is drawn given x; None where it is not known.
    constant
        True if the normaliser is the same for all counts, so that the law of y given x is a product over cells.
    widest, reach
        The largest noise of a cell; `reach(p)`, the noise that a cell exceeds with a probability of at most p.
    """

    cells: Integers
    how: str
    rate: float
    draw: Callable[[Integers, int, Words], Integers]
    mean: Callable[[Integers], Reals] | None
    constant: bool = False
    widest: float = inf
    reach: Callable[[float], float] = lambda _: inf

    def tail(self, probability: float) -> float:
        """Return a bound (counts) that a cell's noise exceeds with at most the given probability."""
        return min(self.widest, self.reach(probability))


@dataclass(frozen=True, eq=False)
class Rules:
    """Linear rules on counts y: sums that stay fixed, bounds, and inequalities `R y >= least`."""

    kept: scipy.sparse.csr_array
    sums: Integers
    low: Reals
    high: Reals
    rows: scipy.sparse.csr_array
    least: Reals

    def among(self, cells: Integers) -> Rules:
        """Return the rules restricted to the given cells."""
        kept, rows = self.kept[:, cells], self.rows[:, cells]
        mine, own = (np.flatnonzero(np.diff(each.indptr)) for each in (kept, rows))
        return Rules(
            kept[mine], self.sums[mine], self.low[cells], self.high[cells], rows[own], self.least[own]
        )

    def check(self, x: Integers) -> None:
        """Refuse counts that break a rule of the feasible set."""
        if x.size != self.low.size or (self.kept @ x != self.sums).any() or not self.hold(x[None])[0]:
            raise DataError(
                "the counts break a rule of the feasible set", needed="counts that obey every rule"
            )

    def hold(self, y: Integers) -> NDArray[np.bool_]:
        """Return a mask of the vectors of counts `(k, n)` that satisfy the bounds and inequalities."""
        inside = ((y >= self.low) & (y <= self.high)).all(axis=1)
        off = SLACK + np.minimum(
            1e-12 * (np.abs(y) @ abs(self.rows).T), 0.25
        )  # rows of fractions are rounded
        return inside & (y @ self.rows.T >= self.least - off).all(axis=1)


PINNED = "one value, published as it is"


def ruled(rules: Rules, cells: Integers, epsilon: Fraction, slowest: float, *, known: bool) -> FeasiblePart:
    """Return cells that share rules as one part of the feasible set, with a sampler of its noise."""
    own = rules.among(cells)
    bounded = bool(np.isfinite([own.low, own.high]).any()) or own.rows.shape[0] > 0
    if bounded and known and (tables := _listed_tables(own)) is not None:
        return _listed_part(cells, tables, epsilon)
    if bounded and (part := _by_sums(cells, own, epsilon, known=known)) is not None:
        return part
    return _tried(cells, own, epsilon, slowest, bounded)


def boxes(cells: Integers, low: Reals, high: Reals, epsilon: Fraction) -> FeasiblePart:
    """Return cells with equal bounds as one part, with geometric noise redrawn until it is within bounds."""
    width, open_ = float(high[0] - low[0]), low[0] == -inf and high[0] == inf
    if width == 0:
        return _pinned(cells)

    def loss(rate: float) -> float:
        q, beyond = exp(-rate), exp(-rate * width)
        return rate + (0.0 if open_ else log((1 + q - q * q - beyond) / (1 - q * beyond)))

    largest = epsilon if open_ or width == 1 else _rounded_down(_largest_rate(loss, float(epsilon)))
    law = DiscreteLaplace(largest)
    narrow = float(largest) * width < 1
    if narrow and width > MAX_SLOW_BOX_COUNTS:
        raise SpecError(
            f"epsilon is too small to draw noise within a range of {width:.3g} counts",
            needed=f"an epsilon of at least {1.01 * loss(1 / width):.2g}, or a range of at most {MAX_SLOW_BOX_COUNTS:,} counts",
        )
    factor = factor_above(float(largest))

    def propose(x: Integers, at: Integers, words: Words) -> tuple[Integers, NDArray[np.bool_]]:
        if not narrow:
            y = x + law.sample(x.size, words)
            return y, (y >= low[at]) & (y <= high[at])
        y = low[at].astype(np.int64) + draw_numbers_below(int(width) + 1, x.size, words)
        kept = np.ones(x.size, bool)
        left = np.abs(y - x)
        while (again := np.flatnonzero(kept & (left > 0))).size:  # with probability factor^|y - x|
            kept[again] = np.frombuffer(words(4 * again.size), np.uint32) < factor
            left[again] -= 1
        return y, kept

    def draw(x: Integers, count: int, words: Words) -> Integers:
        given, at = np.tile(x, count), np.tile(np.arange(x.size), count)
        y, left = given.copy(), np.arange(given.size)
        while left.size:
            found, kept = propose(given[left], at[left], words)
            y[left[kept]] = found[kept]
            left = left[~kept]
        return y.reshape(count, x.size)

    def mean(x: Integers) -> Reals:
        if not narrow:
            (below, down), (above, up) = _side(rate, x - low), _side(rate, high - x)
            return x + (up - down) / (1 + below + above)
        y = low[:, None] + np.arange(width + 1)
        mass = np.exp(-rate * np.abs(y - x[:, None]))
        return (mass * y).sum(axis=1) / mass.sum(axis=1)

    rate = rate_of(factor) if narrow else float(largest)
    told, constant = "cells in boxes, drawn one by one; their loss exactly", open_ or width == 1
    # Bounds leave no more far from zero, on one side or both, than unbounded noise has on both.
    return FeasiblePart(
        cells, told, rate, draw, mean, constant, width, DiscreteLaplace(_rounded_down(rate)).reach
    )


def _side(rate: float, most: Reals) -> tuple[Reals, Reals]:
    """Return the sums of `q^k` and of `k q^k` for k from 1 to `most`, where `q = exp(-rate)`."""
    q, gap = exp(-rate), -np.expm1(-rate)
    last = np.exp(-rate * most)
    return q * (1 - last) / gap, q * (1 - last) / gap**2 - q * np.where(last > 0, most, 0.0) * last / gap


def _pinned(cells: Integers) -> FeasiblePart:
    def draw(x: Integers, count: int, words: Words) -> Integers:
        return np.tile(x, (count, 1))

    return FeasiblePart(cells, PINNED, 0.0, draw, lambda x: x.astype(float), True, 0.0)


def _listed_tables(own: Rules) -> Integers | None:
    """Return all tables of counts that satisfy the rules, one a row, or None if there are too many."""
    matrix = scipy.sparse.csr_array(scipy.sparse.vstack([own.kept.astype(float), own.rows]))
    low: Reals = np.append(own.sums, own.least - SLACK).astype(float)
    high: Reals = np.append(own.sums, np.full(own.least.size, inf)).astype(float)
    if np.abs(low[np.isfinite(low)]).max(initial=0) >= 2**50:
        return None
    found = enumerate_fibre(matrix, low - SLACK, high + SLACK, (own.low, own.high), MAX_LISTED_TABLES)
    return None if found is None else found[own.hold(found)]


def _listed_part(cells: Integers, tables: Integers, epsilon: Fraction) -> FeasiblePart:
    """Return a part whose noise is drawn from a list of all its tables with integer weights."""
    if len(tables) == 1:
        return _pinned(cells)
    apart = np.abs(tables[:, None, :] - tables).sum(axis=2)
    pairs = np.where(apart > 0, apart, inf)

    def loss(rate: float) -> float:
        z = np.log(np.exp(-rate * apart).sum(axis=1))
        return rate + float(((z[:, None] - z) / pairs).max())

    alike = (np.sort(apart, axis=1) == np.sort(apart[0])).all()  # the same distances from each: Z is constant
    factor = factor_above(float(epsilon) if alike else _largest_rate(loss, float(epsilon)))
    if not alike and loss(rate_of(factor)) > float(epsilon):
        factor = factor_above(float(epsilon) / 2)
    longest = int(apart.max())
    weight = [factor**d << BITS * (longest - d) for d in range(longest + 1)]

    def draw(x: Integers, count: int, words: Words) -> Integers:
        distance = np.abs(tables - x).sum(axis=1).tolist()
        running = np.cumsum(np.array([weight[d] for d in distance], object)).tolist()
        return tables[[draw_position(running, words) for _ in range(count)]]

    def mean(x: Integers) -> Reals:
        mass = (factor / 2.0**BITS) ** np.abs(tables - x).sum(axis=1)
        return mass @ tables / mass.sum()

    told = "a set whose tables are listed, drawn by whole weights; its loss exactly"
    widest = float(np.ptp(tables, axis=0).max())
    return FeasiblePart(cells, told, rate_of(factor), draw, mean, bool(alike), widest)


def _by_sums(cells: Integers, own: Rules, epsilon: Fraction, *, known: bool) -> FeasiblePart | None:
    """Return a part whose noise is drawn cell by cell, or None if this would take too long."""
    width = own.high - own.low
    matrix = scipy.sparse.vstack([own.kept, own.rows]).toarray()
    whole = (own.rows.data == np.rint(own.rows.data)).all() and np.isfinite(own.least).all()
    if not (whole and width.sum() * BITS <= MAX_WEIGHT_BITS and abs(matrix).max(initial=0) < 2**20):
        return None

    def tabled(least: NDArray, most: NDArray) -> CellSums:
        limits = np.append(least, own.least - SLACK), np.append(most, np.full(own.least.size, inf))
        return CellSums(matrix, own.low, own.high, *limits)

    wide = np.full(own.sums.size, inf)
    sums = tabled(own.sums, own.sums) if known else tabled(-wide, wide)
    if not sums.small:
        return None
    one_sum = own.sums.size == 1 and not own.least.size and bool((own.kept.data == 1).all())
    alike = one_sum and max(sums.widths) == 1
    factor = factor_above(float(epsilon if alike else epsilon / 2))

    def draw(x: Integers, count: int, words: Words) -> Integers:
        own_sums = own.kept @ x
        return (sums if known else tabled(own_sums, own_sums)).draw(x, count, factor, words)

    told = f"cells within bounds, drawn by the whole weights of their sums; its loss {'exactly' if alike else 'at most'}"
    return FeasiblePart(cells, told, rate_of(factor), draw, None, alike, float(max(sums.widths)))


def _tried(cells: Integers, own: Rules, epsilon: Fraction, slowest: float, bounded: bool) -> FeasiblePart:
    """Return a part whose noise keeps the sums and is redrawn until it satisfies the other rules."""
    rate = _rounded_down(float(epsilon) / 2) if bounded else epsilon
    try:
        law = LatticeLaplace(rate).as_asked(Lattice.of(cells.size, own.kept), {"slowest": slowest})
    except PrivacyError:
        return _pinned(cells)
    bound, factor = law.bound, laplace_factor(rate)
    total = sum(log_mass(piece.invariants, [factor] * piece.cells.size) for piece in bound.lattice.pieces)
    tries = tries_for(-total) if bounded else 1.0
    if (seconds := tries * sum(choice.seconds for _, choice in bound.pieces)) > slowest:
        raise SpecError(
            f"drawing a part of {cells.size} cells may take {seconds:.2g} s where its counts lie at their bounds",
            needed=f"at most {slowest:g} s, the value of `slowest`",
            remedy="give a larger epsilon or `slowest`; or use noise without the rules, then project the noisy counts onto them",
        )

    def draw(x: Integers, count: int, words: Words) -> Integers:
        out, done, size = np.empty((count, cells.size), np.int64), 0, max(count, 64)
        while done < count:
            y = x + bound.draw(size, words).vectors
            y = y[own.hold(y)][: count - done]
            out[done : done + len(y)] = y
            done += len(y)
        return out

    if bounded:
        told = "cells under rules, redrawn until they hold; its loss at most"
        return FeasiblePart(cells, told, float(rate), draw, None, reach=lambda p: law.tail(p / tries).counts)
    told = "sums that are kept; its loss exactly"
    return FeasiblePart(
        cells, told, float(rate), draw, lambda x: x.astype(float), True, reach=lambda p: law.tail(p).counts
    )


def _largest_rate(loss: Callable[[float], float], epsilon: float) -> float:
    """Return a rate of noise whose privacy loss is at most epsilon and close to epsilon."""
    low, high = epsilon / 2, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= epsilon * (1 - MARGIN) else (low, middle)
    return low


def _rounded_down(rate: float) -> Fraction:
    """Return a fraction with a 30-bit numerator that is at most a given rate and close to it."""
    scale = 2.0 ** (30 - ceil(log2(rate)))
    return Fraction(floor(rate * scale)) / Fraction(scale)
