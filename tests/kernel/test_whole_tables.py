"""Whole tables near continuous ones: against integer programs, the bound's own linear program, and relabelling."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from tests.parameters import one_in
from trueup.kernel import Status
from trueup.kernel.linear import Fit, FitLoss
from trueup.kernel.linear.whole_fit import whole_fit
from trueup.kernel.margins import margin_of, nearest, residual
from trueup.kernel.margins.whole import (
    completed_tables,
    holding_margins,
    margins_polyhedron,
    nearest_whole_table,
    whole_table,
)
from trueup.kernel.margins.whole_near import Units, priced

TWO = [(0,), (1,)]
THREE = [(0, 1), (0, 2), (1, 2)]
HARD = [
    ((5, 6, 5), THREE),
    ((8, 7, 6), THREE),
    ((3, 4, 3, 4), [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    ((6, 6, 6), [(0,), (1,), (2,)]),
]
EASY = [
    ((5, 6, 4), [(0, 1), (1, 2)]),
    ((5, 6, 4), [(0, 1), (2,)]),
    ((5, 6, 4), [(2,), (0, 1), (0,)]),
    ((5, 6, 4), [(1,), (0,), (0, 1)]),
    ((5, 6, 4), [()]),
    ((3, 4, 3, 4), [(0, 2, 3), (0, 1)]),
]


def table(rng, shape, margins, zeros=0.3):
    """A continuous table that has the margins of a whole one, and these."""
    truth = np.rint(rng.lognormal(0, 1.2, shape) * (rng.random(shape) >= zeros) * 3)
    sums = [margin_of(truth, m) for m in margins]
    return nearest(truth + np.rint(rng.laplace(0, 3.0, shape)), margins, sums).table, sums


def by_program(x, margins, sums, held=None):
    """The least squared distance by branch and bound."""
    floor = np.floor(x.ravel() + 1e-7)
    fit = Fit(scipy.sparse.csr_array(scipy.sparse.eye_array(x.size)), floor, np.ones(x.size))
    polyhedron = margins_polyhedron(x.shape, margins, sums)
    if held is not None:
        polyhedron = holding_margins(polyhedron, held.ravel(), floor)
    answer = whole_fit(polyhedron, fit, FitLoss.squares(fit.weights, x.ravel() - floor), x.ravel())
    assert answer.status == "solved"
    return answer.objective


def relaxation(x, margins, sums):
    """The linear relaxation of the piecewise linear costs, three units a cell around its floor."""
    cells, floor = x.ravel(), np.floor(x.ravel() + 1e-7)
    base = np.maximum(floor - 1, 0)
    steps = np.stack([base + k for k in range(4)])
    costs = np.diff((steps - cells) ** 2, axis=0).ravel()
    equal = margins_polyhedron(x.shape, margins, sums)
    rows = scipy.sparse.hstack([equal.equal] * 3)
    least = scipy.optimize.linprog(
        costs, A_eq=rows, b_eq=equal.sums - equal.equal @ base, bounds=(0, 1), method="highs"
    )
    return float(((base - cells) ** 2).sum() + least.fun)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "margins"), one_in(3, HARD))
def test_prices_and_messages_enclose_the_optimum(shape, margins, rng):
    excess = []
    for _ in range(6):
        x, sums = table(rng, shape, margins)
        found, best = nearest_whole_table(x, margins, sums, 10.0, rng, None), by_program(x, margins, sums)
        assert residual(found.x, margins, sums) == 0
        assert found.x.min() >= 0
        assert found.gap is not None
        bound = priced(x, margins, sums, x >= 0).bound
        assert found.gap == pytest.approx(max(0.0, found.objective - bound) / max(1.0, bound))
        assert bound <= best + 1e-6
        assert found.objective >= best - 1e-6
        excess.append(found.objective / best - 1)
    assert np.mean(excess) < 0.05  # cube moves and growing integer programs, as they were: 0.1 and more


@pytest.mark.parametrize(("shape", "margins"), HARD)
def test_prices_reach_the_bound_of_the_linear_relaxation(shape, margins, rng):
    for _ in range(4):
        x, sums = table(rng, shape, margins)
        linear, ours = relaxation(x, margins, sums), priced(x, margins, sums, x >= 0).bound
        assert 0.98 * linear <= ours <= linear + 1e-6


@pytest.mark.thorough
def test_messages_are_exact_on_two_margins(rng):
    for _ in range(10):
        x = rng.uniform(0, 3, (6, 8))  # generic: a unique optimum
        x, sums = _with_whole_margins(x)
        may = np.ones(x.shape, bool)
        units = Units.near(priced(x, TWO, sums, may), TWO, sums, may)
        taken = units.chosen(rng)
        assert taken is not None
        distance = ((units.with_units(taken) - x) ** 2).sum()
        assert distance == pytest.approx(by_program(x, TWO, sums), abs=0.1)


def _with_whole_margins(x):
    rows = np.rint(x.sum(axis=1))
    columns = np.rint(x.sum(axis=0))
    columns[0] += rows.sum() - columns.sum()
    return nearest(x, TWO, [rows, columns]).table, [rows, columns]


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "margins"), EASY)
def test_one_or_two_margins_are_solved_exactly_on_any_number_of_axes(shape, margins, rng):
    for seeded in (None, rng):
        x, sums = table(rng, shape, margins)
        whole = whole_table(x, margins, sums, rng=seeded)
        assert (whole.status, whole.residual) == (Status.SOLVED, 0)
        assert np.abs(whole.x - x).max() < 1
        least = by_program(x, margins, sums)
        assert least - 1e-4 <= whole.objective <= (1 + whole.gap) * max(least, 1) + 1e-4
        assert whole.gap <= 0.1


@pytest.mark.parametrize("small", [True, False])
def test_structural_zeros_stay(small, rng):
    shape = (6, 5, 6) if small else (10, 11, 10)
    truth = rng.poisson(1.5, shape) * (rng.random(shape) < 0.7)
    may = (truth > 0) | (rng.random(shape) < 0.3)
    sums = [margin_of(truth, m) for m in THREE]
    noisy = truth + rng.integers(-4, 5, shape)
    x = nearest(np.where(may, noisy, 0.0), THREE, sums, variances=may.astype(float)).table
    found = (
        nearest_whole_table(x, THREE, sums, 5.0, rng, may)
        if small
        else whole_table(x, THREE, sums, rng=rng, open_cells=may)
    )
    assert found.status == "solved"
    assert residual(found.x, THREE, sums) == 0
    assert not found.x[~may].any()
    if small:
        assert found.objective >= by_program(x, THREE, sums, held=~may) - 1e-6
        exact = whole_table(x, THREE, sums, open_cells=may)
        assert not exact.x[~may].any()
        assert exact.objective == pytest.approx(by_program(x, THREE, sums, held=~may))


def test_a_table_that_may_be_negative_is_rounded_as_one_far_from_zero(rng):
    x, sums = table(rng, (11, 10, 10), THREE, zeros=0.0)
    lowered = [b - 20 * (x.size // b.size) for b in sums]  # most cells are negative
    found = whole_table(x - 20, THREE, lowered, rng=rng)
    assert found.residual == 0
    assert found.x.min() < 0
    assert found.gap is not None
    assert found.gap < 0.1


def test_an_integer_program_completes_what_messages_leave(rng):
    x, sums = table(rng, (6, 6, 6), [(0,), (1,), (2,)])
    margins, may = [(0,), (1,), (2,)], np.ones(x.shape, bool)
    units = Units.near(priced(x, margins, sums, may), margins, sums, may)
    (completed,) = completed_tables(units, margins, sums, 10.0)
    assert residual(completed, margins, sums) == 0
    assert ((completed - x) ** 2).sum() <= 1.05 * by_program(x, margins, sums)


def test_the_seed_alone_decides(rng):
    x, sums = table(rng, (12, 11, 10), THREE)
    one, two = (whole_table(x, THREE, sums, rng=np.random.default_rng(5)).x for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_margins_that_no_table_has_are_a_status(rng):
    x = rng.uniform(0.3, 0.7, (11, 11, 11))
    sums = [np.rint(margin_of(x, m)) for m in THREE]
    assert whole_table(x, THREE, sums, seconds=1.0, rng=rng).status is Status.UNSOLVED


def test_a_large_table_given_its_total_takes_no_quadratic_time(rng):
    x = rng.gamma(0.5, 2, 300_000)
    whole = whole_table(x, [()], [np.array(np.rint(x.sum()))], rng=rng)
    assert whole.residual == 0
    assert np.abs(whole.x - x).max() < 1
