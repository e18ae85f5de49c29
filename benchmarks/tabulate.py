"""Microdata to sparse counts by blocks: synthetic persons of the redistricting tables, 2,016 cells a block.

`difference` is the largest from the peer's counts. The peer reads the same files into one dense table of all cells, which is
what a release in memory does; it has no case where that table would not fit.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Case, Harness
from trueup.io.microdata.by_parts import SparseCounts, tabulate_by_parts
from trueup.io.microdata.tabulate import read_counts
from trueup.model.cells import Cells
from trueup.model.problem import public_cells
from trueup.model.spec import load_spec
from trueup.synth import synthesize

SPEC = Path(__file__).parents[1] / "examples" / "pl94.toml"
SIZES = (100_000, 1_000_000)
FULL = 33_144_928
"""A tenth of the nation."""
DENSE = 1_000_000
BUNDLE = 4_000


def cases(harness: Harness) -> Iterator[Case]:
    spec = load_spec(SPEC)
    for persons in (*SIZES, *([FULL] if harness.full else [])):
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "made"
            synthesize(SPEC, made, persons=persons, workers=2)
            cells = public_cells(spec, geography=made / "places")

            def ours(cells=cells, made=made, out=Path(scratch) / "counts") -> SparseCounts:
                shutil.rmtree(out, ignore_errors=True)
                bundles = np.arange(cells.shape[0]) // BUNDLE
                return tabulate_by_parts(spec, cells, made / "records", out, bundles)

            def dense(cells=cells, made=made) -> np.ndarray:
                return read_counts(spec, cells, made / "records")

            yield from harness.compare(
                f"{persons:,} persons, {cells.shape[0]:,} blocks",
                ours,
                {"one dense table": dense if persons <= DENSE else "does not fit"},
                difference=lambda counts, table, cells=cells: _difference(cells, counts, table),
            )


def _difference(cells: Cells, counts: SparseCounts, table: np.ndarray) -> float:
    left = table.reshape(cells.shape[0], -1).copy()
    for bundle in range(counts.parts):
        place, cell, count = counts.read(bundle)
        left[place, cell] -= count
    return float(np.abs(left).max())
