"""Posterior of true counts given released ones, by enumerating every vector of noisy counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import permutations, product
from math import factorial

import numpy as np
from numpy.typing import NDArray
from tests.reference.finucan import finucan

Release = Callable[[tuple[int, ...], tuple[int, ...]], float]


def mode_release(**tie_rule: bool) -> Release:
    """Probability 1 where the literal loop returns k."""
    return lambda a, k: float(sum(a) > 0 and tuple(finucan(a, sum(k), **tie_rule)) == k)


def draw_release(a: tuple[int, ...], k: tuple[int, ...]) -> float:
    """Multinomial mass of k."""
    if sum(a) == 0:
        return 0.0
    ways = factorial(sum(k)) / float(np.prod([float(factorial(x)) for x in k]))
    return ways * float(np.prod([(x / sum(a)) ** y for x, y in zip(a, k)]))


def shuffled_release(a: tuple[int, ...], k: tuple[int, ...]) -> float:
    """Share of the orders of the parts in which the literal loop returns k."""
    if sum(a) == 0:
        return 0.0
    orders = list(permutations(range(len(k))))
    found = [tuple(finucan([a[i] for i in order], sum(k))) == tuple(k[i] for i in order) for order in orders]
    return float(np.mean(found))


def evenly(release: Release) -> Release:
    """The same, but parts that are all zero are taken as equal."""
    return lambda a, k: release(a if sum(a) else (1,) * len(a), k)


def enumerate_posterior(
    k: Sequence[int],
    alphas: Sequence[float],
    alpha_total: float,
    counts: int,
    release: Release,
    given_true: Callable[[NDArray, float], NDArray] | None = None,
) -> NDArray[np.float64]:
    """Masses of true counts 0..counts - 1 of each part; flat priors, total released as it was drawn.

    `given_true` is the law of a weight given each true count: of the noisy count, or `redrawn`.
    """
    k = tuple(int(x) for x in k)
    true = np.arange(counts)
    given = [(given_true or _given)(true, alpha) for alpha in alphas]
    out = np.zeros((counts,) * len(k))
    for a in product(range(counts), repeat=len(k)):
        if chance := release(a, k):
            out += chance * reduce(np.multiply.outer, (law[:, x] for law, x in zip(given, a)))
    totals = reduce(np.add.outer, [true] * len(k))
    if given_true is redrawn:
        wide = np.arange(max(int(totals.max()), sum(k)) + 1)
        out *= redrawn(wide, alpha_total)[:, sum(k)][totals]
    else:
        out *= alpha_total ** np.abs(totals - sum(k))
    return out / out.sum()


def redrawn(true: NDArray, alpha: float) -> NDArray:
    """Mass of a draw from the posterior of a count given its noisy version, given the count itself."""
    out = np.zeros((true.size, true.size))
    for noisy in range(-90, int(true[-1]) + 91):
        posterior = alpha ** np.abs(np.arange(int(true[-1]) + 200) - noisy).astype(float)
        posterior /= posterior.sum()
        out += np.multiply.outer(alpha ** np.abs(true - noisy).astype(float), posterior[: true.size])
    return out


def _given(true: NDArray, alpha: float) -> NDArray:
    """Mass of max(n, 0) given each true count, up to a constant."""
    mass = alpha ** np.abs(true[:, None] - true[None, :]).astype(float)
    mass[:, 0] /= 1 - alpha
    return mass


def enumerate_summed(
    k: Sequence[int], alpha: float, alpha_total: float, counts: int, noise: int = 12
) -> NDArray[np.float64]:
    """As above for two parts and the summed rule: every n_1, n_2 and n, the total's mode by search."""
    m, true = sum(k), np.arange(counts)
    eta = np.array([sum(alpha ** (abs(j) + abs(s - j)) for j in range(-60, 61)) for s in range(-200, 201)])
    out = np.zeros((counts, counts))
    wide = np.arange(-90, 150)
    mode_of: dict[int, NDArray] = {}
    candidates = np.arange(0, 150)
    for n1 in range(-noise, counts):
        for n2 in range(-noise, counts):
            a = (max(n1, 0), max(n2, 0))
            if sum(a) == 0 or finucan(a, m) != list(k):
                continue
            s = n1 + n2
            if s not in mode_of:
                log = np.log(eta[np.clip(s - candidates, -200, 200) + 200])[None, :]
                log = log + np.log(alpha_total) * np.abs(wide[:, None] - candidates[None, :])
                mode_of[s] = np.array([_lower_middle(row) for row in log])
            released = wide[mode_of[s] == m]
            likelihood = (alpha_total ** np.abs(released[:, None] - np.arange(2 * counts - 1))).sum(0)
            out += (
                np.multiply.outer(
                    alpha ** np.abs(n1 - true).astype(float), alpha ** np.abs(n2 - true).astype(float)
                )
                * likelihood[true[:, None] + true[None, :]]
            )
    return out / out.sum()


def _lower_middle(log: NDArray) -> int:
    plateau = np.flatnonzero(log >= log.max() - 1e-9)
    return int(plateau[(plateau.size - 1) // 2])
