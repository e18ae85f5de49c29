"""Small places drawn from their prior: their laws by enumeration, and by an urn from which one unit is drawn after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from tests.reference.urn import divisions, mass, urn
from trueup.kernel.table_walks.linked_exchange import (
    draw_beta_binomial,
    draw_dirichlet_multinomial,
    draw_place,
)
from trueup.kernel.table_walks.linked_normal import LinkedForms

ALPHAS, COUNT = (0.3, 1.2, 0.05), 4
FALSE_ALARM = 1e-7


def rejected(draws, masses) -> bool:
    """Whether draws are not of a law, by Pearson's statistic; outcomes expected less than five times are one, if that often."""
    seen = Counter(tuple(map(int, draw)) for draw in draws)
    assert seen.keys() <= masses.keys()
    rare = [x for x in masses if masses[x] * len(draws) < 5]
    groups = [[x] for x in masses if x not in rare]
    if sum(masses[x] for x in rare) * len(draws) > 5:
        groups.append(rare)
    expected = np.array([sum(masses[x] for x in group) for group in groups]) * len(draws)
    found = np.array([sum(seen[x] for x in group) for group in groups])
    return ((found - expected) ** 2 / expected).sum() > chi2.isf(FALSE_ALARM, len(groups) - 1)


def divided(rng, count=COUNT, alphas=ALPHAS):
    """One draw of the compiled function, of columns 0, 2, 3 of four."""
    out, theta = np.zeros(4, np.int64), np.zeros(4)
    among = np.array([1, 0, 1, 1])
    theta[among > 0] = np.array(alphas) / 2.0
    draw_dirichlet_multinomial(rng, count, among, 2.0, theta, out)
    assert out[1] == 0
    return out[among > 0]


def from_urn(rng):
    """The slow twin."""
    return urn(rng, COUNT, ALPHAS)


def multinomial(rng):
    """Wrong: kinds of fixed shares."""
    return rng.multinomial(COUNT, np.array(ALPHAS) / sum(ALPHAS))


def not_taken_off(rng):
    """Wrong: a kind's own concentration is not taken off that of the others."""
    first = rng.binomial(COUNT, rng.beta(ALPHAS[0], sum(ALPHAS)))
    second = rng.binomial(COUNT - first, rng.beta(ALPHAS[1], ALPHAS[1] + ALPHAS[2]))
    return first, second, COUNT - first - second


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draw", "wrong"), [(divided, False), (from_urn, False), (multinomial, True), (not_taken_off, True)]
)
def test_divisions_are_of_their_law_and_wrong_ones_are_told_apart(draw, wrong, rng):
    masses = {x: mass(x, ALPHAS) for x in divisions(COUNT, len(ALPHAS))}
    assert sum(masses.values()) == pytest.approx(1, abs=1e-12)
    assert rejected([draw(rng) for _ in range(4000)], masses) == wrong


def test_kinds_that_are_hardly_ever_there_keep_counts_whole(rng):
    """Concentrations far below what doubles tell from zero: one kind takes all, each as often as its share says."""
    draws = [divided(rng, 900, (2e-300, 1e-300, 1e-300)) for _ in range(2000)]
    masses = {(900, 0, 0): 0.5, (0, 900, 0): 0.25, (0, 0, 900): 0.25}
    assert not rejected(draws, masses)
    assert draw_beta_binomial(rng, 7, 1.0, 0.0) == 7
    assert draw_beta_binomial(rng, 0, 1.0, 1.0) == 0


KAPPA, THETA = np.array([1.5, 3.0, 4.0]), np.array([0.6, 0.4, 0.3, 0.7, 0.2, 0.8])
POOLS = np.array([0, 0, 2, 2, 1, 1])
LEAST, MOST, HOMES = 1, 3, 2


def forms():
    """Two kinds of homes (the free pool), two of persons, of whom 1 to 3 live in a home."""
    persons, homes = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    slack = np.array([persons - LEAST * homes, MOST * homes - persons])
    pools = np.array([homes, slack.sum(axis=0), persons])
    none = np.zeros((0, 4), np.int64)
    limits = np.array([[LEAST, MOST]])
    return LinkedForms(
        slack, pools, none, np.zeros(0, np.int64), np.arange(2), persons[None], homes[None], limits
    )


def places(most=MOST):
    """Masses of every place with two homes: of homes, then of persons beyond the first of each, then of their kinds."""
    alphas = [KAPPA[POOLS[j]] * THETA[j] for j in range(6)]
    found = {}
    for homes in divisions(HOMES, 2):
        for further, room in divisions((most - LEAST) * HOMES, 2):
            for kinds in divisions(LEAST * HOMES + further, 2):
                each = mass(homes, alphas[:2]) * mass((further, room), alphas[4:]) * mass(kinds, alphas[2:4])
                found[(*homes, *kinds)] = found.get((*homes, *kinds), 0.0) + each
    return found


@pytest.mark.thorough
def test_places_are_drawn_from_the_prior_given_their_total(rng):
    """Three persons a home at most; the law of four at most, of which outcomes of four were left out, is told apart."""
    draws, out, given = [], np.zeros(4, np.int64), forms()
    for _ in range(10_000):
        draw_place(rng, given, POOLS, KAPPA, THETA, HOMES, out)
        draws.append(out.copy())
    known = places()
    assert sum(known.values()) == pytest.approx(1, abs=1e-12)
    assert not rejected(draws, known)
    other = {x: p for x, p in places(MOST + 1).items() if x in known}
    assert rejected(draws, {x: p / sum(other.values()) for x, p in other.items()})
