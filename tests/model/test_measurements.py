"""Headers of measurements: noise that vanishes is none, and says so whoever asks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.conformance.structures import NARROWEST
from trueup.errors import DataError, SpecError
from trueup.io.bundle.manifest import header_in, header_out
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Cells, Margin
from trueup.model.header import VANISHING_VARIANCE, Measured
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, Laplace, law_named


@pytest.mark.parametrize(
    "law",
    [
        DiscreteLaplace(Fraction(250)),
        DiscreteLaplace(Fraction(740)),  # a variance in denormal numbers, whose inverse is infinite
        DiscreteLaplace(Fraction(2000)),  # a variance of 0
        DiscreteGaussian(Fraction(1, 1000)),
        DiscreteGaussian(Fraction(1, 10_000)),
    ],
    ids=str,
)
def test_noise_that_vanishes_is_refused_by_the_query_s_name(law):
    with pytest.raises(SpecError, match=r"'people'.*noise vanishes"):
        Measured("people", Margin("all"), law)


@pytest.mark.parametrize(
    "law", [NARROWEST, DiscreteGaussian(Fraction(1, 400)), Laplace("1"), Gaussian("4"), Exact()]
)
def test_noise_and_invariants_are_taken(law):
    assert Measured("people", Margin("all"), law).law == law


def test_weights_of_the_narrowest_noise_stay_finite():
    assert 1 < NARROWEST.variance / VANISHING_VARIANCE < 10
    assert np.isfinite((1 / VANISHING_VARIANCE) ** 3)


def test_a_joint_law_is_read_without_its_lattice():
    """Its variance is that of a lattice, which a manifest does not hold."""
    header = Measured("people", Margin("all"), law_named("lattice-l2-laplace")("1"))
    assert header_in(header_out(header)).law == header.law


CELLS = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}]))
LAW = DiscreteLaplace(Fraction(1))


@pytest.mark.parametrize(
    ("values", "groups", "said"),
    [
        ([3.0, np.nan, np.nan], None, r"'people' on 'area' are not finite at 'b', as are 1 more"),
        ([3.0, np.inf], [0, 2], r"are not finite at 'c'\. Needed"),
        ([3, 4], None, r"'people' on 'area' have the shape \(2,\)\. Needed: \(3,\)"),
        ([3, 4, 5], [0, 2], r"have the shape \(3,\)\. Needed: \(2,\)"),
        ([[3, 4, 5]], None, r"have the shape \(1, 3\)"),
        (["3", "4", "5"], None, r"are of the type <U1\. Needed: numbers"),
    ],
)
def test_values_that_are_none_or_too_few_are_refused_by_name(values, groups, said):
    header = Measured("people", Margin("area"), LAW, None if groups is None else np.array(groups))
    with pytest.raises(DataError, match=said):
        Measurements(CELLS, (header,), (np.array(values),), PUBLISHED)


def test_a_header_without_values_is_refused():
    header = Measured("people", Margin("all"), LAW)
    with pytest.raises(DataError, match="2 headers and 1 arrays"):
        Measurements(CELLS, (header, header), (np.array([3]),), PUBLISHED)


def test_values_may_be_fractions_where_they_are_finite():
    header = Measured("people", Margin("area"), Gaussian("4"))
    assert Measurements(CELLS, (header,), (np.array([1.5, -2.25, 0.0]),), PUBLISHED).flat.sum() == -0.75
