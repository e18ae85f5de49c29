"""Noise distributions that keep `A x` for a matrix A of whole numbers."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.arrays.exact import Matrix, Number, exact_number
from trueup.errors import SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.lattice import LatticeGaussian, LatticeL2Laplace, LatticeLaplace

Norm = Literal["l1", "l2"]
LatticeLaw: TypeAlias = LatticeLaplace | LatticeGaussian | LatticeL2Laplace
"""A law of vectors `v (n,)` with `A v = 0`."""


def law_keeping(
    A: Matrix,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    norm: Norm = "l1",
    slowest: float = 60.0,
) -> LatticeLaw:
    """Return a law of integer noise v that leaves all sums `A x` unchanged: `A v = 0`.

    Parameters
    ----------
    A
        (m, n) whole numbers, dense or sparse.
    epsilon
        Loss between two tables with the same `A x` for each unit of their distance in the norm.
    rho
        Instead of it the zCDP loss for a squared L2 distance of 1: discrete Gaussian noise.
    norm
        `l1` or `l2`, of epsilon.
    slowest
        Expected seconds for one vector beyond which the noise is refused.

    Returns
    -------
    The law, bound to its samplers: `smallest_change`, and its `loss`; `tail`; `log_vectors`; `lattice`, with its dimension and
    the cells that A determines (`pinned`); `bound.explain()`, how it is drawn. `sample` draws.

    Raises
    ------
    SpecError
        Unless one of epsilon and rho is given; or A has other numbers than whole ones, or no exact sampler is fast enough.
    PrivacyError
        A determines every cell.

    References
    ----------
    Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy", definitions 9 and 13.

    Examples
    --------
    >>> law = law_keeping([[1, 1, 1]], epsilon=0.25)
    >>> law, int(law.smallest_change.l1), law.loss.amount
    (LatticeLaplace(epsilon=Fraction(1, 4)), 2, Fraction(1, 2))
    """
    if (epsilon is None) == (rho is None):
        given = "neither epsilon nor rho is given" if rho is None else "both epsilon and rho are given"
        raise SpecError(given, needed="either epsilon or rho")
    if norm not in ("l1", "l2"):
        raise SpecError(f"the norm is {norm!r}", needed="'l1' or 'l2'")
    law: LatticeLaw
    if epsilon is not None:
        law = (LatticeLaplace if norm == "l1" else LatticeL2Laplace)(exact_number(epsilon, "epsilon"))
    elif rho is not None:
        law = LatticeGaussian(1 / (2 * exact_number(rho, "rho")))
    return law.as_asked(Lattice.of(column_count(A), A), {"slowest": slowest})


def kept_sums(lattice: Lattice) -> scipy.sparse.csr_array:
    """Return integer rows `(m, n)` that span all sums which noise on a lattice keeps.

    Examples
    --------
    >>> kept_sums(law_keeping([[1, 1, 0], [0, 0, 1]], epsilon=1).lattice).toarray()
    array([[0., 0., 1.],
           [1., 1., 0.]])
    """
    rows, first = np.zeros((lattice.n - lattice.dimension, lattice.n)), lattice.pinned.size
    rows[np.arange(first), lattice.pinned] = 1
    for piece in lattice.pieces:
        own = rows[first : first + len(piece.invariants)]
        own[:, piece.cells.ravel()], first = piece.invariants, first + len(own)
    return scipy.sparse.csr_array(rows)


def additive_rows(parents: NDArray[np.int64]) -> scipy.sparse.csr_array:
    """Return a row of `(m, n)` for each node with parts: the node minus its parts. A root has parent -1.

    Examples
    --------
    >>> additive_rows(np.array([-1, 0, 0, 1])).toarray()
    array([[ 1, -1, -1,  0],
           [ 0,  1,  0, -1]])
    """
    parts = np.flatnonzero(parents >= 0)
    inner, row = np.unique(parents[parts], return_inverse=True)
    at = np.concatenate([np.arange(inner.size), row]), np.concatenate([inner, parts])
    signs = np.repeat([1, -1], [inner.size, parts.size])
    return scipy.sparse.csr_array((signs, at), shape=(inner.size, parents.size))


def column_count(A: Matrix) -> int:
    """Return the number of columns of a matrix."""
    try:
        shape = np.shape(A) if not hasattr(A, "shape") else A.shape  # pyright: ignore[reportAttributeAccessIssue]
    except ValueError:
        raise SpecError(
            "the rows of A differ in length", needed="a matrix, with a number for each cell in each row"
        ) from None
    if len(shape) != 2:
        raise SpecError(f"A has shape {shape}", needed="a matrix, one row for each sum that is kept")
    return int(shape[1])
