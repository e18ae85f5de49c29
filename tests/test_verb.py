"""Verbs are functions that say which record they take; a record knows its spec, a problem what follows from it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import pickle
import pkgutil

import numpy as np
import pandas
import pytest

import trueup
from tests.areas import SPEC, TABLE
from trueup import Margin
from trueup.errors import SpecError, TrueupError

COUNTIES = pandas.read_csv(io.StringIO(TABLE), dtype={"state": str, "county": str})


def cells_of(spec):
    return trueup.Problem.of(spec, COUNTIES).cells


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda spec: trueup.measure(7, None), "a int is given as the spec.*a Problem.*load_spec"),
        (lambda spec: trueup.measure("absent.toml", None), "cannot read the spec 'absent.toml'"),
        (
            lambda spec: trueup.reconcile(spec),
            "given a Spec as measurements.*record: Measurements.*read_measurements",
        ),
        (lambda spec: trueup.infer(3), "given a int as source.*Measurements or Release"),
        (lambda spec: trueup.infer(None), "given a NoneType as source.*Measurements or Release"),
        (lambda spec: trueup.infer([]), "no measurements are given"),
        (lambda spec: trueup.infer([3]), "a int is given among the measurements"),
        (lambda spec: trueup.assess({}, None), "a dict is given as the spec"),
        (
            lambda spec: trueup.simulate(cells_of(spec), [1], (), None, None),
            "given a Cells as problem.*Problem.of",
        ),
    ],
)
def test_what_is_not_the_record_is_refused_by_name(call, said):
    with pytest.raises(TrueupError, match=said):
        call(trueup.parse_spec(SPEC))


FUNCTIONS = [name for name in trueup.__all__ if inspect.isfunction(getattr(trueup, name))]


def test_the_package_names_its_verbs():
    verbs = {"measure", "reconcile", "infer", "assess", "report", "explain", "plan", "release", "check"}
    assert verbs <= set(FUNCTIONS)
    assert dir(trueup) == trueup.__all__


def test_editors_are_told_where_every_public_name_lives():
    """They do not run the package: what they complete stands in its imports for type checkers."""
    told = {
        alias.asname: (node.module, alias.name)
        for node in ast.walk(ast.parse(inspect.getsource(trueup)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name in set(trueup.__all__) - {"__version__"}:
        module, called = told[name]
        assert pkgutil.resolve_name(f"{module}:{called}") is getattr(trueup, name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_can_be_pickled_and_read(name):
    function = getattr(trueup, name)
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__name__ == name, "`help` shows the name that users know"
    assert inspect.signature(function).parameters
    assert ">>>" in function.__doc__


def test_a_record_knows_its_spec():
    spec = trueup.parse_spec(SPEC)
    noisy = trueup.measure(trueup.Problem.of(spec, COUNTIES), COUNTIES)
    released = trueup.reconcile(noisy)
    assert (trueup.reconcile(noisy, spec=spec).counts == released.counts).all()
    posterior = trueup.infer(noisy, spec=spec, draws=20)
    assert (posterior.draws == trueup.infer(released, draws=20).draws).all()
    with pytest.raises(SpecError, match="without their spec"):
        trueup.reconcile(dataclasses.replace(noisy, spec=None))


@pytest.mark.thorough
def test_every_record_knows_its_problem_and_nothing_is_built_twice():
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES)
    noisy = trueup.measure(problem, COUNTIES)
    released = trueup.reconcile(noisy)
    assert noisy.problem is problem
    assert released.problem is problem
    assert released.expects.constraints is problem.constraints
    assert trueup.infer(noisy, draws=20).problem.spec is problem.spec
    assert trueup.assess(problem, COUNTIES, replicates=40, public_truth=True).problem.spec is problem.spec
    planned = trueup.plan(problem, targets=["county=20"])
    assert planned.problem is problem
    assert trueup.planned_spec(problem, planned) == trueup.planned_spec(problem.spec, planned)
    assert "Areas" in trueup.report(planned)
    assert dataclasses.replace(noisy, spec=None).problem is None


def test_a_record_that_was_pickled_knows_its_problem_but_not_the_rows_that_were_expected():
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES, rows=3)
    noisy = pickle.loads(pickle.dumps(trueup.measure(problem, COUNTIES)))
    assert noisy.problem.rows is None
    assert noisy.problem.spec == problem.spec
    again = pickle.loads(pickle.dumps(trueup.reconcile(noisy)))
    assert (trueup.reconcile(again.measurements).counts == again.counts).all()


def test_another_spec_or_problem_of_the_same_cells_replaces_the_record_s_own():
    noisy = trueup.measure(trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES), COUNTIES)
    other = trueup.parse_spec(SPEC + 'reconcile = { method = "multinomial-mode" }')
    for given in (other, trueup.Problem.of(other, COUNTIES)):
        assert trueup.reconcile(noisy, spec=given).method["method"] == "multinomial-mode"
        assert trueup.infer(noisy, spec=given, draws=20).spec is other


def test_a_problem_settles_each_thing_once():
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES)
    assert problem.constraints is problem.constraints
    assert problem.headers is problem.headers
    assert trueup.Problem.of(problem) is problem
    assert len(repr(problem).splitlines()) == 3
    assert "30" not in problem._repr_html_() + repr(problem)  # a count of the table


ALONE = """
format = 2
title = "Two counties, measured one by one"
table = { name = "alone", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }]
query = [{ name = "total", epsilon = { county = "1/2" } }]
infer = { prior = "flat" }
"""


def masses(posterior, x):
    """Return the posterior probability of each count at each county."""
    exact = posterior.drawn.marginals[Margin("county")]
    found = np.zeros((2, len(x)))
    for row, (begin, end, low) in enumerate(zip(exact.start, exact.start[1:], exact.offset)):
        held = exact.masses[begin:end]
        inside = (low + np.arange(len(held)) >= x[0]) & (low + np.arange(len(held)) <= x[-1])
        found[row, low + np.flatnonzero(inside) - x[0]] = held[inside]
    return found


def test_several_measurements_of_the_same_counts_weigh_in_one_posterior():
    # Counts that are measured by themselves, flat prior: the masses of all are the product of the masses of each.
    alone = trueup.parse_spec(ALONE)
    counts = pandas.DataFrame({"county": ["a", "b"], "n": [3, 40]})
    drawn = [trueup.measure(alone, counts) for _ in range(20)]
    several = list({each.values[0].tobytes(): each for each in drawn}.values())[:3]  # no two alike
    x = np.arange(200)
    product = np.prod([masses(trueup.infer(each, draws=20), x) for each in several], axis=0)
    product /= product.sum(axis=1, keepdims=True)
    assert masses(trueup.infer(several, draws=20), x) == pytest.approx(product, abs=1e-7)
    assert masses(trueup.infer(several[:2], draws=20), x) != pytest.approx(product, abs=1e-7)
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES)
    several = [trueup.measure(problem, COUNTIES)]
    other = trueup.parse_spec(SPEC.replace("county", "district"))
    with pytest.raises(SpecError, match="have different"):
        trueup.infer([several[0], trueup.measure(other, COUNTIES.rename(columns={"county": "district"}))])
    with pytest.raises(SpecError, match="given twice"):
        trueup.infer([several[0], several[0]])


def test_margins_methods_and_levels_are_accepted_as_text():
    problem = trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES)
    noisy = trueup.measure(problem, COUNTIES)
    posterior = trueup.infer(noisy, "tree-exact", level="80%", draws=20)
    by_margin = posterior.summary(trueup.Margin("county"), 0.8)
    assert all((posterior.summary("county")[name] == by_margin[name]).all() for name in ("low", "high"))
    with pytest.raises(SpecError, match="no level 'country'"):
        posterior.summary("country")
    with pytest.raises(SpecError, match="level 90 is not a probability"):
        trueup.infer(noisy, level=90)
    with pytest.raises(SpecError, match="did you mean 'tree-exact'"):
        trueup.infer(noisy, "tree-exakt")


def test_text_serves_wherever_a_list_a_level_or_a_margin_is_meant():
    world = {"replicates": 40, "public_truth": True}
    one = trueup.assess(
        trueup.parse_spec(SPEC),
        COUNTIES,
        methods="multinomial-mode",
        intervals="noise",
        budgets="1/2",
        level="95%",
        **world,
    )
    assert [method.label for method in one.methods] == ["multinomial-mode"]
    assert one.intervals == {"noise": 0.95}
    with pytest.raises(SpecError, match="comparator 'swap' is unknown"):
        trueup.assess(trueup.parse_spec(SPEC), COUNTIES, comparators="swap", **world)
    with pytest.raises(SpecError, match="the interval level 95 is not a probability"):
        trueup.assess(trueup.parse_spec(SPEC), COUNTIES, level=95, **world)


def test_measurements_are_shown_in_three_lines_without_a_count():
    noisy = trueup.measure(trueup.Problem.of(trueup.parse_spec(SPEC), COUNTIES), COUNTIES)
    shown = repr(noisy)
    assert len(shown.splitlines()) == 3
    assert "Measurements: Areas" in shown
    assert "array" not in shown + noisy._repr_html_()
