"""The posterior of a tree by parts: 200 draws of all cells with summaries, on two workers.

`ours_s` is the processor time of all processes, with their start, and `peak_mb` the largest memory of all together, sampled; the
tree is made first, by another process. Each place has 10 below it, of the last level 100, and in the largest tree of the level
before it 40; counts follow gamma shares, noise is discrete Laplace with epsilon 1/2 at each level. Sizes: 100,000 cells; with
`--full` one and four million as well.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.harness import Case, Harness
from benchmarks.nation_local import _watch
from trueup.inferring.by_parts import infer_by_parts
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.run.local import LocalPool

DRAWS = 200


def cases(harness: Harness) -> Iterator[Case]:
    larger = (10, 10, 10, 10, 100), (10, 10, 10, 40, 100)
    for fan in ((10, 10, 10, 100), *(larger if harness.full else ())):
        cells = prod(fan)
        harness.progress(f"{cells:,} cells")
        with tempfile.TemporaryDirectory() as folder:
            given = [sys.executable, "-m", "benchmarks.posterior_parts", f"{folder}/tree"]
            subprocess.run([*given, *map(str, fan)], check=True)
            run = subprocess.Popen(given, stdout=subprocess.PIPE)
            peak = _watch(run)
            seconds = float(run.communicate()[0])
        yield Case(
            case=f"{cells:,} cells: {1e6 * seconds / cells:.0f} us a cell",
            ours_s=seconds,
            peer=None,
            peer_s=None,
            ratio=None,
            peak_mb=peak / 1e6,
            difference=None,
        )


def measured(fan: tuple[int, ...], seed: int = 1) -> tuple[Measurements, Constraints]:
    """Noisy counts of a tree in which each place of a level has as many below it."""
    rng, law, names = (
        np.random.default_rng(seed),
        law_named("discrete-laplace")("1/2"),
        [f"l{i}" for i in range(len(fan) + 1)],
    )
    rate, places = np.full(1, 5.0), np.arange(prod(fan))
    for below in fan:
        rate = np.repeat(rate, below) * rng.gamma(2, 1 / 2, len(rate) * below)
    keys = [{names[k + 1]: np.char.mod("%d", places // prod(fan[k + 1 :]))} for k in range(len(fan))]
    cells = Cells(Tree.from_columns(names, [{}, *keys]))
    counts, margins = rng.poisson(rate), tuple(map(Margin, names))
    noise = [law.quantile(rng.random(cells.size(margin))).astype(np.int64) for margin in margins]
    values = tuple(cells.sum(counts, margin) + own for margin, own in zip(margins, noise))
    headers = tuple(Measured("total", margin, law) for margin in margins)
    return Measurements(cells, headers, values, PUBLISHED, simulation=True), Constraints(cells, margins)


def main() -> None:
    """Make a tree of so many places below each in a file; or infer the one there, print the processor time of all processes."""
    if (path := Path(sys.argv[1])) and sys.argv[2:]:
        path.write_bytes(pickle.dumps(measured(tuple(map(int, sys.argv[2:])))))
        return
    values, constraints = pickle.loads(path.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        before = _seconds()
        with LocalPool(2) as pool:
            infer_by_parts(values, Path(folder) / "posterior", pool, spec=constraints, draws=DRAWS)
        print(_seconds() - before)


def _seconds() -> float:
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in every)


if __name__ == "__main__":
    main()
