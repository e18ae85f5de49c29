"""Draws of the splits of parents' totals among their children, given noisy estimates and a prior.

A draw takes a value of a, draws each child by its own law, and moves the children to their sum in the metric of these
laws' variances, and to whole counts: for normal laws that is the law given the sum. For others Metropolis steps follow, which
leave that law as it is: two children, chosen at random, share their sum anew. What the first gets is proposed around what it
has, around what the estimates say, or by `log((t + 2) / (t + 1))`, a few units or all but a few.
The laws are those of `kernel.settling.split_laws`.

A tree's counts are drawn so from the top, the root normal around its estimate. Each level has one concentration, whose posterior
is found once, at posterior means of the levels above; every draw takes a value from it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.settling import (
    FIRST_STEPS,
    MAX_RELATIVE_SPREAD,
    MAX_RELATIVE_TOTAL,
    ChildLaws,
    Children,
    GridPrior,
    evidence,
    grid,
    log_prior,
    write_laws,
)
from trueup.kernel.tree.topdown import project_part

NEWTON_STEPS = 6  # Newton's, for the multipliers of a draw
CONCENTRATIONS = np.exp(np.linspace(math.log(0.02), math.log(500.0), 13))
METROPOLIS_SWEEPS = 12  # of Metropolis steps, one for each child
ESTIMATION_CHILDREN = 4000  # children by which the concentration is estimated
MIN_DRAWN_COUNT = 1e-9  # counts, and counts squared: below, nothing is drawn


class Hyperprior(NamedTuple):
    """Lognormal laws of the concentrations: medians, and standard deviations of the logs.

    `kappa` is the median of the median of a parent's cells, `cell_spread` how far cells are apart, `drift` the
    standard deviation of multipliers that the prior's error makes, and `far` says how many times the mean of its siblings
    a child is whose cells keep half of what they miss of its total. `factor` is the median of the spreads of factors of chains.
    """

    a: float = 0.6
    a_spread: float = 1.5
    kappa: float = 25.0
    kappa_spread: float = 1.0
    cell_spread: float = 1.0
    drift: float = 0.3
    far: float = 2.0
    factor: float = 0.3
    factor_spread: float = 1.0


HYPERPRIOR = Hyperprior()


@njit(cache=True)
def _tie(first, totals, spreads, low, high, draws):
    """Move the counts of each parent's children to the parent's total within bounds, by variances."""
    free = np.empty(draws.size, np.int64)
    for p in range(first.size - 1):
        begin, end = first[p], first[p + 1]
        gap = totals[p]
        for c in range(begin, end):
            gap -= draws[c]
        if gap != 0.0:
            project_part(begin, end, spreads, low, high, totals[p], draws, free)


@njit(cache=True)
def _round_children(first, totals, low, high, draws):
    """Round the counts of each parent's children to its whole total, within bounds if possible."""
    for p in range(first.size - 1):
        carried = 0.0
        for c in range(first[p], first[p + 1]):
            value = draws[c] + carried
            whole = min(max(np.floor(value + 0.5), np.ceil(low[c])), np.floor(high[c]))
            carried = value - whole
            draws[c] = whole
        left = np.floor(carried + 0.5)
        for c in range(first[p], first[p + 1]):
            if left == 0.0:
                break
            moved = min(max(draws[c] + left, np.ceil(low[c])), np.floor(high[c]))
            left -= moved - draws[c]
            draws[c] = moved


@njit(cache=True)
def _log_density(t, a, z, v):
    d = t - z
    return math.lgamma(t + a) - math.lgamma(t + 1.0) - 0.5 * d * d / v


@njit(cache=True)
def _few_or_most(t, s):
    return 0.5 * (math.log((t + 2.0) / (t + 1.0)) + math.log((s - t + 2.0) / (s - t + 1.0)))


