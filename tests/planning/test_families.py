"""Plans of several tables: errors are those of the family's least squares, and planned budgets meet what is asked."""

from __future__ import annotations

import numpy as np
import pytest

import trueup as tu
from tests.families import CLINICS, ministry, random_family, random_ring
from trueup.errors import SpecError
from trueup.model.constraints import Constraints
from trueup.model.problem import Problem
from trueup.planning.expected import Expected
from trueup.planning.task import PlanningTask
from trueup.reconciling.family_tree import FamilyTree

TARGETS = {"clinic": "20@95%", "district x sex": "15@95%", "region x diagnosis": "30@95%"}


@pytest.mark.thorough
@pytest.mark.parametrize("draw", [random_family, random_ring])
def test_errors_are_those_of_least_squares_of_the_family(draw, rng):
    for _ in range(20):
        cells, headers = draw(rng)
        margins = [h.margin for h in headers]
        expected = Expected.of(cells, margins, [*cells.tables, *cells.separators])
        wanted = list(dict.fromkeys([*margins, *cells.separators]))
        mean, largest = expected.errors(np.array([1 / h.law.variance for h in headers]), wanted)
        method = FamilyTree()
        errors = method.errors(method.prepare(Constraints(cells, tuple(margins)), headers))
        squares = [errors[margin] ** 2 for margin in wanted]
        np.testing.assert_allclose(mean, [each.mean() for each in squares], rtol=1e-5)
        np.testing.assert_allclose(largest, [each.max() for each in squares], rtol=1e-5)


@pytest.mark.thorough
def test_a_ministry_is_planned(tmp_path):
    """Targets are met for less than even budgets take, and the planned spec has the errors that the plan states."""
    problem = Problem.of(ministry(), CLINICS)
    planned = tu.plan(problem, targets=TARGETS)
    assert "3 of 3 targets met" in repr(planned)
    assert planned.total < problem.guarantee.amount
    task = PlanningTask.of(planned.spec, CLINICS, TARGETS, None, "equal")
    method = FamilyTree()
    made = task.problem
    errors = method.errors(method.prepare(made.constraints, made.headers))
    variances = dict(zip(task.tables, task.given_errors[1]))
    for margin in made.cells.tables:
        assert variances[margin] == pytest.approx(errors[margin].max() ** 2, rel=1e-6)


def test_a_table_that_no_query_holds_is_no_target():
    with pytest.raises(SpecError, match="no measured table determines 'clinic x sex'"):
        tu.plan(Problem.of(ministry(), CLINICS), targets={"clinic x sex": "40@95%"})
