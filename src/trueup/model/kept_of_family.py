"""Sums that compared databases share if several tables are measured; records lie in the cells of the full cross.

Up to `MOST_COMBINATIONS` combinations of attributes these are listed, as for one table. Beyond that, and without invariants and
structural zeros, all combinations are alike: a count is shared only if it is the number of all records, and that is. Then two
values stand for each attribute, which every view of it tells apart if any two values are told apart by all: a unit that
changes between combinations of these moves every query that any change moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells
from trueup.model.kept import Fixed, Kept

MOST_COMBINATIONS = 10**6
"""Combinations of a family's attributes up to which they are listed: some numbers for each."""


@dataclass(frozen=True, eq=False)
class AllAlike(Kept):
    """Shared sums when all combinations are alike: the number of records, or nothing.

    Attributes
    ----------
    whole
        The full cross; `cells` has two values of each attribute.
    total
        Whether compared databases have equally many records.
    """

    whole: Cells | None = None
    total: bool = False

    def fixed(self, margin: Margin) -> Fixed:
        """Return which counts of a margin compared databases share: a count of all records, if their number is shared."""
        assert self.whole is not None
        size = prod(r.size for r in self.whole.kept(margin))
        tops = self.tree.alone[self.level(margin)]
        by_top = {int(top): np.full(size, self.total and top == 0 and size == 1) for top in np.unique(tops)}
        return Fixed(self.whole, margin, tops, by_top, np.arange(size))


def kept_of(constraints: Constraints, *, total: bool) -> Kept:
    """Collect the sums that constraints keep; those of a family on the full cross, in whose cells records lie."""
    if not constraints.cells.is_family:
        return Kept.of(constraints, total=total)
    whole = of_records(constraints)
    if (combinations := prod(whole.cells.shape[1:])) <= MOST_COMBINATIONS:
        return Kept.of(whole, total=total)
    if constraints.invariants or constraints.zeros:
        raise SpecError(
            f"the attributes have {combinations:,} combinations, too many to work out what invariants and "
            "structural zeros imply",
            needed=f"at most {MOST_COMBINATIONS:,}",
            remedy="leave out the invariants and zeros, or measure fewer attributes in one release",
        )
    few = Cells(whole.cells.tree, tuple(map(_two_values, whole.cells.attributes)))
    own = Kept.of(replace(whole, cells=few, margins=(), bounds=()), total=total)
    return AllAlike(own.cells, own.tree, own.free, own.sums, whole=whole.cells, total=total)


def of_records(constraints: Constraints) -> Constraints:
    """Return the constraints on the full cross of a family, in whose cells records lie."""
    cells = constraints.cells
    assert isinstance(cells, FamilyCells)
    return replace(constraints, cells=cells.whole)


def _two_values(attribute: Attribute) -> Attribute:
    """Return an attribute with two of its values: the first, and one that most views separate from it."""
    apart = np.sum([np.not_equal(view.groups, view.groups[0]) for view in attribute.views], axis=0)
    both = sorted({0, int(np.argmax(apart))})

    def seen(view: Recode) -> Recode:
        groups = [view.groups[i] for i in both]
        kept = list(dict.fromkeys(groups))
        return Recode(view.name, tuple(view.values[g] for g in kept), tuple(kept.index(g) for g in groups))

    own, *recodes = map(seen, attribute.views)
    return Attribute(own.name, own.values, attribute.partition, tuple(recodes))
