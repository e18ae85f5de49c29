"""The tree of the benchmarks: nation, states, counties, tracts, block groups, blocks.

The shape is that of the United States (1 / 51 / 3,143 / 73,000 / 217,000 / 6,000,000); smaller trees keep its six
levels. Leaves are lognormal with 35 % true zeros; every node is measured with two-sided geometric noise whose
scale depends on the level.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SHAPES = {
    500: (1, 4, 10, 25, 50, 410),
    10**4: (1, 20, 100, 400, 1_000, 8_479),
    10**5: (1, 51, 300, 1_500, 4_500, 93_648),
    10**6: (1, 51, 1_000, 12_000, 36_000, 950_948),
    6_300_000: (1, 51, 3_143, 73_000, 217_000, 6_000_000),
}
SCALES = (20.0, 10.0, 8.0, 6.0, 6.0, 8.0)  # of the noise by level, counts


@dataclass(frozen=True)
class Instance:
    """A tree of n nodes in level order, its truth and its measurements."""

    child_ptr: NDArray[np.int64]
    level_ptr: NDArray[np.int64]
    truth: NDArray[np.float64]
    variance: NDArray[np.float64]

    @property
    def size(self) -> int:
        return self.truth.size

    def measured(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw noisy measurements, (n,)."""
        return self.truth + np.concatenate(
            [self._noise(rng, level) for level in range(len(self.level_ptr) - 1)]
        )

    def _noise(self, rng: np.random.Generator, level: int) -> NDArray[np.int64]:
        start, stop = self.level_ptr[level : level + 2]
        q = self.variance[start]
        # q = 2 a / (1 - a)^2 solved for a = exp(-1 / scale)
        success = (np.sqrt(1 + 2 * q) - 1) / q
        return rng.geometric(success, stop - start) - rng.geometric(success, stop - start)


def aggregate(child_ptr: NDArray[np.int64], values: NDArray) -> NDArray:
    """Replace every inner node of `values` (n,) by the sum of its children, in place."""
    from trueup.kernel.tree import sweep_up

    sweep_up(child_ptr, (child_ptr[:-1] == child_ptr[1:]).astype(float), values)
    return values


def instance(nodes: int, noise: float = 1.0, seed: int = 0) -> Instance:
    """Build a tree of about that many nodes; ``noise`` multiplies all scales."""
    rng = np.random.default_rng(seed)
    sizes = SHAPES[nodes]
    level_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    truth = np.zeros(level_ptr[-1])
    child_ptr = np.concatenate([[1], 1 + np.cumsum(_child_counts(sizes, rng))]).astype(np.int64)
    leaves = np.floor(rng.lognormal(3.2, 1.2, sizes[-1])) * (rng.random(sizes[-1]) > 0.35)
    truth[level_ptr[-2] :] = leaves
    decay = np.exp(-1 / (noise * np.array(SCALES)))
    variance = np.repeat(2 * decay / (1 - decay) ** 2, sizes)
    return Instance(child_ptr, level_ptr, aggregate(child_ptr, truth), variance)


def _child_counts(sizes, rng: np.random.Generator) -> NDArray[np.int64]:
    """At least one child each, the rest shared out unevenly."""
    counts = []
    for parents, children in pairwise(sizes):
        weights = rng.gamma(1.5, 1.0, parents)
        counts.append(1 + rng.multinomial(children - parents, weights / weights.sum()))
    return np.concatenate([*counts, np.zeros(sizes[-1], np.int64)])
