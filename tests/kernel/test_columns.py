"""Messages of the column sampler against NumPy's convolution, and the draws that they lead to."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.columns import (
    PADDED,
    convolve_message,
    position_of_mass,
    position_of_narrow_mass,
    rank_of_position,
    rank_of_share,
    share_masses,
)
from trueup.kernel.table_walks.place_masses import (
    LONGEST,
    LOWEST,
    NARROW,
    WIDE,
    exp_of_negative,
    gamma_ratio,
    leaf_log_masses,
    leaf_mass_ratios,
    log_gamma_difference,
)
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import law_named


@njit(cache=False)
def joined(own, size, after, shift, within, pad):
    out = np.empty(WIDE, np.float32)
    convolve_message(own, 0, size, after, out, shift, within, pad)
    return out


@njit(cache=False)
def shared(own, tail, back, within):
    masses = np.empty(own.size)
    return masses, share_masses(own, 0, tail, 0, back, within, own.size, masses)


@njit(cache=False)
def ranked(u, own, tail, back, within, position):
    return rank_of_share(u, own, 0, tail, 0, back, within, own.size, position)


@njit(cache=False)
def found_of_narrow(masses, left):
    return position_of_narrow_mass(masses, left)


@njit(cache=False)
def exponentials(logs):
    found = np.empty(logs.size)
    for i in range(logs.size):
        found[i] = exp_of_negative(logs[i])
    return found


@njit(cache=False)
def compiled_ratio(x, up, down, step):
    return gamma_ratio(x, up, down, step)


@njit(cache=False)
def log_gamma_ratio(x, up, down):
    return log_gamma_difference(x, up, down)


@njit(cache=False)
def mirrored(masses, at, u):
    return position_of_mass(
        masses, masses.size, (1.0 - rank_of_position(u, masses, at, masses.size)) * masses.sum()
    )


def message(rng, width, steps):
    return np.append(rng.random(steps), np.zeros(width - steps)).astype(np.float32)


@njit(cache=False)
def leaf_ratios(places, state, columns, stride, row, low, size, balance):
    ratios, logs = np.empty(NARROW * LONGEST), np.empty(size)
    if stride <= LONGEST:
        leaf_mass_ratios(places, state, columns, stride, row, low, size, balance, ratios)
    else:
        leaf_log_masses(places, state, columns, stride, row, low, size, balance, logs)
        ratios[1:size] = np.exp(logs[1:] - logs[:-1])
    return ratios[1:size]


def log_density(problem, state, row, x):
    """The density of a lowest place's table as the module writes it, term by term."""
    kappa, first = state.kappa[-1], problem.places.level_ptr[-2]
    theta, s, total = state.theta[problem.places.parent[first + row]], state.size[row], x.sum()
    held = x + (np.arange(len(x)) == state.spare[row])
    cells = gammaln(held + kappa * theta) - gammaln(x + 1.0) - x * np.log(kappa + s)
    return gammaln(total + state.a[-1]) - gammaln(total + 1.0) + total * math.log(s) + cells.sum()


