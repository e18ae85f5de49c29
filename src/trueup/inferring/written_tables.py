"""Writing of a histogram's posterior by parts: workers' tables, and the collection of their results.

The posterior of a family by parts as a folder: parts are drawn by workers, tables are written from all draws together.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.memory import PROCESS_BYTES
from trueup.files.writing import write_parquet
from trueup.inferring.family_parts import SWEEPS, CutFamily, FamilyPart, draw_above
from trueup.inferring.histogram_parts import (
    THIN,
    WARM_UP,
    CutHistogram,
    DrawAbove,
    PartOfHistogram,
    follow_roots,
)
from trueup.inferring.method import Progress, announce
from trueup.inferring.questions import infer_areas
from trueup.inferring.solved_tree import AreaParts, PartTables, table_bytes
from trueup.inferring.written_parts import NO_AREAS, ROW_BYTES, START_SECONDS, Prediction, WantedTables
from trueup.io.bundle.manifest import slug
from trueup.io.bundle.posterior import MOST_ROWS, write_drawn, write_tables
from trueup.layouts.family_rules import family_cells
from trueup.model.cells import Cells, Margin
from trueup.model.nested import canonical
from trueup.model.records.drawn import Columns, Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.tables import margin_columns, named_columns
from trueup.run import InTurn
from trueup.run.parts import KeptExecutor

Integers = NDArray[np.int64]
MAX_DRAWS_SUMMED_AT_ONCE = 1 << 22
"""Draws of counts that are summed at a time."""
SWEEP_SECONDS, TABLE_SECONDS = 4e-7, 4.5e-7
"""Seconds of a processor for each cell of a histogram in a sweep, and for each draw of a count of its tables."""
FAMILY_SECONDS = 4e-5
"""Seconds of a processor for each draw of a cell of a family below the cut."""
PLACE_BYTES, PART_BYTES, VALUE_BYTES = 400, (300, 9), 16
"""Bytes of the driver for each place; of a worker for each cell of a part, and for each draw of it; of the driver for each
measured value."""
MIN_LISTED_ESS = 100.0
"""Effective size below which a count's draws are few for its interval."""


@dataclass(frozen=True, eq=False)
class PlacesGiven:
    """The task of drawing some parts of a histogram and writing tables about them.

    Attributes
    ----------
    parts
        Places with all below them, and draws `(draws, n)` of each one's table.
    margins
        Tables of summaries.
    areas
        Where the lowest places' cells lie.
    level
        Probability of the intervals.
    number
        Number of these parts in the names of files.
    keep_draws
        True if draws are written.
    """

    parts: Sequence[tuple[PartOfHistogram, NDArray]]
    margins: Sequence[Margin]
    areas: AreaParts
    level: float
    number: int
    keep_draws: bool


def draw_places(given: PlacesGiven) -> PartTables[tuple[list[NDArray], NDArray, int]]:
    """Draw the tables of some parts one after the other, and return the files about them.

    Also the posterior means of each table, draws `(draws, places, n)` of the roots' tables, and the number of counts of the
    lowest places whose effective size is too small.
    """
    every = [part.constraints.cells for part, _ in given.parts]
    edges = np.cumsum([0, *(cells.n for cells in every)])
    counts = np.empty((len(given.parts[0][1]), edges[-1]), np.int32)
    pieces, tops = [], []
    for (part, roots), cells, ends in zip(given.parts, every, pairwise(edges)):
        draws = counts[:, slice(*ends)]
        follow_roots(part, roots, draws)
        posterior = Posterior(cells, Drawn(draws[None], False), {}, "", given.level)
        pieces.append([margin_columns(cells, m) | _figures(posterior, m) for m in given.margins])
        tops.append(draws.reshape(len(draws), cells.shape[0], -1).sum(axis=1, dtype=np.int32))
    tables = [{name: np.concatenate([one[name] for one in own]) for name in own[0]} for own in zip(*pieces)]
    few = int((tables[-1]["ess"] < min(MIN_LISTED_ESS, len(counts) / 2)).sum())
    files = _files(given, tables, counts, every)
    found = [t["mean"] for t in tables], np.stack(tops, axis=1), few
    return PartTables(files, *given.areas.sums(counts), found)


