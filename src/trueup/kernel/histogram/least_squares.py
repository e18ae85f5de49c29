"""Weighted least squares for a histogram at every node of a tree, each level measured by its own marginals.

The unknowns are the leaves' histograms; a parent's is the sum of its children's. Level l answers marginals `A` as `y = M_A x +
noise` of variance sigma^2 per answer (0: exact, an invariant). In the basis of `anova.Domain` the problem falls apart into one
tree problem a component: the state of a node is a (dense, columns) matrix whose columns are independent and share one (dense,
dense) covariance, so the two-pass tree algorithm runs once a component on all nodes of a level and all columns together. For one
component, with `L = sum M'M / sigma^2` the information of a node's own measurements, `h = sum M'y / sigma^2` and `C x = e` its
exact ones,

    up     s = sum z_c,  U = sum V_c
           z1 = s + V1 (h - L s),      V1 = (1 + U L)^-1 U
           z  = z1 + K (e - C z1),     V  = V1 - K C V1,    K = V1 C' (C V1 C')^+
    down   x_root = z_root,            x_c = z_c + V_c U^+ (x_v - s).

A leaf has no children (U infinite): `V = Z (Z' L Z)^-1 Z'` with Z the null space of C, `K = (1 - V L) C^+`.
The covariance V of z depends on the variances only, so it is prepared once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal, cell_groups, spread
from trueup.kernel.histogram.anova import (
    Component,
    Domain,
    Filter,
    Measured,
    condition,
    exact_rows,
    information,
    leaf_filter,
    product,
    pseudo_inverse,
)
from trueup.kernel.histogram.helmert import add_spread
from trueup.kernel.histogram.spine import Spine


@dataclass(frozen=True)
class Estimates:
    """Least-squares estimates of a tree, by level (nodes, n): from each subtree, and from all measurements.

    `conflict` is the largest amount by which an exact answer is missed, with its level and node.
    """

    values: tuple[np.ndarray, ...]
    subtree: tuple[np.ndarray, ...]
    conflict: tuple[float, int, int]


@dataclass(frozen=True)
class HistogramLeastSquares:
    """Weighted least squares prepared for one domain, one tree and one plan of measurements.

    Parameters
    ----------
    domain : Domain that contains every measured marginal
    spine : the tree, or a forest
    plan : per level, the marginals measured there and their variances (counts squared)
    below : if the last level is a cut, covariances of its nodes' estimates from below it: per component (nodes, D, D)

    Raises
    ------
    SpecError
        If the measurements of a level that has leaves do not determine their histograms.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, summed
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> plan = [[(total, 0.0)], [(detailed, 1.0)]]
    >>> tree = HistogramLeastSquares.prepare(Domain.of([total, detailed]), spine, plan)
    >>> fit = tree.fit([[np.array([[8.0]])], [np.array([[1.0, 2.0], [3.0, 1.0]])]])
    >>> fit.values[1].sum().round(12), fit.values[1][0].round(12)
    (np.float64(8.0), array([1.25, 2.25]))
    """

    domain: Domain
    spine: Spine
    plan: tuple[tuple[Measured, ...], ...]
    filters: tuple[tuple[Filter, ...], ...]  # [level][component]

    @classmethod
    def prepare(
        cls,
        domain: Domain,
        spine: Spine,
        plan: Sequence[Sequence[Measured]],
        *,
        below: Sequence[np.ndarray] = (),
    ) -> HistogramLeastSquares:
        """Return the prepared least squares, with the covariances of every component at every level."""
        if not all(variance >= 0 for measured in plan for _, variance in measured):
            raise SpecError("a variance is negative or not a number", needed="0, a number above 0, or inf")
        filters: list[tuple[Filter, ...]] = [()] * spine.depth
        last = spine.depth - 1
        if below:
            filters[last] = tuple(map(_known, below))
        for level in range(last - bool(below), -1, -1):
            below_it = [f.variance for f in filters[level + 1]] if level < last else None
            known = below_it or [None] * len(domain.components)
            filters[level] = tuple(
                _filter(domain, spine, level, component, plan[level], variances)
                for component, variances in zip(domain.components, known, strict=True)
            )
        return cls(domain, spine, tuple(tuple(p) for p in plan), tuple(filters))

    @classmethod
    def given(
        cls, domain: Domain, spine: Spine, below: Sequence[Sequence[np.ndarray]]
    ) -> HistogramLeastSquares:
        """Return least squares for given covariances of subtrees' estimates, by level and component."""
        return cls(domain, spine, ((),) * spine.depth, tuple(tuple(map(_known, level)) for level in below))

    def tiled(self, copies: int) -> HistogramLeastSquares:
        """Return the least squares for several rows of answers at once."""
        filters = tuple(tuple(f.tiled(copies) for f in level) for level in self.filters)
        return HistogramLeastSquares(self.domain, self.spine.tiled(copies), self.plan, filters)

    def fit(self, answers: Sequence[Sequence[np.ndarray]]) -> Estimates:
        """Return estimates from the answers: per level and planned marginal, (nodes, cells of the marginal)."""
        z, conflict = self.up(answers)
        back = self.domain.backward
        return Estimates(tuple(map(back, self._down(z))), tuple(map(back, z)), conflict)

    def up(
        self, answers: Sequence[Sequence[np.ndarray]], below: np.ndarray | None = None
    ) -> tuple[list[np.ndarray], tuple[float, int, int]]:
        """Return by level the coefficients of subtrees' estimates, and the largest conflict of exact data.

        `below` are those of the last level if it is a cut; then `answers` end one level above it.
        """

        def measured(level: int) -> tuple[np.ndarray, list[np.ndarray]]:
            pair = self.plan[level], answers[level]
            exact = [self._exact(*pair, level, c) for c in self.domain.components]
            return self.domain.forward(self._information(*pair, level)), exact

        return self._up(measured, below)

    def _information(
        self, measured: Sequence[Measured], answers: Sequence[np.ndarray], level: int
    ) -> np.ndarray:
        h = np.zeros((self.spine.size(level), self.domain.cells))
        for (marginal, variance), y in zip(measured, answers, strict=True):
            if 0 < variance < np.inf:
                add_spread(np.asarray(y, float), cell_groups(marginal), variance, h)
        return h

    def _exact(
        self, measured: Sequence[Measured], answers: Sequence[np.ndarray], level: int, component: Component
    ) -> np.ndarray:
        parts = [
            self.domain.of_table(y, marginal, component)
            for (marginal, variance), y in zip(measured, answers, strict=True)
            if variance == 0 and self.domain.informs(marginal, component)
        ]
        return np.concatenate([np.zeros((self.spine.size(level), 0, component.columns)), *parts], axis=1)

    def solve(self, informed: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Return the least-squares covariance times `informed`, per level (nodes, n).

        These are the estimates that `informed = sum M'y / variance` would give, were the exact answers zero.
        """

        def measured(level: int) -> tuple[np.ndarray, list[np.ndarray]]:
            nodes = self.spine.size(level)
            pairs = zip(self.domain.components, self.filters[level], strict=True)
            exact = [np.zeros((nodes, f.rows.shape[0], c.columns)) for c, f in pairs]
            return self.domain.forward(informed[level]), exact

        z, _ = self._up(measured, None)
        return tuple(map(self.domain.backward, self._down(z)))

    def _up(
        self, measured: Callable[[int], tuple[np.ndarray, list[np.ndarray]]], below: np.ndarray | None
    ) -> tuple[list[np.ndarray], tuple[float, int, int]]:
        """Combine estimates from the leaves up, given the information and exact answers of the measurements."""
        last, conflict = self.spine.depth - 1, (0.0, 0, 0)
        z = [np.zeros(0)] * last + [np.zeros(0) if below is None else below]
        for level in range(last - (below is not None), -1, -1):
            h, exact = measured(level)
            s = np.zeros_like(h)
            if level < last:
                s[self.spine.inner[level]] = self.spine.sum_children(level, z[level + 1])
            z[level] = s
            for component, f, e in zip(self.domain.components, self.filters[level], exact, strict=True):
                part = component.view(s)
                part[...] = f.update(part, component.view(h), e)
                conflict = max(conflict, _miss(f, part, e, level))
        return z, conflict

    def _down(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Correct estimates from the root down: the change of each parent is divided among its children."""
        x = list(z[:1])
        for level in range(len(z) - 1):
            change = x[level][self.spine.inner[level]] - self.spine.sum_children(level, z[level + 1])
            following = z[level + 1].copy()
            pairs = zip(self.filters[level], self.filters[level + 1], strict=True)
            for component, (parent, child) in zip(self.domain.components, pairs, strict=True):
                price = product(parent.below, component.view(change))
                view = component.view(following)
                view += product(child.variance, self.spine.to_children(level, price))
            x.append(following)
        return x

    @cached_property
    def covariances(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Return the covariance (nodes, D, D) of the estimates per level and component.

        Going down, `P_c = V_c - V_c U^+ (U - P_v) U^+ V_c`: what the parent's estimate adds to the subtree's.
        """
        levels = [tuple(f.variance for f in self.filters[0])]
        for level in range(self.spine.depth - 1):
            parts = zip(levels[-1], self.filters[level], self.filters[level + 1], strict=True)
            levels.append(tuple(self._covariance(level, *part) for part in parts))
        return tuple(levels)

    def _covariance(self, level: int, above: np.ndarray, parent: Filter, child: Filter) -> np.ndarray:
        inner = self.spine.inner[level]
        known = above if above.shape[0] == 1 else above[inner]
        slack = parent.below - parent.below @ known @ parent.below  # U^+ (U - P_v) U^+
        v = child.variance
        return v - v @ self.spine.to_children(level, slack) @ v

    def margin_variances(self, levels: Sequence[int], marginal: Marginal) -> list[np.ndarray]:
        """Return the error variances (nodes, cells) of one marginal of the histograms at some levels."""
        cells = self.domain.forward(spread(np.eye(len(np.unique(cell_groups(marginal)))), marginal))
        parts = [component.view(cells) for component in self.domain.components]
        weights = [(part @ np.swapaxes(part, 1, 2)).reshape(len(cells), -1).T for part in parts]
        found = []
        for level in levels:
            pairs = zip(self.covariances[level], weights, strict=True)
            total = sum(c.reshape(len(c), -1) @ weight for c, weight in pairs)
            found.append(np.maximum(np.broadcast_to(total, (self.spine.size(level), len(cells))), 0.0))
        return found

    def variance(self, weights: Sequence[np.ndarray]) -> float:
        """Return the variance (counts squared) of the linear combination with `weights` per level (nodes, n).

        This is the variance of least-squares estimates, without the effects of nonnegativity and rounding.
        """
        response = self.solve(weights)
        return float(sum(np.vdot(w, r) for w, r in zip(weights, response, strict=True)))


def _filter(
    domain: Domain,
    spine: Spine,
    level: int,
    component: Component,
    measured: Sequence[Measured],
    below: np.ndarray | None,
) -> Filter:
    precision = information(domain, component, measured)
    rows = exact_rows(domain, component, measured)
    nodes = spine.size(level)
    if below is None or spine.inner[level].size == 0:
        v, gain = leaf_filter(precision, rows)
        empty = np.zeros((0, component.dense, component.dense))
        return Filter(precision, rows, v[None], gain[None], v[None], empty)
    total = spine.sum_children(level, below)
    updated = np.linalg.solve(np.eye(component.dense) + total @ precision, total)
    gain, variance = condition(updated, rows) if rows.size else (np.zeros((1, component.dense, 0)), updated)
    if spine.inner[level].size < nodes:
        v, k = leaf_filter(precision, rows)
        updated, gain, variance = (
            _scatter(part, leaf, spine.inner[level], nodes)
            for part, leaf in ((updated, v), (gain, k), (variance, v))
        )
    return Filter(precision, rows, updated, gain, variance, pseudo_inverse(total))


def _known(variance: np.ndarray) -> Filter:
    """Return the filter of nodes without own measurements, whose estimates have a given covariance."""
    nothing = np.zeros((0, variance.shape[-1], variance.shape[-1]))
    return Filter(nothing[:0], nothing[:0], variance, nothing, variance, nothing)


def _scatter(inner: np.ndarray, leaf: np.ndarray, where: np.ndarray, nodes: int) -> np.ndarray:
    """Return values of all nodes of a level: `inner` at the nodes `where`, and `leaf` at all others."""
    full = np.repeat(leaf[None], nodes, axis=0)
    full[where] = inner
    return full


def _miss(f: Filter, x: np.ndarray, e: np.ndarray, level: int) -> tuple[float, int, int]:
    if not f.rows.size or not e.size:
        return (0.0, level, 0)
    gap = np.abs(f.rows @ x - e).max(axis=(1, 2))
    return (float(gap.max()), level, int(gap.argmax()))
