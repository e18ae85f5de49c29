"""Households exchanged with their persons: the prior is kept, and versions that do not keep it are told apart."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np
import pytest

from tests.kernel.test_linked_fresh import rejected
from tests.reference.urn import divisions, exchange, mass, urn
from trueup.kernel.table_walks.linked_exchange import LinkedPools, draw_exchange

A, MOST = 0.8, 3
KAPPA, THETA = np.array([1.5, 3.0]), np.array([0.3, 0.7, 0.6, 0.4])
ALPHAS = [KAPPA[0] * THETA[2:], KAPPA[1] * THETA[:2]]
SIZES = (1, 2)
POOLS = LinkedPools(np.array([0, 2, 4]), np.array([2, 3, 0, 1]), np.array([[0, 0, 0, 0], [0, 0, *SIZES]]))
"""Two kinds of persons, then households of one and of two."""


def weight(households):
    """Of so many households, up to `MOST`: Gamma(T + a) / T!."""
    return exp(lgamma(households + A) - lgamma(households + 1)) if 0 <= households <= MOST else 0.0


def prior():
    """Masses of every place."""
    found = {}
    for total in range(MOST + 1):
        for homes in divisions(total, 2):
            for persons in divisions(int(np.dot(SIZES, homes)), 2):
                found[*persons, *homes] = weight(total) * mass(homes, ALPHAS[0]) * mass(persons, ALPHAS[1])
    whole = sum(found.values())
    return {place: each / whole for place, each in found.items()}


def compiled(rng, x, by, further, persons):
    out = np.empty(4, np.int64)
    draw_exchange(rng, POOLS, KAPPA, THETA, x, by, further, persons, out)
    return out


def renewed(rng, units, alphas, change, further, draw=exchange):
    """So many units come more than leave, and further ones are renewed, as far as there are any."""
    both = min(further, sum(units) + min(change, 0))
    return draw(rng, units, alphas, both + max(-change, 0), both + max(change, 0))


def twin(rng, x, by, further, persons, draw=exchange):
    homes = renewed(rng, x[2:], ALPHAS[0], by, further, draw)
    change = int(np.dot(SIZES, np.subtract(homes, x[2:])))
    return np.array([*renewed(rng, x[:2], ALPHAS[1], change, persons, draw), *homes])


def fixed_shares(rng, units, alphas, leave, come):
    """Wrong: who comes does not depend on who is there."""
    stay = exchange(rng, units, alphas, leave, 0)
    return np.add(stay, rng.multinomial(come, np.divide(alphas, np.sum(alphas))))


def first_leave(rng, units, alphas, leave, come):
    """Wrong: those of the first kind leave first."""
    there = list(units)
    for _ in range(leave):
        there[next(j for j, x in enumerate(there) if x)] -= 1
    return exchange(rng, there, alphas, 0, come)


def all_persons_anew(rng, x, by, further, persons):
    """Wrong: persons beyond those that were there come from an urn that is empty."""
    homes = renewed(rng, x[2:], ALPHAS[0], by, further)
    change = int(np.dot(SIZES, np.subtract(homes, x[2:])))
    stay = exchange(rng, x[:2], ALPHAS[1], max(-change, 0), 0)
    return np.array([*np.add(stay, urn(rng, max(change, 0), ALPHAS[1])), *homes])


def moved(rng, place, draw):
    """A place after some steps that accept by the weights of its number of households alone."""
    x = np.array(place)
    for by in rng.integers(-2, 3, size=6).tolist():
        total = int(x[2:].sum())
        if rng.random() * weight(total) < weight(total + by):
            x = draw(rng, x, by, int(rng.integers(3)), int(rng.integers(3)))
    return tuple(x.tolist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (compiled, False),
        (twin, False),
        (lambda *given: twin(*given, draw=fixed_shares), True),
        (lambda *given: twin(*given, draw=first_leave), True),
        (all_persons_anew, True),
    ],
)
def test_the_prior_is_kept_and_wrong_steps_are_told_apart(draw, wrong, rng):
    """Places drawn from their prior are of it after six steps, and keep the rule that ties persons to households."""
    known = prior()
    at = rng.choice(len(known), p=list(known.values()), size=10_000)
    places = list(known)
    assert rejected([moved(rng, places[i], draw) for i in at], known) == wrong
