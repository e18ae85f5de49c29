"""The tree methods through constraints and headers: efficiency, refusals, what their results confess."""

from fractions import Fraction

import numpy as np
import pytest

from trueup.errors import InfeasibleError, SpecError
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.noise.laws.undrawn import Exact
from trueup.reconciling.tree_topdown import TreeEquality, TreeTopDown

LAW = DiscreteLaplace(Fraction(1, 3))
STATE = Margin("state")
COUNTY = Margin("county")
NATION = Margin("nation")
METHODS = [TreeTopDown, TreeEquality]


def cells(counties=(2, 3)) -> Cells:
    states = np.repeat(np.arange(len(counties)), counties).astype(str)
    names = np.concatenate([np.arange(k) for k in counties]).astype(str)
    columns = [{}, {"state": states}, {"county": names}]
    return Cells(Tree.from_columns(["nation", "state", "county"], columns))


def measured(*margins, law=LAW):
    return tuple(Measured("q", margin, law) for margin in margins)


def solve(method, constraints, headers, values):
    state = method.prepare(constraints, headers)
    return method.apply(state, np.array(values), np.random.default_rng(0))


@pytest.mark.parametrize("kind", METHODS)
def test_positive_invariant_over_structural_zeros_is_named(kind):
    sex = Attribute("sex", ("female", "male"))
    place = Cells(cells().tree, (sex,))
    zeros = ({"sex": "female"}, {"sex": "male"})
    constraints = Constraints(place, (COUNTY,), invariants=(STATE,), zeros=zeros)
    headers = (*measured(Margin("county", ("sex",))), Measured("invariant", STATE, Exact()))
    with pytest.raises(InfeasibleError, match="0"):
        solve(kind(), constraints, headers, [1] * 10 + [5, 0])


@pytest.mark.parametrize("kind", METHODS)
def test_contradictory_invariants_are_named(kind):
    constraints = Constraints(cells(), (COUNTY,), invariants=(STATE, NATION))
    exact = (Measured("invariant", STATE, Exact()), Measured("invariant", NATION, Exact()))
    with pytest.raises(InfeasibleError, match="nation"):
        solve(kind(), constraints, (*measured(COUNTY), *exact), [1, 1, 1, 1, 1, 3, 4, 8])


@pytest.mark.parametrize("kind", METHODS)
def test_unmeasured_parts_are_refused_by_name(kind):
    constraints = Constraints(cells(), (NATION, STATE))
    with pytest.raises(SpecError, match="0/1"):
        kind().prepare(constraints, measured(NATION, STATE))


@pytest.mark.parametrize("kind", METHODS)
def test_one_unmeasured_part_follows_by_difference(kind):
    known = Measured("q", COUNTY, LAW, groups=np.array([0, 2, 3, 4]))
    solution = solve(
        kind(), Constraints(cells(), (STATE, COUNTY)), (*measured(STATE), known), [9, 6, 4, 1, 2, 3]
    )
    np.testing.assert_allclose(solution.values, [4, 5, 1, 2, 3])


@pytest.mark.parametrize("kind", METHODS)
def test_structural_zeros_add_no_noise(kind):
    """What is measured in a cell that must be 0 is pure noise and is not listened to."""
    sex = Attribute("sex", ("female", "male"))
    place = Cells(cells().tree, (sex,))
    finest = Margin("county", ("sex",))
    constraints = Constraints(place, (STATE, finest), zeros=({"sex": "male"},))
    values = np.array([20, 30, *[7, 0] * 5])
    noisy = values.copy()
    noisy[3::2] += 9
    first, second = (
        solve(kind(rounding="none"), constraints, measured(STATE, finest), v) for v in (values, noisy)
    )
    np.testing.assert_array_equal(first.values, second.values)
    assert first.values[1::2].max() == 0


def test_bounds_hold_or_are_refused():
    constraints = Constraints(
        cells(), (STATE, COUNTY), bounds=(Bound(STATE, upper=4), Bound(COUNTY, lower=1))
    )
    values = [9, 9, 0, 9, 9, 0, 0]
    counts = solve(TreeTopDown(), constraints, measured(STATE, COUNTY), values).values
    assert counts.min() >= 1
    assert max(counts[:2].sum(), counts[2:].sum()) <= 4
    assert "bounds" in (TreeEquality().refuses(constraints) or "")


def test_equality_refuses_to_release_negative_counts():
    asks = Constraints(cells(), (COUNTY,))
    assert "negative" in (TreeEquality(rounding="controlled").refuses(asks) or "")
    free = Constraints(cells(), (COUNTY,), nonnegative=False)
    assert TreeEquality(rounding="controlled").refuses(free) is None
    counts = solve(TreeEquality(rounding="controlled"), free, measured(COUNTY), [-3, 1, 0, 0, 2]).values
    np.testing.assert_array_equal(counts, [-3, 1, 0, 0, 2])


def test_standard_errors_by_margin():
    """Two parts and their total, all with variance q: by hand, each has 2 q / 3."""
    place = Cells(Tree.from_columns(["all", "part"], [{}, {"part": ["a", "b"]}]))
    margins = (Margin("all"), Margin("part"))
    method = TreeTopDown()
    errors = method.errors(method.prepare(Constraints(place, margins), measured(*margins)))
    q = LAW.variance
    np.testing.assert_allclose(errors[margins[0]], np.sqrt(2 * q / 3))
    np.testing.assert_allclose(errors[margins[1]], np.sqrt(2 * q / 3))
