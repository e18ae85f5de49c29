"""The posterior on a large tree by bundles of subtrees: messages up, the top solved, marginals and draws down.

A bundle answers `up` with the messages of its roots and keeps nothing; `down` works them out again. So tasks are pure,
may be carried out twice, and hold in memory one bundle. Neither the cut nor the seeds depend on the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import Progress
from trueup.kernel.messages.downward import downward
from trueup.kernel.messages.mixture import Exact, mixed, mixed_above
from trueup.kernel.messages.pairs import above, plan_pairs
from trueup.kernel.messages.partition import (
    Partition,
    Roots,
    roots_of,
    spread_messages,
    subtrees,
    take,
    top_of,
    with_leaves,
)
from trueup.kernel.messages.solve import (
    MOST_PASSES,
    NOTHING_ABOVE,
    Solved,
    joint_draws,
    marginals,
    rounded_marginals,
    settle_tilts,
    too_short,
)
from trueup.kernel.messages.splits import mean_rises
from trueup.kernel.messages.upward import Tilted
from trueup.run.executor import Executor, Item, Result

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Part = tuple[float, Solved, int]
"""Weight in a mixture of a solved tree, and how many of the draws come from it."""
ROUNDS, STRICTER = 3, 1e-6
"""How often windows below are widened to what the top is surprised by, and by which factor they then leave out less."""
HOPELESS = 1e-3
"""Fraction of a root's message that may be lost for the top to say anything of it."""
BLOCK = 1000
"""Draws at once."""


@dataclass(frozen=True, eq=False)
class SubtreePart:
    """Subtrees of the roots `0:len(surprise)`.

    Attributes
    ----------
    child_ptr, tilted
        Their nodes, in level order.
    surprise
        `(roots,)` log evidence of what is above each root, as far as it is known.
    tolerance
        Of the posterior mass that may be dropped, the bundle's part.
    leaves
        How many of its nodes, the last ones, are of the tree's last level.
    passes
        How often messages may be passed up to widen windows.
    """

    child_ptr: Integers
    tilted: Tilted
    surprise: Reals
    tolerance: float
    leaves: int
    passes: int

    def solve(self) -> Solved:
        """Pass messages up to the roots."""
        return settle_tilts(
            plan_pairs(self.child_ptr), self.tilted, self.tolerance, self.surprise, self.passes
        )


class FromAbove(NamedTuple):
    """What the top tells a bundle: the mass that the rest of the tree gives to each root's count, and drawn counts.

    `weights[r][0]` belongs to the count `offset[r]`; `counts` is `(roots, draws)`.
    """

    weights: list[Reals]
    offset: Integers
    counts: Integers
    seed: np.random.SeedSequence

    def on(self, solved: Solved) -> list[Reals]:
        """Place the weights on the windows of the roots' messages."""
        messages = solved.messages
        return [
            _on_window(w, int(offset - messages.offset[v]), len(messages.masses[v]))
            for v, (w, offset) in enumerate(zip(self.weights, self.offset))
        ]


class Below(NamedTuple):
    """Marginals of all nodes of a bundle, draws `(draws, leaves)` of the last level, and what rounding may have moved."""

    marginals: Exact
    counts: Integers
    rounding: float


class Top(NamedTuple):
    """The top tree, solved, with the bundles below it; `dropped` is that of the whole tree.

    Attributes
    ----------
    tilted
        The whole tree.
    below
        Log evidence of the bundles.
    short
        `(n,)` nodes whose tables end too soon.
    """

    solved: Solved
    bundles: list[SubtreePart]
    dropped: float
    tilted: Tilted
    below: float
    short: NDArray[np.bool_]

    @property
    def evidence(self) -> float:
        """Log evidence of the whole tree (nats)."""
        return self.solved.evidence + self.below


def send_part(bundle: SubtreePart) -> tuple[Roots, float, NDArray[np.bool_]]:
    """Return the messages of a bundle's roots, its log evidence, and the nodes whose tables end too soon."""
    solved = bundle.solve()
    short = too_short(bundle.child_ptr, solved, bundle.tolerance, bundle.surprise)
    return roots_of(solved, len(bundle.surprise)), solved.evidence, short


def draw_part(item: tuple[SubtreePart, FromAbove]) -> Below:
    """Return what a bundle's counts may be, given what is above its roots."""
    bundle, known = item
    solved, rng = bundle.solve(), np.random.default_rng(known.seed)
    weights = known.on(solved)
    n, draws = len(bundle.tilted.low), known.counts.shape[1]
    counts = np.empty((draws, bundle.leaves), np.int64)
    for first in range(0, draws, BLOCK):
        part = slice(first, first + BLOCK)
        given = np.ascontiguousarray(known.counts[:, part])
        counts[part] = joint_draws(solved, given.shape[1], rng, given)[:, n - bundle.leaves :]
    exact, rounding = rounded_marginals(solved, weights)
    return Below(exact, counts, rounding)


