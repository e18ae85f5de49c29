"""The exact loss of a release: which parts it knows, and that it is never above the sum of their costs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trueup.errors import PrivacyError
from trueup.kernel.lattice.structure import Lattice
from trueup.noise import DiscreteGaussian, DiscreteLaplace, law_named
from trueup.noise.lattice import LatticeGaussian, LatticeLaplace
from trueup.privacy import NoisePart, compose, tight_epsilon
from trueup.privacy.contribution import Contribution, Records

DELTA = Fraction(1, 10**6)
GAUSSIAN, LAPLACE = DiscreteGaussian("9"), DiscreteLaplace("1/20")


def summed(parts):
    return compose(part.cost for part in parts).at_delta(DELTA)


@pytest.mark.parametrize(
    "parts",
    [
        [NoisePart.of(GAUSSIAN, 2, 1)] * 4,
        [NoisePart.of(LAPLACE, 1, 1)] * 300,
        [NoisePart.of(LAPLACE, 2, 3)] * 40 + [NoisePart.of(GAUSSIAN, 1, 2)],
        [NoisePart.of(law_named("truncated-geometric")(Fraction(1, 2), 60), 1, 1)] * 3
        + [NoisePart.of(GAUSSIAN, 1, 1)],
    ],
    ids=["normal", "laplace", "both", "truncated"],
)
def test_the_exact_loss_is_less_than_that_of_the_sums(parts):
    assert 0 < tight_epsilon(parts, DELTA) < Fraction(99, 100) * summed(parts)
    assert tight_epsilon(parts[::-1], DELTA) == tight_epsilon(parts, DELTA)


def test_one_count_of_pure_noise_has_its_epsilon():
    assert (
        0
        <= Fraction(1, 20) - tight_epsilon([NoisePart.of(LAPLACE, 1, 1)], Fraction(1, 10**12))
        < Fraction(1, 10**9)
    )


def test_records_of_one_unit_in_many_counts_have_a_price_alone():
    """Under Laplace noise that of the randomised response; under normal noise that of rho."""
    many = Records(3)
    pure = [NoisePart.reached(LAPLACE, many, "add-remove", cells=9)] * 30
    assert not pure[0].cells
    spread = [NoisePart.of(LAPLACE, 3, 1)] * 30
    assert tight_epsilon(spread, DELTA) < tight_epsilon(pure, DELTA) < summed(pure)
    normal = [NoisePart.reached(GAUSSIAN, many, "replace", cells=9)] * 5
    assert tight_epsilon(normal, DELTA) == summed(normal)
    of_one_count = [NoisePart.reached(GAUSSIAN, many, "replace", cells=1)]
    assert of_one_count == [NoisePart.of(GAUSSIAN, 1, 3)]
    assert tight_epsilon(of_one_count, DELTA) < summed(of_one_count)


def test_noise_on_a_lattice_has_a_price_alone():
    lattice, reach = Lattice.of(3, [[1, 1, 1]]), Contribution.partition()
    laplace = [NoisePart.reached(LatticeLaplace("1/40").on(lattice), reach, "replace", cells=3)] * 60
    assert tight_epsilon(laplace, DELTA) < summed(laplace)
    gaussian = [NoisePart.reached(LatticeGaussian("30").on(lattice), reach, "replace", cells=3)]
    assert tight_epsilon(gaussian, DELTA) == summed(gaussian)


def test_counts_that_do_not_move_cost_nothing():
    held = NoisePart.reached(GAUSSIAN, Contribution.partition(), "replace", cells=1)
    assert held.cost.amount == 0
    assert tight_epsilon([held, NoisePart.of(GAUSSIAN, 1, 1)], DELTA) == tight_epsilon(
        [NoisePart.of(GAUSSIAN, 1, 1)], DELTA
    )


def test_a_delta_that_is_used_up_is_refused():
    part = NoisePart.of(law_named("truncated-geometric")(Fraction(1), 5), 1, 1)
    with pytest.raises(PrivacyError, match="not below the requested delta"):
        tight_epsilon([part, NoisePart.of(GAUSSIAN, 1, 1)], part.cost.delta)


def test_two_counts_of_one_unit_lose_what_their_joint_law_says():
    """Summed over both noises: a unit that moves one count up and another down."""
    noise = np.arange(-40, 41)
    mass = {shift: np.exp(GAUSSIAN.logpmf(noise - shift)) for shift in (-1, 0, 1)}
    here, there = np.multiply.outer(mass[0], mass[0]), np.multiply.outer(mass[1], mass[-1])
    epsilon = float(tight_epsilon([NoisePart.of(GAUSSIAN, 2, 1)], DELTA))
    deltas = [np.maximum(here - np.exp(e) * there, 0).sum() for e in (epsilon, epsilon * (1 - 1e-6))]
    assert deltas[0] <= float(DELTA) * (1 + 1e-9)
    assert deltas[1] > float(DELTA)
