"""Privacy-loss distributions never claim more than exact accounting, and less where they can."""

from fractions import Fraction

import numpy as np
import pytest

from trueup.errors import SpecError
from trueup.noise import law_named
from trueup.noise.cost import Sensitivity
from trueup.privacy.accountant import compose
from trueup.privacy.tighter import LossPart, tighter_epsilon

DELTA = Fraction(1, 10**6)


def exact(parts):
    """The same composition by exact accounting."""
    loss = compose(p.law.cost(Sensitivity.of(p.cells, p.each)) for p in parts)
    return float(loss.at_delta(DELTA))


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("sigma2", [2, 50])
def test_gaussian_composition_is_tighter(sigma2, cells):
    parts = [LossPart(law_named("discrete-gaussian")(Fraction(sigma2)), cells)] * 4
    assert 0.5 * exact(parts) < tighter_epsilon(parts, float(DELTA)) < exact(parts)


def test_many_small_laplace_releases_are_tighter():
    parts = [LossPart(law_named("discrete-laplace")(Fraction(1, 20)), 1)] * 200
    assert tighter_epsilon(parts, float(DELTA)) < exact(parts) < 10


def test_few_large_laplace_releases_gain_little():
    parts = [LossPart(law_named("discrete-laplace")(Fraction(1, 5)), 1)] * 5
    assert tighter_epsilon(parts, 1e-10) == pytest.approx(1, abs=2e-3)


def test_one_count_agrees_with_the_masses():
    """For one count delta(epsilon) is a sum over the masses of two shifted laws."""
    law = law_named("discrete-gaussian")(Fraction(4))
    epsilon = tighter_epsilon([LossPart(law, 1)], float(DELTA))
    noise = np.arange(-80, 81)
    here, there = np.exp(law.logpmf(noise)), np.exp(law.logpmf(noise - 1))
    assert np.maximum(here - np.exp(epsilon) * there, 0).sum() <= float(DELTA) * (1 + 1e-9)
    assert np.maximum(here - np.exp(epsilon - 5e-4) * there, 0).sum() > float(DELTA)


@pytest.mark.parametrize(
    ("parts", "delta", "message"),
    [
        ([], 1e-6, "nothing is composed"),
        ([LossPart(law_named("discrete-laplace")(Fraction(1)), 1)], 0.0, "between zero and one"),
        (
            [LossPart(law_named("truncated-geometric")(Fraction(1), 5), 1)],
            1e-6,
            "no privacy-loss distribution",
        ),
    ],
)
def test_what_cannot_be_composed_is_named(parts, delta, message):
    with pytest.raises(SpecError, match=message):
        tighter_epsilon(parts, delta)
