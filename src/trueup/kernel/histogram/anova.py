"""The ANOVA (residual) basis of a product domain, in which every marginal is block diagonal.

A histogram over axes of sizes n_1, ..., n_k is a vector of `n = n_1 ... n_k` cells. A *marginal* recodes
every axis, that is, it maps the axis's codes to groups and sums the cells that land together: the identity
keeps the axis, a single group sums it out, anything else is a grouping (voting age within single years).

On one axis let the *atoms* be the common refinement of all its recodes but the identity. Write the axis's
space as S + C: functions constant on the atoms, and contrasts within atoms. With `M` the recode's matrix,
`M'M` is zero on C (the identity on C if the recode is the identity) and maps S to S. So over the product,
for every set of axes B, the subspace (C on B) x (S elsewhere) is invariant under every marginal's `M'M`,
which acts on it as (a dense matrix on the S axes) x (identity on the C axes). Without groupings every axis has
one atom, S is the mean, the dense matrix is one number, and the subspaces are the classical ANOVA components:
a marginal that keeps the axes A contributes `prod_{i not in A} n_i` to every B contained in A, and nothing else.

In this basis a tree node contributes a normal state, its measurements, and its exact ones (see `least_squares`).

One file: a filter is kept by the components of the basis.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import scipy  # its parts load when first used

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal, indicator, is_identity


@dataclass(frozen=True)
class Axis:
    """One axis: an orthonormal basis (size, atoms) of the functions that are constant on atoms, and the codes of every atom."""

    spanning: np.ndarray
    members: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, recodes: Sequence[np.ndarray]) -> Axis:
        """Return an axis whose atoms are the common refinement of `recodes` (the identity aside)."""
        groupings = [g for g in recodes if not is_identity(g)] or [np.zeros_like(recodes[0])]
        atom = np.unique(np.stack(groupings), axis=1, return_inverse=True)[1].reshape(-1)
        spanning = indicator(atom).T / np.sqrt(np.bincount(atom))
        return cls(spanning, tuple(np.flatnonzero(atom == a) for a in range(spanning.shape[1])))

    @classmethod
    def free(cls, size: int) -> Axis:
        """Return an axis on which every code is an atom, so that there are no contrasts."""
        return cls(np.eye(size), tuple(np.arange(size)[:, None]))

    @property
    def size(self) -> int:
        """Return the number of codes."""
        return len(self.spanning)

    @property
    def atoms(self) -> int:
        """Return the number of atoms."""
        return len(self.members)

    @cached_property
    def contrasts(self) -> np.ndarray:
        """Return orthonormal columns (size, size - atoms): Helmert contrasts between codes of an atom."""
        return np.hstack([_helmert(codes, self.size) for codes in self.members])

    def on_atoms(self, groups: np.ndarray) -> np.ndarray:
        """Return the recode's matrix in the basis of functions that are constant on atoms."""
        if is_identity(groups):
            return np.eye(self.atoms)
        return indicator(groups) @ self.spanning


def _helmert(codes: np.ndarray, size: int) -> np.ndarray:
    block = np.zeros((size, codes.size - 1))
    for j in range(1, codes.size):
        block[codes[:j], j - 1] = 1.0
        block[codes[j], j - 1] = -j
        block[:, j - 1] /= np.sqrt(j * (j + 1.0))
    return block


@dataclass(frozen=True)
class Component:
    """One ANOVA component of a product domain: contrasts within atoms on some axes, functions of the atoms on the others.

    Its coefficients are columns `start` to `start + dense * columns` of a transformed histogram, to be read
    as (dense, columns): the dense matrix of a marginal acts on the first index.
    """

    contrast: tuple[bool, ...]
    start: int
    dense: int
    columns: int

    def view(self, coefficients: np.ndarray) -> np.ndarray:
        """Return this component's part of an array of coefficients, as a view."""
        part = coefficients[..., self.start : self.start + self.dense * self.columns]
        return part.reshape(*part.shape[:-1], self.dense, self.columns)