@njit(cache=True)
def _exchange(seed, first, z, v, low, high, a, sweeps, draws):
    """Make Metropolis steps that exchange counts between pairs of children, `sweeps` for each child."""
    np.random.seed(seed)  # noqa: NPY002
    logs = np.empty(draws.size)
    for p in range(first.size - 1):
        begin, children = first[p], first[p + 1] - first[p]
        if children < 2:
            continue
        for c in range(begin, begin + children):
            logs[c] = _log_density(draws[c], a, z[c], v[c])
        for _ in range(sweeps * children):
            c = begin + np.random.randint(children)  # noqa: NPY002
            d = begin + np.random.randint(children - 1)  # noqa: NPY002
            d += d >= c
            t, s = draws[c], draws[c] + draws[d]
            least, most = max(low[c], s - high[d]), min(high[c], s - low[d])
            if least >= most:
                continue
            both = v[c] + v[d]
            middle, spread = (z[c] * v[d] + (s - z[d]) * v[c]) / both, math.sqrt(v[c] / both * v[d])
            kind, log = np.random.randint(3), 0.0  # noqa: NPY002
            if kind == 0:
                scale = 1.0 / math.sqrt(1.0 / (spread * spread) + 8.0 * (a + 0.5) / (s * s)) + 0.7
                new = t + np.floor(scale * 1.7 * np.random.normal() + 0.5)  # noqa: NPY002
            elif kind == 1:
                wide = max(spread, 0.7)
                new = np.floor(middle + wide * np.random.normal() + 0.5)  # noqa: NPY002
                log = 0.5 * ((new - middle) / wide) ** 2 - 0.5 * ((t - middle) / wide) ** 2
            else:
                new = np.floor(math.exp(np.random.random() * math.log(s + 2.0))) - 1.0  # noqa: NPY002
                if np.random.random() < 0.5:  # noqa: NPY002
                    new = s - new
            if new < least or new > most or new == t:
                continue
            if kind == 2:
                log = math.log(_few_or_most(t, s) / _few_or_most(new, s))
            one, other = _log_density(new, a, z[c], v[c]), _log_density(s - new, a, z[d], v[d])
            if math.log(1.0 - np.random.random()) < log + one + other - logs[c] - logs[d]:  # noqa: NPY002
                draws[c], draws[d], logs[c], logs[d] = new, s - new, one, other


class EstimatedSplits:
    """The children of several parents with their estimates, split with one common concentration.

    Parameters
    ----------
    first : (parents + 1,) where each parent's children start
    estimates, variances : (children,) counts, and counts squared; infinite where nothing is known
    low, high : (children,) bounds

    Examples
    --------
    >>> splits = EstimatedSplits(np.array([0, 3]), np.array([9.0, 1.0, -2.0]), np.full(3, 4.0))
    >>> chances = splits.concentrations(np.array([8.0]))
    >>> bool(abs(chances.sum() - 1) < 1e-12)
    True
    >>> float(splits.draw(np.array([8.0]), 0.6, np.random.default_rng(1)).sum())
    8.0
    """

    def __init__(self, first, estimates, variances, low=None, high=None):
        size = len(estimates)
        self.first, self.z = np.asarray(first, np.int64), np.ascontiguousarray(estimates, float)
        self.v = np.maximum(np.asarray(variances, float), 1e-6)
        self.known = np.asarray(variances) == 0
        self.low = np.zeros(size) if low is None else np.maximum(low, 0.0)
        self.high = np.full(size, np.inf) if high is None else np.asarray(high, float).copy()
        for bound in (self.low, self.high):
            bound[self.known] = np.maximum(self.z[self.known], 0.0)
        self.prices = np.zeros(self.first.size - 1)

    def concentrations(self, totals: np.ndarray) -> np.ndarray:
        """Return the posterior probabilities of the values in `CONCENTRATIONS`, given parents' totals."""
        some = self._some()
        prices, logs = np.zeros(some.first.size - 1), np.empty(CONCENTRATIONS.size)
        held = np.asarray(totals, float)
        counts = grid(MAX_RELATIVE_TOTAL * max(float(held.max(initial=1.0)), 1.0))
        for i, a in enumerate(CONCENTRATIONS):
            logs[i] = evidence(some._given(), held, a, *counts, prices)
            logs[i] -= 0.5 * (math.log(a / HYPERPRIOR.a) / HYPERPRIOR.a_spread) ** 2
        chances = np.exp(logs - logs.max())
        return chances / chances.sum()

    def means(self, totals: np.ndarray, a: float) -> np.ndarray:
        """Return posterior means (children,) of the counts, which add up to the totals."""
        counts = grid(max(float(totals.max(initial=1.0)), 1.0))
        means, spreads, *_ = self._run(totals, a, counts, self.prices, FIRST_STEPS, np.empty(0))
        _tie(self.first, totals, np.maximum(spreads, 1e-9 * ~self.known), self.low, self.high, means)
        return means

    def draw(self, totals: np.ndarray, a: float, rng: np.random.Generator) -> np.ndarray:
        """Draw whole counts (children,) that add up to the whole totals."""
        counts = grid(max(float(totals.max(initial=1.0)), 1.0))
        _, spreads, draws, _ = self._run(
            totals, a, counts, self.prices, NEWTON_STEPS, rng.random(self.z.size)
        )
        _tie(self.first, totals, np.maximum(spreads, 1e-9 * ~self.known), self.low, self.high, draws)
        _round_children(self.first, totals, self.low, self.high, draws)
        wide = np.minimum(
            self.v, np.repeat((MAX_RELATIVE_SPREAD * np.maximum(totals, 1.0)) ** 2, np.diff(self.first))
        )
        bounds, seed = (self.low, self.high), int(rng.integers(2**32))
        _exchange(seed, self.first, self.z, wide, *bounds, a, METROPOLIS_SWEEPS, draws)
        return draws

    def _some(self) -> EstimatedSplits:
        """Return the splits of the first parents, with at most `ESTIMATION_CHILDREN` children in all."""
        last = max(int(np.searchsorted(self.first, ESTIMATION_CHILDREN, side="right")) - 1, 1)
        if last >= self.first.size - 1:
            return self
        size = self.first[last]
        parts = (x[:size] for x in (self.z, np.where(self.known, 0.0, self.v), self.low, self.high))
        return EstimatedSplits(self.first[: last + 1], *parts)

    def _run(self, totals, a, counts, prices, steps, u, beyond=1.0):
        laws = ChildLaws(np.empty(self.z.size), np.empty(self.z.size), np.empty(self.z.size))
        points = GridPrior(counts[0], counts[1], log_prior(*counts, a))
        logs = write_laws(self._given(), np.asarray(totals, float), a, points, prices, steps, u, beyond, laws)
        return *laws, logs

    def _given(self) -> Children:
        return Children(self.first, self.z, self.v, self.low, self.high)


