"""Least squares on a tree of histograms in which some cells are always zero.

Zero cells do not commute with marginals, so they do not fit the basis of `anova.Domain`. They are equalities
`E x = 0` on the leaves, and the estimate under them is the unrestricted one moved by the least amount in its own
metric, `x - S E' (E S E')^-1 E x`, S the least-squares covariance. S costs one pass over the tree, so the system is
solved by conjugate gradients; its condition is that of S, not of the zeros, and no penalty enters.

Structural zeros removed from a product domain by fusing the axes that they tie together.
A rule that some codes of some axes never occur together does not commute with sums along these axes, and so does not
fit the basis of `anova.Domain`. But fuse the axes of a rule to one whose codes are the combinations that do occur, and
what is left is a product domain without zeros: a marginal that kept, summed or grouped the fused axes is a grouping of
the new one. Weighted least squares under the zeros is then exact, node by node. The price is a dense block, as large
as the fused axis has distinguishable codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts load when first used

from trueup.kernel.histogram import Marginal, cell_groups
from trueup.kernel.histogram.least_squares import Estimates, HistogramLeastSquares
from trueup.kernel.histogram.spine import Spine

ROUNDING = 1e-13  # of estimates, relative to all of them: less on the zeros is no count


def close(spine: Spine, zeros: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Complete structural zeros down and up the tree.

    A zero at a node implies zeros at its children; zeros at all children imply one at the parent.

    Examples
    --------
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> closed = close(spine, [np.array([[True, False]]), np.array([[False, True], [False, True]])])
    >>> closed[0], closed[1].all()
    (array([[ True,  True]]), np.True_)
    """
    closed = [z.copy() for z in zeros]
    for level in range(spine.depth - 1):
        closed[level + 1] |= spine.to_children(level, closed[level][spine.inner[level]])
    for level in range(spine.depth - 2, -1, -1):
        open_below = spine.sum_children(level, (~closed[level + 1]).astype(np.int64))
        closed[level][spine.inner[level]] |= open_below == 0
    return tuple(closed)


