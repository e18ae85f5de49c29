"""Histograms, tables and general constraints through their methods: agreement, standard errors, bad input in labels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.conformance.structures import AGE, LAW, SEX, STRUCTURES, _tree
from trueup.errors import InfeasibleError, SpecError, TrueupError
from trueup.layouts.histogram import histogram_problem
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.noise import DiscreteGaussian
from trueup.noise.laws.exact import Exact
from trueup.reconciling import default
from trueup.reconciling.general_integer import GeneralInteger
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.margins_controlled import MarginsControlled
from trueup.reconciling.margins_projection import MarginsProjection, project_on_margins
from trueup.reconciling.projected_laplace import ProjectedDiscreteLaplace
from trueup.reconciling.topdown_multipass import TopDownMultipass

BY_NAME = {s.name: s for s in STRUCTURES}
RNG = np.random.default_rng(0)  # nothing below draws from it


def run(method, structure, values):
    return method.apply(method.prepare(structure.constraints, structure.headers), values, RNG)


@pytest.mark.parametrize("name", ["two-way table", "three-way table", "two-way table with fixed margins"])
def test_projection_of_a_table_equals_the_general_solver(name, rng):
    structure = BY_NAME[name]
    values = structure.noisy_values(structure.true_counts(rng), rng, 5)
    ours = run(MarginsProjection(), structure, values).values
    general = run(GeneralProjection(), structure, values).values
    np.testing.assert_allclose(ours, general, atol=1e-5)


def test_a_two_way_table_rounds_every_cell_and_margin_by_less_than_two(rng):
    structure = BY_NAME["two-way table"]
    values = structure.noisy_values(structure.true_counts(rng), rng, 20)
    state = MarginsControlled().prepare(structure.constraints, structure.headers)
    whole = MarginsControlled().apply(state, values, RNG).values
    real = np.stack([project_on_margins(state, row, state.first).table.ravel() for row in values])
    assert np.abs(whole - real).max() < 2
    cells = structure.constraints.cells
    for attributes in ((), ("sex",), ("age",)):
        margin = Margin("level0", attributes)
        assert np.abs(cells.sum(whole, margin) - cells.sum(real, margin)).max() < 1.5


def test_defaults_follow_the_structure():
    wanted = {
        "two-way table": MarginsControlled,
        "histogram": HistogramTree,
        "histogram with invariants and zeros": HistogramTree,
        "linear inequality": GeneralInteger,
        "overlapping sums": GeneralInteger,
    }
    for name, kind in wanted.items():
        assert isinstance(default(BY_NAME[name].constraints), kind)


def test_crossing_invariants_through_recodes_of_one_place_go_to_the_general_method():
    cells = BY_NAME["one table with recodes"].constraints.cells
    fixed = (Margin("level0", ("grade",)), Margin("level0", ("end",)))
    constraints = Constraints(cells, (cells.finest,), invariants=fixed)
    assert constraints.structure() == "histogram"
    assert "crosses another" in (HistogramTree().refuses(constraints) or "")
    assert isinstance(default(constraints), GeneralInteger)


@pytest.mark.parametrize("name", ["histogram with recodes", "one table with recodes"])
def test_least_squares_with_recodes_equals_one_dense_system(name, rng):
    structure = BY_NAME[name]
    cells = structure.constraints.cells
    values = structure.noisy_values(structure.true_counts(rng), rng)
    rows = np.concatenate([cells.sum(np.eye(cells.n), h.margin).T for h in structure.headers])
    weights = np.concatenate(
        [np.full(cells.size(h.margin), float(h.law.variance) ** -0.5) for h in structure.headers]
    )
    dense = np.linalg.lstsq(weights[:, None] * rows, weights * values[0])[0]
    problem = histogram_problem(structure.constraints, structure.headers)
    fit, _ = problem.least_squares(values)
    np.testing.assert_allclose(fit.values[-1].ravel(), dense, atol=1e-9)


@pytest.mark.parametrize("name", ["histogram", "histogram with recodes"])
def test_standard_errors_are_those_of_the_dense_inverse(name):
    structure = BY_NAME[name]
    cells, state = (
        structure.constraints.cells,
        HistogramTree().prepare(structure.constraints, structure.headers),
    )
    rows = [np.eye(cells.n), *(cells.sum(np.eye(cells.n), h.margin) for h in structure.headers)]
    normal = sum(m @ m.T / h.law.variance for m, h in zip(rows[1:], structure.headers, strict=True))
    covariance = np.linalg.inv(normal)
    for margin, errors in HistogramTree().errors(state).items():
        m = cells.sum(np.eye(cells.n), margin)
        np.testing.assert_allclose(errors**2, np.diag(m.T @ covariance @ m), rtol=1e-8)


def test_the_upper_levels_learn_from_the_lower_ones(rng):
    """The state histogram's squared error, least squares against its own measurements alone (topdown-multipass)."""
    structure = BY_NAME["histogram"]
    counts = structure.true_counts(rng) + 50
    values = structure.noisy_values(counts, rng, 200)
    truth = structure.constraints.cells.sum(counts, Margin("level0", ("sex", "age")))
    errors = [
        (
            (
                structure.constraints.cells.sum(
                    run(m, structure, values).values, Margin("level0", ("sex", "age"))
                )
                - truth
            )
            ** 2
        ).mean(axis=1)
        for m in (HistogramTree(), TopDownMultipass())
    ]
    difference = errors[1] - errors[0]
    assert difference.mean() > 5 * difference.std() / np.sqrt(difference.size)


