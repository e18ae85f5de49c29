"""Exact posterior of integer counts on a tree: messages up, then marginals or draws down.

Leaves start with their own factor (likelihood x prior x bounds). Up: the masses of a parent are
the convolution of its children's, multiplied by the parent's own factor wherever it is measured.
Down: the mass that all other nodes give to a count, or one draw of a split of each parent's count.
Sum-product gives marginals and independent joint draws, max-product the mode.

Nothing is dropped in silence. Sums live on windows; of the counts that windows leave out, what may have been lost is
bounded on the way up, at every node as a fraction of its message: what was trimmed, what lies outside, and what was
lost below and then multiplied by the node's factor, see `trueup.kernel.messages.tails`. The fraction at the root is reported,
and windows are widened until it is small.

One file: messages up, and what is read off them, share one bound of what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.compiled import njit
from trueup.kernel.messages import PairPlan, above, below_marked, plan_pairs, proper_splits
from trueup.kernel.messages.downward import Exact, downward, products
from trueup.kernel.messages.joint import best_counts, draw_below, draw_root, narrow
from trueup.kernel.messages.pmf import Factors, largest_tables, reach_all
from trueup.kernel.messages.tails import PROBES, probes_of, rooms
from trueup.kernel.messages.tilting import (
    NO_TILT,
    bounds,
    certain,
    find_tilts,
    has_factor,
    inherit,
    limits,
    tilts,
)
from trueup.kernel.messages.upward import (
    DIRECT,
    Messages,
    Tilted,
    count_products,
    empty_messages,
    scaled_factor,
    upward,
)

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
FAR_BELOW = 70.0
"""Nats below the peak of a leaf's tilted factor at which its tables may end."""
NOTHING_ABOVE = np.zeros(1)
MOST_PASSES = 5
WIDENED = (1e-24, 1e-48, 1e-96, 0.0, 0.0)
"""Factors of what nodes below a sum that is too narrow may leave out, from one attempt to the next."""


class Solved(NamedTuple):
    """A tree with known messages, from which marginals, draws and modes are computed.

    `dropped` bounds the posterior mass that windows, and rounding on the way up, may have removed.
    """

    plan: PairPlan
    tilted: Tilted
    messages: Messages
    dropped: float

    @property
    def evidence(self) -> float:
        """Return the log evidence (nats): the log of the sum over counts of the product of factors."""
        return float(self.messages.evidence.sum() + self.tilted.top.sum())


