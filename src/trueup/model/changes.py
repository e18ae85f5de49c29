"""Smallest possible changes of cells under invariants and structural zeros, and their privacy loss.

`Kept` says which sums a change must leave at every place of which level. For each cell that is not fixed the smallest
change is a vector of least L1 norm that leaves the sums and moves the cell; the hardest cell is one whose smallest change
is largest. There are three kinds of cells:

1. In no sum: one unit enters or leaves it, norm 1.
2. With a twin, a cell in the same sums: one unit leaves the one for the other, norm 2 (`_twins`).
3. Others: by search on few places (`model.search`).

**Several tables.** Records lie in the cells of the full cross. Up to `MOST_COMBINATIONS` combinations of attributes
these are listed, as for one table. Beyond that, and without invariants and structural zeros, all combinations are
alike: a count is shared only if it is the number of all records, and that is. Then two values stand for each
attribute, which every view of it tells apart if any two values are told apart by all: a unit that changes between
combinations of these moves every query that any change moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Constraints
from trueup.model.guarantee import Change
from trueup.model.kept import Fixed, Found, Kept, PricedChanges
from trueup.privacy import compose
from trueup.privacy.contribution import Relation

MOST_COMBINATIONS = 10**6
"""Combinations of a family's attributes up to which they are listed: some numbers for each."""


@dataclass(frozen=True, eq=False)
class AllAlike(Kept):
    """The sums shared by all compared databases if all attribute combinations are equivalent: one total, or none.

    Attributes
    ----------
    whole
        The full cross; `cells` has two values of each attribute.
    total
        True if compared databases have equal numbers of records.
    """

    whole: Cells | None = None
    total: bool = False

    def fixed(self, margin: Margin) -> Fixed:
        """Return the counts of a margin that are equal in all compared databases."""
        assert self.whole is not None
        size = prod(r.size for r in self.whole.kept(margin))
        tops = self.tree.alone[self.level(margin)]
        by_top = {int(top): np.full(size, self.total and top == 0 and size == 1) for top in np.unique(tops)}
        return Fixed(self.whole, margin, tops, by_top, np.arange(size))


def kept_of(constraints: Constraints, *, total: bool) -> Kept:
    """Return the sums that constraints fix; for a family of tables, over the full cross of its attributes."""
    if not constraints.cells.is_family:
        return Kept.of(constraints, total=total)
    whole = of_records(constraints)
    if (combinations := prod(whole.cells.shape[1:])) <= MOST_COMBINATIONS:
        return Kept.of(whole, total=total)
    if constraints.invariants or constraints.zeros:
        raise SpecError(
            f"the attributes have {combinations:,} combinations of values, too many to find what invariants and "
            "structural zeros imply",
            needed=f"at most {MOST_COMBINATIONS:,} combinations",
            remedy="leave out the invariants and zeros, or measure fewer attributes in one release",
        )
    few = Cells(whole.cells.tree, tuple(map(_two_values, whole.cells.attributes)))
    own = Kept.of(replace(whole, cells=few, margins=(), bounds=()), total=total)
    return AllAlike(own.cells, own.tree, own.free, own.sums, whole=whole.cells, total=total)


def of_records(constraints: Constraints) -> Constraints:
    """Return the constraints of a family on the full cross of its attributes."""
    from trueup.model.family import FamilyCells

    cells = constraints.cells
    assert isinstance(cells, FamilyCells)
    return replace(constraints, cells=cells.whole)


def _two_values(attribute: Attribute) -> Attribute:
    """Return an attribute reduced to two values that as many of its recodes as possible separate."""
    apart = np.sum([np.not_equal(view.groups, view.groups[0]) for view in attribute.views], axis=0)
    both = sorted({0, int(np.argmax(apart))})

    def seen(view: Recode) -> Recode:
        groups = [view.groups[i] for i in both]
        kept = list(dict.fromkeys(groups))
        return Recode(view.name, tuple(view.values[g] for g in kept), tuple(kept.index(g) for g in groups))

    own, *recodes = map(seen, attribute.views)
    return Attribute(own.name, own.values, attribute.partition, tuple(recodes))


MAX_SEARCH_STEPS = 200_000
"""Partial changes that the search may visit by default: a few seconds."""
MAX_COMPARED_TWIN_KINDS = 5000
"""Kinds of twins up to which every pair is compared."""


def smallest_change(
    constraints: Constraints,
    relation: Relation,
    measured: Sequence[tuple[Margin, Any]] = (),
    *,
    steps: int = MAX_SEARCH_STEPS,
) -> Change | None:
    """Return the smallest change of the cell that is hardest to change, and its loss.

    Every unit must count in exactly one cell.

    Parameters
    ----------
    constraints
        The invariants and structural zeros that compared databases share.
    relation
        The neighbour relation in whose steps the change is counted. Under `replace` the number of units is shared.
    measured
        The measured margins with their laws; without them the loss is zero.
    steps
        Limit on the steps of the search.

    Returns
    -------
    None if every cell is fixed, or the change is not found within the steps.

    Examples
    --------
    >>> from trueup.model.cells import Attribute, Cells
    >>> from trueup.model.tree import Tree
    >>> ab = tuple(Attribute(name, ("1", "2", "3")) for name in "ab")
    >>> margins = tuple(Margin("all", (a.name,)) for a in ab)
    >>> constraints = Constraints(Cells(Tree.from_columns(["all"], [{}]), ab), (), invariants=margins)
    >>> smallest_change(constraints, "replace").steps
    2
    """
    return Changes(kept_of(constraints, total=relation == "replace"), relation, tuple(measured)).hardest(
        steps
    )


