"""The posterior on a large tree by parts, which hold subtrees: messages up, the top solved, marginals and draws down.

A part answers `up` with the messages of its roots and keeps nothing; `down` works them out again. So tasks are pure,
may be carried out twice, and hold in memory one part. Neither the cut nor the seeds depend on the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import Progress
from trueup.inferring.subtree_part import (
    ALONE,
    FromAbove,
    SubtreePart,
    draw_part,
    expect_part,
    expected_of,
    send_part,
)
from trueup.kernel.messages.downward import downward
from trueup.kernel.messages.mixture import Exact, mixed, mixed_above
from trueup.kernel.messages.pairs import above, below_marked, plan_pairs
from trueup.kernel.messages.partition import (
    Laid,
    Partition,
    Roots,
    mixed_roots,
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
    settle_tilts,
    too_short,
)
from trueup.kernel.messages.upward import Tilted, array_of
from trueup.run.executor import Executor, Item, Result

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Weighted = tuple[float, Solved, int]
"""Weight in a mixture of a solved tree, and how many of the draws come from it."""
ROUNDS, STRICTER = 3, 1e-6
"""How often windows below are widened to counts that the top finds unlikely, and by which factor less they then leave out."""
HOPELESS = 1e-3
"""Fraction of a root's message that may be lost for the top to say anything of it."""


class Top(NamedTuple):
    """The top tree, solved, with the parts below it; `dropped` is that of the whole tree.

    Attributes
    ----------
    below
        Log evidence of the parts.
    inner, each, within
        Factors of the nodes above the roots; under each component of what is below, the roots' messages and log evidence
        `(components, roots)`.
    short
        `(n,)` nodes whose tables end too soon.
    sizes
        `(n,)` how many counts the window of each node below the top's leaves has.
    """

    solved: Solved
    parts: list[SubtreePart]
    dropped: float
    below: float
    inner: Tilted
    each: list[Roots]
    within: Reals
    short: NDArray[np.bool_]
    sizes: Integers

    @property
    def evidence(self) -> float:
        """Return the log evidence of the whole tree (nats)."""
        return self.solved.evidence + self.below


def drawn_from(tops: Sequence[Weighted], rng: np.random.Generator) -> Integers:
    """Return joint draws `(draws, n)` of a mixture of solutions, in random order."""
    if len(tops) == 1:
        return joint_draws(tops[0][1], tops[0][2], rng)
    return rng.permutation(np.concatenate([joint_draws(top, count, rng) for _, top, count in tops if count]))


def _mixture_weights(tops: Sequence[Weighted]) -> Reals:
    return np.array([weight for weight, _, _ in tops])


