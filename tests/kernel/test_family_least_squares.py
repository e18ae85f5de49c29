"""Least squares of families: against a dense solver on the full cross, of which the published cells are compared."""

import numpy as np
import pytest

from trueup.kernel.families.least_squares import FamilyLeastSquares
from trueup.kernel.histogram import indicator
from trueup.kernel.histogram.anova import Axis
from trueup.kernel.histogram.spine import Spine

TREES = [
    (np.array([1, 1]), [1]),
    (np.array([1, 4, 4, 4, 4]), [1, 3]),
    (np.array([1, 3, 5, 8, 8, 8, 8, 8, 8]), [1, 2, 5]),
    (np.array([1, 4, 5, 7, 9, 9, 9, 9, 9, 9]), [1, 3, 5]),
]


def below(sizes, child_ptr, level):
    """The 0/1 matrix (places of a level, last places)."""
    matrix = np.eye(sizes[-1])
    start = np.cumsum([0, *sizes])
    for up in range(len(sizes) - 2, level - 1, -1):
        pointers = child_ptr[start[up] : start[up + 1] + 1] - start[up + 1]
        matrix = np.add.reduceat(matrix, pointers[:-1], axis=0)
    return matrix


def dense(matrices, answers, variances):
    """Pseudo-inverse least squares: estimates of x, and their covariance on what is measured."""
    a, y = np.vstack(matrices), np.concatenate(answers)
    w = np.concatenate([np.full(len(m), 1 / v) for m, v in zip(matrices, variances, strict=True)])
    inverse = np.linalg.pinv(a.T @ (w[:, None] * a), rcond=1e-12, hermitian=True)
    return inverse @ (a.T @ (w * y)), inverse


VIEWS = {
    "plain": [[np.zeros(2, int), np.arange(2)], [np.zeros(3, int), np.arange(3)]],
    "unequal groups": [
        [np.zeros(4, int), np.array([0, 1, 1, 1]), np.arange(4)],
        [np.zeros(2, int), np.arange(2)],
    ],
    "two recodes": [
        [np.zeros(5, int), np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 2, 2]), np.arange(5)],
        [np.zeros(3, int), np.array([0, 1, 1]), np.arange(3)],
    ],
    "three attributes": [
        [np.zeros(2, int), np.arange(2)],
        [np.zeros(3, int), np.array([0, 0, 1]), np.arange(3)],
        [np.zeros(2, int), np.arange(2)],
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("trials", [25, pytest.param(125, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", VIEWS)
def test_estimates_and_variances_are_those_of_a_dense_solver(name, trials, rng):
    views = VIEWS[name]
    axes = [Axis.of(seen) for seen in views]
    for trial in range(trials):
        child_ptr, sizes = TREES[trial % len(TREES)]
        plan = [[] for _ in sizes]
        for _ in range(rng.integers(1, 5)):
            marginal = tuple(seen[rng.integers(len(seen))] for seen in views)
            plan[rng.integers(len(sizes))].append((marginal, float(rng.uniform(0.5, 4))))
        family = FamilyLeastSquares.prepare(axes, Spine(child_ptr), plan)
        matrices, answers, variances, of_plan = [], [], [], []
        for level, measured in enumerate(plan):
            of_plan.append([])
            for marginal, variance in measured:
                table = indicator(marginal[0])
                for groups in marginal[1:]:
                    table = np.kron(table, indicator(groups))
                matrices.append(np.kron(below(sizes, child_ptr, level), table))
                answers.append(rng.normal(10, 5, len(matrices[-1])))
                variances.append(variance)
                of_plan[-1].append(answers[-1].reshape(1, sizes[level], -1))
        x, covariance = dense(matrices, answers, variances)
        fit = family.fit(of_plan)
        at = 0
        for level, measured in enumerate(plan):
            for marginal, _ in measured:
                matrix, at = matrices[at], at + 1
                found = family.table(fit, level, marginal)[0].ravel()
                np.testing.assert_allclose(found, matrix @ x, rtol=0, atol=1e-9)
                spread = np.broadcast_to(
                    family.variances(level, marginal), (sizes[level], len(table_of(marginal)))
                )
                own = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
                np.testing.assert_allclose(spread.ravel(), own, rtol=1e-8)


def table_of(marginal):
    return range(int(np.prod([groups.max() + 1 for groups in marginal])))


def test_estimates_from_subtrees_are_those_of_the_subtrees_alone(rng):
    (child_ptr, sizes), views = TREES[2], VIEWS["unequal groups"]
    axes = [Axis.of(seen) for seen in views]
    rows, columns = (views[0][1], views[1][0]), (views[0][2], views[1][1])
    plan = [[(rows, 1.0)], [(columns, 2.0)], [(rows, 0.5)]]
    family = FamilyLeastSquares.prepare(axes, Spine(child_ptr), plan)
    answers = [[rng.normal(9, 3, (2, places, size))] for places, size in zip(sizes, (2, 8, 2), strict=True)]
    before = family.table(family.fit(answers, subtrees=True), 1, columns)
    answers[0] = [answers[0][0] + 100]
    answers[1][0][:, 1] += 50
    after = family.table(family.fit(answers, subtrees=True), 1, columns)
    np.testing.assert_allclose(after[:, 0], before[:, 0], atol=1e-9)
    assert np.abs(after[:, 1] - before[:, 1]).min() > 1


def test_exact_tables_are_met(rng):
    (child_ptr, _), views = TREES[1], VIEWS["plain"]
    axes = [Axis.of(seen) for seen in views]
    total, rows, columns = ((views[0][i], views[1][j]) for i, j in ((0, 0), (1, 0), (0, 1)))
    family = FamilyLeastSquares.prepare(
        axes, Spine(child_ptr), [[(total, 0.0)], [(rows, 1.0), (columns, 1.0), (total, 0.0)]]
    )
    exact = np.array([5.0, 7.0, 9.0])
    answers = [[np.array([[[21.0]]])], [rng.normal(4, 2, (1, 3, n)) for n in (2, 3)] + [exact[None, :, None]]]
    fit = family.fit(answers)
    for marginal in (rows, columns):
        np.testing.assert_allclose(family.table(fit, 1, marginal)[0].sum(axis=1), exact, atol=1e-5)
