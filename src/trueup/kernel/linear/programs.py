"""Least-squares fits under general linear constraints, and the results of all fits.

A fit says which sums `M x` were measured, as what, with which weights. Weighted least squares is solved in the
variables (x, r) with `M x - r = y`, so that no product `M'M` (dense as soon as a total is measured) is formed: by the
interior-point solvers PIQP up to about 10,000 variables and Clarabel above; where one stops early, the other is
asked. Where every count is measured by itself and limits are of single counts, `separable` is faster than either.
Least absolute deviations are in `absolute_deviations`, whole numbers in `whole_fit`. Solvers work in units of the largest
count, so that their tolerances are relative.

No solver's status is trusted: the residual of every row is recomputed from the returned point, and least squares
are finished by `active_set`, which proves the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used

from trueup.errors import TrueupError
from trueup.kernel import Status
from trueup.kernel.linear import Fit, FitOptimum
from trueup.kernel.linear.active_set import optimum_near
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.separable import separable_optimum

PIQP_VARIABLES = 10_000
PASSES = 3  # of an interior-point solver, each from the point of the one before
PROVED = 1e-6  # relative gap that the tolerances of solvers leave, reported as none
KEPT = (
    1e-6,
    1e-13,
)  # violation (counts; relative to the right-hand sides, for rounding) of a rule that counts as kept


@dataclass(frozen=True)
class Answer:
    """The result of a linear or quadratic program.

    Attributes
    ----------
    x
        (n,) counts; int64 from `trueup.arrays.project` where whole ones were asked for.
    status
        `solved`, or in words why not.
    residual
        The largest violation of a rule, recomputed from x (counts).
    objective
        The program's value at x, with weights relative to the least.
    gap
        Distance from a lower bound proved for the whole program, relative to that bound or to 1 if it is less (0: proved to be
        optimal; None: nothing is proved).
    even
        True if x is proved to be the requested one of several optimal points (in the L1 norm, that of least squares).
    """

    x: np.ndarray
    status: Status
    residual: float
    objective: float
    gap: float | None = 0.0
    even: bool = True


Solve = Callable[[Polyhedron, Fit], Answer]
"""Solver of a program."""


def constrained_least_squares(polyhedron: Polyhedron, fit: Fit) -> Answer:
    """Minimise the weighted squares of a fit over a polyhedron.

    Raises
    ------
    TrueupError
        If the solver that the size asks for is not installed; it names the extra.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> constrained_least_squares(p, fit).x.round(6) + 0.0
    array([3., 0.])
    """
    fit = fit.relative()
    alone = separable_optimum(polyhedron, fit)
    if alone is not None:
        found = _proved(polyhedron, alone)
        if found.gap == 0.0 and found.status is Status.SOLVED:
            return found
    answer = Answer(np.full(polyhedron.cells, np.nan), Status.UNSOLVED, np.inf, np.inf, None)
    for solve in _interior_points(polyhedron.cells + fit.values.size):
        origin = np.zeros(polyhedron.cells)
        for _ in range(PASSES):
            near, unit, ended = _by(solve, polyhedron, fit, origin)
            if not np.isfinite(near).all():
                break
            best = optimum_near(polyhedron, fit, near, unit)
            if best is not None and (found := _proved(polyhedron, best)).gap == 0.0:
                return found
            answer = min(answer, found if best else _unproved(polyhedron, fit, near, ended), key=rank_of)
            origin = np.floor(np.maximum(near, 0.0) if polyhedron.nonnegative else near)
    return answer


def _proved(polyhedron: Polyhedron, best: FitOptimum) -> Answer:
    x = np.maximum(best.x, 0.0) if polyhedron.nonnegative else best.x
    residual, gap = polyhedron.residual(x), relative_gap(best.objective, best.bound)
    return Answer(x, status_of(residual, polyhedron), residual, best.objective, gap)


def _unproved(polyhedron: Polyhedron, fit: Fit, near: np.ndarray, ended: bool) -> Answer:
    x = np.maximum(near, 0.0) if polyhedron.nonnegative else near
    residual = polyhedron.residual(x)
    status = status_of(residual, polyhedron) if ended else Status.UNSOLVED
    with np.errstate(over="ignore"):  # a solver that diverged is infinitely far
        return Answer(x, status, residual, fit.objective(x), None)


def rank_of(answer: Answer) -> tuple:
    """Return a key that sorts answers: solved ones first, then proved ones, then by objective."""
    return answer.status is not Status.SOLVED, answer.gap is None, answer.objective


def near_least_squares(polyhedron: Polyhedron, fit: Fit, origin: np.ndarray) -> np.ndarray:
    """Return a point (n,) near the least squares, by one run of an interior-point solver."""
    near = _by(_interior_points(polyhedron.cells + fit.values.size)[0], polyhedron, fit.relative(), origin)[0]
    return near if np.isfinite(near).all() else origin


def _by(solve, polyhedron: Polyhedron, fit: Fit, origin: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """Return the point (n,) that an interior-point solver finds, and True if the solver reports success.

    It looks for the change of an origin (n,), in units of what the origin misses: from a point that it found before it
    gains the digits that counts much larger than their noise take.
    """
    n, q = polyhedron.cells, fit.values.size
    sums, values = polyhedron.sums - polyhedron.equal @ origin, fit.values - fit.matrix @ origin
    moved = polyhedron.ranged @ origin
    unit = max(1.0, float(np.abs(sums).max(initial=0.0)), float(np.abs(values).max(initial=0.0)))
    # The solvers end where the narrowest noise is settled, so its weight is 1; what they leave, `optimum_near` does.
    loss = fit.weights / fit.weights.max(initial=1.0)
    cost = scipy.sparse.diags_array(np.concatenate([np.zeros(n), loss]), format="csc")
    equal = scipy.sparse.block_array(
        [[polyhedron.equal, None], [fit.matrix, -scipy.sparse.eye_array(q)]], format="csc"
    )
    right = np.concatenate([sums, values]) / unit
    ranged = scipy.sparse.csr_array(
        scipy.sparse.hstack([polyhedron.ranged, scipy.sparse.csr_array((polyhedron.lower.size, q))])
    )
    lowest = -origin / unit if polyhedron.nonnegative else np.full(n, -np.inf)
    floor = np.concatenate([lowest, np.full(q, -np.inf)])
    lower, upper = (polyhedron.lower - moved) / unit, (polyhedron.upper - moved) / unit
    point, ended = solve(cost, equal, right, ranged, lower, upper, floor)
    return origin + point[:n] * unit, unit, ended


def relative_gap(total: float, bound: float) -> float | None:
    """Return the gap between a loss and its lower bound as a share of the bound, or None without a bound."""
    if not np.isfinite(bound):
        return None
    bound = max(bound, 0.0)  # no loss is negative
    gap = (total - bound) / max(1.0, bound)
    return gap if gap > PROVED else 0.0


def status_of(residual: float, polyhedron: Polyhedron) -> Status:
    """Return `SOLVED` if a recomputed residual (counts) is within the tolerance."""
    if not np.isfinite(residual):
        return Status.NOT_FINITE
    return Status.SOLVED if residual <= KEPT[0] + KEPT[1] * polyhedron.scale else Status.INACCURATE


def _extra(module: str):
    try:
        return __import__(module)
    except ImportError:
        raise TrueupError(
            f"general constraints need the solver '{module}', which is not installed",
            remedy="pip install 'trueup[solvers]'",
        ) from None


def _interior_points(variables: int) -> tuple:
    """Return the interior-point solvers, beginning with the one that suits the number of variables."""
    return (_by_piqp, _by_clarabel) if variables <= PIQP_VARIABLES else (_by_clarabel, _by_piqp)


def _by_piqp(cost, equal, right, ranged, lower, upper, floor) -> tuple[np.ndarray, bool]:
    piqp = _extra("piqp")
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    solver.settings.max_iter = 500
    rows = scipy.sparse.csc_matrix(ranged) if lower.size else None
    solver.setup(
        scipy.sparse.csc_matrix(cost),
        np.zeros(floor.size),
        scipy.sparse.csc_matrix(equal),
        right,
        rows,
        lower if lower.size else None,
        upper if lower.size else None,
        floor,
        np.full(floor.size, np.inf),
    )
    status = solver.solve()
    return np.asarray(solver.result.x), status == piqp.PIQP_SOLVED


def _by_clarabel(cost, equal, right, ranged, lower, upper, floor) -> tuple[np.ndarray, bool]:
    clarabel = _extra("clarabel")
    below, above, signed = np.isfinite(lower), np.isfinite(upper), np.isfinite(floor)
    sign = -scipy.sparse.csr_array(scipy.sparse.eye_array(floor.size))[signed]
    rows = scipy.sparse.vstack(
        [scipy.sparse.csr_array(equal), ranged[above], -ranged[below], sign], format="csc"
    )
    sides = np.concatenate([right, upper[above], -lower[below], -floor[signed]])
    cones = [clarabel.ZeroConeT(right.size), clarabel.NonnegativeConeT(sides.size - right.size)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    answer = clarabel.DefaultSolver(
        scipy.sparse.csc_matrix(cost),
        np.zeros(floor.size),
        scipy.sparse.csc_matrix(rows),
        sides,
        cones,
        settings,
    ).solve()
    return np.asarray(answer.x), answer.status == clarabel.SolverStatus.Solved
