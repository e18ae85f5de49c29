"""Histogram reconciliation by segments of the tree, so that no task holds more than a share of the places.

The levels are cut at boundary levels; a *segment* covers the levels from one boundary to the next, both included, and
a run of neighbouring places of its top level with everything below them. Two sweeps over the segments make the same
integers as the method `histogram-tree` on the whole tree, however it is cut:

    up      from the lowest segments to the root: `up(segment, answers, below) -> Summary`
    down    from the root to the lowest segments: `down(segment, answers, below, above, seed) -> Settlement`

A segment takes the measurements of its levels except its bottom one, which is the top of other segments; the lowest
segments take those of their bottom level too. What the segments below know reaches it as their summaries, joined in
order; what was settled above as the tables of its top places. Segments and all that passes between them are plain
arrays, so a task needs nothing but its arguments. The upward pass of a segment is run again on the way down: that costs
less than to keep its estimates.

    plan = segment_plan(constraints, headers)
    root = plan.segment(constraints, 0, 2, 0, 1)
    rest = [plan.segment(constraints, 2, 5, start, stop) for start, stop in pairwise(edges)]
    below = Summary.join([up(s, answers_of(s)) for s in rest])
    top = down(root, answers_of(root), below, None, seed)
    for s in rest:
        down(s, answers_of(s), None, top.tables[-1][s.start : s.stop], seed)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.kernel.histogram.anova import Domain, Marginal, cell_groups
from trueup.kernel.histogram.fuse_zeros import Fold
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.settling.descend import node_keys, settle, settling_sequence
from trueup.kernel.settling.lower_bounds import Lower, close_bounds
from trueup.kernel.settling.nearest import tolerance_for
from trueup.kernel.status import Status
from trueup.layouts.histogram import (
    CONFLICT,
    FUSED_CODES,
    UNSETTLED,
    domain_of,
    level_plans,
    refuse_undetermined,
    refuses_on_histogram,
    small_fold,
)
from trueup.layouts.histogram_bounds import bounded_marginals, level_bounds, refuse_impossible_bounds
from trueup.model.cells import detailed
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.known_sums import Exact, summed_up

Answers = Sequence[Sequence[NDArray]]
"""Per level of `Segment.measured` and per header of that level, in the headers' order: `(places, groups)` counts."""
Bounds = tuple[tuple[NDArray[np.int64], ...], ...]
"""Per level and bounded marginal `(places, groups)` counts, or `(1, groups)` if they are the same at every place."""


@dataclass(frozen=True, eq=False)
class SegmentPlan:
    """What all segments of a problem share; it knows levels but no places, and pickles to a few kilobytes.

    Attributes
    ----------
    levels
        Their names, root first.
    domain, fold
        The histograms' basis, and how structural zeros were taken out of them.
    measured
        Per level and header: the marginal (folded) and the variance of its noise (counts squared).
    columns
        Per level and header: where the folded marginal's cells stand in the header's groups, and how many groups
        there are.
    chains, required
        Per level, the nested marginals to settle, and the shorter chain if these leave no room.
    nonnegative, integer, posterior
        Whether counts below zero are refused; whether to round; whether to settle at posterior means.
    bounded
        Marginals with lower bounds.
    """

    levels: tuple[str, ...]
    domain: Domain
    fold: Fold
    measured: tuple[tuple[tuple[Marginal, float], ...], ...]
    columns: tuple[tuple[tuple[NDArray[np.int64], int], ...], ...]
    chains: tuple[tuple[Marginal, ...], ...]
    required: tuple[tuple[Marginal, ...], ...]
    nonnegative: bool
    integer: bool
    posterior: bool
    bounded: tuple[Marginal, ...]

    @property
    def cells(self) -> int:
        """Number of cells of a histogram, structural zeros included."""
        return int(np.prod(self.fold.sizes))

    def exact(self, level: int) -> list[Exact]:
        """The invariants of a level and of those below it."""
        levels = range(level, len(self.levels))
        return [(at, m) for at in levels for m, variance in self.measured[at] if variance == 0]

    def bounds(self, constraints: Constraints) -> Bounds:
        """Lower bounds on the places of constraints, whose tree may be a branch of the whole one."""
        return tuple(
            tuple(level_bounds(constraints, self.fold, self.bounded, name)) if self.bounded else ()
            for name in constraints.cells.tree.levels
        )

    def segment(self, constraints: Constraints, top: int, bottom: int, start: int, stop: int) -> Segment:
        """The places `start` to `stop` of level `top` and all below them down to level `bottom`."""
        tree, counts, firsts = constraints.cells.tree, [], [start]
        first, last = tree.level_ptr[top] + start, tree.level_ptr[top] + stop
        for level in range(top, bottom):
            counts.append(np.diff(tree.child_ptr[first : last + 1]))
            first, last = tree.child_ptr[first], tree.child_ptr[last]
            firsts.append(int(first - tree.level_ptr[level + 1]))
        counts.append(np.zeros(last - first, np.int64))
        child_ptr = stop - start + np.append(0, np.cumsum(np.concatenate(counts)))
        spine, bounds = Spine(child_ptr, stop - start), self.bounds(constraints)[top : bottom + 1]
        within = [np.arange(f, f + spine.size(i)) for i, f in enumerate(firsts)]
        own = tuple(
            tuple(table if len(table) == 1 else table[rows] for table in tables)
            for tables, rows in zip(bounds, within, strict=True)
        )
        return Segment(self, top, bottom, spine, tuple(firsts), own)


