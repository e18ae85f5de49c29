"""Bases and structure, against brute force on small systems."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from papers.markov_chain import smith_basis
from tests.reference.lattice import rank, table_margins, three_crossing_sums
from trueup.errors import PrivacyError, SpecError
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.structure import Lattice

MATRICES = st.integers(1, 3).flatmap(
    lambda m: st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=m, max_size=m)
    )
)


def in_box(matrix, radius):
    n = matrix.shape[1]
    grid = np.stack(np.meshgrid(*[np.arange(-radius, radius + 1)] * n, indexing="ij"), -1).reshape(-1, n)
    return grid[(grid @ matrix.T == 0).all(axis=1)]


def _same_lattice(left, right) -> bool:
    """Whether the rows of two matrices generate the same lattice: their Hermite forms are equal."""
    return np.array_equal(algebra.hermite(left), algebra.hermite(right))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(MATRICES)
def test_the_basis_generates_every_solution(rows):
    matrix = np.array(rows)
    basis = algebra.basis(matrix)
    assert not (matrix @ basis.T).any()
    assert len(basis) == matrix.shape[1] - rank(matrix)
    solutions = in_box(matrix, 2)
    if len(basis):
        assert _same_lattice(np.vstack([basis, solutions]), basis)
        assert _same_lattice(smith_basis(matrix), basis)
    else:
        assert len(solutions) == 1


@pytest.mark.parametrize(
    ("n", "rows", "kind", "message"),
    [
        (2, [[0.5, 1]], SpecError, "invariant 0 has a fraction"),
        (2, [[1, 1], [0, 0]], SpecError, "invariant 1 has only zeros"),
        (3, [[1, 1]], SpecError, "coefficients for 2 cells"),
        (2, [[1, 0], [0, 1]], PrivacyError, "determine every cell"),
        (4, table_margins(1, 4), PrivacyError, "determine every cell"),
        (3, [[1, 0, 1], [1, 1, 0], [0, 1, 1]], PrivacyError, "determine every cell"),
        (2, [[float("nan"), 1]], SpecError, "is not a number, or is 2"),
    ],
)
def test_bad_invariants_are_refused(n, rows, kind, message):
    with pytest.raises(kind, match=message):
        Lattice.of(n, rows)
    if kind is PrivacyError:
        with pytest.raises(kind, match=message):
            Lattice.of(n, sparse.csr_array(np.array(rows)))


def shape(lattice):
    return sorted((piece.kind, piece.cells.shape, piece.dimension) for piece in lattice.pieces)


def test_a_laminar_family_is_a_partition():
    nested = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]])
    lattice = Lattice.of(7, nested)
    assert shape(lattice) == [("sum", (2,), 1)] * 3
    assert lattice.pinned.tolist() == [4]


def test_two_way_tables_are_recognised_in_any_order(rng):
    margins = table_margins(3, 4)
    shuffled = margins[rng.permutation(7)][:, rng.permutation(12)]
    for rows in (shuffled, np.vstack([np.ones(12, int), shuffled]), np.vstack([shuffled, shuffled[:2]])):
        (piece,) = Lattice.of(12, rows).pieces
        assert piece.kind == "table"
        table = np.zeros(12)
        table[piece.cells] = (
            np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 0], [0, 0, 0]]).reshape(piece.cells.shape)
            if piece.cells.shape == (4, 3)
            else np.array([[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 0, 0]])
        )
        assert not (rows @ table).any()
        assert not (piece.invariants @ table[piece.cells.ravel()]).any()


def test_margins_that_share_an_attribute_split_into_tables():
    cells = list(np.ndindex(2, 3, 4))
    first = [[int(c[:2] == (i, j)) for c in cells] for i in range(2) for j in range(3)]
    second = [[int(c[1:] == (j, k)) for c in cells] for j in range(3) for k in range(4)]
    assert shape(Lattice.of(24, first + second)) == [("table", (2, 4), 3)] * 3


def test_general_systems_keep_their_lattice():
    crossing = three_crossing_sums()
    (piece,) = Lattice.of(14, crossing).pieces
    assert (piece.kind, piece.dimension, len(set(piece.aggregates))) == ("general", 11, 7)
    pinned = Lattice.of(5, [[1, 1, 0, 0, 0], [1, -1, 0, 0, 0], [0, 1, 1, 1, 1]])
    assert pinned.pinned.tolist() == [0, 1]
    assert shape(pinned) == [("sum", (3,), 2)]


def test_free_cells_are_a_piece():
    assert shape(Lattice.of(4, [[1, 1, 0, 0]])) == [("free", (2,), 2), ("sum", (2,), 1)]
