"""Noise on a tree that keeps the root's total, with weights at inner nodes too.

`p(v) ~ exp(-sum_u epsilon_u |v_u|)` over all nodes u, where the leaves' noise sums to zero and every inner node's is
the sum of its children's. It is the exact posterior engine read backwards: every node "measured" as zero, flat priors on
all integers, an exact root. Convolutions in doubles on windows; the mass left out is returned. It draws from a NumPy
generator, for analysis and simulation: a spec cannot ask for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.kernel.messages import joint_draws, solve
from trueup.kernel.pmf import OPEN, Factors


class TreeNoise(NamedTuple):
    """Noise of every node of a tree.

    Attributes
    ----------
    nodes
        `(d, nodes)` integers, children adding up to their parents, the root zero.
    dropped
        Bound on the probability that the windows leave out.
    """

    nodes: NDArray[np.int64]
    dropped: float


def draw_tree(
    child_ptr: NDArray[np.int64],
    epsilons: ArrayLike,
    count: int,
    rng: np.random.Generator,
    tolerance: float = 1e-12,
) -> TreeNoise:
    """Draw noise on a tree in level order; `epsilons` `(nodes,)`, 0 where a node has no weight of its own.

    Every leaf needs a weight; the root's is not used.

    Examples
    --------
    >>> drawn = draw_tree(np.array([1, 3, 3, 3]), [0, 1, 1], 5, np.random.default_rng(0))
    >>> (drawn.nodes[:, 1] + drawn.nodes[:, 2]).tolist(), drawn.nodes[:, 0].tolist()
    ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0])
    """
    rates, n = np.asarray(epsilons, dtype=np.float64), len(child_ptr) - 1
    kinds, kind = np.unique(rates[1:], return_inverse=True)
    reach = [int(np.ceil(80 / rate)) if rate else 0 for rate in kinds]
    tables = [-rate * np.abs(np.arange(-r, r + 1)) for rate, r in zip(kinds, reach)]
    weighted = np.flatnonzero(rates[1:] > 0) + 1
    bounds = np.where(np.arange(n) == 0, 0, OPEN)
    factors = Factors(
        np.searchsorted(weighted, np.arange(n + 1)),
        -np.array(reach, dtype=np.int64)[kind[weighted - 1]],
        kind[weighted - 1].astype(np.int64),
        np.cumsum([0, *map(len, tables)]),
        np.concatenate(tables),
        np.ones(len(tables)),
        -bounds,
        bounds,
    )
    solved = solve(child_ptr, factors, tolerance)
    return TreeNoise(joint_draws(solved, count, rng), solved.dropped)
