"""A grid under cell keys: posterior means and intervals of 2.6 million cells by five categories, against rescaling.

Every cell of 100 m has five categories and a total, every km cell a total; all are changed by one cell key's table, keys by
simulated keys of records. The peer rescales each cell's categories to its published total, as users do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Case, Harness, Picture
from trueup.assessing.comparators import PerturbedTables
from trueup.assessing.tally import by_range
from trueup.inferring import infer
from trueup.inferring.questions import keep_zeros
from trueup.inferring.tree_exact import TreeExact
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.prior import Estimated
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.tree import Tree
from trueup.noise.perturbed import CellKey

LAW: Any = CellKey(4, "2", 1)
CATEGORIES, PER_KM, KM_PER_REGION = 5, 12, 500
SIZES = (1, 2, 3, 5, 10, 20, 50)


class Grid(NamedTuple):
    """A made-up grid: its cells, true counts `(n,)`, and what is published of them."""

    cells: Cells
    counts: np.ndarray
    measured: Measurements


@lru_cache(maxsize=1)
def grid(places: int) -> Grid:
    """Make a grid of about so many 100 m cells: sizes and shares vary from cell to cell, most categories are small."""
    rng = np.random.default_rng(20220515)
    km = places // PER_KM
    regions = max(km // KM_PER_REGION, 1)
    sizes = (1, regions, km, km * PER_KM)
    cells = Cells(_tree(sizes), (Attribute("citizenship", tuple(f"c{k}" for k in range(CATEGORIES))),))
    mean = rng.gamma(0.7, 14, (sizes[-1], 1)) * rng.dirichlet([3, 0.5, 0.4, 0.3, 0.3], sizes[-1])
    counts = rng.poisson(mean).ravel().astype(np.int64)
    margins = [Margin("region"), Margin("km"), Margin("cell"), cells.finest]
    tables = PerturbedTables(LAW, counts, 0.9).publish(cells, margins, rng)
    headers = tuple(Measured("grid", margin, LAW) for margin in margins)
    return Grid(cells, counts, Measurements(cells, headers, tuple(tables.values()), NO_GUARANTEE))


def _tree(sizes: tuple[int, ...]) -> Tree:
    """Places without names, children as even as can be."""
    level_ptr = np.concatenate([[0], np.cumsum(sizes)])
    pointers = [
        level_ptr[level + 1] + np.linspace(0, sizes[level + 1], size, endpoint=False).astype(np.int64)
        for level, size in enumerate(sizes[:-1])
    ]
    child_ptr = np.concatenate([*pointers, np.full(sizes[-1] + 1, level_ptr[-1])])
    return Tree(("country", "region", "km", "cell"), child_ptr, level_ptr)


def inferred(grid: Grid) -> Posterior:
    """The posterior given all tables."""
    margins = tuple(header.margin for header in grid.measured.headers)
    constraints = Constraints(grid.cells, margins)
    return infer(grid.measured, TreeExact(prior=Estimated()), spec=constraints, draws=1)


def ours(grid: Grid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior means of the finest cells, which add up, and their 90 % intervals."""
    exact = inferred(grid).drawn.marginals[grid.cells.finest]
    return exact.mean, exact.quantile(0.05), exact.quantile(0.95)


def rescaled(grid: Grid) -> np.ndarray:
    """Categories of each cell times the published total over their sum; as they are where that is 0."""
    finest = grid.measured.values[3].reshape(-1, CATEGORIES).astype(float)
    sums = finest.sum(axis=1, keepdims=True)
    total = grid.measured.values[2][:, None]
    return (finest * np.divide(total, sums, out=np.ones_like(sums), where=sums > 0)).ravel()


def places(harness: Harness) -> int:
    return 2_600_000 if harness.full else 130_000


def cases(harness: Harness) -> Iterator[Case]:
    """Time and memory; the difference is how much lower our RMSE is (counts)."""
    made = grid(places(harness))
    truth = made.counts

    def lower(found, naive) -> float:
        return _rmse(naive - truth) - _rmse(found[0] - truth)

    case = f"{made.cells.shape[0]:,} cells x {CATEGORIES}"
    yield from harness.compare(
        case, lambda: ours(made), {"rescaling": lambda: rescaled(made)}, difference=lower
    )


def pictures(harness: Harness) -> Iterator[Picture]:
    """RMSE by size of the true and of the published count and of totals, and what the intervals cover."""
    made = grid(places(harness))
    posterior, truth = inferred(made), made.counts
    exact = posterior.drawn.marginals[made.cells.finest]
    within = (exact.quantile(0.05) <= truth) & (truth <= exact.quantile(0.95))
    found = {"posterior mean": exact.mean, "zeros kept": keep_zeros(posterior), "rescaling": rescaled(made)}
    for by, counts in (("true", truth), ("published", made.measured.values[3])):
        classing = by_range("size", counts, SIZES)
        rows = []
        for k, label in enumerate(classing.labels):
            at = classing.at == k
            errors = (f"{_rmse((each - truth)[at]):.3f}" for each in found.values())
            rows.append([label, f"{at.sum():,}", *errors, f"{within[at].mean():.3f}"])
        yield Picture(
            title=f"Root mean squared error (counts) by size of the {by} count",
            columns=[f"{by} count", "cells", *found, "coverage of 90 % intervals"],
            rows=rows,
        )
    rows = []
    for header in made.measured.headers[:3]:
        errors = (made.cells.sum(each - truth, header.margin) for each in found.values())
        rows.append([str(header.margin), *(f"{_rmse(each):.3f}" for each in errors)])
    yield Picture(title="Root mean squared error (counts) of totals", columns=["total", *found], rows=rows)


def _rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))