def restrict(
    tree: HistogramLeastSquares, fit: Estimates, zeros: Sequence[np.ndarray], tolerance: float = 1e-12
) -> tuple[Estimates, float]:
    """Return least-squares estimates with some cells fixed at zero.

    Parameters
    ----------
    tree, fit : the tree and its unrestricted estimates
    zeros : per level, (nodes, n) True where a cell is zero, closed under the tree (see `close`)
    tolerance : relative tolerance of the conjugate gradients

    Returns
    -------
    Estimates (both its parts given everything), and the largest count left on a zero cell
    """
    leaves = [_leaf_cells(tree.spine, level, mask) for level, mask in enumerate(zeros)]
    held = np.concatenate([v[at] for v, at in zip(fit.values, leaves, strict=True)])
    if held.size == 0:
        return fit, 0.0

    def covariance(multipliers: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = np.split(multipliers, np.cumsum([at.sum() for at in leaves])[:-1])
        weights = [np.zeros(at.shape) for at in leaves]
        for w, at, part in zip(weights, leaves, parts, strict=True):
            w[at] = part
        return tree.solve(weights)

    def restricted(multipliers: np.ndarray) -> np.ndarray:
        return np.concatenate([v[at] for v, at in zip(covariance(multipliers), leaves, strict=True)])

    size = (held.size, held.size)
    multipliers, _ = scipy.sparse.linalg.cg(
        scipy.sparse.linalg.LinearOperator(size, restricted),  # pyright: ignore[reportCallIssue]
        held,
        rtol=tolerance,
        atol=ROUNDING * float(np.linalg.norm(np.concatenate([v.ravel() for v in fit.values]))),
        maxiter=1000,
    )
    values = tuple(v - c for v, c in zip(fit.values, covariance(multipliers), strict=True))
    left = max(float(np.abs(v[at]).max(initial=0.0)) for v, at in zip(values, leaves, strict=True))
    return Estimates(values, values, fit.conflict), left


def _leaf_cells(spine: Spine, level: int, mask: np.ndarray) -> np.ndarray:
    """Return the mask (nodes, cells) of a level, with False for all nodes that have children."""
    cells = mask.copy()
    cells[spine.inner[level]] = False
    return cells


@dataclass(frozen=True, eq=False)
class Fold:
    """A product domain without the combinations that are structural zeros.

    Attributes
    ----------
    sizes : number of codes on each of the k axes
    parts : for every folded axis, the axes that it fuses
    codes : for every folded axis, its codes as (codes, axes fused) codes of these axes

    Examples
    --------
    >>> zero = np.zeros((2, 3, 2), bool)
    >>> zero[1, 0] = True
    >>> fold = Fold.of((2, 3, 2), [zero])
    >>> fold.parts, fold.shape, fold.unfold(np.ones(10)).reshape(2, 3, 2)[:, :, 0]
    (((0, 1), (2,)), (5, 2), array([[1., 1., 1.],
           [0., 1., 1.]]))
    >>> by_first = (np.array([0, 1]), np.zeros(3, int), np.zeros(2, int))
    >>> fold.marginal(by_first)
    (array([0, 0, 0, 1, 1]), array([0, 0]))
    """

    sizes: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    codes: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], zeros: Sequence[np.ndarray] = ()) -> Fold:
        """Return the fold for structural zeros, given as boolean tables that are True at zeros."""
        part = list(range(len(sizes)))
        for rule in zeros:
            tied = [i for i in range(len(sizes)) if (rule != rule.take([0], axis=i)).any()] or [0]
            joined = {part[i] for i in tied}
            part = [min(joined) if p in joined else p for p in part]
        parts = tuple(tuple(i for i, p in enumerate(part) if p == first) for first in sorted(set(part)))
        never = np.zeros(tuple(sizes), bool)
        for rule in zeros:
            never |= rule
        return cls(tuple(sizes), parts, tuple(_possible(never, axes) for axes in parts))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes of the folded axes."""
        return tuple(len(c) for c in self.codes)

    @property
    def widest(self) -> int:
        """Return the number of codes of the largest fused axis, or 0 if no axis is fused."""
        fused = [len(codes) for axes, codes in zip(self.parts, self.codes, strict=True) if len(axes) > 1]
        return max(fused, default=0)

    @cached_property
    def kept(self) -> np.ndarray:
        """Return for every cell of the folded domain the cell (row-major) of the original one."""
        grid = np.indices(self.shape).reshape(len(self.shape), -1)
        where = np.zeros((len(self.sizes), grid.shape[1]), np.int64)
        for axes, codes, at in zip(self.parts, self.codes, grid, strict=True):
            where[list(axes)] = codes[at].T
        return np.ravel_multi_index(tuple(where), self.sizes)

    @property
    def trivial(self) -> bool:
        """Return True if nothing is folded."""
        return len(self.parts) == len(self.sizes) and self.shape == self.sizes

    def marginal(self, marginal: Marginal) -> Marginal:
        """Return the marginal of the folded domain that corresponds to one of the original domain."""
        return tuple(_grouped(marginal, *pair) for pair in zip(self.parts, self.codes, strict=True))

    def columns(self, marginal: Marginal) -> np.ndarray:
        """Return for every cell of a folded marginal's table the cell of the original table."""
        folded = cell_groups(self.marginal(marginal))
        columns = np.empty(int(folded.max()) + 1, np.int64)
        columns[folded] = cell_groups(marginal)[self.kept]
        return columns

    def unfold(self, x: np.ndarray) -> np.ndarray:
        """Return histograms (..., n) of the original domain from folded ones, zero elsewhere."""
        if self.trivial:
            return x
        full = np.zeros((*x.shape[:-1], int(np.prod(self.sizes))), x.dtype)
        full[..., self.kept] = x
        return full


def _possible(never: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the combinations of codes on some axes that are possible with some codes on the others."""
    others = tuple(i for i in range(never.ndim) if i not in axes)
    return np.argwhere(~never.all(axis=others))


def _grouped(marginal: Marginal, axes: tuple[int, ...], codes: np.ndarray) -> np.ndarray:
    groups = [marginal[axis][column] for axis, column in zip(axes, codes.T, strict=True)]
    joint = np.ravel_multi_index(groups, [int(marginal[axis].max()) + 1 for axis in axes])
    return np.unique(joint, return_inverse=True)[1].reshape(-1)
