"""Weighted least squares for a family of tables on a hierarchy, without their joint table.

Every table is measured as `y = M x + noise` of one variance a table, where x is the full cross at a place of the table's
level, and a place's x is the sum of its children's. In the basis of `kernel.histogram.anova` the problem falls apart by the
set B of axes that are seen code by code (contrasts within atoms on B, atoms on the others). A table that lacks an axis of B
says nothing of the component B, so each component has a depth: that of the deepest table with all axes of B.

The unknowns of a component at a place are what its tables at this level and below see of x: `u = Q x`, with Q (d, D) the
orthonormal rows that they span on the atoms of the other axes. Q of a level holds that of the level below as its first rows,
as tables below say their part of every sum. With P the inverse of `U = sum V_c` on these rows and 0 elsewhere,
`L = Q (sum M'M / variance) Q'` and `h = Q sum M'y / variance`,

    up     V = (L + P)^-1,   z = V (h + P s),   s = sum z_c   (0 beyond the rows of the level below)
    down   x_root = z_root,  x_c = z_c + V_c U^-1 (x_v - s).

Without recodes D is 1 and everything is a number for each place. A table that is exact is measured with a variance of
`EXACT_SHARE` of the least one; what is settled afterwards holds it to its values.

One file: the recursion, and the two ways between its unknowns and the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal, is_identity
from trueup.kernel.histogram.anova import Axis, Component, Domain
from trueup.kernel.histogram.spine import Spine

Measured = tuple[Marginal, float]
Contrast = tuple[int, ...]
"""The axes of a component's contrasts."""
EXACT_SHARE = 1e-8
"""Variance of exact tables as a share of the least noisy one: errors of a count of 1e4 noise widths stay below 1e-4."""
ROW_RANK = 1e-9
"""Singular values of rows below this share of the largest are rounding."""
MOST_UNKNOWNS = 2000
"""Atoms of recoded axes, multiplied, up to which their matrices are worked with: 30 MB a place."""


@dataclass(frozen=True, eq=False)
class TableView:
    """The table of one marginal: the axes that the marginal keeps, and a basis for its cells.

    Attributes
    ----------
    kept
        The axes that it does not sum out.
    domain
        The basis of its table; of one cell if it keeps no axis.
    """

    marginal: Marginal
    kept: tuple[int, ...]
    domain: Domain

    @classmethod
    def of(cls, axes: Sequence[Axis], marginal: Marginal) -> TableView:
        """Return the table of a marginal of the given axes."""
        kept = tuple(i for i, groups in enumerate(marginal) if groups.max() > 0)
        own = tuple(
            axes[i] if is_identity(marginal[i]) else Axis.free(int(marginal[i].max()) + 1) for i in kept
        )
        return cls(marginal, kept, Domain(own or (Axis.free(1),)))

    def contrast(self, component: Component) -> tuple[int, ...]:
        """Return the axes on which a component of the table varies."""
        return tuple(i for i, c in zip(self.kept, component.contrast) if c)

    @cached_property
    def components(self) -> dict[tuple[int, ...], Component]:
        """Return a dict of the table's components, with the axes on which a component varies as its key."""
        return {self.contrast(c): c for c in self.domain.components}


@dataclass(frozen=True, eq=False)
class Block:
    """One ANOVA component of the least squares of a family of tables.

    Attributes
    ----------
    contrast, dense
        The axes of its contrasts, and those that a table with all of these sees otherwise than summed.
    basis
        Per level down to its depth `(d, D)`, the rows Q; those of a level begin with those of the next.
    variance, below
        Per level `(places or 1, d, d)`: covariance of the estimates from the subtree, and of the children's sum.
    """

    contrast: tuple[int, ...]
    dense: tuple[int, ...]
    basis: tuple[NDArray, ...]
    variance: tuple[NDArray, ...]
    below: tuple[NDArray, ...]

    @property
    def depth(self) -> int:
        """Return the number of levels that measure the component."""
        return len(self.basis)