@dataclass(frozen=True, eq=False)
class CutTree:
    """A cut tree, and the executor that works on its parts.

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

    def up(self, tilted: Tilted, components: Sequence[Tilted] = (), log_weights: Reals = ALONE) -> Top:
        """Solve the top given the parts' messages, solving again those whose windows it finds too narrow.

        Where what is below a root follows a mixture: all nodes under each of its `components`, and the log weights.
        """
        components = [_meeting(one, tilted, slice(*self.cut.edges[[0, -1]])) for one in components]
        first, last = self.cut.edges[[0, -1]]
        inner, plan = take(tilted, np.arange(first)), plan_pairs(top_of(self.child_ptr, self.cut))
        count = len(self.cut.edges) - 1
        owner, evidence_above = np.repeat(np.arange(count), np.diff(self.cut.edges)), np.zeros(last - first)
        parts: list[Any] = [None] * count
        answers: list[Any] = [None] * count
        again = np.arange(count)
        for attempt in range(ROUNDS + 1):
            passes = MOST_PASSES if attempt else 1  # once is enough for most
            fresh = self._parts(
                tilted, evidence_above, STRICTER ** max(attempt, 1), passes, components, log_weights
            )
            for b, answer in zip(again, self._in_order(send_part, [fresh[b] for b in again])):
                parts[b], answers[b] = fresh[b], answer
            each = [_joined_roots(roots) for roots in zip(*(answer[0] for answer in answers))]
            within = np.concatenate([answer[1] for answer in answers], axis=1)
            roots, below = mixed_roots(each, within + log_weights[:, None])
            solved = settle_tilts(plan, with_leaves(inner, roots), self.tolerance)
            if solved.dropped <= self.tolerance:
                break
            every = above(plan, solved.messages.passed, NOTHING_ABOVE)
            known = every[first:last]
            hopeless = roots.lost[:, 0].max() > np.log(HOPELESS) or not np.isfinite(known).all()
            if hopeless and attempt:  # deeper tables below are wanted first
                break
            evidence_above = evidence_above if hopeless else known
            with np.errstate(over="ignore"):
                missing = np.bincount(owner, np.exp(roots.lost[:, 0] - evidence_above))
            narrow = below_marked(
                plan, solved.messages.short > 0.1 * self.tolerance / len(every) * np.exp(every)
            )
            wider = np.bincount(owner, narrow[first:last]) > 0  # sums of these end where they do
            again = np.flatnonzero(wider | (missing > 0.1 * self.tolerance / count))
            if not again.size:
                break
        short = np.zeros(len(tilted.low), bool)
        short[:last] = too_short(top_of(self.child_ptr, self.cut), solved, self.tolerance)
        sizes = np.zeros(len(tilted.low), np.int64)
        for (begin, end), answer in zip(pairwise(self.cut.edges), answers):
            nodes = subtrees(self.child_ptr, begin, end)[0]
            short[nodes] |= answer[2]
            sizes[nodes] = answer[3]
        return Top(solved, parts, solved.dropped, float(below.sum()), inner, each, within, short, sizes)

    def weighed(self, top: Top, log_weights: Reals) -> Top:
        """Solve the top again with other mixture weights for what is below each root."""
        roots, below = mixed_roots(top.each, top.within + log_weights[:, None])
        solved = settle_tilts(top.solved.plan, with_leaves(top.inner, roots), self.tolerance)
        parts = [replace(part, log_weights=log_weights) for part in top.parts]
        return top._replace(solved=solved, parts=parts, dropped=solved.dropped, below=float(below.sum()))

    def expected(self, top: Top) -> Reals:
        """Return the expectations `(6, n)` of `expected_of`."""
        from_top = [downward(*top.solved[:3])]
        known = self._from_above([(1.0, top.solved, 0)], from_top, np.random.default_rng(0))
        items = list(zip(top.parts, known))
        out = np.zeros((6, len(self.child_ptr) - 1))
        first = self.cut.edges[0]
        out[:, :first] = expected_of(top.solved, marginals(top.solved))[:, :first]
        for at, own in self.executor.map(expect_part, items):
            out[:, subtrees(self.child_ptr, *self.cut.edges[at : at + 2])[0]] = own
        return out

    def down(
        self, below: Top, tops: Sequence[Weighted], rng: np.random.Generator, progress: Progress
    ) -> tuple[Exact, Integers, float]:
        """Return marginals of all nodes, draws `(draws, leaves)` of the last level, and a bound of rounding.

        `tops` are the solutions that the top is a mixture of.
        """
        draws = sum(count for _, _, count in tops)
        from_top = [downward(*top[:3]) for _, top, _ in tops]
        kind = _narrowest(below.parts, tops)
        items = list(zip(below.parts, self._from_above(tops, from_top, rng, kind)))
        edges, leaves = self.cut.edges, self.cut.leaves - self.cut.leaves[0]
        laid = Laid(
            np.arange(edges[0]),
            mixed([marginals(top) for _, top, _ in tops], _mixture_weights(tops)),
            below.sizes,
        )
        counts, roundings = np.empty((draws, leaves[-1]), kind), [0.0]
        for done, (at, part) in enumerate(self.executor.map(draw_part, items), start=1):
            laid.add(subtrees(self.child_ptr, *edges[at : at + 2])[0], part.marginals)
            counts[:, leaves[at] : leaves[at + 1]] = part.counts
            roundings.append(part.rounding)
            progress(draws * done // len(items), draws)
        rounding = max(moved for _, moved in from_top) + max(roundings)
        return laid.exact, counts, rounding

    def _from_above(
        self,
        tops: Sequence[Weighted],
        from_top: Sequence[tuple[Sequence[Reals], float]],
        rng: np.random.Generator,
        kind: type = np.int64,
    ) -> Iterator[FromAbove]:
        """Yield the top's message to each part, given its messages down; leaves are drawn as numbers of a `kind`."""
        counts = drawn_from(tops, rng).T
        offsets = [top.messages.offset for _, top, _ in tops]
        roots = slice(*self.cut.edges[[0, -1]])
        offset, weights = mixed_above(offsets, [down for down, _ in from_top], _mixture_weights(tops), roots)
        seeds = rng.bit_generator.seed_seq.spawn(len(self.cut.edges) - 1)  # pyright: ignore[reportAttributeAccessIssue]
        for (first, last), seed in zip(pairwise(self.cut.edges), seeds):
            own = slice(first - self.cut.edges[0], last - self.cut.edges[0])
            yield FromAbove(weights[own], offset[own], counts[first:last], seed, kind)

    def _parts(
        self,
        tilted: Tilted,
        evidence_above: Reals,
        factor: float,
        passes: int,
        components: Sequence[Tilted],
        log_weights: Reals,
    ) -> list[SubtreePart]:
        """Return the parts of the cut; each may drop its nodes' share of the tolerance, times a factor."""
        parts, leaves = [], np.diff(self.cut.leaves)
        for b, (first, last) in enumerate(pairwise(self.cut.edges)):
            nodes, child_ptr = subtrees(self.child_ptr, first, last)
            known = evidence_above[first - self.cut.edges[0] : last - self.cut.edges[0]]
            tolerance = factor * self.tolerance * len(nodes) / len(tilted.low)
            own = take(tilted, nodes), known, tolerance, int(leaves[b]), passes
            each = tuple(take(component, nodes) for component in components)
            parts.append(SubtreePart(child_ptr, *own, each, log_weights))
        return parts

    def _in_order(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        answers = dict(self.executor.map(task, items))
        return [answers[at] for at in range(len(items))]


def _meeting(component: Tilted, tilted: Tilted, roots: slice) -> Tilted:
    """Give the messages of roots the top's tilts; below the roots, each component has its own."""
    slope, above, asked = component.slope.copy(), component.above.copy(), component.asked.copy()
    slope[roots] += tilted.above[roots] - above[roots]
    above[roots], asked[roots] = tilted.above[roots], tilted.asked[roots]
    return component._replace(slope=slope, above=above, asked=asked)


def _narrowest(parts: Sequence[SubtreePart], tops: Sequence[Weighted]) -> type:
    """Return the narrowest type for drawn leaves: half as wide if it holds all their sums and squares."""
    most = max(int(part.tilted.high[-part.leaves :].max(initial=0)) for part in parts)
    total = max(int(top.messages.offset[0]) + len(array_of(top.messages.masses, 0)) for _, top, _ in tops)
    return np.int32 if max(most**2, total) < 1 << 31 else np.int64


def _joined_roots(parts: Sequence[Roots]) -> Roots:
    masses = [one for part in parts for one in part.masses]
    return Roots(masses, *(np.concatenate(field) for field in list(zip(*parts))[1:]))
