"""Reconciliation of histograms segment by segment of the tree, within bounded memory.

The levels are cut at boundary levels; a *segment* covers the levels from one boundary to the next, both included, and
a run of neighbouring places of its top level with everything below them. Two passes over the segments give the same
integers as the method `histogram-tree` on the whole tree, however it is cut:

    up      from the lowest segments to the root: `up(segment, answers, below) -> Summary`
    down    from the root to the lowest segments: `down(segment, answers, below, above, seed) -> Settlement`

A segment takes the measurements of its levels except its bottom one, which is the top of other segments; the lowest
segments take those of their bottom level too. The estimates of the segments below are passed to it as their summaries, joined in
order; the tables settled above as those of its top places. Segments and all that passes between them are plain
arrays, so a task needs nothing but its arguments. The upward pass of a segment is run again on the way down: that costs
less than to keep its estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError
from trueup.kernel import Status
from trueup.kernel.histogram import Marginal
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.spine import Lower, close_bounds
from trueup.kernel.settling.descend import Settling, node_keys, settle
from trueup.layouts.histogram import MAX_INVARIANT_MISS_SHARE
from trueup.reconciling.histogram_tree import all_settled, settling_stats
from trueup.reconciling.segments import Exact, Segment, summed_up

Answers = Sequence[Sequence[NDArray]]
"""Per level of `Segment.measured` and per header of that level, in the headers' order: `(places, groups)` counts."""


Summary = Mapping[str, NDArray]
"""Estimates of the top places of a segment, from all measurements at and below them: arrays with one row per place.

`estimates`: coefficients of the estimates from the subtrees, in the basis of the plan. `covariance_0`, ...: per component,
covariances (D, D) as rows. `bound_0`, ...: per bounded marginal, the least that the bounds of a place and of those below
allow. `known_0`, ...: per invariant of a place's level and of those below, its sums, in the order of `SegmentPlan.exact`.
"""


