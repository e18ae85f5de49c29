"""Error variances of least squares on a tree of histograms as functions of the measurements' precisions.

The unknowns, the basis and the components are those of `least_squares`. With `p_t` the precision (1 / variance) of
table t, `L = sum p_t M_t'M_t` the information of a level's own tables on a component, and all of it positive definite,

    up     U = sum V_c,               V = (U^-1 + L)^-1       (a leaf has no U^-1)
    down   P_root = V_root,           P_c = V_c - V_c S V_c,  S = U^-1 - U^-1 P_v U^-1 of its parent v,

P the covariance of the estimate given everything. V depends on the shape of the subtree, P on the context
(`spine`). The variance of a linear functional of one node's histogram is `tr(G P)`, summed over components. Its
derivatives with respect to all precisions come from the same two passes run backwards (reverse differentiation): from
`dF = tr(B_P dP)` follow in turn

    B_V += B_P - (B_P V S + its transpose),   B_S -= V B_P V                                  from the leaves up,
    B_P -= U^-1 B_S U^-1,                     B_A += B_S - (B_S U^-1 P + its transpose)       (A = U^-1),
    B_L  = -V B_V V,   B_A += B_L,            B_U = -U^-1 B_A U^-1,   B_V of every child += B_U   from the root down.

An exact table is one of a precision so large that its error is negligible.

One file: the derivatives are the two passes run backwards, line by line, on the same intermediate arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import Marginal, is_identity
from trueup.kernel.histogram.anova import Axis, Component, Domain
from trueup.kernel.histogram.spine import Shapes

Reals = NDArray[np.float64]
Parts = list[Reals]
"""One array per stack of components of equal size."""

EXACT = 1e6
"""Precision of an exact table, as a multiple of the sum of the others'."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Components of equal dense size D that no table distinguishes, in one array.

    Attributes
    ----------
    members
        For each of the c arrays, the components that it stands for.
    grams
        (tables, c, D, D): `M'M` of each table, 0 where it does not inform.
    """

    members: tuple[tuple[Component, ...], ...]
    grams: Reals


@dataclass(frozen=True, eq=False)
class Swept:
    """Covariances at given precisions: of the subtrees' estimates by shape, and of all estimates by context."""

    subtree: tuple[Parts, ...]
    inverse: tuple[Parts, ...]
    given: list[tuple[Parts, Parts] | None]


