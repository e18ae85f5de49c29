"""Tables with fixed margins and the named solvers that project onto them."""

# Compiled peers and sparse matrices come without useful types.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from trueup.kernel.margins import Margin, margin_of
from trueup.kernel.margins.whole import margins_polyhedron


@dataclass(frozen=True)
class Table:
    """Noisy counts and the margins that the projected table must have."""

    noisy: NDArray[np.float64]
    margins: tuple[Margin, ...]
    sums: list[NDArray[np.float64]]

    @property
    def matrix(self) -> sparse.csc_matrix:
        """One row a margin's cell."""
        return sparse.csc_matrix(margins_polyhedron(self.noisy.shape, self.margins, self.sums).equal)

    @property
    def right(self) -> NDArray[np.float64]:
        return np.concatenate([b.ravel() for b in self.sums])


def table(shape: Sequence[int], margins: Sequence[Margin], scale: float = 3.0) -> Table:
    """Lognormal counts, 40 % true zeros, rounded two-sided exponential noise."""
    rng = np.random.default_rng(0)
    truth = np.rint(3 * rng.lognormal(0, 1.5, shape) * (rng.random(shape) < 0.6))
    noisy = truth + np.rint(rng.laplace(0, scale, shape))
    return Table(noisy, tuple(margins), [margin_of(truth, m) for m in margins])


def piqp(problem: Table) -> NDArray[np.float64]:
    """PIQP's sparse proximal interior point, default tolerances (1e-8)."""
    import piqp

    n, y = problem.noisy.size, problem.noisy.ravel()
    solver = piqp.SparseSolver()
    solver.setup(sparse.csc_matrix(sparse.eye_array(n)), -y, problem.matrix, problem.right, x_l=np.zeros(n))
    solver.solve()
    return np.array(solver.result.x).reshape(problem.noisy.shape)


def clarabel(problem: Table) -> NDArray[np.float64]:
    """Clarabel's interior point, default tolerances (1e-8)."""
    import clarabel

    n, y = problem.noisy.size, problem.noisy.ravel()
    rows = sparse.vstack([problem.matrix, -sparse.eye_array(n)], format="csc")
    cones = [clarabel.ZeroConeT(problem.right.size), clarabel.NonnegativeConeT(n)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    sides = np.concatenate([problem.right, np.zeros(n)])
    hessian = sparse.csc_matrix(sparse.eye_array(n))
    solver = clarabel.DefaultSolver(hessian, -y, sparse.csc_matrix(rows), sides, cones, settings)
    return np.array(solver.solve().x).reshape(problem.noisy.shape)


def osqp(problem: Table, accuracy: float = 1e-7) -> NDArray[np.float64]:
    """OSQP's operator splitting at a stated tolerance: its default, 1e-3, is thousands of counts off."""
    import osqp

    n, y = problem.noisy.size, problem.noisy.ravel()
    rows = sparse.csc_matrix(sparse.vstack([problem.matrix, sparse.eye_array(n)]))
    low = np.concatenate([problem.right, np.zeros(n)])
    high = np.concatenate([problem.right, np.full(n, np.inf)])
    solver = osqp.OSQP()
    solver.setup(
        sparse.csc_matrix(sparse.eye_array(n)), -y, rows, low, high,
        verbose=False, eps_abs=accuracy, eps_rel=accuracy, max_iter=100_000,
    )  # fmt: skip
    return np.array(solver.solve().x).reshape(problem.noisy.shape)
