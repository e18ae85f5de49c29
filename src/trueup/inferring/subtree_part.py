"""A part of a large tree: its message to the nodes above it, and its marginals and draws given those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages import mean_rises, plan_pairs, sums_below
from trueup.kernel.messages.downward import Exact, mixed, window_sizes
from trueup.kernel.messages.kinds import mean_slopes, with_divisors
from trueup.kernel.messages.partition import Roots, roots_of
from trueup.kernel.messages.pmf import SPLIT, Factors, reach_all
from trueup.kernel.messages.solve import (
    Solved,
    Subtrees,
    end_too_soon,
    hold_all,
    joint_draws,
    rounded_marginals,
    settle_tilts,
    tilt_part,
    too_short,
)
from trueup.kernel.messages.tilting import bounds
from trueup.kernel.messages.upward import Tilted, array_of
from trueup.layouts.factors import Split

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
DRAWS_AT_ONCE = 1000
"""Draws at once."""
ALONE = np.zeros(1)
"""Log weight of the only component there is."""


@dataclass(frozen=True, eq=False)
class SubtreePart:
    """A part of a tree: subtrees below the roots `0:len(above)`, solved without the other parts.

    Attributes
    ----------
    child_ptr, factors
        Their nodes, in level order.
    leaves
        Number of nodes, the last ones of the part, on the tree's last level.
    tolerance
        This part's share of the posterior mass that may be dropped.
    above, asked
        `(roots,)` the tilts above the roots, and `(roots, PROBES)` those at which the top asks for bounds; 0 until it is solved.
    evidence_above
        `(roots,)` log evidence of the values above each root, as far as it is known.
    passes
        Largest number of passes up, which widen windows.
    components, log_weights
        If the counts below a root follow a mixture: the fields `SPLIT` under each of the components, and the log weights
        `(components,)`. The nodes below the roots are then leaves.
    tau
        Tilts of its nodes under each component, if these were found before.
    """

    child_ptr: Integers
    factors: Factors
    leaves: int
    tolerance: float
    above: Reals
    asked: Reals
    evidence_above: Reals
    passes: int = 1
    components: tuple[Split, ...] = ()
    log_weights: Reals = field(default_factory=ALONE.copy)
    tau: Sequence[Reals] = ()

    def tilted(self) -> Iterator[tuple[Tilted, Subtrees]]:
        """Yield, for each component of the prior, the part's tilted factors and bounds on its messages."""
        roots = slice(len(self.above))
        for at, split in enumerate(self.components or (None,)):
            own = self.factors if split is None else self.factors._replace(**dict(zip(SPLIT, split)))
            own = with_divisors(own, *bounds(self.child_ptr, *reach_all(own)))
            tilted, known = tilt_part(self.child_ptr, own, self.tau[at] if self.tau else None, self.above)
            tilted.above[roots], tilted.asked[roots] = self.above, self.asked
            yield tilted, known

    def solve(self) -> list[Solved]:
        """Return, for each component of the prior, the part with messages sent up to its roots."""
        plan = plan_pairs(self.child_ptr)
        return [
            settle_tilts(plan, one, self.tolerance, self.evidence_above, self.passes)
            for one, _ in self.tilted()
        ]

    def evidence(self, each: Sequence[Solved]) -> Reals:
        """Return the log evidence `(components, roots)` (nats) of the values at and below each root."""
        n, roots = len(self.factors.lower), slice(len(self.above))
        own = np.array([one.messages.evidence for one in each])
        own[:, :n] += [one.tilted.top for one in each]
        return np.array([sums_below(one.plan, at)[roots] for one, at in zip(each, own)])

    def root_of(self) -> Integers:
        """Return the root of every node in a forest in which all other nodes are leaves."""
        roots = np.arange(len(self.above))
        return np.concatenate([roots, np.repeat(roots, np.diff(self.child_ptr)[roots])])


