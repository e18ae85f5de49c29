"""Draws under linear inequalities against quadrature (continuous) and enumeration (discrete)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace, norm, truncnorm

from tests.reference.posterior import enumerate_inequalities
from trueup.kernel.inequalities.markov_chain import directions, run_chain
from trueup.kernel.inequalities.tilted import (
    DISCRETE_GAUSSIAN,
    GAUSSIAN,
    LAPLACE,
    TWO_SIDED_GEOMETRIC,
    best_tilt,
    draw_inequalities,
)
from trueup.kernel.linear.absolute_deviations import Region, feasible_point
from trueup.kernel.statistics.diagnostics import diagnose

ROWS = np.array([[1.0, 2.0], [3.0, -1.0]])  # x + 2 y >= 14, y <= 3 x
BOUNDS = np.array([14.0, 0.0])
LOW, HIGH = np.array([[0.0, 1.0]]), np.array([[30.0, np.inf]])
Z = np.array([[-6.0, -3.0]])
SCALE = np.array([[3.0, 4.0]])
CONTINUOUS = {GAUSSIAN: norm, LAPLACE: laplace}


def draw(kind, draws, rng, *, scale=SCALE):
    kinds = np.full(2, kind)
    return draw_inequalities(kinds, Z, scale, ROWS, BOUNDS, LOW, HIGH, draws, 1e-4, rng)


def marginal_cdf(law):
    """The cdf of x: its own density times the mass of the y it allows, by Gauss-Legendre panels."""
    edges = np.linspace(0, 30, 601)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    x = (edges[:-1, None] + edges[1:, None]) / 2 + np.diff(edges)[:, None] / 2 * nodes
    low, high = np.maximum(1.0, (14 - x) / 2), 3 * x
    inner = law.sf(low, Z[0, 1], SCALE[0, 1]) - law.sf(high, Z[0, 1], SCALE[0, 1])
    density = law.pdf(x, Z[0, 0], SCALE[0, 0]) * np.where(high > low, inner, 0.0)
    mass = (density * weights).sum(axis=1) * np.diff(edges) / 2
    running = np.concatenate([[0.0], np.cumsum(mass)]) / mass.sum()
    return lambda value: np.interp(value, edges, running)


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_continuous_draws_follow_quadrature(kind, rng):
    draws, acceptance = draw(kind, 40_000, rng)
    assert 0.02 < acceptance[0] <= 1
    assert (draws[0] @ ROWS.T >= BOUNDS - 1e-9).all()
    assert kstest(draws[0, :, 0], marginal_cdf(CONTINUOUS[kind])).pvalue > 1e-6


def without_correction(kind, draws, rng):
    """A wrong sampler: tilted proposals in the region, the tilt not undone."""
    problem = (np.full(2, kind), Z[0], SCALE[0], LOW[0], HIGH[0])
    _, tilts = best_tilt(ROWS, BOUNDS, problem)
    centre = Z[0] + tilts * SCALE[0] ** 2
    a, b = (LOW[0] - centre) / SCALE[0], (HIGH[0] - centre) / SCALE[0]
    x = centre + SCALE[0] * truncnorm.rvs(a, b, size=(10 * draws, 2), random_state=rng)
    return x[(x @ ROWS.T >= BOUNDS).all(axis=1)][:draws]


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", ["noise 5 % too wide", "tilt not undone"])
def test_quadrature_rejects_wrong_samplers(mutant, rng):
    if mutant == "noise 5 % too wide":
        draws = draw(GAUSSIAN, 40_000, rng, scale=1.05 * SCALE)[0][0]
    else:
        draws = without_correction(GAUSSIAN, 40_000, rng)
    assert kstest(draws[:, 0], marginal_cdf(norm)).pvalue < 1e-6


def logpmf(kind):
    if kind == DISCRETE_GAUSSIAN:
        return [lambda k, s=s: -0.5 * (k / s) ** 2 for s in SCALE[0]]
    return [lambda k, s=s: -np.abs(k) / s for s in SCALE[0]]


def discrete_p_value(kind, draws):
    points, mass = enumerate_inequalities(logpmf(kind), Z[0], ROWS, BOUNDS, [range(31), range(1, 60)])
    keys = {tuple(p): k for k, p in enumerate(points)}
    counts = np.bincount([keys[tuple(row)] for row in draws if tuple(row) in keys], minlength=len(points))
    often = mass * len(draws) >= 10
    observed = np.append(counts[often], len(draws) - counts[often].sum())
    return chisquare(observed, np.append(mass[often], 1 - mass[often].sum()) * len(draws)).pvalue


@pytest.mark.parametrize("kind", [DISCRETE_GAUSSIAN, TWO_SIDED_GEOMETRIC])
def test_discrete_draws_follow_enumeration(kind, rng):
    draws, _ = draw(kind, 40_000, rng)
    assert (draws == np.round(draws)).all()
    assert discrete_p_value(kind, draws[0]) > 1e-6


@pytest.mark.parametrize("kind", [DISCRETE_GAUSSIAN, TWO_SIDED_GEOMETRIC])
def test_enumeration_rejects_noise_five_percent_too_wide(kind, rng):
    assert discrete_p_value(kind, draw(kind, 80_000, rng, scale=1.08 * SCALE)[0][0]) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE, DISCRETE_GAUSSIAN, TWO_SIDED_GEOMETRIC])
def test_the_chain_agrees_with_independent_draws(kind, rng):
    exact = draw(kind, 200_000, rng)[0][0]
    moves = directions(ROWS, np.ones(2, dtype=bool))
    start, _ = feasible_point(Region(ROWS, BOUNDS, LOW[0], HIGH[0], True))
    problem = (np.full(2, kind), Z[0], SCALE[0], LOW[0], HIGH[0])
    chains = np.stack([run_chain(problem, ROWS, BOUNDS, moves, start, 100, 20_000, 2, rng) for _ in range(4)])
    r_hat, ess = diagnose(chains)
    assert r_hat.max() < 1.01
    for i in range(2):
        spread = exact[:, i].std() * np.sqrt(1 / 200_000 + 1 / ess[i])
        assert abs(chains[..., i].mean() - exact[:, i].mean()) < 5 * spread


def test_order_constraints_in_twelve_dimensions_are_left_to_the_chain(rng):
    n = 12
    rows, z = np.diff(np.eye(n), axis=0), np.linspace(30, 0, n)[None]
    arguments = (np.zeros(n, np.int64), z, np.full((1, n), 3.0), rows, np.zeros(n - 1))
    _, acceptance = draw_inequalities(*arguments, np.zeros((1, n)), np.full((1, n), np.inf), 100, 1e-3, rng)
    assert acceptance[0] == 0


def test_an_equal_box_fixes_a_coordinate(rng):
    low, high = np.array([[0.0, 5.0]]), np.array([[30.0, 5.0]])
    kinds = np.full(2, DISCRETE_GAUSSIAN)
    draws, _ = draw_inequalities(kinds, Z, SCALE, ROWS, BOUNDS, low, high, 500, 1e-4, rng)
    assert (draws[0, :, 1] == 5).all()
