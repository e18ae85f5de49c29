"""Nonnegative and whole histograms on a tree: each stage against a general solver, all sums exact."""

from __future__ import annotations

import numpy as np
import piqp
import pytest

from tests.kernel.histograms import SPINE, case, marginals
from tests.reference import nearest
from tests.reference.nearest import covariances
from trueup.kernel.histogram import identity, marginalise, summed
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.structural_zeros import close, restrict
from trueup.kernel.settling.descend import Settling, node_keys, settle
from trueup.kernel.settling.nearest import Metric, nearest_nonnegative


def by_general_solver(dense, tables, children, held, most=np.inf):
    """min sum (x - t)' V^-1 (x - t), sums over each parent's children as in `tables`, most >= x >= 0 (= 0 if held)."""
    rows, n = tables.shape
    hessian = np.zeros((rows * n, rows * n))
    for i, v in enumerate(dense):
        hessian[i * n : (i + 1) * n, i * n : (i + 1) * n] = np.linalg.inv(v)
    parent = np.repeat(np.arange(children.size), children)
    equal = np.kron(np.equal.outer(np.arange(children.size), parent).astype(float), np.eye(n))
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-11
    ceiling = np.where(held, 0.0, most).ravel()
    right = equal @ tables.ravel()
    solver.setup(hessian, -hessian @ tables.ravel(), equal, right, x_l=np.zeros(rows * n), x_u=ceiling)
    solver.solve()
    return solver.result.x.reshape(rows, n)


def random_variances(rng, domain, rows=8):
    """A covariance (rows, D, D) for every component."""
    parts = []
    for component in domain.components:
        half = rng.normal(size=(rows, component.dense, component.dense))
        parts.append(half @ half.swapaxes(1, 2) + 0.2 * np.eye(component.dense))
    return tuple(parts)


