"""The exact integer optimum on a tree: least squares, least absolute differences, or both, within bounds.

Discrete convexity. Let ``F_v(k)`` be the least cost of the subtree of ``v`` when its total is ``k``. It is convex in
the integer ``k``, so it is its list of marginals ``F_v(k + 1) - F_v(k)``, sorted. A leaf's marginals are those of
its own cost; a sum of children merges their sorted lists (cheapest count first); the node's own cost adds
its marginal at rank ``k``. At the root every negative marginal is taken. Each marginal belongs to one leaf, so
the taken ones say which leaves get a count.

Leaves are searched in windows of a few candidates around a start. The cost is M-natural-convex (convex functions on
nested sets; Murota 2003, section 6.3): a point is the global optimum if no leaf +1, no leaf -1 and no
exchange of 1 between two leaves improves it. So an optimum over the windows that touches no artificial edge
is the optimum; where a leaf touches one, its window grows. `best_move` checks a result by the same theorem.

Windows stay small whatever the distance: where they would grow beyond `WIDEST`, the search goes in steps. Counts that
differ from a feasible point by multiples of a step are a problem of the same kind, so its optimum is found in the same
way. The step doubles until the optimum is inside its windows and halves down to 1 from there (scaling: Murota 2003,
section 10.1): time grows with the logarithm of the distance, memory not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.tree.least_squares import aggregate, leaf_ranges
from trueup.kernel.tree.rounding import controlled_rounding, hashed
from trueup.kernel.tree.topdown import topdown

MARGIN = 1  # candidates beyond floor and ceiling of the start
WIDEST = 64  # candidates of one leaf, beyond which the search goes in steps
ROUNDING = 1e-12  # of a marginal cost, relative to the largest
REACH = 4  # steps to either side that are looked at together


def integer_optimum(
    child_ptr: np.ndarray,
    square: np.ndarray,
    absolute: np.ndarray,
    values: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    start: np.ndarray,
    seed: int = 0,
) -> tuple[np.ndarray, int]:
    """Solve min sum a_v (X_v - y_v)^2 + b_v |X_v - y_v| over additive integers lower <= X <= upper.

    Parameters
    ----------
    child_ptr
        Tree of n nodes, (n + 1,) int64.
    square, absolute
        Weights a and b, (n,), at least 0; 0 where not measured.
    values
        Measured counts y, (n,); finite.
    lower, upper
        Integer bounds of every node, (n,) float64, attainable (`trueup.kernel.tree.bounds.propagate`), finite
        below at the leaves. An exact node has lower = upper.
    start
        Where to look first, (n,), e.g. the continuous optimum; it decides the time taken, not the result.
    seed
        Unsigned integer that settles ties between leaves.

    Returns
    -------
    tuple
        X, (n,) int64, and the number of rounds of growing windows.

    Examples
    --------
    >>> tree, one, none = np.array([1, 3, 3, 3]), np.ones(3), np.zeros(3)
    >>> y = np.array([4.0, 1.0, 1.0])
    >>> X, rounds = integer_optimum(tree, none, one, y, none, np.full(3, np.inf), y)
    >>> int(X[0]), int(abs(X - y).sum())
    (2, 2)
    """
    search = _Search.of(child_ptr, (square, absolute, values, lower, upper), np.uint64(seed))
    near = start[search.leaf]
    low = np.clip(np.floor(near) - MARGIN, search.least, search.most)
    high = np.clip(np.floor(near) + 1 + MARGIN, search.least, search.most)
    rounds = 0
    while True:
        rounds += 1
        total = search.best(low, high)
        taken = total[search.leaf]
        broken = ((total < lower) | (total > upper)).any()
        raised = ((taken == high) | broken) & (high < search.most)
        lowered = ((taken == low) | broken) & (low > search.least)
        if not (raised.any() or lowered.any()):
            return total, rounds
        width = 2 * (high - low) + 1
        if width.max() > WIDEST:
            return search.in_steps(start, rounds)
        high = np.where(raised, np.minimum(high + width, search.most), high)
        low = np.where(lowered, np.maximum(low - width, search.least), low)


Costs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Weights of squares and of absolute differences, values, lower and upper bounds; (n,) each."""


