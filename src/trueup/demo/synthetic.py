"""A synthetic geography with the skew of real ones; no person or place in it exists."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEED = 20200401
STATES, COUNTIES, TRACTS, BLOCKS = 3, 24, 420, 9_000
SEXES = ("female", "male")
AGES = ("0-17", "18-39", "40-64", "65+")
AGE_SHARES = np.array([0.22, 0.30, 0.32, 0.16])


def synthetic_blocks(seed: int = SEED) -> dict[str, NDArray]:
    """Return a table with one row per block and one column per sex and age group.

    Places have unequal numbers of children; a third of the blocks are empty, the others are
    lognormal with a long tail, and age structure differs between tracts.

    Examples
    --------
    >>> table = synthetic_blocks()
    >>> len(table["GEOID"]), sorted(table)[:3]
    (9000, ['GEOID', 'female_0_17', 'female_18_39'])
    """
    rng = np.random.default_rng(seed)
    tract_of, codes = _codes(rng)
    people = _population(rng, tract_of)
    shares = rng.dirichlet(20 * np.outer([0.51, 0.49], AGE_SHARES).ravel(), TRACTS)
    counts = rng.multinomial(people, shares[tract_of])
    names = [f"{sex}_{age.replace('-', '_').replace('+', '')}" for sex in SEXES for age in AGES]
    return {"GEOID": codes, **{name: counts[:, i] for i, name in enumerate(names)}}


def _codes(rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return the tract of every block, and its code: 2 state + 3 county + 6 tract + 4 block."""
    county_of = _children(rng, STATES, COUNTIES)
    tract_county = _children(rng, COUNTIES, TRACTS)
    tract_of = _children(rng, TRACTS, BLOCKS)
    state = [f"{90 + s:02d}" for s in county_of]
    county = [f"{state[c]}{2 * _rank(county_of, c) + 1:03d}" for c in range(COUNTIES)]
    tract = [f"{county[tract_county[t]]}{100 * (_rank(tract_county, t) + 1):06d}" for t in range(TRACTS)]
    first = np.searchsorted(tract_of, np.arange(TRACTS))
    return tract_of, np.array([f"{tract[t]}{1000 + b - first[t]:04d}" for b, t in enumerate(tract_of)])


def _children(rng: np.random.Generator, parents: int, children: int) -> NDArray[np.int64]:
    """Return the parent of every child: at least one each, the rest divided unevenly."""
    extra = rng.multinomial(children - parents, rng.dirichlet(np.full(parents, 1.5)))
    return np.repeat(np.arange(parents), 1 + extra)


def _rank(parent: NDArray[np.int64], child: int) -> int:
    return int(child - np.searchsorted(parent, parent[child]))


def _population(rng: np.random.Generator, tract_of: NDArray[np.int64]) -> NDArray[np.int64]:
    density = rng.lognormal(0, 0.6, TRACTS)[tract_of]
    occupied = rng.random(BLOCKS) > 0.33
    return np.floor(occupied * density * rng.lognormal(3.3, 1.1, BLOCKS)).astype(np.int64)
