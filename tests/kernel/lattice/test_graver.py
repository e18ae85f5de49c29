"""Graver bases against their definition and known sizes, and that they connect what a lattice basis does not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.graver import bridges, graver_basis, reached
from trueup.kernel.table_walks.moves import enumerate_fibre


def margins(shape, sets):
    """0/1 rows of the given margins of a table."""
    spots = np.array(list(np.ndindex(*shape)))
    keys = [(kept, key) for kept in sets for key in np.ndindex(*[shape[a] for a in kept])]
    return np.array([(spots[:, list(kept)] == key).all(axis=1) for kept, key in keys]).astype(np.int64)


PAIRS = ((0, 1), (0, 2), (1, 2))
KNOWN = [
    # All cycles of a complete bipartite graph: tables with both margins, and their lift by a third attribute of two values.
    (margins((3, 3), [(0,), (1,)]), 15),
    (margins((4, 4), [(0,), (1,)]), 204),
    (margins((2, 3, 4), PAIRS), 42),
    # De Loera, Hemmecke and Koeppe (2013): 795 vectors up to sign.
    (margins((3, 3, 3), PAIRS), 795),
    (np.ones((1, 6), np.int64), 15),
]


@pytest.mark.parametrize(("matrix", "size"), KNOWN)
def test_known_bases_have_their_known_sizes(matrix, size):
    found = graver_basis(matrix)
    assert found is not None
    assert len(found) == size
    assert not (matrix @ found.T).any()


def by_definition(matrix, reach):
    """Vectors of a lattice with entries up to `reach` that are no sum of two without cancellation."""
    every = np.array([v for v in product(range(-reach, reach + 1), repeat=matrix.shape[1]) if any(v)])
    every = every[~(matrix @ every.T).any(axis=0)]
    fits = (every[:, None] * every[None] >= 0).all(axis=2) & (
        np.abs(every[:, None]) <= np.abs(every[None])
    ).all(axis=2)
    least = every[fits.sum(axis=0) == 1]
    return {tuple(v) for v in least.tolist() if next(x for x in v if x) > 0}


@pytest.mark.parametrize("case", range(6))
def test_small_bases_are_those_of_the_definition(case, rng):
    matrix = rng.integers(-2, 4, (1 + case % 2, 4))
    found = graver_basis(matrix)
    assert found is not None
    expected = by_definition(matrix, 6)
    assert {tuple(v) for v in found.tolist() if max(map(abs, v)) <= 6} == expected


def test_it_connects_fibres_in_any_box_and_a_lattice_basis_does_not(rng):
    """Tables of 3 x 3 x 3 with all two-way margins, cells up to 2: parts out of reach of the lattice basis alone."""
    import scipy.sparse

    matrix, split = margins((3, 3, 3), PAIRS), 0
    graver = graver_basis(matrix)
    assert graver is not None
    for _ in range(6):
        sums = (matrix @ rng.integers(0, 2, 27)).astype(float)
        box = (np.zeros(27), np.full(27, 2.0))
        tables = enumerate_fibre(scipy.sparse.csr_array(matrix.astype(float)), sums, sums, box, 5000)
        assert tables is not None
        assert reached(tables, graver).max() == 0
        basis = algebra.basis(matrix)
        split += reached(tables, basis).max() > 0
        assert reached(tables, np.vstack([basis, bridges(tables, basis)])).max() == 0
    assert split


def test_a_large_basis_is_given_up():
    assert graver_basis(margins((4, 4), [(0,), (1,)]), most=100) is None
    assert graver_basis(np.ones((1, 40), np.int64)) is None