@dataclass(frozen=True)
class _Search:
    """A problem and its leaves, depth first."""

    child_ptr: np.ndarray
    costs: Costs
    seed: np.uint64
    first: np.ndarray
    last: np.ndarray
    leaf: np.ndarray

    @classmethod
    def of(cls, child_ptr: np.ndarray, costs: Costs, seed: np.uint64) -> _Search:
        first, last = leaf_ranges(child_ptr)
        leaf = np.empty(last[0], np.int64)
        leaf[first[child_ptr[:-1] == child_ptr[1:]]] = np.flatnonzero(child_ptr[:-1] == child_ptr[1:])
        return cls(child_ptr, costs, seed, first, last, leaf)

    @property
    def least(self) -> np.ndarray:
        return self.costs[3][self.leaf]

    @property
    def most(self) -> np.ndarray:
        return self.costs[4][self.leaf]

    def best(self, low: np.ndarray, high: np.ndarray, step: int = 1) -> np.ndarray:
        """The optimum (n,) with every leaf in its window, in steps from its lower end."""
        where = (self.first, self.last, self.leaf, low, high, step, self.seed)
        total = np.zeros(self.child_ptr.size - 1, np.int64)
        total[self.leaf] = _take(self.child_ptr, *self.costs, *where)
        return aggregate(self.child_ptr, total)

    def in_steps(self, start: np.ndarray, rounds: int) -> tuple[np.ndarray, int]:
        """The optimum from a start that is far from it."""
        _, _, values, lower, upper = self.costs
        even = np.ones(values.size)
        near = topdown(self.child_ptr, even, lower, upper, start)[0]
        total, step, growing = controlled_rounding(self.child_ptr, even, near, int(self.seed)), WIDEST, True
        while step:
            rounds += 1
            down = np.minimum(REACH, np.floor((total[self.leaf] - self.least) / step))
            up = np.minimum(REACH, np.floor((self.most - total[self.leaf]) / step))
            low, high = total[self.leaf] - step * down, total[self.leaf] + step * up
            total = self.best(low, high, step)
            taken = total[self.leaf]
            touched = ((taken == high) & (up == REACH)) | ((taken == low) & (down == REACH))
            inside = not touched.any() or self._optimal(total, step)
            growing &= not inside
            step = 2 * step if growing else step // 2 if inside else step
        return total, rounds

    def _optimal(self, total: np.ndarray, step: int) -> bool:
        """Whether no single step improves: windows with ties may be touched for ever."""
        square, absolute, values, *_ = self.costs
        size = step * (square * (np.abs(total - values) + step) + absolute).max()
        return best_move(self.child_ptr, *self.costs, total, step) <= ROUNDING * size


@njit(cache=True)
def _take(child_ptr, square, absolute, y, lower, upper, first, last, leaf, low, high, step, seed):
    """The optimum with every leaf in its window, in steps from its lower end: counts of the leaves, depth first."""
    begin = np.zeros(leaf.size + 1, np.int64)
    begin[1:] = np.cumsum((high - low).astype(np.int64) // step)
    price = np.empty(begin[-1])
    owner = np.empty(begin[-1], np.int32)
    base = np.zeros(y.size)
    for v in range(y.size - 1, -1, -1):
        a, b = child_ptr[v], child_ptr[v + 1]
        i, j = begin[first[v]], begin[last[v]]
        if a == b:
            base[v] = low[first[v]]
            price[i:j] = 0.0
            owner[i:j] = first[v]
        else:
            base[v] = base[a:b].sum()
            if b > a + 1:
                _merge(price[i:j], owner[i:j], seed + np.uint64(v))
        for k in range(j - i):
            price[i + k] = _priced(
                price[i + k], base[v] + k * step, step, square[v], absolute[v], y[v], lower[v], upper[v]
            )
    counts = low.astype(np.int64)
    for k in range(price.size):
        if price[k] >= 0.0:
            break
        counts[owner[k]] += step
    return counts


@njit(cache=True)
def _priced(price, count, step, square, absolute, y, lower, upper):
    """Add the node's own marginal of going from ``count`` to ``count + step``; bounds force or forbid it."""
    if count < lower:
        return -np.inf
    if count + step > upper:
        return np.inf
    return price + marginal(count, step, square, absolute, y)


@njit(cache=True)
def marginal(count, step, square, absolute, y):
    """Cost of ``count + step`` less cost of ``count`` at a node."""
    rise = step * (2.0 * (count - y) + step)
    return square * rise + absolute * (abs(count + step - y) - abs(count - y))


@njit(cache=True)
def _merge(price, owner, seed):
    """Sort marginals, ties in random order (they cost the same; by position they would favour the first)."""
    for k in range(price.size - 1, 0, -1):
        j = np.int64(hashed(k, seed) % np.uint64(k + 1))
        price[k], price[j] = price[j], price[k]
        owner[k], owner[j] = owner[j], owner[k]
    order = np.argsort(price, kind="mergesort")
    price[:], owner[:] = price[order], owner[order]


@njit(cache=True)
def best_move(child_ptr, square, absolute, y, lower, upper, counts, step=1):
    """Return the largest decrease of cost by one leaf +1 or -1 or an exchange of 1 (of a step); 0 at the optimum.

    Examples
    --------
    >>> tree, one, none = np.array([1, 3, 3, 3]), np.ones(3), np.zeros(3)
    >>> y, top = np.array([4.0, 1.0, 1.0]), np.full(3, np.inf)
    >>> best_move(tree, one, none, y, none, top, np.array([3, 1, 2]))
    0.0
    >>> best_move(tree, one, none, y, none, top, np.array([2, 1, 1]))
    2.0
    """
    up, down = np.empty(y.size), np.empty(y.size)  # cheapest +1 and -1 of one leaf in the subtree
    best = 0.0
    for v in range(y.size - 1, -1, -1):
        a, b = child_ptr[v], child_ptr[v + 1]
        up[v] = down[v] = 0.0
        if a < b:
            up[v], down[v] = up[a:b].min(), down[a:b].min()
            best = min(best, _cheapest_exchange(up[a:b], down[a:b]))
        above, below = counts[v] + step <= upper[v], counts[v] - step >= lower[v]
        up[v] += marginal(counts[v], step, square[v], absolute[v], y[v]) if above else np.inf
        down[v] -= marginal(counts[v] - step, step, square[v], absolute[v], y[v]) if below else -np.inf
    return max(0.0, -min(best, up[0], down[0]))


@njit(cache=True)
def _cheapest_exchange(up, down):
    """The least up[c] + down[d] over different c and d."""
    i = up.argmin()
    j = down.argmin()
    if i != j:
        return up[i] + down[j]
    best = np.inf
    for c in range(up.size):
        if c != i:
            best = min(best, up[i] + down[c], up[c] + down[j])
    return best
