"""Figures of an assessment: against all replicates held at once, closed forms, and each other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.assessing.worlds import area_spec, areas, block_spec, blocks, every_replicate
from tests.reference.assess import describe, ranks
from trueup.assessing import assess
from trueup.model.build import build_constraints
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.reconciling import build

LIMIT = 5.5
"""Standard errors; a standard normal exceeds them with probability 4e-8."""


@pytest.mark.thorough
def test_streamed_figures_are_those_of_all_replicates_held_at_once(rng, held):
    table = blocks(rng, tracts=4, most=10)
    found = assess(
        block_spec(), table, replicates=130, methods=["multinomial-mode", "tree-topdown"], public_truth=True
    )
    for number, method in enumerate(found.methods):
        every = every_replicate(held["simulation"], held["blocks"], number=number)
        for strata in held["simulation"].strata:
            for by in strata.classings:
                for k, unit in enumerate(by.labels):
                    twin = describe(every[strata.margin], strata.truth, by.at == k)
                    for statistic, (value, error) in twin.items():
                        quantile = statistic.startswith("quantile")
                        if (quantile and by.by not in ("level", "size")) or (
                            statistic == "wrong rank" and strata.truth.size == 1
                        ):
                            continue
                        ours, mc_error = found.figure(
                            statistic, str(strata.margin), by=by.by, unit=unit, method=method.label
                        )
                        assert ours == pytest.approx(value, rel=1 / 64 if quantile else 1e-9, abs=1e-9)
                        if error:
                            assert mc_error == pytest.approx(error, rel=1e-9)


def test_figures_of_single_counts_are_those_of_all_replicates_held_at_once(rng, held):
    found = assess(block_spec(), blocks(rng, tracts=4, most=10), replicates=100, public_truth=True)
    every = every_replicate(held["simulation"], held["blocks"])
    for strata in held["simulation"].strata:
        errors = (every[strata.margin] - strata.truth).astype(float)
        figures = found.figures["tree-topdown", found.budgets[0].label, strata.margin]
        twins = {
            "bias": errors.mean(axis=0),
            "variance": errors.var(axis=0, ddof=1),
            "rmse": np.sqrt((errors**2).mean(axis=0)),
            "quantile 0.95 of the error": np.quantile(errors, 0.95, axis=0, method="inverted_cdf"),
        }
        for statistic, twin in twins.items():
            np.testing.assert_allclose(figures[statistic, ""][0], twin, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(figures["bias", ""][1], errors.std(axis=0, ddof=1) / 10, rtol=1e-9)
        of_square = (errors**2).std(axis=0) / 10
        np.testing.assert_allclose(
            2 * figures["rmse", ""][0] * figures["rmse", ""][1], of_square, rtol=1e-6, atol=1e-9
        )


def test_wrong_sides_and_ranks_of_single_counts(rng, held):
    found = assess(
        area_spec(),
        areas([3, 3, 9, 10, 40]),
        replicates=60,
        thresholds={"area": 10},
        public_truth=True,
    )
    strata = held["simulation"].strata[1]
    every = every_replicate(held["simulation"], held["blocks"])[strata.margin]
    figures = found.figures["tree-topdown", found.budgets[0].label, strata.margin]
    sides = (every >= 10) != (strata.truth >= 10)
    wrong = np.mean([ranks(row) != ranks(strata.truth) for row in every], axis=0)
    np.testing.assert_allclose(figures["wrong side", "10"][0], sides.mean(axis=0))
    np.testing.assert_allclose(figures["wrong rank", ""][0], wrong)
    assert (figures["wrong side", "10"][1] > 0).all()


def scores(found, closed, scale=1.0):
    """Deviations of variances from a closed form in Monte Carlo errors, level by level."""
    for margin in found.levels:
        value, error = found.figure("variance", str(margin))
        yield (value - scale * np.mean(closed[margin] ** 2)) / error


@pytest.mark.thorough
def test_least_squares_has_the_error_of_its_closed_form(rng):
    """5 % too much in the closed form must fail by the test that accepts it."""
    spec, table = block_spec(), blocks(rng)
    seed = int(rng.integers(2**31))
    found = assess(spec, table, replicates=20_000, methods=["tree-equality"], seed=seed, public_truth=True)
    cells = public_cells(spec, table)
    method = build("tree-equality", {})
    closed = method.errors(method.prepare(build_constraints(spec, cells), plan_measurements(spec, cells)[0]))
    assert max(map(abs, scores(found, closed))) < 8  # Student's t with 19 degrees of freedom: 2e-7
    assert max(map(abs, scores(found, closed, 1.05))) > 8
    for margin in found.levels:
        bias, error = found.figure("bias", str(margin))
        assert abs(bias) < LIMIT * error
        single, errors = found.figures["tree-equality", found.budgets[0].label, margin]["variance", ""]
        assert np.abs((single - closed[margin] ** 2) / errors).max() < 6.5
    assert not found.flags


def test_the_noise_margin_covers_as_its_law_says(rng):
    """A coverage that is one point off must fail by the test that accepts it."""
    spec, table = block_spec(), blocks(rng)
    seed = int(rng.integers(2**31))
    found = assess(spec, table, replicates=4_000, intervals=["noise"], seed=seed, public_truth=True)
    headers, _ = plan_measurements(spec, public_cells(spec, table))
    off = []
    for header in headers:
        reach = header.law.quantile(0.95)
        exact = float(header.law.cdf(reach) - header.law.cdf(-reach - 1))
        share, error = found.figure("coverage", str(header.margin), about="noise")
        off.append((abs(share - exact) / error, abs(share - exact - 0.01) / error))
        assert found.figure("length", str(header.margin), about="noise")[0] == pytest.approx(2 * reach)
    assert max(good for good, _ in off) < LIMIT
    assert max(bad for _, bad in off) > LIMIT


def test_differences_are_exact_and_sharper_than_the_figures(rng):
    found = assess(
        block_spec(),
        blocks(rng),
        replicates=400,
        methods=["tree-topdown", "multinomial-mode"],
        public_truth=True,
    )
    for level in ("state", "tract", "block"):
        first, second = (found.figure("bias", level, method=m.label) for m in found.methods)
        value, error = found.figure("bias difference", level)
        assert value == pytest.approx(second[0] - first[0], abs=1e-9)
        assert error < 0.8 * np.hypot(first[1], second[1])


def test_every_budget_sees_the_same_random_numbers_and_more_of_it_errs_less(rng):
    found = assess(
        block_spec(), blocks(rng), replicates=400, budgets=["1/2", 1, 2], seed=3, public_truth=True
    )
    assert [b.label for b in found.budgets] == ["epsilon = 1/2", "epsilon = 1", "epsilon = 2"]
    for level in ("state", "tract", "block"):
        errors = [found.figure("rmse", level, budget=b.label)[0] for b in found.budgets]
        assert errors[0] > 1.5 * errors[1] > 1.5 * errors[2]


def test_groups_that_are_treated_alike_do_not_disperse_and_others_do(rng):
    """Zhu et al. (theorem 12): under one exact total, projected noise has variance 2 lambda^2 (1 - 1/n)."""
    spec = parse_spec(
        """
