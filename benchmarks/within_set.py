"""Noise inside a set of 0/1 answers with known sums: exact draws, errors beside the nearest table, and whether chains contract.

The chains are heat baths on tables with both margins, whose contraction in one step is computed by optimal transport between the
laws after two tables an exchange apart: below 1 it bounds their distance (path coupling), above 1 it bounds nothing.
"""

# Linear programs and sparse graphs come without useful types.
# pyright: reportArgumentType=false
from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse.csgraph import shortest_path

from benchmarks.harness import Case, Harness, Picture
from trueup.arrays import NoiseWithin, discrete_laplace

EPSILONS = (0.25, 1.0, 2.0, 4.0)
TABLES = ((1, 14), (1, 50), (6, 4), (10, 5))
DRAWS, PAIRS = 400, 60


def margins(rows: int, columns: int) -> np.ndarray:
    """The sum of one row of answers; both margins of a table."""
    down, across = np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))
    return (down if rows == 1 else np.vstack([down, across])).astype(int)


def answers(rows: int, columns: int) -> np.ndarray:
    """Two of five answers are 1, in an order that no margin shows."""
    return (np.random.default_rng(5).permutation(rows * columns) % 5 < 2).astype(int)


def cases(harness: Harness) -> Iterator[Case]:
    for rows, columns in ((1, 200), (10, 5), (20, 5), (8, 8)):
        x, sums = answers(rows, columns), margins(rows, columns)

        def draw(x: np.ndarray = x, sums: np.ndarray = sums) -> np.ndarray:
            noise = NoiseWithin.of(x, epsilon=1, lower=0, upper=1, A=sums)
            return noise.draw(x, 1, np.random.default_rng(1).bytes)

        yield from harness.compare(f"{rows} x {columns} answers: set-up and a draw", draw, {})


def pictures(harness: Harness) -> Iterator[Picture]:
    rng = np.random.default_rng(6)
    rows = [
        [f"{r} x {c}", f"{epsilon:g}", *_errors(r, c, epsilon, rng)]
        for r, c in TABLES
        for epsilon in EPSILONS
    ]
    columns = ["answers", "epsilon", "loss", "noise inside", "noise, then the nearest table"]
    yield Picture(title=f"answers that differ, mean of {DRAWS} draws", columns=columns, rows=rows)
    found = []
    for r, c, of_row, of_column in ((3, 3, 1, 1), (4, 4, 1, 1), (4, 4, 2, 2)):
        tables = _tables(r, c, of_row, of_column)
        for rate in (0.1, 0.5, 1.0, 3.0):
            both = (_contraction(bath(tables, rate), tables) for bath in (exchanges, rows_redrawn))
            found.append(
                [f"{len(tables)} tables of {r} x {c}", f"{rate:g}", *(f"{each:.3f}" for each in both)]
            )
    columns = ["set", "rate", "exchanges of 2 x 2", "two rows redrawn"]
    yield Picture(title="largest contraction of a heat bath in one step", columns=columns, rows=found)


def _errors(rows: int, columns: int, epsilon: float, rng: np.random.Generator) -> list[str]:
    sums, x = margins(rows, columns), answers(rows, columns)
    noise = NoiseWithin.of(x, epsilon=epsilon, lower=0, upper=1, A=sums)
    inside = np.abs(noise.draw(x, DRAWS, rng.bytes) - x).sum(axis=1).mean()
    noisy = x + discrete_laplace(epsilon).sample(DRAWS * x.size, rng.bytes).reshape(DRAWS, -1)
    programs = (linprog(-y, A_eq=sums, b_eq=sums @ x, bounds=(0, 1), method="highs").x for y in noisy)
    after = np.mean([np.abs(np.rint(nearest) - x).sum() for nearest in programs])
    return ["exactly" if noise.attained else "at most", f"{inside:.2f}", f"{after:.2f}"]


def _tables(rows: int, columns: int, of_row: int, of_column: int) -> np.ndarray:
    """All 0/1 tables with equal row sums and equal column sums."""
    kinds = [row for row in product((0, 1), repeat=columns) if sum(row) == of_row]
    every = np.array(list(product(kinds, repeat=rows)))
    return every[(every.sum(axis=1) == of_column).all(axis=1)]


def _weights(tables: np.ndarray, rate: float) -> np.ndarray:
    return np.exp(-rate * np.abs(tables - tables[0]).sum(axis=(1, 2)))


def rows_redrawn(tables: np.ndarray, rate: float) -> np.ndarray:
    """Transitions that redraw two rows, given all others, from the law around the first table."""
    weight, chain = _weights(tables, rate), np.zeros((len(tables), len(tables)))
    pairs = list(combinations(range(tables.shape[1]), 2))
    for pair in pairs:
        rest = np.delete(tables, pair, axis=1).reshape(len(tables), -1)
        same = (rest[:, None] == rest).all(axis=2)
        chain += same * weight / (same @ weight)[:, None] / len(pairs)
    return chain


def exchanges(tables: np.ndarray, rate: float) -> np.ndarray:
    """Transitions that exchange two columns in two rows, or not, from the same law."""
    weight, (_, r, c) = _weights(tables, rate), tables.shape
    chain = _apart(tables) * weight / (weight[:, None] + weight) * 4 / (r * (r - 1) * c * (c - 1))
    return chain + np.diag(1 - chain.sum(axis=1))


def _apart(tables: np.ndarray) -> np.ndarray:
    """Which tables are one exchange apart."""
    return np.abs(tables[:, None] - tables).sum(axis=(2, 3)) == 4


def _contraction(chain: np.ndarray, tables: np.ndarray) -> float:
    """The largest mean distance, in exchanges, after one step from tables one apart, under the best coupling."""
    apart = _apart(tables)
    distance = shortest_path(apart.astype(float), unweighted=True)
    pairs = np.random.default_rng(0).permutation(np.argwhere(np.triu(apart)))[:PAIRS]
    return max(_transport(chain, distance, one, other) for one, other in pairs)


def _transport(chain: np.ndarray, distance: np.ndarray, one: int, other: int) -> float:
    a, b = np.flatnonzero(chain[one] > 0), np.flatnonzero(chain[other] > 0)
    sums = np.vstack([np.kron(np.eye(len(a)), np.ones(len(b))), np.kron(np.ones(len(a)), np.eye(len(b)))])
    masses = np.append(chain[one, a], chain[other, b])
    return linprog(distance[np.ix_(a, b)].ravel(), A_eq=sums, b_eq=masses, method="highs").fun
