"""Single draws of discrete noise, one call each: 500 calls.

Ours against OpenDP's measurement of one integer, both with their tables and objects ready. The difference is
that of our empirical cdf (500 draws) from the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks._noise import distance, opendp_scalar
from benchmarks.harness import Case, Harness, available
from trueup.measuring.entropy import words
from trueup.noise import DiscreteGaussian, DiscreteLaplace

CALLS = 500


def cases(harness: Harness) -> Iterator[Case]:
    for epsilon in ("1", "0.001"):
        law = DiscreteLaplace.from_parameters({"epsilon": epsilon})
        yield from _single(harness, f"Laplace, epsilon = {epsilon}", law, "make_laplace", 1 / float(epsilon))
    for sigma in (1, 1000, 100_000):
        law = DiscreteGaussian.from_parameters({"sigma2": sigma**2})
        yield from _single(harness, f"Gaussian, sigma = {sigma}", law, "make_gaussian", float(sigma))


def _single(harness: Harness, case: str, law, maker: str, scale: float) -> Iterator[Case]:
    made: list[Callable[[int], Any]] = []

    def opendp():
        made[:] = made or [opendp_scalar(maker, scale)]
        return [made[0](0) for _ in range(CALLS)]

    def ours():
        return np.concatenate([law.sample(1, words) for _ in range(CALLS)])

    yield from harness.compare(case, ours, {"opendp": available("opendp", opendp)}, difference=distance(law))
