"""Sensitivities from contribution bounds, against enumerated neighbours."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.errors import SpecError
from trueup.noise.law import Sensitivity
from trueup.privacy.contribution import Contribution

bounds = st.builds(Contribution, st.integers(1, 50), st.integers(1, 50)) | st.just(Contribution.partition())


@given(bounds, st.integers(1, 200))
def test_replace_is_at_most_twice_add_remove(bound, cells):
    once = bound.sensitivity("add-remove", cells=cells)
    other = bound.sensitivity("replace", cells=cells)
    assert other.l1 <= 2 * once.l1
    assert other.l2_squared <= 2 * once.l2_squared


def test_replace_is_free_on_a_total_that_is_fixed():
    free = Sensitivity(Fraction(0), Fraction(0))
    assert Contribution.partition().sensitivity("replace", cells=1) == free
    assert Contribution.partition().sensitivity("add-remove", cells=1) != free
    assert Contribution(1, 10).sensitivity("replace", cells=1) == Sensitivity(Fraction(10), Fraction(100))


def contributions(cells, bound):
    """Every vector a unit can contribute."""
    if bound.exact:
        return [tuple(int(i == j) for j in range(cells)) for i in range(cells)]
    every = itertools.product(range(bound.each + 1), repeat=cells)
    return [v for v in every if sum(map(bool, v)) <= bound.cells]


@pytest.mark.parametrize("cells", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "bound", [Contribution.partition(), Contribution(1, 2), Contribution(2, 1), Contribution(2, 2)]
)
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_bounds_are_those_of_the_worst_neighbours(cells, bound, relation):
    units = contributions(cells, bound)
    before = [(0,) * cells] if relation == "add-remove" else units
    apart = [[abs(a - b) for a, b in zip(u, v)] for u in units for v in before]
    stated = bound.sensitivity(relation, cells=cells)
    assert stated.l1 == max(map(sum, apart))
    assert stated.l2_squared == max(sum(d * d for d in one) for one in apart)


def test_a_query_whose_counts_are_all_shared_costs_nothing():
    assert Contribution(3, 10).sensitivity("add-remove", cells=0) == Sensitivity(Fraction(0), Fraction(0))


def test_relations_are_named():
    with pytest.raises(SpecError, match="did you mean 'replace'"):
        Contribution.partition().sensitivity("replaces", cells=3)  # type: ignore[arg-type]
