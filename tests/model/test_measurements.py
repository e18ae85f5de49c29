"""Headers of measurements: noise that vanishes is none, and says so whoever asks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.conformance.structures import NARROWEST
from trueup.errors import SpecError
from trueup.io.bundle.manifest import header_in, header_out
from trueup.model.cells import Margin
from trueup.model.header import VANISHING, Measured
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
    assert 1 < NARROWEST.variance / VANISHING < 10
    assert np.isfinite((1 / VANISHING) ** 3)


def test_a_joint_law_is_read_without_its_lattice():
    """Its variance is that of a lattice, which a manifest does not hold."""
    header = Measured("people", Margin("all"), law_named("lattice-l2-laplace")("1"))
    assert header_in(header_out(header)).law == header.law
