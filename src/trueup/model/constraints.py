"""Constraints on the published counts.

One file: the rules, and which of them given counts break.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.histogram import marginalise
from trueup.model.cells import Cells, Margin
from trueup.model.linear import Linear
from trueup.model.nested import NestedTree, canonical, chain, nest

Structure = str
STRUCTURES: tuple[Structure, ...] = ("sum", "tree", "margins", "histogram", "joined", "family", "general")
ONE_TABLE: frozenset[Structure] = frozenset(STRUCTURES) - {"family"}
"""Structures whose cells are those of one table."""


@dataclass(frozen=True)
class Bound:
    """Lower and upper limits (counts) on every group of a margin; None if there is no limit.

    `where` restricts the bound to groups with the given attribute values. A limit for each group may
    be infinite. Many are kept as an array: a nation's would not fit in memory as a tuple. `declared` says the condition and the
    limits as the spec does, which tells bounds of one margin apart.
    """

    margin: Margin
    lower: tuple[float, ...] | NDArray[np.float64] | int | None = None
    upper: tuple[float, ...] | NDArray[np.float64] | int | None = None
    where: tuple[tuple[str, str], ...] = ()
    declared: str = ""


@dataclass(frozen=True)
class LinearRule:
    """A linear constraint that must hold at every place of a level."""

    linear: Linear
    level: str


@dataclass(frozen=True, eq=False)
class Constraints:
    """All constraints on the counts of `n` cells; additivity always holds.

    Attributes
    ----------
    cells
        The finest cells.
    margins
        The margins that are measured.
    invariants
        The margins published exactly as enumerated; one with a condition counts some units alone.
    nonnegative
        True if counts below zero are refused.
    zeros
        Structural zeros: each a set of attribute values that no unit can have together.
    bounds, linear
        Further limits and linear rows.
    periods
        True if one attribute is the period: then tables are a histogram even where they are nested, so that periods are linked.
    joined
        The two tables that these cells hold, if they do; what links them is among the linear rows.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> Constraints(cells, (Margin("all"), Margin("area"))).structure()
    'sum'
    """

    cells: Cells
    margins: tuple[Margin, ...]
    invariants: tuple[Margin, ...] = ()
    nonnegative: bool = True
    zeros: tuple[Mapping[str, str], ...] = ()
    bounds: tuple[Bound, ...] = ()
    linear: tuple[LinearRule, ...] = ()
    periods: bool = False
    joined: Any = None  # a `trueup.model.joined.LinkedTables`, which stands above these rules

    def __post_init__(self) -> None:
        for bound in self.bounds:
            _refuse_other_length(bound, self.cells)

    def within(self, *bounds: Bound) -> Constraints:
        """Return the constraints with further public bounds added."""
        return replace(self, bounds=(*self.bounds, *bounds)) if bounds else self

    def structure(self) -> Structure:
        """Return the name of the structure that the margins form, which decides the methods that apply.

        `sum` one total and its parts, `tree` nested margins, `margins` crossing margins of one
        place, `histogram` crossing margins on a hierarchy or through recodes, `joined` two linked tables,
        `family` several tables that share margins, without the table that would hold them all,
        `general` anything else with linear rows or invariants of some units alone.
        """
        if self.joined is not None:
            return "joined"
        if self.cells.is_family:
            return "family"
        conditional = any(margin.where for margin in self.invariants)
        if self.periods:
            return "histogram"
        if self.linear or conditional or any(not a.partition for a in self.cells.attributes):
            return "general"
        if (nested := self.chain) is not None:
            return "sum" if len(nested) <= 2 else "tree"
        whole = all(set(m.attributes) <= set(self.cells.finest.attributes) for m in self._in_play)
        return "margins" if whole and len(self.cells.tree.levels) == 1 else "histogram"

    @cached_property
    def chain(self) -> tuple[Margin, ...] | None:
        """Return all margins of the problem from coarse to fine, or None if they are not nested."""
        return None if self.cells.is_family else chain(self.cells, self._in_play)

    @property
    def _in_play(self) -> tuple[Margin, ...]:
        return (*self.margins, *self.invariants, *(b.margin for b in self.bounds))

    @property
    def held(self) -> tuple[Margin, ...]:
        """Return all margins of the problem and those of structural zeros, without conditions."""
        zeros = (Margin(self.cells.tree.levels[0], tuple(zero)) for zero in self.zeros)
        every = (Margin(m.level, m.attributes) for m in (*self._in_play, *zeros))
        return tuple(dict.fromkeys(canonical(self.cells, m) for m in every))

    @cached_property
    def nested(self) -> NestedTree:
        """Return the tree of nested margins; only for structures `sum` and `tree`."""
        assert self.chain is not None, "only nested margins make a tree"
        return nest(self.cells, self.chain)

    @cached_property
    def zero_cells(self) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of the cells that are structural zeros."""
        return self.cells.zero_cells(self.zeros)

    @property
    def zero_combinations(self) -> NDArray[np.bool_]:
        """Return a mask `(n / places,)` of the attribute combinations that are structural zeros at every place."""
        return self.cells.zero_combinations(self.zeros)

    def zero_groups(self, margin: Margin) -> NDArray[np.bool_]:
        """Return a mask `(groups,)` of a margin's groups that hold only structural zeros."""
        if not self.zeros:
            return np.zeros(self.cells.size(margin), bool)
        if self.cells.is_family or margin.where:
            return self.cells.sum((~self.zero_cells).astype(np.int64), margin) == 0
        free = marginalise((~self.zero_combinations).astype(np.int64), self.cells.marginal(margin.attributes))
        return np.tile(free == 0, self.cells.margin_shape(margin)[0])

    def known_zeros(self, margin: Margin) -> NDArray[np.bool_]:
        """Return a mask `(groups,)` of the groups that must be zero by structural zeros or upper limits of 0."""
        closed = [b for b in self.bounds if b.upper is not None] if self.nonnegative else []
        if self.cells.is_family or not closed:
            return self.zero_groups(margin)
        free = ~self.zero_cells
        for bound in closed:
            _, upper = self.bound_values(bound)
            free &= (upper > 0)[self.cells.groups(self.cells.finest, bound.margin)]
        return self.cells.sum(free.astype(np.int64), margin) == 0

    def bound_values(self, bound: Bound) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower and upper limit of every group of a bound's margin; infinite if there is none."""
        inside = self._groups_where(bound.margin, dict(bound.where))
        lower = np.where(inside, -np.inf if bound.lower is None else bound.lower, -np.inf)
        return lower, np.where(inside, np.inf if bound.upper is None else bound.upper, np.inf)

    def _groups_where(self, margin: Margin, where: Mapping[str, str]) -> NDArray[np.bool_]:
        cells = self.cells.holding(margin)
        chosen = np.broadcast_to(cells.where(where), cells.shape).astype(np.int64)
        return cells.sum(chosen.ravel(), margin) > 0