@dataclass(frozen=True, eq=False)
class ErrorVariances:
    """Tables measured at the levels of a tree, and the least-squares variances as functions of their precisions.

    Attributes
    ----------
    domain
        The basis in which every table, and every functional asked for, is block diagonal.
    shapes
        The tree's shapes and contexts.
    tables
        Level and marginal of each of the k measured tables.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, summed
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> domain = Domain.of([total, detailed])
    >>> model = ErrorVariances(domain, Shapes.of(np.array([1, 3, 3, 3])), ((0, total), (1, detailed)))
    >>> swept = model.sweep(np.array([1 / 4, 1.0]))
    >>> forms = model.forms(total)
    >>> model.variances(swept, 0, forms)  # four cells of variance 1 beside one sum of variance 4
    array([[2.]])
    >>> model.slopes(swept, [(0, forms[0], 0)])  # minus the derivatives; times the precisions they sum to the variance
    array([[4., 1.]])
    """

    domain: Domain
    shapes: Shapes
    tables: tuple[tuple[int, Marginal], ...]

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        """Return the components, stacked by size, with equally measured ones merged."""
        found: dict[int, dict[bytes, tuple[Reals, list[Component]]]] = {}
        for component in self.domain.components:
            grams = np.stack([self._gram(m, component) for _, m in self.tables])
            same = found.setdefault(component.dense, {})
            same.setdefault(grams.tobytes(), (grams, []))[1].append(component)
        return tuple(
            Stack(tuple(tuple(c) for _, c in same.values()), np.stack([g for g, _ in same.values()], axis=1))
            for same in found.values()
        )

    def _gram(self, marginal: Marginal, component: Component) -> Reals:
        if not self.domain.informs(marginal, component):
            return np.zeros((component.dense, component.dense))
        matrix = self.domain.matrix(marginal, component) @ self.rotation(component)
        return matrix.T @ matrix

    def rotation(self, component: Component) -> Reals:
        """Return an orthonormal basis (D, D) of a component's functions on atoms, coarse groups first.

        In it, what is known well and what is hardly known lie along different axes: see `_inverse`.
        """
        parts = [
            basis for basis, contrast in zip(self._bases, component.contrast, strict=True) if not contrast
        ]
        return np.asarray(reduce(np.kron, parts, np.ones((1, 1))), float)

    @cached_property
    def _bases(self) -> list[Reals]:
        bases = []
        for i, axis in enumerate(self.domain.axes):
            groupings = sorted((m[i] for _, m in self.tables), key=lambda groups: int(groups.max()))
            whole = [np.zeros(axis.size, np.int64), *(g for g in groupings if not is_identity(g))]
            bases.append(_orthonormal(np.vstack([*map(axis.on_atoms, whole), np.eye(axis.atoms)])))
        return bases

    @cached_property
    def _levels(self) -> NDArray[np.int64]:
        return np.array([level for level, _ in self.tables])

    def determined(self, measured: NDArray[np.bool_]) -> bool:
        """Return True if the chosen tables of the last level determine every cell there."""
        last = measured & (self._levels == self.shapes.depth - 1)
        information = [stack.grams[last].sum(axis=0) for stack in self.stacks]
        return all(
            (np.linalg.eigvalsh(part)[:, 0] > 1e-11 * np.trace(part, axis1=1, axis2=2)).all()
            for part in information
        )

    def sweep(self, precisions: Reals) -> Swept:
        """Return covariances at precisions (k,), infinite for exact tables."""
        finite = np.where(np.isfinite(precisions), precisions, 0.0)
        p = np.where(np.isfinite(precisions), precisions, EXACT * finite.sum())
        subtree, inverse = zip(*(self._up(stack, p) for stack in self.stacks))
        return Swept(subtree, inverse, [None] * len(self.stacks))

    def _up(self, stack: Stack, p: Reals) -> tuple[Parts, Parts]:
        depth = self.shapes.depth
        own = [
            np.tensordot(np.where(self._levels == level, p, 0.0), stack.grams, 1) for level in range(depth)
        ]
        leaves = 1 if depth == 1 else self.shapes.counts[-1].shape[1]
        v = [np.repeat(_inverse(own[-1])[None], leaves, axis=0)]
        a: Parts = []
        for level in range(depth - 2, -1, -1):
            inverse = _inverse(_times(self.shapes.counts[level], v[0]))
            a.insert(0, inverse)
            v.insert(0, _inverse(inverse + own[level]))
        return v, a

    def forms(self, marginal: Marginal) -> list[Parts]:
        """Return, by stack, the matrices G (c, D, D) of one cell of each kind.

        All cells of a kind have equal variances.
        """
        return [self.form(marginal, cell) for cell in self.cells_of(marginal)]

    def cells_of(self, marginal: Marginal) -> Iterator[tuple[int, ...]]:
        """Yield one cell of each kind, as a code on every axis."""
        return product(*_kinds(self.domain, marginal))

    def form(self, marginal: Marginal, cell: Sequence[int]) -> Parts:
        """Return, by stack, matrices G (c, D, D) of a cell, whose variance is the sum of `tr(G P)`."""
        return [
            np.stack(
                [np.sum([self._form(marginal, cell, c) for c in same], axis=0) for same in stack.members]
            )
            for stack in self.stacks
        ]

    def _form(self, marginal: Marginal, cell: Sequence[int], component: Component) -> Reals:
        if not self.domain.informs(marginal, component):
            return np.zeros((component.dense, component.dense))
        row, contrast = self.row(marginal, cell, component)
        return float(contrast @ contrast) * np.outer(row, row)

    def row(self, marginal: Marginal, cell: Sequence[int], component: Component) -> tuple[Reals, Reals]:
        """Return a cell's coefficients in a component, on functions of atoms and on contrasts."""
        row, contrasts = np.ones(1), np.ones(1)
        for axis, groups, code, contrast in zip(
            self.domain.axes, marginal, cell, component.contrast, strict=True
        ):
            if contrast:
                contrasts = np.asarray(np.kron(contrasts, axis.contrasts[code]), float)
            else:
                row = np.asarray(np.kron(row, _row(axis, groups, code)), float)
        return row @ self.rotation(component), contrasts

    def mean_form(self, marginal: Marginal) -> Parts:
        """Return the matrices G of the mean over all cells of a marginal."""
        sizes = np.array([np.prod(kind) for kind in product(*_kinds(self.domain, marginal, weights=True))])
        forms = zip(*self.forms(marginal))
        return [np.tensordot(sizes / sizes.sum(), np.stack(part), 1) for part in forms]

    def variances(self, swept: Swept, level: int, forms: Sequence[Parts]) -> Reals:
        """Return the variance of each functional in every context of a level, as (contexts, forms)."""
        total = np.zeros((len(self.shapes.shape[level]), len(forms)))
        for i in range(len(self.stacks)):
            given = self._given(swept, i)[0][level]
            flat = np.stack([form[i].ravel() for form in forms], axis=1)
            total += given.reshape(len(total), -1) @ flat
        return total

    def _given(self, swept: Swept, i: int) -> tuple[Parts, Parts]:
        """Return, by level, the covariances P and the matrices S of every context, from a cache."""
        known = swept.given[i]
        if known is None:
            v, a = swept.subtree[i], swept.inverse[i]
            p, s = [v[0][self.shapes.shape[0]]], []
            for level, inverse in enumerate(a):
                above = inverse[self.shapes.shape[level]]
                s.append(above - above @ p[level] @ above)
                child = v[level + 1][self.shapes.shape[level + 1]]
                p.append(child - child @ s[level][self.shapes.parent[level + 1]] @ child)
            known = swept.given[i] = p, s
        return known

    def slopes(self, swept: Swept, wanted: Sequence[tuple[int, Parts, int]]) -> Reals:
        """Return minus the derivatives (j, k) of j variances with respect to the k precisions."""
        slopes = np.zeros((len(wanted), len(self.tables)))
        for i in range(len(self.stacks)):
            v, a = swept.subtree[i], swept.inverse[i]
            back_v = [np.zeros((*x.shape, len(wanted))) for x in v]
            back_a = [np.zeros((*x.shape, len(wanted))) for x in a]
            for j, (level, form, context) in enumerate(wanted):
                self._along_path(
                    swept,
                    i,
                    level,
                    form[i],
                    context,
                    [b[..., j] for b in back_v],
                    [b[..., j] for b in back_a],
                )
            slopes += self.to_tables(i, self.down(v, a, back_v, back_a))
        return slopes

    def _along_path(self, swept: Swept, i: int, level: int, own: Reals, context: int, back_v, back_a) -> None:
        """Add the derivatives of one variance with respect to V and U^-1, which are nonzero only on the path to the root."""
        v, a = swept.subtree[i], swept.inverse[i]
        given, slack = self._given(swept, i)
        for at in range(level, 0, -1):
            shape, above = self.shapes.shape[at][context], self.shapes.parent[at][context]
            child, shape_above = v[at][shape], self.shapes.shape[at - 1][above]
            back_v[at][shape] += own - _twice(own @ child @ slack[at - 1][above])
            back_s, up = -child @ own @ child, a[at - 1][shape_above]
            back_a[at - 1][shape_above] += back_s - _twice(back_s @ up @ given[at - 1][above])
            own, context = -up @ back_s @ up, above
        back_v[0][self.shapes.shape[0][context]] += own

    def means(self, swept: Swept, wanted: Sequence[tuple[int, Parts, float]]) -> tuple[Reals, Reals]:
        """Return means of functionals over all places of a level, and minus the derivatives (k,) of their weighted sum.

        Sums of P over all nodes of a shape follow from those of the shapes above, since P_c is linear in P_v: no
        contexts are needed.
        """
        values, slopes = np.zeros(len(wanted)), np.zeros(len(self.tables))
        for i in range(len(self.stacks)):
            sums, slack = self._sums(swept.subtree[i], swept.inverse[i])
            seeds = [np.zeros_like(x) for x in sums]
            for j, (level, form, weight) in enumerate(wanted):
                mean = form[i] / self.shapes.numbers[level].sum()
                values[j] += np.tensordot(sums[level].sum(axis=0), mean, 3)
                seeds[level] += weight * mean
            back = self._means_back(swept.subtree[i], swept.inverse[i], sums, slack, seeds)
            slopes += self.to_tables(i, self.down(swept.subtree[i], swept.inverse[i], *back))[0]
        return values, slopes

    def _sums(self, v: Parts, a: Parts) -> tuple[Parts, Parts]:
        """Return, by level, sums of covariances P over nodes of a shape, and of matrices S over parents."""
        sums, slack = [v[0]], []
        for level, inverse in enumerate(a):
            s = _each(self.shapes.numbers[level], inverse) - inverse @ sums[level] @ inverse
            slack.append(_times(self.shapes.counts[level].T, s))
            child = v[level + 1]
            sums.append(_each(self.shapes.numbers[level + 1], child) - child @ slack[level] @ child)
        return sums, slack

    def _means_back(self, v: Parts, a: Parts, sums: Parts, slack: Parts, seeds: Parts) -> tuple[Parts, Parts]:
        back_v, back_a = list(seeds), [np.zeros_like(x) for x in a]
        for level in range(len(v) - 1, 0, -1):
            own, number = seeds[level], self.shapes.numbers
            back_v[level] = _each(number[level], own) - _twice(own @ v[level] @ slack[level - 1])
            back_s = _times(self.shapes.counts[level - 1], -v[level] @ own @ v[level])
            up = a[level - 1]
            back_a[level - 1] = _each(number[level - 1], back_s) - _twice(back_s @ up @ sums[level - 1])
            seeds[level - 1] = seeds[level - 1] - up @ back_s @ up
        back_v[0] = seeds[0]
        return [x[..., None] for x in back_v], [x[..., None] for x in back_a]

    def down(self, v: Parts, a: Parts, back_v: Parts, back_a: Parts) -> Parts:
        """Return derivatives (c, D, D, j) by each level's information, given those by `v` and `a`."""
        own = []
        for level, covariance in enumerate(v):
            informed = -_both_sides(covariance, back_v[level])
            own.append(informed.sum(axis=0))
            if level < len(a):
                back_u = -_both_sides(a[level], back_a[level] + informed)
                back_v[level + 1] = back_v[level + 1] + _times(self.shapes.counts[level].T, back_u)
        return own

    def to_tables(self, i: int, own: Parts) -> Reals:
        """Return minus the derivatives (j, k) by the tables' precisions, given those by information."""
        grams = self.stacks[i].grams
        found = [
            np.asarray(np.tensordot(own[level], grams[t], ([0, 1, 2], [0, 1, 2])), dtype=np.float64)
            for t, (level, _) in enumerate(self.tables)
        ]
        return np.asarray(-np.stack(found, axis=1), np.float64)


