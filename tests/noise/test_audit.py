"""The audit passes the samplers and refutes wrong ones, for each of its three reasons."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from trueup.errors import SpecError
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Exact, Gaussian, TruncatedGeometric
from trueup.noise.audit import audit, check_first_words, claimed_epsilon
from trueup.noise.samplers import UNDECIDED

DRAWS = 1_000_000


@pytest.mark.parametrize(
    ("law", "least"),
    [
        (DiscreteLaplace("1"), 0.97),
        (DiscreteLaplace("1/10"), 0.07),
        (DiscreteLaplace("5"), 4.8),
        (DiscreteLaplace("1/1000"), 0.0),
        (DiscreteGaussian("1"), 2.2),
        (DiscreteGaussian("100"), 0.06),
        (DiscreteGaussian("20000000"), 0.0),
        (TruncatedGeometric("1/10", 20), 0.07),
    ],
    ids=str,
)
def test_samplers_pass_and_the_bound_is_close(law, least, rng):
    found = audit(law, DRAWS, rng.bytes)
    assert found.passed
    assert least <= found.epsilon_at_least <= found.epsilon_claimed
    assert found.first_words.wrong == 0
    assert found.first_words.cells >= 65536


class NarrowerThanClaimed(DiscreteLaplace):
    """Claims epsilon 1 and draws with 1.1, as a library once did for two years."""

    def sample(self, size, words):
        return DiscreteLaplace("1.1").sample(size, words)


class Skewed(DiscreteLaplace):
    """Moves every fiftieth draw of 3 to 2: no tail event shows it, an adjacent ratio does."""

    def sample(self, size, words):
        noise = super().sample(size, words)
        threes = np.flatnonzero(noise == 3)
        noise[threes[::5]] = 2
        return noise


def test_a_scale_below_the_claim_is_refuted_by_the_bound(rng):
    found = audit(NarrowerThanClaimed("1"), DRAWS, rng.bytes)
    assert found.epsilon_at_least > found.epsilon_claimed
    assert not found.passed


def test_a_wrong_mass_is_refuted_by_its_log_ratios(rng):
    found = audit(Skewed("1"), DRAWS, rng.bytes)
    assert found.log_ratio_p < 1e-6
    assert not found.passed
    assert found.largest_deviation is not None
    assert found.largest_deviation.noise in (2, 3)


def test_one_wrong_cell_of_a_table_is_found(monkeypatch):
    law = DiscreteLaplace("3/4")
    table = law.sampler.first
    lookup = table.lookup.copy()
    cell = np.flatnonzero(lookup != UNDECIDED)[1234]
    lookup[cell] += 1
    monkeypatch.setitem(table.__dict__, "lookup", lookup)
    assert check_first_words(law).wrong == 1


def test_the_claim_of_a_gaussian_is_its_privacy_curve():
    """At delta, log((F(k) - delta) / F(k - 1)) is reached, and no event does better."""
    law, delta = DiscreteGaussian("4"), 1e-3
    epsilon = claimed_epsilon(law, delta)
    k = np.arange(-80, 81)
    profile = np.sum(np.maximum(law.pmf(k) - np.exp(epsilon) * law.pmf(k - 1), 0))
    assert profile == pytest.approx(delta, rel=1e-9)
    assert claimed_epsilon(DiscreteLaplace("1"), 0) == pytest.approx(1)


@pytest.mark.parametrize("law", [Exact(), Gaussian("1")])
def test_laws_without_draws_are_refused(law, rng):
    with pytest.raises(SpecError, match="cannot be drawn"):
        audit(law, DRAWS, rng.bytes)


def test_options_out_of_range_are_refused(rng):
    for wrong in ({"delta": 1.0}, {"delta": -0.1}, {"confidence": 1.0}, {"confidence": 0.1}):
        with pytest.raises(SpecError, match=f"{next(iter(wrong))} is {next(iter(wrong.values()))}"):
            audit(DiscreteLaplace(1), DRAWS, rng.bytes, **wrong)
    with pytest.raises(SpecError, match="at least"):
        audit(DiscreteLaplace(1), 999, rng.bytes)


def test_the_command_prints_a_table_or_json():
    from typer.testing import CliRunner

    from trueup.cli import whole_app

    app = whole_app("audit")
    run = CliRunner().invoke
    shown = run(app, ["audit", "discrete-laplace:epsilon=1", "--draws", "100000"])
    assert shown.exit_code == 0
    assert "Nothing refutes the claim" in shown.output
    options = ["--draws", "100000", "--json"]
    found = json.loads(run(app, ["audit", "discrete-gaussian:rho=1/8", *options]).output)
    assert found["parameters"] == {"sigma2": "4"}
    assert found["passed"] is True
    assert found["first_words"]["wrong"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [DiscreteLaplace("1/10"), DiscreteLaplace("1"), DiscreteLaplace("5")], ids=str
)
def test_the_audit_of_a_thousand_million_draws_comes_within_a_thousandth(law, rng):
    found = audit(law, 1_000_000_000, rng.bytes)
    assert found.passed
    assert found.epsilon_at_least > float(law.epsilon) - 1e-3 * max(1.0, float(law.epsilon))


@pytest.mark.slow
def test_first_words_are_right_at_any_rational_parameter(rng):
    """Parameters as they come: floats' own rationals, tenths, and thirds, over nine orders of magnitude."""
    for _ in range(5):
        epsilon = Fraction(float(10 ** rng.uniform(-6, 3)))
        sigma2 = Fraction(int(rng.integers(1, 10**7)), 3) / 10 ** int(rng.integers(3, 8))
        bound = int(rng.integers(1, 400))
        for law in (DiscreteLaplace(epsilon), DiscreteGaussian(sigma2), TruncatedGeometric(epsilon, bound)):
            assert check_first_words(law).wrong == 0, law
