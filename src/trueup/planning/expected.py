"""Error to expect of weighted least squares, as a function of the noise: what planning a budget needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.least_squares import HistogramTree
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.histogram.symmetric_tree import alike
from trueup.model.cells import Cells, Margin, detailed

Reals = NDArray[np.float64]
Errors = Callable[[Sequence[float]], tuple[Reals, Reals]]


def histogram_errors(cells: Cells, margins: Sequence[Margin]) -> Errors:
    """Closed form of the errors of crossing tables on a hierarchy.

    Parameters
    ----------
    cells
        The finest cells.
    margins
        The measured tables, k of them.

    Returns
    -------
    function
        From the variances of the noise on every table (counts squared; 0 exact, infinity not measured), k of
        them, to the mean and the largest error variance of every table, (k,) and (k,). Infinite where the
        measurements no longer determine all cells.

    Notes
    -----
    Errors are those of weighted least squares over all tables together, before nonnegativity and rounding:
    `kernel.histogram.HistogramTree.margin_variances` on a tree in which alike nodes are taken once.

    Examples
    --------
    >>> from trueup.model.cells import Attribute
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o"))))
    >>> crossing = [Margin("all", ("sex",)), Margin("all", ("age",)), Margin("all", ("sex", "age"))]
    >>> mean, largest = histogram_errors(cells, crossing)([2.0, np.inf, 1.0])
    >>> mean
    array([1.  , 1.5 , 0.75])
    """
    tables = [(cells.tree.level(m.level), cells.marginal(m.attributes)) for m in margins]
    domain = Domain.of([detailed(cells), *(marginal for _, marginal in tables)])
    spine = alike(Spine(cells.tree.child_ptr))

    def errors(variances: Sequence[float]) -> tuple[Reals, Reals]:
        measured = [(level, (marginal, float(v))) for (level, marginal), v in zip(tables, variances)]
        plan = [[one for at, one in measured if at == level] for level in range(spine.depth)]
        try:
            tree = HistogramTree.prepare(domain, spine, plan)
        except SpecError:
            return np.full(len(tables), np.inf), np.full(len(tables), np.inf)
        found = [(level, tree.margin_variances(level, marginal)) for level, marginal in tables]
        return np.array([spine.mean(*one) for one in found]), np.array([v.max() for _, v in found])

    return errors
