"""The top of a cut tree, once its parts are looked at, and once it is solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.subtree_part import SubtreePart
from trueup.kernel.messages.partition import Roots, mixed_roots, with_leaves
from trueup.kernel.messages.pmf import Factors, reach_all
from trueup.kernel.messages.solve import Solved, joint_draws, settle_tilts
from trueup.kernel.messages.upward import Tilted, array_of
from trueup.run.executor import InTurn

if TYPE_CHECKING:
    from trueup.inferring.tree_parts import CutTree

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Weighted = tuple[float, Solved, int]
"""Weight in a mixture of a solved tree, and how many of the draws come from it."""


class Seen(NamedTuple):
    """What a first look at the parts of a tree says.

    Attributes
    ----------
    soon
        `(n,)` leaves whose tables end too soon.
    complete
        Whether windows hold every count, so that deeper tables say nothing more.
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
    """The top tree, solved, with the parts below it; `dropped` is that of the whole tree.

    Attributes
    ----------
    tree
        What was cut.
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

    tree: CutTree
    solved: Solved
    parts: Sequence[SubtreePart]
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


def weighed(top: Top, log_weights: Reals) -> Top:
    """Solve the top again with other mixture weights for what is below each root."""
    roots, below = mixed_roots(top.each, top.within + log_weights[:, None])
    solved = settle_tilts(top.solved.plan, with_leaves(top.inner, roots), top.tree.tolerance)
    parts = InTurn(lambda b: replace(top.parts[b], log_weights=log_weights), len(top.parts))
    return top._replace(solved=solved, parts=parts, dropped=solved.dropped, below=float(below.sum()))


def drawn_from(tops: Sequence[Weighted], rng: np.random.Generator) -> Integers:
    """Return joint draws `(draws, n)` of a mixture of solutions, in random order."""
    if len(tops) == 1:
        return joint_draws(tops[0][1], tops[0][2], rng)
    return rng.permutation(np.concatenate([joint_draws(top, count, rng) for _, top, count in tops if count]))


def mixture_weights(tops: Sequence[Weighted]) -> Reals:
    return np.array([weight for weight, _, _ in tops])


def narrowest(factors: Factors, parts: Sequence[SubtreePart], tops: Sequence[Weighted]) -> type:
    """Return the narrowest type for drawn leaves: half as wide if it holds all their sums and squares."""
    leaves = sum(parts[b].leaves for b in range(len(parts)))
    most = int(reach_all(factors)[1][-leaves:].max(initial=0))
    total = max(int(top.messages.offset[0]) + len(array_of(top.messages.masses, 0)) for _, top, _ in tops)
    return np.int32 if max(most**2, total) < 1 << 31 else np.int64
