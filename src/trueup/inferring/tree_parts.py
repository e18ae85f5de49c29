"""Exact inference of a large tree by parts: messages up, the nodes above the parts, then draws down.

A first look at a part says where its roots' messages lie, so that tilts of the top can be found. Given these a part answers
`up` with the messages of its roots and keeps nothing; `down` works them out again. So tasks are pure, may be carried out
twice, and hold in memory one part, whose windows and tilts depend on it alone but for the tilts above its roots. Neither the
cut nor the seeds depend on the executor.

One file: the passes up and down one tree, which share what is known of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import Progress
from trueup.inferring.subtree_part import ALONE, FromAbove, SubtreePart, draw_part, look_at_part, send_part
from trueup.kernel.messages import above, below_marked, plan_pairs
from trueup.kernel.messages.downward import Exact, downward, mixed, mixed_above
from trueup.kernel.messages.partition import (
    Laid,
    Partition,
    Roots,
    mixed_roots,
    subtrees,
    take,
    take_factors,
    top_of,
    with_leaves,
    with_normal,
)
from trueup.kernel.messages.pmf import Factors, reach_all, uncoded
from trueup.kernel.messages.solve import (
    MOST_PASSES,
    NOTHING_ABOVE,
    Solved,
    Subtrees,
    hold_all,
    joint_draws,
    marginals,
    settle_tilts,
    tilt_part,
    too_short,
)
from trueup.kernel.messages.tails import PROBES
from trueup.kernel.messages.upward import Tilted, array_of
from trueup.layouts.factors import Split
from trueup.run import Executor, InTurn, Item, Result

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Weighted = tuple[float, Solved, int]
"""Weight in a mixture of a solved tree, and how many of the draws come from it."""
FIRST, ROUNDS, STRICTER = 1e-53, 3, 1e-6
"""Fraction of their share of the tolerance that parts leave out at first, since bounds of it grow on the way up: a pass on wide
windows takes less time than several on wider ones; most rounds in which windows below are widened to counts that the top finds
unlikely, and the factor by which less is then left out."""
MAX_LOST_MESSAGE_SHARE = 1e-3
"""Fraction of a root's message that may be lost for the top to say anything of it."""


class Seen(NamedTuple):
    """Windows of counts and tilts for a cut tree, chosen from a first look at all parts.

    Attributes
    ----------
    soon
        `(n,)` leaves whose tables end too soon.
    complete
        True if windows hold every count, so that deeper tables add nothing.
    tilted
        Windows and tilts of the top tree, whose leaves stand for the parts' roots.
    tau
        Tilts of each part alone, under each component.
    """

    soon: NDArray[np.bool_]
    complete: bool
    tilted: Tilted
    tau: list[list[Reals]]


class Top(NamedTuple):
    """The solved nodes above the parts of a cut tree, with what is known of the parts.

    Attributes
    ----------
    tree
        The tree that was cut.
    below
        Log evidence of the parts.
    inner, each, within
        Factors of the nodes above the roots; under each component of the parts, the roots' messages and log evidence
        `(components, roots)`.
    short
        `(n,)` nodes whose tables end too soon.
    sizes
        `(n,)` number of counts in the window of each node below the top's leaves.
    evidence_above
        `(roots,)` log evidence of the values above each root, as last sent to the parts (nats).
    """

    tree: CutTree
    solved: Solved
    parts: Sequence[SubtreePart]
    dropped: float
    below: float
    inner: Tilted
    each: list[Roots]
    within: Reals
    short: NDArray[np.bool_]
    sizes: NDArray[np.int32]
    evidence_above: Reals

    @property
    def evidence(self) -> float:
        """Return the log evidence (nats) of all values in the whole tree."""
        return self.solved.evidence + self.below


def weighed(top: Top, log_weights: Reals) -> Top:
    """Return the tree above the parts, solved again with other weights of each part's components."""
    roots, below = mixed_roots(top.each, top.within + log_weights[:, None])
    solved = settle_tilts(top.solved.plan, with_leaves(top.inner, roots), top.tree.tolerance)
    parts = InTurn(lambda b: replace(top.parts[b], log_weights=log_weights), len(top.parts))
    return top._replace(solved=solved, parts=parts, dropped=solved.dropped, below=float(below.sum()))


def drawn_from(tops: Sequence[Weighted], rng: np.random.Generator) -> Integers:
    """Return joint draws `(draws, n)` of counts from a mixture of solutions, in random order."""
    if len(tops) == 1:
        return joint_draws(tops[0][1], tops[0][2], rng)
    return rng.permutation(np.concatenate([joint_draws(top, count, rng) for _, top, count in tops if count]))


def mixture_weights(tops: Sequence[Weighted]) -> Reals:
    return np.array([weight for weight, _, _ in tops])


