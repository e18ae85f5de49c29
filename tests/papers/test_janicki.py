"""The paper's sampler, and what its posterior is where it is known."""

from __future__ import annotations

import numpy as np
import pytest

from papers.janicki import metropolis

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
