"""Margins as sets of variables, and reasons why they do not form an acyclic family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod

import numpy as np

from trueup.errors import SpecError
from trueup.kernel.families import closing_sets, cyclic_core, maximal
from trueup.kernel.histogram import refines
from trueup.model.cells import Cells, Margin, Recode

Variable = tuple[str, str]
"""A level (`""` and its name), or an attribute and one of its views."""


SMALL_CROSS = 10**6
"""Cells of a full cross that methods for one table take in memory."""


def variables(cells: Cells, margin: Margin, used: Iterable[Margin]) -> frozenset[Variable]:
    """Return the variables of a margin: levels below the root, and the attributes and recodes that it determines."""
    depth = cells.tree.level(margin.level)
    places = {("", level) for level in cells.tree.levels[1 : depth + 1]}
    named = {name for each in used for name in each.attributes}
    views = {
        (attribute.name, view.name)
        for attribute, own in zip(cells.attributes, cells.recodes(margin.attributes))
        for view in attribute.views
        if view.name in named and view.size > 1 and sums_to(own, view)
    }
    return frozenset(places | views)


def sums_to(fine: Recode, coarse: Recode) -> bool:
    """Return True if every group of the recode `coarse` is a union of groups of `fine`."""
    return refines((np.array(fine.groups),), (np.array(coarse.groups),))


def spanned_margin(cells: Cells, own: frozenset[Variable]) -> Margin | None:
    """Return the margin of a set of variables; None if two recodes in the set cross."""
    levels = [level for level in cells.tree.levels if ("", level) in own]
    names = []
    for attribute in cells.attributes:
        held = [view for view in attribute.views if (attribute.name, view.name) in own]
        finest = [view for view in held if all(sums_to(view, other) for other in held)]
        if held and not finest:
            return None
        names += [finest[0].name] if held else []
    return Margin(levels[-1] if levels else cells.tree.levels[0], tuple(names))


def cyclic(cells: Cells, margins: Sequence[Margin]) -> SpecError | None:
    """Return the reason why margins are not an acyclic family, or None.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> abc = tuple(Attribute(name, ("0", "1", "2")) for name in "abc")
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), abc)
    >>> pairs = [Margin("all", pair) for pair in (("a", "b"), ("b", "c"), ("a", "c"))]
    >>> cyclic(cells, pairs[:2]) is None
    True
    >>> print(cyclic(cells, pairs).needed)
    tables without a cycle; the smallest joint table that contains this cycle is 'all x a x b x c' (27 cells)
    """
    tables, sets = _largest(cells, margins)
    if crossed := _crossed(cells, sets):
        return _crossing(*crossed)
    if not (core := cyclic_core(sets)):
        return None
    joint = _closing(cells, sets)
    named = ", ".join(f"'{tables[i]}'" for i in core)
    closed = f"'{joint}' ({cells.size(joint):,} cells)" if joint else "one of all of them"
    whole = cells.finest
    small = cells.n <= SMALL_CROSS and whole != joint
    third = (
        f", or measure '{whole}' ({cells.n:,} cells), for which there are methods for one table"
        if small
        else ""
    )
    return SpecError(
        f"the tables {named} share margins in a cycle, so that tables which agree pairwise may still contradict each "
        "other",
        needed=f"tables without a cycle; the smallest joint table that contains this cycle is {closed}",
        remedy=f"give a query on '{joint}' a budget, however small, or drop one of these tables{third}",
    )


def closing_table(cells: Cells, margins: Sequence[Margin]) -> Margin | None:
    """Return the smallest joint table that removes a cycle of margins; None if there is no cycle, or recodes cross.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), tuple(Attribute(name, ("0", "1")) for name in "abcd"))
    >>> str(closing_table(cells, [Margin("all", tuple(pair)) for pair in ("ab", "bc", "ac", "cd")]))
    'all x a x b x c'
    """
    _, sets = _largest(cells, margins)
    return None if _crossed(cells, sets) or not cyclic_core(sets) else _closing(cells, sets)


def _largest(cells: Cells, margins: Sequence[Margin]) -> tuple[list[Margin], list[frozenset[Variable]]]:
    sets = [variables(cells, margin, margins) for margin in margins]
    held = maximal(sets)
    return [margins[i] for i in held], [sets[i] for i in held]


def _closing(cells: Cells, sets: Sequence[frozenset[Variable]]) -> Margin | None:
    chosen = closing_sets(sets, lambda union: _size(cells, union))
    return spanned_margin(cells, frozenset().union(*(sets[i] for i in chosen)))


def _size(cells: Cells, own: frozenset[Variable]) -> int:
    """Return the number of cells of the joint table of some variables."""
    depth = max((cells.tree.level(name) for kind, name in own if not kind), default=0)
    finest = (max((v.size for v in a.views if (a.name, v.name) in own), default=1) for a in cells.attributes)
    return cells.tree.sizes[depth] * prod(finest)


def _crossed(cells: Cells, sets: Sequence[frozenset[Variable]]) -> tuple[str, str, str] | None:
    """Return an attribute with two recodes that cross and have no table in common, or None."""
    every = frozenset().union(*sets)
    for attribute in cells.attributes:
        views = [view for view in attribute.views if (attribute.name, view.name) in every]
        for one, other in combinations(views, 2):
            pair = {(attribute.name, one.name), (attribute.name, other.name)}
            if not (sums_to(one, other) or sums_to(other, one)) and not any(pair <= own for own in sets):
                return attribute.name, one.name, other.name
    shared = (a & b for a, b in combinations(sets, 2))
    if any(spanned_margin(cells, own) is None for own in shared):
        return next(
            (a.name, *(v.name for v in a.recodes[:2])) for a in cells.attributes if len(a.recodes) > 1
        )  # pyright: ignore[reportReturnType]
    return None


def _crossing(attribute: str, one: str, other: str) -> SpecError:
    return SpecError(
        f"'{one}' and '{other}' group the values of '{attribute}' in ways that cross, so that tables by them share no "
        "margin",
        needed=f"recodes of '{attribute}' that are nested in each other",
        remedy=f"use one recode that refines both, or '{attribute}' itself, in these queries",
    )
