"""Tasks on one part: its sums, its measurements, its way up and its way down.

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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.memory import peak_bytes
from trueup.io.bundle.manifest import guarantee_in
from trueup.io.bundle.tables import read_measured, write_counts, write_measured
from trueup.io.microdata.sparse import Occupied
from trueup.io.microdata.tabulate import refuse_overflow
from trueup.kernel.histogram.marginals import marginalise
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.status import Status
from trueup.measuring import draw, draw_left_out
from trueup.model.build import local_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import refuse_broken, violations
from trueup.model.header import Measured
from trueup.reconciling import BEFORE_NOISE, refuse_inexact, unsolved
from trueup.reconciling.histogram_parts import Answers, Settlement, Summary, down, up
from trueup.reconciling.joined_parts import JoinedPlan, JoinedSegment, JoinedSummary, joined_down, joined_up
from trueup.reconciling.segments import Segment, SegmentPlan
from trueup.releasing.cut import PlacePart
from trueup.releasing.log import Work
from trueup.releasing.run_folder import Branch, RunFolder, load_arrays, save_arrays

CHECKS = ("whole numbers", "parts add up", "every constraint", "invariants exact")
"""The rules that every part is held to."""


@dataclass(frozen=True)
class Task(ABC):
    """A task carried out on every part of a layer.

    Attributes
    ----------
    path
        The run folder.
    """

    path: Path

    def __call__(self, part: PlacePart) -> Work:
        """Carry out the task, unless it was done before."""
        start, used = time.perf_counter(), time.process_time()
        folder = RunFolder(self.path)
        if not self.done(folder, part):
            self.work(folder, part)
        return Work(part, time.perf_counter() - start, time.process_time() - used, peak_bytes())

    @abstractmethod
    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the task's last part is committed."""

    @abstractmethod
    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Carry out the task."""


class PartTotal(Task):
    """Check a part's confidential counts and sum them into its roots, before anything is drawn."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the roots' sums are committed."""
        return folder.sums.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Commit the roots' sums."""
        branch = folder.branch(part)
        cells, counts = folder.cells(branch), _exact(folder, part, branch)
        refuse_overflow(counts.sum(dtype=np.float64))
        refuse_broken(local_constraints(folder.spec, cells), counts)
        attributes = cells.finest.attributes
        sums = cells.sum(counts, Margin(branch.tree.levels[0], attributes))
        if part.layer == 0:
            refuse_inexact(cells.sum(counts, Margin(branch.tree.levels[0])), BEFORE_NOISE)
        occupied = _occupied(sums.reshape(branch.tree.sizes[0], -1), int(branch.starts[0]))
        folder.sums.commit(str(part), lambda path: save_arrays(path, occupied._asdict()))


class Measure(Task):
    """The draw of a part's noise, of which one is committed, and no other is ever seen."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if measurements are committed; raise BundleError if they were, and are lost."""
        return folder.draws.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Commit the measurements."""
        branch, headers = folder.branch(part), folder.headers_of(part.layer)
        cells = folder.cells(branch)
        guarantee = guarantee_in(folder.plan["guarantee"])
        drawn = draw(cells, _exact(folder, part, branch), [h.at(cells) for h in headers], guarantee)
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
    plan: SegmentPlan | JoinedPlan

    @property
    def up(self) -> Callable[..., Any]:
        """Return the upward pass: a segment's and lower estimates of its roots."""
        return joined_up if isinstance(self.plan, JoinedPlan) else up

    @property
    def down(self) -> Callable[..., Settlement]:
        """Return the downward pass: a segment settled below its settled roots."""
        return joined_down if isinstance(self.plan, JoinedPlan) else down

    def given(self, folder: RunFolder, part: PlacePart) -> tuple[Branch, Any, Answers, Any]:
        """Return the inputs of both passes: the places, their measurements, and the estimates from below."""
        branch, layer = folder.branch(part), folder.cut.layers[part.layer]
        spine = Spine(branch.tree.child_ptr, branch.tree.sizes[0])
        bounds = self.plan.bounds(local_constraints(folder.spec, folder.cells(branch)))
        firsts = tuple(branch.starts.tolist())
        segment: Any = Segment(self.plan, layer.top, layer.bottom, spine, firsts, bounds)  # pyright: ignore[reportArgumentType]
        summary: Any = Summary
        if isinstance(self.plan, JoinedPlan):
            segment, summary = JoinedSegment.of(self.plan, segment), JoinedSummary
        estimates = (load_arrays(folder.estimates.path(str(b))) for b in folder.cut.below(part))
        below = [summary.of_arrays(arrays) for arrays in estimates]
        return branch, segment, _answers(folder, part, branch), summary.join(below) if below else None


class Up(_Reconciling):
    """Estimate a part's roots from its measurements and those below."""

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if the estimates are committed."""
        return folder.estimates.find(str(part)) is not None

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Commit the estimates."""
        _, segment, answers, below = self.given(folder, part)
        summary = self.up(segment, answers, below)
        folder.estimates.commit(str(part), lambda path: save_arrays(path, summary.arrays()))


