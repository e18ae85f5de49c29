"""Tables with fixed margins: against dense algebra, a general solver, enumeration, and the conditions of optimality."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linprog, nnls

from trueup.kernel.margins import equality, inconsistent, margin_of, nearest, residual
from trueup.kernel.margins.whole import margins_polyhedron, whole_table
from trueup.kernel.settling.transport import round_children

TWO = [(0,), (1,)]
THREE = [(0, 1), (0, 2), (1, 2)]
MIXED = [(0, 1), (2,)]


def table(rng, shape, scale=3.0):
    """True counts, many of them zero, and a noisy version."""
    truth = np.rint(rng.lognormal(0, 1.2, shape) * (rng.random(shape) < 0.7) * 3)
    return truth, truth + np.rint(rng.laplace(0, scale, shape))


def sums_of(truth, margins):
    return [margin_of(truth, m) for m in margins]


def by_nnls(y, margins, sums, variances):
    """The slow twin: nonnegative least squares with the margins as enormously weighted rows, then polished.

    The active set of nnls is exact; with it the equality problem is solved by dense algebra.
    """
    p = margins_polyhedron(y.shape, margins, sums)
    a, w = p.equal.toarray(), 1 / np.sqrt(variances.ravel())
    big = 1e5
    x = nnls(np.vstack([np.diag(w), big * a]), np.concatenate([w * y.ravel(), big * p.sums]), maxiter=10_000)[
        0
    ]
    free = x > 1e-7
    v = variances.ravel()[free]
    gap = p.sums - a[:, free] @ y.ravel()[free]
    x[~free] = 0
    x[free] = y.ravel()[free] + v * (
        a[:, free].T @ np.linalg.lstsq(a[:, free] * v @ a[:, free].T, gap, rcond=1e-12)[0]
    )
    return x.reshape(y.shape)


@pytest.mark.parametrize(
    ("shape", "margins"), [((4, 6), TWO), ((3, 4, 5), THREE), ((3, 4, 2), MIXED), ((7,), [()])]
)
def test_equality_is_the_dense_projection(rng, shape, margins):
    truth, y = table(rng, shape)
    sums = sums_of(truth, margins)
    p = margins_polyhedron(shape, margins, sums)
    a = p.equal.toarray()
    dense = y.ravel() + np.linalg.pinv(a) @ (p.sums - a @ y.ravel())
    np.testing.assert_allclose(equality(y, margins, sums).ravel(), dense, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("shape", "margins"), [((4, 6), TWO), ((3, 4, 3), THREE), ((3, 4, 2), MIXED), ((9,), [()])]
)
def test_nonnegative_equals_the_slow_twin(rng, shape, margins, weighted):
    for _ in range(5):
        truth, y = table(rng, shape)
        v = rng.uniform(0.3, 3, shape) if weighted else np.ones(shape)
        sums = sums_of(truth, margins)
        ours = nearest(y, margins, sums, variances=v if weighted else None)
        assert ours.status == "solved"
        assert ours.table.min() >= 0
        np.testing.assert_allclose(ours.table, by_nnls(y, margins, sums, v), atol=1e-6)


@pytest.mark.parametrize(("shape", "margins"), [((30, 20), TWO), ((6, 7, 5), THREE)])
def test_optimality_conditions_on_larger_tables(rng, shape, margins):
    """x - y is a sum of margin multipliers where x > 0, and at least that where x = 0."""
    truth, y = table(rng, shape)
    x = nearest(y, margins, sums_of(truth, margins)).table
    lifted = margins_polyhedron(shape, margins, sums_of(truth, margins)).equal.toarray().T
    free = x.ravel() > 1e-9
    move = (x - y).ravel()
    price = np.linalg.lstsq(lifted[free], move[free], rcond=None)[0]
    np.testing.assert_allclose(lifted[free] @ price, move[free], atol=1e-7)


def test_weighted_equality_and_cells_of_no_variance(rng):
    truth, y = table(rng, (4, 5))
    v = rng.uniform(0.5, 2, (4, 5))
    v[0, 0], y[0, 0] = 0.0, truth[0, 0]
    x = nearest(y, TWO, sums_of(truth, TWO), variances=v, nonnegative=False)
    assert x.status == "solved"
    assert x.table[0, 0] == truth[0, 0]


def test_margins_that_differ_in_their_totals_are_found():
    assert inconsistent(TWO, [np.array([3.0, 4.0]), np.array([5.0, 2.0])]) is None
    assert inconsistent(TWO, [np.array([3.0, 4.0]), np.array([5.0, 3.0])]) == (0, 1)


def test_margins_that_no_nonnegative_table_has_are_not_called_solved():
    sums = [np.array([[1.0, 0], [0, 1]]), np.array([[0.0, 1], [1, 0]]), np.array([[1.0, 0], [0, 1]])]
    assert inconsistent(THREE, sums) is None
    assert nearest(np.zeros((2, 2, 2)), THREE, sums).status != "solved"
    p = margins_polyhedron((2, 2, 2), THREE, sums)
    rows = p.conflict()
    assert rows
    assert not p.of_rows(rows).feasible()
    assert all(p.of_rows([r for r in rows if r != row]).feasible() for row in rows)


@pytest.mark.parametrize("shape", [(3, 4), (5, 5), (1, 6), (6, 1)])
def test_two_way_rounding_is_the_least_distance_by_linear_programming(rng, shape):
    for _ in range(20):
        truth, y = table(rng, shape)
        sums = sums_of(truth, TWO)
        x = nearest(y, TWO, sums).table
        whole = whole_table(x, TWO, sums)
        assert whole.status == "solved"
        assert whole.residual == 0
        assert np.abs(whole.x - x).max() < 1
        floor = np.floor(x + 1e-7)
        a = margins_polyhedron(shape, TWO, sums).equal
        right = np.concatenate(sums) - a @ floor.ravel()
        up = (x > floor + 1e-7).ravel()
        cost = (1 - 2 * (x - floor)).ravel()
        oracle = linprog(cost, A_eq=a, b_eq=right, bounds=np.c_[np.zeros(up.size), up])
        assert cost @ (whole.x - floor).ravel() == pytest.approx(oracle.fun, abs=1e-6)


@pytest.mark.parametrize("shape", [(4, 60), (60, 4), (25, 25)])
def test_wide_tables_are_rounded_at_least_distance_with_proof(rng, shape):
    """Tables with half of their cells whole, and some that must not go up."""
    for _ in range(5):
        x = rng.gamma(0.5, 3.0, shape)
        allowed = rng.random(shape) < 0.9
        x = np.where((rng.random(shape) < 0.5) | ~allowed, np.floor(x), x)
        up = (rng.random(shape) < x % 1).astype(int)
        rows, columns = (np.floor(x) + up).sum(axis=1), (np.floor(x) + up).sum(axis=0)
        excess = np.zeros(1)
        sides = {"row_sums": rows[:, None], "column_sums": columns[None]}
        whole, missing = round_children(x, np.array([0, shape[0]]), **sides, allowed=allowed, excess=excess)
        assert not missing.any()
        np.testing.assert_array_equal(whole.sum(axis=1), rows)
        np.testing.assert_array_equal(whole.sum(axis=0), columns)
        matrix = scipy.sparse.vstack(
            [
                scipy.sparse.kron(scipy.sparse.eye_array(shape[0]), np.ones((1, shape[1]))),
                scipy.sparse.kron(np.ones((1, shape[0])), scipy.sparse.eye_array(shape[1])),
            ]
        )
        right = np.concatenate([rows, columns]) - matrix @ np.floor(x).ravel()
        open_ = (x % 1 > 0).ravel()
        oracle = linprog(
            (1 - 2 * (x % 1)).ravel(), A_eq=matrix, b_eq=right, bounds=np.c_[np.zeros(x.size), open_]
        )
        least = ((np.floor(x) - x) ** 2).sum() + oracle.fun
        assert ((whole - x) ** 2).sum() == pytest.approx(least, abs=1e-3)
        assert -1e-3 <= excess[0] < 0.5 * least


def test_sums_that_no_whole_table_has_are_counted_as_missing():
    x = np.array([[0.5, 0.5, 1.0], [0.5, 0.5, 0.0]])
    sides = {"row_sums": np.array([[5], [0]]), "column_sums": np.array([[1, 1, 1]])}
    _, missing = round_children(x, np.array([0, 2]), **sides)
    assert missing[0] > 0


def test_rounding_with_one_free_side_and_families(rng):
    x = rng.uniform(0, 3, (4, 6))
    family = np.array([0, 0, 1, 1, 1, 0])
    rows = np.stack([x[:, family == g].sum(axis=1) for g in (0, 1)], axis=1)
    rows = np.floor(rows).astype(int)
    whole, missing = round_children(x, np.array([0, 4]), family=family, row_sums=rows)
    assert not missing.any()
    np.testing.assert_array_equal(np.stack([whole[:, family == g].sum(axis=1) for g in (0, 1)], axis=1), rows)


def test_three_way_whole_table_is_the_least_distance_by_enumeration(rng):
    for _ in range(5):
        truth, y = table(rng, (2, 2, 3), 1.5)
        sums = sums_of(truth, THREE)
        x = nearest(y, THREE, sums).table
        whole = whole_table(x, THREE, sums)
        assert residual(whole.x, THREE, sums) == 0
        best = min(((t - x) ** 2).sum() for t in _tables(np.floor(x + 1e-7).astype(int), sums))
        assert whole.objective == pytest.approx(best, abs=1e-6)


def _tables(floor, sums):
    """Every table with the given margins within -1 .. +2 of the floors, built from its two free cells."""
    for first, second in product(range(-1, 3), repeat=2):
        t = np.zeros((2, 2, 3), int)
        t[0, 0, 0], t[0, 0, 1] = floor[0, 0, 0] + first, floor[0, 0, 1] + second
        t[0, 0, 2] = sums[0][0, 0] - t[0, 0, :2].sum()
        t[0, 1] = sums[1][0] - t[0, 0]
        t[1] = sums[2] - t[0]
        if (t >= 0).all() and (np.abs(margin_of(t, (0, 1)) - sums[0]) == 0).all():
            yield t