def _refuse_other_length(bound: Bound, cells: Cells) -> None:
    for limit in (bound.lower, bound.upper):
        if np.ndim(limit) and len(limit) not in (1, cells.size(bound.margin)):  # pyright: ignore[reportArgumentType]
            raise SpecError(
                f"a bound of '{bound.margin}' has {len(limit)} limits",  # pyright: ignore[reportArgumentType]
                needed=f"one limit for all counts, or {cells.size(bound.margin)} limits: one for each count",
            )


def refuse_broken(constraints: Constraints, counts: NDArray) -> None:
    """Refuse confidential cell counts `(n,)` that break a rule; name the rule but no place.

    Raises
    ------
    InfeasibleError
        Naming the broken rules.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> refuse_broken(Constraints(cells, ()), np.array([3, -1]))
    Traceback (most recent call last):
    trueup.errors.InfeasibleError: the confidential counts break nonnegativity. ...
    """
    found = dict.fromkeys(f"{rule}{whose}" for rule, whose, _ in _violations(constraints, counts))
    refuse_violations(list(found), "the confidential counts", about="counts")


def violations(constraints: Constraints, counts: NDArray) -> list[str]:
    """Return every rule that public cell counts `(n,)` break, and some places that break it, without counts.

    Whole numbers are held to the rules exactly, real ones to within their `slack`. Invariants are not rules
    about one table and are checked where both tables are known.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> violations(Constraints(cells, ()), np.array([3, -1]))
    ['nonnegativity at b']
    """
    return [f"{rule} at {place}" for rule, _, place in _violations(constraints, counts)]


