"""Bias and root mean squared error of the tree methods, by level and by size of the true count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks._nonnegative import nonnegative
from benchmarks._trees import Instance, aggregate, instance
from trueup.kernel.tree import least_squares
from trueup.kernel.tree.topdown import topdown
from trueup.kernel.tree.whole import controlled_rounding

Estimate = Callable[[Instance, NDArray], NDArray]
LEVELS = ("nation", "state", "county", "tract", "block group", "block")
SIZES = {
    "block, true 0": (0, 0),
    "block, 1-9": (1, 9),
    "block, 10-99": (10, 99),
    "block, 100 up": (100, np.inf),
}


def default(problem: Instance, y: NDArray, raw: bool = False) -> NDArray:
    zero, infinity = np.zeros(problem.size), np.full(problem.size, np.inf)
    weights = ((problem.variance < np.inf).astype(float), problem.variance) if raw else None
    return topdown(problem.child_ptr, problem.variance, zero, infinity, y, weights=weights)[0]


def rounded(problem: Instance, y: NDArray) -> NDArray:
    seeds = np.arange(len(y))
    return controlled_rounding(problem.child_ptr, 1 / problem.variance, default(problem, y), seeds)


def leaves_first(problem: Instance, y: NDArray) -> NDArray:
    """Least squares, negative leaves set to 0, everything above added up from them."""
    x = np.maximum(least_squares(problem.child_ptr, problem.variance, y), 0)
    return aggregate(problem.child_ptr, x)


METHODS: dict[str, Estimate] = {
    "raw measurements": lambda problem, y: y,
    "tree-equality": lambda problem, y: least_squares(problem.child_ptr, problem.variance, y),
    "raw measurements, from the top": lambda problem, y: default(problem, y, raw=True),
    "tree-topdown, continuous": default,
    "tree-topdown, rounded": rounded,
    "global nonnegative optimum": lambda problem, y: nonnegative(problem.child_ptr, problem.variance, y)[0],
    "leaves first, then added up": leaves_first,
}


@dataclass(frozen=True)
class Figure:
    """Bias and RMSE of one method on one group of nodes (counts), each with its Monte Carlo error."""

    noise: float
    group: str
    method: str
    bias: float
    bias_error: float
    rmse: float
    rmse_error: float


def figures(nodes: int, replicates: int, noises=(1.0, 5.0), batch: int = 25) -> Iterator[Figure]:
    """Simulate; one figure per noise, group and method."""
    for noise in noises:
        problem = instance(nodes, noise)
        rng = np.random.default_rng(2)
        groups = _groups(problem)
        moments: dict[str, list] = {name: [] for name in METHODS}
        for _ in range(0, replicates, batch):
            y = np.stack([problem.measured(rng) for _ in range(batch)])
            for name, estimate in METHODS.items():
                errors = estimate(problem, y) - problem.truth
                means = [[errors[:, at].mean(1), (errors[:, at] ** 2).mean(1)] for at in groups.values()]
                moments[name].append(means)
        for name, parts in moments.items():
            stacked = np.concatenate(parts, axis=-1)  # groups, (error, square), replicates
            for group, (error, square) in zip(groups, stacked):
                yield _figure(noise, group, name, error, square)


def _groups(problem: Instance) -> dict[str, NDArray]:
    edges = problem.level_ptr
    groups = {name: np.arange(a, b) for name, a, b in zip(LEVELS, edges, edges[1:])}
    blocks = groups["block"]
    truth = problem.truth[blocks]
    return groups | {name: blocks[(truth >= a) & (truth <= b)] for name, (a, b) in SIZES.items()}


def _figure(noise: float, group: str, method: str, error: NDArray, square: NDArray) -> Figure:
    count = np.sqrt(error.size)
    rmse = float(np.sqrt(square.mean()))
    # The error of a root is half the error of the mean square, divided by the root.
    rmse_error = float(square.std(ddof=1) / count / (2 * rmse))
    return Figure(
        noise, group, method, float(error.mean()), float(error.std(ddof=1) / count), rmse, rmse_error
    )
