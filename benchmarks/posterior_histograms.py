"""Posterior draws of histograms on a hierarchy: columns of all places at once against `lattice-moves`, and what states take.

Ours to an effective size of 400 of every reported count under the hierarchical prior; the peer to the same under the flat one,
which is the only one it takes. Times are seconds of processor time, set-up and runs that were thrown away included.
The picture gives full chains on a county's blocks, and what 400,000 cells take in memory above what stood before, draws apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.coverage_histograms import Histograms, _cells, histograms, measured
from benchmarks.harness import Case, Harness, Picture, peak_memory
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.layouts.columns import ColumnProblem
from trueup.layouts.linear import LinearProblem
from trueup.model.records.drawn import Drawn

LAW = "rho 1"


def cases(harness: Harness) -> Iterator[Case]:
    problem = measured(small(60), LAW, np.random.default_rng(2))
    _full(measured(small(6), LAW, np.random.default_rng(2)))  # compiles
    ours, spent = _timed(_full, problem)
    harness.progress("lattice-moves")
    theirs, long = _timed(_lattice, problem)
    rates = spent / ours.stats["smallest_ess"], long / theirs.stats["smallest_ess"]
    one, other = (found.draws.reshape(-1, problem.cells.n) for found in (ours, theirs))
    yield Case(
        case=f"{problem.cells.n} cells, processor seconds to an effective size of 400",
        ours_s=400 * rates[0],
        peer="lattice-moves under the flat prior",
        peer_s=400 * rates[1],
        ratio=rates[1] / rates[0],
        peak_mb=None,
        difference=float(np.abs(one.mean(axis=0) - other.mean(axis=0)).mean()),
    )


def pictures(harness: Harness) -> Iterator[Picture]:
    """Full chains of a county's blocks with `TRUEUP_TEST_DATA`, else of made-up places; memory of 400,000 cells."""
    scenario = next(histograms())
    harness.progress(scenario.name)
    found, spent = _timed(_full, measured(scenario, LAW, np.random.default_rng(2)))
    figures = [f"{found.stats[name]:.4g}" for name in ("smallest_ess", "largest_r_hat", "sweeps", "watched")]
    rows = [[scenario.name, f"{scenario.cells.n:,}", *figures, f"{spent:.0f}", ""]]
    if harness.full:
        large = measured(small(25_000), LAW, np.random.default_rng(2))
        each = peak_memory(lambda: _two_chains(large)) * 1e6 / large.cells.n
        rows.append(["25,000 places", f"{large.cells.n:,}", "", "", "2", "", "", f"{each:.0f}"])
    columns = [
        "counts",
        "cells",
        "smallest size",
        "largest R-hat",
        "sweeps",
        "watched",
        "processor s",
        "bytes a cell",
    ]
    yield Picture(title="Full chains, and the memory of two chains", columns=columns, rows=rows)


def small(places: int) -> Histograms:
    """Regions of six places or more, by race and age, skewed."""
    rng = np.random.default_rng(1)
    region = np.sort(rng.integers(0, max(places // 30, 2), places)).astype(str)
    place = [f"{k:05d}" for k in range(places)]
    cells = _cells(["state", "region", "place"], [{}, {"region": region}, {"place": place}])
    return Histograms("made up", cells, rng.poisson(rng.gamma(0.7, 8, cells.n)))


def _timed(run, problem: ColumnProblem) -> tuple[Drawn, float]:
    began = time.process_time()
    return run(problem), time.process_time() - began


def _full(problem: ColumnProblem) -> Drawn:
    method = HistogramGibbs(tier="full")
    state = method.prepare(problem.constraints, problem.headers)
    return method.apply(state, np.concatenate(problem.values), 1000, np.random.default_rng(3), _silent)


def _lattice(problem: ColumnProblem) -> Drawn:
    linear, values = LinearProblem(problem.constraints, problem.headers), np.concatenate(problem.values)
    return LatticeMoves(enumerate=0).apply(linear, values, 1000, np.random.default_rng(3), _silent)


def _two_chains(problem: ColumnProblem) -> None:
    HistogramWalk.of(problem, np.random.default_rng(3).spawn(2)).run(1, 2, _silent)


def _silent(done: int, of: int) -> None:
    pass