def drawn_totals(means: np.ndarray, variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw counts from normal laws truncated at zero, by rejection (Robert 1995).

    Examples
    --------
    >>> drawn_totals(np.array([9.0, -40.0]), np.array([0.0, 1.0]), np.random.default_rng(1)).round(3).tolist()
    [9.0, 0.008]
    """
    s = np.sqrt(np.maximum(variances, 0.0)) + MIN_DRAWN_COUNT
    cut = -(means / s).ravel()
    above = np.maximum(cut, 0.0)
    rate = 0.5 * (above + np.hypot(above, 2.0))  # of the exponential law that starts at a cut above zero
    found, left = np.empty(cut.size), np.arange(cut.size)
    while left.size:
        least, fast = cut[left], rate[left]
        tail = least + rng.exponential(size=left.size) / fast
        tried = np.where(least > 0.0, tail, rng.normal(size=left.size))
        chance = np.where(least > 0.0, np.exp(-0.5 * (tail - fast) ** 2), tried >= least)
        taken = rng.random(left.size) < chance
        found[left[taken]] = tried[taken]
        left = left[~taken]
    return np.maximum(means + s * found.reshape(means.shape), 0.0)


def tree_draws(
    child_ptr: np.ndarray,
    level_ptr: np.ndarray,
    estimates: np.ndarray,
    variances: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    number: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw real-valued counts of all nodes that add up, with a whole number at the root.

    Parameters
    ----------
    child_ptr, level_ptr : the tree, in level order, and where each level starts
    estimates, variances : (nodes,) of every total from its own subtree (counts, counts squared)
    low, high : (nodes,) attainable totals

    Examples
    --------
    >>> child_ptr, level_ptr = np.array([1, 3, 3, 3]), np.array([0, 1, 3])
    >>> z, v = np.array([6.0, 8.0, -1.0]), np.array([2.0, 3.0, 3.0])
    >>> found = tree_draws(child_ptr, level_ptr, z, v, np.zeros(3), np.full(3, np.inf), 2, np.random.default_rng(1))
    >>> found.shape, bool(np.allclose(found[:, 0], found[:, 1:].sum(axis=1)))
    ((2, 3), True)
    """
    found = np.empty((number, len(estimates)))
    root = np.full(number, estimates[0])
    found[:, 0] = np.clip(np.rint(drawn_totals(root, np.full(number, variances[0]), rng)), low[0], high[0])
    mean = np.clip(estimates[:1], low[0], high[0])
    for level in range(1, len(level_ptr) - 1):
        parents, nodes = (slice(level_ptr[i], level_ptr[i + 1]) for i in (level - 1, level))
        first = child_ptr[level_ptr[level - 1] : level_ptr[level] + 1] - level_ptr[level]
        split = EstimatedSplits(first, estimates[nodes], variances[nodes], low[nodes], high[nodes])
        chances = split.concentrations(mean)
        mean = split.means(mean, float(CONCENTRATIONS[chances.argmax()]))
        for row, a in zip(found, rng.choice(CONCENTRATIONS, number, p=chances), strict=True):
            row[nodes] = split.draw(row[parents], float(a), rng)
    return found
