"""Error variances of sums over areas that cut across the hierarchy.

With the notation of `error_variances`: given the truth at a node v, the estimates of its children err by
`K_c e_v + r_c`, `K_c = V_c U^-1`, where the r_c have covariance `diag(V) - V U^-1 V'` and are independent between
families. So the error of an area, a sum over leaves, is `H_root' e_root` and a sum over families, found from the
leaves up (H = 1 at the area's leaves, 0 at others: only nodes with leaves of the area are visited):

    M_v = sum V_c H_c,     H_v = U^-1 M_v,     Cov = H_root' V_root H_root + sum_v (sum_c H_c' V_c H_c - M_v' U^-1 M_v).

A functional `F = tr(G Cov)` is differentiated by the same recursion from the root down (W = dF / dH):

    W_root = 2 V H G,   Y_v = U^-1 (W_v - 2 M_v G),   W_c = 2 V_c H_c G + V_c Y_v,
    B_V += H_c G H_c' + sym(Y_v H_c'),   B_A += sym(W_v M_v') - M_v G M_v'       (A = U^-1),

and B_V, B_A give the derivatives with respect to precisions as in `error_variances`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram.error_variances import ErrorVariances, Parts, Reals, Swept
from trueup.kernel.histogram.spine import Shapes

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Areas:
    """Areas (sets of leaves), with all nodes above their leaves.

    Equal nodes of an area are stored once.

    Attributes
    ----------
    shape, parent, times
        For every level, the shape of each node of each area, the position of its parent on the level above, and how
        many nodes it stands for. On the first level there is one node an area.
    """

    shape: tuple[Indices, ...]
    parent: tuple[Indices, ...]
    times: tuple[Indices, ...]

    @classmethod
    def of(cls, shapes: Shapes, ancestors: Sequence[Indices], area: Indices, leaf: Indices) -> Areas:
        """Return the areas, with all nodes of the tree above their leaves.

        Parameters
        ----------
        shapes
            The tree's shapes and contexts.
        ancestors
            For every level but the first, the position of each node's parent on the level above.
        area, leaf
            Pairs of an area and a leaf that it contains; areas are numbered from 0 and none is empty.
        """
        levels, areas, node = len(shapes.shape), area, leaf
        shape, parent, times = [], [], []
        for level in range(levels - 1, -1, -1):
            kind = shapes.shape[level][shapes.context[level][node]]
            above = np.zeros_like(node) if level == 0 else ancestors[level - 1][node]
            pairs, at = np.unique(np.stack([areas, above]), axis=1, return_inverse=True)
            at = areas if level == 0 else at.reshape(-1)
            alike = np.stack([at, kind])
            if level == levels - 1:
                alike, count = np.unique(alike, axis=1, return_counts=True)
            else:
                count = np.ones(alike.shape[1], np.int64)
            shape.insert(0, alike[1])
            parent.insert(0, alike[0])
            times.insert(0, count)
            areas, node = pairs
        return cls(tuple(shape), tuple(parent), tuple(times))

    @property
    def number(self) -> int:
        """Return the number of areas."""
        return int(self.parent[0].max()) + 1 if len(self.shape) == 1 else len(self.shape[0])


@dataclass(frozen=True, eq=False)
class _Upward:
    """The covariances of areas, and the matrices of the pass from leaves to root that gives them."""

    own: Parts
    pulled: Parts
    covariance: Reals


def _up(v: Parts, a: Parts, areas: Areas) -> _Upward:
    depth, size = len(v), v[0].shape[-1]
    own: Parts = [np.zeros(0)] * depth
    pulled: Parts = [np.zeros(0)] * (depth - 1)
    h = np.broadcast_to(np.eye(size), (len(areas.shape[-1]), v[0].shape[1], size, size))
    within = np.zeros_like(h)
    for level in range(depth - 1, 0, -1):
        own[level] = h
        moved = v[level][areas.shape[level]] @ h
        parents = len(areas.shape[level - 1])
        times = areas.times[level]
        spread = _summed_by_parent(h.swapaxes(-1, -2) @ moved + within, areas.parent[level], times, parents)
        m = pulled[level - 1] = _summed_by_parent(moved, areas.parent[level], times, parents)
        h = a[level - 1][areas.shape[level - 1]] @ m
        within = spread - m.swapaxes(-1, -2) @ h
    own[0] = h
    at_root = h.swapaxes(-1, -2) @ v[0][areas.shape[0]] @ h + within
    return _Upward(own, pulled, _summed_by_parent(at_root, areas.parent[0], areas.times[0], areas.number))


def _summed_by_parent(x: Reals, parent: Indices, times: Indices, parents: int) -> Reals:
    found = np.zeros((parents, *x.shape[1:]))
    np.add.at(found, parent, x * times.reshape(-1, *(1,) * (x.ndim - 1)))
    return found


def area_variances(model: ErrorVariances, swept: Swept, areas: Areas, forms: Sequence[Parts]) -> Reals:
    """Return the variance (areas, forms) of functionals of every area."""
    total = np.zeros((areas.number, len(forms)))
    for i in range(len(model.stacks)):
        covariance = _up(swept.subtree[i], swept.inverse[i], areas).covariance
        flat = np.stack([form[i].ravel() for form in forms], axis=1)
        total += covariance.reshape(len(total), -1) @ flat
    return total


def area_slopes(
    model: ErrorVariances, swept: Swept, areas: Areas, wanted: Sequence[tuple[Parts, Reals]]
) -> Reals:
    """Return minus the derivatives (j, k) of j weighted sums of area variances with respect to the k precisions."""
    slopes = np.zeros((len(wanted), len(model.tables)))
    for i in range(len(model.stacks)):
        v, a = swept.subtree[i], swept.inverse[i]
        up = _up(v, a, areas)
        back = [_down(v, a, areas, up, form[i], weight) for form, weight in wanted]
        back_v = [np.stack(level, axis=-1) for level in zip(*(b for b, _ in back))]
        back_a = [np.stack(level, axis=-1) for level in zip(*(b for _, b in back))]
        slopes += model.to_tables(i, model.down(v, a, back_v, back_a))
    return slopes


def _down(v: Parts, a: Parts, areas: Areas, up: _Upward, form: Reals, weight: Reals) -> tuple[Parts, Parts]:
    """Return the derivatives of a weighted sum of area variances with respect to the matrices `v` and `a`."""
    back_v, back_a = [np.zeros_like(x) for x in v], [np.zeros_like(x) for x in a]
    g = weight[areas.parent[0]].reshape(-1, 1, 1, 1) * form
    h = up.own[0]
    np.add.at(back_v[0], areas.shape[0], _scaled(h @ g @ h.swapaxes(-1, -2), areas.times[0]))
    w = 2 * v[0][areas.shape[0]] @ h @ g
    for level in range(1, len(v)):
        m, inverse = up.pulled[level - 1], a[level - 1][areas.shape[level - 1]]
        y = inverse @ (w - 2 * m @ g)
        own_a = _symmetric(w @ m.swapaxes(-1, -2)) - m @ g @ m.swapaxes(-1, -2)
        np.add.at(back_a[level - 1], areas.shape[level - 1], own_a)
        g, y = g[areas.parent[level]], y[areas.parent[level]]
        h, covariance = up.own[level], v[level][areas.shape[level]]
        own_v = h @ g @ h.swapaxes(-1, -2) + _symmetric(y @ h.swapaxes(-1, -2))
        np.add.at(back_v[level], areas.shape[level], _scaled(own_v, areas.times[level]))
        w = 2 * covariance @ h @ g + covariance @ y
    return back_v, back_a


def _scaled(x: Reals, times: Indices) -> Reals:
    return x * times.reshape(-1, *(1,) * (x.ndim - 1))


def _symmetric(x: Reals) -> Reals:
    return (x + x.swapaxes(-1, -2)) / 2