def solve(
    child_ptr: Integers, factors: Factors, tolerance: float = 1e-9, start: Tilted | None = None
) -> Solved:
    """Return messages up the tree, which leave out at most `tolerance` of the posterior if tables allow it.

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
        Result of an earlier call for the same tree with other tables; its tilts are the starting point.

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
    evidence_above: Reals = NOTHING_ABOVE,
    passes: int = MOST_PASSES,
    spend: Callable[[float], None] | None = None,
) -> Solved:
    """Send messages up a tree or up the parts of a tree, and improve their tilts.

    Parameters
    ----------
    plan, tilted
        The tree; the first `k` nodes are roots.
    tolerance
        The same as in `solve`.
    evidence_above
        (k,) log evidence of what is above each root.
    passes
        Largest number of passes up the tree; windows are wider each time.
    spend
        Told before each pass but the first how many multiplications it takes, at least.
    """
    if np.any(tilted.low > tilted.high):
        return Solved(plan, tilted, empty_messages(len(plan.left)), 1.0)
    share, before, complete = np.full(len(plan.left), 1e-9 * tolerance), np.inf, hold_all(tilted)
    for attempt, direct in enumerate((DIRECT, *[1 << 20] * (passes - 1))):
        messages = upward(plan, tilted, share, direct)
        every = above(plan, messages.passed, evidence_above)
        if not np.isfinite(every).all():
            return Solved(plan, tilted, messages, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            gone, growth = messages.gone[: len(evidence_above), 0], messages.growth[: len(evidence_above), 0]
            dropped = float(np.exp(gone - evidence_above).sum())
            nothing = np.isneginf(gone)  # whose growth may be infinite
            left_out = np.where(nothing, -np.inf, growth + gone - evidence_above)
            lost = np.logaddexp.reduce(left_out)  # more than all, where most is unknown
            wanted = 0.1 * tolerance / len(share) * np.exp(every)
        if dropped <= tolerance or not share.any():
            break
        if complete and attempt:  # tilts are far from the posterior: of what is trimmed much may be all of it
            wanted *= WIDENED[attempt]
        elif lost > before - 1e-6:  # windows end where tables do
            break
        share, before = np.minimum(share, wanted), lost
        # windows of all below sums that are too narrow end where the sums do
        share[below_marked(plan, messages.short > wanted)] *= WIDENED[attempt]
        if spend is not None:
            spend(count_products(plan, messages.masses))
    return Solved(plan, tilted, messages, min(dropped, 1.0))


def hold_all(tilted: Tilted) -> bool:
    """Return True if the windows contain every possible count."""
    return bool((tilted.low == tilted.floor).all() and (tilted.high == tilted.ceiling).all())


class Subtrees(NamedTuple):
    """Windows, approximate moments and tilt limits of the messages under given tilts.

    Attributes
    ----------
    low, high, floor, ceiling
        Windows, and what is known for certain; see `Tilted`.
    mean, variance
        About those of the messages.
    room, limit
        The largest and the least tilt at which bounds of the messages stay finite.
    tau
        Tilts below the nodes.
    """

    low: Integers
    high: Integers
    floor: Integers
    ceiling: Integers
    mean: Reals
    variance: Reals
    room: Reals
    limit: Reals
    tau: Reals


def tilt(child_ptr: Integers, factors: Factors, start: Tilted | None = None) -> Tilted:
    """Return the factors with windows and tilts, found from those of `start` if it is given."""
    return tilt_part(child_ptr, factors, None if start is None else tilts(child_ptr, start.slope))[0]


def tilt_part(
    child_ptr: Integers,
    factors: Factors,
    before: Reals | None = None,
    given: Reals = NO_TILT,
    below: Subtrees | None = None,
) -> tuple[Tilted, Subtrees]:
    """Return the factors of a tree or part with windows and tilts, and the moments of all messages.

    Parameters
    ----------
    before
        (n,) tilts below the nodes, from which the search begins.
    given
        (k,) tilts above the first nodes, which are roots.
    below
        Subtrees for which the last nodes stand: leaves with tables of approximate messages, used for tilts alone.
    """
    n = len(child_ptr) - 1
    reach, sure = np.array(reach_all(factors)), np.array(certain(factors))
    leaves = slice(n if below is None else n - len(below.low), n)
    tabled = reach[:, leaves].copy()
    if below is not None:
        reach[:, leaves], sure[:, leaves] = below[:2], below[2:4]
    (floor, ceiling), (low, high) = bounds(child_ptr, *sure), bounds(child_ptr, *reach)
    windows, informs = (low, high, floor, ceiling), has_factor(child_ptr, factors)
    none, missing, lost = np.zeros((n, PROBES)), np.full((n, PROBES), np.nan), np.full((n, PROBES), -np.inf)
    pointwise = _pointwise(child_ptr, factors, low > floor, informs)
    if np.any(low > high):
        zeros = np.zeros(n)
        more = zeros, zeros, informs, none, none, missing, lost, pointwise, informs, zeros, zeros
        return Tilted(factors, *windows, *more), Subtrees(*windows, zeros, zeros, zeros, zeros, zeros)
    seen = low.copy(), high.copy()
    seen[0][leaves], seen[1][leaves] = tabled
    state = find_tilts(child_ptr, factors, (*seen, floor, ceiling), before, given)
    least, _ = limits(child_ptr, *(factors, *windows))
    known = np.zeros(0) if below is None else below.room
    if below is not None:
        least[leaves] = below.limit
    room, far = rooms(child_ptr, factors, high, ceiling, state.mean, state.variance, known)
    parent = inherit(child_ptr, state.tau, given)
    probes = probes_of(child_ptr, state.tau, parent, state.variance, floor, least, room, far, pointwise)
    slope = parent - np.where(np.diff(child_ptr) > 0, state.tau, 0.0)
    asked = np.concatenate(
        [np.zeros_like(probes[: child_ptr[0]]), np.repeat(probes, np.diff(child_ptr), axis=0)]
    )
    proper, largest = proper_splits(child_ptr, factors, floor, ceiling), largest_tables(factors)
    more = slope, state.top, informs, probes, asked, missing, lost, pointwise, proper, parent, largest
    limit = np.where(np.diff(child_ptr) > 0, state.tau + probes[:, 3], least)
    return Tilted(factors, *windows, *more), Subtrees(
        *windows, state.mean, state.variance, room, limit, state.tau
    )


def _pointwise(
    child_ptr: Integers, factors: Factors, narrowed: NDArray[np.bool_], informs: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mark the leaves without tables whose window is bounded below only by their siblings and parent."""
    bare = (np.diff(child_ptr) == 0) & (np.diff(factors.ptr) == 0) & narrowed
    bare[: child_ptr[0]] = False
    bare[child_ptr[0] :] &= np.repeat(informs, np.diff(child_ptr))
    return bare


