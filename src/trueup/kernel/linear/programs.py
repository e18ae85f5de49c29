"""Fits under general linear constraints: least squares, least absolute deviations, whole numbers.

A fit says which sums `M x` were measured, as what, with which weights. Weighted least squares is solved in the
variables (x, r) with `M x - r = y`, so that no product `M'M` (dense as soon as a total is measured) is formed: by the
interior-point solvers PIQP up to about 10,000 variables and Clarabel above. Least absolute deviations and whole
numbers go to HiGHS. A whole-number fit with a convex loss is a mixed-integer linear program: the loss is replaced by
its increments between integers in a window around the continuous solution, which is exact at integers.

No solver's word is taken for it: the residual of every row is recomputed from the returned point, least squares are
finished by `active_set`, which proves the optimum, and what branch and bound claims is held against its lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy  # its parts load when first used

from trueup.errors import TrueupError
from trueup.kernel.linear.active_set import optimum_near
from trueup.kernel.linear.fit import Fit
from trueup.kernel.linear.polyhedron import Polyhedron, between, box

PIQP_VARIABLES = 10_000
ACCURACY = 1e-6  # violation, relative to the right-hand sides, above which a solution is not called solved

Loss = Callable[[np.ndarray], np.ndarray]
"""Loss (q,) of deviations `M x - y` (q,), convex in each."""


@dataclass(frozen=True)
class Answer:
    """A point, its status ("solved" or the reason why not) and its recomputed residual (counts).

    `gap` is the proved relative distance from the optimum of the program that was solved (0 where it is exact,
    None where nothing was proved), `objective` that program's value at the point, with weights relative to the least.
    """

    x: np.ndarray
    status: str
    residual: float
    objective: float
    gap: float | None = 0.0


Solve = Callable[[Polyhedron, Fit], Answer]
"""What solves a program."""


def affine_projection(polyhedron: Polyhedron, y: np.ndarray, variances: np.ndarray) -> Answer:
    """Nearest point with `A x = b` alone: the least-norm correction, by LSMR.

    Program P of Zhu, Van Hentenryck & Fioretto (2021). Redundant rows do no harm.

    Parameters
    ----------
    polyhedron : its equalities; everything else is ignored
    y : (n,) measured counts
    variances : (n,) counts squared; a cell of variance 0 does not move

    Examples
    --------
    >>> p = Polyhedron.of(3, [[1, 1, 1]], [9.0], nonnegative=False)
    >>> affine_projection(p, np.array([1.0, 2.0, 3.0]), np.ones(3)).x.round(12)
    array([2., 3., 4.])
    """
    deviation = np.sqrt(variances)
    rows = polyhedron.equal
    scaled = scipy.sparse.csr_array(rows @ scipy.sparse.diags_array(deviation))
    gap = polyhedron.sums - rows @ y
    step = scipy.sparse.linalg.lsmr(
        scaled, gap, atol=1e-15, btol=1e-15, conlim=0, maxiter=20 * (polyhedron.sums.size + y.size)
    )[0]
    x = y + deviation * step
    residual = float(np.abs(rows @ x - polyhedron.sums).max(initial=0.0))
    return Answer(x, _status(residual, polyhedron), residual, float(step @ step))


def least_squares(polyhedron: Polyhedron, fit: Fit) -> Answer:
    """Minimise the weighted squares of a fit over a polyhedron.

    Raises
    ------
    TrueupError
        If the solver that the size asks for is not installed; it names the extra.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, -1.0]), np.ones(2))
    >>> least_squares(p, fit).x.round(6) + 0.0
    array([3., 0.])
    """
    n, q, fit = polyhedron.cells, fit.values.size, fit.relative()
    # The solvers end where the narrowest noise is settled, so its weight is 1; what they leave, `optimum_near` does.
    loss = fit.weights / fit.weights.max(initial=1.0)
    cost = scipy.sparse.diags_array(np.concatenate([np.zeros(n), loss]), format="csc")
    equal = scipy.sparse.block_array(
        [[polyhedron.equal, None], [fit.matrix, -scipy.sparse.eye_array(q)]], format="csc"
    )
    right = np.concatenate([polyhedron.sums, fit.values])
    ranged = scipy.sparse.csr_array(
        scipy.sparse.hstack([polyhedron.ranged, scipy.sparse.csr_array((polyhedron.lower.size, q))])
    )
    floor = np.concatenate([np.full(n, 0.0 if polyhedron.nonnegative else -np.inf), np.full(q, -np.inf)])
    point, said = _interior_point(cost, equal, right, ranged, polyhedron.lower, polyhedron.upper, floor)
    near = point[:n]
    best = optimum_near(polyhedron, fit, near) if np.isfinite(near).all() else None
    if best is not None:
        return Answer(best, "solved", polyhedron.residual(best), fit.objective(best))
    residual = polyhedron.residual(near)
    return Answer(near, _status(residual, polyhedron, said), residual, fit.objective(near), None)


def _status(residual: float, polyhedron: Polyhedron, said: str = "") -> str:
    if said:
        return said
    solved = residual <= ACCURACY * polyhedron.scale
    return "solved" if solved else "the solver's point violates a constraint"


def _extra(module: str):
    try:
        return __import__(module)
    except ImportError:
        raise TrueupError(
            f"general constraints need the solver '{module}', which is not installed",
            remedy="pip install 'trueup[solvers]'",
        ) from None


def _interior_point(cost, equal, right, ranged, lower, upper, floor) -> tuple[np.ndarray, str]:
    """Minimise x' cost x / 2 by the solver that the size asks for; its point and what it says against it."""
    solve = _by_piqp if floor.size <= PIQP_VARIABLES else _by_clarabel
    return solve(cost, equal, right, ranged, lower, upper, floor)


