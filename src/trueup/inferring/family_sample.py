"""A sample of a large tree's families, from which hyperparameters of its prior are estimated.

Where a count's parts are left out, so are all measurements below it, and it is a leaf. The splits left out sum to 1, so
the evidence of what remains is exact: that of the remaining values, which is a part of what was published. Which families
remain follows from the order of the public list of places alone: the i-th of a level where the fractional part of i times the
golden ratio is below a share. Such positions are spread evenly and keep step with nothing, as every tenth would with ten
kinds of people.

A concentration that n parts inform has a standard error of sqrt(2 / n) at best, and a larger one where counts are
noisy or places differ more than the prior says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.tree_state import DEPTHS, TreeState
from trueup.kernel.messages.kinds import with_divisors
from trueup.kernel.messages.partition import take_factors
from trueup.kernel.messages.pmf import SPLIT, Factors, reach_all
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import Split
from trueup.layouts.splits import Splits

Integers = NDArray[np.int64]
BEGIN, SAMPLE_PARTS = 1000, 5000
"""Parts of a level, where it has more, from which the search begins, and from which hyperparameters are estimated."""
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class FamilySample(TreeState):
    """A tree problem without the descendants of some of its nodes.

    Attributes
    ----------
    nodes, kept_children
        Which nodes remain, in order, and their children among themselves.
    """

    nodes: Integers
    kept_children: Integers

    @property
    def child_ptr(self) -> Integers:
        """Return child pointers: the children of node `v` are `child_ptr[v]:child_ptr[v + 1]`."""
        return self.kept_children

    @classmethod
    def of(cls, state: TreeState, enough: int) -> FamilySample | None:
        """Leave out families of levels with more than `enough` counts; return None if no level has as many."""
        nested = state.problem.nested
        if np.diff(nested.level_ptr).max() <= enough:
            return None
        sizes, levels, children = np.diff(nested.child_ptr), [np.zeros(1, np.int64)], []
        for _ in nested.margins[1:]:
            parents = levels[-1]
            share = min(enough / max(sizes[parents].sum(), 1), 1.0)
            kept = np.where((np.arange(len(parents)) * GOLDEN) % 1.0 < share, sizes[parents], 0)
            children.append(kept)
            within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
            levels.append(np.repeat(nested.child_ptr[parents], kept) + within)
        children.append(np.zeros(len(levels[-1]), np.int64))
        child_ptr = 1 + np.concatenate([[0], np.cumsum(np.concatenate(children))])
        return cls(state.problem, state.prior, None, state.total, np.concatenate(levels), child_ptr)

    def splits(self, whole: Splits) -> Splits:
        """Return the prior of what remains."""
        each = ("free", "level", "log_share", "covariates", "category")
        return replace(
            whole, child_ptr=self.child_ptr, **{name: getattr(whole, name)[self.nodes] for name in each}
        )

    def factors(self, values: NDArray, depth: NDArray, splits: Split | None = None) -> Factors | None:
        """Return the sample's factors as `TreeState.factors` does; bounds and invariants of what is left out remain."""
        key = id(values), depth.tobytes()
        if (
            key not in self._made
        ):  # of large trees, what costs most; from one evaluation to the next splits alone change
            self._made.clear()
            self._made[key] = self._without_splits(values, depth)
        own = self._made[key]
        if own is None:
            return None
        if splits is None:
            return own
        own = own._replace(**dict(zip(SPLIT, splits)))
        return with_divisors(own, *bounds(self.child_ptr, *reach_all(own)))

    @cached_property
    def _made(self) -> dict[tuple[int, bytes], Factors | None]:
        """Return the factors that were made last, without splits."""
        return {}

    def _without_splits(self, values: NDArray, depth: NDArray) -> Factors | None:
        every = np.full(len(self.problem.child_ptr) - 1, DEPTHS[0])
        every[self.nodes] = depth
        if (found := super().tables(values, every)) is None:
            return None
        low, high = bounds(self.problem.child_ptr, found.lower, found.upper)
        return take_factors(found, self.nodes)._replace(lower=low[self.nodes], upper=high[self.nodes])

    def refuse_contradiction(self, values: NDArray, factors: Factors) -> None:
        """Do nothing: contradictions are named when the whole tree is solved."""

    def record(self, splits: Splits) -> dict[str, list[int]]:
        """Return for each concentration how many parts with siblings it was estimated from, and how many there are."""
        used, every = self.splits(splits).families(), splits.families()
        return {
            str(margin): [int(some), int(all_)]
            for margin, some, all_ in zip(self.problem.nested.margins[1:], used, every)
        }
