"""Inference of large problems part by part, within bounded memory. An interrupted run can be resumed.

Of a tree the driver estimates the prior, as in memory; parts are looked at, solved up to the top, drawn and written. Parts of a
histogram, or of a family of tables, follow draws of the places above them (`histogram_parts`, `family_parts`). All that parts
come to stands in a run folder beside the target until the posterior is whole: the same command goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import BYTES_PER_CELL, PROCESS_BYTES, refuse_needed, return_freed
from trueup.files.owner import owning
from trueup.files.target import refuse_occupied
from trueup.files.writing import staged, write_whole, writing
from trueup.inferring import choose_inference
from trueup.inferring.family_moves import FamilyMoves
from trueup.inferring.family_parts import CutFamily
from trueup.inferring.given import (
    Given,
    measured_once,
    prior_instead,
    read_given,
    refuse_draws,
    refuse_fractions,
)
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_parts import NO_END_MINUTES, THIN, WARM_UP, CutHistogram
from trueup.inferring.method import InferenceMethod, Progress, announce, inference_misfit, silent
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_state import DEPTHS, FINE, TreeState
from trueup.inferring.tree_work import AllowedWork, pass_cost
from trueup.inferring.written_parts import WantedAreas, WantedTables, WrittenParts, manifest_of
from trueup.inferring.written_tables import WrittenFamily, WrittenHistogram
from trueup.io.bundle.posterior import MOST_ROWS
from trueup.layouts.family_rules import family_cells
from trueup.model.constraints import Constraints
from trueup.model.prior import Hierarchical
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.model.verb import describe, refuse_method
from trueup.planning import AreaTable
from trueup.run import Deadline, Executor
from trueup.run.parts import KeptExecutor

PARTS_PER_TASK = 16
"""Parts of the tree that a worker looks at or solves at a time."""
START_SECONDS, PRODUCT_SECONDS, NODE_SECONDS, DRAW_SECONDS = 5.0, 2.5e-10, 4e-5, 2e-7
"""Seconds of a processor to estimate the prior, and for each product of one pass up, each node, and each draw of a cell."""
NODE_BYTES, TABLE_BYTES, PLACE_BYTES, ROW_BYTES = 80, 200, 400, 2.0
"""Bytes of the driver for each node of a tree beside keys, at last and with tables, and place; of the disk for a draw."""
DRAWN_BYTES = 100_000_000
"""Bytes of a worker that draws parts of a tree and writes them."""
SWEEP_SECONDS, TABLE_SECONDS = 4e-7, 4.5e-7
"""Seconds of a processor for each cell of a histogram in a sweep, and for each draw of a count of its tables."""
FAMILY_SECONDS = 4e-5
"""Seconds of a processor for each draw of a cell of a family below the cut."""
PART_BYTES, VALUE_BYTES = (300, 9), 16
"""Bytes of a worker for each cell of a part, and for each draw of it; of the driver for each measured value."""


class Prediction(NamedTuple):
    """The predicted cost of a posterior by parts: processor seconds, and bytes of memory and disk."""

    core_seconds: float
    memory: float
    disk: float

    @classmethod
    def of(cls, state: TreeState, values: NDArray, draws: int, workers: int) -> Prediction:
        """Return the predicted cost of a tree's posterior by parts, from the windows of its tables."""
        nodes, cells = len(state.child_ptr) - 1, len(state.problem.nested.nodes[-1])
        windows = state.windows(values, np.full(nodes, DEPTHS[FINE]))
        seconds = START_SECONDS + PRODUCT_SECONDS * pass_cost(state.child_ptr, *windows)
        seconds += NODE_SECONDS * nodes + DRAW_SECONDS * draws * cells
        keys = sum(column.nbytes for held in state.problem.nested.cells.tree.keys for column in held.values())
        drawn = workers * (DRAWN_BYTES + (PROCESS_BYTES if workers > 1 else 0)) + NODE_BYTES * nodes
        memory = PROCESS_BYTES + keys + max(drawn, TABLE_BYTES * nodes)
        return cls(seconds, memory, ROW_BYTES * draws * cells + BYTES_PER_CELL * nodes)