@dataclass(frozen=True, eq=False)
class Segment:
    """Some places of a level and all places below them down to another level.

    Attributes
    ----------
    plan
        What all segments share.
    top, bottom
        Its first and last level.
    spine
        The places, a forest.
    firsts
        Per level of the segment, the position of its first place within the level of the whole tree; its places are
        neighbours there, so that those of level `top + i` are `firsts[i] : firsts[i] + spine.size(i)`.
    bounds
        Lower bounds on its places; see `SegmentPlan.bounds`.
    """

    plan: SegmentPlan
    top: int
    bottom: int
    spine: Spine
    firsts: tuple[int, ...]
    bounds: Bounds

    @property
    def lowest(self) -> bool:
        """Whether there is nothing below it."""
        return self.bottom == len(self.plan.levels) - 1

    @property
    def measured(self) -> range:
        """Levels whose measurements it takes."""
        return range(self.top, self.bottom + self.lowest)

    @property
    def start(self) -> int:
        """Position of its first top place within the level."""
        return self.firsts[0]

    @property
    def stop(self) -> int:
        """Position after its last top place within the level."""
        return self.firsts[0] + self.spine.roots

    def places(self, level: int) -> slice:
        """Its places within a level of the whole tree."""
        first = self.firsts[level - self.top]
        return slice(first, first + self.spine.size(level - self.top))

    @property
    def memory(self) -> int:
        """About how many bytes `up` and `down` need, answers and results included."""
        places = self.spine.child_ptr.size - 1
        answers = max(sum(size for _, size in columns) for columns in self.plan.columns)
        return 8 * places * (3 * self.plan.cells + 2 * answers) + 100_000_000


@dataclass(frozen=True, eq=False)
class Summary:
    """What the places below say about the top places of segments.

    Attributes
    ----------
    estimates
        `(places, n)` coefficients of the estimates from the subtrees, in the basis of the plan.
    covariances
        Per component, `(places, D, D)`.
    bounds
        Per bounded marginal, `(places, groups)` the least that the bounds of a place and of those below allow.
    known
        Per invariant of a place's level and of those below, `(places, groups)` its sums, in the order of
        `SegmentPlan.exact`.
    """

    estimates: NDArray[np.float64]
    covariances: tuple[NDArray[np.float64], ...]
    bounds: tuple[NDArray[np.int64], ...] = ()
    known: tuple[NDArray[np.int64], ...] = ()

    @classmethod
    def join(cls, parts: Sequence[Summary]) -> Summary:
        """Summaries of neighbouring segments, in the order of their places."""
        named = [p.arrays() for p in parts]
        return cls.of_arrays({name: np.concatenate([n[name] for n in named]) for name in named[0]})

    def of(self, places: slice) -> Summary:
        """Only some of the places: those at the bottom of a segment are `segment.places(segment.bottom)`."""
        return Summary.of_arrays({name: part[places] for name, part in self.arrays().items()})

    def arrays(self) -> dict[str, NDArray]:
        """The same as named arrays, one row a place, for `numpy.savez` or columns of Arrow."""
        covariances = {f"covariance_{i}": c.reshape(len(c), -1) for i, c in enumerate(self.covariances)}
        return {
            "estimates": self.estimates,
            **covariances,
            **{f"bound_{i}": b for i, b in enumerate(self.bounds)},
            **{f"known_{i}": k for i, k in enumerate(self.known)},
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray]) -> Summary:
        """What `arrays` gave."""
        parts = _numbered(arrays, "covariance")
        sides = [int(np.sqrt(p.shape[1])) for p in parts]
        squares = (p.reshape(len(p), d, d) for p, d in zip(parts, sides, strict=True))
        whole = (tuple(_numbered(arrays, name)) for name in ("bound", "known"))
        return cls(arrays["estimates"], tuple(squares), *whole)