def joined_summaries(parts: Sequence[Summary]) -> Summary:
    """Return one summary for the summaries of neighbouring segments, in the order of their places."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True, eq=False)
class Settlement:
    """The final tables of the places of a segment, with figures on how they were found.

    Attributes
    ----------
    tables
        Per level from `levels.start`, `(places, n)` counts: the root segment's from its top level, others' from the
        level below, since their top places were settled above. The last are the `above` of the segments below.
    levels
        The levels of the tables.
    stats
        The figures of `Solution.stats` of the method `histogram-tree`: the largest over the segments counts.
    solved
        True if every table keeps all sums.
    """

    tables: tuple[NDArray, ...]
    levels: range
    stats: dict[str, float]
    solved: bool


def up(segment: Segment, answers: Answers, below: Summary | None = None) -> Summary:
    """Return estimates of a segment's top places, from its measurements and the summaries below it.

    Parameters
    ----------
    segment
        The places.
    answers
        The values measured on its levels `segment.measured`.
    below
        Summaries of its bottom places, joined; None for the lowest segments.

    Raises
    ------
    InfeasibleError
        If invariants contradict each other or the structural zeros.
    """
    tree = _tree(segment, below)
    estimates = _estimates(segment, tree, answers, below)[0]
    shapes = [(len(estimates), *f.variance.shape[1:]) for f in tree.filters[0]]
    covariances = (np.broadcast_to(f.variance, s) for f, s in zip(tree.filters[0], shapes, strict=True))
    lower = _lower(segment, below)
    return {
        "estimates": estimates,
        **{f"covariance_{i}": c.reshape(len(c), -1) for i, c in enumerate(covariances)},
        **{f"bound_{i}": b for i, b in enumerate(lower[0].tables if lower else ())},
        **{f"known_{i}": k for i, (_, k) in enumerate(_known(segment, answers, below))},
    }


def down(
    segment: Segment,
    answers: Answers,
    below: Summary | None,
    above: NDArray | None,
    seed: np.uint64 | int,
    fixed: tuple[Marginal, Sequence[NDArray]] | None = None,
    lower: tuple[Lower, ...] = (),
) -> Settlement:
    """Return the final tables of a segment's places, given those of its top places.

    Parameters
    ----------
    segment, answers, below
        See `up`.
    above
        `(top places, n)` final tables of its top places; None for the root's segment, which computes them.
    seed
        The seed that breaks ties of rounding, the same for all segments; see `tie_seed`.
    fixed
        A (folded) marginal whose tables are fixed already, and these tables per level of the segment.
    lower
        Lower bounds per level of the segment that are known by now; by default those of the segment and of those below.
    """
    plan = segment.plan
    tree = _tree(segment, below)
    estimates = [plan.domain.backward(z) for z in _estimates(segment, tree, answers, below)]
    seeds = np.array([seed], np.uint64)
    keys = [
        node_keys(seeds, segment.top + i, first + np.arange(segment.spine.size(i)))
        for i, first in enumerate(segment.firsts)
    ]
    covered = slice(segment.top, segment.bottom + 1)
    settled = settle(
        tree,
        estimates,
        plan.chains[covered],
        Settling(plan.nonnegative, plan.integer, posterior=plan.posterior, first=plan.first),
        required=plan.required[covered],
        keys=keys,
        above=None if above is None else above[:, plan.fold.kept],
        bounds=(lower or _lower(segment, below), ()),
        fixed=fixed,
    )
    first = int(above is not None)
    stats = settling_stats(settled)
    solved = all_settled(stats, settled.values[-1])
    tables = tuple(plan.fold.unfold(x) for x in settled.values[first:])
    return Settlement(tables, range(segment.top + first, segment.bottom + 1), stats, solved)


def tie_seed(rng: np.random.Generator) -> np.uint64:
    """Draw the seed for breaking ties of rounding, as the method `histogram-tree` does."""
    return rng.integers(2**63, size=1, dtype=np.uint64)[0]


def _tree(segment: Segment, below: Summary | None) -> HistogramLeastSquares:
    plan, covariances = segment.plan.measured[segment.top : segment.bottom + 1], []
    if below is not None:
        plan, dense = (*plan[:-1], ()), [c.dense for c in segment.plan.domain.components]
        covariances = [below[f"covariance_{i}"].reshape(-1, d, d) for i, d in enumerate(dense)]
    return HistogramLeastSquares.prepare(segment.plan.domain, segment.spine, plan, below=covariances)


def _lower(segment: Segment, below: Summary | None) -> tuple[Lower, ...]:
    if not segment.plan.bounded:
        return ()
    known = () if below is None else [below[f"bound_{i}"] for i in range(len(segment.plan.bounded))]
    return close_bounds(segment.spine, segment.plan.bounded, segment.bounds, known)


def _estimates(
    segment: Segment, tree: HistogramLeastSquares, answers: Answers, below: Summary | None
) -> list[NDArray[np.float64]]:
    _known(segment, answers, below)
    folded = [
        _folded(segment, level, tables) for level, tables in zip(segment.measured, answers, strict=True)
    ]
    z, (miss, _, _) = tree.up(folded, None if below is None else below["estimates"])
    largest = max((float(np.abs(t).max(initial=0)) for tables in answers for t in tables), default=0.0)
    if miss > MAX_INVARIANT_MISS_SHARE * max(
        1.0, largest
    ):  # the invariants hold together, so it is the arithmetic that broke down
        raise ConvergenceError(Status.UNSOLVED)
    return z


def _known(
    segment: Segment, answers: Answers, below: Summary | None
) -> list[tuple[Exact, NDArray[np.int64]]]:
    """Return the invariants at and below a segment, summed at its top places. Refuse contradictions."""
    plan, own = segment.plan, []
    for level, tables in zip(segment.measured, answers, strict=True):
        parts = zip(tables, plan.measured[level], plan.columns[level], strict=True)
        own.append(
            [
                ((level, marginal), np.asarray(table, np.int64)[:, columns])
                for table, (marginal, variance), (columns, _) in parts
                if variance == 0
            ]
        )
    exact = () if below is None else plan.exact(segment.bottom)
    known = [(invariant, below[f"known_{i}"]) for i, invariant in enumerate(exact)] if below else []
    return summed_up(segment.spine, plan.levels, own, known)


def _folded(segment: Segment, level: int, tables: Sequence[NDArray]) -> list[NDArray[np.float64]]:
    plan = segment.plan
    parts = zip(tables, plan.measured[level], plan.columns[level], strict=True)
    found = []
    for table, (_, variance), (columns, groups) in parts:
        if variance == 0 and len(columns) < groups and np.delete(table, columns, axis=1).any():
            raise InfeasibleError(
                f"structural zeros contradict an invariant of level '{plan.levels[level]}'",
                remedy="correct the zeros or the invariant",
            )
        whole = np.asarray(table, float)
        found.append(whole if plan.fold.trivial else whole[:, columns])
    return found
