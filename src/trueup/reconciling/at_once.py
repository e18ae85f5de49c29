"""A general program for the whole problem at once, used when a faster method found no answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.linear.programs import Answer
from trueup.kernel.status import Status
from trueup.layouts.linear import LinearProblem
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.reconciling.general_projection import GeneralProjection

MOST_CELLS = 20_000  # above this, the answer is that it was not solved


def at_once(
    constraints: Constraints,
    headers: Sequence[Measured],
    values: NDArray,
    rng: np.random.Generator,
    *,
    whole: bool,
    seconds: float = 60.0,
) -> Answer:
    """Return the nearest (whole) counts `(n,)` to one row of values `(q,)`, by least squares under all rules.

    Raises
    ------
    InfeasibleError
        If it is proved that the rules exclude each other; it names them.
    """
    problem = LinearProblem(constraints, tuple(headers))
    if constraints.cells.n > MOST_CELLS:
        return Answer(np.zeros(constraints.cells.n), Status.UNSOLVED, np.inf, np.inf, None)
    general = GeneralProjection(rounding="controlled" if whole else "none", seconds=seconds)
    return general.project(problem, values, rng)


def invariants_kept(
    cells: Cells, headers: Sequence[Measured], values: NDArray, counts: NDArray
) -> NDArray[np.bool_]:
    """Return a mask of the rows of whole counts `(b, n)` that have exactly the invariants of their values `(b, q)`."""
    found = np.ones(len(counts), bool)
    for header, part in zip(headers, split(values, headers, cells), strict=True):
        if header.exact:
            table = cells.sum(counts, header.margin)
            found &= ((table if header.groups is None else table[:, header.groups]) == part).all(axis=1)
    return found
