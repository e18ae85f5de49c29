"""A part of a large tree, which holds subtrees: what it tells the top, and its marginals and draws given what the top knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.downward import window_sizes
from trueup.kernel.messages.kinds import mean_slopes
from trueup.kernel.messages.mixture import Exact
from trueup.kernel.messages.pairs import plan_pairs
from trueup.kernel.messages.partition import (
    Roots,
    roots_of,
)
from trueup.kernel.messages.solve import (
    Solved,
    joint_draws,
    marginals,
    rounded_marginals,
    settle_tilts,
    too_short,
)
from trueup.kernel.messages.splits import mean_rises
from trueup.kernel.messages.upward import Tilted

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
BLOCK = 1000
"""Draws at once."""


@dataclass(frozen=True, eq=False)
class SubtreePart:
    """Subtrees of the roots `0:len(evidence_above)`.

    Attributes
    ----------
    child_ptr, tilted
        Their nodes, in level order.
    evidence_above
        `(roots,)` log evidence of what is above each root, as far as it is known.
    tolerance
        Of the posterior mass that may be dropped, this part's share.
    leaves
        How many of its nodes, the last ones, are of the tree's last level.
    passes
        How often messages may be passed up to widen windows.
    """

    child_ptr: Integers
    tilted: Tilted
    evidence_above: Reals
    tolerance: float
    leaves: int
    passes: int

    def solve(self) -> Solved:
        """Pass messages up to the roots."""
        return settle_tilts(
            plan_pairs(self.child_ptr), self.tilted, self.tolerance, self.evidence_above, self.passes
        )


class FromAbove(NamedTuple):
    """What the top tells a part: the mass that the rest of the tree gives to each root's count, and drawn counts.

    `weights[r][0]` belongs to the count `offset[r]`; `counts` is `(roots, draws)`; draws of leaves are to be of the type `kind`.
    """

    weights: list[Reals]
    offset: Integers
    counts: Integers
    seed: np.random.SeedSequence
    kind: type

    def on(self, solved: Solved) -> list[Reals]:
        """Place the weights on the windows of the roots' messages."""
        messages = solved.messages
        return [
            _on_window(w, int(offset - messages.offset[v]), len(messages.masses[v]))
            for v, (w, offset) in enumerate(zip(self.weights, self.offset))
        ]


class Below(NamedTuple):
    """Marginals of all nodes of a part, draws `(draws, leaves)` of the last level, and what rounding may have moved."""

    marginals: Exact
    counts: Integers
    rounding: float


def send_part(part: SubtreePart) -> tuple[Roots, float, NDArray[np.bool_], Integers]:
    """Return the messages of a part's roots, its log evidence, the nodes whose tables end too soon, and the sizes of windows."""
    solved = part.solve()
    short = too_short(part.child_ptr, solved, part.tolerance, part.evidence_above)
    sizes = window_sizes(solved.messages.masses, len(part.tilted.low))
    return roots_of(solved, len(part.evidence_above)), solved.evidence, short, sizes


def draw_part(item: tuple[SubtreePart, FromAbove]) -> Below:
    """Return what a part's counts may be, given what is above its roots."""
    part, known = item
    solved, rng = part.solve(), np.random.default_rng(known.seed)
    weights = known.on(solved)
    n, draws = len(part.tilted.low), known.counts.shape[1]
    counts = np.empty((draws, part.leaves), known.kind)
    for first in range(0, draws, BLOCK):
        rows = slice(first, first + BLOCK)
        given = np.ascontiguousarray(known.counts[:, rows], known.kind)
        counts[rows] = joint_draws(solved, given.shape[1], rng, given)[:, n - part.leaves :]
    exact, rounding = rounded_marginals(solved, weights)
    return Below(exact, counts, rounding)


def expect_part(item: tuple[SubtreePart, FromAbove]) -> Reals:
    """Return what `CutTree.expected` needs of a part's nodes."""
    part, known = item
    solved = part.solve()
    return expected_of(solved, marginals(solved, known.on(solved)))


def expected_of(solved: Solved, exact: Exact) -> Reals:
    """Return `(6, n)` posterior expectations of every node: the four of `Splits.scores`, mean and standard deviation."""
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
    """Place weights on a window that holds theirs."""
    out = np.zeros(size)
    out[shift : shift + len(weights)] = weights
    return out