def _by_piqp(cost, equal, right, ranged, lower, upper, floor) -> tuple[np.ndarray, str]:
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
    solved = status == piqp.PIQP_SOLVED
    return np.asarray(solver.result.x), "" if solved else f"PIQP stopped: {_words(status)}"


def _by_clarabel(cost, equal, right, ranged, lower, upper, floor) -> tuple[np.ndarray, str]:
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
    solved = answer.status == clarabel.SolverStatus.Solved
    return np.asarray(answer.x), "" if solved else f"Clarabel stopped: {_words(answer.status)}"


def _words(status) -> str:
    return str(status).split(".")[-1].replace("PIQP_", "").replace("_", " ").lower()


def least_absolute(polyhedron: Polyhedron, fit: Fit) -> Answer:
    """Minimise the weighted absolute deviations of a fit and, among the many optima, their squares.

    A linear program gives the optimum and its prices; by complementary slackness the optima are the points whose
    deviations have the signs, and whose rows have the slack, that these prices allow. That set is a polyhedron, on
    which the least squares are taken.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, 4.0]), np.ones(2))
    >>> least_absolute(p, fit).x.round(6)
    array([2., 1.])
    """
    fit = fit.relative()
    vertex, optima = _absolute_vertex(polyhedron, fit)
    if vertex.status != "solved":
        return vertex
    even = least_squares(optima, fit)
    if even.status != "solved":
        return vertex
    residual = polyhedron.residual(even.x)
    total = float(fit.weights @ np.abs(fit.matrix @ even.x - fit.values))
    return Answer(even.x, _status(residual, polyhedron), residual, total)


def _absolute_vertex(polyhedron: Polyhedron, fit: Fit) -> tuple[Answer, Polyhedron]:
    """A vertex of the optima of least absolute deviations, and the set of all optima."""
    n, q = polyhedron.cells, fit.values.size
    one = scipy.sparse.eye_array(q)
    ranged = scipy.sparse.csr_array(
        scipy.sparse.hstack([polyhedron.ranged, scipy.sparse.csr_array((polyhedron.lower.size, 2 * q))])
    )
    below, above = np.isfinite(polyhedron.lower), np.isfinite(polyhedron.upper)
    answer = scipy.optimize.linprog(
        np.concatenate([np.zeros(n), fit.weights, fit.weights]),
        A_ub=scipy.sparse.vstack([ranged[above], -ranged[below]]),
        b_ub=np.concatenate([polyhedron.upper[above], -polyhedron.lower[below]]),
        A_eq=scipy.sparse.block_array(
            [[polyhedron.equal, None, None], [fit.matrix, -one, one]], format="csr"
        ),
        b_eq=np.concatenate([polyhedron.sums, fit.values]),
        bounds=[(0 if polyhedron.nonnegative else None, None)] * n + [(0, None)] * (2 * q),
        method="highs",
    )
    if answer.x is None:
        return Answer(
            np.full(n, np.nan), f"HiGHS stopped: {answer.message}", np.inf, np.inf, None
        ), polyhedron
    x = answer.x[:n]
    residual = polyhedron.residual(x)
    said = "" if answer.status == 0 else f"HiGHS stopped: {answer.message}"
    vertex = Answer(x, _status(residual, polyhedron, said), residual, float(answer.fun))
    return vertex, _optima(polyhedron, fit, answer, below, above)