@njit(cache=True)
def end_too_soon(child_ptr, tilted):
    """Mark the leaves whose tables end at counts where their tilted factor is still large."""
    out = np.zeros(len(tilted.low), np.bool_)
    for v in range(len(tilted.low)):
        if child_ptr[v] == child_ptr[v + 1] and not tilted.pointwise[v]:
            for at, certain in ((tilted.low[v], tilted.floor[v]), (tilted.high[v], tilted.ceiling[v])):
                if at != certain and scaled_factor(tilted, v, at, 1)[0] > -FAR_BELOW:
                    out[v] = True
    return out


def too_short(
    child_ptr: Integers, solved: Solved, tolerance: float, evidence_above: Reals = NOTHING_ABOVE
) -> NDArray[np.bool_]:
    """Mark the nodes whose tables are too short for `tolerance` or for their parts.

    Of `solved.dropped` it is the part that deeper tables would save: each node may leave out its share.
    """
    tilted, messages = solved.tilted, solved.messages
    n = len(tilted.low)
    empty = tilted.low > tilted.high
    if empty.any():
        return _with_family(child_ptr, empty)
    every = above(solved.plan, messages.passed, evidence_above)[:n]
    with np.errstate(over="ignore", invalid="ignore"):
        short = messages.short[:n] > 0.1 * tolerance / n * np.exp(np.minimum(every, 0.0))
    impossible = np.isneginf(messages.evidence[:n]) & (child_ptr[1:] > child_ptr[:-1])
    lowest, highest = reach_all(tilted.factors)
    narrowed = (tilted.low > lowest) | (
        tilted.high < highest
    )  # its window ends where tables of its family do
    return short | _with_family(child_ptr, impossible | short & narrowed)


def _with_family(child_ptr: Integers, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the marked nodes with their parents, siblings and children."""
    children = np.diff(child_ptr)
    parent = np.concatenate([np.arange(child_ptr[0]), np.repeat(np.arange(len(children)), children)])
    out = nodes | nodes[parent]
    out[parent[nodes]] = True
    siblings = np.zeros(len(out), bool)
    siblings[parent[nodes]] = True
    return out | siblings[parent]


def marginals(solved: Solved, roots: Sequence[Reals] = ()) -> Exact:
    """Return the exact marginal of every node: starts, first counts, and masses end to end.

    `roots` holds what is above each root gives to its count, where that was worked out elsewhere.
    """
    return rounded_marginals(solved, roots)[0]


def rounded_marginals(solved: Solved, roots: Sequence[Reals] = ()) -> tuple[Exact, float]:
    """Return the marginals, and a bound on the mass in any of them that rounding has moved."""
    messages = solved.messages
    down, rounding = downward(*solved[:3], roots)
    return products(messages.masses, messages.offset, down, 0, len(solved.tilted.low)), rounding


def joint_draws(
    solved: Solved, draws: int, rng: np.random.Generator, roots: Integers | None = None
) -> Integers:
    """Return independent draws `(draws, n)` of all nodes, in whole numbers that add up within all bounds.

    `roots` `(k, draws)` holds the counts of the roots, where they were drawn elsewhere.
    """
    given = draw_root(solved.messages, draws, rng) if roots is None else roots
    return draw_below(solved.plan, solved.messages, given, len(solved.tilted.low), rng).T


def mode(solved: Solved, cut: float = 1e-6) -> Integers:
    """Return one most probable vector of counts `(n,)`, which adds up exactly.

    The search covers, at every node, the counts that hold all but `cut` of its marginal mass.
    """
    start, offset, masses = marginals(solved)
    low, high = narrow(offset, start, np.diff(start), masses, cut)
    return best_counts(solved.plan, solved.tilted, len(low), low, high)
