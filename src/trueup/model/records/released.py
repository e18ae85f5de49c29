"""Counts released to add up, without the noisy counts behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trueup.digits import ThreeLines
from trueup.model.cells import Cells
from trueup.model.guarantee import Guarantee
from trueup.model.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedCounts(ThreeLines):
    """Released counts alone, for `infer` when no measurements were published.

    Attributes
    ----------
    problem
        The spec, which says under which laws counts were measured, with its places.
    counts
        `(n,)` released whole counts of the finest cells.
    method
        Name and parameters of the method that released them, as the spec says.
    """

    problem: Problem
    counts: NDArray
    method: Mapping[str, Any]

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"Released counts: {self.problem.spec.title}",
            f"{self.counts.size:,} finest cells, no measurements",
            f"released by the method '{self.method['method']}'",
        )

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.problem.cells

    @property
    def guarantee(self) -> Guarantee:
        """Return the guarantee of the release, as its spec states it."""
        return self.problem.guarantee
