"""Projections of noisy counts onto linear equalities and bounds, for any matrix A."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import LARGEST_COUNT, Matrix, check_generator, matrix_rows, real_vector
from trueup.errors import ConvergenceError, InfeasibleError, SpecError, did_you_mean
from trueup.kernel import Status
from trueup.kernel.linear import Fit, FitLoss
from trueup.kernel.linear.absolute_deviations import least_absolute
from trueup.kernel.linear.polyhedron import FEASIBLE, Polyhedron
from trueup.kernel.linear.programs import Answer, constrained_least_squares
from trueup.kernel.linear.whole_fit import in_any_order, whole_fit, whole_nearest
from trueup.noise.law import Reals

Norm = Literal["l2", "l1"]
Whole: TypeAlias = bool | Literal["near", "optimal"]
Limit: TypeAlias = ArrayLike | None


class CountLimits(TypedDict, total=False):
    """Limits on counts, and on weighted sums of counts, in a projection."""

    lower: Limit
    upper: Limit
    R: Matrix | None
    least: Limit
    most: Limit


def project(
    y: ArrayLike,
    A: Matrix | None = None,
    b: ArrayLike = (),
    *,
    nonnegative: bool = False,
    weights: ArrayLike = 1.0,
    norm: Norm = "l2",
    whole: Whole = False,
    seconds: float = 60.0,
    rng: np.random.Generator | None = None,
    **limits: Unpack[CountLimits],
) -> Answer:
    """Return the point with `A x = b` that is nearest to `y`, without or with `x >= 0`.

    Parameters
    ----------
    y
        (n,) noisy counts.
    A, b
        Equalities, (m, n) dense or sparse, and (m,). Rows may depend on each other.
    nonnegative
        True if counts must not be negative.
    weights
        (n,) or one: 1 / variance of each count; of its absolute deviation with `norm = "l1"`.
    norm
        `l2`: weighted squares. `l1`: weighted absolute deviations and, among the many optima, their least squares.
    whole
        True or `near`: the whole point nearest to the projection. `optimal`: the whole point nearest to `y` itself.
    seconds
        Time limit of the search for whole points.
    rng
        Settles ties between equally good whole points; without one a fixed order does.

    Other Parameters
    ----------------
    lower, upper
        (n,) bounds of each count, infinite where there is none.
    R, least, most
        Further rows `least <= R x <= most`: R is (r, n), dense or sparse, and its limits are (r,).

    Returns
    -------
    Answer
        Its status is `solved` unless a search for whole counts, or a solver, ended early; `gap` says how near it is known to be.

    Raises
    ------
    InfeasibleError
        No counts obey the rules, which is proved; it names rows that exclude each other.
    ConvergenceError
        No point was found within the limits.
    SpecError
        Shapes or numbers do not fit, or whole counts would be beyond 2^62.

    References
    ----------
    Zhu, Van Hentenryck and Fioretto (2021), programs (P) and (P+).

    Examples
    --------
    >>> project([5, 4, -2], [[1, 1, 1]], [10]).x
    array([ 6.,  5., -1.])
    >>> project([5, 4, -2], [[1, 1, 1]], [8], nonnegative=True).x
    array([4.5, 3.5, 0. ])
    """
    if not seconds > 0:
        raise SpecError(f"seconds is {seconds}", needed="a time limit above zero")
    y = real_vector(y, "the noisy counts")
    weight = real_vector(weights, "the weights", y.size)
    if not (weight > 0).all():
        raise SpecError("a weight is not above zero", needed="weights above zero, 1 / variance")
    polyhedron = _polyhedron(y.size, A, b, limits, nonnegative)
    fit = Fit(scipy.sparse.csr_array(scipy.sparse.eye_array(y.size)), y, weight)
    if whole:
        _refuse_indivisible(polyhedron)
    answer = nearest_point(polyhedron, fit, norm=norm, whole=whole, seconds=seconds, rng=rng)
    if answer.status is not Status.SOLVED:
        _refuse(polyhedron, answer, bool(whole))
    return replace(answer, x=_int64(answer.x)) if whole else answer


def nearest_point(
    polyhedron: Polyhedron,
    fit: Fit,
    *,
    norm: Norm = "l2",
    whole: Whole = False,
    seconds: float = 60.0,
    rng: np.random.Generator | None = None,
) -> Answer:
    """Return the point of a polyhedron whose sums `M x` are nearest to measured sums.

    Whole points near the projection are near in the measured sums as well as in the counts. With `l1` and `optimal` the weights
    are those of absolute deviations.

    Examples
    --------
    >>> p = Polyhedron.of(2, [[1, 1]], [3.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(2)), np.array([5.0, 4.0]), np.ones(2))
    >>> nearest_point(p, fit, whole=True).x.sum()
    np.float64(3.0)
    """
    if norm not in ("l1", "l2"):
        raise SpecError(f"the norm is {norm!r}", needed="'l1' or 'l2'")
    if whole not in (True, False, "near", "optimal"):
        raise SpecError(f"whole is {whole!r}", needed="True, False, 'near' or 'optimal'")
    if rng is not None:
        check_generator(rng)
    continuous = constrained_least_squares if norm == "l2" else least_absolute
    if not (whole and polyhedron.cells):
        return continuous(polyhedron, fit)
    order = rng or np.random.default_rng(0)
    if whole == "optimal" and norm == "l1":
        return in_any_order(lambda p, f: whole_nearest(p, f, seconds=seconds), polyhedron, fit, order)

    def solve(p: Polyhedron, f: Fit) -> Answer:
        return _whole_point(p, f, continuous(p, f), whole == "optimal", seconds)

    return in_any_order(solve, polyhedron, fit, order)


def _whole_point(
    polyhedron: Polyhedron, fit: Fit, continuous: Answer, optimal: bool, seconds: float
) -> Answer:
    """Return the whole-number point nearest to the projection or to the measured sums."""
    if not np.isfinite(continuous.x).all():
        return continuous
    goal = (fit, FitLoss.squares(fit.weights)) if optimal else _near_point(fit, continuous.x)
    answer = whole_fit(polyhedron, *goal, continuous.x, seconds=seconds)
    proved = continuous.status is Status.SOLVED and continuous.gap == 0.0
    # Near what is the optimum, else near something: then the gap says nothing of the whole problem.
    return answer if proved or optimal else replace(answer, gap=None)


def _near_point(fit: Fit, x: Reals) -> tuple[Fit, FitLoss]:
    """Return a whole-number fit: sums just below the fitted ones, and a squared loss for deviations."""
    wanted = fit.matrix @ x
    floor = np.floor(wanted + 1e-7)
    return Fit(fit.matrix, floor, fit.weights), FitLoss.squares(fit.weights, wanted - floor)


def _polyhedron(n: int, A: Matrix | None, b: ArrayLike, limits: CountLimits, nonnegative: bool) -> Polyhedron:
    if unknown := [name for name in limits if name not in CountLimits.__annotations__]:
        raise SpecError(
            f"project has no argument '{unknown[0]}'",
            needed=f"the arguments of its help, such as {', '.join(CountLimits.__annotations__)}",
            remedy=did_you_mean(unknown[0], CountLimits.__annotations__),
        )
    equal = scipy.sparse.csr_array((0, n)) if A is None else matrix_rows(A, n, "A")
    sums = real_vector(b, "b", equal.shape[0])
    R, least, most = limits.get("R"), limits.get("least"), limits.get("most")
    if R is None and not (least is None and most is None):
        raise SpecError(
            f"{'most' if least is None else 'least'} is given without the matrix R",
            needed="R, a matrix of the rows whose sums they limit",
        )
    ranged = scipy.sparse.csr_array((0, n)) if R is None else matrix_rows(R, n, "R")
    low, high = _limits_of_cells(least, most, ranged.shape[0], ("least", "most"))
    box = limits.get("lower"), limits.get("upper")
    of_one, up_to_one = _limits_of_cells(*box, n, ("lower", "upper"))
    limited = np.flatnonzero(np.isfinite(of_one) | np.isfinite(up_to_one))
    one = scipy.sparse.csr_array(scipy.sparse.eye_array(n))[limited]
    return Polyhedron.of(
        n,
        equal,
        sums,
        scipy.sparse.csr_array(scipy.sparse.vstack([ranged, one])) if limited.size else ranged,
        np.append(low, of_one[limited]),
        np.append(high, up_to_one[limited]),
        nonnegative=nonnegative,
    )


def _limits_of_cells(low: Limit, high: Limit, size: int, names: tuple[str, str]) -> tuple[Reals, Reals]:
    """Return lower and upper bounds `(size,)` of cells, infinite where there are none."""
    ends = [
        real_vector(none if end is None else end, name, size, infinite=True)
        for name, end, none in zip(names, (low, high), (-np.inf, np.inf))
    ]
    beyond = (ends[0] == np.inf).any() or (ends[1] == -np.inf).any()
    if beyond or (ends[0] > ends[1]).any():
        raise SpecError(
            f"no number lies between {' and '.join(names)} for some entry",
            needed="each lower limit at most its upper one, below inf and above -inf",
        )
    return ends[0], ends[1]


def _int64(x: Reals) -> NDArray[np.int64]:
    if (np.abs(x) >= LARGEST_COUNT).any():
        raise SpecError(
            "a reconciled count is 2^62 or more, too large for whole-number results",
            needed="noisy counts, sums and limits well below 2^62",
            remedy="correct those that are too large, or give `whole=False`",
        )
    return np.rint(x).astype(np.int64)


def _refuse_indivisible(polyhedron: Polyhedron) -> None:
    """Refuse an equality that no whole numbers satisfy, by the greatest common divisor of its coefficients.

    A search for whole points proves this only where counts are bounded: `2 x + 2 y = 3` has no end otherwise.
    """
    A, b = polyhedron.equal, polyhedron.sums
    for row in np.flatnonzero(np.diff(A.indptr)):
        a = A.data[A.indptr[row] : A.indptr[row + 1]]
        if (np.abs(a) >= 2**53).any() or (a != np.rint(a)).any():
            continue
        divisor = gcd(*a.astype(np.int64).tolist())
        if abs(b[row] - divisor * np.rint(b[row] / divisor)) > FEASIBLE * max(1.0, abs(b[row])):
            raise InfeasibleError(
                f"row {row} of A has no solution in whole numbers: a number divides all its coefficients but not its sum",
                remedy="correct the row, or give `whole=False`",
            )


def _refuse(polyhedron: Polyhedron, answer: Answer, integer: bool) -> None:
    """Raise the error that a projection has no solution, with the contradictory rules if they are found."""
    conflict = polyhedron.conflict(integer=integer and polyhedron.rows <= MAX_ROWS_SEARCHED_FOR_CONFLICT)
    if conflict:
        m = polyhedron.sums.size
        names = [f"row {r} of A" if r < m else f"limit {r - m}" for r in conflict]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        raise InfeasibleError(
            f"these rules contradict each other: {', '.join(names[:6])}{more}",
            remedy="correct or drop one of them",
        )
    if not np.isfinite(answer.x).all():
        raise ConvergenceError(
            f"no solution was found: {answer.status}",
            remedy=(
                "give more `seconds`, or `whole=False`"
                if integer
                else "drop a rule, or give limits that are further apart"
            ),
        )


MAX_ROWS_SEARCHED_FOR_CONFLICT = 400
"""Rows above which whether they hold together in whole numbers alone is not looked into."""
