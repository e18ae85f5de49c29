"""What a plan says of itself, broken on purpose: a cheaper plan, a wrong certificate and a missed target are seen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.planning.wishes import BUDGETS, WISHES, coverage, places, spec_of
from trueup.errors import ConvergenceError
from trueup.planning.optimum import Limits
from trueup.planning.plan import plan
from trueup.planning.task import PlanningTask


def test_a_budget_two_per_mille_below_the_least_misses_a_target():
    spec, geography = spec_of("rho", BUDGETS), places(1, 4)
    least = plan(spec, geography, targets=WISHES)
    below = plan(spec, geography, targets=WISHES, total=least.total * Fraction(998, 1000))
    assert max(r.ratio for r in least.targets) <= 1 < max(r.ratio for r in below.targets)


def test_slopes_that_are_wrong_are_no_certificate():
    """Inequalities from slopes 1 % too small would prove a least budget above the true one."""
    task = PlanningTask.of(spec_of("rho", BUDGETS), places(1, 4), WISHES, None, "equal")
    right = task.limits(np.full(len(WISHES), 1.96))

    def wrong(p):
        shares, slopes = right.evaluate(p)
        return shares, 0.99 * slopes

    assert right.least(task.prices.price).gap < 1e-4
    with pytest.raises(ConvergenceError, match="accuracy"):
        Limits(wrong, task.floor).least(task.prices.price)


def test_a_plan_that_is_a_tenth_too_cheap_covers_too_little(rng):
    """The test of realised errors sees it: 40,000 draws put 95 % more than ten standard errors away."""
    spec, geography = spec_of("rho", {"total": {"area": "1/3"}, "d": {"block": "1/3"}}), places(2, 2)
    wishes = ["area=10@95%", "block x sex=12@90%"]
    least = plan(spec, geography, targets=wishes)
    cheap = plan(spec, geography, targets=wishes, total=least.total * Fraction(9, 10))
    for target, inside in coverage(spec, geography, cheap, rng, 40_000):
        assert inside < 40_000 * (target.confidence / 100 - 0.004)
