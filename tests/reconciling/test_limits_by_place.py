"""Limits from a public column in every structure that keeps bounds, lower and upper ones."""

import numpy as np
import pandas
import pytest

import trueup
from trueup.model.build import build_constraints
from trueup.model.constraints import violations
from trueup.model.spec import parse_spec
from trueup.reconciling import METHODS, choose, misfit
from trueup.reporting.sections.origin import stated_rules

TREE = """
format = 2
title = "Limits"
table = { name = "demo", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", levels = ["all", "area"], epsilon = "1/20" }]
constraints = { bounds = [{ level = "area", lower = "least", upper = "most" }] }
"""
LINEAR = """
format = 2
title = "Limits"
table = { name = "demo", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "sex", attributes = ["sex"], levels = ["all", "area"], epsilon = "1/20" }]

[constraints]
linear = ["f <= 2 * m + 9"]
bounds = [{ level = "area", attributes = ["sex"], where = { sex = "f" }, lower = "least", upper = "most" }]
"""
AREAS = pandas.DataFrame({"area": list("dcba"), "least": [5, np.nan, 2, 0], "most": [6, 3, np.nan, 1]})
PEOPLE = pandas.DataFrame({"area": list("abcd"), "n": [1, 9, 0, 6]})
BY_SEX = pandas.DataFrame({"area": list("aabbccdd"), "sex": ["f", "m"] * 4, "n": [1, 2, 9, 9, 0, 3, 6, 1]})


def fitting(spec, cells):
    """Every method of whole numbers that keeps the constraints."""
    constraints = build_constraints(spec, cells)
    return [m for m in (kind() for kind in METHODS) if m.integer and misfit(m, constraints) is None]


@pytest.mark.parametrize(("text", "people"), [(TREE, PEOPLE), (LINEAR, BY_SEX)], ids=["tree", "linear"])
def test_every_method_that_takes_bounds_keeps_those_by_place(text, people):
    spec = parse_spec(text)
    noisy = trueup.measure(spec, people, geography=AREAS)
    constraints = build_constraints(spec, noisy.cells)
    lower, upper = constraints.bound_values(constraints.bounds[0])
    each = lower.size // 4
    assert lower[::each].tolist() == [0, 2, -np.inf, 5]
    assert upper[::each].tolist() == [1, np.inf, 3, 6]
    found = fitting(spec, noisy.cells)
    assert found
    for method in (choose({}, constraints), *found):
        assert not violations(constraints, trueup.reconcile(noisy, method, spec=spec).counts), method.name


def test_the_posterior_is_inside_the_limits():
    spec = parse_spec(TREE)
    draws = trueup.infer(trueup.measure(spec, PEOPLE, geography=AREAS), spec=spec).draws
    assert (draws >= [0, 2, 0, 5]).all()
    assert (draws <= [1, np.inf, 3, 6]).all()


def test_the_report_says_where_limits_come_from():
    said = list(stated_rules(parse_spec(TREE).constraints))
    assert (
        said[-1] == "each area is at least the place's least (public) and at most the place's most (public)"
    )