class FromAbove(NamedTuple):
    """The message from above to a part: the probabilities of each root's counts, and drawn counts.

    `weights[r][0]` belongs to the count `offset[r]`; `counts` is `(roots, draws)`; draws of leaves are to be of the type `kind`.
    """

    weights: list[Reals]
    offset: Integers
    counts: Integers
    seed: np.random.SeedSequence
    kind: type

    def on(self, solved: Solved) -> list[Reals]:
        """Return the probabilities of the roots' counts, on the windows of the part's own messages."""
        messages = solved.messages
        return [
            _on_window(w, int(offset - messages.offset[v]), len(array_of(messages.masses, v)))
            for v, (w, offset) in enumerate(zip(self.weights, self.offset))
        ]


class Components(NamedTuple):
    """A part solved under each component of the prior, with the probabilities of the components.

    `log_weights` are `(components, roots)` given what is below alone, `chances` given all.
    """

    each: list[Solved]
    log_weights: Reals
    weights: list[list[Reals]]
    chances: Reals

    @classmethod
    def of(cls, part: SubtreePart, known: FromAbove) -> Components:
        """Return a part solved under each component of the prior, with their probabilities at each root."""
        each = part.solve()
        weights = [known.on(solved) for solved in each]
        if len(each) == 1:
            return cls(each, np.zeros((1, len(weights[0]))), weights, np.ones((1, len(weights[0]))))
        log_weights = part.evidence(each) + part.log_weights[:, None]
        log_weights -= np.logaddexp.reduce(log_weights, axis=0)
        chances = np.exp(log_weights)
        for j, solved in enumerate(each):
            for r, own in enumerate(weights[j]):
                whole = float(array_of(solved.messages.masses, r) @ own)
                chances[j, r] *= whole
                weights[j][r] = own / whole if whole > 0 else np.ones(len(own))
        return cls(each, log_weights, weights, chances / chances.sum(axis=0))

    def drawn(self, given: Integers, part: SubtreePart, rng: np.random.Generator) -> Integers:
        """Draw leaves `(draws, leaves)`, given the roots' counts `(roots, draws)`."""
        leaves = slice(len(part.factors.lower) - part.leaves, None)
        if len(self.each) == 1:
            return joint_draws(self.each[0], given.shape[1], rng, given)[:, leaves]
        out = np.empty((given.shape[1], part.leaves), given.dtype)
        chosen = self._chosen(given, rng)
        starts = part.child_ptr[: len(given) + 1] - len(given)
        for j, solved in enumerate(self.each):
            own = (chosen == j).sum(axis=1)
            if not own.any():
                continue
            rows = np.argsort(chosen != j, axis=1, kind="stable")[:, : own.max()]
            spare = np.arange(own.max()) >= own[:, None]  # fewer are wanted of some roots: any count serves
            counts = np.where(
                spare, solved.messages.offset[: len(own), None], np.take_along_axis(given, rows, 1)
            )
            found = joint_draws(solved, own.max(), rng, np.ascontiguousarray(counts, given.dtype))[:, leaves]
            for r, (first, last) in enumerate(pairwise(starts)):
                out[rows[r, : own[r]], first:last] = found[: own[r], first:last]
        return out

    def _chosen(self, given: Integers, rng: np.random.Generator) -> Integers:
        """Draw a component of the prior for each of the roots' counts `(roots, draws)`."""
        weights = np.zeros((len(self.each), *given.shape))
        for j, solved in enumerate(self.each):
            for r, counts in enumerate(given):
                masses, at = array_of(solved.messages.masses, r), counts - solved.messages.offset[r]
                inside = (at >= 0) & (at < len(masses))
                weights[j, r, inside] = np.exp(self.log_weights[j, r]) * masses[at[inside]]
        running = np.cumsum(weights, axis=0)
        return (rng.random(given.shape) * running[-1] >= running).sum(axis=0).clip(max=len(self.each) - 1)


class Below(NamedTuple):
    """Marginals of all nodes of a part, and draws `(draws, leaves)` of its last level."""

    marginals: Exact
    counts: Integers
    rounding: float


