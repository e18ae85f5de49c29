"""The record of `reconcile`: counts that satisfy every constraint, with a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.records.measurements import Measurements


@dataclass(frozen=True, eq=False)
class Release:
    """Counts that add up.

    Attributes
    ----------
    measurements
        The measurements they were made from.
    counts
        `(n,)` integers (or reals for a continuous method) of the finest cells.
    method
        Name and parameters of the reconciliation method.
    checks
        Each rule that was checked on the final counts, and whether it holds.
    stats
        What the method reported.
    published
        The margins whose tables are released, coarse to fine.
    errors
        For margins where it is known in closed form, the standard error `(groups,)` of the
        least-squares estimate (counts), before nonnegativity and rounding.
    """

    measurements: Measurements
    counts: NDArray
    method: Mapping[str, Any]
    checks: Mapping[str, bool]
    stats: Mapping[str, Any]
    published: tuple[Margin, ...] = ()
    errors: Mapping[Margin, NDArray] = field(default_factory=dict)

    @property
    def cells(self) -> Cells:
        """The finest cells."""
        return self.measurements.cells

    def table(self, margin: Margin) -> NDArray:
        """Released counts of a margin, summed from the finest cells.

        Examples
        --------
        >>> import numpy as np
        >>> from fractions import Fraction
        >>> from trueup.model.guarantee import Guarantee
        >>> from trueup.model.tree import Tree
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
        >>> none = Guarantee("dp", "person", "add-remove", "epsilon", Fraction(0), Fraction(0), (), ())
        >>> Release(Measurements(cells, (), (), none), np.array([3, 4]), {}, {}, {}).table(Margin("all"))
        array([7])
        """
        return self.cells.sum(self.counts, margin)

    def adjustments(self) -> dict[str, NDArray]:
        """Released minus noisy count, for every noisy margin."""
        pairs = zip(self.measurements.headers, self.measurements.values)
        noisy = ((h, v) for h, v in pairs if not h.exact)
        return {f"{h.query} @ {h.margin}": h.sums(self.cells, self.counts) - v for h, v in noisy}
