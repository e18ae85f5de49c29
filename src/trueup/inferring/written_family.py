"""The posterior of a family by parts as a folder: parts are drawn by workers, tables are written from all draws together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.areas import infer_areas
from trueup.inferring.family_parts import SWEEPS, CutFamily, FamilyPart, draw_above
from trueup.inferring.method import Progress, announce
from trueup.inferring.written_parts import WantedTables
from trueup.io.bundle.posterior import write_tables
from trueup.layouts.family_rules import family_cells
from trueup.model.nested import canonical
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.run.executor import InTurn
from trueup.run.kept import KeptExecutor


@dataclass(frozen=True, eq=False)
class WrittenFamily(WantedTables):
    """The tables of a family's posterior by parts, and how it is cut."""

    cut: CutFamily

    def write(
        self, folder: Path, executor: KeptExecutor, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Write draws, summaries and areas; return the record of the draws."""
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
            f"By parts: tables down to '{name}' are draws of {above['sweeps']:,} sweeps of chains that know only sums of what "
            f"was measured further down (largest R-hat {above['largest_r_hat']:.2f}); tables below each place were drawn given "
            f"these and moved by {SWEEPS} sweeps of chains, not required to have converged."
        )
        stats = {
            "tier": "approximate",
            "draws": self.draws,
            "parts": len(self.cut.runs),
            "above": above,
        }
        tables: Sequence = tuple(dict.fromkeys(canonical(cells, h.margin) for h in self.cut.headers))
        drawn = Drawn(draws[None], False, tables=tables, stats=stats, approximate=text)
        posterior = Posterior(cells, drawn, {}, "", self.level)
        areas = (
            None
            if self.areas is None
            else infer_areas(posterior, self.areas.table, by=self.areas.margin.attributes)
        )
        write_tables(folder, posterior, draws=self.keep_draws, areas=areas)
        return drawn
