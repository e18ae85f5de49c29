"""Discrete Gaussian noise: vectors of 1e6 draws.

Ours is exact and takes fresh random words from the system's kernel. Peers: OpenDP (exact, secure) and NumPy's rounded normal
(another law, not secure; NumPy has none for this one). The difference is that of our empirical cdf from the
exact one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._noise import VECTOR, vectors
from benchmarks.harness import Case, Harness
from trueup.noise import DiscreteGaussian


def cases(harness: Harness) -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for sigma in (1, 10, 1000, 100_000):
        law = DiscreteGaussian.from_parameters({"sigma2": sigma**2})

        def rounded(sigma=sigma):
            return np.rint(rng.normal(scale=sigma, size=VECTOR)).astype(np.int64)

        yield from vectors(
            harness,
            f"sigma = {sigma}",
            law,
            "make_gaussian",
            float(sigma),
            {"numpy rint(normal) (another law)": rounded},
        )