@dataclass(frozen=True)
class Down(_Reconciling):
    """Settle a part below its settled roots, check it, and write its tables."""

    seed: int

    def done(self, folder: RunFolder, part: PlacePart) -> bool:
        """Return True if its tables, the leaves for the parts below and its report are committed."""
        tables = (folder.tables.find(level_part(level, part)) for level in folder.cut.settled(part.layer))
        below = part.layer == len(folder.cut.layers) - 1 or folder.settled.find(f"leaves-{part}")
        return bool(folder.settled.find(f"report-{part}") and below and all(tables))

    def work(self, folder: RunFolder, part: PlacePart) -> None:
        """Commit the tables, the leaves for the parts below, and the report."""
        branch, segment, answers, below = self.given(folder, part)
        above = _above(folder, part, self.plan.cells) if part.layer else None
        settled = self.down(segment, answers, below, above, self.seed)
        if not settled.solved:
            raise unsolved(folder.method, Status.UNSOLVED)
        tables = dict(zip(settled.levels, settled.tables)) | (
            {} if above is None else {settled.levels.start - 1: above}
        )
        cells, headers = folder.cells(branch), folder.headers_of(part.layer)
        top = min(tables)
        gaps = _gaps(cells, top, tables, headers, answers)
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
        for level in settled.levels:
            name, held = folder.spec.levels[level].name, _occupied(tables[level])
            folder.tables.commit(
                level_part(level, part),
                lambda path, name=name, held=held: write_counts(path, cells, name, *held, folder.database),
                ".parquet",
            )
        if part.layer < len(folder.cut.layers) - 1:
            leaves = _occupied(settled.tables[-1], int(branch.starts[-1]))
            folder.settled.commit(f"leaves-{part}", lambda path: save_arrays(path, leaves._asdict()))


Gaps = Sequence[tuple[Measured, NDArray]]


def refuse_broken_rules(
    folder: RunFolder, cells: Cells, top: int, tables: Mapping[int, NDArray], gaps: Gaps
) -> None:
    """Check the settled tables of a part against every rule, independently of what settled them.

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
        not violations(local_constraints(folder.spec, cells), tables[max(tables)].ravel()),
        not any(gap.any() for header, gap in gaps if header.exact),
    )
    if broken := [rule for rule, kept in zip(CHECKS, holds) if not kept]:
        raise unsolved(
            folder.method, f"its counts break {', '.join(broken)}, which is a defect of the method"
        )


def _adds_up(cells: Cells, top: int, tables: Mapping[int, NDArray], level: int) -> bool:
    starts = cells.tree.starts(level - top, level - top + 1)[:-1]
    return np.array_equal(np.add.reduceat(tables[level + 1], starts, axis=0), tables[level])


def _gaps(
    cells: Cells, top: int, tables: Mapping[int, NDArray], headers: Sequence[Measured], answers: Answers
) -> Gaps:
    """Return every header with released minus measured counts `(places, groups)`."""
    found = []
    for level, measured in enumerate(answers):
        own = [h for h in headers if h.margin.level == cells.tree.levels[level]]
        for header, answer in zip(own, measured, strict=True):
            table = marginalise(tables[top + level], cells.marginal(header.margin.attributes))
            found.append((header, _of_counted(cells, header, table) - answer))
    return found


def _of_counted(cells: Cells, header: Measured, table: NDArray) -> NDArray:
    """Return the measured groups of a margin `(places, groups)`, for margins of some units alone."""
    if not header.margin.where:
        return table
    own = header.at(cells).groups
    return table if own is None else table[:, own[own < table.shape[1]]]


def _squares(header: Measured, gap: NDArray) -> dict[str, Any]:
    """Return how many counts of a header there are, and the sum of squares of its gaps (counts squared)."""
    squares = float((gap**2.0).sum())
    return {"query": header.query, "level": header.margin.level, "counts": gap.size, "squares": squares}


def level_part(level: int, part: PlacePart) -> str:
    """Return the name of the part that holds the table of a level."""
    return f"{level:02d}-{part}"


def _exact(folder: RunFolder, part: PlacePart, branch: Branch) -> NDArray[np.int64]:
    """Return confidential counts of all cells of a part's last level."""
    if part.layer == len(folder.cut.layers) - 1:
        parts = [folder.occupied(part.number)]
    else:
        parts = [Occupied(**load_arrays(folder.sums.path(str(b)))) for b in folder.cut.below(part)]
    return _dense(parts, int(branch.starts[-1]), folder.cells(branch).shape).ravel()


def _dense(parts: Sequence[Occupied], first: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    table = np.zeros((shape[0], int(np.prod(shape[1:], dtype=np.int64))), dtype=np.int64)
    for part in parts:
        table[part.place - first, part.cell] = part.count
    return table


def _occupied(table: NDArray, first: int = 0) -> Occupied:
    """Return the nonzero cells of `(places, n)`; the first place has the position `first`."""
    place, cell = np.nonzero(table)
    return Occupied(np.int64(first) + place, cell.astype(np.int32), table[place, cell].astype(np.int64))


def _answers(folder: RunFolder, part: PlacePart, branch: Branch) -> list[list[NDArray]]:
    """Return what a part measured, per level and header `(places, groups)`."""
    cells = folder.cells(branch)
    headers = [h.at(cells) for h in folder.headers_of(part.layer)]
    values = read_measured(folder.measured.path(str(part)), cells, headers, folder.database)
    rows = [v.reshape(cells.margin_shape(h.margin)[0], -1) for h, v in zip(headers, values, strict=True)]
    levels = (folder.spec.levels[level].name for level in folder.cut.levels(part.layer))
    return [[t for h, t in zip(headers, rows, strict=True) if h.margin.level == name] for name in levels]


def _above(folder: RunFolder, part: PlacePart, cells: int) -> NDArray[np.int64]:
    """Return the settled tables of a part's roots, from the part whose leaves they are."""
    first, last = folder.cut.layers[part.layer].edges[part.number : part.number + 2]
    held = Occupied(**load_arrays(folder.settled.path(f"leaves-{folder.cut.above(part)}")))
    rows = slice(*np.searchsorted(held.place, [first, last]).tolist())
    held = Occupied(held.place[rows], held.cell[rows], held.count[rows])
    return _dense([held], first, (last - first, cells))
