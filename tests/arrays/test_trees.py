"""Trees and tables beside the same programs written as a matrix; counts that add up as they are drawn; the region's ends."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.arrays import (
    add_up,
    bias_bound,
    discrete_laplace,
    project,
    project_table,
    reconcile_tree,
    region,
    sample,
)
from trueup.arrays.trees import level_order
from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.theory import nonnegative_bias_bound


def random_tree(rng, n):
    """Parents in no order."""
    name = rng.permutation(n)
    parents = np.full(n, -1)
    for v in range(1, n):
        parents[name[v]] = name[rng.integers(max(0, v - 4), v)]
    return parents


def as_rows(parents):
    """One row for each sum: a node less its parts."""
    inner = np.unique(parents[parents >= 0])
    rows = np.zeros((inner.size, parents.size))
    rows[np.arange(inner.size), inner] = 1
    for child, parent in enumerate(parents):
        if parent >= 0:
            rows[np.searchsorted(inner, parent), child] = -1
    return rows


@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_tree_is_the_projection_on_its_rows(rng, nonnegative):
    for _ in range(20):
        parents = random_tree(rng, int(rng.integers(2, 30)))
        rows, n = as_rows(parents), parents.size
        y, variances = rng.normal(3, 6, n), rng.uniform(0.5, 3, n)
        expected = project(y, rows, np.zeros(len(rows)), nonnegative=nonnegative, weights=1 / variances)
        found = reconcile_tree(y, parents, variances, nonnegative=nonnegative)
        np.testing.assert_allclose(found, expected.x, atol=1e-8)
        whole = reconcile_tree(y, parents, variances, nonnegative=nonnegative, whole=True)
        assert whole.dtype == np.int64
        assert (rows @ whole == 0).all()
        assert np.abs(whole - found).max() < 1 + 1e-8


def test_exact_and_unmeasured_nodes(rng):
    found = reconcile_tree([10, 99, -3, 9], [-1, 0, 0, 0], [0, np.inf, 1, 1], nonnegative=True)
    assert found[0] == pytest.approx(10)
    np.testing.assert_allclose(found[1:], [1, 0, 9], atol=1e-6)
    with pytest.raises(SpecError, match="variances have shape"):
        reconcile_tree([1, 2], [-1, 0], [1, 2, 3])
    with pytest.raises(SpecError, match="determine"):
        reconcile_tree([10, 1, 2, 3], [-1, 0, 0, 0], [1, np.inf, np.inf, 1])
    with pytest.raises(InfeasibleError):
        reconcile_tree([10, 1, 2], [-1, 0, 0], 0)
    with pytest.raises(InfeasibleError):
        reconcile_tree([-10, 1, 2], [-1, 0, 0], [0, 1, 1], nonnegative=True)


@pytest.mark.parametrize("parents", [[0, 0], [-1, -1], [-1, 2, 1], [-1, 5], [-1.0, 0.0], [[-1]]])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(SpecError, match="not form a tree"):
        level_order(parents)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_table_is_the_projection_on_its_margins(rng, nonnegative):
    x = rng.integers(0, 6, (3, 4))
    y = x + rng.normal(size=x.shape) * 3
    rows = np.vstack([np.kron(np.eye(3), np.ones(4)), np.kron(np.ones(3), np.eye(4))])
    sums = [x.sum(axis=1), x.sum(axis=0)]
    found = project_table(y, [(0,), (1,)], sums, nonnegative=nonnegative)
    expected = project(y.ravel(), rows, rows @ x.ravel(), nonnegative=nonnegative)
    np.testing.assert_allclose(found.x.ravel(), expected.x, atol=1e-7)
    whole = project_table(y, [(0,), (1,)], sums, nonnegative=nonnegative, whole=True)
    assert (whole.x.sum(axis=1) == sums[0]).all()
    with pytest.raises(SpecError, match="shape"):
        project_table(y, [(0,)], [[1, 2]])


def test_counts_add_up_as_they_are_drawn_and_are_unbiased(rng):
    kept = add_up([60, 10, 20, 30], [-1, 0, 0, 0], epsilon=2)
    assert kept.values[0] == kept.values[1:].sum()
    noise = sample(kept.noise, 200_000, rng)
    assert np.abs(noise.mean(axis=0)).max() < 6 * noise.std() / np.sqrt(len(noise))
    v = np.arange(-40, 41)
    each = np.exp(-np.abs(v).astype(float))
    two = np.convolve(each, each)
    rest = np.convolve(two, each * 1.0)  # of a part: two other parts and the total make up for it
    at = np.arange(-120, 121)
    mass = each * rest[np.searchsorted(at, v)]
    variance = (mass / mass.sum()) @ v**2
    assert noise[:, 1].var() == pytest.approx(variance, rel=0.02)
    with pytest.raises(DataError, match="add up"):
        add_up([61, 10, 20, 30], [-1, 0, 0, 0], epsilon=2)


def test_the_region_of_one_total_is_that_of_the_paper():
    x = np.array([348.0] + [24_000.0] * 32)
    found = region(x, np.ones((1, 33)))
    assert found.farthest == pytest.approx(x.sum() - 348)
    assert found.margin == pytest.approx(348 / np.sqrt(1 - 1 / 33))
    law = discrete_laplace("1/5")
    assert bias_bound(law, x, np.ones((1, 33))) <= nonnegative_bias_bound(law, 33, 348, x.sum() - 348)
    assert region(x[:2], [[1, -1]]).farthest == np.inf
    assert region([3, 4], np.eye(2)) == (0.0, np.inf)


def test_the_bias_stays_below_its_bound_and_the_bound_is_not_trivial(rng):
    x, rows = np.array([12, 14, 20, 30.0]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    law = discrete_laplace(1)
    bound = bias_bound(law, x, rows)
    assert 0 < bound < 1
    runs = np.stack(
        [project(x + sample(law, 4, rng), rows, rows @ x, nonnegative=True).x for _ in range(400)]
    )
    assert np.abs(runs.mean(axis=0) - x).max() < bound + 6 * runs.std() / 20


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: reconcile_tree([3, 2], [-1, 0, 0], [1, 1, 1]), SpecError, "values have shape"),
        (lambda: reconcile_tree(["x", 2, 1], [-1, 0, 0], [1, 1, 1]), SpecError, "not numbers"),
        (
            lambda: reconcile_tree([3.5, 4, 2], [-1, 0, 0], [0, 1, 1], whole=True),
            InfeasibleError,
            "not whole",
        ),
        (lambda: project_table([[3, 4], [2, 1]], [0], [[2, 3]]), SpecError, "not a tuple of axes"),  # pyright: ignore[reportArgumentType]
        (lambda: project_table([[3, 4], [2, 1]], [(0, 0)], [[[2, 3], [2, 3]]]), SpecError, "not in order"),
        (lambda: project_table([[3, 4]], [(1, 0)], [[[2], [3]]]), SpecError, "not in order"),
        (lambda: project_table([[3, 4]], [], []), SpecError, "no margin"),
        (lambda: project_table(np.zeros((0, 2)), [(1,)], [[0, 0]]), SpecError, "no cell"),
        (lambda: project_table([["a"]], [()], [0]), SpecError, "not a table of numbers"),
        (lambda: project_table([[1, 2], [3]], [()], [0]), SpecError, "not a table of numbers"),
        (lambda: project_table([[np.nan, 4]], [()], [3]), SpecError, "not all finite"),
        (lambda: project_table([[3, 4]], [(1,)], [[np.nan, 3]]), SpecError, "not all finite"),
        (lambda: project_table([[3, 4], [2, 1]], [()], [3], variances=[1, 1]), SpecError, "variances have"),
        (lambda: project_table(np.eye(2), [(0,), (1,)], [[2, 3], [2, 4]]), InfeasibleError, "different sums"),
        (lambda: project_table(np.eye(2), [(0,)], [[-2, 3]], nonnegative=True), InfeasibleError, "negative"),
        (lambda: project_table(np.eye(2), [(0,)], [[2.5, 3]], whole=True), InfeasibleError, "not whole"),
    ],
)
def test_trees_and_tables_that_cannot_be_are_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()
