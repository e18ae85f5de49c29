"""Whole-number fits under general linear constraints, with a lower bound on the loss.

    minimise  sum_i f_i(M_i x - y_i)   over whole x,   lower <= A x <= upper,   each f_i convex.

At whole deviations a convex loss is the largest of its secants, the lines through its values at k and k + 1. A model
with some of them lies below the loss everywhere and equals it at their ends. So branch and bound over a model (HiGHS)
proves a lower bound for the problem itself, wherever its optimum lies, and a point at which model and loss agree is
the optimum. Where they differ, the secants on both sides of that deviation are added (Kelley 1960, in whole numbers).
Three secants around a continuous solution are nearly always enough.

Counts are written as a whole number near the continuous solution plus a change: the solver's variables are small, whatever
the size of the counts, and its absolute tolerances mean the same for ten persons and for a billion.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel import Status
from trueup.kernel.linear import Fit, FitLoss, SecantModel
from trueup.kernel.linear.absolute_deviations import absolute_optima
from trueup.kernel.linear.polyhedron import Polyhedron, between, box
from trueup.kernel.linear.programs import Answer, Solve, near_least_squares, relative_gap, status_of

ROUNDS = 30  # of adding secants
MAX_TIE_SECONDS = 10.0  # seconds at most for the least squares among points that are equally near


def whole_fit(
    polyhedron: Polyhedron,
    fit: Fit,
    loss: FitLoss,
    centre: np.ndarray,
    *,
    limit: tuple[FitLoss, float] | None = None,
    seconds: float = 60.0,
) -> Answer:
    """Minimise a convex loss over the whole-number points of a polyhedron.

    Parameters
    ----------
    polyhedron : constraints
    fit : measured sums; its values must be whole numbers
    loss : the convex loss of the deviations `M x - y`
    centre : (n,) a continuous solution; it decides the time taken, not the result
    limit : another loss, whose total must not exceed a value
    seconds : time limit of the branch and bound

    Returns
    -------
    Answer
        `gap` is the relative distance from a lower bound that was proved for the whole problem; 0 where what is left
        is within the tolerances of branch and bound (1e-6). `UNSOLVED` with a point that is not finite if
        there was no whole-number point in the time allowed, or none at all: which of the two, nothing here proves.

    Examples
    --------
    >>> p = Polyhedron.of(3, [[1, 1, 1]], [4.0])
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(3)), np.array([1.0, 1.0, 1.0]), np.ones(3))
    >>> whole_fit(p, fit, FitLoss.squares(np.ones(3)), np.full(3, 4 / 3)).objective
    1.0
    """
    until = monotonic() + seconds
    base = np.floor(centre + 1e-7)
    base = np.maximum(base, 0.0) if polyhedron.nonnegative else base
    offset = fit.matrix @ base - fit.values
    around = fit.matrix @ centre - fit.values
    models = [SecantModel.around(f, around) for f in (loss, *([limit[0]] if limit else ()))]
    best, bound, none = np.full(base.size, np.nan), -np.inf, np.inf
    total = none
    for _ in range(ROUNDS):
        change, proved, ended = _solve_model(
            polyhedron, fit, models, base, offset, limit, until - monotonic()
        )
        bound = max(bound, proved)
        if change is None:
            break
        deviations = offset + fit.matrix @ change
        finer = [m.refined(deviations) for m in models]
        within = limit is None or limit[0].total(deviations) <= _slack(limit[1])
        if within and (cost := loss.total(deviations)) < total:
            best, total = base + change, cost
        if not ended or all(m is None for m in finer) or relative_gap(total, bound) == 0.0:
            break
        models = [new or old for new, old in zip(finer, models, strict=True)]
    if total == none:
        return Answer(best, Status.UNSOLVED, np.inf, np.inf, None)
    residual, gap = polyhedron.residual(best), relative_gap(total, bound)
    stopped = not ended or monotonic() > until
    status = Status.UNSOLVED if stopped and gap != 0.0 else status_of(residual, polyhedron)
    return Answer(best, status, residual, total, gap)


def _slack(most: float) -> float:
    return most + 1e-6 * max(1.0, abs(most))


def _solve_model(polyhedron, fit, models, base, offset, limit, seconds):
    """Return the best change (n,) under the models, its bound, and True if the search was completed."""
    if seconds <= 0:
        return None, -np.inf, False
    n, q = base.size, fit.values.size
    pieces = [m.pieces() for m in models]
    columns = [p.columns() for p in pieces]
    widths = [row.size for row, *_ in columns]
    low, high = polyhedron.bounds
    held = polyhedron.matrix @ base
    total = sum(widths)
    rows = []
    if polyhedron.rows:
        empty = scipy.sparse.csr_array((polyhedron.rows, total))
        rows.append(between(scipy.sparse.hstack([polyhedron.matrix, empty]), low - held, high - held))
    for i, (p, (row, sign, _, _)) in enumerate(zip(pieces, columns, strict=True)):
        spread = scipy.sparse.csr_array((sign, (row, np.arange(row.size))), shape=(q, row.size))
        parts = [scipy.sparse.csr_array((q, w)) if j != i else -spread for j, w in enumerate(widths)]
        rows.append(between(scipy.sparse.hstack([fit.matrix, *parts]), p.anchor - offset, p.anchor - offset))
    costs = [cost for _, _, cost, _ in columns]
    if limit is not None:
        row = np.concatenate([np.zeros(n + widths[0]), costs[1]])
        rows.append(between(row[None], -np.inf, _slack(limit[1]) - models[1].least - pieces[1].height.sum()))
    lowest = np.concatenate([-base if polyhedron.nonnegative else np.full(n, -np.inf), np.zeros(total)])
    highest = np.concatenate([np.full(n, np.inf), *(length for *_, length in columns)])
    answer = scipy.optimize.milp(
        np.concatenate([np.zeros(n), costs[0], np.zeros(total - widths[0])]),
        integrality=np.concatenate([np.ones(n), np.zeros(total)]),
        bounds=box(lowest, highest),
        constraints=rows,
        options={"mip_rel_gap": 1e-9, "time_limit": seconds},
    )
    known = answer.mip_dual_bound
    bound = (
        -np.inf
        if known is None or not np.isfinite(known)
        else float(known + pieces[0].height.sum() + models[0].least)
    )
    if answer.x is None:
        return None, bound, answer.status != 1
    return np.rint(answer.x[:n]), bound, answer.status == 0


def in_any_order(solve: Solve, polyhedron: Polyhedron, fit: Fit, rng: np.random.Generator) -> Answer:
    """Solve a program with cells and rows in random order; return the result in the original order.

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
    """Return a whole-number point with the least weighted absolute deviations and then the least squares.

    The projected discrete Laplace mechanism of Dharangutte, Gao, Gong & Yu: noise first, then the L1-nearest point
    that obeys the constraints, in whole numbers. L1 leaves many optima; the least squares pick the one that spreads a
    gap as evenly as it can be spread. That takes a second branch and bound, which has `MAX_TIE_SECONDS` seconds of those
    left: where it does not end in time the answer's `even` is false.

    Examples
    --------
    >>> p = Polyhedron.of(3, [[1, 1, 1]], [6.0], nonnegative=False)
    >>> fit = Fit(scipy.sparse.csr_array(np.eye(3)), np.array([1.0, 0.0, 2.0]), np.ones(3))
    >>> whole_nearest(p, fit).x
    array([2., 1., 3.])
    """
    fit = fit.relative()
    vertex, optima = absolute_optima(polyhedron, fit)
    if not np.isfinite(vertex.x).all():
        return vertex
    absolute, square = FitLoss.absolutes(fit.weights), FitLoss.squares(fit.weights)
    until = monotonic() + seconds
    first = replace(whole_fit(polyhedron, fit, absolute, vertex.x, seconds=seconds), even=False)
    if first.status is not Status.SOLVED:
        return first
    left = min(MAX_TIE_SECONDS, until - monotonic())
    tight = relative_gap(first.objective, vertex.objective) == 0.0
    if tight:  # then all whole optima are among the optima in reals
        even = whole_fit(optima, fit, square, near_least_squares(optima, fit, first.x), seconds=left)
    else:
        limit = (absolute, first.objective)
        even = whole_fit(polyhedron, fit, square, first.x, limit=limit, seconds=left)
    total = absolute.total(fit.matrix @ even.x - fit.values)
    if even.status is not Status.SOLVED or total > _slack(first.objective):
        return first
    return replace(even, objective=first.objective, gap=first.gap, residual=polyhedron.residual(even.x))
