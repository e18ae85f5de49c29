"""Posterior of true counts given released ones, by enumerating every vector of noisy counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
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


def enumerate_summed_under(k: Sequence[int], law, total_law, counts: int, noise: int) -> NDArray[np.float64]:
    """As above under any laws of whole noise of at most `noise` in size: every n_1, n_2 and n."""
    m, true, far = sum(k), np.arange(counts), np.arange(-noise, noise + 1)
    eta = np.convolve(law.pmf(far), law.pmf(far))
    out = np.zeros((counts, counts))
    own = np.arange(m - 2 * noise - 2, m + 2 * noise + 3)
    for n1, n2 in product(range(-noise, counts + noise), repeat=2):
        a = (max(n1, 0), max(n2, 0))
        if sum(a) == 0 or finucan(a, m) != list(k):
            continue
        candidates = np.arange(0, m + 3 * noise + 3)
        distance = n1 + n2 - candidates
        with np.errstate(divide="ignore"):
            log = np.log(
                np.where(
                    np.abs(distance) <= 2 * noise,
                    eta[np.clip(distance, -2 * noise, 2 * noise) + 2 * noise],
                    0,
                )
            )
        rows = log + total_law.logpmf(own[:, None] - candidates)
        released = [n for n, row in zip(own, rows) if row.max() > -np.inf and _lower_middle(row) == m]
        given = total_law.pmf(np.array(released, int)[:, None] - np.arange(2 * counts - 1)).sum(axis=0)
        out += np.multiply.outer(law.pmf(n1 - true), law.pmf(n2 - true)) * given[true[:, None] + true]
    return out / out.sum()


def _lower_middle(log: NDArray) -> int:
    plateau = np.flatnonzero(log >= log.max() - 1e-9)
    return int(plateau[(plateau.size - 1) // 2])


def enumerate_redrawn(
    k: Sequence[int], alpha: float, alpha_total: float | None, counts: int, noise: int = 14
) -> NDArray[np.float64]:
    """As above for two parts and Algorithm 1 whose total was drawn given n* (and n, unless alpha_total is None)."""
    m, true = sum(k), np.arange(counts)
    noisy, drawn = np.arange(-noise, counts + noise), np.arange(counts + 2 * noise)
    posterior = alpha ** np.abs(drawn - noisy[:, None]).astype(float)
    posterior /= posterior.sum(axis=1, keepdims=True)
    released = np.array([[evenly(draw_release)((int(a), int(b)), tuple(k)) for b in drawn] for a in drawn])
    split = posterior @ released @ posterior.T
    own = np.arange(m - 3 * noise, m + 3 * noise + 1) if alpha_total else np.zeros(1, int)
    out = np.zeros((counts, counts))
    totals = true[:, None] + true[None, :]
    for i, j in product(range(noisy.size), repeat=2):
        chance = [_total_drawn(m, int(noisy[i] + noisy[j]), int(n), alpha, alpha_total) for n in own]
        likelihood = np.ones(2 * counts - 1) * chance[0]
        if alpha_total:
            likelihood = np.array(
                [alpha_total ** np.abs(own - n).astype(float) @ chance for n in range(2 * counts - 1)]
            )
        given = np.multiply.outer(*(alpha ** np.abs(noisy[x] - true).astype(float) for x in (i, j)))
        out += split[i, j] * likelihood[totals] * given
    return out / out.sum()


@cache
def _total_drawn(m: int, noisy_sum: int, noisy: int, alpha: float, alpha_total: float | None) -> float:
    """Probability that m is drawn from the posterior of a total given n* and perhaps n."""
    every = np.arange(0, 400)
    mass = np.array([_sum_of_two(abs(noisy_sum - int(x)), alpha) for x in every])
    if alpha_total:
        mass = mass * alpha_total ** np.abs(noisy - every).astype(float)
    return float(mass[m] / mass.sum())


@cache
def _sum_of_two(distance: int, alpha: float) -> float:
    """Mass of two noises that sum to `distance`, up to a constant."""
    return sum(alpha ** (abs(j) + abs(distance - j)) for j in range(-60, distance + 61))


def enumerate_tree(
    k: Sequence[Sequence[int]],
    alpha: float,
    counts: int,
    release: Release,
    given_true: Callable | None = None,
) -> NDArray[np.float64]:
    """Masses of four counts 0..counts - 1, two of either of two sums; every node measured, flat priors.

    `k` holds the released counts of either sum's parts. Each split has its own table, by enumeration.
    """
    given_true = given_true or _given
    tops = tuple(sum(pair) for pair in k)
    weights = given_true(np.arange(4 * counts), alpha)
    root = weights[:, sum(tops)][np.add.outer(*[np.arange(2 * counts - 1)] * 2)]
    upper = _split_table(tops, weights, 2 * counts - 1, release) * root
    lower = [_split_table(pair, weights, counts, release) for pair in k]
    sums = np.add.outer(np.arange(counts), np.arange(counts))
    out = np.multiply.outer(*lower) * upper[sums[:, :, None, None], sums[None, None]]
    return out / out.sum()


def _split_table(k: Sequence[int], weights: NDArray, counts: int, release: Release) -> NDArray:
    """Chance of one released split given the true counts of its two parts, each 0..counts - 1."""
    largest = counts + sum(k) + 10
    released = np.array([[release((a, b), tuple(k)) for b in range(largest)] for a in range(largest)])
    return weights[:counts, :largest] @ released @ weights[:counts, :largest].T


def enumerate_summed_tree(
    k: Sequence[Sequence[int]],
    laws: Sequence,
    bounds: Sequence[int],
    true: NDArray,
    release: Release,
    summed: bool = True,
) -> NDArray[np.float64]:
    """Likelihood of each vector of four true counts, two of either of two sums, by every noise within bounds of all seven.

    Laws and bounds of the noise are of the root, its parts and the finest counts; totals are estimated by the summed rule, by
    search, or from their own noisy counts alone.
    """
    tops = tuple(sum(pair) for pair in k)
    noise = [range(-bound, bound + 1) for bound in bounds]
    root, upper, finest = laws
    split = cache(release)
    mass = [{j: float(law.pmf(j)) for j in each} for law, each in zip(laws, noise)]

    @cache
    def mode(level: int, own: int, below: int) -> int:
        if not summed:
            return max(own, 0)
        return _summed_mode(own, below, (root, upper)[level], (upper, finest)[level], 4 * max(bounds))

    @cache
    def branch(state: int, first: int, second: int) -> dict[tuple[int, int], float]:
        """Mass of every noisy count and estimate of a state whose counties have these true counts."""
        out: dict[tuple[int, int], float] = {}
        for i, j in product(noise[2], repeat=2):
            a = (first + i, second + j)
            chance = split((max(a[0], 0), max(a[1], 0)), tuple(k[state])) if tops[state] else 1.0
            for own in noise[1] if chance else ():
                n = first + second + own
                key = n, mode(1, n, sum(a))
                out[key] = out.get(key, 0.0) + chance * mass[2][i] * mass[2][j] * mass[1][own]
        return out

    @cache
    def topmost(count: int, below: int) -> float:
        """Mass of the root's noise with which it is estimated as released."""
        return sum(mass[0][j] for j in noise[0] if mode(0, count + j, below) == sum(tops))

    out = np.zeros(len(true))
    for row, counts in enumerate(true.tolist()):
        for (one, both), (other, rest) in product(
            branch(0, *counts[:2]).items(), branch(1, *counts[2:]).items()
        ):
            if chance := split((one[1], other[1]), tops):
                out[row] += both * rest * chance * topmost(sum(counts), one[0] + other[0])
    return out


def _summed_mode(own: int, below: int, law, of_parts, reach: int) -> int:
    """Mode of a total given its noisy count and the sum of two noisy parts, by search; the lower middle of a plateau."""
    eta = _noise_of_two(of_parts, reach)
    counts = np.arange(0, max(own, below, 0) + reach)
    distance = np.abs(below - counts)
    with np.errstate(divide="ignore"):
        log = np.log(np.where(distance <= 2 * reach, eta[np.minimum(distance, 2 * reach) + 2 * reach], 0))
    return _lower_middle(log + law.logpmf(own - counts))


@cache
def _noise_of_two(law, reach: int) -> NDArray[np.float64]:
    far = np.arange(-reach, reach + 1)
    return np.convolve(law.pmf(far), law.pmf(far))
