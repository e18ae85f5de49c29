"""Sums that follow from others, and smallest changes, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from tests.reference.lattice import rank
from tests.reference.true_loss import ball
from trueup.kernel.lattice.algebra import determined
from trueup.kernel.lattice.smallest import Exhausted, Search, norm


def random_sums(rng, top=1):
    rows, n = rng.integers(1, 5), rng.integers(2, 7)
    matrix = rng.integers(0, top + 1, size=(rows, n))
    return matrix[matrix.any(axis=1)]


@pytest.mark.parametrize("top", [1, 3])
def test_every_smallest_vector_through_every_cell_is_found(top, rng):
    found = 0
    while found < 60:
        matrix = random_sums(rng, top)
        if not len(matrix):
            continue
        vectors = ball(matrix.shape[1], 6)
        vectors = vectors[~(vectors @ matrix.T).any(axis=1)]
        for cell in range(matrix.shape[1]):
            through = vectors[vectors[:, cell] > 0]
            norms = np.abs(through).sum(axis=1)
            told = Search(matrix, 10**6).through(cell, longest=6)
            assert {norm(v) for v in told} == ({norms.min()} if len(norms) else set())
            # The search starts with one unit in the cell and may add more: every smallest vector, each once.
            expected = {tuple(v) for v in through[norms == norms.min(initial=99)].tolist()}
            dense = np.zeros((len(told), matrix.shape[1]), int)
            for row, vector in zip(dense, told):
                for at, value in vector:
                    row[at] = value
            assert {tuple(v) for v in dense.tolist()} == expected
            assert len(told) == len(expected)
            found += bool(len(told))


def test_a_search_stops_after_its_steps():
    with pytest.raises(Exhausted):
        Search(np.kron(np.eye(5, dtype=int), np.ones((1, 5), int)), steps=0).through(0)


def test_sums_that_follow_are_those_that_leave_the_rank(rng):
    """Rank by python-flint, which takes no part in the proof by primes."""
    seen = []
    for _ in range(200):
        rows, more = random_sums(rng, 2), random_sums(rng, 2)
        n = rows.shape[1]
        targets = (
            np.vstack([more[:, :n], rng.integers(-2, 3, (3, len(rows))) @ rows])
            if more.shape[1] >= n
            else rows
        )
        held = rank(rows) if len(rows) else 0
        expected = [rank(np.vstack([rows, target])) == held for target in targets]
        assert determined(rows, targets).tolist() == expected
        seen += expected
    assert 0.1 < np.mean(seen) < 0.95
