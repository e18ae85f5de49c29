"""Discrete Laplace noise: vectors of 1e6 draws.

Ours is exact and takes fresh random words from the system's kernel. Peers: OpenDP (exact, secure) and NumPy's difference of
two geometric variables (the same law in floating point, not secure). The difference is that of our empirical
cdf from the exact one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._noise import VECTOR, vectors
from benchmarks.harness import Case, Harness
from trueup.noise import DiscreteLaplace


def cases(harness: Harness) -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for epsilon in ("0.1", "1", "5", "0.001"):
        law = DiscreteLaplace.from_parameters({"epsilon": epsilon})
        rate = -np.expm1(-float(epsilon))

        def geometric(rate=rate):
            return rng.geometric(rate, VECTOR) - rng.geometric(rate, VECTOR)

        yield from vectors(
            harness,
            f"epsilon = {epsilon}",
            law,
            "make_laplace",
            1 / float(epsilon),
            {"numpy geometric (not secure)": geometric},
        )
