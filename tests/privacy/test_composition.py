"""Epsilon of composed noise against direct convolution with 50 digits, and against dp-accounting."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import accumulate, repeat
from math import inf
from operator import mul
from time import process_time
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from trueup.arrays.losses import epsilon_of
from trueup.noise import DiscreteGaussian, DiscreteLaplace, law_named
from trueup.noise.losses import Losses, pure_losses
from trueup.privacy import composition
from trueup.privacy.composition import composed_epsilon

DELTA = Fraction(1, 10**10)
CUT = 1e-27
UNIT = Fraction(1, 64)
"""All losses of the compositions below are on one lattice of this step, which the grid does not know of."""
DIGITS, WORD = 168, 512
"""Bits of a probability, after the point (50 digits), and of a place of a packed polynomial: both whole bytes."""


# --- direct convolution -----------------------------------------------------------------------


class Reference:
    """Losses of a step on the lattice: the least, masses as integers at every `UNIT` from there, and the infinite ones."""

    def __init__(self, least: Fraction, masses: dict[int, Any], beyond: Any = 0) -> None:
        self.least, self.size = least, max(masses) + 1
        words = [b""] * self.size
        for place, mass in masses.items():
            words[place] = int(mpf(2) ** DIGITS * mass).to_bytes(WORD // 8, "little")
        self.packed = int.from_bytes(b"".join(word.ljust(WORD // 8, b"\0") for word in words), "little")
        self.beyond = mpf(beyond)


def of_pure(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Reference:
    size = mpf(epsilon.numerator) / epsilon.denominator
    odds = 1 / (1 + mp.exp(-size))
    beyond = mpf(delta.numerator) / delta.denominator
    masses = {0: (1 - beyond) * (1 - odds), int(2 * epsilon / UNIT): (1 - beyond) * odds}
    return Reference(-epsilon, masses, beyond)


def of_laplace(epsilon: Fraction, change: int, bound: int | None = None) -> Reference:
    """Summed noise by noise; without a bound, up to where nothing is left at these digits."""
    rate = mpf(epsilon.numerator) / epsilon.denominator
    most = bound or int(130 / float(epsilon)) + change
    mass = list(accumulate(repeat(mp.exp(-rate), most), mul, initial=mpf(1)))
    whole = mass[0] + 2 * mp.fsum(mass[1:])
    found: dict[int, Any] = {}
    for x in range(-most, most + 1):
        if bound is None or x >= change - bound:
            place = int(2 * epsilon * (change - min(max(x, 0), change)) / UNIT)
            found[place] = found.get(place, 0) + mass[abs(x)] / whole
    beyond = mp.fsum(mass[abs(x)] for x in range(-most, change - most)) / whole if bound else 0
    return Reference(-epsilon * change, found, beyond)


def of_gaussian(sigma2: Fraction, change: int) -> Reference:
    width = mpf(sigma2.numerator) / sigma2.denominator
    most = int(16 * mp.sqrt(width)) + 2
    mass = [mp.exp(-k * k / (2 * width)) for k in range(most + 1)]
    whole = mass[0] + 2 * mp.fsum(mass[1:])
    step = int(change / sigma2 / UNIT)
    masses = {step * (most - x): mass[abs(x)] / whole for x in range(-most, most + 1)}
    return Reference(Fraction(change * (change - 2 * most), 2) / sigma2, masses)


def convolved(steps: list[Reference], delta: Fraction) -> Any:
    """Epsilon at delta of the packed product: delta is `A - exp(epsilon) B` between two losses."""
    product, size = 1 << DIGITS, 1
    for step in steps:
        product, size = product * step.packed, size + step.size - 1
        words = _words(product, size)[:, DIGITS // 8 :]  # digits beyond those of one probability are cut off
        product = int.from_bytes(np.pad(words, ((0, 0), (0, DIGITS // 8))).tobytes(), "little")
    places = [int.from_bytes(word.tobytes(), "little") for word in _words(product, size)]
    least = sum((step.least for step in steps), Fraction(0))
    left = mpf(delta.numerator) / delta.denominator
    left -= 1 - reduce(lambda finite, step: finite * (1 - step.beyond), steps, mpf(1))
    if left <= 0:
        return inf
    above = weighed = mpf(0)
    for k in range(size - 1, -1, -1):
        loss = least + k * UNIT
        at = mpf(loss.numerator) / loss.denominator
        if above - mp.exp(at) * weighed > left:
            break
        mass = mpf(places[k]) / mpf(2) ** DIGITS
        above, weighed = above + mass, weighed + mass * mp.exp(-at)
    return max(mpf(0), mp.log((above - left) / weighed)) if above > left else mpf(0)


def _words(packed: int, size: int) -> Any:
    return np.frombuffer(packed.to_bytes(size * WORD // 8, "little"), np.uint8).reshape(size, -1)


def drawn(rng: np.random.Generator) -> tuple[Losses, Reference]:
    """A step of one of the four laws."""
    change, size = int(rng.integers(1, 4)), int(rng.integers(1, 24))
    rate = size * UNIT / 2
    match int(rng.integers(0, 4)):
        case 0:
            return DiscreteLaplace(rate).losses(change, CUT), of_laplace(rate, change)
        case 1:
            sigma2 = Fraction(change) / (size * UNIT)
            return DiscreteGaussian(sigma2).losses(change, CUT), of_gaussian(sigma2, change)
        case 2:
            bound = int(30 / rate) + 2
            law: Any = law_named("truncated-geometric")(rate, bound)
            return law.losses(change, CUT), of_laplace(rate, change, bound)
        case _:  # noise on a lattice, and all else that is known by its price
            delta = Fraction(int(rng.integers(0, 3)), 10**12)
            return pure_losses(rate, delta), of_pure(rate, delta)


def compositions(
    rng: np.random.Generator, number: int, most: int = 64
) -> list[tuple[list[Losses], list[Reference]]]:
    found = []
    for _ in range(number):
        steps = [drawn(rng) for _ in range(int(rng.integers(2, most + 1)))]
        found.append(([one for one, _ in steps], [other for _, other in steps]))
    return found


def ratio(losses: list[Losses], references: list[Reference]) -> float:
    """Ours over the reference, less one."""
    with mp.workdps(60):
        right = convolved(references, DELTA)
        return float(mpf(composed_epsilon([(one, 1) for one in losses], DELTA)) / right - 1)


def check_compositions(found: list[tuple[list[Losses], list[Reference]]]) -> None:
    ratios = [ratio(*one) for one in found]
    assert min(ratios) >= 0
    assert max(ratios) <= 1e-6


@pytest.mark.thorough
def test_epsilon_is_never_below_direct_convolution_and_close_to_it(rng):
    with mp.workdps(60):
        check_compositions(compositions(rng, 4, most=24))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(10))
def test_epsilon_of_300_compositions_is_never_below_direct_convolution(part, rng):
    with mp.workdps(60):
        check_compositions(compositions(rng, 30))


@pytest.mark.thorough
def test_what_is_left_out_of_the_bound_is_below(rng):
    """Infinite losses that are not counted, and losses rounded down to a grid."""
    law: Any = law_named("truncated-geometric")(Fraction(3, 8), 72)
    losses, reference = [law.losses(2, CUT)] * 40, [of_laplace(Fraction(3, 8), 2, 72)] * 40
    assert losses[0].beyond * 40 < DELTA
    assert 0 <= ratio(losses, reference) < 1e-6
    forgotten = [replace(one, beyond=0.0) for one in losses]
    assert ratio(forgotten, reference) < -1e-9
    lower = [replace(one, least=one.least - one.spacing * 1e-6) for one in losses]
    assert ratio(lower, reference) < -1e-7


@pytest.mark.thorough
def test_the_grid_gives_what_the_sum_gives(rng, monkeypatch):
    """Few losses, of no common lattice, both ways; isolated losses cost the grid a step of it at most."""
    for _ in range(6):
        losses = [drawn(rng)[0] for _ in range(2)]
        summed = composed_epsilon([(one, 2) for one in losses], DELTA)
        with monkeypatch.context() as patch:
            patch.setattr(composition, "MAX_DIRECT_LOSSES", 1)
            on_grid = composed_epsilon([(one, 2) for one in losses], DELTA)
        assert summed <= on_grid * (1 + 1e-8)
        assert on_grid <= summed * (1 + 2e-4)


@pytest.mark.slow
def test_ten_thousand_steps_take_a_few_seconds_and_are_one_wide_normal_step():
    """Normal noise of variance n v on n counts loses what noise of variance v on one does, up to the integers."""
    start = process_time()
    many = composed_epsilon([(DiscreteGaussian("200000").losses(1, CUT), 10_000)], DELTA)
    mixed = [(DiscreteLaplace(Fraction(1, 100 + k)).losses(1, CUT), 1_000) for k in range(8)]
    mixed += [(DiscreteGaussian(20_000 + 977 * k).losses(1, CUT), 1_000) for k in range(2)]
    both = composed_epsilon(mixed, DELTA)
    assert process_time() - start < 10
    one = composed_epsilon([(DiscreteGaussian("2000").losses(10, CUT), 1)], DELTA)
    assert abs(many / one - 1) < 1e-3  # ten counts of noise of standard deviation 45: nearly a real number
    assert 5 < both < sum(number * losses.most for losses, number in mixed)


def test_a_smaller_change_loses_less():
    """So a bound on the change of a count bounds the loss, and counts that do not move lose nothing."""
    for law in (
        DiscreteLaplace("1/3"),
        DiscreteGaussian("7"),
        law_named("truncated-geometric")(Fraction(1), 40),
    ):
        found = [composed_epsilon([(law.losses(change, CUT), 1)], DELTA) for change in (1, 2, 3, 4)]
        assert found == sorted(found)
        for kept, change in ((1, 2), (2, 3)):
            noise = np.arange(-40, 41)
            here, there, further = (np.exp(law.logpmf(noise - shift)) for shift in (0, kept, change))
            for epsilon in (0.0, 0.2, 0.7):
                sums = [np.maximum(here - np.exp(epsilon) * other, 0).sum() for other in (there, further)]
                assert sums[0] <= sums[1] * (1 + 1e-9)


@pytest.mark.parametrize(
    "law", [DiscreteLaplace("1/3"), DiscreteGaussian("7"), law_named("truncated-geometric")(Fraction(1), 9)]
)
def test_one_count_has_the_delta_of_its_masses(law):
    noise = np.arange(-400, 403)
    here, there = np.exp(law.logpmf(noise)), np.exp(law.logpmf(noise - 2))
    losses = law.losses(2, CUT)
    for epsilon in (0.0, 0.1, 0.6, 1.5):
        right = np.maximum(here - np.exp(epsilon) * there, 0).sum()
        ours = np.exp(losses.log_mass) @ np.maximum(1 - np.exp(epsilon - losses.loss), 0) + losses.beyond
        assert ours == pytest.approx(right, rel=1e-9, abs=1e-15)


@pytest.mark.thorough
def test_very_wide_noise_is_taken_in_blocks_and_bounded():
    """Within 2e-6 of the normal distribution, whose epsilon it is but for the integers."""
    law = DiscreteGaussian(10**11)
    losses = law.losses(1, CUT)
    assert len(losses.log_mass) < 1 << 22
    with mp.workdps(30):
        mu = 1 / mp.sqrt(mpf(10) ** 11)

        def gap(epsilon: Any) -> Any:
            inside = mp.ncdf(-epsilon / mu + mu / 2) - mp.exp(epsilon) * mp.ncdf(-epsilon / mu - mu / 2)
            return mp.log(inside) - mp.log(mpf(10) ** -10)

        right = float(mp.findroot(gap, (3 * mu, 4 * mu)))
    assert 0 <= composed_epsilon([(losses, 1)], DELTA) / right - 1 < 2e-6


def test_no_epsilon_where_delta_is_used_up():
    assert composed_epsilon([(pure_losses(Fraction(1), Fraction(1, 10**9)), 1)], DELTA) == inf
    assert composed_epsilon([], DELTA) == 0


@pytest.mark.thorough
def test_dp_accounting_is_never_much_below():
    """Its estimates are pessimistic ones on a grid of 1e-4."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    laws = [(DiscreteGaussian("50"), pld.from_discrete_gaussian_mechanism(50**0.5, value_discretization_interval=1e-4)),
            (DiscreteGaussian("9"), pld.from_discrete_gaussian_mechanism(3.0, value_discretization_interval=1e-4)),
            (DiscreteLaplace("1/5"), pld.from_discrete_laplace_mechanism(0.2, value_discretization_interval=1e-4))]  # fmt: skip
    for numbers in ((1, 0, 0), (0, 1, 4), (20, 5, 0), (8, 8, 8), (0, 0, 60)):
        theirs = reduce(
            lambda one, other: one.compose(other),
            (their.self_compose(number) for (_, their), number in zip(laws, numbers) if number),
        )
        ours = composed_epsilon(
            [(law.losses(1, CUT), number) for (law, _), number in zip(laws, numbers)], DELTA
        )
        assert ours <= theirs.get_epsilon_for_delta(float(DELTA)) + 1e-4


@pytest.mark.thorough
def test_the_bound_of_rho_is_above():
    for sigma2, number in ((2, 1), (50, 16), (3000, 200)):
        ours = composed_epsilon([(DiscreteGaussian(sigma2).losses(1, CUT), number)], DELTA)
        assert ours < float(epsilon_of(Fraction(number, 2 * sigma2), DELTA)) < 1.2 * ours
