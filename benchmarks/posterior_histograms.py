"""Posterior draws of histograms on a hierarchy: columns of all places at once against `lattice-moves`, and what states take.

Ours to an effective size of 400 of every reported count under the hierarchical prior; the peers to the same under the flat one,
which is the only one they take: `lattice-moves`, and that of the version that `--previous` names. Times are seconds of
processor time, set-up and runs that were thrown away included. The pictures give, beside the figures aimed at: tier chains on a
county's blocks; with `--full` or as parts the approximate tier on a state's with its check, and what 400,000 cells take in
memory above what stood before, draws apart. Blocks are Rhode Island's with `TRUEUP_TEST_DATA`, else made up.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._coverage import LAWS
from benchmarks._programs import folder_of
from benchmarks.coverage_histograms import Histograms, _cells, histograms, measured, rhode_island
from benchmarks.harness import Case, Harness, Picture, peak_memory
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.layouts.columns import ColumnProblem
from trueup.layouts.linear import LinearProblem
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline

LAW = "rho 1"
PARTS = ("960 cells", "county", "state", "memory")
SEEDS = [3, 4, 5, 6, 7]
"""Of runs at 960 cells: the smallest of many effective sizes differs by a fifteenth from one to another."""
LEVELS = ["state", "region", "place"]
COLUMNS = ["counts", "figure", "aimed at"]


class Run(NamedTuple):
    """Processor seconds of a run, its smallest effective size, and its means of all cells."""

    spent: float
    size: float
    mean: NDArray[np.float64]


def cases(harness: Harness) -> Iterator[Case]:
    if harness.part not in (None, "960 cells"):
        return
    problem = measured(small(60), LAW, np.random.default_rng(2))
    _draw("chains", measured(small(6), LAW, np.random.default_rng(2)))  # compiles
    ours, peers = partial(_once, partial(_draw, "chains")), {"lattice-moves": partial(_once, _lattice)}
    if harness.previous:
        peers["the previous version's lattice-moves"] = partial(_previous, harness.previous)
    runs = [ours, *peers.values()]
    found: list[list[Run]] = [[] for _ in runs]
    for seed in SEEDS:  # by turns: the machine's speed changes from minute to minute
        for run, own in zip(runs, found):
            own.append(run(problem, seed))
        harness.progress(f"seed {seed}")
    (each, mean), *others = map(_together, found)
    for name, (seconds, other) in zip(peers, others):
        yield Case(
            case=f"{problem.cells.n} cells, processor seconds to an effective size of 400 (aimed at: a ratio of 10)",
            ours_s=400 * each,
            peer=f"{name} under the flat prior",
            peer_s=400 * seconds,
            ratio=seconds / each,
            peak_mb=None,
            difference=float(np.abs(mean - other).mean()),
        )


def pictures(harness: Harness) -> Iterator[Picture]:
    """The tier chains of a county's blocks, the approximate tier on a state's, memory of 400,000 cells."""
    rows = []
    for part, run in (("county", _county), ("state", _state), ("memory", _memory)):
        if harness.part == part or (harness.part is None and (harness.full or part == "county")):
            harness.progress(part)
            rows += run()
    if rows:
        yield Picture(title="Histograms of counties and states", columns=COLUMNS, rows=rows)


def _county() -> Iterator[list[str]]:
    scenario = next(histograms())
    found, spent = _timed(partial(_draw, "chains"), measured(scenario, LAW, np.random.default_rng(2)))
    stats = found.stats
    name = f"{scenario.name}, {scenario.cells.n:,} cells, tier chains"
    yield [name, f"{spent:.0f} processor seconds", "1,200: ten minutes of two cores"]
    yield [
        name,
        f"smallest effective size {stats['smallest_ess']:.0f} of {stats['watched']:,} counts",
        "100 for 19 of 20",
    ]
    yield [
        name,
        f"largest R-hat {stats['largest_r_hat']:.3f}",
        f"{stats['r_hat_allowed']:.3f}, by chance alone",
    ]
    yield [name, f"{stats['sweeps']:,} sweeps", ""]


def _state() -> Iterator[list[str]]:
    problem = measured(rhode_island() or small(25_000), LAW, np.random.default_rng(2))
    found, spent = _timed(partial(_draw, "approximate"), problem)
    name = f"{problem.cells.shape[0]:,} places, {problem.cells.n:,} cells, approximate, 1,000 draws"
    yield [name, f"{spent:.0f} processor seconds", "480: four minutes of two cores"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # of all that this process did
    yield [name, f"{peak:,.0f} MB at most", "2,000 MB"]
    for what, figure in found.stats["check"].items():
        yield [name, f"against chains on single places, {what.replace('_', ' ')}: {figure:.3g}", ""]


def _memory() -> Iterator[list[str]]:
    _two_chains(measured(small(6), LAW, np.random.default_rng(2)))  # compiles
    large = measured(small(25_000), LAW, np.random.default_rng(2))
    before = peak_memory(lambda: None)
    each = (peak_memory(lambda: _two_chains(large)) - before) * 1e6 / large.cells.n
    yield [f"{large.cells.n:,} cells, two chains", f"{each:.0f} bytes a cell", "100"]


def small(places: int) -> Histograms:
    """Regions of six places or more, by race and age, skewed."""
    rng = np.random.default_rng(1)
    cells = _cells(LEVELS, _keys(places, rng))
    return Histograms("made up", cells, rng.poisson(rng.gamma(0.7, 8, cells.n)))


def _keys(places: int, rng: np.random.Generator) -> list[dict[str, list[str]]]:
    region = np.sort(rng.integers(0, max(places // 30, 2), places)).astype(str)
    return [{}, {"region": region.tolist()}, {"place": [f"{k:05d}" for k in range(places)]}]


def _timed(run, problem: ColumnProblem) -> tuple[Drawn, float]:
    began = time.process_time()
    return run(problem), time.process_time() - began


def _once(run, problem: ColumnProblem, seed: int) -> Run:
    drawn, spent = _timed(partial(run, seed=seed), problem)
    return Run(spent, drawn.stats["smallest_ess"], drawn.draws.reshape(-1, problem.cells.n).mean(axis=0))


def _together(runs: list[Run]) -> tuple[float, NDArray]:
    """Processor seconds to an effective draw over some runs, and the mean of their means."""
    spent, sizes, means = zip(*runs)
    return sum(spent) / sum(sizes), np.mean(means, axis=0)


def _draw(tier, problem: ColumnProblem, seed: int = 3) -> Drawn:
    method = HistogramGibbs(tier=tier)
    state = method.prepare(problem.constraints, problem.headers)
    values, rng = np.concatenate(problem.values), np.random.default_rng(seed)
    return method.apply(state, values, 1000, rng, _silent, deadline=Deadline.of(120))


def _lattice(problem: ColumnProblem, seed: int = 3) -> Drawn:
    linear, values = LinearProblem(problem.constraints, problem.headers), np.concatenate(problem.values)
    return LatticeMoves(enumerate=0).apply(linear, values, 1000, np.random.default_rng(seed), _silent)


BEFORE = """
import json, sys, time
import numpy as np
from trueup.infer.lattice_moves import LatticeMoves
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.reconcile.on_linear import LinearProblem

