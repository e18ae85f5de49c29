"""Tasks on one part of the places: exact sums, measurement, and upward and downward reconciliation.

A task is a frozen dataclass that pickles to a few kilobytes. It finds what it needs in the run folder, commits what it
makes to a part there, and does nothing where that part stands already: it may be carried out again, or twice at once.
Sums and noise are all that touch confidential counts; the ways up and down follow from committed measurements.

One file: the tasks of a part share what they are given and what they hold tables to.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.memory import peak_bytes
from trueup.io.bundle.manifest import guarantee_in
from trueup.io.bundle.tables import read_measured, write_counts, write_measured
from trueup.io.microdata.by_parts import Occupied
from trueup.io.microdata.tabulate import refuse_overflow
from trueup.kernel import Status
from trueup.kernel.histogram import marginalise
from trueup.kernel.histogram.spine import Spine
from trueup.measuring import draw, draw_left_out
from trueup.model.build import local_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import refuse_broken, violations
from trueup.model.family import FamilyCells, marginal_in, table_alone, tables_beside
from trueup.model.header import Measured
from trueup.reconciling import MAX_TRUE_COUNT, refuse_inexact, unsolved
from trueup.reconciling.family_tree import FamilyPlan, FamilySegment
from trueup.reconciling.histogram_parts import Answers, Settlement, down, joined_summaries, up
from trueup.reconciling.joined_parts import JoinedPlan, JoinedSegment, joined_down, joined_up
from trueup.reconciling.segments import Segment, SegmentPlan
from trueup.releasing import Work
from trueup.releasing.cut import PlacePart
from trueup.releasing.run_folder import Branch, RunFolder, load_arrays, save_arrays

CHECKS = ("whole numbers", "parts add up", "every constraint", "invariants exact")
"""The rules that every part is held to."""


@dataclass(frozen=True)
class Task(ABC):
    """A task that is carried out on every part of a layer.

    Attributes
    ----------
    path
        The run folder.
    """

    path: Path

    def __call__(self, part: PlacePart) -> Work:
        """Carry out the task on a part, unless it was done before; return the time and memory used."""
        start, used = time.perf_counter(), time.process_time()
        folder = RunFolder(self.path)
        if not self.done(folder, part):
            self.work(folder, part)
        return Work(part, time.perf_counter() - start, time.process_time() - used, peak_bytes())

    @abstractmethod
    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the last file that the task commits for a part exists."""

    @abstractmethod
    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Carry out the task on a part."""


class PartTotal(Task):
    """The task of checking the confidential counts of a part, and of summing them at the part's roots."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the sums at a part's roots are committed."""
        return folder.sums.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Commit the exact counts at a part's roots."""
        branch = folder.branch(part)
        cells, held = folder.cells(branch), _confidential_counts(folder, part)
        counts = _exact(cells, branch, held)
        refuse_overflow(held.count.sum(dtype=np.float64))
        refuse_broken(local_constraints(folder.spec, cells), counts)
        if part.layer == 0:
            refuse_inexact(cells.sum(counts, Margin(branch.tree.levels[0])), MAX_TRUE_COUNT)
        sums = _at_roots(branch, held)
        folder.sums.commit(str(part), lambda path: save_arrays(path, sums._asdict()))


