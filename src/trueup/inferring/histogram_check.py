"""Checks of the approximate tier of histograms by separate chains on single places.

Least squares turns all measurements outside a place into a normal law of the place's table. Let x with covariance P be the
estimate from all measurements, and z with covariance V that from the place and below. Then the law has the precision
`P^-1 - V^-1` and the linear term `P^-1 x - V^-1 z`. Concentrations are those of the approximate tier. So chains of single places
leave out the prior of other places, and short chains are not fully mixed. The difference shows how large either error may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.method import Progress, announce, silent
from trueup.inferring.recast import parts_within
from trueup.kernel.settling.posterior_mean import EXACT
from trueup.layouts.columns import ColumnProblem
from trueup.layouts.histogram import HistogramProblem, histogram_problem

BURN, KEPT, THIN = 30, 150, 2
"""Sweeps before, draws, and sweeps between them, of each of two chains on a place."""
SWEEPS = 2 * (BURN + KEPT * THIN)
"""Sweeps of both chains on a place."""
SHARE, MOST_STEPS = 0.2, 5_000_000
"""Largest cost of the compared places, as a share of a sweep of all places; and most moves of cells, in such sweeps, that a
single place may cost instead: some seconds."""
COLUMNS_OF_A_STEP = 60
"""Columns of a place's table with which the law of the rest costs as much at each step as the measured tables do."""


@dataclass(frozen=True)
class Agreement:
    """Differences between posterior means of the approximate tier and means of chains on single places.

    Attributes
    ----------
    places
        Number of places that were compared with chains of their own.
    totals, cells
        Root mean squares of the differences of the lowest places' totals, and of their cells.
    largest
        The largest difference of a total.
    spread
        Standard deviations of totals over those of chains on single places, the median.
    """

    places: int
    totals: float
    cells: float
    largest: float
    spread: float

    @property
    def record(self) -> dict[str, Any]:
        """Return the figures of the comparison as a dict for the posterior's record."""
        return {
            "places": self.places,
            "rms_difference_of_totals_in_sds": self.totals,
            "rms_difference_of_cells_in_sds": self.cells,
            "largest_difference_of_a_total_in_sds": self.largest,
            "median_ratio_of_sds_of_totals": self.spread,
        }

    @property
    def text(self) -> str:
        """Return the comparison as text."""
        if not self.places:
            return "It was not compared with separate chains on single places."
        return (
            f"Compared with separate chains on {self.places} random places, given a normal law of all others: "
            f"posterior means of the lowest places' totals differ by {self.totals:.2f} posterior standard deviations "
            f"(root mean square; {self.largest:.2f} at most), those of their cells by {self.cells:.2f}."
        )


def agreement(
    walk: HistogramWalk, run: NDArray, count: int, rng: np.random.Generator, progress: Progress
) -> Agreement:
    """Compare posterior means with those of separate chains on random places above the lowest level."""
    problem = walk.problem
    cells, level = problem.cells, len(problem.cells.tree.levels) - 2
    prepared = _prepared(problem) if count and level > 0 else None
    if prepared is None or not len(places := places_checked(problem, count, rng)):
        return Agreement(0, *4 * (float("nan"),))
    totals, each, spreads = [], [], []
    for done, place in enumerate(places.tolist()):
        own, leaves = _place(problem, prepared, level, place)
        here = run.reshape(-1, cells.shape[0], problem.columns)[:, leaves].astype(float)
        there = _chains(walk, own, leaves, rng).reshape(-1, len(leaves), problem.columns).astype(float)
        sizes = here.sum(axis=2), there.sum(axis=2)
        totals.append(_difference(*sizes))
        each.append(_difference(here, there).ravel())
        spreads.append((sizes[0].std(axis=0) + 1e-9) / (sizes[1].std(axis=0) + 1e-9))
        announce(progress, f"comparing places with separate Markov chains: {done + 1} of {len(places)}")
    total, cell = np.concatenate(totals), np.concatenate(each)
    return Agreement(
        len(places),
        float(np.sqrt(np.mean(total**2))),
        float(np.sqrt(np.mean(cell**2))),
        float(np.abs(total).max()),
        float(np.median(np.concatenate(spreads))),
    )


