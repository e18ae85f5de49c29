"""The tree problem as named peers solve it.

General solvers get the sparse form that suits them best: all n node totals are variables, the Hessian is
diagonal, and each inner node contributes one row ``x_v - sum of children = 0``.
"""

# Compiled peers and sparse matrices come without useful types.
# pyright: reportAttributeAccessIssue=false, reportOptionalSubscript=false
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks._trees import Instance

Reals = NDArray[np.float64]


def additivity(problem: Instance) -> sparse.csc_matrix:
    """One row per inner node: its total less the sum of its children."""
    child_ptr, n = problem.child_ptr, problem.size
    counts = np.diff(child_ptr)
    inner = np.flatnonzero(counts)
    parents = np.repeat(np.arange(inner.size), counts[inner])
    rows = np.concatenate([np.arange(inner.size), parents])
    columns = np.concatenate([inner, np.arange(1, n)])
    values = np.concatenate([np.ones(inner.size), -np.ones(n - 1)])
    return sparse.csc_matrix((values, (rows, columns)), (inner.size, n))


def lower_bounds(problem: Instance) -> Reals:
    """0 at the leaves, none above: nonnegative leaves make nonnegative totals."""
    return np.where(np.diff(problem.child_ptr) == 0, 0.0, -np.inf)


def sparse_direct(problem: Instance, y: Reals) -> Reals:
    """Equality alone: the dual normal equations A Q A' by a sparse factorisation."""
    from scipy.sparse.linalg import spsolve

    rows = additivity(problem)
    spread = sparse.diags_array(problem.variance)
    price = spsolve((rows @ spread @ rows.T).tocsc(), rows @ y)
    return y - spread @ (rows.T @ price)


def piqp(problem: Instance, y: Reals, nonnegative: bool = True) -> Reals:
    """PIQP's sparse proximal interior point, default tolerances (1e-8)."""
    import piqp

    rows, n = additivity(problem), problem.size
    solver = piqp.SparseSolver()
    hessian = sparse.csc_matrix(sparse.diags_array(1 / problem.variance))
    bounds = lower_bounds(problem) if nonnegative else np.full(n, -np.inf)
    solver.setup(hessian, -y / problem.variance, rows, np.zeros(rows.shape[0]), x_l=bounds)
    solver.solve()
    return np.array(solver.result.x)


def clarabel(problem: Instance, y: Reals, nonnegative: bool = True) -> Reals:
    """Clarabel's interior point, default tolerances (1e-8)."""
    import clarabel

    rows, n = additivity(problem), problem.size
    leaves = np.flatnonzero(np.diff(problem.child_ptr) == 0)
    signs = sparse.csc_matrix((-np.ones(leaves.size), (np.arange(leaves.size), leaves)), (leaves.size, n))
    constraints = sparse.vstack([rows, signs], format="csc") if nonnegative else rows
    cones: list = [clarabel.ZeroConeT(rows.shape[0])]
    if nonnegative:
        cones.append(clarabel.NonnegativeConeT(leaves.size))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    hessian = sparse.csc_matrix(sparse.diags_array(1 / problem.variance))
    target = np.zeros(constraints.shape[0])
    solver = clarabel.DefaultSolver(hessian, -y / problem.variance, constraints, target, cones, settings)
    return np.array(solver.solve().x)


def osqp(problem: Instance, y: Reals) -> Reals:
    """OSQP's operator splitting, default tolerances (1e-3)."""
    import osqp

    rows, n = additivity(problem), problem.size
    constraints = sparse.csc_matrix(sparse.vstack([rows, sparse.eye_array(n)]))
    low = np.concatenate([np.zeros(rows.shape[0]), lower_bounds(problem)])
    high = np.concatenate([np.zeros(rows.shape[0]), np.full(n, np.inf)])
    solver = osqp.OSQP()
    hessian = sparse.csc_matrix(sparse.diags_array(1 / problem.variance))
    solver.setup(hessian, -y / problem.variance, constraints, low, high, verbose=False)
    return np.array(solver.solve().x)


def hierarchicalforecast(problem: Instance, y: Reals, nonnegative: bool) -> Reals:
    """MinTrace of hierarchicalforecast, weighted by the variances (dense: small trees only).

    Nonnegative, it replaces negative *inputs* by zero first, and so solves another problem.
    """
    import warnings

    from hierarchicalforecast.methods import MinTrace

    one_residual = np.sqrt(problem.variance)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = MinTrace("wls_var", nonnegative=nonnegative)
        result = method.fit_predict(
            summing_matrix(problem), y[:, None], y_insample=one_residual, y_hat_insample=0 * one_residual
        )
    return result["mean"][:, 0]


def summing_matrix(problem: Instance) -> Reals:
    """Node totals from leaves, dense, leaves in level order (all at the last level)."""
    leaves = int(problem.level_ptr[-2])
    matrix = np.zeros((problem.size, problem.size - leaves))
    matrix[leaves:] = np.eye(problem.size - leaves)
    for v in range(leaves - 1, -1, -1):
        matrix[v] = matrix[problem.child_ptr[v] : problem.child_ptr[v + 1]].sum(axis=0)
    return matrix


def nnls(problem: Instance, y: Reals) -> Reals:
    """scipy's active-set nnls (dense: small trees only)."""
    from scipy import optimize

    matrix, weight = summing_matrix(problem), 1 / np.sqrt(problem.variance)
    return matrix @ optimize.nnls(matrix * weight[:, None], y * weight)[0]


def daqp(problem: Instance, y: Reals) -> Reals:
    """DAQP's dual active set (dense: small trees only)."""
    import daqp

    matrix, weight = summing_matrix(problem), 1 / np.sqrt(problem.variance)
    half = matrix * weight[:, None]
    size = matrix.shape[1]
    x, _, _, _ = daqp.solve(
        half.T @ half, -half.T @ (y * weight), np.zeros((0, size)), np.full(size, 1e30), np.zeros(size),
        primal_tol=1e-11,
    )  # fmt: skip
    return matrix @ x