@dataclass(frozen=True, eq=False)
class FamilyLeastSquares:
    """Prepared least squares of a family: axes, places and measurements at every level.

    Examples
    --------
    >>> a, b = Axis.of([np.arange(2)]), Axis.of([np.arange(3)])
    >>> rows, columns = (np.arange(2), np.zeros(3, int)), (np.zeros(2, int), np.arange(3))
    >>> family = FamilyLeastSquares.prepare((a, b), Spine(np.array([1, 1])), [[(rows, 1.0), (columns, 1.0)]])
    >>> fit = family.fit([[np.array([[[4.0, 6.0]]]), np.array([[[1.0, 2.0, 2.0]]])]])
    >>> [family.table(fit, 0, m)[0, 0].round(6).tolist() for m in (rows, columns)]
    [[3.0, 5.0], [2.0, 3.0, 3.0]]
    """

    axes: tuple[Axis, ...]
    spine: Spine
    plan: tuple[tuple[Measured, ...], ...]
    blocks: tuple[Block, ...]
    views: dict[tuple[bytes, ...], TableView]

    @classmethod
    def prepare(
        cls, axes: Sequence[Axis], spine: Spine, plan: Sequence[Sequence[Measured]]
    ) -> FamilyLeastSquares:
        """Return the family's least squares, with the covariances of every component.

        Raises
        ------
        SpecError
            If recodes of so many axes are crossed that their matrices are too large.
        """
        noisy = [v for level in plan for _, v in level if v > 0]
        least = EXACT_SHARE * min(noisy, default=1.0)
        weighed = tuple(tuple((m, v or least) for m, v in level) for level in plan)
        views = {_key(m): TableView.of(axes, m) for level in plan for m, _ in level}
        contrasts = sorted({c for view in views.values() for c in view.components}, key=lambda c: (len(c), c))
        family = cls(tuple(axes), spine, weighed, (), views)
        blocks = tuple(family._block(contrast) for contrast in contrasts)
        return cls(tuple(axes), spine, weighed, blocks, views)

    def view(self, marginal: Marginal) -> TableView:
        """Return the table of a marginal, which need not be measured."""
        key = _key(marginal)
        if key not in self.views:
            self.views[key] = TableView.of(self.axes, marginal)
        return self.views[key]

    def fit(
        self,
        answers: Sequence[Sequence[NDArray]],
        *,
        subtrees: bool = False,
        below: Mapping[Contrast, NDArray] | None = None,
    ) -> list[list[NDArray]]:
        """Return the least-squares estimates `(b, places, d, columns)` of every block at every level.

        Parameters
        ----------
        answers
            Per level and measured table `(b, places, cells)`.
        subtrees
            Estimate every place from its subtree alone.
        below
            Estimates of a last level that is a cut, by block; `answers` end one level above it.
        """
        seen = [
            [
                self.view(m).domain.forward(np.asarray(y, float))
                for (m, _), y in zip(level, parts, strict=True)
            ]
            for level, parts in zip(self.plan[: len(answers)], answers, strict=True)
        ]
        known = below or {}
        return [self._fit(block, seen, subtrees, known.get(block.contrast)) for block in self.blocks]

    def table(self, fit: Sequence[Sequence[NDArray]], level: int, marginal: Marginal) -> NDArray:
        """Return the estimates `(b, places, cells)` of a marginal at a level."""
        view = self.view(marginal)
        replicates, places = fit[0][0].shape[0], self.spine.size(level)
        found = np.zeros((replicates, places, view.domain.cells))
        for component, block, estimates in self._seen(view, fit):
            part = component.view(found)
            part[...] = self._matrix(block, marginal) @ block.basis[level].T @ estimates[level]
        return view.domain.backward(found)

    def covariances(self, level: int, marginal: Marginal) -> list[NDArray]:
        """Return, by component, covariances `(places or 1, rows, rows)` of a marginal's estimates from each place's subtree."""
        return self._covariances(level, marginal, [block.variance for block in self.blocks])

    def variances(self, level: int, marginal: Marginal) -> NDArray:
        """Return variances `(places, cells)` of a marginal's estimates given all measurements (counts squared)."""
        view = self.view(marginal)
        total = np.zeros((self.spine.size(level), *view.domain.sizes))
        parts = self._covariances(level, marginal, self._posterior)
        for component, covariance in zip(view.domain.components, parts, strict=True):
            diagonal = np.diagonal(covariance, axis1=1, axis2=2)
            atoms = [a.atoms for a, c in zip(view.domain.axes, component.contrast) if not c]
            spread = diagonal.reshape(-1, *atoms)
            for at, (axis, contrast) in enumerate(zip(view.domain.axes, component.contrast), start=1):
                spread = _on_codes(spread, axis, at, contrast=contrast)
            total += spread
        return np.maximum(total.reshape(len(total), -1), 0.0)

    def _covariances(self, level: int, marginal: Marginal, of: Sequence[Sequence[NDArray]]) -> list[NDArray]:
        view = self.view(marginal)
        found = []
        for _, block, variance in self._seen(view, of):
            rows = self._matrix(block, marginal) @ block.basis[level].T
            found.append(rows @ variance[level] @ rows.T)
        return found

    def _seen(self, view: TableView, of: Sequence):
        """Yield each component of a table, with the block of least squares and the value in `of` that belong to it."""
        at = {block.contrast: i for i, block in enumerate(self.blocks)}
        for component in view.domain.components:
            i = at[view.contrast(component)]
            yield component, self.blocks[i], of[i]

    @cached_property
    def _posterior(self) -> list[list[NDArray]]:
        """Return covariances of the estimates given all measurements: `P_c = V_c - V_c U^-1 (U - P_v) U^-1 V_c`."""
        found = []
        for block in self.blocks:
            levels = [block.variance[0]]
            for level in range(1, block.depth):
                u, d = block.below[level - 1], block.basis[level].shape[0]
                inverse = np.linalg.inv(u)
                slack = inverse - inverse @ levels[-1][:, :d, :d] @ inverse
                v = block.variance[level]
                own = (
                    slack
                    if len(slack) == 1 and self._alike(level - 1)
                    else self._to_children(level - 1, slack)
                )
                levels.append(v - v @ own @ v)
            found.append(levels)
        return found

    def _alike(self, level: int) -> bool:
        return len(np.unique(self.spine.children(level))) == 1

    def _to_children(self, level: int, x: NDArray) -> NDArray:
        """Repeat a level's array `(places or 1, ...)` for every child."""
        return self.spine.to_children(level, np.broadcast_to(x, (self.spine.size(level), *x.shape[1:])))

    def _informing(self, contrast: tuple[int, ...], level: int) -> list[tuple[int, Measured]]:
        """Return the tables of a level that measure a component, with their positions."""
        return [
            (i, m) for i, m in enumerate(self.plan[level]) if contrast in self.views[_key(m[0])].components
        ]

    def _matrix(self, block: Block, marginal: Marginal) -> NDArray:
        """Return the matrix (rows, D) with which a table measures a block."""
        parts = [self.axes[i].on_atoms(marginal[i]) for i in block.dense]
        return reduce(np.kron, parts, np.ones((1, 1)))

    def _block(self, contrast: tuple[int, ...]) -> Block:
        informing = [self._informing(contrast, level) for level in range(self.spine.depth)]
        depth = max(level for level, found in enumerate(informing) if found) + 1
        views = [self.views[_key(m)] for level in informing for _, (m, _) in level]
        dense = tuple(sorted({i for view in views for i in view.kept} - set(contrast)))
        if (unknowns := int(np.prod([self.axes[i].atoms for i in dense], dtype=np.int64))) > MOST_UNKNOWNS:
            raise SpecError(
                f"recodes of several attributes cross; together they have {unknowns:,} combinations",
                needed=f"at most {MOST_UNKNOWNS:,} combinations",
                remedy="measure fewer recodes of the same attributes",
            )
        block = Block(contrast, dense, (), (), ())
        basis = [np.zeros((0, unknowns))]
        for level in range(depth - 1, -1, -1):
            basis.append(_extended(basis[-1], [self._matrix(block, m) for _, (m, _) in informing[level]]))
        return self._known(replace(block, basis=tuple(basis[:0:-1])))

    def _known(self, block: Block, below: NDArray | None = None) -> Block:
        """Return a block with the covariances of its estimates by level, given those `below` a cut."""
        variance: list[NDArray] = [] if below is None else [below]
        summed: list[NDArray] = []
        for level in range(block.depth - 1 - len(variance), -1, -1):
            basis, informing = block.basis[level], self._informing(block.contrast, level)
            rows = [(basis @ self._matrix(block, m).T, v) for _, (m, v) in informing]
            own = sum((x @ x.T / v for x, v in rows), np.zeros((len(basis),) * 2))
            if variance:
                summed.append(self._summed(level, variance[-1]))
                variance.append(_combined(summed[-1], own, informed=bool(rows)))
            else:
                variance.append(np.linalg.inv(own)[None])
        return replace(block, variance=tuple(variance[::-1]), below=tuple(summed[::-1]))

    def on(self, spine: Spine, levels: range, below: Mapping[Contrast, NDArray] | None) -> FamilyLeastSquares:
        """Return the least squares of some levels for other places, given covariances `below` a cut."""
        plan = self.plan[levels.start : levels.stop]
        plan = plan if below is None else (*plan[:-1], ())
        part = replace(self, spine=spine, plan=plan, blocks=())
        blocks = (
            part._known(
                replace(block, basis=block.basis[levels.start : levels.stop]),
                None if below is None else below.get(block.contrast),
            )
            for block in self.blocks
            if block.depth > levels.start
        )
        return replace(part, blocks=tuple(blocks))

    def _summed(self, level: int, v: NDArray) -> NDArray:
        """Return the covariance of the sum of each place's children, or one covariance for all places."""
        if len(v) == 1:
            children = self.spine.children(level)
            children = children[:1] if self._alike(level) else children
            return children[:, None, None] * v
        return np.add.reduceat(v, self.spine.firsts[level], axis=0)

    def _fit(
        self, block: Block, seen: Sequence[Sequence[NDArray]], subtrees: bool, below: NDArray | None
    ) -> list[NDArray]:
        z: list[NDArray] = [np.zeros(0)] * block.depth
        sums: list[NDArray] = [np.zeros(0)] * block.depth
        for level in range(block.depth - 1, -1, -1):
            if level == block.depth - 1 and below is not None:
                z[level] = below
                continue
            h = self._information(block, seen[level], level)
            if level == block.depth - 1:
                z[level] = block.variance[level] @ h
                continue
            sums[level] = np.add.reduceat(z[level + 1], self.spine.firsts[level], axis=1)
            if h is None:
                z[level] = sums[level]
                continue
            d = sums[level].shape[-2]
            h[..., :d, :] += np.linalg.solve(block.below[level], sums[level])
            z[level] = block.variance[level] @ h
        return z if subtrees else self._down(block, z, sums)

    def _information(self, block: Block, seen: Sequence[NDArray], level: int) -> NDArray | None:
        """Return the information that a level's tables give on a block, or None if they give none."""
        total = None
        for i, (marginal, variance) in self._informing(block.contrast, level):
            rows = block.basis[level] @ self._matrix(block, marginal).T / variance
            part = rows @ self.views[_key(marginal)].components[block.contrast].view(seen[i])
            total = part if total is None else total + part
        return total

    def _down(self, block: Block, z: Sequence[NDArray], sums: Sequence[NDArray]) -> list[NDArray]:
        x = [z[0]]
        for level in range(block.depth - 1):
            change = np.linalg.solve(block.below[level], x[-1][..., : sums[level].shape[-2], :] - sums[level])
            shared = np.repeat(change, self.spine.children(level), axis=1)
            x.append(z[level + 1] + block.variance[level + 1] @ shared)
        return x


