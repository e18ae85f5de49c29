"""Exact posterior marginals of noisy counts on trees, whole and nonnegative."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from benchmarks.harness import Case, Harness, Run
from trueup.kernel.messages.pmf import OPEN, Factors
from trueup.kernel.messages.solve import joint_draws, marginals, solve
from trueup.layouts.factors import FactorTable
from trueup.model.prior import Flat
from trueup.noise import DiscreteLaplace

SHAPES = {
    "50 parts": (1, 50),
    "300 parts": (1, 300),
    "3,000 parts": (1, 3_000),
    "3,143 counties in 51 states": (1, 51, 3_143),
    "25,181 blocks, 815 block groups, 244 tracts, 5 counties": (1, 5, 244, 815, 25_181),
    "100,724 blocks, 3,260 block groups, 976 tracts, 20 counties": (1, 20, 976, 3_260, 100_724),
}


def cases(harness: Harness) -> Iterator[Case]:
    """Marginals of every node; epsilon is spent at every level. The last shape is four times the one before."""
    for name, sizes in SHAPES.items():
        for epsilon in (Fraction(1), Fraction(1, 4)):
            if epsilon != 1 and sizes[-1] > 100_000 and not harness.full:
                continue
            child_ptr, noisy = problem(sizes, float(epsilon))
            factors = tables(child_ptr, noisy, epsilon)
            slow = sizes[-1] > 300 and not harness.full
            peers: dict[str, Run | str] = {
                "prefix and suffix sums, SciPy FFT": "slow, with --full only"
                if slow
                else lambda y=noisy, e=epsilon: prefix_suffix(y, float(e))
            }
            yield from harness.compare(
                f"{name}, epsilon {epsilon}",
                lambda c=child_ptr, f=factors: means(*marginals(solve(c, f))),
                peers if len(sizes) == 2 else {},
            )
    child_ptr, noisy = problem((1, 50), 1.0)
    solved = solve(child_ptr, tables(child_ptr, noisy, Fraction(1)))
    rng = np.random.default_rng(0)
    yield from harness.compare("10,000 joint draws of 50 parts", lambda: joint_draws(solved, 10_000, rng))


def problem(sizes: tuple[int, ...], epsilon: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A tree and its noisy counts; 30 % of the leaves are truly empty."""
    rng = np.random.default_rng(7)
    counts = []
    for parents, children in pairwise(sizes):
        counts.append(1 + rng.multinomial(children - parents, rng.dirichlet(np.full(parents, 5.0))))
    child_ptr = np.concatenate([[1], 1 + np.cumsum(np.concatenate([*counts, np.zeros(sizes[-1], int)]))])
    truth = np.zeros(len(child_ptr) - 1, np.int64)
    truth[-sizes[-1] :] = rng.lognormal(3, 1.2, sizes[-1]) * (rng.random(sizes[-1]) > 0.3)
    for v in range(len(truth) - sizes[-1] - 1, -1, -1):
        truth[v] = truth[child_ptr[v] : child_ptr[v + 1]].sum()
    success = 1 - np.exp(-epsilon)
    noise = rng.geometric(success, len(truth)) - rng.geometric(success, len(truth))
    return child_ptr.astype(np.int64), truth + noise


def tables(child_ptr: NDArray[np.int64], noisy: NDArray[np.int64], epsilon: Fraction) -> Factors:
    """Likelihoods of all nodes, counts at least 0."""
    n = len(noisy)
    table = FactorTable(np.zeros(n, np.int64), np.full(n, OPEN))
    table.add_law(DiscreteLaplace(epsilon), np.arange(n), noisy, 60.0)
    table.add_prior(Flat(), np.flatnonzero(child_ptr[1:] == child_ptr[:-1]), 60.0)
    return table.build()


def means(start: NDArray, offset: NDArray, masses: NDArray) -> NDArray[np.float64]:
    """Posterior mean of every node."""
    counts = np.arange(len(masses)) - np.repeat(start[:-1] - offset, np.diff(start))
    return np.add.reduceat(masses * counts, start[:-1])


def prefix_suffix(noisy: NDArray[np.int64], epsilon: float) -> NDArray[np.float64]:
    """The plain way for one total: running sums of parts from both ends, met at each part.

    The total's likelihood is tilted into the parts by a fixed exponent, as FFTs lose what is below
    1e-16 of the largest mass; windows are trimmed there too.
    """
    reach = int(45 / epsilon)
    tilt = _tilt(noisy, epsilon)
    grids = [np.arange(max(0, y - reach), max(y, 0) + reach + 1) for y in noisy[1:]]
    parts = [_trim(_scaled(-epsilon * np.abs(g - y) + tilt * g), int(g[0])) for g, y in zip(grids, noisy[1:])]
    prefix, suffix = _running(parts), _running(parts[::-1])

    def total(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return _scaled(-epsilon * np.abs(counts - noisy[0]) - tilt * counts)

    mass, low = prefix[-1]
    counts = low + np.arange(len(mass))
    out = [float((mass * total(counts)) @ counts / (mass @ total(counts)))]
    for k, (part, start) in enumerate(parts):
        (left, left_low), (right, right_low) = prefix[k], suffix[len(parts) - 1 - k]
        others = fftconvolve(left, right)
        low = left_low + right_low + start
        likelihood = total(low + np.arange(len(others) + len(part) - 1))
        weight = fftconvolve(likelihood, others[::-1], mode="valid")
        joint = part * np.maximum(weight, 0)
        out.append(float(joint @ (start + np.arange(len(part))) / joint.sum()))
    return np.array(out)


Window = tuple[NDArray[np.float64], int]


def _scaled(log: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(log - log.max())


def _trim(mass: NDArray[np.float64], low: int) -> Window:
    kept = np.flatnonzero(mass > 1e-17 * mass.max())
    return mass[kept[0] : kept[-1] + 1] / mass.sum(), low + int(kept[0])


def _running(parts: list[Window]) -> list[Window]:
    out: list[Window] = [(np.ones(1), 0)]
    for part, start in parts:
        mass, low = out[-1]
        out.append(_trim(np.maximum(fftconvolve(mass, part), 0), low + start))
    return out


def _tilt(noisy: NDArray[np.int64], epsilon: float) -> float:
    """Bring the mean of the parts' sum to the total, by bisection."""
    low, high = -0.95 * epsilon, 0.95 * epsilon
    for _ in range(40):
        middle = (low + high) / 2
        reach = int(45 / epsilon)
        grids = np.maximum(noisy[1:], 0)[:, None] + np.arange(-reach, reach + 1)
        log = np.where(grids >= 0, -epsilon * np.abs(grids - noisy[1:, None]) + middle * grids, -np.inf)
        mass = np.exp(log - log.max(axis=1, keepdims=True))
        low, high = (
            (middle, high) if ((mass * grids).sum(1) / mass.sum(1)).sum() < noisy[0] else (low, middle)
        )
    return (low + high) / 2
