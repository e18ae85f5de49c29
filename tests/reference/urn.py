"""Dirichlet-multinomial draws by a Polya urn, one unit after the other, and their masses by a product over units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

import numpy as np


def urn(rng: np.random.Generator, count: int, alphas: Sequence[float]) -> list[int]:
    """Each unit is of a kind with a chance in proportion to alpha and how many of the kind there are."""
    drawn = [0] * len(alphas)
    for _ in range(count):
        weights = np.add(alphas, drawn)
        drawn[rng.choice(len(alphas), p=weights / weights.sum())] += 1
    return drawn


def mass(drawn: Sequence[int], alphas: Sequence[float]) -> float:
    """Chance of a draw: of one order of its units, one after the other, times the number of orders."""
    chance, there, whole, ways = 1.0, 0, sum(alphas), 1
    for x, alpha in zip(drawn, alphas, strict=True):
        for k in range(x):
            chance *= (alpha + k) / (whole + there)
            there += 1
        ways *= comb(there, x)
    return chance * ways


def divisions(count: int, kinds: int) -> Iterator[tuple[int, ...]]:
    """Every division of a count among kinds."""
    if kinds == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for others in divisions(count - first, kinds - 1):
            yield first, *others


def exchange(
    rng: np.random.Generator, units: Sequence[int], alphas: Sequence[float], leave: int, come: int
) -> list[int]:
    """Units listed one by one, of which some leave, each as likely as the others; then as many as come do from the urn."""
    listed = np.repeat(np.arange(len(units)), units)
    stay = rng.permutation(listed)[leave:]
    there = np.bincount(stay, minlength=len(units)).tolist()
    for _ in range(come):
        weights = np.add(alphas, there)
        there[rng.choice(len(alphas), p=weights / weights.sum())] += 1
    return there
