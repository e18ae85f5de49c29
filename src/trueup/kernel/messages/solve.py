"""Exact posterior of integer counts on a tree: messages up, marginals or draws down.

Leaves start with their own factor (likelihood x prior x bounds). Up: the masses of a parent are
the convolution of its children's, multiplied by the parent's own factor wherever it is measured.
Down: the mass that all other nodes give to a count, or one draw of a split of each parent's count.
Sum-product gives marginals and independent joint draws, max-product the mode.

Nothing is dropped in silence. With every factor above a node at most 1 after scaling, leaving a
fraction `lost_v` of the message of `v` out can remove at most

    lost_v / prod_{a above v} c_a

of the posterior, where `c_a` is the evidence at `a`: the mean of its (scaled) factor under its
children's message. The sum over nodes is reported, and windows are widened until it is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.downward import downward, products
from trueup.kernel.messages.joint import draw_below, draw_root
from trueup.kernel.messages.max_product import best_counts, narrow
from trueup.kernel.messages.pairs import PairPlan, plan_pairs
from trueup.kernel.messages.pmf import Factors, reach_all
from trueup.kernel.messages.tilting import bounds, find_tilts, has_factor, limits, tilts
from trueup.kernel.messages.upward import DIRECT, Messages, Tilted, above, empty_messages, upward

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
NOTHING_ABOVE = np.zeros(1)


class Solved(NamedTuple):
    """A tree whose messages are known: what `marginals`, `joint_draws` and `mode` read.

    `dropped` bounds the posterior mass that windows and rounding may have removed.
    """

    plan: PairPlan
    tilted: Tilted
    messages: Messages
    dropped: float

    @property
    def evidence(self) -> float:
        """Log evidence: of all factors, the sum over all counts (nats)."""
        return float(self.messages.evidence.sum() + self.tilted.top.sum())


def solve(
    child_ptr: Integers, factors: Factors, tolerance: float = 1e-9, start: Tilted | None = None
) -> Solved:
    """Pass messages up so that at most `tolerance` of the posterior is left out, if tables allow.

    Parameters
    ----------
    child_ptr
        (n + 1,) children of each node, in level order.
    factors
        Likelihoods, priors and bounds; every window must be finite after `saddle.bounds`.
    tolerance
        Largest posterior mass that may be dropped. When tables of open-ended laws are too short
        for it, `dropped` comes back larger (1 when the windows exclude each other): deepen those of
        the nodes that `too_short` names.
    start
        What an earlier call found for the same tree with other tables: its tilts are where this one begins.

    Examples
    --------
    One total and two parts, all measured with epsilon = 1:

    >>> from trueup.kernel.messages.pmf import OPEN, Factors, no_splits
    >>> law = -np.abs(np.arange(-60.0, 61.0))
    >>> noisy = np.array([10, 4, 5])
    >>> none = np.full(3, OPEN)
    >>> factors = Factors(np.arange(4), noisy - 60, np.zeros(3, np.int64), np.array([0, 121]), law,
    ...                   np.ones(1), np.zeros(3, np.int64), none, *no_splits(3))
    >>> solved = solve(np.array([1, 3, 3, 3]), factors)
    >>> start, offset, masses = marginals(solved)
    >>> float(np.round(masses[:start[1]] @ (offset[0] + np.arange(start[1])), 2))
    9.67
    """
    return settle_tilts(plan_pairs(child_ptr), tilt(child_ptr, factors, start), tolerance)


def settle_tilts(
    plan: PairPlan,
    tilted: Tilted,
    tolerance: float,
    surprise: Reals = NOTHING_ABOVE,
    lost: Reals | float = 0.0,
) -> Solved:
    """Pass messages up a tree whose tilts are known, or up a row of trees that are parts of one.

    Parameters
    ----------
    plan, tilted
        The tree; the first `k` nodes are roots.
    tolerance
        As `solve` has it.
    surprise
        (k,) log evidence of what is above each root.
    lost
        (n,) fraction of each leaf's factor that was left out when its table was made.
    """
    n = len(tilted.low)
    if np.any(tilted.low > tilted.high):
        return Solved(plan, tilted, empty_messages(len(plan.left)), 1.0)
    share = np.full(len(plan.left), 1e-18)
    for direct in (DIRECT, DIRECT, 1 << 20):
        messages = upward(plan, tilted, share, direct)
        messages.lost[:n] += lost
        every = above(plan, messages.evidence, surprise)
        if not np.isfinite(every).all():
            return Solved(plan, tilted, messages, 1.0)
        with np.errstate(
            over="ignore", divide="ignore"
        ):  # in logs: nothing lost stays nothing, however unlikely
            dropped = float(np.exp(np.log(messages.lost) - every).sum())
        if dropped <= tolerance:
            break
        share = np.minimum(share, 0.1 * tolerance / len(share) * np.exp(every))
    return Solved(plan, tilted, messages, min(dropped, 1.0))


def tilt(child_ptr: Integers, factors: Factors, start: Tilted | None = None) -> Tilted:
    """Choose windows and tilts; those of `start` are where the search begins."""
    n = len(child_ptr) - 1
    lowest, highest = reach_all(factors)
    floor, ceiling = bounds(child_ptr, factors.lower, factors.upper)
    low, high = bounds(child_ptr, lowest, highest)
    windows, informs = (low, high, floor, ceiling), has_factor(child_ptr, factors)
    if np.any(low > high):
        return Tilted(factors, *windows, np.zeros(n), np.zeros(n), informs)
    state = find_tilts(child_ptr, factors, windows, None if start is None else tilts(child_ptr, start.slope))
    return Tilted(factors, *windows, state.slope, state.top, informs)


def too_short(
    child_ptr: Integers, solved: Solved, tolerance: float, surprise: Reals = NOTHING_ABOVE
) -> NDArray[np.bool_]:
    """Mark the nodes whose tables end too soon for `tolerance`, or exclude those of their parts.

    Of `solved.dropped` it is the part that deeper tables would save: each node may leave out its share.
    """
    tilted, messages = solved.tilted, solved.messages
    n = len(tilted.low)
    empty = tilted.low > tilted.high
    if empty.any():
        return _with_family(child_ptr, empty)
    least, most = limits(child_ptr, tilted.factors, tilted.low, tilted.high, tilted.floor, tilted.ceiling)
    held = (tilted.slope >= 0.999 * most) | (tilted.slope <= 0.999 * least)
    if held.any():  # only wider tables of theirs let them tilt further
        return held
    every = above(solved.plan, messages.evidence, surprise)[:n]
    with np.errstate(over="ignore", invalid="ignore"):
        short = messages.short[:n] > 0.1 * tolerance / n * np.exp(np.minimum(every, 0.0))
    impossible = np.isneginf(messages.evidence[:n]) & (child_ptr[1:] > child_ptr[:-1])
    return short | _with_family(child_ptr, impossible)


def _with_family(child_ptr: Integers, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Add parents, siblings and children."""
    children = np.diff(child_ptr)
    parent = np.concatenate([np.arange(child_ptr[0]), np.repeat(np.arange(len(children)), children)])
    out = nodes | nodes[parent]
    out[parent[nodes]] = True
    siblings = np.zeros(len(out), bool)
    siblings[parent[nodes]] = True
    return out | siblings[parent]