format = 2
title = "Groups"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "state", column = "state" }, { name = "county", column = "county" }]
query = [{ name = "total", epsilon = { county = "1/5" } }]
constraints = { invariants = [{ level = "state" }], nonnegative = false }
"""
    )
    few, many = 2, 40
    state = ["a"] * few + ["b"] * many
    import pandas

    table = pandas.DataFrame({"state": state, "county": [f"{i:02d}" for i in range(len(state))], "n": 500})
    seed = int(rng.integers(2**31))
    found = assess(spec, table, replicates=4_000, methods=["tree-equality"], seed=seed, public_truth=True)
    law = plan_measurements(spec, public_cells(spec, table))[0][0].law
    exact = {"2-4": law.variance * (1 - 1 / few), "20-49": law.variance * (1 - 1 / many)}
    for unit, variance in exact.items():
        value, error = found.figure("variance", "county", by="siblings", unit=unit)
        assert abs(value - variance) < 8 * error
    shares = np.array([few, many]) / (few + many)
    spread = np.sqrt(shares.prod()) * abs(exact["2-4"] - exact["20-49"])
    value, error = found.figure("dispersion of variance", "county", by="siblings", unit="between all")
    assert abs(value - spread) < 8 * error
    assert value > 8 * error
    value, error = found.figure("dispersion of bias", "county", by="siblings", unit="between all")
    assert value < 6 * error + 1e-9


def test_attribute_groups_are_compared(rng):
    spec = parse_spec(
        """
format = 2
title = "Sexes"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "by_sex", attributes = ["sex"], epsilon = { all = "1/2", area = "1/2" } }]
"""
    )
    import pandas

    table = pandas.DataFrame({"area": ["a", "a", "b", "b"], "sex": ["f", "m"] * 2, "n": [0, 800, 0, 900]})
    found = assess(spec, table, replicates=400, public_truth=True)
    by_sex = found.rows(statistic="bias", by="sex", level="area x sex")
    assert by_sex["unit"].tolist() == ["f", "m"]
    assert by_sex["value"][0] > 8 * by_sex["mc_error"][0]  # zeros of women come out too high
    value, error = found.figure("dispersion of bias", "area x sex", by="sex", unit="between all")
    assert value > 8 * error


@pytest.mark.slow
def test_posterior_means_and_intervals_stand_beside_methods(rng):
    found = assess(
        area_spec(),
        areas([0, 5, 20, 300]),
        replicates=400,
        infer="tree-exact",
        infer_replicates=60,
        public_truth=True,
    )
    assert [m.verb for m in found.methods] == ["reconcile", "infer"]
    rows = found.rows(statistic="coverage", about="posterior", by="level")
    assert 60 <= rows["replicates"].min() <= rows["replicates"].max() <= 80
    share, error = found.figure("coverage", "area", about="posterior", by="size", unit="100-999")
    assert abs(share - 0.9) < 0.05 + LIMIT * error
    assert found.figure("length", "area", about="posterior")[0] > 0