class Measure(Task):
    """The task of drawing the noise of a part; exactly one draw is committed."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the measurements of a part are committed; raise BundleError if they were, and are lost."""
        return folder.draws.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Draw the noise of a part and commit the measurements."""
        branch, headers = folder.branch(part), folder.headers_of(part.layer)
        cells = folder.cells(branch)
        guarantee = guarantee_in(folder.plan["guarantee"])
        counts = _exact(cells, branch, _confidential_counts(folder, part))
        drawn = draw(cells, counts, [h.at(cells) for h in headers], guarantee)
        alone = draw_left_out(folder.spec, folder.limit) if (part.layer, part.number) == (0, 0) else None
        folder.measured.commit(
            str(part),
            lambda path: write_measured(
                path, cells, drawn.headers, drawn.values, folder.database, left_out=alone and alone.value
            ),
            ".parquet",
        )
        folder.draws.find(str(part))


@dataclass(frozen=True)
class _Reconciling(Task):
    plan: SegmentPlan | JoinedPlan | FamilyPlan

    @property
    def ways(self) -> tuple[Callable[..., Any], Callable[..., Settlement]]:
        """Return the functions for the upward and the downward pass."""
        if isinstance(self.plan, FamilyPlan):
            return FamilySegment.up, FamilySegment.down
        if isinstance(self.plan, JoinedPlan):
            return joined_up, joined_down
        return up, down

    def given(self, folder: RunFolder, part: PlacePart) -> tuple[Branch, Any, Answers, Any]:
        """Return the inputs of both passes: places, measurements, and estimates from the parts below."""
        branch, layer = folder.branch(part), folder.cut.layers[part.layer]
        spine = Spine(branch.tree.child_ptr, branch.tree.sizes[0])
        firsts = tuple(branch.starts.tolist())
        if isinstance(self.plan, FamilyPlan):
            segment: Any = FamilySegment(self.plan, range(layer.top, layer.bottom + 1), spine, firsts)
        else:
            bounds = self.plan.bounds(local_constraints(folder.spec, folder.cells(branch)))
            segment = Segment(self.plan, layer.top, layer.bottom, spine, firsts, bounds)  # pyright: ignore[reportArgumentType]
        if isinstance(self.plan, JoinedPlan):
            segment = JoinedSegment.of(self.plan, segment)
        below = [load_arrays(folder.estimates.path(str(b))) for b in folder.cut.below(part)]
        return branch, segment, _answers(folder, part, branch), joined_summaries(below) if below else None


class Up(_Reconciling):
    """The task of estimating the counts at a part's roots from measurements of the part and of the parts below."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the estimates of a part are committed."""
        return folder.estimates.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Compute and commit the estimates of a part."""
        _, segment, answers, below = self.given(folder, part)
        summary = self.ways[0](segment, answers, below)
        folder.estimates.commit(str(part), lambda path: save_arrays(path, summary))


@dataclass(frozen=True)
class Down(_Reconciling):
    """The task of reconciling a part's counts, given those of its roots, and of writing the tables."""

    seed: int

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if a part has committed its tables, its report, and the counts for the parts below."""
        tables = (folder.tables.find(f"{number}-{part}") for number, _ in folder.released_by(part.layer))
        below = part.layer == len(folder.cut.layers) - 1 or folder.settled.find(f"leaves-{part}")
        return bool(folder.settled.find(f"report-{part}") and below and all(tables))

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Reconcile a part; commit its tables, the counts of its leaves for the parts below, and a report."""
        branch, segment, answers, below = self.given(folder, part)
        cells, headers = folder.cells(branch), folder.headers_of(part.layer)
        above = _above(folder, part, tables_beside(cells, 0)[-1][1].stop) if part.layer else None
        settled = self.ways[1](segment, answers, below, above, self.seed)
        if not settled.solved:
            raise unsolved(folder.method, Status.UNSOLVED)
        tables = dict(zip(settled.levels, settled.tables)) | (
            {} if above is None else {settled.levels.start - 1: above}
        )
        top = min(tables)
        gaps = _released_minus_measured(cells, top, tables, headers, answers)
        refuse_broken_rules(folder, cells, top, tables, gaps)
        self._write(folder, part, branch, cells, tables, settled)
        report = {"stats": settled.stats, "misses": [_squares(h, gap) for h, gap in gaps if not h.exact]}
        folder.settled.commit(f"report-{part}", lambda path: path.write_text(json.dumps(report)))

    def _write(
        self,
        folder: RunFolder,
        part: PlacePart,
        branch: Branch,
        cells: Cells,
        tables: Mapping[int, NDArray],
        settled: Settlement,
    ) -> None:
        for number, margin in folder.released_by(part.layer):
            at = cells.tree.level(margin.level)
            held = _occupied(_margin_sums(cells, at, tables[folder.cut.layers[part.layer].top + at], margin))
            alone = table_alone(cells, margin) if cells.is_family else cells
            folder.tables.commit(
                f"{number}-{part}",
                lambda path, alone=alone, level=margin.level, held=held: write_counts(
                    path, alone, level, *held, folder.database
                ),
                ".parquet",
            )
        if part.layer < len(folder.cut.layers) - 1:
            leaves = _occupied(settled.tables[-1], int(branch.starts[-1]))
            folder.settled.commit(f"leaves-{part}", lambda path: save_arrays(path, leaves._asdict()))


Gaps = Sequence[tuple[Measured, NDArray]]


def refuse_broken_rules(
    folder: RunFolder, cells: Cells, top: int, tables: Mapping[int, NDArray], gaps: Gaps
) -> None:
    """Check the reconciled tables of a part against every rule; raise an error if one is broken.

    Parameters
    ----------
    cells
        The part's cells; its first level is level `top` of the whole tree.
    tables
        Per level of the whole tree, `(places, n)` counts.
    gaps
        Every header with released minus measured counts.

    Raises
    ------
    ConvergenceError
        Naming the rules that they break.
    """
    holds = (
        all(table.dtype.kind in "iu" for table in tables.values()),
        all(_adds_up(cells, top, tables, level) for level, _ in pairwise(sorted(tables))),
        not violations(local_constraints(folder.spec, cells), _finest_counts(cells, top, tables)),
        not any(gap.any() for header, gap in gaps if header.exact),
    )
    if broken := [rule for rule, kept in zip(CHECKS, holds) if not kept]:
        raise unsolved(
            folder.method, f"its counts break {', '.join(broken)}, which is a defect of the method"
        )


def _adds_up(cells: Cells, top: int, tables: Mapping[int, NDArray], level: int) -> bool:
    starts = cells.tree.starts(level - top, level - top + 1)[:-1]
    upper, lower = (tables_beside(cells, at - top) for at in (level, level + 1))
    columns = [np.arange(u.start, u.stop) for table, u in upper if any(table is one for one, _ in lower)]
    kept = tables[level][:, np.concatenate([np.zeros(0, np.int64), *columns])]
    return np.array_equal(np.add.reduceat(tables[level + 1], starts, axis=0), kept)