def _numbered(arrays: Mapping[str, NDArray], name: str) -> list[NDArray]:
    """Arrays `name_0`, `name_1`, ..., as many as there are."""
    keys = takewhile(lambda key: key in arrays, (f"{name}_{i}" for i in count()))
    return [arrays[key] for key in keys]


@dataclass(frozen=True, eq=False)
class Settlement:
    """Settled tables of a segment.

    Attributes
    ----------
    tables
        Per level from `levels.start`, `(places, n)` counts: the root segment's from its top level, others' from the
        level below, since their top places were settled above. The last are the `above` of the segments below.
    levels
        Which levels these are.
    stats
        As in `Solution.stats` of the method `histogram-tree`: the largest over the segments counts.
    solved
        Whether every table keeps all sums.
    """

    tables: tuple[NDArray, ...]
    levels: range
    stats: dict[str, float]
    solved: bool


def segment_plan(
    constraints: Constraints, headers: Sequence[Measured], *, integer: bool = True, posterior: bool = False
) -> SegmentPlan:
    """Prepare what all segments share.

    Raises
    ------
    SpecError
        If the constraints are beyond histogram reconciliation, a measured margin is incomplete, a level's histograms
        are not determined, or structural zeros tie too many codes together.
    """
    if reason := refuses_on_histogram(constraints):
        raise SpecError(f"constraints that reconciliation by parts does not keep: {reason}")
    cells, fold = constraints.cells, small_fold(constraints)
    if fold is None:
        raise SpecError(
            "structural zeros that tie too many combinations of attribute values together",
            needed=f"at most {FUSED_CODES} combinations of the attributes that the zeros name",
            remedy="reconcile the whole tree at once with the method 'histogram-tree'",
        )
    refuse_impossible_bounds(constraints, fold)
    plans = level_plans(constraints, headers, fold)
    domain = domain_of(cells, fold, plans)
    refuse_undetermined(domain, plans[-1], cells, cells.tree.levels[-1])
    finest = fold.marginal(detailed(cells))
    bounded = bounded_marginals(constraints, fold)
    exact = [
        [*(m for p in plans[level:] for m, variance in p if variance == 0), *bounded]
        for level in range(len(plans))
    ]
    return SegmentPlan(
        cells.tree.levels,
        domain,
        fold,
        tuple(map(tuple, plans)),
        tuple(_columns(constraints, headers, fold, name) for name in cells.tree.levels),
        tuple(
            tuple(settling_sequence([m for m, _ in p], finest, e)) for p, e in zip(plans, exact, strict=True)
        ),
        tuple(tuple(settling_sequence((), finest, e)) for e in exact),
        constraints.nonnegative,
        integer,
        posterior,
        tuple(bounded),
    )


