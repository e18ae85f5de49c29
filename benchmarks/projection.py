"""Program (P+) for a matrix, `arrays.project`, beside PIQP, Clarabel and HiGHS, up to 2,000 x 20,000: processor seconds."""

# Compiled peers and sparse matrices come without useful types.
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse

from benchmarks.harness import Case, Harness, available
from trueup.arrays import project

SIZES = ((20, 200, 0), (60, 600, 3), (200, 2000, 3), (200, 2000, 0), (600, 6000, 3), (2000, 20_000, 3))
"""Equalities, counts, and in how many equalities each count is; 0 for a dense 0/1 matrix. The last is one of the full size."""


class Projection(NamedTuple):
    """Noisy counts, equalities and weights."""

    y: np.ndarray
    matrix: sparse.csr_array
    sums: np.ndarray
    weights: np.ndarray


def made(m: int, n: int, each: int) -> Projection:
    """Counts from 0 to 9 with two-sided geometric noise, so that one in six ends at zero."""
    rng = np.random.default_rng(m + n + each)
    x = rng.integers(0, 10, n)
    if each:
        places = rng.integers(0, m, n * each), np.repeat(np.arange(n), each)
        matrix = sparse.csr_array((np.ones(n * each), places), shape=(m, n))
    else:
        matrix = sparse.csr_array(rng.integers(0, 2, (m, n)).astype(float))
    noise = rng.geometric(0.3, n) - rng.geometric(0.3, n)
    return Projection((x + noise).astype(float), matrix, matrix @ x, rng.uniform(0.5, 2, n))


def by_piqp(problem: Projection) -> np.ndarray:
    """PIQP's sparse proximal interior point, default tolerances (1e-8)."""
    import piqp

    y, matrix, sums, w = problem
    solver = piqp.SparseSolver()
    solver.setup(
        sparse.csc_matrix(sparse.diags(w)), -w * y, sparse.csc_matrix(matrix), sums, x_l=np.zeros(y.size)
    )
    solver.solve()
    return np.array(solver.result.x)


def by_clarabel(problem: Projection) -> np.ndarray:
    """Clarabel's interior point, default tolerances (1e-8)."""
    import clarabel

    y, matrix, sums, w = problem
    rows = sparse.vstack([matrix, -sparse.eye(y.size)], format="csc")
    cones = [clarabel.ZeroConeT(sums.size), clarabel.NonnegativeConeT(y.size)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    sides = np.append(sums, np.zeros(y.size))
    hessian = sparse.csc_matrix(sparse.diags(w))
    found = clarabel.DefaultSolver(hessian, -w * y, sparse.csc_matrix(rows), sides, cones, settings).solve()
    return np.array(found.x)


def by_highs(problem: Projection) -> np.ndarray:
    """HiGHS' active set for quadratic programs."""
    import highspy

    y, matrix, sums, w = problem
    solver, n = highspy.Highs(), y.size
    solver.setOptionValue("output_flag", False)
    columns, model = sparse.csc_matrix(matrix), highspy.HighsModel()
    model.lp_.num_col_, model.lp_.num_row_ = n, sums.size
    model.lp_.col_cost_, model.lp_.col_lower_, model.lp_.col_upper_ = -w * y, np.zeros(n), np.full(n, np.inf)
    model.lp_.row_lower_ = model.lp_.row_upper_ = sums
    model.lp_.a_matrix_.start_, model.lp_.a_matrix_.index_ = columns.indptr, columns.indices
    model.lp_.a_matrix_.value_ = columns.data
    model.hessian_.dim_, model.hessian_.start_ = n, np.arange(n + 1)
    model.hessian_.index_, model.hessian_.value_ = np.arange(n), w
    solver.passModel(model)
    solver.run()
    return np.array(solver.getSolution().col_value)


def cases(harness: Harness) -> Iterator[Case]:
    """Every size beside the peers that are installed; the largest difference is that of a count."""
    for m, n, each in SIZES if harness.full else SIZES[:-1]:
        problem = made(m, n, each)
        y, matrix, sums, w = problem
        kind = f"{each} equalities a count" if each else "dense"

        def ours(y=y, matrix=matrix, sums=sums, w=w) -> np.ndarray:
            found = project(y, matrix, sums, weights=w, nonnegative=True)
            if found.gap != 0 or found.residual > 1e-9:
                raise AssertionError(f"residual {found.residual}, gap {found.gap}")
            return found.x

        peers = {
            "piqp": available("piqp", lambda p=problem: by_piqp(p)),
            "clarabel": available("clarabel", lambda p=problem: by_clarabel(p)),
            "highs": available("highspy", lambda p=problem: by_highs(p))
            if n <= 2000
            else "not run above 2,000 counts",
        }
        yield from harness.compare(f"{m:,} x {n:,}, {kind}", ours, peers, clock=time.process_time)