def _finest_counts(cells: Cells, top: int, tables: Mapping[int, NDArray]) -> NDArray:
    """Return the counts (n,) of the finest cells of a part."""
    lasts = ((len(table.tree.levels) - 1, table) for table, _ in tables_beside(cells, 0))
    columns = (
        (level, next(at for one, at in tables_beside(cells, level) if one is table)) for level, table in lasts
    )
    return np.concatenate([tables[top + level][:, at].ravel() for level, at in columns])


def _margin_sums(cells: Cells, level: int, table: NDArray, margin: Margin) -> NDArray:
    """Return the sums `(places, groups)` of a margin, given the table of a level."""
    held = cells.holding(margin)
    one, columns = next((one, at) for one, at in tables_beside(cells, level) if one is held)
    return marginalise(table[:, columns], marginal_in(one, margin))


def _released_minus_measured(
    cells: Cells, top: int, tables: Mapping[int, NDArray], headers: Sequence[Measured], answers: Answers
) -> Gaps:
    """Return, for every measured table, the released minus the measured counts `(places, groups)`."""
    found = []
    for level, measured in enumerate(answers):
        own = [h for h in headers if h.margin.level == cells.tree.levels[level]]
        for header, answer in zip(own, measured, strict=True):
            table = _margin_sums(cells, level, tables[top + level], header.margin)
            found.append((header, _of_counted(cells, header, table) - answer))
    return found


def _of_counted(cells: Cells, header: Measured, table: NDArray) -> NDArray:
    """Return the columns `(places, groups)` of a margin's table for the groups that were measured."""
    if not header.margin.where:
        return table
    own = header.at(cells).groups
    return table if own is None else table[:, own[own < table.shape[1]]]


def _squares(header: Measured, gap: NDArray) -> dict[str, Any]:
    """Return a measured table's number of counts and sum of squared adjustments (counts squared)."""
    squares = float((gap**2.0).sum())
    return {"query": header.query, "level": header.margin.level, "counts": gap.size, "squares": squares}


def _confidential_counts(folder: RunFolder, part: PlacePart) -> Occupied:
    """Return the confidential counts of a part at the last level."""
    if part.layer == len(folder.cut.layers) - 1:
        return folder.occupied(part.number)
    parts = [Occupied(**load_arrays(folder.sums.path(str(b)))) for b in folder.cut.below(part)]
    return Occupied(*map(np.concatenate, zip(*parts, strict=True)))


def _exact(cells: Cells, branch: Branch, held: Occupied) -> NDArray[np.int64]:
    """Return the exact counts `(n,)` of all cells of a part."""
    index = (held.place - branch.starts[-1]) * prod(cells.shape[1:]) + held.cell
    if isinstance(cells, FamilyCells):
        return cells.tally(index, held.count)
    counts = np.zeros(cells.n, np.int64)
    counts[index] = held.count
    return counts


def _at_roots(branch: Branch, held: Occupied) -> Occupied:
    """Return the counts of a part's last level, summed at the part's roots."""
    above = branch.tree.ancestors(len(branch.tree.levels) - 1, 0)[held.place - branch.starts[-1]]
    pairs, index = np.unique(np.stack([above, held.cell.astype(np.int64)]), axis=1, return_inverse=True)
    totals = np.zeros(pairs.shape[1], np.int64)
    np.add.at(totals, index.ravel(), held.count)
    return Occupied(branch.starts[0] + pairs[0], pairs[1].astype(np.int32), totals)


def _occupied(table: NDArray, first: int = 0) -> Occupied:
    """Return the nonzero cells of a table `(places, n)`, with places counted from `first`."""
    place, cell = np.nonzero(table)
    return Occupied(np.int64(first) + place, cell.astype(np.int32), table[place, cell].astype(np.int64))


def _answers(folder: RunFolder, part: PlacePart, branch: Branch) -> list[list[NDArray]]:
    """Return a part's measurements: for each level, a list of measured tables `(places, groups)`."""
    cells = folder.cells(branch)
    headers = [h.at(cells) for h in folder.headers_of(part.layer)]
    values = read_measured(folder.measured.path(str(part)), cells, headers, folder.database)
    rows = [v.reshape(cells.margin_shape(h.margin)[0], -1) for h, v in zip(headers, values, strict=True)]
    levels = (folder.spec.levels[level].name for level in folder.cut.levels(part.layer))
    return [[t for h, t in zip(headers, rows, strict=True) if h.margin.level == name] for name in levels]


def _above(folder: RunFolder, part: PlacePart, cells: int) -> NDArray[np.int64]:
    """Return the counts (roots, n) of a part's roots, which the part above has reconciled."""
    first, last = folder.cut.layers[part.layer].edges[part.number : part.number + 2]
    held = Occupied(**load_arrays(folder.settled.path(f"leaves-{folder.cut.above(part)}")))
    rows = slice(*np.searchsorted(held.place, [first, last]).tolist())
    table = np.zeros((last - first, cells), np.int64)
    table[held.place[rows] - first, held.cell[rows]] = held.count[rows]
    return table
