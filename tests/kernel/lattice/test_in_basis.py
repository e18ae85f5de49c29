"""Lattices of few dimensions drawn by coordinates: rates that are proved, and the law of the draws, against enumeration."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.arrays.matrices import chance, counted
from tests.reference.lattice import law_of
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.lattice import LatticeLaplace
from trueup.noise.lattice import draw as in_basis

FALSE_ALARM = 1e-6
TWO_WAY = np.vstack(
    [
        np.kron(np.kron(a, b), c)
        for a, b, c in (
            (np.eye(2), np.eye(2), np.ones((1, 3))),
            (np.eye(2), np.ones((1, 2)), np.eye(3)),
            (np.ones((1, 2)), np.eye(2), np.eye(3)),
        )
    ]
).astype(int)
"""All two-way margins of 2 x 2 x 3: two dimensions are left."""
SPARSE = np.array([[5, -3, 2, 0], [0, 4, 1, -5]])


def coordinates(d, most):
    return np.array(list(product(range(-most, most + 1), repeat=d)))


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_no_vector_is_shorter_than_the_rates_of_its_coordinates_say(d, rng):
    tight = 0
    for _ in range(12):
        basis = rng.integers(-6, 7, (d, 7))
        k = coordinates(d, {1: 50, 2: 20, 3: 8, 4: 4}[d])
        rates = in_basis.proved_rates(basis)
        spare = in_basis.RATE_DENOMINATOR * np.abs(k @ basis).sum(axis=1) - np.abs(k) @ rates
        assert spare.min() == 0  # of the zero vector
        assert (spare >= 0).all()
        tight += (
            in_basis.RATE_DENOMINATOR * np.abs(k @ basis).sum(axis=1) < np.abs(k) @ (1.5 * rates + 1)
        ).any()
    assert tight >= 9  # rates half as large again would be wrong


@pytest.mark.thorough
@pytest.mark.parametrize("matrix", [TWO_WAY, SPARSE], ids=["two-way margins", "sparse"])
@pytest.mark.parametrize("mistake", ["", "rates too high", "half of the basis doubled"])
def test_draws_have_the_law_and_named_mistakes_are_rejected(matrix, mistake, rng, monkeypatch):
    if mistake == "rates too high":
        proved = in_basis.proved_rates
        monkeypatch.setattr(in_basis, "proved_rates", lambda basis: 3 * proved(basis))
    [piece] = Lattice.of(matrix.shape[1], matrix).pieces
    epsilon = Fraction(1, 3)
    if mistake == "half of the basis doubled":
        piece.__dict__["basis"] = piece.basis * np.where(np.arange(len(piece.basis)) % 2, 1, 2)[:, None]
    choice = in_basis.in_basis(piece, epsilon)
    assert choice is not None
    drawn = choice.draw(60_000, rng.bytes).vectors
    k = coordinates(2, 60)
    vectors = k @ Lattice.of(matrix.shape[1], matrix).pieces[0].basis
    law = law_of(vectors, lambda v: -float(epsilon) * np.abs(v).sum(axis=1))
    assert (chance(*counted(drawn, vectors), law) > FALSE_ALARM) == (not mistake)


def test_the_sampler_that_takes_fewer_tries_is_chosen_and_may_be_named():
    lattice = Lattice.of(12, TWO_WAY)
    chosen, named = (
        LatticeLaplace("1/4").on(lattice).bound,
        LatticeLaplace("1/4").on(lattice, sampler="free").bound,
    )
    assert [choice.sampler for _, choice in (*chosen.pieces, *named.pieces)] == ["basis", "free"]
    assert chosen.pieces[0][1].tries < named.pieces[0][1].tries / 10
    assert chosen.exact_in_integers
    drawn = chosen.draw(20_000, np.random.default_rng(1).bytes)
    assert 1 / 3 < drawn.tries / 20_000 / chosen.pieces[0][1].tries < 3
