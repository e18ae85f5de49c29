"""Posterior draws of tables with crossing margins: our chains against Metropolis in plain NumPy.

A histogram of places by two attributes with noisy margins at two levels. The peer proposes plus or minus one at a random
cell, the textbook chain, from tables where ours ended. Times are seconds of processor time to an effective size of 400 of the
slowest count, scaled from what each reached; ours include set-up and all runs that were thrown away. `difference`
compares posterior means of two seeds of ours, in standard deviations, the largest over cells. The picture gives the
effective size of the slowest count or sum in a second of ours, for tables of several shapes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import scipy.sparse

from benchmarks._lattice_accuracy import fourteen
from benchmarks.harness import Case, Harness, Picture, peak_memory
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.layouts.linear import LinearProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import Drawn
from trueup.model.tree import Tree
from trueup.noise import law_named


def cases(harness: Harness) -> Iterator[Case]:
    for places, steps in ((4, 400_000), *([(40, 1_000_000)] if harness.full else [])):
        problem, values = histogram(places, np.random.default_rng(11))
        harness.progress(f"{problem.cells.n} cells")
        yield _case(problem, values, steps)


def pictures(harness: Harness) -> Iterator[Picture]:
    """Run tables of several shapes to convergence, each once untimed."""
    problems = {f"{size} x {size}, noisy margins": table(size) for size in (4, 10, 20)}
    problems["20 x 20, exact margins"] = table(20, exact=("a", "b"))
    problems["14 records, three exact crossing sums"] = records(np.random.default_rng(11))
    rows = []
    for name, (problem, values) in problems.items():
        harness.progress(name)
        run = partial(_run, problem, values, 1)
        run()
        begin = time.process_time()
        size, spent = run().stats["smallest_ess"], time.process_time() - begin
        rows.append([name, f"{size:.0f}", f"{spent:.2f}", f"{size / spent:,.0f}", f"{peak_memory(run):.0f}"])
    yield Picture(
        title="Effective size of the slowest count or sum, once everything has converged",
        columns=["table", "size", "processor s", "size a second", "peak MB"],
        rows=rows,
    )


def histogram(places: int, rng: np.random.Generator) -> tuple[LinearProblem, np.ndarray]:
    """Measure `places` by 4 by 25 cells, their margins by place and both attributes, and the total."""
    names = [f"p{k:03d}" for k in range(places)]
    cells = Cells(Tree.from_columns(["all", "place"], [{}, {"place": names}]), _attributes(a=4, b=25))
    margins = [Margin(level, kept) for level in ("all", "place") for kept in ((), ("a",), ("b",))]
    return _measured(Constraints(cells, (*margins, cells.finest)), rng)


def table(size: int, exact: tuple[str, ...] = ()) -> tuple[LinearProblem, np.ndarray]:
    """Measure `size` by `size` cells, their total, and both margins, of which some are exact."""
    cells = Cells(Tree.from_columns(["all"], [{}]), _attributes(a=size, b=size))
    noisy = tuple(Margin("all", (name,)) for name in "ab" if name not in exact)
    held = tuple(Margin("all", (name,)) for name in exact)
    margins = (cells.finest, *noisy, *(() if held else (Margin("all"),)))
    return _measured(Constraints(cells, margins, invariants=held), np.random.default_rng(5))


def records(rng: np.random.Generator) -> tuple[LinearProblem, np.ndarray]:
    """Measure the cells of the 14 records whose three crossing sums are kept as linear rules."""
    constraints, truth = fourteen()
    return _measured(constraints, rng, truth)


def _attributes(**sizes: int) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, tuple(f"{name}{k}" for k in range(size))) for name, size in sizes.items())


def _measured(constraints: Constraints, rng: np.random.Generator, truth: np.ndarray | None = None):
    """Counts of a skewed table unless they are given, every margin with noise at epsilon 1/2, and the invariants."""
    cells, law, exact = constraints.cells, law_named("discrete-laplace")("1/2"), law_named("exact")()
    truth = rng.poisson(rng.gamma(0.7, 8, cells.n)) if truth is None else truth
    headers = [Measured("q", margin, law) for margin in constraints.margins]
    headers += [Measured("invariant", margin, exact) for margin in constraints.invariants]
    values = [cells.sum(truth, h.margin) for h in headers]
    for k in range(len(constraints.margins)):
        values[k] = values[k] + law.quantile(rng.random(values[k].size)).astype(int)
    return LinearProblem(constraints, tuple(headers)), np.concatenate(values)


def _run(problem: LinearProblem, values: np.ndarray, seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    return LatticeMoves(enumerate=0).apply(problem, values, 1000, rng, lambda done, of: None)


def _case(problem: LinearProblem, values: np.ndarray, steps: int) -> Case:
    first = _run(problem, values, 0)
    begin = time.process_time()
    second = _run(problem, values, 1)
    ours = (time.process_time() - begin) * 400 / second.stats["smallest_ess"]
    begin = time.process_time()
    ess = metropolis(problem, values, first.draws[:, -1], steps)
    peer = (time.process_time() - begin) * 400 / ess
    one, other = (found.draws.reshape(-1, problem.cells.n) for found in (first, second))
    gap = np.abs(one.mean(axis=0) - other.mean(axis=0)) / one.std(axis=0)
    return Case(
        case=f"{problem.cells.n} cells, processor seconds to an effective size of 400",
        ours_s=ours,
        peer=f"Metropolis in NumPy (from converged tables, {steps:,} steps a chain, its smallest size {ess:.0f})",
        peer_s=peer,
        ratio=peer / ours,
        peak_mb=None,
        difference=float(gap.max()),
    )


def metropolis(problem: LinearProblem, values: np.ndarray, starts: np.ndarray, steps: int) -> float:
    """Run the textbook chain from each start; return the smallest effective size of a count."""
    rate = float(problem.headers[0].law.epsilon)  # pyright: ignore[reportAttributeAccessIssue]
    matrix = scipy.sparse.csc_array(problem.fit_matrix)
    rows = [matrix.indices[matrix.indptr[c] : matrix.indptr[c + 1]] for c in range(problem.cells.n)]
    rng, keep, chains = np.random.default_rng(2), steps // 500, []
    for start in starts:
        x, left = start.copy(), values - matrix @ start
        cells, signs = rng.integers(len(x), size=steps), rng.choice([-1, 1], size=steps)
        logs, states = np.log(rng.random(steps)), []
        for step in range(steps):
            cell, sign = cells[step], signs[step]
            if x[cell] + sign >= 0:
                near = left[rows[cell]]
                if logs[step] < rate * (np.abs(near).sum() - np.abs(near - sign).sum()):
                    x[cell] += sign
                    left[rows[cell]] -= sign
            if step % keep == 0:
                states.append(x.copy())
        chains.append(states)
    return float(diagnose(np.array(chains))[1].min())