given = json.load(sys.stdin)
cells = Cells(Tree.from_columns(given["levels"], given["keys"]), tuple(Attribute(a, tuple(v)) for a, v in given["attributes"]))
law = law_named("discrete-gaussian")(given["variance"])
headers = tuple(Measured("table", Margin(level, tuple(kept)), law) for level, kept in given["margins"])
problem = LinearProblem(Constraints(cells, tuple(h.margin for h in headers)), headers)
for sweeps, draws, seed in ((4, 4, 0), (1_000_000, 1000, given["seed"])):  # the first compiles
    began = time.process_time()
    try:
        found = LatticeMoves(enumerate=0, sweeps=sweeps).apply(
            problem, np.array(given["values"]), draws, np.random.default_rng(seed), lambda done, of: None
        )
    except Exception:
        if seed:
            raise
spent, mean = time.process_time() - began, found.draws.reshape(-1, cells.n).mean(axis=0)
print(json.dumps([spent, found.stats["smallest_ess"], mean.tolist()]))
"""
"""Runs the chains of the previous version, under the names that it had for things."""


def _previous(root: Path, problem: ColumnProblem, seed: int) -> Run:
    """A run of the previous version's chains on the same values."""
    cells = problem.cells
    given = {
        "levels": LEVELS,
        "keys": _keys(cells.shape[0], np.random.default_rng(1)),
        "attributes": [(a.name, a.values) for a in cells.attributes],
        "variance": str(LAWS[LAW](len(problem.headers))),
        "margins": [(h.margin.level, h.margin.attributes) for h in problem.headers],
        "values": np.concatenate(problem.values).tolist(),
        "seed": seed,
    }
    found = subprocess.run(
        [sys.executable, "-c", BEFORE],
        env=os.environ | {"PYTHONPATH": str(folder_of(root))},
        input=json.dumps(given),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    spent, size, mean = json.loads(found.stdout.splitlines()[-1])
    return Run(spent, size, np.array(mean))


def _two_chains(problem: ColumnProblem) -> None:
    HistogramWalk.of(problem, np.random.default_rng(3).spawn(2)).run(1, 2, _silent)


def _silent(done: int, of: int) -> None:
    pass