def expect_part(item: tuple[SubtreePart, FromAbove]) -> Reals:
    """Return what `ByBundles.expected` needs of a bundle's nodes."""
    bundle, known = item
    solved = bundle.solve()
    return expected_of(solved, marginals(solved, known.on(solved)))


def expected_of(solved: Solved, exact: Exact) -> Reals:
    """Return `(4, n)` posterior expectations of every node: the two rises of `Splits.gradient`, mean and standard deviation."""
    start, offset, masses = exact
    factors = solved.tilted.factors
    at = np.arange(len(masses)) - np.repeat(start[:-1], np.diff(start))
    mean = np.add.reduceat(masses * at, start[:-1])
    variance = np.add.reduceat(masses * at**2, start[:-1]) - mean**2
    rises = mean_rises(*exact, factors.alpha), mean_rises(*exact, factors.total)
    return np.array([*rises, offset + mean, np.sqrt(np.maximum(variance, 0.0))], np.float64)


def drawn_from(tops: Sequence[Part], rng: np.random.Generator) -> Integers:
    """Return joint draws `(draws, n)` of a mixture of solutions, in random order."""
    if len(tops) == 1:
        return joint_draws(tops[0][1], tops[0][2], rng)
    return rng.permutation(np.concatenate([joint_draws(top, count, rng) for _, top, count in tops if count]))


def _weights(tops: Sequence[Part]) -> Reals:
    return np.array([weight for weight, _, _ in tops])


def _on_window(weights: Reals, shift: int, size: int) -> Reals:
    """Place weights on a window that holds theirs."""
    out = np.zeros(size)
    out[shift : shift + len(weights)] = weights
    return out


