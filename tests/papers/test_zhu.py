"""The exact laws that the items of Zhu et al. are held to."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from papers.zhu.exact import biases, noise_masses
from papers.zhu.marginal import distance, distribution


def projected(values: np.ndarray, total: float) -> np.ndarray:
    """(P+) on one known total by the sorted values: the price at which as many parts stay positive as should."""
    down = -np.sort(-values, axis=1)
    prices = (np.cumsum(down, axis=1) - total) / np.arange(1, values.shape[1] + 1)
    positive = (down > prices).sum(axis=1)
    return np.maximum(values - prices[np.arange(len(values)), positive - 1][:, None], 0.0)


@pytest.mark.parametrize("counts", [[0, 1, 3], [0, 0, 2], [4, 5, 9]])
def test_biases_are_those_of_an_enumeration(counts):
    values, masses = noise_masses(1.5)
    near = np.abs(values) <= 18
    noise = np.array(list(product(values[near], repeat=3)))
    mass = np.prod(np.array(list(product(masses[near], repeat=3))), axis=1)
    right = mass @ (projected(noise + np.array(counts, float), sum(counts)) - counts)
    found = biases(np.array(counts), 1.5, np.arange(3), prices=20)
    assert found == pytest.approx(right, abs=1e-9)
    assert found.sum() == pytest.approx(0.0, abs=1e-9)


def test_two_parts_have_half_the_difference_of_two_laplace_variables():
    x = np.array([0.3, 1.0, 4.0])
    right = 1 - np.exp(-2 * x) * (0.5 + x / 2)
    assert distribution(2, x) == pytest.approx(right, abs=1e-8)
    assert distance(2) == pytest.approx(0.25, rel=1e-6)
