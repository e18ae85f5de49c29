"""Whole-number tables with given margins near a table of real numbers, and bounds on their distance.

**Prices.** Give every line (the cells that one entry of a margin sums) a price `u`. For all whole tables `t >= 0` with
the margins `s`, with `P` the sum of a cell's prices,

    sum (t - x)^2  >=  sum over cells of min over whole t >= 0 of ((t - x)^2 - P (t - x))  +  sum u (s - margins of x)

and a cell's minimum is at the whole number nearest to `x + P / 2`. The best prices give the bound of the linear
relaxation of the piecewise linear costs (Geoffrion 1974: what is relaxed is integral). They are found by ascent in one
price at a time: as the bound has edges at which such ascent stops early, the step function of each cell is smoothed
by a temperature, which falls. The bound is computed without smoothing at the prices that were reached.

**Messages.** At these prices only a few counts of each cell are not decided; each is a unit, taken or not, at a
reduced cost. A line needs a number of units, and its message to each of its units is the price at which the line is met
by the others: that of the highest unit taken, or of the lowest one left. The belief of a unit is its cost plus the messages
of its lines; a line receives beliefs without its own message: max-sum belief propagation for matchings (Bayati, Borgs,
Chayes & Zecchina 2011), exact on two margins where the optimum is unique. On more it can cycle between near-optima; a
little reinforcement of every belief (Braunstein & Zecchina 2006) helps it to converge. The result is always checked: a table
is accepted only if all margins are met, and its distance is compared with the bound. Time is linear in cells times
margins a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.margins import Margin, margin_of

TEMPERATURES = (0.1, 0.03, 0.01, 0.003)  # squared counts
PRICE_SWEEPS = 40  # at each temperature
PRICE_TOLERANCE = 0.01  # temperatures that no price moves any more
LINE_STEPS = 20
LINE_TOLERANCE = 0.01  # units by which a line may miss its sum while prices are sought
SETTLING_REDUCED_COST = 2.0  # reduced cost beyond which a unit is settled by its sign
MAX_MESSAGE = 20.0  # message
DAMPING = 0.3
REINFORCEMENT = 1e-3
PASSES = 500
JITTER = 0.01  # of reduced costs: makes restarts differ and breaks ties


@dataclass(frozen=True)
class Lines:
    """The sums that margins prescribe, each with the cells that it adds up."""

    members: np.ndarray  # (members x margins,) int64
    ptr: np.ndarray  # (lines + 1,)

    @classmethod
    def of(cls, shape: tuple[int, ...], margins: Sequence[Margin], cells: np.ndarray) -> Lines:
        """Return all prescribed sums, with the positions in `cells` (row-major) of the cells of each sum.

        Examples
        --------
        >>> lines = Lines.of((2, 2), [(0,), (1,)], np.arange(4))
        >>> lines.members.tolist(), lines.ptr.tolist()
        ([0, 1, 2, 3, 0, 2, 1, 3], [0, 2, 4, 6, 8])
        """
        places = np.unravel_index(cells, shape)
        members, sizes = [], []
        for margin in margins:
            kept = tuple(shape[a] for a in margin)
            line = np.zeros(cells.size, np.int64)
            if margin:
                line[:] = np.ravel_multi_index([places[a] for a in margin], kept)
            members.append(np.argsort(line, kind="stable"))
            sizes.append(np.bincount(line, minlength=int(np.prod(kept))))
        return cls(np.concatenate(members), np.concatenate([[0], np.cumsum(np.concatenate(sizes))]))


@dataclass(frozen=True)
class PricedTable:
    """The real table at given multipliers, and the lower bound on the squared distance that they prove."""

    table: np.ndarray
    bound: float


def priced(
    x: np.ndarray, margins: Sequence[Margin], sums: Sequence[np.ndarray], open_cells: np.ndarray
) -> PricedTable:
    """Return the table at the multipliers that maximise the dual, and the lower bound that they prove.

    Parameters
    ----------
    x : continuous table, nonnegative
    margins : kept axes of every margin
    sums : whole numbers
    open_cells : False where a cell holds its whole number

    Examples
    --------
    >>> x = np.array([[0.4, 0.6], [0.6, 0.4]])
    >>> round(priced(x, [(0,), (1,)], [np.ones(2), np.ones(2)], x > 0).bound, 6)  # the diagonal of the 0.6
    0.64
    """
    cells = np.flatnonzero(open_cells)
    lines = Lines.of(x.shape, margins, cells)
    members = cells[lines.members]
    missing = _flat(sums) - _flat([margin_of(x, m) for m in margins])
    needs = _flat(sums) - _flat([margin_of(np.where(open_cells, 0.0, np.rint(x)), m) for m in margins])
    prices, y = np.zeros(needs.size), x.ravel().copy()
    best = PricedTable(x, 0.0)
    for temperature in TEMPERATURES:
        _ascend(y, members, lines.ptr, needs, prices, temperature)
        spread = np.bincount(members, np.repeat(prices, np.diff(lines.ptr)), x.size)
        y = x.ravel() + spread / 2  # afresh: no drift
        away = np.maximum(np.rint(y), 0) - x.ravel()
        bound = float(away @ (away - spread) + prices @ missing)
        if bound > best.bound:
            best = PricedTable(y.reshape(x.shape).copy(), bound)
    return best


def _flat(sums: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(b, float)) for b in sums])


@njit(cache=True)
def _ascend(y, members, ptr, needs, prices, temperature):
    """Maximise the dual by exact coordinate ascent: the multiplier of one sum after another."""
    for _ in range(PRICE_SWEEPS):
        largest = 0.0
        for line in range(ptr.size - 1):
            mine = members[ptr[line] : ptr[line + 1]]
            shift = _clearing(y, mine, needs[line], temperature)
            prices[line] += 2.0 * shift
            for cell in mine:
                y[cell] += shift
            largest = max(largest, abs(shift))
        if largest < PRICE_TOLERANCE * temperature:
            break


@njit(cache=True)
def _clearing(y, mine, need, temperature):
    """Return the shift of the cells of one sum at which their smoothed roundings add up to `need`."""
    low, high, shift = -np.inf, np.inf, 0.0
    for _ in range(LINE_STEPS):
        excess, slope = -need, 0.0
        for cell in mine:
            count, rise = _staircase(y[cell] + shift, temperature)
            excess += count
            slope += rise
        if abs(excess) < LINE_TOLERANCE:
            break
        low, high = (low, shift) if excess > 0 else (shift, high)
        step = -excess / slope if slope > 1e-12 else -np.sign(excess)
        shift += min(max(step, -1.0), 1.0)
        if not low < shift < high:
            shift = (low + high) / 2.0
    return shift


@njit(cache=True)
def _staircase(y, temperature):
    """Return the nearest whole number to y, at least 0, smoothed near its steps, and its slope."""
    nearest = np.rint(y)
    count, slope = max(nearest - 1.0, 0.0), 0.0
    for unit in (nearest, nearest + 1.0):
        if unit >= 1.0:
            taken = 1.0 / (1.0 + np.exp((2.0 * (unit - y) - 1.0) / temperature))
            count += taken
            slope += 2.0 / temperature * taken * (1.0 - taken)
    return count, slope


@dataclass(frozen=True)
class Units:
    """The units that are not yet placed, their reduced costs, and the number that each sum still needs."""

    settled: np.ndarray  # the table without them
    cells: np.ndarray  # (n,) flat
    costs: np.ndarray  # (n,) reduced
    lines: Lines
    needs: np.ndarray  # (lines,) int64

    @classmethod
    def near(
        cls, at: PricedTable, margins: Sequence[Margin], sums: Sequence[np.ndarray], open_cells: np.ndarray
    ) -> Units:
        """Return the units that are not decided by rounding, because their cells are near ties."""
        y, may = at.table.ravel(), open_cells.ravel()
        best = np.rint(y).astype(np.int64)
        settled = np.where(may, np.maximum(best - 1, 0), best)
        cells = np.tile(np.flatnonzero(may), 2)
        first = settled[may]
        costs = 2.0 * (np.concatenate([first, first + 1]) - y[cells]) + 1.0
        settled += np.bincount(cells[costs <= -SETTLING_REDUCED_COST], minlength=y.size)
        near = np.abs(costs) < SETTLING_REDUCED_COST
        cells, costs = cells[near], costs[near]
        table = settled.reshape(at.table.shape)
        needs = _flat([b - margin_of(table, m) for m, b in zip(margins, sums, strict=True)])
        lines = Lines.of(table.shape, margins, cells)
        return cls(table, cells, costs, lines, np.rint(needs).astype(np.int64))

    def chosen(self, rng: np.random.Generator) -> np.ndarray | None:
        """Return a near-optimal random choice of units (n,) that satisfies every sum, or None."""
        costs = self.costs + JITTER * rng.standard_normal(self.costs.size)
        met = _settle(costs, self.lines.members, self.lines.ptr, self.needs)
        return costs < 0.0 if met else None

    def with_units(self, taken: np.ndarray) -> np.ndarray:
        """Return the table of fixed counts plus the chosen units."""
        counts = np.bincount(self.cells[taken], minlength=self.settled.size)
        return self.settled + counts.reshape(self.settled.shape)


@njit(cache=True)
def _settle(beliefs, members, ptr, needs):
    """Pass messages until the chosen units satisfy every sum; return True if they do."""
    messages = np.zeros(members.size)
    incoming = np.empty(np.max(ptr[1:] - ptr[:-1]))
    for _ in range(PASSES):
        for line in range(needs.size):
            a, b = ptr[line], ptr[line + 1]
            for p in range(a, b):
                incoming[p - a] = beliefs[members[p]] - messages[p]
            highest, lowest = _around(incoming[: b - a], needs[line])
            for p in range(a, b):
                price = -lowest if incoming[p - a] <= highest else -highest
                change = (1.0 - DAMPING) * (price - messages[p])
                messages[p] += change
                beliefs[members[p]] += change
        if _all_met(beliefs, members, ptr, needs):
            return True
        beliefs *= 1.0 + REINFORCEMENT
    return False


@njit(cache=True)
def _around(incoming, need):
    """Return the largest of the `need` smallest values, and the smallest of all other values."""
    if need <= 0:
        return -MAX_MESSAGE, -MAX_MESSAGE
    if need >= incoming.size:
        return MAX_MESSAGE, MAX_MESSAGE
    parted = np.partition(incoming, need)
    highest = parted[:need].max()
    return min(max(highest, -MAX_MESSAGE), MAX_MESSAGE), min(max(parted[need], -MAX_MESSAGE), MAX_MESSAGE)


@njit(cache=True)
def _all_met(beliefs, members, ptr, needs):
    for line in range(needs.size):
        taken = 0
        for p in range(ptr[line], ptr[line + 1]):
            taken += beliefs[members[p]] < 0.0
        if taken != needs[line]:
            return False
    return True
