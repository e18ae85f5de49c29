"""Every decision of the table-driven samplers against an independent high-precision cdf."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from tests.noise.chi_square import p_value
from tests.parameters import one_in
from tests.reference import noise_laws as slow
from trueup.noise import DiscreteGaussian, DiscreteLaplace, TruncatedGeometric
from trueup.noise.samplers import Inversion
from trueup.noise.samplers.gaussian import GaussianTable
from trueup.noise.samplers.geometric import FirstDigit, GeometricTail, LowDigit, TwoSidedGeometric

UNDECIDED = np.iinfo(np.int16).min
LAWS = [
    *(DiscreteLaplace(e) for e in ("1/10", "1", "5", "1000", "1/47", "2/3", "0.3333333333333333")),
    *(DiscreteGaussian(s) for s in ("1/10000", "1/4", "1", "100", "12345/67", "1000000")),
    *(TruncatedGeometric(e, b) for e, b in (("1", 50), ("1/10", 20), ("1/1000000", 300), ("3", 1))),
]
WIDE = ["1/100", "1/1000", "1/1000000"]


def sampler_of(law) -> Inversion:
    sampler = law.sampler
    return sampler.first if isinstance(sampler, TwoSidedGeometric) else sampler


@cache
def samplers() -> dict[str, tuple[Inversion, Callable[[], slow.Cdf]]]:
    """Every kind of table, with what computes the cdf that it must invert (for a second each, in the tests alone)."""
    result = {str(law): (sampler_of(law), partial(slow.cdf_of, law)) for law in LAWS}
    for text in WIDE:
        epsilon = Fraction(text)
        sampler, shift = TwoSidedGeometric(epsilon), 0
        for bits, digit in zip(sampler.low_bits, sampler.low):
            cdf = partial(slow.low_digit, epsilon * 2**shift, 1 << bits)
            result[f"epsilon {text}, digit of {bits} bits after {shift}"] = digit, cdf
            shift += bits
        first = partial(slow.first_digit, epsilon, 1 << shift)
        result[f"epsilon {text}, first digit"] = sampler.first, first
    return result


@cache
def table(name: str) -> tuple[Inversion, slow.Cdf]:
    """Return a table, and the cdf that it must invert."""
    sampler, cdf = samplers()[name]
    return sampler, cdf()


def wrong_cells(lookup: np.ndarray, cdf: slow.Cdf, lookup_bits: int) -> int:
    """Count runs of first words whose answer is not that of every U that begins with them."""
    edges = [0, *(np.flatnonzero(np.diff(lookup)) + 1).tolist(), len(lookup)]
    wrong = 0
    for start, stop in pairwise(edges):
        value = int(lookup[start])
        low, high = mp.mpf(start) / 2**lookup_bits, mp.mpf(stop) / 2**lookup_bits
        if value != UNDECIDED:
            wrong += not (cdf(value - 1) <= low and high <= cdf(value))
    return wrong


@pytest.mark.thorough
@pytest.mark.parametrize("name", one_in(2, samplers()))
def test_every_first_word_is_answered_as_the_cdf_says(name):
    sampler, cdf = table(name)
    assert len(sampler.lookup) == 1 << sampler.lookup_bits
    assert wrong_cells(sampler.lookup, cdf, sampler.lookup_bits) == 0
    # and few are left open: no more than there are values of the cdf
    assert np.sum(sampler.lookup == UNDECIDED) <= len(sampler.support)


@pytest.mark.thorough
@pytest.mark.parametrize("name", samplers())
def test_every_threshold_is_the_floor_of_the_cdf(name):
    sampler, cdf = table(name)
    # All stored values are below 1, though 1 - exp(-1000) is 1 to a hundred digits.
    floors = [min(int(mp.floor(cdf(k) * 2**64)), 2**64 - 1) for k in sampler.support]
    assert sampler.thresholds.tolist() == floors


@pytest.mark.parametrize("name", samplers())
def test_wrong_tables_are_noticed(name, rng):
    sampler, cdf = table(name)
    decided = np.flatnonzero(sampler.lookup != UNDECIDED)
    shifted = np.where(sampler.lookup == UNDECIDED, UNDECIDED, sampler.lookup + 1).astype(np.int16)
    one_cell = sampler.lookup.copy()
    one_cell[rng.choice(decided)] += 1
    guessed = sampler.lookup.copy()  # the cells that a threshold cuts, answered without looking further
    cut = np.flatnonzero(guessed == UNDECIDED)
    guessed[cut] = guessed[np.minimum(cut + 1, len(guessed) - 1)]
    for mutant in (shifted, one_cell, guessed):
        assert wrong_cells(np.where(mutant == UNDECIDED, UNDECIDED, mutant), cdf, sampler.lookup_bits) > 0


class Recorder:
    """Seeded words that remember what was fetched."""

    def __init__(self, source) -> None:
        self.source, self.fetched = source, []

    def __call__(self, count: int) -> bytes:
        self.fetched.append(self.source(count))
        return self.fetched[-1]


def bits_used(sampler: Inversion, fetched: list[bytes]) -> tuple[int, int]:
    """Rebuild the first bits of U, and their number, from what one draw fetched."""
    first, *later = fetched
    u, bits = int.from_bytes(first, "little") >> (8 * len(first) - sampler.lookup_bits), sampler.lookup_bits
    for i, word in enumerate(later):
        more = sampler.word_bits - sampler.lookup_bits if i == 0 else 8 * len(word)
        fresh = int.from_bytes(word, "little") >> (64 - more) if i == 0 else int.from_bytes(word, "big")
        u, bits = u << more | fresh, bits + more
    return u, bits


def assert_decided(sampler: Inversion, cdf: slow.Cdf, fetched: list[bytes], value: int) -> None:
    """Check that the bits fetched leave no doubt, and that the value is theirs."""
    u, bits = bits_used(sampler, fetched)
    assert slow.decided_value(cdf, mp.mpf(u) / mp.mpf(2) ** bits, mp.mpf(2) ** -bits) == value


def small_word_samplers():
    for law in (DiscreteLaplace("1/10"), DiscreteLaplace("1"), DiscreteLaplace("5")):
        first = FirstDigit(law.epsilon, law.epsilon)
        yield str(law), Inversion(first.cdf, first.support(8), lookup_bits=4, word_bits=8), law
    for law in (DiscreteGaussian("1/4"), DiscreteGaussian("100")):
        yield str(law), GaussianTable(law.sigma2, lookup_bits=4, word_bits=8), law
    law = TruncatedGeometric("1/10", 20)
    yield (
        str(law),
        Inversion(GeometricTail(law.epsilon, 20).cdf, range(-20, 20), lookup_bits=4, word_bits=8),
        law,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "law"), one_in(2, [pytest.param(s, law, id=i) for i, s, law in small_word_samplers()])
)
def test_deep_stages_decide_exactly_what_the_bits_say(sampler, law, rng):
    cdf, depths = slow.cdf_of(law), np.zeros(8, int)
    while depths[3:].sum() < 400:  # stage 3 runs hundreds of times
        words = Recorder(rng.bytes)
        value = sampler.draw(words)
        assert_decided(sampler, cdf, words.fetched, value)
        depths[len(words.fetched)] += 1
    assert depths[2]
    assert depths[4:].sum(), "stage 3 must have gone on to a second word"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "law"), one_in(2, [pytest.param(s, law, id=i) for i, s, law in small_word_samplers()])
)
def test_deep_stages_of_vectors_follow_the_law(sampler, law, rng):
    assert p_value(sampler.sample(100_000, rng.bytes), law) > 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("digits", [(), (1,), (2, 3), (3, 1, 2)])
def test_digits_make_up_the_law_even_with_tiny_words(digits, rng):
    sampler = TwoSidedGeometric(Fraction(1, 9), digits, word_bits=8)
    draws = sampler.sample(100_000, rng.bytes)
    assert p_value(draws, DiscreteLaplace("1/9")) > 1e-6


def test_low_digit_with_tiny_words_is_exact(rng):
    sampler = Inversion(LowDigit(Fraction(1, 50), 16).cdf, range(15), lookup_bits=3, word_bits=8)
    cdf = slow.low_digit(Fraction(1, 50), 16)
    for _ in range(2000):
        words = Recorder(rng.bytes)
        assert_decided(sampler, cdf, words.fetched, sampler.draw(words))


def stream_of(sampler: Inversion, u: int, bits: int):
    """Make words whose U begins with the given bits; more must not be needed."""

    def take(count: int) -> int:
        nonlocal u, bits
        bits -= count
        assert bits >= 0, "the sampler asked for more bits than decide"
        head, u = u >> bits, u & ((1 << bits) - 1)
        return head

    def words(count: int) -> bytes:
        words.calls += 1
        if words.calls == 1:
            return (take(sampler.lookup_bits) << (8 * count - sampler.lookup_bits)).to_bytes(count, "little")
        if words.calls == 2:
            more = sampler.word_bits - sampler.lookup_bits
            return (take(more) << (64 - more)).to_bytes(8, "little")
        return take(8 * count).to_bytes(count, "big")

    words.calls = 0
    return words


@pytest.mark.parametrize("name", samplers())
def test_bits_that_agree_with_a_threshold_for_long_are_refined_until_they_differ(name, rng):
    sampler, cdf = table(name)
    inside = [k for k in sampler.support if mp.mpf(2) ** -60 < cdf(k) < 1 - mp.mpf(2) ** -60]
    for k in rng.choice(inside, min(12, len(inside)), replace=False).tolist() if inside else []:
        for agreed, side in ((70, 0), (70, 1), (150, 0), (190, 1)):
            # the first `agreed` bits of F(k), then one that differs on the wanted side, then zeros or ones
            head = int(mp.floor(cdf(k) * mp.mpf(2) ** agreed)) + (1 if side else -1)
            u = head << (256 - agreed) | (0 if side else (1 << (256 - agreed)) - 1)
            assert sampler.draw(stream_of(sampler, u, 256)) == (k + 1 if side else k)


def test_the_support_is_unbounded():
    """U of 320 zero bits, then a one: far below the table, and still exact."""
    law = DiscreteLaplace("1")
    sampler = sampler_of(law)
    value = sampler.draw(stream_of(sampler, 1 << 63, 384))
    low, width = mp.mpf(2) ** -321, mp.mpf(2) ** -384
    assert value == slow.decided_value(lambda k: mp.exp(k) / (1 + mp.exp(-1)), low, width) < -200
    ones = sampler.draw(stream_of(sampler, (1 << 384) - (1 << 63) - 1, 384))
    assert ones == -value - 1 or ones == -value


@pytest.mark.thorough
@pytest.mark.parametrize(
    "law", [DiscreteLaplace("1"), DiscreteGaussian("100"), TruncatedGeometric("1/10", 20)], ids=str
)
def test_the_slow_twin_follows_the_same_law(law, rng):
    """One bit at a time, from the definition alone."""
    cdf = slow.cdf_of(law)
    bits = iter(lambda: int(rng.integers(2)), None)
    draws = np.array([slow.invert(cdf, bits) for _ in range(3000)])
    assert p_value(draws, law) > 1e-6


def test_both_twins_read_the_same_bits_alike(rng):
    """The bits that a fast draw fetched make the slow twin draw the same value."""
    for law in LAWS:
        sampler, cdf = sampler_of(law), table(str(law))[1]
        for _ in range(60):
            words = Recorder(rng.bytes)
            value = sampler.draw(words)
            u, bits = bits_used(sampler, words.fetched)
            stream = iter([int(b) for b in f"{u:0{bits}b}"])
            assert slow.invert(cdf, stream) == value
