"""Histograms on a tree: the fast passes against one dense system."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernel.histograms import SIZES, SPINE, case, marginals
from tests.reference import histogram as reference
from tests.reference.histogram import least_squares, system
from trueup.errors import SpecError
from trueup.kernel.histogram import identity, marginalise, refines, shape, spread, summed
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.structural_zeros import Fold, close, restrict


def product_marginals() -> dict:
    """Five marginals of a product domain, no groupings: every component is scalar."""
    every = marginals()
    every["first-third"] = (identity(4), summed(2), identity(3))
    return {k: every[k] for k in ("total", "second", "third", "first-third", "detailed")}


@pytest.mark.parametrize("chosen", [marginals(), product_marginals()], ids=["groupings", "product"])
@pytest.mark.parametrize(
    "exact",
    [(), ((0, "total"),), ((0, "total"), (1, "total"), (1, "second")), ((2, "detailed"),)],
    ids=["noisy", "exact root", "exact middle", "exact leaves"],
)
def test_least_squares_equals_one_dense_system(rng, chosen, exact):
    _, plan, answers = case(rng, chosen, exact)
    domain = Domain.of(list(chosen.values()))
    fit = HistogramLeastSquares.prepare(domain, SPINE, plan).fit(answers)
    for ours, dense in zip(fit.values, least_squares(SPINE, plan, answers, 24), strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-9)
    assert fit.conflict[0] < 1e-9


def test_product_components_are_scalar_and_precise_as_the_formula_says():
    chosen = product_marginals()
    domain = Domain.of(list(chosen.values()))
    assert {c.dense for c in domain.components} == {1}
    first_only = next(c for c in domain.components if c.contrast == (True, False, False))
    tree = HistogramLeastSquares.prepare(domain, SPINE, [[(m, 2.0) for m in chosen.values()]] * 3)
    where = domain.components.index(first_only)
    # "first-third" sums the second axis (2 codes) and its component without the third has 3 more; "detailed": 1
    assert tree.filters[2][where].precision.item() == pytest.approx((2 / 2.0 * 1) + 1 / 2.0)


def test_variance_of_any_combination_equals_the_dense_inverse(rng):
    _, plan, answers = case(rng, marginals())
    tree = HistogramLeastSquares.prepare(Domain.of(list(marginals().values())), SPINE, plan)
    sums, normal, *_ = system(SPINE, plan, answers, 24)
    weights = [rng.normal(size=(SPINE.size(level), 24)) for level in range(3)]
    on_leaves = np.einsum("vl,vn->ln", sums, np.concatenate(weights)).ravel()
    assert tree.variance(weights) == pytest.approx(on_leaves @ np.linalg.solve(normal, on_leaves), rel=1e-10)


@pytest.mark.parametrize("exact", [(), ((0, "total"), (1, "groups"))], ids=["noisy", "exact"])
def test_variances_of_margins_equal_those_of_combinations(rng, exact):
    _, plan, _ = case(rng, marginals(), exact)
    tree = HistogramLeastSquares.prepare(Domain.of(list(marginals().values())), SPINE, plan)
    for level, name in ((0, "detailed"), (1, "groups-second"), (2, "third"), (1, "groups")):
        ours = tree.margin_variances([level], marginals()[name])[0]
        for node, cell in ((0, 0), (SPINE.size(level) - 1, ours.shape[1] - 1)):
            weights = [np.zeros((SPINE.size(k), 24)) for k in range(SPINE.depth)]
            weights[level][node] = spread(np.eye(ours.shape[1])[cell], marginals()[name])
            assert ours[node, cell] == pytest.approx(tree.variance(weights), abs=1e-9)


def test_structural_zeros_equal_one_dense_system(rng):
    _, plan, answers = case(rng, marginals(), ((0, "total"),))
    tree = HistogramLeastSquares.prepare(Domain.of(list(marginals().values())), SPINE, plan)
    zeros = close(SPINE, [rng.random((SPINE.size(level), 24)) < 0.15 for level in range(3)])
    fit, left = restrict(tree, tree.fit(answers), zeros)
    for ours, dense in zip(fit.values, least_squares(SPINE, plan, answers, 24, zeros), strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-9)
    assert left < 1e-9


def test_folded_zeros_equal_one_dense_system(rng):
    """Two rules that share an axis, an invariant above: the fused axis is exact, and loses no cell."""
    rules = [np.zeros(SIZES, bool), np.zeros(SIZES, bool)]
    rules[0][1, 0], rules[1][2:, :, 2] = True, True
    for chosen in (rules[:1], rules):
        fold = Fold.of(SIZES, chosen)
        never = np.logical_or.reduce(chosen).ravel()
        np.testing.assert_array_equal(np.sort(fold.kept), np.flatnonzero(~never))
        _, plan, answers = case(rng, marginals(), ((0, "total"),))
        folded_plan = [[(fold.marginal(m), v) for m, v in p] for p in plan]
        folded = [[y[:, fold.columns(m)] for (m, _), y in zip(*pair)] for pair in zip(plan, answers)]
        domain = Domain.of([m for p in folded_plan for m, _ in p])
        fit = HistogramLeastSquares.prepare(domain, SPINE, folded_plan).fit(folded)
        zeros = [np.tile(never, (SPINE.size(level), 1)) for level in range(3)]
        for ours, dense in zip(fit.values, least_squares(SPINE, plan, answers, 24, zeros), strict=True):
            np.testing.assert_allclose(fold.unfold(ours), dense, atol=1e-8)


def test_contradictory_invariants_are_found_where_they_are(rng):
    truth, plan, answers = case(rng, marginals(), ((0, "total"), (1, "total")))
    names = list(marginals())
    for level in (0, 1):
        answers[level][names.index("total")] = truth[level].sum(axis=1, keepdims=True)
    tree = HistogramLeastSquares.prepare(Domain.of(list(marginals().values())), SPINE, plan)
    assert tree.fit(answers).conflict[0] < 1e-9
    answers[0][names.index("total")] = answers[0][names.index("total")] + 5
    miss, level, node = tree.fit(answers).conflict
    assert miss > 1
    assert (level, node)[0] in (0, 1)


def test_a_lowest_level_that_does_not_determine_its_cells_is_refused():
    chosen = marginals()
    plan = [[(chosen["detailed"], 1.0)], [(chosen["detailed"], 1.0)], [(chosen["total"], 1.0)]]
    with pytest.raises(SpecError, match="do not determine every cell"):
        HistogramLeastSquares.prepare(Domain.of([chosen["detailed"], chosen["total"]]), SPINE, plan)


def test_exact_consistent_answers_come_back_unchanged(rng):
    truth, plan, _ = case(rng, marginals())
    answers = [[marginalise(t, m) for m, _ in p] for t, p in zip(truth, plan, strict=True)]
    fit = HistogramLeastSquares.prepare(Domain.of(list(marginals().values())), SPINE, plan).fit(answers)
    for ours, true in zip(fit.values, truth, strict=True):
        np.testing.assert_allclose(ours, true, atol=1e-9)


def test_transform_is_orthogonal_and_agrees_with_the_marginals(rng):
    every = marginals()
    domain = Domain.of(list(every.values()))
    x = rng.normal(size=(5, 24))
    coefficients = domain.forward(x)
    np.testing.assert_allclose(coefficients, reference.coefficients(domain, x), atol=1e-12)
    np.testing.assert_array_equal(coefficients[2:3], domain.forward(x[2:3]))  # whatever stands beside it
    np.testing.assert_allclose(domain.backward(coefficients), x, atol=1e-12)
    np.testing.assert_allclose((coefficients**2).sum(), (x**2).sum())
    for marginal in every.values():
        for component in domain.components:
            if domain.informs(marginal, component):
                through = domain.matrix(marginal, component) @ component.view(coefficients)
                table = domain.of_table(marginalise(x, marginal), marginal, component)
                np.testing.assert_allclose(through, table, atol=1e-12)


def test_marginalise_and_spread_are_transposes(rng):
    for marginal in marginals().values():
        x, y = rng.normal(size=24), rng.normal(size=int(np.prod(shape(marginal))))
        assert marginalise(x, marginal) @ y == pytest.approx(x @ spread(y, marginal))
    assert refines(marginals()["groups-second"], marginals()["groups"])
    assert not refines(marginals()["groups"], marginals()["groups-second"])