def _inverse(x: Reals) -> Reals:
    """Return the inverse of positive definite (..., D, D) matrices, scaled to a unit diagonal first."""
    scale: Reals = 1 / np.sqrt(np.diagonal(x, axis1=-2, axis2=-1))
    around = scale[..., :, None] * scale[..., None, :]
    return np.asarray(around * np.linalg.inv(around * x), float)


def _orthonormal(rows: Reals) -> Reals:
    """Return an orthonormal basis (columns) of the span of rows, in their order."""
    basis: list[Reals] = []
    for row in rows:
        left = row - sum((b * (b @ row) for b in basis), np.zeros(len(row)))
        if np.linalg.norm(left) > 1e-9 * np.linalg.norm(row):
            basis.append(left / np.linalg.norm(left))
    return np.stack(basis, axis=1)


def _twice(x: Reals) -> Reals:
    """Return the sum of x (..., D, D, j) and its transpose."""
    return x + x.swapaxes(-1, -2)


def _each(number: NDArray, x: Reals) -> Reals:
    return number.reshape(-1, *(1,) * (x.ndim - 1)) * x


def _both_sides(v: Reals, x: Reals) -> Reals:
    """Return the products V X V of symmetric matrices V (..., D, D) with matrices X (..., D, D, j)."""
    d, j = v.shape[-1], x.shape[-1]
    if d == 1:
        return v[..., None] ** 2 * x
    if j == 1:
        return (v @ x[..., 0] @ v)[..., None]
    flat = x.reshape(*x.shape[:-3], d, d * j)
    right = (v @ flat).reshape(*x.shape[:-3], d, d, j).swapaxes(-3, -2)  # (V X)', one X after the other
    return (v @ right.reshape(*x.shape[:-3], d, d * j)).reshape(x.shape)


def _times(counts, x: Reals) -> Reals:
    return (counts @ x.reshape(len(x), -1)).reshape(-1, *x.shape[1:])


def _row(axis: Axis, groups: NDArray, code: int) -> Reals:
    """Return the coefficients (atoms,) of one cell's count in the basis of functions constant on atoms."""
    if is_identity(groups):
        return axis.spanning[code]
    return axis.spanning[groups == code].sum(axis=0)


def _kinds(domain: Domain, marginal: Marginal, *, weights: bool = False) -> list[NDArray]:
    """Return one code of each kind on every axis, or the number of codes of each kind.

    Codes of a kind have equal variances.
    """
    kinds = []
    for axis, groups in zip(domain.axes, marginal, strict=True):
        kept = is_identity(groups)
        codes = [int(m[0]) for m in axis.members] if kept else range(int(groups.max()) + 1)
        sizes = [len(m) for m in axis.members] if kept else [1] * (int(groups.max()) + 1)
        kinds.append(np.array(sizes if weights else list(codes)))
    return kinds