def _figures(posterior: Posterior, margin: Margin) -> Columns:
    """Return the summary figures of a table, computed for some draws at a time to save memory."""
    cells, draws = posterior.cells, posterior.draws[0]
    if margin.level == cells.tree.levels[-1]:
        return posterior.figures(margin)
    some = max(1, MAX_DRAWS_SUMMED_AT_ONCE // cells.n)
    sums = [cells.sum(draws[i : i + some], margin).astype(np.int32) for i in range(0, len(draws), some)]
    return posterior.describe(np.concatenate(sums)[None], posterior.level, 0.0)


def _files(
    given: PlacesGiven, tables: Sequence[dict[str, NDArray]], counts: NDArray, cells: Sequence[Cells]
) -> dict[str, bytes]:
    name = f"part-{given.number:05d}"
    with tempfile.TemporaryDirectory() as made:
        folder, files = Path(made), {}
        for margin, columns in zip(given.margins, tables):
            files[f"summary/{slug(margin)}/{name}.parquet"] = table_bytes(folder, columns)
        if given.keep_draws:
            named = [named_columns(own, own.finest) for own in cells]
            columns = {key: np.concatenate([one[key] for one in named]) for key in named[0]}
            several = range(-(-len(counts) // max(1, MOST_ROWS // counts.shape[1])))
            paths = [folder / f"{name}-{k:03d}.parquet" for k in several]
            write_drawn(paths, counts, columns, len(counts))
            files |= {f"draws/{path.name}": path.read_bytes() for path in paths}
    return files


@dataclass(frozen=True, eq=False)
class WrittenHistogram(WantedTables):
    """The tables to write about a histogram's posterior that is computed by parts."""

    cut: CutHistogram
    means: dict[Margin, NDArray] = field(default_factory=dict)

    @property
    def below(self) -> list[Margin]:
        """Return the margins at or below the level of the parts, whose summaries the parts write."""
        tree = self.cut.cells.tree
        return [m for m in self.cut.margins if tree.level(m.level) >= self.cut.level]

    def expected(self, workers: int) -> Prediction:
        """Return the predicted cost, from the numbers of cells and tables."""
        cut, n, nodes = self.cut, self.cut.cells.n, self.cut.cells.tree.level_ptr[-1]
        counts = sum(cut.cells.size(margin) for margin in cut.margins)
        seconds = SWEEP_SECONDS * (WARM_UP + THIN * self.draws) * n + TABLE_SECONDS * self.draws * counts
        part = PART_BYTES[0] + PART_BYTES[1] * self.draws
        values = VALUE_BYTES * sum(map(len, cut.values))
        above = 8 * self.draws * cut.columns * cut.cells.tree.sizes[cut.level]
        memory = PROCESS_BYTES * (1 + (workers if workers > 1 else 0)) + workers * cut.largest * part
        return Prediction(seconds, memory + PLACE_BYTES * nodes + values + above, ROW_BYTES * self.draws * n)

    def write(
        self, folder: Path, executor: KeptExecutor, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Write draws, summaries and areas, and return the record of the draws."""
        cut, tree = self.cut, self.cut.cells.tree
        seeds = rng.bit_generator.seed_seq.spawn(1 + tree.sizes[cut.level])  # pyright: ignore[reportAttributeAccessIssue]
        announce(progress, f"drawing tables of '{tree.levels[cut.level]}'")
        ((_, above),) = executor.map(DrawAbove(cut.level, self.draws), [cut.above(seeds[0])])
        runs = InTurn(lambda k: self._given(k, above.draws, seeds[1:]), len(cut.runs))
        self.means.update({m: np.empty(cut.cells.size(m)) for m in cut.margins})
        roots, few = np.empty(above.draws.shape, np.int32), 0
        for k, (means, own, lacking) in self.collected(
            folder, executor, draw_places, runs, progress, independent=False
        ):
            first, last = cut.runs[k]
            roots[:, first:last] = own
            few += lacking
            for margin, mean in zip(self.below, means):
                ends = tree.starts(cut.level, tree.level(margin.level))[[first, last]]
                each = cut.cells.size(margin) // tree.sizes[tree.level(margin.level)]
                self.means[margin][slice(*(ends * each))] = mean
        self._write_above(folder, roots)
        off = (roots - above.draws) / np.maximum(above.draws.std(axis=0), 0.5)
        return self._recorded(above.record, float(np.sqrt(np.mean(off**2))), few)

    def _given(self, k: int, above: NDArray, seeds: Sequence[np.random.SeedSequence]) -> PlacesGiven:
        """Return the task number `k`: its parts, with draws of the tables at the parts' roots."""
        cut, (first, last) = self.cut, self.cut.runs[k]
        parts = [(cut.part(p, seeds[p]), above[:, p]) for p in range(first, last)]
        ends = cut.cells.tree.leaf_ptr(cut.level)[[first, last]] * cut.columns
        areas = NO_AREAS if self.areas is None else self.areas.of_cells(np.arange(*ends))
        return PlacesGiven(parts, self.below, areas, self.level, k, self.keep_draws)

    def _write_above(self, folder: Path, roots: NDArray) -> None:
        """Write the tables of the levels above the parts, as sums of the parts' draws."""
        cells, levels = self.cut.cells, self.cut.cells.tree.levels
        some = Cells(cells.tree.branch(0, 0, 1, self.cut.level), cells.attributes)
        posterior = Posterior(some, Drawn(roots.reshape(1, len(roots), -1), False), {}, "", self.level)
        (folder / "summary").mkdir(exist_ok=True)
        for margin in self.cut.margins:
            if levels.index(margin.level) < self.cut.level:
                columns = margin_columns(some, margin) | posterior.figures(margin)
                write_parquet(folder / "summary" / f"{slug(margin)}.parquet", columns)
                self.means[margin] = columns["mean"]

    def _recorded(self, above: dict[str, Any], missed: float, few: int) -> Drawn:
        cut, levels = self.cut, self.cut.cells.tree.levels
        unused = cut.unused(cut.level)
        text = (
            f"By parts: tables of '{levels[cut.level]}' are draws of {above['sweeps']:,} sweeps of chains on the levels above "
            f"and one below (largest R-hat {above['largest_r_hat']:.2f}), which leave {100 * unused:.2g} % of the information on "
            f"them unused; tables below each place were drawn given these by a separate chain, not required to have "
            f"converged ({few:,} of {cut.cells.n:,} counts have an effective size below {MIN_LISTED_ESS:.0f} or half the draws)."
        )
        stats = {
            "tier": "approximate",
            "draws": self.draws,
            "parts": cut.cells.tree.sizes[cut.level],
            "unused_share": unused,
            "roots_missed_in_sds_rms": missed,
            "counts_with_few_effective_draws": few,
            "above": above,
        }
        means = {margin: self.means[margin] for margin in cut.margins}
        return self.drawn(means, independent=False, stats=stats, approximate=text)


@dataclass(frozen=True, eq=False)
class WrittenFamily(WantedTables):
    """The tables to write about the posterior, by parts, of a family of tables."""

    cut: CutFamily

    def expected(self, workers: int) -> Prediction:
        """Return the predicted cost of the parts, without that of the Markov chains above them."""
        n, largest = self.cut.cells.n, int(self.cut.part_cells(self.cut.level).max())
        seconds = START_SECONDS + FAMILY_SECONDS * n * self.draws
        memory = PROCESS_BYTES * (1 + (workers if workers > 1 else 0)) + 3 * 8 * self.draws * n
        part = PART_BYTES[0] + 2 * 8 * self.draws
        return Prediction(seconds, memory + workers * largest * part, 2 * ROW_BYTES * self.draws * n)

    def write(
        self, folder: Path, executor: KeptExecutor, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Write draws, summaries and areas, and return the record of the draws."""
        cut, tree = self.cut, self.cut.cells.tree
        seeds = rng.bit_generator.seed_seq.spawn(1 + len(cut.runs))  # pyright: ignore[reportAttributeAccessIssue]
        announce(progress, f"drawing tables of '{tree.levels[cut.level]}'")
        given = cut.above(self.draws, seeds[0])
        ((_, top),) = executor.map(draw_above, [given])
        above, found = family_cells(given.constraints), {}
        parts = InTurn(lambda k: cut.part(above, top.draws, cut.runs[k], seeds[1 + k]), len(cut.runs))
        for done, (k, drawn) in enumerate(executor.map(FamilyPart.draw, parts), start=1):
            found[k] = drawn
            progress(self.draws * done // len(parts), self.draws)
        draws = cut.joined(above, top.draws, [found[k] for k in range(len(parts))])
        return self._written(folder, draws, top.record)

    def _written(self, folder: Path, draws: NDArray, above: dict) -> Drawn:
        cells, name = self.cut.cells, self.cut.cells.tree.levels[self.cut.level]
        text = (
            f"By parts: tables down to '{name}' are draws of {above['sweeps']:,} sweeps of chains that use only sums of the "
            f"measurements further down (largest R-hat {above['largest_r_hat']:.2f}); tables below each place were drawn given "
            f"these and moved by {SWEEPS} sweeps of chains, not required to have converged."
        )
        stats = {"tier": "approximate", "draws": self.draws, "parts": len(self.cut.runs), "above": above}
        tables: Sequence = tuple(dict.fromkeys(canonical(cells, h.margin) for h in self.cut.headers))
        drawn = Drawn(draws[None], False, tables=tables, stats=stats, approximate=text)
        posterior = Posterior(cells, drawn, {}, "", self.level)
        areas = None if self.areas is None else infer_areas(posterior, self.areas.table)
        write_tables(folder, posterior, draws=self.keep_draws, areas=areas)
        return drawn