@dataclass(frozen=True)
class Domain:
    """A product of axes, with the transform to components and back.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, summed
    >>> domain = Domain.of([(identity(3), summed(2)), (identity(3), identity(2))])
    >>> [(c.contrast, c.dense, c.columns) for c in domain.components][:2]
    [((False, False), 1, 1), ((False, True), 1, 1)]
    >>> x = np.arange(6.0)
    >>> bool(np.allclose(domain.backward(domain.forward(x)), x))
    True
    """

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, marginals: Sequence[Marginal]) -> Domain:
        """Return the smallest decomposition on which all of `marginals` are block diagonal."""
        return cls(tuple(Axis.of([m[i] for m in marginals]) for i in range(len(marginals[0]))))

    def coarsened(self, marginal: Marginal) -> Domain:
        """Return the domain of the marginal's own table."""
        pairs = zip(self.axes, marginal, strict=True)
        return Domain(tuple(axis if is_identity(g) else Axis.free(int(g.max()) + 1) for axis, g in pairs))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of codes on every axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def cells(self) -> int:
        """Return the number of cells `n`."""
        return int(np.prod(self.sizes))

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Return the non-empty components, in the order of their coefficients."""
        found, start = [], 0
        for contrast in itertools.product((False, True), repeat=len(self.axes)):
            pairs = list(zip(contrast, self.axes, strict=True))
            dense = int(np.prod([a.atoms for c, a in pairs if not c], dtype=np.int64))
            columns = int(np.prod([a.size - a.atoms for c, a in pairs if c], dtype=np.int64))
            if columns:
                found.append(Component(contrast, start, dense, columns))
                start += dense * columns
        return tuple(found)

    @cached_property
    def layout(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the transform as arrays: axes, codes, starts of atoms, and positions of coefficients."""
        codes = [np.concatenate(axis.members) for axis in self.axes]
        pointers = [np.append(0, np.cumsum([m.size for m in axis.members])) for axis in self.axes]
        starts = [np.append(0, np.cumsum([part.size for part in parts])) for parts in (codes, pointers)]
        axes = np.stack([np.append(self.sizes, 0), *starts], axis=1)
        return axes, np.concatenate(codes), np.concatenate(pointers), self._place

    @cached_property
    def _place(self) -> np.ndarray:
        """Return the position of each coefficient in a transformed histogram, component by component."""
        left = [
            np.array([m[0] for m in a.members] + [c for m in a.members for c in m[1:]]) for a in self.axes
        ]
        grid = np.arange(self.cells).reshape(self.sizes)[np.ix_(*left)]
        return np.concatenate([self._rows(grid, c.contrast).ravel() for c in self.components])

    def _rows(self, table: np.ndarray, contrast: tuple[bool, ...]) -> np.ndarray:
        """Return the part of a table of coefficients that belongs to one component, with its contrast axes last."""
        pairs = list(zip(contrast, self.axes, strict=True))
        part = table[tuple(slice(a.atoms, None) if c else slice(a.atoms) for c, a in pairs)]
        return part.transpose(sorted(range(len(contrast)), key=lambda i: contrast[i]))

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Return coefficients (..., n) of histograms (..., n), component by component."""
        from trueup.kernel.histogram.helmert import forward_rows

        return forward_rows(_as_rows(x), *self.layout).reshape(x.shape)

    def backward(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the histograms (..., n) that have the given coefficients (..., n): the inverse of `forward`."""
        from trueup.kernel.histogram.helmert import backward_rows

        return backward_rows(_as_rows(coefficients), *self.layout).reshape(coefficients.shape)

    def informs(self, marginal: Marginal, component: Component) -> bool:
        """Return True if the marginal contains information on the component."""
        return all(is_identity(g) for g, c in zip(marginal, component.contrast, strict=True) if c)

    def matrix(self, marginal: Marginal, component: Component) -> np.ndarray:
        """Return the matrix that maps a component's coefficients on atoms to its coefficients in a marginal's table."""
        kept = zip(self.axes, marginal, component.contrast, strict=True)
        return reduce(_kron, [a.on_atoms(g) for a, g, c in kept if not c], np.ones((1, 1)))

    def of_table(self, y: np.ndarray, marginal: Marginal, component: Component) -> np.ndarray:
        """Return the coefficients (..., rows, columns) of one component of a marginal's table (..., m)."""
        own = self.coarsened(marginal)
        at = next(c for c in own.components if c.contrast == component.contrast)
        return at.view(own.forward(y))


