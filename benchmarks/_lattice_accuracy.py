"""Accuracy at equal privacy on the table of delinquent children: conditional noise against noise, then projection."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from benchmarks._lattice import bind, margins
from benchmarks.harness import Picture
from trueup.measure.entropy import words
from trueup.noise.discrete_laplace import DiscreteLaplace
from trueup.noise.lattice import LatticeL2Laplace, LatticeLaplace

EPSILON = "1/4"
CHILDREN = np.array([[15, 1, 3, 1], [20, 10, 10, 15], [3, 10, 10, 2], [12, 14, 7, 2]])
"""Counties Alpha to Delta by education of the household head (fictitious; the paper's table 2)."""


def accuracy(draws: int) -> Picture:
    """Mean squared error and bias of a cell (counts), for one loss per unit of L1 distance."""
    matrix, few = margins(4, 4), max(50, draws // 20)
    plain = DiscreteLaplace(Fraction(EPSILON)).sample(16 * draws, words).reshape(draws, 16)
    methods = {
        "discrete Laplace given the margins (ours)": bind(LatticeLaplace(Fraction(EPSILON)), matrix)
        .draw(draws, words)
        .vectors,
        "L2-norm Laplace given the margins (ours)": bind(LatticeL2Laplace(Fraction(EPSILON)), matrix)
        .draw(draws, words)
        .vectors,
        "discrete Laplace, then nearest in L2 (reals)": plain - plain @ np.linalg.pinv(matrix) @ matrix,
        "discrete Laplace, then nearest in L2 (integers)": np.array([round_l2(v, matrix) for v in plain]),
        "discrete Laplace, then nearest in L1, HiGHS dual simplex's optimum": np.array(
            [nearest_l1(v, matrix, "highs-ds") for v in plain[:few]]
        ),
        "discrete Laplace, then nearest in L1, interior point's optimum": np.array(
            [nearest_l1(v, matrix, "highs-ipm") for v in plain[:few]]
        ),
        "discrete Laplace, then nearest in L1 (integers), branch and bound's optimum": np.array(
            [nearest_l1_integer(v, matrix) for v in plain[:few]]
        ),
    }
    rows = []
    for name, errors in methods.items():
        squares = (np.asarray(errors, float) ** 2).mean(axis=1)
        bias = np.mean(errors, axis=0)
        worst = np.abs(bias / (np.std(errors, axis=0) / np.sqrt(len(errors)))).max()
        rows.append(
            [
                name,
                f"{squares.mean():.2f} +- {squares.std() / np.sqrt(len(errors)):.2f}",
                f"{np.var(errors, axis=0).max():.2f}",
                f"{worst:.1f}",
                str(len(errors)),
            ]
        )
    return Picture(
        title=f"4 x 4 table with both margins kept, epsilon = {EPSILON} per unit of L1 distance",
        columns=[
            "method",
            "mean squared error of a cell",
            "worst cell's variance",
            "largest |bias| in s.e.",
            "draws",
        ],
        rows=rows,
    )


def round_l2(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Round the L2 projection to integers, then move by single 2 x 2 swaps while they bring it nearer."""
    start = v - v @ np.linalg.pinv(matrix) @ matrix
    table = np.rint(start).astype(int).reshape(4, 4)
    table[:, 3] = -table[:, :3].sum(axis=1)
    table[3] = -table[:3].sum(axis=0)
    while True:
        best = min(_swaps(table), key=lambda t: ((t.ravel() - v) ** 2).sum())
        if ((best.ravel() - v) ** 2).sum() >= ((table.ravel() - v) ** 2).sum():
            return table.ravel()
        table = best


def _swaps(table: np.ndarray):
    for i in range(4):
        for k in range(4):
            for j in range(4):
                for m in range(4):
                    if i != k and j < m:
                        other = table.copy()
                        other[i, j] += 1
                        other[k, m] += 1
                        other[i, m] -= 1
                        other[k, j] -= 1
                        yield other


def nearest_l1(v: np.ndarray, matrix: np.ndarray, method: str) -> np.ndarray:
    """Nearest vector in L1 that keeps the margins; the optimum is not unique, and the solver picks one."""
    n, rows = len(v), np.hstack([matrix, -matrix])
    found = linprog(np.ones(2 * n), A_eq=rows, b_eq=-matrix @ v, bounds=(0, None), method=method)
    return v + found.x[:n] - found.x[n:]


def nearest_l1_integer(v: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Do the same over the integers."""
    n, rows = len(v), np.hstack([matrix, -matrix])
    values: Any = -matrix @ v
    found = milp(
        np.ones(2 * n),
        constraints=LinearConstraint(rows, values, values),
        integrality=np.ones(2 * n),
        bounds=Bounds(0, np.inf),
    )
    return v + np.rint(found.x[:n] - found.x[n:])