def look_at_part(part: SubtreePart) -> tuple[NDArray[np.bool_], bool, Subtrees, list[Reals]]:
    """Return what is needed of a part to set up the tree above: bounds and tilts of the roots' messages."""
    found, roots = list(part.tilted()), slice(len(part.above))
    soon = [end_too_soon(part.child_ptr, one) & (one.low <= one.high).all() for one, _ in found]
    least = [
        np.min([getattr(one, end)[roots] for _, one in found], axis=0) for end in ("low", "floor", "room")
    ]
    most = [
        np.max([getattr(one, end)[roots] for _, one in found], axis=0) for end in ("high", "ceiling", "limit")
    ]
    middle = found[len(found) // 2][1]
    ends = least[0], most[0], least[1], most[1]
    known = Subtrees(*ends, middle.mean[roots], middle.variance[roots], least[2], most[2], middle.tau[roots])
    tau = [one.tau for _, one in found]
    return np.any(soon, axis=0), all(hold_all(one) for one, _ in found), known, tau


def send_part(part: SubtreePart) -> tuple[list[Roots], Reals, NDArray[np.bool_], Integers]:
    """Return the messages of a part's roots, their log evidence, nodes with short tables, and sizes."""
    each, n = part.solve(), len(part.factors.lower)
    short = [too_short(part.child_ptr, one, part.tolerance, part.evidence_above) for one in each]
    low = np.array([one.messages.offset[:n] for one in each])
    high = low + [window_sizes(one.messages.masses, n) for one in each]
    roots = [roots_of(one, len(part.above)) for one in each]
    sizes = (high.max(axis=0) - low.min(axis=0)).astype(np.int32)
    return roots, part.evidence(each), np.any(short, axis=0), sizes


def draw_part(item: tuple[SubtreePart, FromAbove]) -> Below:
    """Return marginals and draws of a part's counts, given the message from above its roots."""
    part, known = item
    components, rng = Components.of(part, known), np.random.default_rng(known.seed)
    draws = known.counts.shape[1]
    counts = np.empty((draws, part.leaves), known.kind)
    for first in range(0, draws, DRAWS_AT_ONCE):
        rows = slice(first, first + DRAWS_AT_ONCE)
        counts[rows] = components.drawn(np.ascontiguousarray(known.counts[:, rows], known.kind), part, rng)
    found = [rounded_marginals(one, weights) for one, weights in zip(components.each, components.weights)]
    exact = [one for one, _ in found]
    whole = exact[0] if len(exact) == 1 else mixed(exact, components.chances[:, part.root_of()])
    return Below(whole, counts, max(rounding for _, rounding in found))


def expected_of(solved: Solved, exact: Exact) -> Reals:
    """Return posterior expectations `(6, n)` for every node, which the prior's scores need."""
    start, offset, masses = exact
    factors = solved.tilted.factors
    at = np.arange(len(masses)) - np.repeat(start[:-1], np.diff(start))
    mean = np.add.reduceat(masses * at, start[:-1])
    variance = np.add.reduceat(masses * at**2, start[:-1]) - mean**2
    by_odds, by_a, by_b = mean_slopes(*exact, factors)
    sums, parts = factors.parts > 0, (factors.parts == 0) & (factors.odds > -np.inf)
    rises = np.where(parts, by_a / factors.alpha, mean_rises(*exact, factors.alpha))
    total_rises = np.where(sums, -by_a / factors.total, mean_rises(*exact, factors.total))
    spread = np.sqrt(np.maximum(variance, 0.0))
    return np.array([rises, total_rises, by_odds, by_b, offset + mean, spread], np.float64)


def _on_window(weights: Reals, shift: int, size: int) -> Reals:
    """Return probabilities moved to another window of counts, without those outside it."""
    out, first, last = np.zeros(size), max(shift, 0), min(shift + len(weights), size)
    if first < last:
        out[first:last] = weights[first - shift : last - shift]
    return out
