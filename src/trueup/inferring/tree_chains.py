"""Trees that no grids hold: the chains of `histogram-gibbs` on the same counts, whose cost noise does not change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.method import Progress
from trueup.inferring.tree_state import TreeState
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints
from trueup.model.prior import Hierarchical
from trueup.model.records.drawn import Drawn
from trueup.run.deadline import Deadline

WEAK_R_HAT = 1.2
"""Largest R-hat from which on chains are called weak."""
ONE_COLUMN = (Attribute("counted", ("all",)),)
PRIOR = (
    "No grids hold the posterior under the prior of 'tree-exact'. These are draws of the chains of 'histogram-gibbs' under its "
    "prior, in which the compositions of places vary around those of the places above them."
)
WEAK = "These chains are weak: intervals are rough, and other seeds would move them."


def chains_for(state: TreeState) -> HistogramGibbs | None:
    """Return the chains that take a tree's prior, constraints and measurements; None where none do."""
    prior, problem = state.prior, state.problem
    if not isinstance(prior, Hierarchical) or prior.concentrations:
        return None
    chains = HistogramGibbs(prior, "approximate")
    return None if chains.refuses(_of_columns(problem.constraints), problem.headers) else chains


def _of_columns(constraints: Constraints) -> Constraints:
    """Return the constraints; cells without attributes become histograms of one column."""
    cells = constraints.cells
    return constraints if cells.attributes else replace(constraints, cells=Cells(cells.tree, ONE_COLUMN))


def drawn_by_chains(
    chains: HistogramGibbs,
    state: TreeState,
    values: NDArray,
    draws: int,
    rng: np.random.Generator,
    progress: Progress,
    deadline: Deadline,
) -> Drawn:
    """Draw the counts of a tree by chains; the record names their prior, and says whether they are weak.

    Raises
    ------
    SpecError
        If they are predicted to take longer than is left, or more memory than there is.
    ConvergenceError
        If time is spent before anything can be said.
    """
    problem = state.problem
    prepared = chains.prepare(_of_columns(problem.constraints), problem.headers)
    found = chains.apply(prepared, values, draws, rng, progress, deadline=deadline)
    weak = not found.stats["largest_r_hat"] <= WEAK_R_HAT  # nor is one good whose R-hat is not known
    said = " ".join([PRIOR, found.approximate, *([WEAK] if weak else [])])
    return replace(found, approximate=said, stats={**found.stats, "chains_of": chains.name})
