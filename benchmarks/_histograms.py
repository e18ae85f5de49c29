"""Race by voting age in five levels of census geography: real blocks if `TRUEUP_TEST_DATA` names them, else as many."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from trueup.kernel.histogram import Marginal, identity, marginalise, spread, summed
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.spine import Spine

RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
CODES = (
    2,
    5,
    11,
    12,
    15,
)  # leading digits of a block's code that name its state, county, tract, block group, itself
SIZES = (1, 5, 244, 815, 25_181)
MARGINALS: dict[str, Marginal] = {
    "total": (summed(8), summed(2)),
    "voting age": (summed(8), identity(2)),
    "race": (identity(8), summed(2)),
    "detailed": (identity(8), identity(2)),
}
VARIANCES = {
    "total": 25.0,
    "voting age": 25.0,
    "race": 25.0,
    "detailed": 5.0,
}  # counts squared, as at rho .02 and .1


@dataclass(frozen=True)
class Histograms:
    """True histograms per level, and the tree of places."""

    source: str
    spine: Spine
    truth: tuple[NDArray[np.float64], ...]

    @property
    def plan(self) -> list[list[tuple[Marginal, float]]]:
        """Every marginal at every level."""
        return [[(m, VARIANCES[name]) for name, m in MARGINALS.items()]] * self.spine.depth

    @cached_property
    def answers(self) -> list[list[NDArray[np.float64]]]:
        """Noisy answers."""
        rng = np.random.default_rng(1)
        return [
            [_noisy(marginalise(t, m), v, rng) for m, v in p]
            for t, p in zip(self.truth, self.plan, strict=True)
        ]

    def tree(self) -> HistogramLeastSquares:
        """Least squares, prepared."""
        return HistogramLeastSquares.prepare(Domain.of(list(MARGINALS.values())), self.spine, self.plan)

    def chains(self) -> list[list[Marginal]]:
        """Total, voting age, cells."""
        return [[MARGINALS[name] for name in ("total", "voting age", "detailed")]] * self.spine.depth


def _noisy(x: NDArray[np.float64], variance: float, rng: np.random.Generator) -> NDArray[np.float64]:
    return x + np.rint(rng.normal(0, variance**0.5, x.shape))


def rhode_island() -> Histograms:
    """The 25,181 blocks, or a synthetic state of the same shape."""
    folder = os.environ.get("TRUEUP_TEST_DATA")
    file = Path(folder or ".") / "ri_blocks_2010.csv.gz"
    return _real(file) if folder and file.exists() else synthetic(SIZES)


def _real(file: Path) -> Histograms:
    with gzip.open(file, "rt") as stream:
        rows = sorted(csv.DictReader(stream), key=lambda row: row["GEOID"])
    adults = np.array([[float(row[f"vap_{race}"]) for race in RACES] for row in rows])
    people = np.array([[float(row[f"pop_{race}"]) for race in RACES] for row in rows])
    blocks = np.stack([people - adults, adults], axis=2).reshape(len(rows), 16)
    return _of_blocks(
        "Rhode Island", _spine([[row["GEOID"][:digits] for row in rows] for digits in CODES]), blocks
    )


def synthetic(sizes: tuple[int, ...]) -> Histograms:
    """Places of given number per level, a third of the blocks empty, few races a block."""
    rng = np.random.default_rng(0)
    codes = [
        np.sort(np.concatenate([np.arange(sizes[-1])]) * n // sizes[-1]).astype(str).tolist() for n in sizes
    ]
    mean = rng.lognormal(1, 2, (sizes[-1], 8)) * (rng.random((sizes[-1], 8)) < 0.3)
    mean *= rng.random((sizes[-1], 1)) < 0.7
    blocks = rng.poisson(mean[:, :, None] * np.array([0.25, 0.75])).reshape(-1, 16).astype(float)
    return _of_blocks("synthetic", _spine(codes), blocks)


def _spine(codes: list[list[str]]) -> Spine:
    """Tree of the places whose codes stand side by side, one list a level, one entry a block."""
    starts = [[i for i, code in enumerate(level) if i == 0 or code != level[i - 1]] for level in codes]
    counts = [
        np.diff(np.append(np.searchsorted(fine, coarse), len(fine))) for coarse, fine in pairwise(starts)
    ]
    every = np.concatenate([*counts, np.zeros(len(starts[-1]), int)])
    return Spine(np.append(0, np.cumsum(every)) + 1)


def _of_blocks(source: str, spine: Spine, blocks: NDArray[np.float64]) -> Histograms:
    levels = [blocks]
    for level in range(spine.depth - 2, -1, -1):
        levels.insert(0, spine.sum_children(level, levels[0]))
    return Histograms(source, spine, tuple(levels))


def by_lsqr(problem: Histograms) -> NDArray[np.float64]:
    """Least squares of the blocks by SciPy's iterative LSQR on the sparse design, to its last digits."""
    from scipy.sparse.linalg import lsqr

    design, right = _design(problem)
    return lsqr(design, right, atol=1e-14, btol=1e-14)[0].reshape(-1, 16)


def by_sparse_direct(problem: Histograms) -> NDArray[np.float64]:
    """Least squares of the blocks by a sparse factorisation of the normal equations."""
    from scipy.sparse.linalg import spsolve

    design, right = _design(problem)
    return np.asarray(spsolve(sparse.csc_matrix(design.T @ design), design.T @ right)).reshape(-1, 16)


def _design(problem: Histograms) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    leaves = problem.spine.size(problem.spine.depth - 1)
    members = sparse.eye_array(leaves, format="csr")
    rows, right = [], []
    for level in range(problem.spine.depth - 1, -1, -1):
        for (marginal, variance), y in zip(problem.plan[level], problem.answers[level], strict=True):
            cells = spread(np.eye(y.shape[1]), marginal)
            rows.append(sparse.kron(members, sparse.csr_array(cells), format="csr") / variance**0.5)
            right.append(y.ravel() / variance**0.5)
        if level:
            counts = problem.spine.children(level - 1)
            parent = np.repeat(np.arange(counts.size), counts)
            up = sparse.csr_array((np.ones(parent.size), (parent, np.arange(parent.size))))
            members = sparse.csr_array(up @ members)
    return sparse.csr_array(sparse.vstack(rows)), np.concatenate(right)