def test_passes_are_nested_attributes_of_the_cells(rng):
    structure = BY_NAME["histogram"]
    values = structure.noisy_values(structure.true_counts(rng), rng)
    assert run(TopDownMultipass(passes=((), ("sex",))), structure, values).status == "solved"
    with pytest.raises(SpecError, match="does not keep"):
        TopDownMultipass(passes=(("sex",), ("age",))).prepare(structure.constraints, structure.headers)
    with pytest.raises(SpecError, match="not declared"):
        TopDownMultipass(passes=(("rase",),)).prepare(structure.constraints, structure.headers)


def test_a_level_that_is_not_determined_is_named():
    cells = Cells(_tree(1, 2), (SEX, AGE))
    margins = (Margin("level0", ("sex", "age")), Margin("level1", ("sex",)), Margin("level1", ("age",)))
    headers = [Measured("q", m, LAW) for m in margins]
    with pytest.raises(SpecError, match=r"'level1' do not determine .* 'level1 x sex x age'"):
        HistogramTree().prepare(Constraints(cells, margins), headers)


def test_invariants_that_contradict_each_other_are_named(rng):
    cells = Cells(_tree(1, 2), (SEX, AGE))
    noisy = Margin("level1", ("sex", "age"))
    fixed = (Margin("level0"), Margin("level1", ("sex",)))
    headers = (Measured("q", noisy, LAW), *(Measured("invariant", m, Exact()) for m in fixed))
    constraints = Constraints(cells, (noisy, Margin("level0", ("age",))), invariants=fixed)
    values = np.concatenate([rng.integers(0, 9, 12), [20], [5, 5, 5, 4]])
    state = histogram_problem(constraints, headers)
    with pytest.raises(InfeasibleError, match=r"'level0'.*'0, sex=female'"):
        HistogramTree().apply(state, values, rng)


def test_an_invariant_over_structural_zeros_is_named(rng):
    """All men are excluded, yet so many men are published."""
    cells = Cells(_tree(1, 2), (SEX, AGE))
    noisy, other, fixed = (
        Margin("level1", ("sex", "age")),
        Margin("level1", ("age",)),
        Margin("level0", ("sex",)),
    )
    headers = (Measured("q", noisy, LAW), Measured("q", other, LAW), Measured("invariant", fixed, Exact()))
    zeros = ({"sex": "male"},)
    constraints = Constraints(cells, (noisy, other), invariants=(fixed,), zeros=zeros)
    values = np.concatenate([rng.integers(0, 9, 12), rng.integers(0, 9, 6), [20, 7]])
    with pytest.raises(InfeasibleError, match=r"the invariant '.*sex=male'.*the structural zero"):
        HistogramTree().apply(HistogramTree().prepare(constraints, headers), values, rng)


@pytest.mark.parametrize("variance", [-1.0, np.nan])
def test_a_variance_that_is_none_is_refused(variance):
    from trueup.kernel.histogram.anova import Domain
    from trueup.kernel.histogram.least_squares import HistogramLeastSquares as Prepared
    from trueup.kernel.histogram.marginals import identity
    from trueup.kernel.histogram.spine import Spine
    from trueup.kernel.margins.projection import nearest

    detailed = (identity(2),)
    with pytest.raises(SpecError, match="variance"):
        Prepared.prepare(Domain.of([detailed]), Spine(np.array([1, 1])), [[(detailed, variance)]])
    with pytest.raises(SpecError, match="variance"):
        nearest(np.ones((2, 2)), [(0,)], [np.ones(2)], variances=np.full((2, 2), variance))


def test_margins_whose_totals_differ_are_named(rng):
    structure = BY_NAME["two-way table with fixed margins"]
    values = np.concatenate([rng.integers(0, 9, 6), [10, 10], [7, 7, 7]])
    for method in (MarginsControlled(), MarginsProjection(), GeneralProjection(), ProjectedDiscreteLaplace()):
        with pytest.raises(
            InfeasibleError, match=r"the invariant '.*sex=female'.*the invariant '.*age=young'"
        ):
            run(method, structure, values)