def places_checked(problem: ColumnProblem, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw up to `count` places of the level above the lowest, as many as can be checked in time."""
    tree = problem.cells.tree
    below = np.diff(tree.leaf_ptr(len(tree.levels) - 2))
    order = rng.permutation(len(below))
    shares = _cost_of_law(problem) * np.cumsum(below[order]) / below.sum()
    most = min(count, int((shares <= SHARE).sum()))
    return np.sort(order[: most or int(SWEEPS * shares[0] * problem.cells.n <= MOST_STEPS)])


def sweeps(problem: ColumnProblem, count: int) -> float:
    """Return the number of sweeps over all places that would take as long as checking the drawn places."""
    tree = problem.cells.tree
    if len(tree.levels) < 3:
        return 0.0
    one = _cost_of_law(problem) / tree.sizes[-2]
    alone = SWEEPS * one if SWEEPS * one * problem.cells.n <= MOST_STEPS else 0.0
    return SWEEPS * min(count * one, SHARE) if one <= SHARE else alone


def _cost_of_law(problem: ColumnProblem) -> float:
    """Return the cost of a sweep of one place alone, relative to its cost in a sweep over all places."""
    return 1.0 + problem.columns / COLUMNS_OF_A_STEP


def _difference(here: NDArray, there: NDArray) -> NDArray:
    """Return differences of means, divided by the standard deviation or at least by a tenth of a count."""
    return (here.mean(axis=0) - there.mean(axis=0)) / np.maximum(there.std(axis=0), 0.1)


def _chains(
    walk: HistogramWalk, problem: ColumnProblem, leaves: NDArray, rng: np.random.Generator
) -> NDArray:
    """Run two chains on one place, from the final states of the approximate tier's chains."""
    states, (above, last) = [], walk.problem.places.level_ptr[-3:-1]
    place = walk.problem.places.parent[last + leaves[0]] - above
    for state in walk.states[:2]:
        fresh = problem.state(state.x[leaves].copy(), 1.0, 1.0, float(state.rate[place]))
        fresh.weight[1:] = state.weight[last + leaves]
        fresh.a[1:], fresh.common[1:], fresh.kappa[1:] = state.a[-1], state.common[-1], state.kappa[-1]
        states.append(fresh)
    moves = problem.moves([state.x for state in states])
    own = HistogramWalk(problem, moves, rng.spawn(2), states, learn=False)
    own.limit = walk.limit
    own.run(1, BURN, silent)
    return own.run(KEPT, THIN, silent)


def _prepared(problem: ColumnProblem) -> tuple[HistogramProblem, Any, NDArray] | None:
    """Return the histogram's least-squares solution, or None if it does not cover every finest cell."""
    try:
        prepared = histogram_problem(problem.constraints, problem.headers, folded=True)
    except SpecError:
        return None
    if not prepared.fold.trivial:
        return None
    fit, _ = prepared.least_squares(np.concatenate([np.asarray(v, float) for v in problem.values])[None])
    return prepared, fit, prepared.tree.domain.forward(np.eye(problem.columns))


def _place(
    problem: ColumnProblem, prepared: tuple[HistogramProblem, Any, NDArray], level: int, place: int
) -> tuple[ColumnProblem, NDArray[np.int64]]:
    """Return the problem of one place given a normal law of all others, and the lowest places below it."""
    constraints, headers, values, leaves = parts_within(
        problem.constraints, problem.headers, problem.values, level, place
    )
    message = _message(*prepared, level, place)
    first = problem.places.level_ptr[level : level + 2]
    public = problem.public.at(np.append(first[0] + place, first[1] + leaves))
    return ColumnProblem(constraints, headers, values, message, public=public), leaves


def _message(
    state: HistogramProblem, fit: Any, basis: NDArray, level: int, place: int
) -> tuple[NDArray, NDArray]:
    """Return precision and linear term of the normal law of one place's table, given all other places."""
    tree, n = state.tree, basis.shape[0]
    precision, pull = np.zeros((n, n)), np.zeros(n)
    for c, component in enumerate(tree.domain.components):
        part = component.view(basis)
        all_, own = (
            inverse_of(blocks[min(place, len(blocks) - 1)])
            for blocks in (tree.covariances[level][c], tree.filters[level][c].variance)
        )
        precision += np.einsum("mic,ij,njc->mn", part, all_ - own, part)
        whole, below = (
            component.view(tree.domain.forward(x[level][[place]])) for x in (fit.values, fit.subtree)
        )
        pull += np.einsum("mic,ic->m", part, all_ @ whole[0] - own @ below[0])
    return precision, pull


def inverse_of(v: NDArray) -> NDArray:
    """Return the inverse of a covariance matrix, with a small variance added to make it exist."""
    return np.linalg.inv(v + EXACT * max(float(np.abs(v).max(initial=0.0)), 1e-12) * np.eye(len(v)))
