"""Histograms of a state by segments: six levels, 2,016 cells, eleven marginals; core time per block, flatness, memory.

`whole tree` is the same kernels on the tree in one piece, and must give the same integers. `clarabel` solves the tiny
state's nonnegative least squares at once, without the settling of totals first, so its difference says how far apart two
good answers are, not how wrong one is. Times in the table are of one core; drawing the noise is not in them.
"""

# Compiled peers come without useful types.
# pyright: reportAttributeAccessIssue=false, reportOptionalSubscript=false
from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks import _pl94
from benchmarks.harness import Case, Harness, Picture, available
from trueup.kernel.histogram import cell_groups
from trueup.kernel.histogram.spine import Spine
from trueup.model.constraints import Constraints
from trueup.reconciling.histogram_parts import Answers, down, joined_summaries, up
from trueup.reconciling.segments import Segment, SegmentPlan, segment_plan

CUT = 3  # tracts
PLACES = 2_000  # blocks in a segment, about


def cases(harness: Harness) -> Iterator[Case]:
    """Against a general solver and the whole tree."""
    for blocks, races, peers in ((12, 4, ("whole tree", "clarabel")), (1_000, 63, ("whole tree",))):
        state = _pl94.synthetic(blocks, races)
        runs = {
            "whole tree": lambda state=state: Sweeps(state, whole=True).sweep(),
            "clarabel": available("clarabel", lambda state=state: _by_clarabel(state)),
        }
        yield from harness.compare(
            f"{blocks:,} blocks of {32 * races:,} cells: by segments",
            lambda state=state: Sweeps(state).sweep(),
            {name: runs[name] for name in peers},
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    """Where the time goes, for states of growing size."""
    rows = []
    for blocks in (2_000, *([10_000, 150_000] if harness.full else [])):
        harness.progress(f"{blocks:,} blocks")
        rows.append(_profile(blocks))
    columns = [
        "blocks",
        "up (ms / block)",
        "top down and up",
        "down",
        "sum",
        "noise, not ours",
        "peak MB of one worker",
    ]
    yield Picture(title="Core milliseconds per block", columns=columns, rows=rows)


class Sweeps:
    """Both sweeps over a state's segments, with the core time of each."""

    def __init__(self, state: _pl94.State, *, whole: bool = False) -> None:
        self.state, self.spent = state, {"noise": 0.0, "up": 0.0, "top": 0.0, "down": 0.0}
        plan, tree = segment_plan(state.constraints, state.headers), state.tree
        last = len(tree.levels) - 1
        self.top = segment_of(plan, state.constraints, 0, last if whole else CUT, 0, 1)
        edges = _edges(tree.leaf_ptr(CUT))
        runs = [] if whole else pairwise(edges)
        self.rest = [segment_of(plan, state.constraints, CUT, last, a, b) for a, b in runs]

    def sweep(self, keep: bool = True) -> NDArray[np.int64]:
        """The blocks' tables, or only the last segment's."""
        parts = [self._timed("up", up, s, self._answers(s)) for s in self.rest]
        below = joined_summaries(parts) if parts else None
        top = self._timed("top", down, self.top, self._answers(self.top), below, None, 1).tables[-1]
        tables = [top] if not self.rest else []
        for s in self.rest:
            settled = self._timed("down", down, s, self._answers(s), None, top[places_of(s, CUT)], 1)
            tables = [*(tables if keep else []), settled.tables[-1]]
        return np.concatenate(tables)

    def _answers(self, segment: Segment) -> Answers:
        return self._timed(
            "noise",
            lambda: [self.state.answers(level, places_of(segment, level)) for level in segment.measured],
        )

    def _timed(self, what: str, function, *arguments):
        begin = time.process_time()
        result = function(*arguments)
        self.spent[what] += time.process_time() - begin
        return result


def segment_of(
    plan: SegmentPlan, constraints: Constraints, top: int, bottom: int, start: int, stop: int
) -> Segment:
    """Return places `start` to `stop` of level `top`, with all places below them down to level `bottom`."""
    tree = constraints.cells.tree
    branch = tree.branch(top, start, stop, bottom)
    firsts = tuple(int(tree.starts(top, level)[start]) for level in range(top, bottom + 1))
    within = [slice(f, f + size) for f, size in zip(firsts, branch.sizes)]
    own = tuple(
        tuple(table if len(table) == 1 else table[rows] for table in tables)
        for tables, rows in zip(plan.bounds(constraints)[top : bottom + 1], within, strict=True)
    )
    return Segment(plan, top, bottom, Spine(branch.child_ptr, branch.sizes[0]), firsts, own)


def places_of(segment: Segment, level: int) -> slice:
    """Return the places of a segment within a level of the whole tree."""
    first = segment.firsts[level - segment.top]
    return slice(first, first + segment.spine.size(level - segment.top))


def _edges(leaves: NDArray[np.int64]) -> list[int]:
    """Cut tracts in runs of about so many blocks."""
    runs = np.unique(np.searchsorted(leaves, np.arange(0, leaves[-1], PLACES)))
    return [*runs.tolist(), leaves.size - 1]


def _profile(blocks: int) -> list[str]:
    state = _pl94.synthetic(blocks)
    run = Sweeps(state)
    run.sweep(keep=False)
    each = {what: 1e3 * seconds / blocks for what, seconds in run.spent.items()}
    total = each["up"] + each["top"] + each["down"]
    peak = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    )  # sizes grow, so that it is this one's
    figures = (each["up"], each["top"], each["down"], total, each["noise"])
    return [f"{blocks:,}", *(f"{x:.2f}" for x in figures), f"{peak:,.0f}"]


def _by_clarabel(state: _pl94.State) -> NDArray[np.float64]:
    """Nonnegative least squares of all blocks at once; the tables of the levels and their marginals are variables."""
    import clarabel

    tree, n = state.tree, state.cells.n // state.tree.sizes[-1]
    leaves = tree.sizes[-1]
    rows, precision, target = [], [], []
    for level in range(len(tree.levels)):
        above = tree.ancestors(len(tree.levels) - 1, level)
        members = sparse.csr_array((np.ones(leaves), (above, np.arange(leaves))))
        answers = state.answers(level, slice(0, tree.sizes[level]))
        own = [h for h in state.headers if h.margin.level == tree.levels[level]]
        for header, y in zip(own, answers, strict=True):
            groups = cell_groups(state.cells.marginal(header.margin.attributes))
            sums = sparse.csr_array((np.ones(n), (groups, np.arange(n))))
            rows.append(sparse.kron(members, sums))
            precision.append(np.full(y.size, 1e6 if header.exact else 1 / float(header.law.variance)))
            target.append(y.ravel())
    design = sparse.vstack(rows, format="csc")
    size, q = leaves * n, design.shape[0]
    weight, y = np.concatenate(precision), np.concatenate(target)
    hessian = sparse.block_diag([sparse.csc_array((size, size)), sparse.diags_array(weight)], format="csc")
    linear = np.concatenate([np.zeros(size), -weight * y])
    equal = sparse.hstack([design, -sparse.eye_array(q)])
    signs = sparse.hstack([-sparse.eye_array(size), sparse.csc_array((size, q))])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(q), clarabel.NonnegativeConeT(size)]
    constraints = sparse.csc_matrix(sparse.vstack([equal, signs], format="csc"))
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(hessian), linear, constraints, np.zeros(q + size), cones, settings
    )
    return np.array(solver.solve().x)[:size].reshape(-1, n)
