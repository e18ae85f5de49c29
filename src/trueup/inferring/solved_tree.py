"""A tree that exact messages have solved, ready to be drawn from in memory or by parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import NDArray

from trueup.inferring.tree_parts import Top, Weighted
from trueup.inferring.tree_search import SolutionSearch


@dataclass(frozen=True, eq=False)
class SolvedTree:
    """A mixture of solutions of a tree, or of its top, ready to be drawn from.

    Attributes
    ----------
    search
        What found them.
    tops
        The solutions, with their weights and how many draws come from each.
    top
        The top of a tree that is cut; None of a whole tree.
    record
        What a reader must know of the prior.
    varying
        Where the solutions of a whole tree differ, as `mixed_marginals` has it.
    best
        A most probable vector of counts, where it was asked for and is found already.
    """

    search: SolutionSearch
    tops: Sequence[Weighted]
    top: Top | None
    record: dict
    varying: tuple[int, int] = (0, 0)
    best: NDArray | None = None

    def stats(self, rounding: float, draws: int, *, whole: bool = True) -> dict:
        """Return the record of draws, given a bound of the mass that rounding moved on the way down."""
        dropped = min(float(sum(w * top.dropped for w, top, _ in self.tops)) + rounding, 1.0)
        return {**stats_of(dropped, self.search.deepest, draws, interrupted=not whole), **self.record}


def stats_of(dropped: float, depth: float, draws: int, *, interrupted: bool) -> dict:
    """Return the record of draws of a tree."""
    return {"dropped_mass": dropped, "table_depth": depth, "draws": draws, "interrupted": interrupted}
