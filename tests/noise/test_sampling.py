"""Draws follow their law, by a test that named wrong samplers fail."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.noise.chi_square import ALPHA, p_value, power
from tests.parameters import one_in
from trueup.noise import LAWS, DiscreteGaussian, DiscreteLaplace, Exact, TruncatedGeometric
from trueup.noise.samplers import CHUNK
from trueup.noise.samplers.gaussian import GaussianWide

AT_LEAST = 200_000
NARROW = [
    *(DiscreteLaplace(e) for e in ("1/10", "1", "5", "1/47", "1/60")),
    *(DiscreteGaussian(s) for s in ("1/2", "1", "100")),
    TruncatedGeometric("1", 50),
    TruncatedGeometric("1/10", 20),
]
WIDE = [
    *(DiscreteLaplace(e) for e in ("1/1000", "1/1000000")),
    *(DiscreteGaussian(s) for s in ("1000000", "4000000000000")),
]


class Mutant:
    """A sampler that is wrong in one way: its draws, and its exact cdf for the power."""

    def __init__(self, draw, cdf) -> None:
        self.draw, self.cdf = draw, cdf


def mutants(law, draw, rng) -> dict[str, Mutant]:
    def some(draws, wrong):
        return np.where(rng.random(len(draws)) < 0.02, wrong(draws), draws)

    wider, narrower = scaled(law, 1.05), scaled(law, 0.95)
    return {
        "scale x 1.05": Mutant(lambda: draw(wider), wider.cdf),
        "scale x 0.95": Mutant(lambda: draw(narrower), narrower.cdf),
        "2 % extra zeros": Mutant(
            lambda: some(draw(law), np.zeros_like), lambda k: 0.98 * law.cdf(k) + 0.02 * (k >= 0)
        ),
        "2 % of the negatives turned": Mutant(
            lambda: some(draw(law), np.abs), lambda k: law.cdf(k) - 0.02 * law.cdf(np.minimum(k, -k - 1))
        ),
        "off by one": Mutant(lambda: draw(law) + 1, lambda k: law.cdf(k - 1)),
    }


def scaled(law, factor: float):
    """Return the law with its scale times a factor."""
    if isinstance(law, DiscreteGaussian):
        return DiscreteGaussian(repr(float(law.sigma2) * factor**2))
    parameters = law.parameters() | {"epsilon": repr(float(law.epsilon) / factor)}
    return type(law).from_parameters(parameters)


@pytest.mark.thorough
@pytest.mark.parametrize("law", one_in(2, NARROW + WIDE), ids=str)
def test_draws_follow_the_law_and_every_mutant_is_rejected(law, rng):
    size = AT_LEAST
    wrong = mutants(law, lambda law: law.sample(size, rng.bytes), rng)
    if law in WIDE:
        # To see a shift by one in noise this wide takes 10^9 draws; the exhaustive check sees it at once.
        del wrong["off by one"]
    while any(power(m.cdf, law, size) < 1 - ALPHA for m in wrong.values()):
        size += size // 2
    assert p_value(law.sample(size, rng.bytes), law) > ALPHA
    for name, mutant in wrong.items():
        assert p_value(mutant.draw(), law) < ALPHA, name


@pytest.mark.parametrize("sigma2", [1, 10, 1000])
def test_rejection_follows_the_law_where_its_margin_matters(sigma2, rng):
    """The sampler for wide noise, used below its range, where every value can be told apart."""
    sampler = GaussianWide(DiscreteGaussian(sigma2).sigma2)
    assert p_value(sampler.sample(2_000_000, rng.bytes), DiscreteGaussian(sigma2)) > ALPHA


@pytest.mark.parametrize("law", [*NARROW, *WIDE], ids=str)
def test_single_draws_follow_the_law(law, rng):
    draws = np.concatenate([law.sample(1, rng.bytes) for _ in range(6000)])
    assert p_value(draws, law) > ALPHA


@pytest.mark.parametrize("law", [*NARROW, *WIDE], ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 7, CHUNK - 1, CHUNK, CHUNK + 1])
def test_any_number_of_draws(law, size, rng):
    draws = law.sample(size, rng.bytes)
    assert draws.shape == (size,)
    assert draws.dtype == np.int64
    assert size < 1000 or len(np.unique(draws)) > 2


def test_draws_are_independent_of_their_place(rng):
    """Neighbours, and draws one chunk apart, are uncorrelated (a reused word would show)."""
    for law in (DiscreteLaplace("1/10"), DiscreteLaplace("1/1000"), DiscreteGaussian("4000000")):
        draws = law.sample(4 * CHUNK, rng.bytes) / np.sqrt(law.variance)
        for lag in (1, 2, CHUNK // 2, CHUNK):
            correlation = np.mean(draws[lag:] * draws[:-lag]) * np.sqrt(len(draws) - lag)
            assert abs(correlation) < 6


def test_words_are_all_that_is_random():
    """The same words give the same draws."""
    for law in (
        DiscreteLaplace("1/2"),
        DiscreteLaplace("1/500"),
        DiscreteGaussian("9"),
        TruncatedGeometric("1"),
    ):
        streams = [np.random.default_rng(5).bytes for _ in range(2)]
        np.testing.assert_array_equal(*(law.sample(1000, words) for words in streams))


def test_exact_draws_nothing():
    def words(count):
        raise AssertionError("no word is needed")

    assert Exact().sample(5, words).tolist() == [0] * 5


@pytest.mark.parametrize("module", ["samplers", "samplers.geometric", "samplers.gaussian"])
def test_no_float_in_the_samplers(module):
    """Their source has no floating-point number, type or function; fractions and integers only."""
    source = Path(import_module(f"trueup.noise.{module}").__file__).read_text()
    nodes = list(ast.walk(ast.parse(source)))
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    names = {
        n.id if isinstance(n, ast.Name) else n.attr for n in nodes if isinstance(n, ast.Name | ast.Attribute)
    }
    imported = {a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    assert not [value for value in constants if isinstance(value, float)]
    assert not (names | imported) & {
        "float",
        "float64",
        "Reals",
        "math",
        "exp",
        "log",
        "sqrt",
        "ldexp",
        "random",
    }


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1/10", "1", "5"])
def test_a_thousand_million_draws_bracket_epsilon(epsilon, rng):
    """The likelihood's interval for epsilon at 1e-6 holds the claim and is narrower than a thousandth."""
    law, size, blocks = DiscreteLaplace(epsilon), 10_000_000, 100
    mean = np.mean([np.mean(np.abs(law.sample(size, rng.bytes))) for _ in range(blocks)])
    rate = float(law.epsilon)
    # E|X| = 2 q / (1 - q^2) = 1 / sinh(epsilon); |X| has variance Var X - (E|X|)^2.
    error = 5.2 * np.sqrt((law.variance - np.sinh(rate) ** -2) / (size * blocks))
    low, high = np.arcsinh(1 / (mean + error)), np.arcsinh(1 / (mean - error))
    assert low <= rate <= high
    assert high - low < 1e-3 * max(1, rate)


@pytest.mark.slow
@pytest.mark.parametrize("law", [DiscreteLaplace("1/1000"), DiscreteGaussian("1000000")], ids=str)
def test_wide_draws_are_not_off_by_one(law, rng):
    """The mean of 1e9 draws, where one count is more than twenty standard errors."""
    blocks = [np.mean(law.sample(10_000_000, rng.bytes)) for _ in range(100)]
    error = np.sqrt(law.variance / 1e9)
    assert abs(np.mean(blocks)) < 5.2 * error


def test_every_discrete_law_is_tested_here():
    tested = {type(law) for law in NARROW + WIDE} | {Exact}
    assert {
        law for law in LAWS if law.discrete and law.__module__.startswith("trueup.noise.")
    } - tested == set()