class Changes(PricedChanges):
    """The changes between databases with the same sums `kept`, and the cell that is hardest to change."""

    def hardest(self, steps: int = MAX_SEARCH_STEPS) -> Change | None:
        """Return the smallest change of the cell that is hardest to change; see `smallest_change`."""
        if not self.kept.complete:
            return None
        if (lone := self._searched(steps)) is None:
            return None
        found = [*self._entering(), *self._twins(), *lone]
        if not found:
            return None
        norm = max(f.norm for f in found)
        hardest = max((f for f in found if f.norm == norm), key=lambda f: (self.size(f.loss), f.attained))
        amount, delta = max(self.size(f.loss) for f in found), max(f.loss.delta for f in found)
        attained = (
            hardest.attained and self.size(hardest.loss) == amount and not delta and len(self.currencies) < 2
        )
        return Change(
            hardest.moved, norm, self.steps(norm), amount, delta, all(f.smallest for f in found), attained
        )

    def _searched(self, steps: int) -> list[Found] | None:
        """Return the smallest changes of cells whose sums no other cell has in common; None if the search ends early."""
        kept = self.kept
        alike = np.bincount(kept.classes, minlength=1)[kept.classes] > 1
        lone = np.flatnonzero(~alike & (kept.depth >= 0))
        if not len(lone) or kept.depth[lone].max() < kept.tree.alone[-1].min():
            return []
        from trueup.kernel.lattice.smallest import Exhausted
        from trueup.model.search import searched

        try:
            return searched(self, lone, steps)
        except Exhausted:
            return None

    def _entering(self) -> list[Found]:
        """Return the change by one unit that enters or leaves, if some cell is in no shared sum."""
        if not (self.kept.depth < 0).any():
            return []
        return [Found(1, 0, compose(q.cost(1, 1) for q in self.queries))]

    def _twins(self) -> list[Found]:
        """Return the changes that move one unit between two cells with the same shared sums.

        Twins are two combinations of one class, or two places of the last level that share all places down to the class's
        depth d, the lowest level at which it is in a sum. Which levels tell two places apart does not depend on
        combinations, and wherever a level s below d has more places than level d, some place of level d holds two of
        level s, hence of every level below s. So the first such s serves all queries at levels s and below at once, and
        what is left is to choose two combinations for the queries above s.
        """
        sizes, classes = self.kept.tree.sizes, self.kept.classes
        every = compose(q.cost(2, 2) for q in self.queries if q.free > 1)
        found: list[Found] = []
        for label in np.unique(classes[self.kept.depth >= 0]):
            members = np.flatnonzero(classes == label)
            depth = int(self.kept.depth[members[0]])
            split = next((s for s in range(depth + 1, len(sizes)) if sizes[s] > sizes[depth]), len(sizes))
            if split == len(sizes) and len(members) < 2:
                continue
            found.append(self._apart(members, split))
            if found[-1].attained and found[-1].loss == every:
                break
        return found and [max(found, key=lambda f: (self.size(f.loss), f.attained))]

    def _apart(self, members: NDArray[np.intp], split: int) -> Found:
        """Return the move between two attribute combinations with the largest total loss in queries above level `split`."""
        far = [q for q in self.queries if q.level >= split]
        near = [q for q in self.queries if q.level < split and np.ptp(q.group[members])]
        if not near:
            return Found(2, 1, compose(q.cost(2, 2) for q in far))
        kinds = np.unique(np.array([q.group[members] for q in near]), axis=1)
        apart, sure = _farthest(kinds, _whole_ratios([self.size(compose([q.cost(2, 2)])) for q in near]))
        told = [q for q, differs in zip(near, apart) if differs or not sure]
        return Found(2, 1, compose(q.cost(2, 2) for q in (*far, *told)), sure)


def _whole_ratios(losses: list[Fraction]) -> NDArray:
    """Return whole numbers in the ratio of losses, so that sums of them compare exactly."""
    scale = lcm(*(loss.denominator for loss in losses))
    whole = [int(loss * scale) for loss in losses]
    return np.array(whole, dtype=np.int64 if sum(whole) < 2**62 else object)


def _farthest(kinds: NDArray, weight: NDArray) -> tuple[NDArray[np.bool_], bool]:
    """Return in which queries the costliest pair of columns differs, and True if it is surely the costliest.

    With too many kinds to compare every pair, a pair that differs in all of them is looked for; else it is not sure.
    """
    best, most = np.zeros(len(kinds), bool), -1
    for kind in kinds.T[:MAX_COMPARED_TWIN_KINDS]:
        differs = kinds != kind[:, None]
        total = weight @ differs
        if len(total) and total.max() > most:
            best, most = differs[:, int(np.argmax(total))], total.max()
        if best.all():
            return best, True
    return best, kinds.shape[1] <= MAX_COMPARED_TWIN_KINDS
