"""Least squares and whole-number tables for families of tables that share margins, and acyclic families.

Here: families of sets of variables: junction trees, and the sets that close families without one.

A table is a set of variables. Two tables *agree* if their margins on the variables that they share are equal. In an
*acyclic* family (one with a junction tree) nonnegative tables that agree are always the margins of one nonnegative table
of all variables, whole if they are: records of a table are drawn given its separator, whose counts both sides share. In
any other family some agreeing tables are not (Vorob'ev 1962; Beeri, Fagin, Maier & Yannakakis 1983).

*Graham's reduction* drops variables that one set alone holds, and sets within another, as long as there are any. It
leaves nothing (one empty set) if and only if the family is acyclic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

Variable = TypeVar("Variable", bound=Hashable)

TRIED_SETS = 12
"""Sets of a core up to which every union of some of them is tried as the one that closes it."""


def maximal(sets: Sequence[frozenset[Variable]]) -> list[int]:
    """Return the positions of the sets that lie in no other set, each only once.

    Examples
    --------
    >>> maximal([frozenset("a"), frozenset("ab"), frozenset("bc"), frozenset("ab")])
    [1, 2]
    """
    return [
        i
        for i, own in enumerate(sets)
        if not any(own < other or (own == other and j < i) for j, other in enumerate(sets))
    ]


def cyclic_core(sets: Sequence[frozenset[Variable]]) -> list[int]:
    """Return the positions of the sets that Graham's reduction leaves: none if the family is acyclic.

    Examples
    --------
    >>> cyclic_core([frozenset("abc"), frozenset("cd"), frozenset("de")])
    []
    >>> cyclic_core([frozenset("ab"), frozenset("bc"), frozenset("ac"), frozenset("cd")])
    [0, 1, 2]
    """
    left = dict(enumerate(sets))
    while True:
        often = Counter(variable for own in left.values() for variable in own)
        shared = {i: frozenset(v for v in own if often[v] > 1) for i, own in left.items()}
        order = list(shared)
        kept = [order[k] for k in maximal([shared[i] for i in order])]
        after = {i: shared[i] for i in kept}
        if after == left:
            return list(after) if len(after) > 1 else []
        left = after


def closing_sets(
    sets: Sequence[frozenset[Variable]], cells: Callable[[frozenset[Variable]], int]
) -> tuple[int, ...]:
    """Return the positions of the sets whose union, added to the family, makes it acyclic with the fewest cells.

    Parameters
    ----------
    sets
        The family, which is not acyclic.
    cells
        A function that returns the number of cells of the joint table of some variables.

    Examples
    --------
    >>> cycle = [frozenset(pair) for pair in ("ab", "bc", "cd", "da")]
    >>> closing_sets(cycle, lambda union: 2 ** len(union))
    (0, 2)
    >>> closing_sets([*cycle[:2], frozenset("ac"), frozenset("cd")], lambda union: 2 ** len(union))
    (0, 1)
    """
    core = cyclic_core(sets)
    if len(core) > TRIED_SETS:
        return tuple(core)
    some = (chosen for size in range(2, len(core) + 1) for chosen in combinations(core, size))
    closing = (
        (cells(union), len(c), c) for c, union in _unions(sets, some) if not cyclic_core([*sets, union])
    )
    return min(closing)[2]


def _unions(
    sets: Sequence[frozenset[Variable]], some: Iterator[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], frozenset[Variable]]]:
    for chosen in some:
        yield chosen, frozenset().union(*(sets[i] for i in chosen))


@dataclass(frozen=True)
class JunctionTree:
    """A rooted junction tree of an acyclic family.

    Attributes
    ----------
    order
        The sets, a parent before its children.
    parent
        For every set the position of its parent; -1 for the root. What it shares with all sets before it in the order,
        it shares with its parent.
    """

    order: tuple[int, ...]
    parent: tuple[int, ...]


def junction_tree(sets: Sequence[frozenset[Variable]], root: int = 0) -> JunctionTree:
    """Return a junction tree of an acyclic family, with the largest possible separators (Prim's algorithm).

    Sets that share nothing are joined too, by an empty separator.

    Examples
    --------
    >>> junction_tree([frozenset("ab"), frozenset("bc"), frozenset("cd")], root=1)
    JunctionTree(order=(1, 0, 2), parent=(1, -1, 1))
    """
    order, parent = [root], [-1] * len(sets)
    left = [i for i in range(len(sets)) if i != root]
    while left:
        _, child, above = max(
            ((len(sets[i] & sets[j]), -i, -at) for i in left for at, j in enumerate(order)),
        )
        parent[-child] = order[-above]
        order.append(-child)
        left.remove(-child)
    return JunctionTree(tuple(order), tuple(parent))
