"""Inference from released trees in which totals were estimated also from the noisy parts below them.

Node v has a true count N, a noisy one n, and a weight a: the estimate f(n, n*) from its own noisy count and the sum n* of its
children's (Algorithm 1: a draw given both); at the finest level max(n, 0). A count is its share of a split of its parent's
among the weights of the parent's children. n acts on two splits, through its own a and through the parent's n*, so that splits
are not independent given the true counts. But they are a tree: with h_c(n*) the mass of all below c that leads to
what was released there and to noisy children that sum to n*,

    T_c(n, a) = sum over n* of h_c(n*) P(a | n, n*),
    h_v(n*)   = sum over events e of v's split (`trueup.inferring.released.summed_splits`) of the convolution over its
                children c of p(n - N_c) sum over a of e's worth of a, times T_c(n, a).

From the finest level up these give the exact probability of the release given the true counts, from the root down an exact draw
of all noisy counts. Chains alternate that with true counts given noisy ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.released import modes, noise_of_sum
from trueup.inferring.released.summed_splits import (
    NoisyReading,
    ReleasedSplit,
    SplitEvents,
    compatible_order,
    draw_events,
    join_split,
    mode_events,
)
from trueup.inferring.released.tree import DEPTHS, TOLERANCE, ReleasedTree, far_apart, first_rate, spent
from trueup.kernel.messages.solve import joint_draws, solve
from trueup.kernel.released.events import log_even
from trueup.kernel.released.exact import small_product
from trueup.kernel.released.tree import DRAWN, SHUFFLED
from trueup.layouts.factors import FactorTable
from trueup.layouts.released import half_width
from trueup.noise.law import Law
from trueup.run import Deadline

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

MAX_TIE_DRAWS = 10**5
"""Draws of an event with ties before rounding errors are taken to have chosen it."""
NOTHING = SplitEvents([], np.zeros(1), np.full(1, -1), np.zeros((1, 0), np.int64), np.zeros((1, 2), np.int64))
"""The events of a split of which nothing was released."""


class SummedTreeChain:
    """A Markov chain of the true and noisy counts of all nodes of a released tree.

    `log_likelihood` is exact: that of an enumeration of all noise.
    """

    def __init__(
        self, tree: ReleasedTree, rng: np.random.Generator, deadline: Deadline | None = None
    ) -> None:
        self.tree, self.rng, problem, self.deadline = tree, rng, tree.problem, deadline
        self.settled, self.edges = tree.settled(), tree.edges()
        noisy = [(h.law, at.tolist()) for h, at in zip(problem.headers, problem.nodes) if not h.exact]
        self.law: dict[int, Law] = {v: law for law, at in noisy for v in at}
        splits, ptr = tree.splits(self.settled), problem.child_ptr
        self.member: dict[int, Integers] = {}
        for first, last in zip(splits.ptr[:-1], splits.ptr[1:]):
            member = splits.member[first:last]
            self.member[int(np.searchsorted(ptr, member[0], side="right")) - 1] = member
        self.even = dict(zip(self.member, splits.even.tolist()))
        self.rate = {node: first_rate(tree.counts[member], rng) for node, member in self.member.items()}
        self.noisy, self.weight = tree.counts.copy(), tree.counts.copy()
        self.true = self._draw_true()

    def step(self) -> Integers:
        """Draw noisy counts given true ones, then true counts given noisy ones. Return the true counts."""
        if self.log_likelihood(self.true) == -np.inf:
            raise far_apart()
        self._draw_noisy()
        if (np.abs(self.noisy - self.true) > self.edges).any():
            raise far_apart()
        self.true = self._draw_true()
        return self.true

    # --- from the finest level up ---------------------------------------------------------------

    def log_likelihood(self, true: Integers) -> float:
        """Return the log probability of the released counts, given the true counts of all nodes."""
        self.true, log = true, 0.0
        self.below: dict[int, tuple[int, Reals]] = {}
        self.splits: dict[int, ReleasedSplit] = {}
        self.reading: dict[int, NoisyReading] = {}
        for v in range(true.size - 1, -1, -1):
            if self._children(v).size:
                if self.deadline is not None and self.deadline.passed:
                    raise spent(self.deadline, "less than a step of a chain")
                if (split := self._split(v)) is None:
                    return -np.inf
                self.splits[v] = split
                low, masses, unit = split.summed()
                self.below[v], log = (low, masses), log + unit
            self.reading[v] = self._read(v)
            if self.settled[v] and v in self.below:
                log += np.log(self.below[v][1].sum())
        mass = 1.0 if self.settled[0] else (self.reading[0].noise * self._root()).sum()
        return log + float(np.log(mass)) if mass > 0 else -np.inf

    def _children(self, node: int) -> Integers:
        return np.arange(*self.tree.problem.child_ptr[node : node + 2])

    def _root(self) -> Reals:
        """Return the probability of the released counts, given each noisy count of the root."""
        table, at = self.reading[0].table, self.tree.counts[0] - self.reading[0].least
        return table[:, at] if 0 <= at < table.shape[1] else np.zeros(len(table))

    def _read(self, node: int) -> NoisyReading:
        """Return the likelihood of a node's noisy count, given the released counts below the node."""
        true, law = int(self.true[node]), self.law.get(node)
        width = 0 if law is None else half_width(law)
        low, own = true - width, true + np.arange(-width, width + 1)
        noise = np.ones(1) if law is None else np.exp(law.logpmf(own - true))
        if law is None or self.settled[node]:
            return NoisyReading(low, noise, true, np.ones((own.size, 1)))
        if self.tree.algorithm == 1:
            return NoisyReading(low, noise, max(low - width, 0), self._drawn_weights(node, law, own, width))
        if node in self.below:
            start, h = self.below[node]
            found = modes(law, self._parts(node), own, start + np.arange(h.size))
        else:
            h, found = np.ones(1), np.maximum(own, 0)[:, None]
        least, size = int(found.min()), int(np.ptp(found)) + 1
        cell = found - least + size * np.arange(own.size)[:, None]
        mass = np.broadcast_to(h, found.shape).ravel()
        table = np.bincount(cell.ravel(), mass, own.size * size).astype(float)
        return NoisyReading(low, noise, least, table.reshape(-1, size))

    def _drawn_weights(self, node: int, law: Law, own: Integers, width: int) -> Reals:
        """Return the probability of each weight (a posterior draw) given each noisy count of a node."""
        drawn = np.arange(max(own[0] - width, 0), max(own[-1], 0) + width + 1)
        given = np.exp(law.logpmf(own[:, None] - drawn))
        if node not in self.below:
            whole = given.sum(axis=1, keepdims=True)
            return np.divide(given, whole, out=np.zeros_like(given), where=whole > 0)
        start, h = self.below[node]
        eta = self._noise_below(node, start + np.arange(h.size)[:, None] - drawn)
        whole = small_product(given, eta.T)  # of the posterior that the weight was drawn from, given both
        return given * small_product(np.divide(h, whole, out=np.zeros_like(whole), where=whole > 0), eta)

    def _parts(self, node: int) -> tuple[tuple[Law, int], ...]:
        """Return the noise laws of a node's children, each with the number of children that have it."""
        laws = [self.law[c] for c in self._children(node).tolist() if c in self.law]
        return tuple((law, laws.count(law)) for law in dict.fromkeys(laws))

    def _noise_below(self, node: int, noise: Integers) -> Reals:
        return np.exp(noise_of_sum(self._parts(node), int(np.abs(noise).max())).at(noise))

    def _split(self, node: int) -> ReleasedSplit | None:
        children, events, trials = self._children(node), NOTHING, 0
        member = np.full(children.size, -1)
        if node in self.member:
            parts, k = self.member[node], self.tree.counts[self.member[node]]
            member[parts - children[0]], trials = np.arange(parts.size), int(k.sum())
            readings = [self.reading[c] for c in parts.tolist()]
            if self.tree.release == DRAWN:
                events = draw_events(k, readings, self.rate[node], self.even[node] > 0)
            else:
                events = mode_events(k, readings, self.even[node])
        return join_split(children, member, [self.reading[c] for c in children.tolist()], events, trials)

    # --- from the root down ---------------------------------------------------------------------

    def _draw_noisy(self) -> None:
        """Draw the noisy counts and weights of all nodes, after `log_likelihood` made their tables."""
        root, self.sums = self.reading[0], dict[int, int]()
        self.noisy[0] = root.low + self._choose(root.noise * (1.0 if self.settled[0] else self._root()))
        self.weight[0] = self.tree.counts[0]
        self._draw_sum(0)
        for node, split in reversed(self.splits.items()):
            self._draw_children(split, self.sums[node])
            if node in self.member:
                self._settle(node)

    def _draw_sum(self, node: int) -> None:
        """Draw the sum of a node's noisy children, given the node's noisy count and weight."""
        if node not in self.below:
            return
        start, h = self.below[node]
        if not self.settled[node]:
            h = h * self._given_both(node, start + np.arange(h.size))
        self.sums[node] = start + self._choose(h)

    def _given_both(self, node: int, sums: Integers) -> Reals:
        """Return the probability of a node's weight, given its noisy count and its noisy children's sum."""
        law, own, a = self.law[node], self.noisy[node : node + 1], int(self.weight[node])
        if self.tree.algorithm == 2:
            return (modes(law, self._parts(node), own, sums)[0] == a).astype(float)
        weights = self.reading[node].weights
        every = self._noise_below(node, sums[:, None] - weights) * np.exp(law.logpmf(own[0] - weights))
        whole = every.sum(axis=1)
        return np.divide(every[:, a - weights[0]], whole, out=np.zeros_like(whole), where=whole > 0)

    def _draw_children(self, split: ReleasedSplit, total: int) -> None:
        """Draw the noisy counts of a split's children, given their sum."""
        masses, at = split.at(total), total - int(split.low.sum())
        while masses.any():
            event = self._choose(masses)
            tails = split.tails(event)
            if tails[0][at] > 0 and self._draw_event(split, event, tails, at):
                for node in split.children.tolist():
                    self._draw_sum(node)
                return
            masses[event] = 0.0
        raise far_apart()

    def _draw_event(self, split: ReleasedSplit, event: int, tails: list[Reals], at: int) -> bool:
        """Draw noisy counts in an event until their ties fit the event, and return False if they never do."""
        for _ in range(MAX_TIE_DRAWS):
            left, total, tied = at, 0, False
            for c, node in enumerate(split.children.tolist()):
                noise, tail = split.noisy[c][min(event, len(split.noisy[c]) - 1)], tails[c + 1]
                rest = left - np.arange(noise.size)
                inside = (rest >= 0) & (rest < tail.size)
                n = self._choose(noise * tail[np.where(inside, rest, 0)] * inside)
                left, self.noisy[node] = left - n, split.low[c] + n
                reading, part = self.reading[node], split.member[c]
                row = reading.table[n] * (1.0 if part < 0 else split.events.worth[part][event])
                self.weight[node] = a = reading.least + self._choose(row)
                if part >= 0:
                    total, tied = total + a, tied or a == split.events.tie[event, part]
            if split.events.has(event, bool(tied), total, split.trials):
                return True
        return False

    def _choose(self, masses: Reals) -> int:
        """Draw a position with probability proportional to the masses."""
        running = np.cumsum(masses)
        if not running[-1] > 0:
            raise far_apart()
        return int(np.searchsorted(running, self.rng.random() * running[-1], side="right"))

    def _settle(self, node: int) -> None:
        """Draw what else a split depends on: its auxiliary u, or the order of parts that tie."""
        member = self.member[node]
        k, a = self.tree.counts[member], self.weight[member]
        if self.tree.release == DRAWN:
            self.rate[node] = self.rng.gamma(k.sum(), 1.0) / (a.sum() or np.maximum(k, 1).sum())
        elif self.tree.release == SHUFFLED:
            order = compatible_order(k, a, self.rng)
            self.member[node] = member[order]
            self.even[node] = float(np.exp(log_even(k[order], False))) if self.tree.uniform else 0.0

    # --- true counts given noisy ones -----------------------------------------------------------

    def _draw_true(self) -> Integers:
        """Draw the true counts of the tree given the noisy ones."""
        problem, counts = self.tree.problem, self.tree.counts
        least, most = np.where(self.settled, counts, 0), np.where(self.settled, counts, np.int64(1) << 60)
        for depth in DEPTHS:
            table = FactorTable(least, most)
            table.add_prior(self.tree.prior, problem.nested.nodes[-1], depth)
            for header, at in zip(problem.headers, problem.nodes):
                free = at[~self.settled[at]]
                if not header.exact and free.size:
                    table.add_law(header.law, free, self.noisy[free], 2 * depth)
            solved = solve(problem.child_ptr, table.build(), TOLERANCE)
            if solved.dropped <= TOLERANCE:
                return joint_draws(solved, 1, self.rng)[0]
        raise far_apart()