def _optima(polyhedron: Polyhedron, fit: Fit, answer, below: np.ndarray, above: np.ndarray) -> Polyhedron:
    """All optima of a linear program, from one optimal dual."""
    n = polyhedron.cells
    price = answer.eqlin.marginals[polyhedron.sums.size :]
    slack = 1e-7  # the least weight is 1
    low = fit.values + np.where(price >= (1 - slack) * fit.weights, -np.inf, 0.0)
    high = fit.values + np.where(price <= (slack - 1) * fit.weights, np.inf, 0.0)
    lower, upper = polyhedron.lower.copy(), polyhedron.upper.copy()
    active = np.abs(answer.ineqlin.marginals) > slack
    lower[above] = np.where(active[: above.sum()], upper[above], lower[above])
    upper[below] = np.where(active[above.sum() :], lower[below], upper[below])
    empty = np.flatnonzero(answer.lower.marginals[:n] > slack)
    return Polyhedron(
        n,
        polyhedron.equal,
        polyhedron.sums,
        scipy.sparse.csr_array(
            scipy.sparse.vstack(
                [polyhedron.ranged, fit.matrix, scipy.sparse.csr_array(scipy.sparse.eye_array(n))[empty]]
            )
        ),
        np.concatenate([lower, low, np.full(empty.size, -np.inf)]),
        np.concatenate([upper, high, np.zeros(empty.size)]),
        polyhedron.nonnegative,
    )


def whole_fit(
    polyhedron: Polyhedron,
    fit: Fit,
    loss: Loss,
    centre: np.ndarray,
    *,
    reach: int = 1,
    limit: tuple[Loss, float] | None = None,
    seconds: float = 60.0,
) -> Answer:
    """Minimise a convex loss of integer deviations over the whole-number points of a polyhedron.

    Parameters
    ----------
    polyhedron : constraints
    fit : measured sums; its values must be whole numbers
    loss : loss (q,) of deviations (q,), convex in each
    centre : (n,) a continuous solution; deviations are sought within `reach` of its own
    reach : how far beyond floor and ceiling to look (counts)
    limit : another loss whose total must not exceed a value
    seconds : time limit of the branch and bound

    Returns
    -------
    Answer
        Optimal among deviations in the window; `gap` is what branch and bound left unproved.

    Examples
    --------
    >>> p = Polyhedron.of(3, [[1, 1, 1]], [4.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(3)), np.array([1.0, 1.0, 1.0]), np.ones(3))
    >>> whole_fit(p, fit, np.square, np.full(3, 4 / 3)).objective
    1.0
    """
    n, q = polyhedron.cells, fit.values.size
    base = np.floor(fit.matrix @ centre - fit.values + 1e-7) - reach
    steps = base[:, None] + np.arange(2 * reach + 2)
    increments = np.diff(np.stack([loss(column) for column in steps.T], axis=1), axis=1)
    width = increments.shape[1]
    spread = scipy.sparse.kron(scipy.sparse.eye_array(q), np.ones((1, width)), format="csr")
    low, high = polyhedron.bounds
    rows = [
        between(scipy.sparse.hstack([fit.matrix, -spread]), fit.values + base, fit.values + base),
        between(
            scipy.sparse.hstack([polyhedron.matrix, scipy.sparse.csr_array((polyhedron.rows, q * width))]),
            low,
            high,
        ),
    ]
    if limit is not None:
        bounded = np.diff(np.stack([limit[0](column) for column in steps.T], axis=1), axis=1)
        row = np.concatenate([np.zeros(n), bounded.ravel()])
        rows.append(between(row[None], -np.inf, limit[1] - limit[0](base).sum() + 1e-6))
    lowest = np.concatenate([np.full(n, 0.0 if polyhedron.nonnegative else -np.inf), np.zeros(q * width)])
    highest = np.concatenate([np.full(n, np.inf), np.ones(q * width)])
    answer = scipy.optimize.milp(
        np.concatenate([np.zeros(n), increments.ravel()]),
        integrality=np.concatenate([np.ones(n), np.zeros(q * width)]),
        bounds=box(lowest, highest),
        constraints=rows,
        options={"mip_rel_gap": 1e-9, "time_limit": seconds},
    )
    if answer.x is None:
        empty = (
            "no whole-number point in the window"
            if answer.status == 2
            else f"HiGHS stopped: {answer.message}"
        )
        return Answer(np.full(n, np.nan), empty, np.inf, np.inf, None)
    x = np.rint(answer.x[:n])
    residual = polyhedron.residual(x)
    total = float(loss(fit.matrix @ x - fit.values).sum())
    gap = _gap(total, float(loss(base).sum()) + float(answer.mip_dual_bound))
    said = "" if answer.status == 0 else f"HiGHS stopped early with a relative gap of {gap:.2g}"
    return Answer(x, _status(residual, polyhedron, said), residual, total, gap)


