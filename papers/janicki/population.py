"""Families by state and group, drawn from what the paper and the 2010 Census state.

One figure is stated nowhere: how unevenly a group lives across states. It follows from the printed 1.4 % of noisy ratios that are
bad, as the spread at which that percentage is the expected one: see `spread`.
"""

from __future__ import annotations

from functools import cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root_scalar
from scipy.special import ndtr, ndtri

from papers.census import COUNTIES, counts_by_state
from papers.item import Setting
from trueup.errors import DataError

Reals = NDArray[np.float64]

STATES, LARGEST_FAMILY = 51, 10.0
SD, SCALE = 200 / 1.645, 86.86
"""Noise with a 90 % margin of 200: standard deviation of the normal law, scale of the Laplace law (counts)."""

NATION = 308_745_538
SHARES = {group: persons / NATION for group, persons in {
    "White": 223_553_265, "Black": 38_929_319, "American Indian": 2_932_248, "Asian": 14_674_252,
    "Pacific Islander": 540_013, "Other": 19_107_368, "Two or more": 9_009_073, "Hispanic": 50_477_594,
    "White, not Hispanic": 196_817_552, "Unattributed": NATION}.items()}  # fmt: skip
"""The table's groups, which overlap, with their share of the persons of the 2010 Census."""
PERSONS_A_FAMILY = 3.98
"""Persons of the 2010 Census for every family household, of which there were 77.5 million."""
TABLE_1 = np.array([[0.87, 2.14], [1.07, 2.14], [1.01, 2.18], [0.90, 2.10], [1.05, 2.40]])
"""Persons under 18 and over 18 in a family, in the five states that the paper prints."""
BAD = 1.4
"""Printed percentage of the ratios of counts with normal noise that are outside their range."""

POINTS, SIZES = 400, np.exp(np.linspace(-4.0, 17.0, 200))
"""Points of each quadrature: middles of equally likely parts. Numbers of families at which shares of bad ratios are computed."""


def states(setting: Setting) -> Reals:
    """Persons of the 51 states (the District of Columbia is one)."""
    found = np.array([counts.sum() for counts in counts_by_state(setting).values()], float)
    if found.size != STATES:
        raise DataError(
            f"'{COUNTIES}' has {found.size} states", needed=f"{STATES}, the District of Columbia one"
        )
    return found


def population(persons: Reals, uneven: float, rng: np.random.Generator) -> Reals:
    """Counts (places, 3) of persons under 18 and over 18 in families, and of families, by states and their groups."""
    factor = np.exp(rng.normal(-(uneven**2) / 2, uneven, (STATES, len(SHARES))))
    factor[:, -1] = 1.0  # the unattributed group is the whole state
    number = np.maximum(1.0, np.rint(_even(persons) * factor)).ravel()
    members = TABLE_1[rng.integers(0, len(TABLE_1), number.size)]
    return np.column_stack([np.rint(number[:, None] * members), number])


def spread(persons: Reals) -> float:
    """Standard deviation of the log of a group's share by state, at which 1.4 % of noisy ratios are expected to be bad."""
    found = root_scalar(lambda uneven: expected_bad(persons, uneven, "Gauss") - BAD, bracket=(0.1, 3.0))
    return float(found.root)


def expected_bad(persons: Reals, uneven: float, law: str) -> float:
    """Expected percentage of noisy ratios outside their range, over populations and noise: no draw is made."""
    even, middles = np.log(_even(persons)), ndtri(_middles())
    factor = uneven * middles - uneven**2 / 2
    sizes, shares = np.log(SIZES), bad_shares(law)
    groups = np.interp(even[:, :-1, None] + factor, sizes, shares).mean(axis=2)
    return 100 * float(np.column_stack([groups, np.interp(even[:, -1], sizes, shares)]).mean())


@cache
def bad_shares(law: str) -> Reals:
    """Share of the three noisy ratios that are bad, at each of `SIZES`: quadrature over the noise of the number of families.

    Given a noisy denominator `y`, a ratio is between `a` and `b` where its noisy numerator is between `a y` and `b y`,
    in either order; the noise of that is independent of `y`.
    """
    number = np.maximum(1.0, SIZES)[:, None, None]
    below = number + _quantile(law)
    inside = 0.0
    for members, least, terms in (
        (TABLE_1[:, 0], 0.0, 1),
        (TABLE_1[:, 1], 0.0, 1),
        (TABLE_1.sum(axis=1), 2.0, 2),
    ):
        true = number * members[:, None]
        inside += np.abs(
            _cdf(law, terms, LARGEST_FAMILY * below - true) - _cdf(law, terms, least * below - true)
        )
    return 1 - np.asarray(inside).mean(axis=(1, 2)) / 3


def _even(persons: Reals) -> Reals:
    """Families (states, groups) if every group lived in every state alike."""
    return persons[:, None] / PERSONS_A_FAMILY * np.array(list(SHARES.values()))


def _middles() -> Reals:
    return (np.arange(POINTS) + 0.5) / POINTS


def _quantile(law: str) -> Reals:
    half = _middles() - 0.5
    return SD * ndtri(_middles()) if law == "Gauss" else -SCALE * np.sign(half) * np.log1p(-2 * np.abs(half))


def _cdf(law: str, terms: int, at: Reals) -> Reals:
    """Distribution function of the noise of one count, or of the sum of two.

    The sum of two Laplace variables of scale b exceeds t > 0 with probability `(2 + t/b) exp(-t/b) / 4`.
    """
    if law == "Gauss":
        return ndtr(at / (SD * sqrt(terms)))
    far = np.abs(at) / SCALE
    tail = np.exp(-far) * (0.5 if terms == 1 else (2 + far) / 4)
    return np.where(at < 0, tail, 1 - tail)
