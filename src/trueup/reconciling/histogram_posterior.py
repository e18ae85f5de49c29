"""Histograms on a hierarchy settled at posterior means under splits whose concentrations are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trueup.reconciling.histogram_tree import HistogramTree


@dataclass(frozen=True)
class HistogramPosterior(HistogramTree):
    """Reconcile histograms on a hierarchy at the posterior means of each parent's children.

    Weighted least squares as in `histogram-tree`; then, from the top, each parent's children are settled at their
    posterior means given their estimates and the parent's settled table, under a Dirichlet-multinomial split of the
    total and of each child's cells around the parent's composition. Concentrations are estimated from the noisy values,
    parent by parent. Sums are kept in the metric of the posterior variances, and tables rounded with every sum kept.
    The root, which has no parent, is settled as in `histogram-tree`, and so are the children of a parent whose rules
    leave the means no table or that has more than 320 cells that are not zero. Children far above their siblings keep
    their estimates. Small counts are biased downwards, zeros upwards; the errors of nearly all classes are smaller than
    those of `histogram-tree`.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    """

    name: ClassVar[str] = "histogram-posterior"
    title: ClassVar[str] = (
        "histograms on a hierarchy: posterior means under estimated splits, settled from the top"
    )
    shrinks: ClassVar[bool] = True
    posterior: ClassVar[bool] = True
