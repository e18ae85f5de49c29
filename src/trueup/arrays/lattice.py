"""Noise that keeps `A x` for an integer matrix: its law, loss, smallest change and tail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.arrays.exact import Matrix, Number, exact_number
from trueup.errors import SpecError
from trueup.kernel.lattice.smallest import Exhausted, Search, Vector
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.cost import Cost, Sensitivity
from trueup.noise.lattice.laws import LatticeGaussian, LatticeL2Laplace, LatticeLaplace, OnLattice
from trueup.noise.law import Integers, Tail, Words

Norm = Literal["l1", "l2"]
MAX_CHANGE_NORM = 24
"""L1 norm of a change beyond which none is looked for."""
MAX_SEARCH_STEPS = 100_000
"""Partial changes of one piece that the search may visit: a second or two."""
MAX_LISTED_DIMENSIONS, LISTED = 8, 2_000_000
"""Dimensions of a piece up to which its short vectors are listed, and how many of them at most."""

L = TypeVar("L", bound=OnLattice)


def bind(
    law: L, n: int, A: Matrix, zeros: NDArray[np.bool_] | None = None, options: Mapping[str, object] = {}
) -> L:
    """Bind a law to the integer vectors `v (n,)` with `A v = 0`, and choose its sampler.

    Parameters
    ----------
    law
        `LatticeLaplace`, `LatticeGaussian` or `LatticeL2Laplace`.
    n, A
        Cells, and the sums that are kept: whole numbers (m, n), dense or sparse.
    zeros
        (n,) cells that get no noise at all.
    options
        `sampler`, `slowest`, as a spec has them.

    Raises
    ------
    SpecError
        A has other numbers or columns, or no exact sampler is fast enough; the message gives what each would cost.
    PrivacyError
        A determines every cell.
    """
    return law.as_asked(Lattice.of(n, A, zeros), options)


@dataclass(frozen=True, eq=False)
class LatticeNoise:
    """Joint integer noise `v (n,)` with `A v = 0`, as `noise_keeping` adds.

    Attributes
    ----------
    law
        Bound to its samplers; `law.epsilon` or `law.sigma2` is its exact parameter.

    Examples
    --------
    >>> LatticeNoise.keeping([[1, 1, 1]], epsilon=0.25)
    LatticeNoise(LatticeLaplace(epsilon=1/4), 3 cells, dimension 2, smallest change 2 at epsilon 1/2)
    """

    law: LatticeLaplace | LatticeGaussian | LatticeL2Laplace

    @classmethod
    def keeping(
        cls,
        A: Matrix,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        norm: Norm = "l1",
        slowest: float = 60.0,
    ) -> LatticeNoise:
        """Return noise that keeps `A x`, with mass proportional to `exp(-epsilon |v|)` or `exp(-rho |v|_2^2)`.

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

        Raises
        ------
        SpecError
            Unless one of epsilon and rho is given, besides what `bind` refuses.
        PrivacyError
            A determines every cell.

        References
        ----------
        Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy", definitions 9 and 13.
        """
        law = _lattice_law(epsilon, rho, norm)
        return cls(bind(law, cells_of(A), A, options={"slowest": slowest}))

    @property
    def lattice(self) -> Lattice:
        """Return the lattice of integer vectors that keep the sums, piece by piece."""
        return self.law.bound.lattice

    @property
    def n(self) -> int:
        """Return the number of cells."""
        return self.lattice.n

    @property
    def dimension(self) -> int:
        """Return the dimension of the lattice: cells less independent sums."""
        return self.lattice.dimension

    @property
    def pinned(self) -> Integers:
        """Return the cells that A determines, which get no noise and are published exactly."""
        return self.lattice.pinned

    @cached_property
    def smallest_change(self) -> Sensitivity | None:
        """Return the smallest change (L1 and squared L2 norm) of the cell that is hardest to change; None if not found.

        Two tables that differ in that cell differ at least so much: no smaller change hides what stands in it.
        """
        return _hardest(self.lattice)

    @property
    def loss(self) -> Cost | None:
        """Return the loss of the smallest change of the hardest cell, exact and rounded up; None if not found."""
        change = self.smallest_change
        return None if change is None else self.law.cost(change)

    def tail(self, probability: float) -> Tail:
        """Return the count that any cell's noise exceeds in size with at most that probability."""
        return self.law.tail(probability)

    def logpmf(self, noise: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log masses `(...)` of vectors `(..., n)`, up to a constant; minus infinity if they do not keep the sums."""
        v = np.asarray(noise)
        size = -float(self._rate) * self._size(v.astype(float))
        return np.where(_on_lattice(self.lattice, v), size, -np.inf)

    @property
    def _rate(self) -> Fraction:
        law = self.law
        return 1 / (2 * law.sigma2) if isinstance(law, LatticeGaussian) else law.epsilon

    def _size(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(self.law, LatticeLaplace):
            return np.abs(v).sum(axis=-1)
        square = (v**2).sum(axis=-1)
        return square if isinstance(self.law, LatticeGaussian) else np.sqrt(square)

    def explain(self) -> list[str]:
        """Return how it is drawn: by which sampler, in which arithmetic, at what expected cost."""
        return self.law.bound.explain()

    def draw(self, count: int, words: Words) -> Integers:
        """Draw `count` vectors `(count, n)` from a source of bytes; `trueup.arrays.sample` has the system's."""
        return self.law.bound.draw(count, words).vectors

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={value}" for name, value in self.law.parameters().items())
        loss, change = self.loss, self.smallest_change
        smallest = "smallest change not found"
        if loss is not None and change is not None:
            shown = loss.amount if loss.amount.denominator < 10**6 else f"{float(loss.amount):.6g}"
            smallest = f"smallest change {change.l1} at {loss.currency} {shown}"
        return f"LatticeNoise({type(self.law).__name__}({parameters}), {self.n} cells, dimension {self.dimension}, {smallest})"


def _lattice_law(epsilon: Number | None, rho: Number | None, norm: str):
    if (epsilon is None) == (rho is None):
        raise SpecError("epsilon and rho are both given, or neither", needed="one of them")
    if norm not in ("l1", "l2"):
        raise SpecError(f"the norm is {norm!r}", needed="'l1' or 'l2'")
    if rho is not None:
        return LatticeGaussian(1 / (2 * exact_number(rho, "rho")))
    assert epsilon is not None
    return (LatticeLaplace if norm == "l1" else LatticeL2Laplace)(exact_number(epsilon, "epsilon"))


def cells_of(A: Matrix) -> int:
    """Return the number of columns of a matrix.

    Raises
    ------
    SpecError
        If it is no matrix.
    """
    try:
        shape = np.shape(A) if not hasattr(A, "shape") else A.shape  # pyright: ignore[reportAttributeAccessIssue]
    except ValueError:
        raise SpecError("the rows of A differ in length", needed="a matrix of whole numbers") from None
    if len(shape) != 2:
        raise SpecError(f"A has shape {shape}", needed="a matrix, one row for each sum that is kept")
    return int(shape[1])


def _on_lattice(lattice: Lattice, v: NDArray) -> NDArray[np.bool_]:
    """Return a mask of the vectors `(..., n)` that are on the lattice."""
    kept = (v == np.rint(v)).all(axis=-1) & (v[..., lattice.pinned] == 0).all(axis=-1)
    for piece in lattice.pieces:
        kept &= (v[..., piece.cells.ravel()] @ piece.invariants.T == 0).all(axis=-1)
    return kept


def _hardest(lattice: Lattice) -> Sensitivity | None:
    """Return the largest, over cells that vary, of the smallest changes through them, in either norm."""
    unlike = {(p.kind, p.cells.shape, p.invariants.tobytes()): p for p in lattice.pieces}
    found = [_of_piece(piece) for piece in unlike.values()]
    if None in found:
        return None
    l1, square = (max(norms) for norms in zip(*(each for each in found if each is not None), strict=True))
    return Sensitivity(Fraction(l1), Fraction(square))


def _of_piece(piece: Piece) -> tuple[int, int] | None:
    """Return the largest of the smallest changes of one piece; None if not found."""
    if piece.kind != "general":
        size = {"free": 1, "sum": 2, "table": 4, "grid": 4}[piece.kind]
        return size, size
    if piece.dimension <= MAX_LISTED_DIMENSIONS and (listed := _listed_norms(piece.basis)):
        return listed
    columns, counts = np.unique(piece.invariants, axis=1, return_counts=True)
    search, most = Search(columns, MAX_SEARCH_STEPS), (2, 2) if (counts > 1).any() else (0, 0)
    for cell in np.flatnonzero(counts == 1).tolist():  # cells with a twin lose to it what they gain
        norms = _through(search, cell, counts)
        if norms is None:
            return None
        most = max(most[0], norms[0]), max(most[1], norms[1])
    return most


def _through(search: Search, cell: int, counts: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return the least L1 and squared L2 norm of changes through a kind of cell; None if not found in time.

    No whole vector has a smaller squared L2 than L1 norm, so vectors up to the least square found are all that matter.
    """
    least, square = 0, MAX_CHANGE_NORM**2
    try:
        for limit in range(1, MAX_CHANGE_NORM + 1):
            if limit > square:
                break
            for vector in search.within(cell, limit, every=True):
                least = least or limit
                square = min(square, _square(vector, counts))
    except Exhausted:
        return None
    return (least, square) if least and square <= MAX_CHANGE_NORM else None


def _listed_norms(basis: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return a piece's norms from all candidates for its smallest vectors; None if there are too many.

    A vector is `c B`, so `c = v D` with the dual basis D, and `|c_i| <= |v|_1 max |D_i|` and `|c_i| <= |v|_2 |D_i|_2`. Through
    every cell some vector of the basis has at most the norms that are inserted.
    """
    dual = np.linalg.pinv(basis.astype(float))
    through = np.where(basis != 0, 1.0, np.inf)
    l1, square = (
        float((norms[:, None] * through).min(axis=0).max())
        for norms in (np.abs(basis).sum(axis=1), (basis**2).sum(axis=1))
    )
    reach = np.floor(
        np.maximum(l1 * np.abs(dual).max(axis=0), np.sqrt(square) * np.sqrt((dual**2).sum(axis=0))) + 1e-9
    ).astype(np.int64)
    if np.log(2 * reach + 1).sum() > np.log(LISTED):
        return None
    coefficients = np.indices(2 * reach + 1).reshape(len(reach), -1).T - reach
    v = np.abs(coefficients @ basis)
    norms = [
        np.where(v != 0, norm[:, None], LISTED**2).min(axis=0).max()
        for norm in (v.sum(axis=1), (v**2).sum(axis=1))
    ]
    return int(norms[0]), int(norms[1])


def _square(vector: Vector, counts: NDArray[np.int64]) -> int:
    """Return the least squared L2 norm of a vector whose values are spread over so many cells each."""
    total = 0
    for kind, value in vector:
        each, left = divmod(abs(value), int(counts[kind]))
        total += left * (each + 1) ** 2 + (int(counts[kind]) - left) * each**2
    return total
