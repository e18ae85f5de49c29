"""Diagnostics of chains against their definitions, written plainly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import rankdata

from trueup.kernel.statistics.diagnostics import diagnose, tail_sizes


def halves(draws):
    half = len(draws[0]) // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def scores(x):
    return ndtri((rankdata(x).reshape(x.shape) - 0.375) / (x.size + 0.25))


def spread(x):
    within = x.var(axis=1, ddof=1).mean()
    return within, within * (1 - 1 / x.shape[1]) + x.mean(axis=1).var(ddof=1)


def r_hat(x):
    within, pooled = spread(x)
    return np.sqrt(pooled / within)


def size(x):
    """Geyer's initial monotone sequence."""
    (within, pooled), length, centred = spread(x), x.shape[1], x - x.mean(axis=1, keepdims=True)
    products = [(centred[:, : length - t] * centred[:, t:]).sum(axis=1).mean() for t in range(length)]
    rho = 1 - (within - np.array(products) / (length - 1)) / pooled
    pairs = rho[0 : length // 2 * 2 : 2] + rho[1 : length // 2 * 2 : 2]
    until = len(pairs) if (pairs > 0).all() else np.argmin(pairs > 0)
    tau = 2 * np.minimum.accumulate(pairs[:until]).sum() - 1
    return x.size / max(tau, 1 / np.log10(x.size))


@pytest.mark.parametrize("length", [40, 41])
@pytest.mark.parametrize("kind", ["counts", "walks", "rare"])
def test_r_hat_and_effective_sizes_are_those_of_their_definitions(kind, length, rng):
    draws = {
        "counts": lambda: rng.poisson(3, (4, length, 5)),
        "walks": lambda: rng.normal(size=(3, length, 5)).cumsum(axis=1),
        "rare": lambda: rng.poisson(0.2, (4, length, 5)),
    }[kind]()
    found, sizes = diagnose(draws)
    for q in range(5):
        x = halves(draws[:, :, q])
        folded = np.abs(x - np.median(x))
        assert found[q] == pytest.approx(max(r_hat(scores(x)), r_hat(scores(folded))), rel=1e-9)
        assert sizes[q] == pytest.approx(size(scores(x)), rel=1e-9)


def test_tail_sizes_are_those_of_the_two_events(rng):
    draws = rng.normal(size=(4, 60, 3))
    for q, found in enumerate(tail_sizes(draws)):
        limits = np.quantile(draws[..., q], [0.05, 0.95], method="inverted_cdf")
        sizes = [size((halves(draws[..., q]) <= each).astype(float)) for each in limits]
        assert found == pytest.approx(min(sizes), rel=1e-9)


@pytest.mark.parametrize("length", [8, 51, 200])
def test_whole_numbers_are_diagnosed_as_real_ones(length, rng):
    draws = rng.poisson(rng.gamma(1.0, 8.0, 40), (4, length, 40)) - 5
    draws[:, 1:] = np.where(rng.random((4, length - 1, 40)) < 0.5, draws[:, :-1], draws[:, 1:])
    draws[..., 3], draws[0, :, 4] = 7, 90
    for whole, real in zip(diagnose(draws.astype(np.int16)), diagnose(draws.astype(float)), strict=True):
        assert np.array_equal(whole, real)
    draws[0, 0, 5] = 10**7  # of a wide range they are sorted
    for wide, sorted_ in zip(diagnose(draws), diagnose(draws.astype(float)), strict=True):
        assert np.array_equal(wide, sorted_)