def _gap(total: float, bound: float) -> float:
    """How far a loss may be above its lower bound, relative to it or to a loss of 1; rounding aside."""
    gap = (total - bound) / max(1.0, abs(bound))
    return gap if gap > 1e-8 else 0.0


def whole_widening(
    polyhedron: Polyhedron, fit: Fit, loss: Loss, centre: np.ndarray, reach: int = 1, most: int = 16, **more
) -> Answer:
    """`whole_fit` with its window doubled until it holds a point."""
    answer = whole_fit(polyhedron, fit, loss, centre, reach=reach, **more)
    while answer.status == "no whole-number point in the window" and reach < most:
        reach *= 2
        answer = whole_fit(polyhedron, fit, loss, centre, reach=reach, **more)
    return answer


def in_any_order(solve: Solve, polyhedron: Polyhedron, fit: Fit, rng: np.random.Generator) -> Answer:
    """Solve a program whose cells and rows come in an order drawn at random; the answer is in the order given.

    Branch and bound settles ties between equally good points by the places of cells and rows. An order drawn at
    random leaves nothing to where they were listed: relabelled input has a relabelled answer, in law.

    Examples
    --------
    >>> p = Polyhedron.of(4, [[1, 1, 1, 1]], [1.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(4)), np.zeros(4), np.ones(4))
    >>> rng = np.random.default_rng(0)
    >>> len({in_any_order(whole_nearest, p, fit, rng).x.tobytes() for _ in range(50)})
    4
    """
    order = rng.permutation(polyhedron.cells)
    answer = solve(polyhedron.shuffled(order, rng), fit.shuffled(order, rng))
    return replace(answer, x=answer.x[np.argsort(order)])


def whole_nearest(polyhedron: Polyhedron, fit: Fit, *, seconds: float = 60.0) -> Answer:
    """Whole-number point with the least weighted absolute deviations and, among these, the least squares.

    The projected discrete Laplace mechanism of Dharangutte, Gao, Gong & Yu: noise first, then the L1-nearest point
    that obeys the constraints, in whole numbers. L1 leaves many optima; the least squares pick the one that spreads a
    gap as evenly as it can be spread.

    Examples
    --------
    >>> p = Polyhedron.of(3, [[1, 1, 1]], [6.0], nonnegative=False)
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(3)), np.array([1.0, 0.0, 2.0]), np.ones(3))
    >>> whole_nearest(p, fit).x
    array([2., 1., 3.])
    """

    fit = fit.relative()

    def absolute(d: np.ndarray) -> np.ndarray:
        return fit.weights * np.abs(d)

    def square(d: np.ndarray) -> np.ndarray:
        return fit.weights * d**2

    continuous = least_absolute(polyhedron, fit)
    if continuous.status != "solved":
        return continuous
    first = whole_widening(polyhedron, fit, absolute, continuous.x, seconds=seconds)
    if first.status != "solved":
        return first
    even = whole_fit(
        polyhedron, fit, square, continuous.x, limit=(absolute, first.objective), seconds=seconds
    )
    return replace(even, objective=first.objective) if even.status == "solved" else first