@pytest.mark.parametrize("zero_share", [0.0, 0.2])
def test_projection_equals_a_general_solver(rng, zero_share):
    domain = Domain.of(list(marginals().values()))
    children = np.array([3, 1, 4])
    parts = random_variances(rng, domain)
    dense = covariances(domain, parts, 8)
    tables = rng.normal(1, 2, (8, 24))
    held = rng.random((8, 24)) < zero_share
    held[np.append(0, np.cumsum(children))[:-1]] = False  # every cell has a child that may hold it
    total = np.add.reduceat(tables, [0, 3, 4], axis=0)
    metric = Metric(domain, parts, np.array([0, 3, 4]), 8)
    tables = metric.tie(tables, np.maximum(total, 0.5))
    ours, residual, _ = nearest_nonnegative(metric, tables, held if zero_share else None, 1e-9)
    np.testing.assert_allclose(ours, by_general_solver(dense, tables, children, held), atol=1e-6)
    assert residual.max() <= 1e-9
    np.testing.assert_allclose(np.add.reduceat(ours, [0, 3, 4], axis=0), np.maximum(total, 0.5), atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("tied", [True, False])
def test_projection_within_upper_bounds_equals_a_general_solver_and_its_slow_twin(rng, tied):
    domain = Domain.of(list(marginals().values()))
    parts = random_variances(rng, domain)
    dense = covariances(domain, parts, 8)
    metric = Metric(domain, parts, np.array([0, 3, 4]), 8, tied)
    tables = metric.tie(rng.normal(1, 2, (8, 24)), rng.uniform(1, 3, (3, 24)))
    most = np.where(rng.random((8, 24)) < 0.6, rng.uniform(0.2, 1.5, (8, 24)), np.inf)
    most[metric.first] = np.inf  # every cell has a child that may hold it
    held = rng.random((8, 24)) < 0.1
    held[metric.first] = False
    ours, residual, _ = nearest_nonnegative(metric, tables, held, 1e-9, most)
    assert residual.max() <= 1e-9
    assert (np.abs(ours - most) < 1e-6).sum() > 5
    assert (ours <= most + 1e-6).all()
    for rows in (slice(0, 3), slice(3, 4), slice(4, 8)):
        slow = nearest.nearest_nonnegative(dense[rows], tables[rows], held[rows], tied, most=most[rows])
        np.testing.assert_allclose(ours[rows], slow, atol=1e-6)
    if tied:
        by_solver = by_general_solver(dense, tables, metric.counts, held, most)
        np.testing.assert_allclose(ours, by_solver, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("tied", [True, False])
def test_projection_equals_its_slow_twin_and_knows_no_neighbours(rng, tied):
    domain = Domain.of([marginals()["groups"], marginals()["detailed"]])
    parts, first = random_variances(rng, domain), np.array([0, 3, 4])
    metric = Metric(domain, parts, first, 8, tied)
    tables = metric.tie(rng.normal(1, 2, (8, 24)), rng.uniform(1, 5, (3, 24)))
    held = rng.random((8, 24)) < 0.1
    held[first] = False
    ours, _, _ = nearest_nonnegative(metric, tables, held, 1e-9)
    dense = covariances(domain, parts, 8)
    for p, rows in enumerate((slice(0, 3), slice(3, 4), slice(4, 8))):
        slow = nearest.nearest_nonnegative(dense[rows], tables[rows], held[rows], tied)
        np.testing.assert_allclose(ours[rows], slow, atol=1e-6)
        alone, index = metric.of_parents(np.array([p]))
        np.testing.assert_array_equal(
            nearest_nonnegative(alone, tables[index], held[index], 1e-9)[0], ours[rows]
        )


CHAIN = ("total", "groups", "groups-second", "detailed")


def settled(rng, exact=(), zeros=None, noise=1.0):
    every = marginals()
    truth, plan, answers = case(rng, every, exact)
    if zeros is not None:
        truth = [np.where(z, 0, t) for z, t in zip(zeros, truth, strict=True)]
    for level in range(SPINE.depth - 2, -1, -1):
        truth[level][SPINE.inner[level]] = SPINE.sum_children(level, truth[level + 1])
    answers = [
        [marginalise(t, m) + (rng.normal(0, noise * v**0.5, y.shape) if v else 0) for (m, v), y in zip(p, a)]
        for t, p, a in zip(truth, plan, answers, strict=True)
    ]
    tree = HistogramLeastSquares.prepare(Domain.of(list(every.values())), SPINE, plan)
    fit = tree.fit(answers)
    if zeros is not None:
        fit, _ = restrict(tree, fit, zeros)
    chains = [[every[k] for k in CHAIN]] * SPINE.depth
    return truth, fit, settle(tree, fit.subtree, chains, zeros=zeros), tree, chains


def check_tree(values):
    for level in range(SPINE.depth - 1):
        sums = SPINE.sum_children(level, values[level + 1])
        np.testing.assert_array_equal(sums, values[level][SPINE.inner[level]])
    for x in values:
        assert x.dtype == np.int64
        assert (x >= 0).all()


@pytest.mark.parametrize("noise", [1.0, 6.0])
def test_whole_nonnegative_additive(rng, noise):
    _, _, result, *_ = settled(rng, noise=noise)
    check_tree(result.values)
    assert result.misplaced == result.relaxed == 0
    assert result.residual <= 1e-6


def test_invariants_are_kept(rng):
    exact = ((0, "total"), (1, "total"), (1, "groups"))
    truth, _, result, *_ = settled(rng, exact, noise=4.0)
    check_tree(result.values)
    np.testing.assert_array_equal(result.values[0].sum(), truth[0].sum())
    groups = marginals()["groups"]
    np.testing.assert_array_equal(marginalise(result.values[1], groups), marginalise(truth[1], groups))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_structural_zeros_are_kept(rng, share):
    zeros = close(SPINE, [rng.random((SPINE.size(level), 24)) < share * (level == 2) for level in range(3)])
    _, _, result, *_ = settled(rng, zeros=zeros, noise=2.0)
    check_tree(result.values)
    assert result.misplaced == 0
    assert all((x[z] == 0).all() for x, z in zip(result.values, zeros, strict=True))


def test_zeros_that_forbid_settled_totals_relax_them(rng):
    """Two units that may only hold different cells: totals settled first could not be met."""
    zeros = [np.zeros((SPINE.size(level), 24), bool) for level in range(3)]
    zeros[2][3, :12] = (
        True  # the third child of the root has two children, nodes 7 and 8: last two of level 2
    )
    zeros[2][4, 12:] = True
    _, _, result, *_ = settled(rng, zeros=close(SPINE, zeros), noise=3.0)
    check_tree(result.values)
    assert result.misplaced == 0


def test_every_stage_is_within_one_of_its_continuous_solution(rng):
    """A level's totals, rounded, are floors or ceilings of the nearest nonnegative totals under the same parents."""
    _, fit, result, tree, chains = settled(rng, noise=2.0)
    total = [[chain[0], chain[-1]] for chain in chains]
    continuous = settle(tree, fit.subtree, total, Settling(integer=False))
    assert abs(result.values[0].sum() - continuous.values[0].sum()) < 1


def test_consistent_whole_counts_come_back(rng):
    truth, _, result, *_ = settled(rng, noise=0.0)
    for ours, true in zip(result.values, truth, strict=True):
        np.testing.assert_array_equal(ours, true)


def test_the_total_is_not_pushed_up_by_its_cells(rng):
    """Mostly empty histogram: total first is unbiased; cells first (the mutant) is biased upward, significantly."""
    every = {"total": (summed(60),), "detailed": (identity(60),)}
    domain = Domain.of(list(every.values()))
    one = SPINE.__class__(np.array([1, 1]))
    plan = [[(every["total"], 4.0), (every["detailed"], 4.0)]]
    tree = HistogramLeastSquares.prepare(domain, one, plan)
    truth = np.zeros((1, 60))
    truth[0, :5] = 40
    first, last = [], []
    for _ in range(120):
        answers = [
            [marginalise(truth, m) + rng.normal(0, 2, (1, marginalise(truth, m).size)) for m, _ in plan[0]]
        ]
        fit = tree.fit(answers)
        for chain, totals in (([every["total"], every["detailed"]], first), ([every["detailed"]], last)):
            totals.append(settle(tree, fit.subtree, [chain], Settling(integer=False)).values[0].sum() - 200)
    z = [np.mean(t) / (np.std(t) / np.sqrt(len(t))) for t in (first, last)]
    assert abs(z[0]) < 5.5
    assert z[1] > 5.5


def test_ties_are_settled_by_seed_and_not_by_position():
    """Ten siblings with a fraction of .5 each: over seeds every one goes up about equally often."""
    detailed = (identity(1),)
    spine = SPINE.__class__(np.append(1, np.full(11, 11)))
    tree = HistogramLeastSquares.prepare(Domain.of([detailed]), spine, [[(detailed, 0.0)], [(detailed, 1.0)]])
    fit = tree.fit([[np.array([[25.0]])], [np.full((10, 1), 2.0)]])
    up = np.zeros(10)

    def keys(seed):
        seeds = np.array([seed], np.uint64)
        return [node_keys(seeds, level, np.arange(spine.size(level))) for level in range(2)]

    for seed in range(400):
        result = settle(tree, fit.subtree, [[detailed]] * 2, keys=keys(seed))
        assert result.values[1].sum() == 25
        up += result.values[1][:, 0] - 2
    assert up.sum() == 2000
    assert np.abs(up - 200).max() < 6 * np.sqrt(400 * 0.25)
    by_index = settle(tree, fit.subtree, [[detailed]] * 2).values[1][:, 0]
    np.testing.assert_array_equal(by_index, [3] * 5 + [2] * 5)