def narrowest(factors: Factors, parts: Sequence[SubtreePart], tops: Sequence[Weighted]) -> type:
    """Return the smallest integer type that holds the largest possible sum or squared count of draws."""
    leaves = sum(parts[b].leaves for b in range(len(parts)))
    most = int(reach_all(uncoded(factors))[1][-leaves:].max(initial=0))
    total = max(int(top.messages.offset[0]) + len(array_of(top.messages.masses, 0)) for _, top, _ in tops)
    return np.int32 if max(most**2, total) < 1 << 31 else np.int64


@dataclass(frozen=True, eq=False)
class CutTree:
    """A tree that is cut into parts, with the executor that works on the parts.

    Attributes
    ----------
    child_ptr, cut, factors
        The whole tree of `n` nodes, and where it is cut; without the divisors of `trueup.kernel.messages.kinds.with_divisors`.
    tolerance
        Largest posterior mass that may be dropped.
    executor
        Executor that works on the parts.
    components, log_weights
        If the counts below a root follow a mixture: the fields `SPLIT` of all nodes under each component, and log weights.
    """

    child_ptr: Integers
    cut: Partition
    factors: Factors
    tolerance: float
    executor: Executor
    components: Sequence[Split] = ()
    log_weights: Reals = field(default_factory=ALONE.copy)

    @property
    def roots(self) -> slice:
        """Return the nodes at which the tree is cut: leaves of the upper tree, and roots of parts."""
        return slice(*self.cut.edges[[0, -1]].tolist())

    def look(self) -> Seen:
        """Return windows of counts and tilts for the tree above the parts, from a look at every part."""
        roots, n = self.roots, len(self.child_ptr) - 1
        soon, complete, every, each = np.zeros(n, bool), True, [], []
        alone = self._parts(np.zeros(n), np.zeros((n, PROBES)), np.zeros(n), self.tolerance, 1)
        for b, (ended, whole, known, tau) in enumerate(self._in_order(look_at_part, alone)):
            soon[subtrees(self.child_ptr, *self.cut.edges[b : b + 2])[0]] = ended
            complete &= whole
            every.append(known)
            each.append(tau)
        known = Subtrees(*map(np.concatenate, zip(*every)))
        inner = take_factors(self.factors, np.arange(roots.start))
        tilted, _ = tilt_part(top_of(self.child_ptr, self.cut), with_normal(inner, known), below=known)
        return Seen(soon, complete and hold_all(tilted), tilted, each)

    def up(self, seen: Seen, before: Reals | None = None) -> Top:
        """Return the tree above the parts, solved with the messages of the parts.

        `before` is the evidence above the roots that was found with shallower tables.
        """
        tilted, roots = seen.tilted, self.roots
        first, last = roots.start, roots.stop
        inner, plan = take(tilted, np.arange(first)), plan_pairs(top_of(self.child_ptr, self.cut))
        count = len(self.cut.edges) - 1
        owner, evidence_above = np.repeat(np.arange(count), np.diff(self.cut.edges)), np.zeros(last - first)
        evidence_above = evidence_above if before is None else before
        settings: list[Any] = [None] * count
        answers: list[Any] = [None] * count
        again = np.arange(count)
        for attempt in range(ROUNDS + 1):
            passes = MOST_PASSES if attempt else 1  # once is enough for most
            tolerance = (STRICTER**attempt if attempt else FIRST) * self.tolerance
            fresh = self._parts(tilted.above, tilted.asked, evidence_above, tolerance, passes, seen.tau)
            some = InTurn(lambda i, fresh=fresh, again=again: fresh[again[i]], len(again))
            for b, answer in zip(again, self._in_order(send_part, some)):
                settings[b], answers[b] = fresh, answer
            each = [_joined_roots(roots) for roots in zip(*(answer[0] for answer in answers))]
            within = np.concatenate([answer[1] for answer in answers], axis=1)
            joined, below = mixed_roots(each, within + self.log_weights[:, None])
            solved = settle_tilts(plan, with_leaves(inner, joined), self.tolerance)
            if solved.dropped <= self.tolerance:
                break
            every = above(plan, solved.messages.passed, NOTHING_ABOVE)
            known = every[first:last]
            hopeless = (
                joined.lost[:, 0].max() > np.log(MAX_LOST_MESSAGE_SHARE) or not np.isfinite(known).all()
            )
            if hopeless and attempt:  # deeper tables below are wanted first
                break
            evidence_above = evidence_above if hopeless else known
            with np.errstate(over="ignore"):
                missing = np.bincount(owner, np.exp(joined.lost[:, 0] - evidence_above))
            narrow = below_marked(
                plan, solved.messages.short > 0.1 * self.tolerance / len(every) * np.exp(every)
            )
            wider = np.bincount(owner, narrow[first:last]) > 0  # sums of these end where they do
            again = np.flatnonzero(wider | (missing > 0.1 * self.tolerance / count))
            if not again.size:
                break
        parts = InTurn(lambda b: settings[b][b], count)
        short, sizes = self._short(solved, answers)
        return Top(
            self,
            solved,
            parts,
            solved.dropped,
            float(below.sum()),
            inner,
            each,
            within,
            short,
            sizes,
            evidence_above,
        )

    def _short(self, solved: Solved, answers: Sequence[Any]) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
        """Return a mask of the nodes whose tables are too short, and the sizes of windows in the parts."""
        n, last = len(self.child_ptr) - 1, self.roots.stop
        short, sizes = np.zeros(n, bool), np.zeros(n, np.int32)
        short[:last] = too_short(top_of(self.child_ptr, self.cut), solved, self.tolerance)
        for (begin, end), answer in zip(pairwise(self.cut.edges), answers):
            nodes = subtrees(self.child_ptr, begin, end)[0]
            short[nodes] |= answer[2] | short[begin:end].any()  # a root is as wide as what is below it
            sizes[nodes] = answer[3]
        return short, sizes

    def down(
        self, below: Top, tops: Sequence[Weighted], rng: np.random.Generator, progress: Progress
    ) -> tuple[Exact, Integers, float]:
        """Return marginals of all nodes, draws `(draws, leaves)` of the last level, and a bound on rounding.

        `tops` are the solutions that the top is a mixture of.
        """
        draws = sum(count for _, _, count in tops)
        items, exact, kind, moved = self.items(below, tops, rng)
        edges, leaves = self.cut.edges, self.cut.leaves - self.cut.leaves[0]
        laid = Laid(np.arange(edges[0]), exact, below.sizes)
        counts, roundings = np.empty((draws, leaves[-1]), kind), [0.0]
        for done, (at, part) in enumerate(self.executor.map(draw_part, items), start=1):
            laid.add(subtrees(self.child_ptr, *edges[at : at + 2])[0], part.marginals)
            counts[:, leaves[at] : leaves[at + 1]] = part.counts
            roundings.append(part.rounding)
            progress(draws * done // len(items), draws)
        return laid.exact, counts, moved + max(roundings)

    def items(
        self, below: Top, tops: Sequence[Weighted], rng: np.random.Generator
    ) -> tuple[Sequence[tuple[SubtreePart, FromAbove]], Exact, type, float]:
        """Return the inputs of `draw_part` for every part, with marginals of the nodes above the parts."""
        from_top = [downward(*top[:3]) for _, top, _ in tops]
        kind = narrowest(self.factors, below.parts, tops)
        known = list(self._from_above(tops, from_top, rng, kind))
        items = InTurn(lambda b: (below.parts[b], known[b]), len(known))
        exact = mixed([marginals(top) for _, top, _ in tops], mixture_weights(tops))
        return items, exact, kind, max(moved for _, moved in from_top)

    def _from_above(
        self,
        tops: Sequence[Weighted],
        from_top: Sequence[tuple[Sequence[Reals], float]],
        rng: np.random.Generator,
        kind: type = np.int64,
    ) -> Iterator[FromAbove]:
        """Yield the message from above to each part, given the downward messages above the parts."""
        counts = drawn_from(tops, rng).T
        offsets = [top.messages.offset for _, top, _ in tops]
        roots = slice(*self.cut.edges[[0, -1]])
        offset, weights = mixed_above(offsets, [down for down, _ in from_top], mixture_weights(tops), roots)
        seeds = rng.bit_generator.seed_seq.spawn(len(self.cut.edges) - 1)  # pyright: ignore[reportAttributeAccessIssue]
        for (first, last), seed in zip(pairwise(self.cut.edges), seeds):
            own = slice(first - self.cut.edges[0], last - self.cut.edges[0])
            yield FromAbove(weights[own], offset[own], counts[first:last], seed, kind)

    def _parts(
        self,
        tilts: Reals,
        asked: Reals,
        evidence_above: Reals,
        tolerance: float,
        passes: int,
        tau: Sequence[Sequence[Reals]] = (),
    ) -> Sequence[SubtreePart]:
        """Return the parts of a cut tree as a sequence that makes each part when it is read.

        `tilts` and `asked` belong to all nodes down to the roots, `evidence_above` to the roots; `tau` comes from the first look.
        """
        leaves, n = np.diff(self.cut.leaves), len(self.child_ptr) - 1

        def part(b: int) -> SubtreePart:
            first, last = self.cut.edges[b : b + 2].tolist()
            nodes, child_ptr = subtrees(self.child_ptr, first, last)
            own = slice(first - self.roots.start, last - self.roots.start)
            components = tuple(tuple(field[nodes] for field in one) for one in self.components)
            return SubtreePart(
                child_ptr,
                take_factors(self.factors, nodes),
                int(leaves[b]),
                tolerance * len(nodes) / n,
                tilts[first:last],
                asked[first:last],
                evidence_above[own],
                passes,
                components,  # pyright: ignore[reportArgumentType]
                self.log_weights,
                tau[b] if tau else (),
            )

        return InTurn(part, len(self.cut.edges) - 1)

    def _in_order(self, task: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        answers = dict(self.executor.map(task, items))
        return [answers[at] for at in range(len(items))]


def _joined_roots(parts: Sequence[Roots]) -> Roots:
    masses = [one for part in parts for one in part.masses]
    return Roots(masses, *(np.concatenate(field) for field in list(zip(*parts))[1:]))
