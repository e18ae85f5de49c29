"""Planned budgets against brute force, dense algebra and closed forms."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pandas
import pytest

from trueup.errors import SpecError
from trueup.model.spec import parse_spec
from trueup.noise import law_named
from trueup.planning.allocation import MARGIN_90, Priced, allocate, scaled
from trueup.planning.plan import plan as plan_spec
from trueup.releasing.explain import explain

LAWS = {"rho": ("discrete-gaussian", Fraction(3, 2)), "epsilon": ("discrete-laplace", Fraction(1, 3))}


def tree(*branching):
    """A tree in which every node of level `l` has `branching[l]` children."""
    sizes = np.cumprod([1, *branching])
    level_ptr = np.concatenate([[0], np.cumsum(sizes)])
    children = np.repeat([*branching, 0], sizes)
    return np.concatenate([[1], 1 + np.cumsum(children)]).astype(np.int64), level_ptr.astype(np.int64)


def levels(currency, count):
    """Levels that each cost one third."""
    name, parameter = LAWS[currency]
    return [Priced(f"level {i}", law_named(name)(parameter), Fraction(1, 3)) for i in range(count)]


def dense_errors(child_ptr, level_ptr, variances):
    """Mean posterior variance per level by inverting the information matrix of the leaves."""
    leaves = [v for v in range(len(child_ptr) - 1) if child_ptr[v] == child_ptr[v + 1]]
    below = [{v} if v in leaves else set() for v in range(len(child_ptr) - 1)]
    for v in reversed(range(len(child_ptr) - 1)):
        for c in range(child_ptr[v], child_ptr[v + 1]):
            below[v] |= below[c]
    design = np.array([[leaf in below[v] for leaf in leaves] for v in range(len(below))], dtype=float)
    spread = np.repeat(variances, np.diff(level_ptr))
    information = design.T @ (design / spread[:, None])
    error = np.einsum("ij,jk,ik->i", design, np.linalg.inv(information), design)
    return np.array([error[a:b].mean() for a, b in pairwise(level_ptr)])


@pytest.mark.parametrize("currency", LAWS)
@pytest.mark.parametrize("weights", [None, {"level 0": 50.0}, {"level 2": 9.0, "level 1": 0.0}])
def test_the_plan_is_the_best_of_a_grid(currency, weights):
    child_ptr, level_ptr = tree(3, 2)
    plan = allocate(child_ptr, level_ptr, levels(currency, 3), currency, Fraction(2), weights=weights)
    worth = [(weights or {}).get(f"level {i}", 1.0) for i in range(3)]

    def objective(budgets):
        noise = [level.variance(b) for level, b in zip(levels(currency, 3), budgets)]
        return worth @ dense_errors(child_ptr, level_ptr, np.minimum(noise, 1e9))

    grid = [(a, b, 40 - a - b) for a, b in product(range(40), repeat=2) if a + b < 40]
    best = min(objective([Fraction(g, 20) for g in one]) for one in grid)
    assert sum(plan.budgets) == 2
    assert objective(plan.budgets) <= best * (1 + 1e-6)
    np.testing.assert_allclose(worth @ np.square(plan.error), objective(plan.budgets), rtol=1e-5)


def test_a_convex_plan_carries_a_small_gap():
    plan = allocate(*tree(7, 5, 2), levels("rho", 4), "rho", Fraction(1, 2))
    assert 0 <= plan.stats["gap"] < 1e-5
    rich = allocate(*tree(7, 5, 2), levels("rho", 4), "rho", Fraction(50))
    assert "gap" not in rich.stats


def crossing(currency, budgets, extra=""):
    """A spec of two areas with sex by age, and tables that cross."""
    noise = {"rho": "discrete-gaussian", "epsilon": "discrete-laplace"}[currency]
    queries = "".join(
        f"[[query]]\nname = '{name}'\nattributes = {attributes}\nnoise = '{noise}'\n{currency} = {{ area = '{budget}' }}\n"
        for (name, attributes), budget in zip(
            [("s", '["sex"]'), ("a", '["age"]'), ("d", '["sex", "age"]')], budgets, strict=True
        )
    )
    return parse_spec(f"""
