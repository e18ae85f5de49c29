"""A tree that is cut at one level into a top and parts, which consist of subtrees.

What a part tells the top is one message for each of its roots, and what the top tells a part is one for each
root from above: given a root's count, what is below it and what is not are independent. Tilts and windows are those of
the whole tree, so messages are the same numbers however it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.downward import Exact
from trueup.kernel.messages.pmf import OPEN, SPLIT, Factors, no_splits
from trueup.kernel.messages.solve import Solved, Subtrees
from trueup.kernel.messages.tilting import NARROW
from trueup.kernel.messages.upward import Tilted, array_of

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
NORMAL_SDS = 12.0
"""Standard deviations on each side of a message that is about normal."""


class Partition(NamedTuple):
    """The cut of a tree of `n` nodes into a top and parts.

    Attributes
    ----------
    top
        Nodes of the top tree.
    edges
        (parts + 1,) part `b` holds the nodes `edges[b]:edges[b + 1]` with all below them.
    leaves
        (parts + 1,) of the last level these are the nodes `leaves[b]:leaves[b + 1]`.
    """

    top: int
    edges: Integers
    leaves: Integers


class Roots(NamedTuple):
    """Messages of the root nodes of a part of a tree: normalised masses, and their first counts."""

    masses: list[Reals]
    offset: Integers
    growth: Reals
    lost: Reals
    asked: Reals
    largest: Reals


def partition_tree(child_ptr: Integers, level_ptr: Integers, most: int) -> Partition | None:
    """Cut the tree at a level that leaves neither the top nor a subtree large; return None if there is none.

    Parameters
    ----------
    child_ptr
        (n + 1,) children of each node, in level order.
    level_ptr
        (levels + 1,) nodes of each level.
    most
        Nodes of a part; it holds more only for the sake of its last subtree.

    Examples
    --------
    >>> partition_tree(np.array([1, 3, 5, 7, 7, 7, 7, 7]), np.array([0, 1, 3, 7]), 3)
    Partition(top=3, edges=array([1, 2, 3]), leaves=array([3, 5, 7]))
    """
    sizes = [_subtrees(child_ptr, *ends) for ends in pairwise(level_ptr[1:-1])]
    largest = [max(top, size.max()) for top, size in zip(level_ptr[2:], sizes)]
    if 2 * min(largest, default=len(child_ptr)) > len(child_ptr):
        return None
    return cut_at(child_ptr, level_ptr, int(np.argmin(largest)) + 1, most)


def cut_at(child_ptr: Integers, level_ptr: Integers, level: int, most: int) -> Partition:
    """Cut the tree below a level, whose nodes are both leaves of the top and roots of the parts."""
    sizes = _subtrees(child_ptr, *level_ptr[level : level + 2])
    before = np.cumsum(sizes) - sizes
    starts = np.unique(before // most, return_index=True)[1]
    edges = level_ptr[level] + np.append(starts, len(before))
    *_, leaves = _levels(child_ptr, edges)
    return Partition(int(level_ptr[level + 1]), edges, leaves)


def subtrees(child_ptr: Integers, first: int, last: int) -> tuple[Integers, Integers]:
    """Return all nodes below `first:last` in level order, and the `child_ptr` of their forest."""
    levels = [np.arange(*ends) for ends in _levels(child_ptr, np.array([first, last]))]
    nodes = np.concatenate(levels)
    children = child_ptr[nodes + 1] - child_ptr[nodes]  # of a part: never of all nodes for each part
    return nodes, np.concatenate([[0], np.cumsum(children)]) + last - first


def top_of(child_ptr: Integers, cut: Partition) -> Integers:
    """Return the `child_ptr` of the top tree of a cut."""
    return np.minimum(child_ptr[: cut.top + 1], cut.top)


def take(tilted: Tilted, nodes: Integers) -> Tilted:
    """Return the factors of some nodes, with only the tables that these nodes use."""
    factors, *fields = tilted
    return Tilted._make((take_factors(factors, nodes), *(field[nodes] for field in fields)))


def roots_of(solved: Solved, count: int) -> Roots:
    """Return the messages of the first `count` nodes of a solved part."""
    messages = solved.messages
    lost = np.nan_to_num(np.minimum(messages.gone[:count], 0.0), nan=0.0, neginf=-np.inf)
    masses = [array_of(messages.masses, v) for v in range(count)]
    return Roots(
        masses,
        messages.offset[:count],
        messages.growth[:count],
        lost,
        messages.asked[:count],
        messages.largest[:count],
    )


def mixed_roots(each: Sequence[Roots], log_weights: Reals) -> tuple[Roots, Reals]:
    """Return mixtures of the messages of `k` roots over components, and the logs `(k,)` of total weights.

    `log_weights` `(components, k)` are those of the components, with the evidence of what is below. All have the same tilts.
    """
    whole = np.logaddexp.reduce(log_weights, axis=0)
    if len(each) == 1:
        return each[0], whole
    shares = log_weights - whole
    offset = np.min([one.offset for one in each], axis=0)
    ends = np.max([one.offset + [len(m) for m in one.masses] for one in each], axis=0)
    masses = [np.zeros(size) for size in ends - offset]
    for one, log in zip(each, shares):
        for into, own, shift, share in zip(masses, one.masses, one.offset - offset, np.exp(log)):
            into[shift : shift + len(own)] += share * own
    growths = np.array([one.growth for one in each]) + shares[:, :, None]
    growth = np.logaddexp.reduce(growths, axis=0)
    with np.errstate(invalid="ignore"):
        lost = np.logaddexp.reduce(growths + [one.lost for one in each], axis=0) - growth
    lost = np.where(np.isfinite(growth), np.minimum(lost, 0.0), 0.0)
    largest = np.logaddexp.reduce(shares + [one.largest for one in each], axis=0)
    return Roots(masses, offset, growth, lost, each[0].asked, largest), whole


def with_leaves(tilted: Tilted, roots: Roots) -> Tilted:
    """Return the factors of a top tree, in which messages from the parts are factors of the leaves."""
    k = len(roots.masses)
    own, *fields = tilted
    sizes = [len(masses) for masses in roots.masses]
    factors = with_messages(own, roots.offset, np.array(sizes), np.concatenate(roots.masses))
    window = roots.offset, roots.offset + sizes - 1
    slopes, no, known = np.zeros((2, k)), np.zeros(k, bool), (roots.asked, roots.growth, roots.lost)
    probes = np.zeros_like(roots.asked)
    ends = *window, *window, *slopes, no, probes, *known, no, no, slopes[0], roots.largest
    return Tilted._make((factors, *(np.append(field, end, axis=0) for field, end in zip(fields, ends))))


def with_messages(own: Factors, offset: Integers, sizes: Integers, masses: Reals) -> Factors:
    """Return factors with further nodes appended, whose factors are given as masses from `offset` on."""
    k = len(offset)
    with np.errstate(divide="ignore"):
        log = np.append(own.log, np.log(masses))
    return Factors(
        np.append(own.ptr, own.ptr[-1] + 1 + np.arange(k)),
        np.append(own.base, offset),
        np.append(own.table, len(own.open_ended) + np.arange(k)),
        np.append(own.start, own.start[-1] + np.cumsum(sizes)),
        log,
        np.append(own.open_ended, np.zeros(k)),
        np.append(own.lower, np.full(k, -OPEN)),
        np.append(own.upper, np.full(k, OPEN)),
        *(np.append(getattr(own, field), one) for field, one in zip(SPLIT, no_splits(k))),
    )


def with_normal(own: Factors, known: Subtrees) -> Factors:
    """Return the factors of a top tree for finding tilts, with normal approximations at its leaves."""
    sd = np.sqrt(np.maximum(known.variance, NARROW))
    middle, reach = np.round(known.mean).astype(np.int64), np.ceil(NORMAL_SDS * sd).astype(np.int64) + 1
    low, high = np.maximum(middle - reach, known.low), np.minimum(middle + reach, known.high)
    low, high = np.minimum(low, known.high), np.maximum(high, known.low)
    sizes = np.maximum(high - low + 1, 1)
    at = spread_messages(low, sizes) - np.repeat(known.mean, sizes)
    masses = np.exp(-0.5 * (at / np.repeat(sd, sizes)) ** 2)
    found = with_messages(own, low, sizes, np.maximum(masses, 1e-300))
    return found._replace(open_ended=np.append(own.open_ended, np.ones(len(low))))


class Laid:
    """Marginals of the nodes of several parts of a tree, written into one array.

    `sizes` are those of their windows; those of the first piece are its own.
    """

    def __init__(self, nodes: Integers, top: Exact, sizes: NDArray[np.signedinteger]) -> None:
        self._sizes, self._offset = sizes.copy(), np.empty(len(sizes), np.int64)
        self._sizes[nodes] = np.diff(top[0])[: len(nodes)]
        self._begin = np.concatenate([[0], np.cumsum(self._sizes)])
        self._masses = np.empty(self._begin[-1])
        self.add(nodes, top)

    def add(self, nodes: Integers, piece: Exact) -> None:
        """Write the marginals of some nodes to the places of these nodes."""
        start, offset, masses = piece
        self._offset[nodes] = offset[: len(nodes)]
        at = spread_messages(self._begin[nodes], self._sizes[nodes])
        self._masses[at] = masses[: start[len(nodes)]]

    @property
    def exact(self) -> Exact:
        """Return the marginals of all nodes: starts, first counts, and masses end to end."""
        return self._begin, self._offset, self._masses


def spread_messages(start: Integers, sizes: Integers) -> Integers:
    """Return the positions of all ranges `start[i]:start[i] + sizes[i]` in one array.

    Examples
    --------
    >>> spread_messages(np.array([7, 2]), np.array([1, 3])).tolist()
    [7, 2, 3, 4]
    """
    begin = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(start - begin, sizes)


def _levels(child_ptr: Integers, edges: Integers) -> Iterator[Integers]:
    """Yield the ends of given runs of nodes, then those of their children, and so on down the tree."""
    while edges[0] < edges[-1]:
        yield edges
        edges = child_ptr[edges]


def _subtrees(child_ptr: Integers, first: int, last: int) -> Integers:
    """Return the number of nodes in the subtree of each node of `first:last`."""
    return np.sum([np.diff(edges) for edges in _levels(child_ptr, np.arange(first, last + 1))], axis=0)


def take_factors(factors: Factors, nodes: Integers) -> Factors:
    sizes = factors.ptr[nodes + 1] - factors.ptr[nodes]
    rows = spread_messages(factors.ptr[nodes], sizes)
    used, table = np.unique(factors.table[rows], return_inverse=True)
    lengths = np.diff(factors.start)[used]
    return Factors(
        np.concatenate([[0], np.cumsum(sizes)]),
        factors.base[rows],
        table,
        np.concatenate([[0], np.cumsum(lengths)]),
        factors.log[spread_messages(factors.start[used], lengths)],
        factors.open_ended[used],
        factors.lower[nodes],
        factors.upper[nodes],
        *(getattr(factors, field)[nodes] for field in SPLIT),
    )