def infer_by_parts(
    source: Given,
    out: str | Path,
    executor: Executor,
    *,
    spec: Spec | Constraints | None = None,
    draws: int = 1000,
    level: float | str = 0.9,
    areas: AreaTable | None = None,
    keep_draws: bool = True,
    take_over: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the posterior of a large tree, histogram or family to a folder, part by part.

    Parameters
    ----------
    source, spec, draws, level, progress
        The same as in `infer`.
    out
        A new folder; until the run ends, the folder `OUT.run` beside it holds finished parts.
    executor
        Executor that works on the parts; a run that is predicted to need more memory than it has is refused.
    areas
        Areas off the hierarchy, and the attributes that are kept of them.
    keep_draws
        True to write the draws, False to write their summaries alone.
    take_over
        True if somebody confirms that the silent process on another machine has ended.

    Returns
    -------
    The manifest. Equal sources give equal draws on whatever engine: of a tree those that `infer` gives.

    Raises
    ------
    SpecError
        If the method is not one of trees, histograms or families, or if the problem cannot be cut.
    ConvergenceError
        If no windows of counts hold the posterior.
    """
    return_freed()
    out, level, tell = Path(out), probability_of(level), progress or silent
    measured, constraints, entry = read_given(source, spec)
    refuse_draws(draws)
    refuse_fractions(measured)
    entry = {key: held for key, held in entry.items() if key not in ("minutes", "quantity")}
    chosen = choose_inference(entry, constraints, measured)
    refuse_method(chosen, inference_misfit(chosen, constraints, measured))
    instead = {} if "prior" in entry else prior_instead(chosen, constraints, measured)
    used, repeated = measured_once(measured)
    cut = _part_problem(chosen, constraints, used)
    expected = cut.expected(draws, executor.workers)
    hours, disk = expected.core_seconds / 3600, expected.disk / 1e9
    announce(tell, f"about {hours:.2g} core-hours and {disk:.2g} GB of disk")
    refuse_needed("the posterior", expected.memory, executor.memory)
    refuse_occupied(out)
    wanted = None if areas is None else WantedAreas.of(measured.cells, areas)
    with _run_folder(out, take_over) as run:
        rng, kept = measured.rng(), KeptExecutor(executor, run)
        tables = WantedTables(measured, draws, level, wanted, keep_draws)
        written = cut.solved(tables, rng, tell, replace(kept, together=PARTS_PER_TASK))
        with staged(out) as folder:
            drawn = written.write(folder, kept, rng, tell)
            doubts = chosen.doubt(constraints, used.headers), *getattr(measured.spec, "noted", ())
            more = {"repeated_values": repeated, "doubt": " ".join(filter(None, doubts)), **instead}
            more = {name: said for name, said in more.items() if said}
            drawn = replace(drawn, stats={**drawn.stats, **more})
            manifest = manifest_of(folder, measured, drawn, describe(chosen), level)
            write_whole(folder / "manifest.json", json.dumps(manifest, indent=2, default=str) + "\n")
        shutil.rmtree(run)
    return manifest


@dataclass(frozen=True, eq=False)
class LargeTree:
    """A large tree of margins, ready to be solved by parts.

    Attributes
    ----------
    values
        Measured values, as the tree's method takes them.
    tree, state
        The tree's method, and the problem that it prepared.
    """

    values: NDArray
    tree: TreeExact
    state: TreeState

    def expected(self, draws: int, workers: int) -> Prediction:
        """Return the predicted cost, from the windows of the tree's tables."""
        return Prediction.of(self.state, self.values, draws, workers)

    def solved(
        self, wanted: WantedTables, rng: np.random.Generator, tell: Progress, executor: KeptExecutor
    ) -> WrittenParts:
        """Estimate the prior, solve the tree, and return the object that writes its tables."""
        work = AllowedWork(deadline=Deadline.of(NO_END_MINUTES))
        found = self.tree.solved(self.state, self.values, wanted.draws, rng, tell, executor, work)  # pyright: ignore[reportArgumentType]
        if found.top is None:
            raise _too_small(self.state)
        return WrittenParts(**vars(wanted), found=found, most=max(1, MOST_ROWS // wanted.draws))


@dataclass(frozen=True, eq=False)
class LargeHistogram:
    """A large histogram, ready to be drawn by parts."""

    cut: CutHistogram

    def expected(self, draws: int, workers: int) -> Prediction:
        """Return the predicted cost, from the numbers of cells and tables."""
        n, nodes = self.cut.cells.n, self.cut.cells.tree.level_ptr[-1]
        counts = sum(self.cut.cells.size(margin) for margin in self.cut.margins)
        seconds = SWEEP_SECONDS * (WARM_UP + THIN * draws) * n + TABLE_SECONDS * draws * counts
        part = PART_BYTES[0] + PART_BYTES[1] * draws
        values = VALUE_BYTES * sum(map(len, self.cut.values))
        above = 8 * draws * self.cut.columns * self.cut.cells.tree.sizes[self.cut.level]
        memory = PROCESS_BYTES * (1 + (workers if workers > 1 else 0)) + workers * self.cut.largest * part
        return Prediction(seconds, memory + PLACE_BYTES * nodes + values + above, ROW_BYTES * draws * n)

    def solved(self, wanted: WantedTables, *_: object) -> WrittenHistogram:
        """Return the object that draws the parts of the histogram and writes their tables."""
        return WrittenHistogram(**vars(wanted), cut=self.cut)


@dataclass(frozen=True, eq=False)
class LargeFamily:
    """A large family of tables, ready to be drawn by parts."""

    cut: CutFamily

    def expected(self, draws: int, workers: int) -> Prediction:
        """Return the predicted cost of the parts, without that of the Markov chains above them."""
        n, largest = self.cut.cells.n, int(self.cut.part_cells(self.cut.level).max())
        seconds = START_SECONDS + FAMILY_SECONDS * n * draws
        memory = PROCESS_BYTES * (1 + (workers if workers > 1 else 0)) + 3 * 8 * draws * n
        part = PART_BYTES[0] + 2 * 8 * draws
        return Prediction(seconds, memory + workers * largest * part, 2 * ROW_BYTES * draws * n)

    def solved(self, wanted: WantedTables, *_: object) -> WrittenFamily:
        """Return the object that draws the parts of the family and writes their tables."""
        return WrittenFamily(**vars(wanted), cut=self.cut)


def _part_problem(
    chosen: InferenceMethod, constraints: Constraints, used: Measurements
) -> LargeTree | LargeHistogram | LargeFamily:
    """Return the large problem to cut into parts. Refuse a method that cannot infer by parts."""
    if isinstance(chosen, FamilyMoves):
        _refuse_family(chosen, constraints, used)
        return LargeFamily(CutFamily(constraints, tuple(used.headers), tuple(used.values)))
    if isinstance(chosen, HistogramGibbs) and chosen.tier != "chains" and chosen.prior.even:
        given = tuple(chosen.prior.concentrations)
        return LargeHistogram(CutHistogram(constraints, tuple(used.headers), tuple(used.values), given))
    if not isinstance(chosen, TreeExact) or chosen.mode or chosen.tier == "approximate":
        own = {TreeExact: "`mode`", HistogramGibbs: "public shares or covariates"}.get(type(chosen), "")
        odd = f"tier '{tier}'" if (tier := getattr(chosen, "tier", "")) in ("approximate", "chains") else own
        raise SpecError(
            f"method '{chosen.name}' cannot infer by parts{f' with {odd}' if odd else ''}",
            needed=f"method '{TreeExact.name}' or '{HistogramGibbs.name}'{f' without {odd}' if odd else ''}",
            remedy="leave out --engine",
        )
    if odd := next((h for h in used.headers if not (h.law.additive or h.exact) or h.margin.where), None):
        raise SpecError(
            f"query '{odd.query}' of '{odd.margin}', which cannot be inferred by parts, has "
            + ("a condition" if odd.margin.where else f"the law '{odd.law.name}', which does not add noise"),
            needed="noise that is added to all counts of a table",
            remedy="leave out --engine",
        )
    state = chosen.prepare(constraints, used.headers).flat_given_bounds(used.flat)
    if state.cut is None:
        raise _too_small(state)
    state.refuse_impossible(used.flat)
    return LargeTree(used.flat, replace(chosen, tier="exact"), state)


def _refuse_family(chosen: FamilyMoves, constraints: Constraints, used: Measurements) -> None:
    """Refuse families of tables that can only be inferred in memory."""
    added = (h.groups is None and (h.exact or (h.law.additive and not h.law.joint)) for h in used.headers)
    if not isinstance(chosen.prior, Hierarchical) or chosen.prior.concentrations:
        why = "only the prior with estimated concentrations is possible, not a flat or given one"
    elif family_cells(constraints).joint is not None:
        why = "their shared attributes form a cycle (as in a x b, b x c, c x a), so all places are drawn together"
    elif not all(added):
        why = "only some counts of a table are measured, or their noise is not added independently"
    else:
        return
    raise SpecError(
        f"the tables on these places cannot be inferred by parts: {why}", remedy="leave out --engine"
    )


def _too_small(state: TreeState) -> SpecError:
    nodes = len(state.child_ptr) - 1
    return SpecError(
        f"a tree of {nodes:,} counts is too small to be cut into parts", remedy="leave out --engine"
    )


@contextmanager
def _run_folder(out: Path, take_over: bool) -> Iterator[Path]:
    run = out.absolute().with_name(f"{out.name}.run")
    with writing(run):
        run.mkdir(mode=0o700, exist_ok=True)
    with owning(run, take_over=take_over):
        yield run