def in_window(own, after, low, tail_low, begin, steps):
    """Masses of the sums from `begin` on, by NumPy."""
    whole = np.convolve(own, after)
    at = np.arange(begin, begin + steps) - low - tail_low
    return np.append(
        np.where((at >= 0) & (at < len(whole)), whole[np.clip(at, 0, len(whole) - 1)], 0.0),
        np.zeros(WIDE - steps),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_messages_are_convolutions_within_their_window(width, rng):
    apart = 0.0
    for _ in range(300):
        size, tail_size = rng.integers(1, width + 1), rng.integers(1, WIDE + 1)
        own, after = message(rng, width, size), message(rng, WIDE, tail_size)
        low, tail_low = -rng.integers(size), -rng.integers(tail_size)
        begin = max(-rng.integers(WIDE), low + tail_low)
        steps = min(begin + WIDE, low + size - 1 + tail_low + tail_size) - begin
        if steps < 1:
            continue
        within = (np.arange(WIDE) < steps).astype(np.float32)
        found = joined(own, size, after, WIDE + begin - low - tail_low, within, np.zeros(PADDED, np.float32))
        assert np.allclose(found, in_window(own, after, low, tail_low, begin, steps), rtol=1e-5, atol=1e-6)
        apart = max(apart, np.abs(found - in_window(own, after, low, tail_low, begin + 1, steps)).max())
    assert apart > 0.1  # a window one step further is another


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_shares_are_products_of_what_makes_up_the_sum(width, rng):
    within = np.repeat(np.array([0.0, 1.0, 0.0], np.float32), WIDE)
    for _ in range(300):
        own, after = message(rng, width, width), message(rng, WIDE, rng.integers(1, WIDE + 1))
        tail = np.concatenate([rng.random(WIDE), after, rng.random(WIDE)]).astype(np.float32)
        back = rng.integers(width + WIDE - 1)
        masses, total = shared(own, tail, back, within)
        for i in range(width):
            expected = own[i] * after[back - i] if 0 <= back - i < WIDE else 0.0
            assert masses[i] == pytest.approx(expected, rel=1e-6)
        assert total == pytest.approx(masses.sum())
        at, u = rng.integers(width), rng.random()
        rank = (masses[:at].sum() + u * masses[at]) / masses.sum() if masses[at] > 0 else u
        assert ranked(u, own, tail, back, within, at) == pytest.approx(rank, rel=1e-5)


def test_positions_found_without_branches_are_those_of_cumulated_masses(rng):
    for _ in range(1000):
        masses = rng.integers(0, 3, NARROW).astype(float)
        left = rng.random() * masses.sum()
        if masses.any():
            assert found_of_narrow(masses, left) == np.searchsorted(np.cumsum(masses), left, side="right")


@pytest.mark.parametrize("columns", [[2], [1, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("stride", [1, 2, 7, LONGEST, LONGEST + 3])
def test_ratios_of_a_places_masses_are_those_of_its_density(columns, stride, rng):
    tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b", "c"]}])
    cells = Cells(tree, (Attribute("kind", tuple("uvwx")),))
    headers = (Measured("all", cells.finest, law_named("discrete-laplace")(1)),)
    problem = ColumnProblem(Constraints(cells, (cells.finest,)), headers, (np.zeros(12),))
    x = rng.poisson(20 * stride, (3, 4))
    state = problem.state(x, 1.7, 2.3)
    state.size[:], state.spare[:] = rng.gamma(2.0, size=3), rng.integers(0, 4, 3)
    direction = np.zeros(4)
    direction[columns] = [1, -1, -1, 1][: len(columns)]
    size, low, balance = 9, -4, np.array([0.6])
    each = math.log(balance[0]) if len(columns) == 1 else 0.0  # totals change
    for row in range(3):
        logs = [
            log_density(problem, state, row, x[row] + stride * (low + i) * direction) for i in range(size)
        ]
        found = leaf_ratios(problem.places, state, np.array(columns), stride, row, low, size, balance)
        assert np.log(found) == pytest.approx(np.diff(logs) + each, abs=1e-8)


@pytest.mark.parametrize("far", [1, 7, LONGEST])
def test_ratios_of_steps_of_a_few_counts_are_those_of_gamma_functions(far, rng):
    up, down = rng.gamma(0.7), rng.gamma(3.0)
    for x in (0, 400):
        log = (math.lgamma(x + far + up) - math.lgamma(x + far + down)) - (
            math.lgamma(x + up) - math.lgamma(x + down)
        )
        assert gamma_ratio(float(x), up, down, far) == pytest.approx(math.exp(log), rel=1e-9)


@pytest.mark.parametrize("x", [0, 3, 29, 31, 1000, 10**9, 10**14])
def test_logs_of_gamma_ratios_keep_their_digits_where_counts_are_large(x, rng):
    """Against 40 digits: of counts of 10^14 the difference of two logs of gamma functions is wrong by whole numbers."""
    for up, down in ((0.2, 1.0), (3.7, 0.5), (1.0, 40.0)):
        with mpmath.workdps(40):
            log = float(mpmath.loggamma(x + mpmath.mpf(up)) - mpmath.loggamma(x + mpmath.mpf(down)))
        assert log_gamma_ratio(float(x), up, down) == pytest.approx(log, rel=1e-9, abs=1e-9)


def test_exponentials_are_exact_to_what_is_said():
    logs = np.append(-np.logspace(-12, np.log10(-0.999 * LOWEST), 2000), 0.0)
    apart = np.abs(exponentials(logs) / np.exp(logs) - 1.0)
    assert apart.max() < 1e-6
    assert apart[logs > np.log(1e-40)].max() < 1e-12
    assert (exponentials(np.array([-np.inf, 1.01 * LOWEST])) == 0.0).all()


def test_mirrored_numbers_keep_their_law(rng):
    """A number drawn from masses has the same law when mirrored, and lies at the other end of it."""
    masses = np.append(rng.random(7), np.zeros(9))
    law = masses / masses.sum()
    first = rng.choice(len(law), 40_000, p=law)
    second = np.array([mirrored(masses, at, rng.random()) for at in first])
    seen = np.bincount(second, minlength=len(law)) / len(second)
    assert (np.abs(seen - law) < 5.5 * np.sqrt(law / len(second)) + 1e-12).all()
    assert np.corrcoef(first, second)[0, 1] < -0.8
    middle = np.array([mirrored(masses, at, 0.5) for at in first])  # not uniform within a number's mass
    wrong = np.bincount(middle, minlength=len(law)) / len(middle)
    assert (np.abs(wrong - law) > 5.5 * np.sqrt(law / len(middle))).any()