@dataclass(frozen=True, eq=False)
class ByBundles:
    """A cut tree and who works on its bundles.

    Attributes
    ----------
    child_ptr, cut
        The whole tree of `n` nodes, and where it is cut.
    tolerance
        Largest posterior mass that may be dropped.
    executor
        Carries out `up` and `down`.
    """

    child_ptr: Integers
    cut: Partition
    tolerance: float
    executor: Executor

    def up(self, tilted: Tilted) -> Top:
        """Solve the top given what bundles know; once more those whose windows it finds too narrow."""
        first, last = self.cut.edges[[0, -1]]
        inner, plan = take(tilted, np.arange(first)), plan_pairs(top_of(self.child_ptr, self.cut))
        count = len(self.cut.edges) - 1
        owner, surprise = np.repeat(np.arange(count), np.diff(self.cut.edges)), np.zeros(last - first)
        bundles: list[Any] = [None] * count
        answers: list[Any] = [None] * count
        again = np.arange(count)
        for attempt in range(ROUNDS + 1):
            passes = MOST_PASSES if attempt else 1  # once is enough for most
            fresh = self._bundles(tilted, surprise, STRICTER ** max(attempt, 1), passes)
            for b, answer in zip(again, self._in_order(send_part, [fresh[b] for b in again])):
                bundles[b], answers[b] = fresh[b], answer
            roots = _joined_roots([answer[0] for answer in answers])
            solved = settle_tilts(plan, with_leaves(inner, roots), self.tolerance)
            if solved.dropped <= self.tolerance:
                break
            known = above(plan, solved.messages.passed, NOTHING_ABOVE)[first:last]
            hopeless = roots.lost[:, 0].max() > HOPELESS or not np.isfinite(known).all()
            if hopeless and attempt:  # deeper tables below are wanted first
                break
            surprise = surprise if hopeless else known
            missing = np.bincount(owner, roots.lost[:, 0] * np.exp(-surprise))
            again = np.flatnonzero(missing > 0.1 * self.tolerance / count)
            if not again.size:
                break
        short = np.zeros(len(tilted.low), bool)
        short[:last] = too_short(top_of(self.child_ptr, self.cut), solved, self.tolerance)
        for (begin, end), answer in zip(pairwise(self.cut.edges), answers):
            short[subtrees(self.child_ptr, begin, end)[0]] |= answer[2]
        below = sum(answer[1] for answer in answers)
        return Top(solved, bundles, solved.dropped, tilted, below, short)

    def expected(self, top: Top) -> Reals:
        """Return the expectations `(4, n)` of `expected_of`."""
        from_top = [downward(*top.solved[:3])]
        known = self._from_above([(1.0, top.solved, 0)], from_top, np.random.default_rng(0))
        items = list(zip(top.bundles, known))
        out = np.zeros((4, len(self.child_ptr) - 1))
        first = self.cut.edges[0]
        out[:, :first] = expected_of(top.solved, marginals(top.solved))[:, :first]
        for at, own in self.executor.map(expect_part, items):
            out[:, subtrees(self.child_ptr, *self.cut.edges[at : at + 2])[0]] = own
        return out

    def down(
        self, bundles: list[SubtreePart], tops: Sequence[Part], rng: np.random.Generator, progress: Progress
    ) -> tuple[Exact, Integers, float]:
        """Return marginals of all nodes, draws `(draws, leaves)` of the last level, and what rounding may have moved.

        `tops` are the solutions that the top is a mixture of.
        """
        draws = sum(count for _, _, count in tops)
        from_top = [downward(*top[:3]) for _, top, _ in tops]
        items = list(zip(bundles, self._from_above(tops, from_top, rng)))
        edges, leaves = self.cut.edges, self.cut.leaves - self.cut.leaves[0]
        parts = [(np.arange(edges[0]), mixed([marginals(top) for _, top, _ in tops], _weights(tops)))]
        counts, roundings = np.empty((draws, leaves[-1]), np.int64), [0.0]
        for done, (at, below) in enumerate(self.executor.map(draw_part, items), start=1):
            parts.append((subtrees(self.child_ptr, *edges[at : at + 2])[0], below.marginals))
            counts[:, leaves[at] : leaves[at + 1]] = below.counts
            roundings.append(below.rounding)
            progress(draws * done // len(items), draws)
        rounding = max(moved for _, moved in from_top) + max(roundings)
        return _joined(len(self.child_ptr) - 1, parts), counts, rounding

    def _from_above(
        self,
        tops: Sequence[Part],
        from_top: Sequence[tuple[Sequence[Reals], float]],
        rng: np.random.Generator,
    ) -> Iterator[FromAbove]:
        """What the top knows of every bundle's roots, given its messages down."""
        counts = drawn_from(tops, rng).T
        offsets = [top.messages.offset for _, top, _ in tops]
        roots = slice(*self.cut.edges[[0, -1]])
        offset, weights = mixed_above(offsets, [down for down, _ in from_top], _weights(tops), roots)
        seeds = rng.bit_generator.seed_seq.spawn(len(self.cut.edges) - 1)  # pyright: ignore[reportAttributeAccessIssue]
        for (first, last), seed in zip(pairwise(self.cut.edges), seeds):
            own = slice(first - self.cut.edges[0], last - self.cut.edges[0])
            yield FromAbove(weights[own], offset[own], counts[first:last], seed)

    def _bundles(self, tilted: Tilted, surprise: Reals, factor: float, passes: int) -> list[SubtreePart]:
        """The bundles of the cut; each may drop the part of the tolerance, times a factor, that its nodes are of all."""
        bundles, leaves = [], np.diff(self.cut.leaves)
        for b, (first, last) in enumerate(pairwise(self.cut.edges)):
            nodes, child_ptr = subtrees(self.child_ptr, first, last)
            known = surprise[first - self.cut.edges[0] : last - self.cut.edges[0]]
            tolerance = factor * self.tolerance * len(nodes) / len(tilted.low)
            bundles.append(
                SubtreePart(child_ptr, take(tilted, nodes), known, tolerance, int(leaves[b]), passes)
            )
        return bundles

    def _in_order(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        answers = dict(self.executor.map(task, items))
        return [answers[at] for at in range(len(items))]


def _joined_roots(parts: Sequence[Roots]) -> Roots:
    masses = [one for part in parts for one in part.masses]
    return Roots(masses, *(np.concatenate(field) for field in list(zip(*parts))[1:]))


def _joined(n: int, parts: Sequence[tuple[Integers, Exact]]) -> Exact:
    """Lay the marginals of parts of a tree end to end in the order of its `n` nodes."""
    sizes, offset = np.empty(n, np.int64), np.empty(n, np.int64)
    for nodes, (start, first, _) in parts:
        sizes[nodes], offset[nodes] = np.diff(start)[: len(nodes)], first[: len(nodes)]
    begin = np.concatenate([[0], np.cumsum(sizes)])
    masses = np.empty(begin[-1])
    for nodes, (start, _, own) in parts:
        masses[spread_messages(begin[nodes], sizes[nodes])] = own[: start[len(nodes)]]
    return begin, offset, masses
