"""The posterior behind released counts: Wang & Reiter's Table 3, and any number of parts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.harness import Case, Harness
from trueup.inferring.released import two_parts
from trueup.inferring.released.posterior import ModePosterior
from trueup.kernel.multinomial.mode import multinomial_mode
from trueup.layouts.released import ReleasedSum
from trueup.noise import DiscreteLaplace

ONE = DiscreteLaplace(Fraction(1))


def cases(harness: Harness) -> Iterator[Case]:
    problem = ReleasedSum(np.array([250, 357]), (ONE, ONE), ONE)
    yield from harness.compare(
        "ten rows of Table 3",
        lambda: _ten_highest(two_parts(problem)[2]),
        {"enumeration, vectorised (window +-30, as published)": _enumerated},
    )
    rng = np.random.default_rng(1)
    for parts, draws in ((50, 5000), (3000, 100)):
        problem = ReleasedSum(_released(rng, parts), (ONE,) * parts, ONE)
        posterior = ModePosterior.of(problem)
        yield from harness.compare(f"{parts:,} parts: set-up", lambda: ModePosterior.of(problem), {})  # noqa: B023
        yield from harness.compare(
            f"{parts:,} parts: {draws:,} independent draws",
            lambda: posterior.draw(draws, np.random.default_rng(2))[0],  # noqa: B023
            {},
        )


def _ten_highest(mass: np.ndarray) -> np.ndarray:
    return np.sort(mass, axis=None)[:-11:-1]


def _enumerated() -> np.ndarray:
    """The published procedure: for every (N1, N2), a sum over every (n1, n2), all tables in memory."""
    k = np.array([250, 357])
    first, second = (np.arange(x - 60, x + 61) for x in k)
    mode = np.array([[multinomial_mode([a, b], 607)[0] == 250 for b in second] for a in first])
    out = np.zeros((61, 61))
    q = np.exp(-1.0)
    for i, n1 in enumerate(range(220, 281)):
        for j, n2 in enumerate(range(327, 388)):
            window = mode[i : i + 61, j : j + 61]
            chance = q ** np.abs(np.arange(-30, 31)[:, None]) * q ** np.abs(np.arange(-30, 31)[None, :])
            out[i, j] = (window * chance).sum() * q ** abs(n1 + n2 - 607)
    return _ten_highest(out / out.sum())


def _released(rng: np.random.Generator, parts: int) -> np.ndarray:
    """Skewed counts, noisy and released as their multinomial mode."""
    true = np.floor(rng.lognormal(5, 1.5, parts)).astype(np.int64)
    noisy = np.maximum(true + ONE.sample(parts, rng.bytes), 0)
    return multinomial_mode(noisy, int(true.sum() + ONE.sample(1, rng.bytes)[0]))
