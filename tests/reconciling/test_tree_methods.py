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
from trueup.noise.laws.exact import Exact
from trueup.reconciling.topdown_raw import TopDownRaw
from trueup.reconciling.tree_equality import TreeEquality
from trueup.reconciling.tree_integer import TreeInteger
from trueup.reconciling.tree_nonnegative import TreeNonnegative
from trueup.reconciling.tree_topdown import TreeTopDown

LAW = DiscreteLaplace(Fraction(1, 3))
STATE = Margin("state")
COUNTY = Margin("county")
NATION = Margin("nation")
METHODS = [TreeTopDown, TopDownRaw, TreeEquality, TreeNonnegative, TreeInteger]


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


@pytest.mark.parametrize("kind", [TreeTopDown, TreeEquality, TreeNonnegative])
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
    for kind in (TreeTopDown, TopDownRaw, TreeInteger):
        counts = solve(kind(), constraints, measured(STATE, COUNTY), values).values
        assert counts.min() >= 1
        assert max(counts[:2].sum(), counts[2:].sum()) <= 4
    assert "bounds" in (TreeEquality().refuses(constraints) or "")
    assert "bounds" in (TreeNonnegative().refuses(constraints) or "")


def test_equality_refuses_to_release_negative_counts():
    asks = Constraints(cells(), (COUNTY,))
    assert "negative" in (TreeEquality(rounding="controlled").refuses(asks) or "")
    free = Constraints(cells(), (COUNTY,), nonnegative=False)
    assert TreeEquality(rounding="controlled").refuses(free) is None
    counts = solve(TreeEquality(rounding="controlled"), free, measured(COUNTY), [-3, 1, 0, 0, 2]).values
    np.testing.assert_array_equal(counts, [-3, 1, 0, 0, 2])


def test_absolute_differences_want_one_measurement_each():
    twice = (*measured(COUNTY), *measured(COUNTY))
    with pytest.raises(SpecError, match="several queries"):
        TreeInteger("absolute").prepare(Constraints(cells(), (COUNTY,)), twice)
    TreeInteger("squares").prepare(Constraints(cells(), (COUNTY,)), twice)


@pytest.mark.parametrize("loss", ["squares", "absolute"])
def test_integer_optimum_beats_rounding_and_says_so(loss, rng):
    constraints, headers = (
        Constraints(cells((4, 7, 2)), (NATION, STATE, COUNTY)),
        measured(NATION, STATE, COUNTY),
    )
    for _ in range(20):
        values = rng.integers(-6, 12, 17)
        optimum = solve(TreeInteger(loss), constraints, headers, values)
        other = solve(TreeNonnegative(), constraints, headers, values).values
        assert optimum.stats["best remaining move"] < 1e-9
        assert distance(optimum.values, values, loss) <= distance(other, values, loss) + 1e-9


def distance(counts, values, loss):
    totals = np.concatenate([[counts.sum()], np.add.reduceat(counts, [0, 4, 11]), counts])
    return np.sum((totals - values) ** 2) if loss == "squares" else np.sum(abs(totals - values))


def test_projected_discrete_laplace_spreads_the_residual_and_no_more(rng):
    """Under an exact total and no signs, the least absolute change is the residual itself, all one way."""
    constraints = Constraints(cells((4, 7, 2)), (COUNTY,), invariants=(NATION,), nonnegative=False)
    headers = (*measured(COUNTY), Measured("invariant", NATION, Exact()))
    for _ in range(20):
        noisy = rng.integers(-6, 12, 13)
        solution = solve(TreeInteger("absolute"), constraints, headers, [*noisy, 40])
        moved = solution.values - noisy
        assert solution.values.sum() == 40
        assert abs(moved).sum() == abs(40 - noisy.sum())
        assert solution.stats["best remaining move"] == 0


def test_the_mode_is_not_the_total():
    """A warning made visible: the continuous total is 225, the nearest integers are all 0.

    One count in a part costs 1/q there and gains less than 899/(900 q) at the total, so no part takes one.
    """
    place = Cells(Tree.from_columns(["all", "part"], [{}, {"part": np.arange(900).astype(str)}]))
    margins = (Margin("all"), Margin("part"))
    laws = (DiscreteLaplace(Fraction(1, 300)), DiscreteLaplace(Fraction(1, 10)))
    headers = tuple(Measured("q", margin, law) for margin, law in zip(margins, laws))
    values = np.array([450] + [0] * 900)
    continuous = solve(TreeTopDown("none"), Constraints(place, margins), headers, values).values.sum()
    assert round(continuous) == 225
    assert solve(TreeInteger(), Constraints(place, margins), headers, values).values.sum() == 0


def test_nonnegative_reports_its_optimality(rng):
    constraints, headers = (
        Constraints(cells((4, 7, 2)), (NATION, STATE, COUNTY)),
        measured(NATION, STATE, COUNTY),
    )
    stats = solve(TreeNonnegative(), constraints, headers, rng.integers(-6, 12, 17)).stats
    assert stats["optimality gap"] < 1e-9
    assert stats["passes"] >= 1


def test_standard_errors_by_margin():
    """Two parts and their total, all with variance q: by hand, each has 2 q / 3."""
    place = Cells(Tree.from_columns(["all", "part"], [{}, {"part": ["a", "b"]}]))
    margins = (Margin("all"), Margin("part"))
    method = TreeTopDown()
    errors = method.errors(method.prepare(Constraints(place, margins), measured(*margins)))
    q = LAW.variance
    np.testing.assert_allclose(errors[margins[0]], np.sqrt(2 * q / 3))
    np.testing.assert_allclose(errors[margins[1]], np.sqrt(2 * q / 3))
