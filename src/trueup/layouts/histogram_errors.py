"""Standard errors of least squares on histograms, table by table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.layouts.histogram import HistogramProblem
from trueup.model.cells import Margin


def histogram_standard_errors(problem: HistogramProblem) -> dict[Margin, NDArray]:
    """Return standard errors (counts) of least squares for every measured margin and every level's total."""
    cells, tree = problem.cells, problem.tree
    margins = (
        {Margin(level) for level in cells.tree.levels} | {h.margin for h in problem.headers} | {cells.finest}
    )
    return {
        m: _spread(
            problem,
            m,
            np.sqrt(tree.margin_variances(cells.tree.level(m.level), problem.marginal(m.attributes))),
        )
        for m in sorted(margins, key=str)
    }


def _spread(problem: HistogramProblem, margin: Margin, errors: NDArray) -> NDArray:
    """Return a folded table's errors in the full table: zero for impossible cells."""
    full = np.zeros((len(errors), problem.cells.size(margin) // len(errors)))
    full[:, problem.fold.columns(problem.cells.marginal(margin.attributes))] = errors
    return full.ravel()
