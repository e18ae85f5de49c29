"""Least squares of histograms: nested and crossing tables of counts at every place of a tree.

Here: marginals of a histogram: every axis recoded to groups, and the cells that fall together summed.

The identity keeps an axis, a single group sums it out, anything else is a grouping.
"""

from __future__ import annotations

import numpy as np

Marginal = tuple[np.ndarray, ...]
"""For every axis, the group (0, 1, ...) of each of its codes."""


def identity(n: int) -> np.ndarray:
    """Return the recode that keeps an axis of `n` codes as it is.

    Examples
    --------
    >>> identity(3)
    array([0, 1, 2])
    """
    return np.arange(n)


def summed(n: int) -> np.ndarray:
    """Return the recode that sums over an axis of `n` codes.

    Examples
    --------
    >>> summed(3)
    array([0, 0, 0])
    """
    return np.zeros(n, np.int64)


def is_identity(groups: np.ndarray) -> bool:
    """Return True if a recode keeps every code separate and in order.

    Examples
    --------
    >>> is_identity(np.array([0, 1, 1]))
    False
    """
    return groups.size > 0 and bool(np.array_equal(groups, np.arange(groups.size)))


def indicator(groups: np.ndarray) -> np.ndarray:
    """Return the 0/1 matrix (groups, codes) that sums codes into groups.

    Examples
    --------
    >>> indicator(np.array([0, 1, 1]))
    array([[1., 0., 0.],
           [0., 1., 1.]])
    """
    return np.equal.outer(np.arange(groups.max() + 1), groups).astype(float)


def shape(marginal: Marginal) -> tuple[int, ...]:
    """Return the number of groups on every axis: the shape of the marginal's own table.

    Examples
    --------
    >>> shape((identity(3), summed(2)))
    (3, 1)
    """
    return tuple(int(groups.max()) + 1 for groups in marginal)


def cell_groups(marginal: Marginal) -> np.ndarray:
    """Return the marginal's cell (row-major) into which each of the `n` cells of the domain is summed.

    Examples
    --------
    >>> cell_groups((identity(2), summed(2)))
    array([0, 0, 1, 1])
    """
    grid = np.meshgrid(*marginal, indexing="ij")
    return np.ravel_multi_index([g.ravel() for g in grid], shape(marginal))


def refines(fine: Marginal, coarse: Marginal) -> bool:
    """Return True if `coarse` is a marginal of `fine`.

    Examples
    --------
    >>> refines((identity(3),), (np.array([0, 1, 1]),)), refines((np.array([0, 1, 1]),), (identity(3),))
    (True, False)
    """
    return all(_constant_within(f, c) for f, c in zip(fine, coarse, strict=True))


def _constant_within(fine: np.ndarray, coarse: np.ndarray) -> bool:
    first = coarse[np.unique(fine, return_index=True)[1]]
    return bool(np.array_equal(first[fine], coarse))


def relative(fine: Marginal, coarse: Marginal) -> Marginal:
    """Return the marginal `coarse` as a marginal of the table of `fine`.

    Examples
    --------
    >>> relative((np.array([0, 1, 1, 2]),), (np.array([0, 1, 1, 1]),))
    (array([0, 1, 1]),)
    """
    return tuple(c[np.unique(f, return_index=True)[1]] for f, c in zip(fine, coarse, strict=True))


def marginalise(x: np.ndarray, marginal: Marginal) -> np.ndarray:
    """Sum histograms into a marginal: `M x`.

    Parameters
    ----------
    x : (..., n) array
    marginal : recodes of the k axes

    Returns
    -------
    (..., m) array, the marginal's cells in row-major order

    Examples
    --------
    >>> marginalise(np.arange(6.0), (summed(2), identity(3)))
    array([3., 5., 7.])
    """
    table = x.reshape(*x.shape[:-1], *(g.size for g in marginal))
    axes = dict(enumerate(marginal, start=table.ndim - len(marginal)))
    if gone := tuple(axis for axis, groups in axes.items() if groups.max() == 0):
        table = table.sum(axis=gone, keepdims=True)  # at once: axis by axis is slow where axes are short
    for axis, groups in axes.items():
        if axis not in gone and not is_identity(groups):
            table = _sum_groups(table, groups, axis)
    return table.reshape(*x.shape[:-1], -1)


def _sum_groups(table: np.ndarray, groups: np.ndarray, axis: int) -> np.ndarray:
    parts = [table.compress(groups == g, axis).sum(axis=axis) for g in range(groups.max() + 1)]
    return np.stack(parts, axis=axis)


def spread(y: np.ndarray, marginal: Marginal) -> np.ndarray:
    """Return for every cell the value of the marginal's cell that contains it: `M' y`.

    Examples
    --------
    >>> spread(np.array([3.0, 5.0]), (identity(2), summed(2)))
    array([3., 3., 5., 5.])
    """
    return np.take(y, cell_groups(marginal), axis=-1)
