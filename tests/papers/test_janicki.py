"""The paper's sampler, and what its posterior is where it is known."""

from __future__ import annotations

import numpy as np
import pytest

from papers.janicki import metropolis
from papers.janicki import population as people
from papers.janicki.table_2 import ratios

FAR = np.array([[9000.0, 21_000.0, 10_000.0]])


@pytest.mark.parametrize(("normal", "variance"), [(True, 100.0**2), (False, 2 * 100.0**2)])
def test_far_from_the_rules_the_sampler_has_the_noise_s_own_law(normal, variance, rng):
    drawn = metropolis.sample(np.repeat(FAR, 200, axis=0), 100.0, normal, 10.0, 2000, rng) - FAR
    means, squares = drawn.mean(axis=(0, 2)), (drawn**2).mean(axis=(0, 2))  # of 200 chains
    assert abs(means.mean()) < 5 * means.std() / np.sqrt(200)
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(200)
    assert 5 * squares.std() / np.sqrt(200) < 0.1 * variance


def test_near_the_rules_every_draw_obeys_them(rng):
    noisy = np.array([[-300.0, 40.0, 80.0], [900.0, 900.0, -200.0], [0.0, 0.0, 0.0]])
    for normal in (True, False):
        drawn = metropolis.sample(noisy, 100.0, normal, 10.0, 400, rng)
        assert metropolis.obeys(drawn.reshape(-1, 3), 10.0).all()


def bad_by_simulation(law, number, draws, rng):
    """Share of bad ratios of so many families, with its standard error."""
    members = people.TABLE_1[np.arange(draws) % len(people.TABLE_1)]
    truth = np.column_stack([number * members, np.full(draws, number)])
    noise = (
        rng.normal(0, people.SD, truth.shape) if law == "Gauss" else rng.laplace(0, people.SCALE, truth.shape)
    )
    found = ratios(truth + noise)
    bad = ((found < [0, 0, 2]) | (found > 10)).mean(axis=1)
    return bad.mean(), bad.std() / np.sqrt(draws)


@pytest.mark.parametrize("law", ["Gauss", "Laplace"])
@pytest.mark.parametrize("place", [80, 84, 100])
def test_shares_of_bad_ratios_by_quadrature_are_those_of_simulations(law, place, rng):
    number = max(1.0, people.SIZES[place])
    found, error = bad_by_simulation(law, number, 40_000, rng)
    right, other = (
        people.bad_shares(name)[place] for name in (law, "Laplace" if law == "Gauss" else "Gauss")
    )
    assert abs(found - right) < 4.5 * error
    assert abs(found - other) > 4.5 * error


def test_the_spread_makes_the_printed_share_the_expected_one(rng):
    """And 1/10 more or less of it would not: no rounding of the printed share allows that."""
    persons = np.geomspace(6e5, 4e7, people.STATES)
    found = people.spread(persons)
    at = [people.expected_bad(persons, factor * found, "Gauss") for factor in (0.9, 1.0, 1.1)]
    assert at[0] < 1.35 < at[1] < 1.45 < at[2]
    drawn = [
        np.log(people.population(persons, found, rng)[:, 2]).reshape(people.STATES, -1) for _ in range(20)
    ]
    of_whites = np.std([one[:, 0] - one[:, -1] for one in drawn])
    assert abs(of_whites / found - 1) < 4.5 / np.sqrt(2 * 20 * people.STATES)