format = 1
title = "Crossing"
table = {{ name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }}
privacy = {{ unit = "person", neighbours = "add-remove" }}
level = [{{ name = "all" }}, {{ name = "area", column = "area" }}]
attribute = [{{ name = "sex", values = ["f", "m"] }}, {{ name = "age", values = ["a", "b", "c"] }}]
{extra}
{queries}
""")


PLACES = pandas.DataFrame({"area": ["x", "y"]})


@pytest.mark.parametrize("currency", ["rho", "epsilon"])
def test_crossing_tables_are_planned_as_well_as_a_grid(currency):
    """Two crossing tables and their detail: the closed form of histograms, against every division in twentieths."""
    planned = plan_spec(crossing(currency, ("1/3", "1/3", "1/3")), PLACES, weights={"area x sex": 5.0})
    assert planned.levels == ("area x sex", "area x age", "area x sex x age")
    assert sum(planned.budgets) == 1

    def objective(budgets):
        spec = crossing(currency, [str(Fraction(b)) for b in budgets])
        expected = {e.table: e for e in explain(spec, PLACES).expected}
        return sum(w * expected[name].most ** 2 for name, w in zip(planned.levels, (5.0, 1.0, 1.0)))

    grid = [(a, b, 10 - a - b) for a, b in product(range(1, 10), repeat=2) if a + b < 10]
    best = min(objective([Fraction(g, 10) for g in one]) for one in grid)
    assert planned.stats["value"] <= best * (1 + 1e-6)
    if all(planned.budgets):
        assert objective(planned.budgets) == pytest.approx(planned.stats["value"], rel=1e-6)


def test_a_table_that_determines_cells_is_never_left_out():
    planned = plan_spec(crossing("epsilon", ("1/3", "1/3", "1/3")), PLACES, weights={"area x sex x age": 0.0})
    assert planned.budgets[2] > 0
    assert np.isfinite(planned.error).all()


def test_linear_rules_have_no_closed_form():
    rules = '[constraints]\nlinear = ["f <= 3 * m"]'
    with pytest.raises(SpecError, match="no closed form"):
        plan_spec(crossing("rho", ("1/3", "1/3", "1/3"), rules), PLACES)


def test_leaving_a_level_out_can_pay_under_laplace_noise():
    plan = allocate(*tree(51, 60, 4), levels("epsilon", 4), "epsilon", Fraction(1))
    assert 0 in plan.budgets
    even = allocate(*tree(51, 60, 4), levels("rho", 4), "rho", Fraction(1))
    assert 0 not in even.budgets


def test_two_levels_with_one_child_share_in_closed_form():
    """One count measured twice: precision is linear in rho, so the split does not matter."""
    plan = allocate(*tree(1), levels("rho", 2), "rho", Fraction(1, 10))
    alone = scaled(levels("rho", 1)[0].law, Fraction(3, 10)).variance
    np.testing.assert_allclose(np.square(plan.error), alone, rtol=1e-6)


def test_targets_make_the_largest_ratio_least():
    wanted = {"level 0": 3.0, "level 2": 9.0}
    plan = allocate(*tree(4, 3), levels("rho", 3), "rho", Fraction(1), targets=wanted)
    ratios = [MARGIN_90 * plan.error[i] / wanted[f"level {i}"] for i in (0, 2)]
    assert plan.stats["value"] == pytest.approx(max(ratios))
    assert ratios[0] == pytest.approx(ratios[1], rel=0.02)
    assert plan.target == (3.0, None, 9.0)


def test_exact_and_unmeasured_levels_cost_nothing():
    exact = Priced("level 0", law_named("exact")(), Fraction(0))
    silent = Priced("level 1", None, Fraction(0))
    plan = allocate(*tree(4, 3), [exact, silent, levels("rho", 3)[2]], "rho", Fraction(1, 7))
    assert plan.budgets == (0, 0, Fraction(1, 7))
    assert plan.error[0] == 0


@pytest.mark.parametrize("total", [Fraction(1), Fraction(1, 3), Fraction(10**9 + 7, 10**8)])
@pytest.mark.parametrize("grains", [10, 997])
def test_budgets_sum_exactly(total, grains):
    plan = allocate(*tree(3, 3), levels("epsilon", 3), "epsilon", total, grains=grains)
    assert sum(plan.budgets) == total
    assert all((b * grains / total).denominator == 1 for b in plan.budgets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": {"county": 1.0}}, "no level 'county'"),
        ({"weights": {"level 0": -1.0}}, "out of range"),
        ({"targets": {"level 0": 0.0}}, "out of range"),
        ({"targets": {"level 0": float("nan")}}, "out of range"),
        ({"weights": {"level 0": 1.0}, "targets": {"level 0": 1.0}}, "both"),
    ],
)
def test_bad_wishes_are_named(options, message):
    with pytest.raises(SpecError, match=message):
        allocate(*tree(3), levels("rho", 2), "rho", Fraction(1), **options)


def test_laws_of_another_price_are_refused():
    with pytest.raises(SpecError, match="'truncated-geometric' cannot be planned"):
        scaled(law_named("truncated-geometric")(Fraction(1), 5), Fraction(2))
