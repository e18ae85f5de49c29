"""Noise that keeps `A x` for an integer matrix: its law, loss, smallest change and tail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import Matrix, Number, check_draws, exact_number, limits_of, whole_vector
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.table_walks.moves import enumerate_fibre
from trueup.noise.lattice import LatticeGaussian, LatticeL2Laplace, LatticeLaplace, OnLattice
from trueup.noise.lattice.tail import hardest_change
from trueup.noise.law import Cost, Integers, Sensitivity, Tail, Words

Norm = Literal["l1", "l2"]

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
        return cls(bind(law, column_count(A), A, options={"slowest": slowest}))

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
        return hardest_change(self.lattice)

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

    def posterior(
        self, values: ArrayLike, lower: ArrayLike = 0.0, upper: ArrayLike = np.inf, most: int = 100_000
    ) -> tuple[Integers, NDArray[np.float64]]:
        """Return all tables `(t, n)` in the bounds with the sums of noisy ones, and their masses under a flat prior.

        Under any of the norms: of the L2 norm too, which is no product over cells.

        Raises
        ------
        SpecError
            There are more tables than `most`, or no bounds end them.
        InfeasibleError
            There is none.

        Examples
        --------
        >>> tables, masses = LatticeNoise.keeping([[1, 1]], epsilon=1, norm="l2").posterior([3, -1])
        >>> tables.tolist(), masses.round(3).tolist()
        ([[0, 2], [1, 1], [2, 0]], [0.045, 0.187, 0.768])
        """
        y = whole_vector(values, "the noisy counts")
        low, high = limits_of(lower, "lower", self.n).copy(), limits_of(upper, "upper", self.n).copy()
        if y.size != self.n:
            raise SpecError(f"{y.size} noisy counts of {self.n} cells", needed="one for each")
        rows = [np.zeros((0, self.n))]
        for piece in self.lattice.pieces:
            of_piece = np.zeros((len(piece.invariants), self.n))
            of_piece[:, piece.cells.ravel()] = piece.invariants
            rows.append(of_piece)
        low[self.pinned] = np.maximum(low, y)[self.pinned]
        high[self.pinned] = np.minimum(high, y)[self.pinned]
        matrix = scipy.sparse.csr_array(np.vstack(rows))
        sums = matrix @ y
        if (abs(matrix) @ np.abs(y) >= 2**51).any() or (np.abs(y) >= 2**51).any():
            raise SpecError("the noisy counts or their sums are beyond 2^51", needed="sums that doubles hold")
        check_draws(most, "most", each=0)
        tables = enumerate_fibre(matrix, sums - 0.5, sums + 0.5, (low, high), most)
        if tables is None:
            raise SpecError(
                f"there are more than {most:,} tables",
                needed="bounds that leave fewer",
                remedy="under the L1 norm draw some of them: trueup.arrays.posterior_keeping",
            )
        if not len(tables):
            raise InfeasibleError("no counts in the bounds have these sums", remedy="correct the bounds")
        log = self.logpmf(y - tables)
        mass = np.exp(log - log.max())
        return tables, mass / mass.sum()

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


def column_count(A: Matrix) -> int:
    """Return the number of columns of a matrix."""
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