def _kron(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the Kronecker product, faster than NumPy's for small matrices."""
    return (a[:, None, :, None] * b[None, :, None, :]).reshape(len(a) * len(b), -1)


def _as_rows(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=float).reshape(-1, x.shape[-1])


Measured = tuple[Marginal, float]
"""A marginal that every node of a level answers, and the variance of each answer (counts squared)."""

RANK = 1e-11  # eigenvalues below this share of the largest count as zero
ROUNDING = 1e-13  # what double precision leaves of a variance that should be zero, as a share of the largest


def product(v: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return (..., D, D) times (..., D, c), by plain multiplication if D is 1."""
    return v * x if v.shape[-1] == v.shape[-2] == 1 else v @ x


def pseudo_inverse(v: np.ndarray) -> np.ndarray:
    """Return the Moore-Penrose inverse of symmetric positive semidefinite (..., D, D)."""
    if v.shape[-1] == 1:
        return np.divide(1.0, v, out=np.zeros_like(v), where=v > 0)
    return np.linalg.pinv(v, rcond=RANK, hermitian=True)


def condition(v: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gain (..., D, m) and covariance (..., D, D) after conditioning on an exactly known `rows @ x` (m, D).

    Part of `rows @ x` may be known already: its computed covariance is then not zero but the rounding of v, and its
    inverse would be noise of any size. So a variance counts only if it is above that rounding, which is relative to
    v and not to what is left of it. Values known before have no gain, and those that become known have no variance.

    Examples
    --------
    >>> sum_known, total = np.array([[[2.0, -2.0], [-2.0, 2.0 + 1e-15]]]), np.ones((1, 2))
    >>> [part.tolist() for part in condition(sum_known, total)] == [[[[0.0], [0.0]]], sum_known.tolist()]
    True
    """
    rounding = ROUNDING * _size(v)
    variance, axes = np.linalg.eigh(rows @ v @ rows.T)
    open_ = variance > rounding * np.linalg.norm(rows, 2) ** 2
    inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=open_)
    gain = v @ rows.T @ (axes * inverse[..., None, :]) @ axes.swapaxes(-1, -2)
    left = np.eye(v.shape[-1]) - gain @ rows
    narrowed = left @ v @ left.swapaxes(-1, -2)
    return gain, np.where(_size(narrowed)[..., None] > rounding[..., None], narrowed, 0.0)


def _size(v: np.ndarray) -> np.ndarray:
    """Return the largest entry of every (D, D) matrix, as (..., 1)."""
    return np.abs(v).max(axis=(-2, -1), initial=0.0)[..., None]


@dataclass(frozen=True)
class Filter:
    """The Kalman filter of one component at one level, for each node or once for all nodes."""

    precision: np.ndarray  # (D, D) information of the level's own noisy measurements
    rows: np.ndarray  # (m, D) exact measurements
    updated: np.ndarray  # V1
    gain: np.ndarray  # K (nodes, D, m)
    variance: np.ndarray  # V
    below: np.ndarray  # U^+ of the inner nodes

    def tiled(self, copies: int) -> Filter:
        """Return the filter for several copies of the level's nodes."""
        parts = (self.updated, self.gain, self.variance, self.below)
        return Filter(
            self.precision, self.rows, *(p if len(p) == 1 else np.tile(p, (copies, 1, 1)) for p in parts)
        )

    def update(self, s: np.ndarray, h: np.ndarray, e: np.ndarray) -> np.ndarray:
        """Return subtree estimates from the children's sum `s`, the information `h`, and the exact answers `e` of every node."""
        z = s + product(self.updated, h - product(self.precision, s))
        return z + self.gain @ (e - self.rows @ z) if self.rows.size else z


def leaf_filter(precision: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return covariance and gain of a node that has only its own measurements."""
    free = scipy.linalg.null_space(rows) if rows.size else np.eye(precision.shape[0])
    reduced = free.T @ precision @ free
    if free.size and np.linalg.eigvalsh(reduced)[0] <= RANK * max(np.trace(precision), 1e-300):
        raise SpecError(
            "at some place of the lowest level the measurements do not determine every cell",
            needed="a table by all attributes, or tables that determine it, measured at the lowest level of every place",
            remedy="add a query by all attributes at that level; its budget may be small",
        )
    v = free @ np.linalg.inv(reduced) @ free.T if free.size else np.zeros_like(precision)
    return v, (np.eye(v.shape[0]) - v @ precision) @ np.linalg.pinv(rows)


def information(domain: Domain, component: Component, measured: Sequence[Measured]) -> np.ndarray:
    """Return the precision (D, D) that a level's noisy measurements give a component."""
    total = np.zeros((component.dense, component.dense))
    for marginal, variance in measured:
        if 0 < variance < np.inf and domain.informs(marginal, component):
            matrix = domain.matrix(marginal, component)
            total += matrix.T @ matrix / variance
    return total


def exact_rows(domain: Domain, component: Component, measured: Sequence[Measured]) -> np.ndarray:
    """Return rows (m, D) of a level's exact measurements on a component."""
    rows = [domain.matrix(m, component) for m, v in measured if v == 0 and domain.informs(m, component)]
    return np.vstack([np.zeros((0, component.dense)), *rows])


def determines(domain: Domain, measured: Sequence[Measured]) -> bool:
    """Return True if measurements determine every cell of a histogram.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, summed
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> domain = Domain.of([total, detailed])
    >>> determines(domain, [(total, 1.0)]), determines(domain, [(detailed, 1.0)])
    (False, True)
    """
    try:
        for component in domain.components:
            leaf_filter(information(domain, component, measured), exact_rows(domain, component, measured))
    except SpecError:
        return False
    return True