def test_three_way_margins_that_no_table_has_are_named(rng):
    """All women are young and of race a, all young of race b: every pair of margins agrees, no table has all three."""
    structure = BY_NAME["three-way table with fixed margins"]
    sex_age, sex_race, age_race = [[5, 0, 0], [0, 5, 0]], [[5, 0], [0, 5]], [[0, 5], [5, 0], [0, 0]]
    values = np.concatenate([rng.integers(0, 9, 12), *map(np.ravel, (sex_age, sex_race, age_race))])
    for method in (MarginsProjection(), MarginsControlled(), GeneralInteger()):
        with pytest.raises(InfeasibleError, match="at least zero"):
            run(method, structure, values)


def test_an_inequality_that_no_point_satisfies_is_named():
    cells = Cells(_tree(1, 2), (SEX,))
    rule = LinearRule(parse_linear("female + male <= -1"), "level1")
    margin = Margin("level1", ("sex",))
    constraints = Constraints(cells, (margin,), linear=(rule,))
    for method in (GeneralProjection(), GeneralInteger()):
        with pytest.raises(InfeasibleError, match=r"'female \+ male <= -1' at [01]"):
            method.apply(method.prepare(constraints, [Measured("q", margin, LAW)]), np.arange(4), RNG)


def test_whole_numbers_that_do_not_exist_are_named():
    cells = Cells(_tree(1, 2), (SEX,))
    rule = LinearRule(parse_linear("2 * female + 2 * male == 3"), "level1")
    margin = Margin("level1", ("sex",))
    constraints = Constraints(cells, (margin,), linear=(rule,))
    headers = [Measured("q", margin, LAW)]
    assert (
        GeneralProjection().apply(GeneralProjection().prepare(constraints, headers), np.arange(4), RNG).status
        == "solved"
    )
    with pytest.raises(InfeasibleError, match="in whole numbers"):
        GeneralInteger().apply(GeneralInteger().prepare(constraints, headers), np.arange(4), RNG)


def test_bounds_on_crossing_margins_go_to_the_general_method(rng):
    cells = Cells(_tree(1, 2), (SEX, AGE))
    margins = tuple(Margin("level1", a) for a in [("sex",), ("age",), ("sex", "age")])
    constraints = Constraints(cells, margins, bounds=(Bound(Margin("level1", ("age",)), upper=5),))
    method = default(constraints)
    assert isinstance(method, GeneralInteger)
    headers = [Measured("q", m, LAW) for m in margins]
    values = rng.integers(0, 12, 2 * (2 + 3 + 6))
    counts = method.apply(method.prepare(constraints, headers), values, RNG).values
    assert cells.sum(counts, Margin("level1", ("age",))).max() <= 5


def test_finest_cells_that_nothing_measures_are_refused():
    cells = Cells(_tree(1), (SEX, AGE))
    margins = (Margin("level0", ("sex",)), Margin("level0", ("age",)))
    headers = [Measured("q", m, DiscreteGaussian(Fraction(2))) for m in margins]
    for method in (MarginsControlled(), GeneralInteger()):
        with pytest.raises(SpecError, match="level0 x sex x age"):
            method.prepare(Constraints(cells, margins), headers)


def test_a_missing_solver_names_the_extra(monkeypatch, rng):
    import sys

    monkeypatch.setitem(sys.modules, "piqp", None)
    structure = BY_NAME["linear inequality"]
    with pytest.raises(TrueupError, match=r"trueup\[solvers\]"):
        run(GeneralProjection(), structure, structure.noisy_values(structure.true_counts(rng), rng)[0])


@pytest.mark.parametrize("objective", ["rounding", "l1", "l2"])
def test_integer_objectives_are_feasible_and_ordered(objective, rng):
    structure = BY_NAME["two-way table"]
    values = structure.noisy_values(structure.true_counts(rng), rng)[0]
    problem = GeneralInteger().prepare(structure.constraints, structure.headers)
    fit = problem.fit(values)
    mine = GeneralInteger(objective=objective).apply(problem, values, RNG).values
    best = GeneralInteger(objective="l2").apply(problem, values, RNG).values
    assert fit.objective(best) <= fit.objective(mine) + 1e-9
    assert mine.min() >= 0


@pytest.mark.thorough
def test_race_by_voting_age_in_every_block_of_rhode_island(data_dir):
    """Real blocks through the kernels: whole, nonnegative, additive at five levels."""
    from benchmarks import _histograms
    from trueup.kernel.settling.descend import settle

    state = _histograms._real(data_dir / "ri_blocks_2010.csv.gz")
    tree = state.tree()
    result = settle(tree, tree.fit(state.answers).subtree, state.chains())
    assert result.misplaced == result.relaxed == 0
    assert [x.shape for x in result.values] == [(n, 16) for n in _histograms.SIZES]
    for level in range(4):
        np.testing.assert_array_equal(
            state.spine.sum_children(level, result.values[level + 1]), result.values[level]
        )
    assert min(x.min() for x in result.values) == 0