def _violations(constraints: Constraints, counts: NDArray) -> Iterator[tuple[str, str, str]]:
    """Yield each broken rule, its table or level, and a place that breaks it, at most three per rule."""
    cells, off = constraints.cells, slack(counts)
    if constraints.nonnegative:
        yield from (("nonnegativity", "", cells.label(i)) for i in np.flatnonzero(counts < -off)[:3])
    held = np.flatnonzero(constraints.zero_cells & (np.abs(counts) > off))[:3]
    yield from (("structural zero", "", cells.label(i)) for i in held)
    yield from (("agreement", f" on '{m}'", place) for m, place in cells.disagreements(counts, off))
    for bound in constraints.bounds:
        lower, upper = constraints.bound_values(bound)
        table = cells.sum(counts, bound.margin)
        outside = np.flatnonzero((table < lower - off) | (table > upper + off))[:3]
        whose = f" of '{bound.margin}'{bound.declared}"
        yield from (("bound", whose, cells.margin_label(bound.margin, int(g))) for g in outside)
    for rule in constraints.linear:
        whose = f" at level '{rule.level}'"
        yield from ((f"'{rule.linear.text}'", whose, place) for place in _broken_rows(cells, rule, counts))


def slack(counts: NDArray) -> float:
    """Return the amount by which counts may miss a rule: 0 for whole counts, otherwise a rounding allowance.

    Continuous methods stop at residuals of 1e-9 of the largest sum, once polished.
    """
    if counts.dtype.kind in "iub":
        return 0
    return 1e-6 + 1e-9 * float(np.abs(counts).sum())


def _broken_rows(cells: Cells, rule: LinearRule, counts: NDArray) -> list[str]:
    tables = {
        name: name_values(cells, name, rule.level, counts).tolist() for name in rule.linear.coefficients
    }
    off = slack(counts)
    rows = (dict(zip(tables, row)) for row in zip(*tables.values()))
    broken = (p for p, row in enumerate(rows) if not rule.linear.holds(row, off))
    return [cells.tree.label(rule.level, p) for p, _ in zip(broken, range(3))]


def name_values(cells: Cells, name: str, level: str, values: NDArray) -> NDArray:
    """Return, for every place of a level, the sum of the values that a name in a linear rule selects.

    A name is a value of an attribute or a recode (`female`), or several joined (`sex=female, age=old`).
    """
    chosen = name_mask(cells, name) * values.reshape(cells.shape)
    return cells.sum(chosen.ravel(), Margin(level))


def name_mask(cells: Cells, name: str) -> NDArray[np.bool_]:
    """Return a mask `(1, sizes...)` of the attribute combinations that a name in a linear constraint selects.

    Raises
    ------
    SpecError
        If the name is no value of an attribute or a recode, or means different ones.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")),))
    >>> name_mask(cells, "m")
    array([[False,  True]])
    """
    mask = np.ones((1, *cells.shape[1:]), dtype=bool)
    for part in name.split(","):
        mask &= _resolve(cells, part.strip())
    return mask


def _resolve(cells: Cells, part: str) -> NDArray[np.bool_]:
    """Return a mask of the attribute combinations that `value` or `attribute=value` selects."""
    attribute, _, value = part.rpartition("=")
    found = [
        cells.where({r.name: value})
        for a in cells.attributes
        for r in a.views
        if value in r.values and attribute in ("", r.name)
    ]
    if found and all(np.array_equal(mask, found[0]) for mask in found):
        return found[0]
    what = "is a value of several attributes" if found else "is no value of a declared attribute"
    raise SpecError(f"the name '{part}' in a linear constraint {what}", remedy="write 'attribute=value'")


def refuse_violations(found: Sequence[str], what: str, about: str = "") -> None:
    """Raise InfeasibleError naming the broken rules, if there are any."""
    if found:
        raise InfeasibleError(
            f"{what} break {'; '.join(found)}",
            remedy="correct the data, or correct or drop the constraint",
            about=about,
        )
