"""Posterior draws of tables with crossing margins: our chains against Metropolis in plain NumPy.

A histogram of places by two attributes with noisy margins at two levels. The peer proposes plus or minus one at a random
cell, the textbook chain, from tables where ours ended. Times are seconds of processor time to an effective size of 400 of the
slowest count, scaled from what each reached; ours include set-up and all runs that were thrown away. `difference`
compares posterior means of two seeds of ours, in standard deviations, the largest over cells.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse

from benchmarks.harness import Case, Harness
from trueup.infer.lattice_moves import LatticeMoves
from trueup.kernel.diagnostics import diagnose
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.measurements import Measured
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.reconcile.on_linear import LinearProblem


def cases(harness: Harness) -> Iterator[Case]:
    for places, steps in ((4, 400_000), *([(40, 1_000_000)] if harness.full else [])):
        problem, values = histogram(places, np.random.default_rng(11))
        harness.progress(f"{problem.cells.n} cells")
        yield _case(problem, values, steps)


def histogram(places: int, rng: np.random.Generator) -> tuple[LinearProblem, np.ndarray]:
    """Measure `places` by 4 by 25 cells, their margins by place and both attributes, and the total."""
    attributes = tuple(
        Attribute(name, tuple(f"{name}{k}" for k in range(size))) for name, size in (("a", 4), ("b", 25))
    )
    names = [f"p{k:03d}" for k in range(places)]
    cells = Cells(Tree.from_columns(["all", "place"], [{}, {"place": names}]), attributes)
    law = law_named("discrete-laplace")("1/2")
    margins = [Margin(level, kept) for level in ("all", "place") for kept in ((), ("a",), ("b",))]
    margins.append(cells.finest)
    truth = rng.poisson(rng.gamma(0.7, 8, cells.n))
    values = [cells.sum(truth, m) + law.quantile(rng.random(cells.size(m))).astype(int) for m in margins]
    headers = tuple(Measured("q", margin, law) for margin in margins)
    return LinearProblem(Constraints(cells, tuple(margins)), headers), np.concatenate(values)


def _case(problem: LinearProblem, values: np.ndarray, steps: int) -> Case:
    method = LatticeMoves(enumerate=0)
    run = lambda seed: method.apply(problem, values, 1000, np.random.default_rng(seed), lambda done, of: None)  # noqa: E731
    first = run(0)
    begin = time.process_time()
    second = run(1)
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
