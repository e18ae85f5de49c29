"""Bias and error of the tree methods by level and by size of the true count, with Monte Carlo errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks._bias import METHODS, figures
from benchmarks._trees import instance
from benchmarks.harness import Case, Harness, Picture

NODES = 10**4


def cases(harness: Harness) -> Iterator[Case]:
    """The time of one replicate of each method."""
    problem = instance(NODES)
    y = problem.measured(np.random.default_rng(1))[None]
    for name, estimate in METHODS.items():
        yield from harness.compare(name, lambda estimate=estimate: estimate(problem, y), memory=False)


def pictures(harness: Harness) -> Iterator[Picture]:
    """Bias +- its error and RMSE +- its error (counts), one table per noise and kind of figure."""
    every = list(figures(NODES, 4_000 if harness.full else 500))
    groups = list(dict.fromkeys(figure.group for figure in every))
    for noise in dict.fromkeys(figure.noise for figure in every):
        for kind in ("bias", "rmse"):
            rows = []
            for method in METHODS:
                chosen = [f for f in every if f.noise == noise and f.method == method]
                values = [f"{getattr(f, kind):.2f} ± {getattr(f, f'{kind}_error'):.2f}" for f in chosen]
                rows.append([method, *values])
            yield Picture(title=f"{kind}, noise x{noise:g}", columns=["method", *groups], rows=rows)