def up(segment: Segment, answers: Answers, below: Summary | None = None) -> Summary:
    """Say what a segment's measurements and the summaries from below say about its top places.

    Parameters
    ----------
    segment
        The places.
    answers
        What was measured on its levels `segment.measured`.
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
    bounds = lower[0].tables if lower else ()
    known = tuple(table for _, table in _known(segment, answers, below))
    return Summary(estimates, tuple(np.ascontiguousarray(c) for c in covariances), bounds, known)


def down(
    segment: Segment,
    answers: Answers,
    below: Summary | None,
    above: NDArray | None,
    seed: np.uint64 | int,
) -> Settlement:
    """Settle a segment's places below its settled top places.

    Parameters
    ----------
    segment, answers, below
        As for `up`.
    above
        `(top places, n)` settled tables of its top places; None for the root's segment, which settles them.
    seed
        What settles ties of rounding, the same for all segments; see `tie_seed`.
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
        required=plan.required[covered],
        nonnegative=plan.nonnegative,
        integer=plan.integer,
        keys=keys,
        above=None if above is None else above[:, plan.fold.kept],
        lower=_lower(segment, below),
        posterior=plan.posterior,
    )
    first = int(above is not None)
    stats = {
        "largest optimality residual (counts)": settled.residual,
        "units without a place": settled.misplaced,
        "parents settled without their margins": settled.relaxed,
        "most iterations": settled.iterations,
    }
    solved = not settled.misplaced and settled.residual <= tolerance_for(settled.values[-1], UNSETTLED)
    tables = tuple(plan.fold.unfold(x) for x in settled.values[first:])
    return Settlement(tables, range(segment.top + first, segment.bottom + 1), stats, solved)


def tie_seed(rng: np.random.Generator) -> np.uint64:
    """The seed of ties that the method `histogram-tree` draws from the measurements' generator."""
    return rng.integers(2**63, size=1, dtype=np.uint64)[0]


def _columns(constraints: Constraints, headers: Sequence[Measured], fold: Fold, level: str):
    marginals = [constraints.cells.marginal(h.margin.attributes) for h in headers if h.margin.level == level]
    return tuple((fold.columns(m), int(cell_groups(m).max()) + 1) for m in marginals)


def _tree(segment: Segment, below: Summary | None) -> HistogramLeastSquares:
    plan = segment.plan.measured[segment.top : segment.bottom + 1]
    if below is not None:
        plan = (*plan[:-1], ())
    covariances = () if below is None else below.covariances
    return HistogramLeastSquares.prepare(segment.plan.domain, segment.spine, plan, below=covariances)


def _lower(segment: Segment, below: Summary | None) -> tuple[Lower, ...]:
    if not segment.plan.bounded:
        return ()
    known = () if below is None else below.bounds
    return close_bounds(segment.spine, segment.plan.bounded, segment.bounds, known)


def _estimates(
    segment: Segment, tree: HistogramLeastSquares, answers: Answers, below: Summary | None
) -> list[NDArray[np.float64]]:
    _known(segment, answers, below)
    folded = [
        _folded(segment, level, tables) for level, tables in zip(segment.measured, answers, strict=True)
    ]
    z, (miss, _, _) = tree.up(folded, None if below is None else below.estimates)
    largest = max((float(np.abs(t).max(initial=0)) for tables in answers for t in tables), default=0.0)
    if miss > CONFLICT * max(
        1.0, largest
    ):  # the invariants hold together, so it is the arithmetic that broke down
        raise ConvergenceError(Status.UNSOLVED)
    return z


def _known(
    segment: Segment, answers: Answers, below: Summary | None
) -> list[tuple[Exact, NDArray[np.int64]]]:
    """The invariants of a segment and of what is below it, at its top places, held against each other."""
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
    known = () if below is None else zip(plan.exact(segment.bottom), below.known, strict=True)
    return summed_up(segment.spine, plan.levels, own, list(known))


def _folded(segment: Segment, level: int, tables: Sequence[NDArray]) -> list[NDArray[np.float64]]:
    plan = segment.plan
    parts = zip(tables, plan.measured[level], plan.columns[level], strict=True)
    found = []
    for table, (_, variance), (columns, groups) in parts:
        if variance == 0 and len(columns) < groups and np.delete(table, columns, axis=1).any():
            raise InfeasibleError(
                f"structural zeros contradict an invariant of level '{plan.levels[level]}'",
                remedy="correct one of them",
            )
        whole = np.asarray(table, float)
        found.append(whole if plan.fold.trivial else whole[:, columns])
    return found
