"""Composition in exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.arrays.losses import epsilon_of
from trueup.errors import PrivacyError, SpecError
from trueup.noise.law import Cost
from trueup.privacy import compose

amounts = st.fractions(min_value=0, max_value=10, max_denominator=10**6)
costs = st.lists(
    st.builds(
        Cost, st.sampled_from(["epsilon", "rho"]), amounts, st.sampled_from([Fraction(0), Fraction(1, 10**9)])
    ),
    max_size=8,
)


def test_ten_tenths_are_one():
    assert compose([Cost("epsilon", Fraction("0.1"))] * 10).epsilon == 1
    assert sum([0.1] * 10) != 1


@pytest.mark.thorough
@given(costs, st.randoms())
def test_composition_is_free_of_order(parts, random):
    shuffled = random.sample(parts, len(parts))
    assert compose(shuffled) == compose(parts)


@pytest.mark.thorough
@given(costs, st.integers(0, 8))
def test_composition_is_free_of_grouping(parts, cut):
    assert compose(parts[:cut]) + compose(parts[cut:]) == compose(parts)


@pytest.mark.thorough
@given(costs)
def test_more_costs_never_lose_less(parts):
    whole, part = compose(parts), compose(parts[1:])
    assert (whole.epsilon, whole.rho, whole.zcdp, whole.delta) >= (
        part.epsilon,
        part.rho,
        part.zcdp,
        part.delta,
    )
    assert whole.zcdp >= part.zcdp
    assert whole.delta >= part.delta


def test_pure_epsilon_converts_part_by_part():
    loss = compose([Cost("epsilon", Fraction(1)), Cost("epsilon", Fraction(1)), Cost("rho", Fraction(1, 4))])
    assert loss.zcdp == Fraction(5, 4)
    assert loss.rho == Fraction(1, 4)


def test_pure_loss_needs_no_delta():
    loss = compose([Cost("epsilon", Fraction(1, 3))] * 2)
    assert loss.at_delta(Fraction(0)) == Fraction(2, 3)


def test_many_small_epsilons_are_cheaper_in_rho():
    loss = compose([Cost("epsilon", Fraction(1, 100))] * 1000)
    assert loss.at_delta(Fraction(1, 10**6)) < loss.epsilon
    assert loss.at_delta(Fraction(1, 10**6)) == epsilon_of(Fraction(1, 20), Fraction(1, 10**6))


def test_mixed_loss_takes_the_smaller_bound():
    pure, zcdp, delta = Fraction(5), Fraction(1, 100), Fraction(1, 10**6)
    loss = compose([Cost("epsilon", pure), Cost("rho", zcdp)])
    assert loss.at_delta(delta) == pure + epsilon_of(zcdp, delta)


def test_deltas_that_were_spent_are_not_available_again():
    loss = compose([Cost("epsilon", Fraction(1), Fraction(1, 10**6)), Cost("rho", Fraction(1))])
    with pytest.raises(PrivacyError, match="not below the requested delta"):
        loss.at_delta(Fraction(1, 10**6))
    assert loss.at_delta(Fraction(2, 10**6)) >= epsilon_of(loss.rho, Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (Cost("epsilon", 0.1), "float"),  # type: ignore[arg-type]
        (Cost("epsilon", True), "bool"),  # type: ignore[arg-type]
        (Cost("epsilon", Fraction(-1)), "negative"),
        (Cost("rho", Fraction(1), Fraction(-1, 2)), "delta of a cost is negative"),
        (Cost("euros", Fraction(1)), "'euros'"),  # type: ignore[arg-type]
        ("1/2", "a str is given"),
    ],
)
def test_bad_costs_are_named(cost, message):
    with pytest.raises(SpecError, match=message):
        compose([cost])