def _key(marginal: Marginal) -> tuple[bytes, ...]:
    return tuple(np.asarray(groups, np.int64).tobytes() for groups in marginal)


def _extended(basis: NDArray, rows: Sequence[NDArray]) -> NDArray:
    """Return orthonormal rows that span the rows of a basis and the rows of some matrices."""
    if not rows:
        return basis
    further = np.vstack(rows)
    scale = np.linalg.norm(further, 2)
    further = further - further @ basis.T @ basis
    _, sizes, axes = np.linalg.svd(further, full_matrices=False)
    new = axes[sizes > ROW_RANK * scale]
    return np.vstack([basis, new - new @ basis.T @ basis])


def _combined(below: NDArray, own: NDArray, *, informed: bool) -> NDArray:
    """Return the covariance of a place's estimate, from the covariance of its children's sum and its own information."""
    if not informed:
        return below
    d = below.shape[-1]
    total = np.repeat(own[None], len(below), axis=0)
    total[:, :d, :d] += np.linalg.inv(below)
    return np.linalg.inv(total)


def _on_codes(spread: NDArray, axis: Axis, at: int, *, contrast: bool) -> NDArray:
    """Distribute variances of an axis's atoms or contrasts among its codes."""
    sizes = np.array([codes.size for codes in axis.members])
    atom = np.empty(axis.size, np.int64)
    for k, codes in enumerate(axis.members):
        atom[codes] = k
    shape = [1] * spread.ndim
    if contrast:
        weights = (1 - 1 / sizes)[atom]
        grown = np.expand_dims(spread, at)
        shape.insert(at, axis.size)
        return grown * weights.reshape(shape)
    shape[at] = axis.size
    return np.take(spread, atom, axis=at) / sizes[atom].reshape(shape)