def marginals(solved: Solved, roots: Sequence[Reals] = ()) -> tuple[Integers, Integers, Reals]:
    """Return the exact marginal of every node: `start` (n + 1,), `offset` (n,), masses end to end.

    `roots` holds what is above each root gives to its count, where that was worked out elsewhere.
    """
    messages = solved.messages
    down = downward(*solved[:3], roots)
    return products(messages.masses, messages.offset, down, len(solved.tilted.low))


def joint_draws(
    solved: Solved, draws: int, rng: np.random.Generator, roots: Integers | None = None
) -> Integers:
    """Return `(draws, n)` independent draws of all nodes: integers, additive, inside all bounds.

    `roots` `(k, draws)` holds the counts of the roots, where they were drawn elsewhere.
    """
    given = draw_root(solved.messages, draws, rng) if roots is None else roots
    return draw_below(solved.plan, solved.messages, given, len(solved.tilted.low), rng).T


def mode(solved: Solved, cut: float = 1e-6) -> Integers:
    """Return one most probable vector of counts `(n,)`: maximum a posteriori, exactly additive.

    The search covers, at every node, the counts that hold all but `cut` of its marginal mass.
    """
    start, offset, masses = marginals(solved)
    low, high = narrow(offset, start, np.diff(start), masses, cut)
    return best_counts(solved.plan, solved.tilted, len(low), low, high)
