"""Nonnegative, then whole, histograms on a tree: one parent at a time from the top, coarse marginals first.

Given a settled parent, its children's least-squares estimates are `t_c = x_c + V_c U^+ (x_p - x_v)`. They are
settled along a chain of nested marginals (the total, ..., every cell): for each marginal of the chain the nearest
nonnegative tables in the metric of the estimates' covariance, given the parent and the coarser marginal, are found
(`kernel.nearest`) and, if whole numbers are asked for, rounded with all these sums kept (`kernel.transport`).

Settling the total before the cells matters: nonnegativity pushes small cells up, and a total that follows its cells
is pushed up with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trueup.kernel.anova import Component, Domain, Marginal, cell_groups, marginalise, refines, relative
from trueup.kernel.histogram import Estimates, HistogramTree, condition
from trueup.kernel.nearest import TOLERANCE, Metric, nearest_nonnegative
from trueup.kernel.transport import hashed, nudges, round_children


def chain(
    marginals: Sequence[Marginal], detailed: Marginal, exact: Sequence[Marginal] = ()
) -> list[Marginal]:
    """Nested marginals to settle, coarsest first: the exact ones, what fits between them, the detailed one.

    A marginal that is not nested with those already chosen is left out: its answers follow from the others'.

    Examples
    --------
    >>> from trueup.kernel.anova import identity, shape, summed
    >>> total, rows, columns = (summed(2), summed(3)), (identity(2), summed(3)), (summed(2), identity(3))
    >>> [shape(m) for m in chain([columns, total, rows], (identity(2), identity(3)))]
    [(1, 1), (2, 1), (2, 3)]
    """
    chosen: list[Marginal] = []
    by_size = sorted(marginals, key=lambda m: np.prod([g.max() + 1 for g in m]))
    for marginal in [*exact, *by_size, detailed]:
        nested = all(refines(marginal, other) or refines(other, marginal) for other in chosen)
        equal = any(refines(marginal, other) and refines(other, marginal) for other in chosen)
        if nested and not equal:
            chosen.append(marginal)
    return sorted(chosen, key=lambda m: np.prod([g.max() + 1 for g in m]))


@dataclass(frozen=True)
class Settled:
    """Histograms (nodes, n) per level and what it took.

    `residual` is the largest optimality residual of a projection (counts); `misplaced` the units for which rounding
    found no place (0: every sum is exact); `relaxed` the parents whose coarse marginals could not be settled first;
    `iterations` the most that a level and stage needed.
    """

    values: tuple[np.ndarray, ...]
    residual: float
    misplaced: int
    relaxed: int
    iterations: int


def settle(
    tree: HistogramTree,
    fit: Estimates,
    chains: Sequence[Sequence[Marginal]],
    *,
    required: Sequence[Sequence[Marginal]] = (),
    nonnegative: bool = True,
    integer: bool = True,
    zeros: Sequence[np.ndarray] | None = None,
    tolerance: float = TOLERANCE,
    seeds: np.ndarray | None = None,
) -> Settled:
    """Settle every level below its parents.

    Parameters
    ----------
    tree, fit : prepared tree and its least-squares estimates
    chains : per level, nested marginals from the coarsest to the detailed histogram, the level's exact ones
        among them
    required : per level, the shorter chain (exact marginals, detailed histogram) for parents under which zeros
        make the longer one impossible
    nonnegative : keep counts from falling below zero
    integer : also round, every stage of the chain within its sums
    zeros : per level, (nodes, n) True where a cell is zero by definition
    tolerance : of the projections, counts
    seeds : one uint64 a root, which settle ties of rounding; without them the lowest index goes up

    Examples
    --------
    >>> from trueup.kernel.anova import identity, summed
    >>> from trueup.kernel.spine import Spine
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> plan = [[(total, 1.0)], [(detailed, 1.0)]]
    >>> tree = HistogramTree.prepare(Domain.of([total, detailed]), spine, plan)
    >>> fit = tree.fit([[np.array([[8.0]])], [np.array([[6.0, -1.0], [3.0, 0.0]])]])
    >>> settle(tree, fit, [[total, detailed]] * 2).values
    (array([[8, 0]]), array([[5, 0],
           [3, 0]]))
    """
    results: list[_Result] = []
    for level in range(tree.spine.depth):
        stage = _Level.of(tree, fit, level, results[-1].x if results else None, seeds)
        mask = None if zeros is None or not zeros[level].any() else zeros[level]
        short = required[level] if required else [chains[level][-1]]
        how = _How(nonnegative, integer, tolerance)
        results.append(_with_fallback(stage, chains[level], short, how, mask))
    return Settled(
        tuple(r.x for r in results),
        max(float(r.residual.max()) for r in results),
        sum(int(r.misplaced.sum()) for r in results),
        sum(r.relaxed for r in results),
        max(r.iterations for r in results),
    )


@dataclass(frozen=True)
class _How:
    nonnegative: bool
    integer: bool
    tolerance: float


@dataclass(frozen=True)
class _Result:
    x: np.ndarray
    residual: np.ndarray  # (parents,)
    misplaced: np.ndarray  # (parents,)
    iterations: int
    relaxed: int = 0


def _with_fallback(
    stage: _Level, chain: Sequence[Marginal], short: Sequence[Marginal], how: _How, zeros: np.ndarray | None
) -> _Result:
    """Settle along the chain; parents under which that is impossible along the short one."""
    result = stage.settle(chain, how, zeros)
    failed = (result.residual > how.tolerance) | (result.misplaced > 0)
    if not failed.any() or len(short) == len(chain):
        return result
    part, rows = stage.of_parents(failed)
    again = part.settle(short, how, None if zeros is None else zeros[rows])
    result.x[rows] = again.x
    result.residual[failed], result.misplaced[failed] = again.residual, again.misplaced
    iterations = max(result.iterations, again.iterations)
    return _Result(result.x, result.residual, result.misplaced, iterations, int(failed.sum()))


@dataclass(frozen=True)
class _Level:
    """One level below its settled parents: what is to be settled, and in which metric."""

    metric: Metric
    target: np.ndarray  # (nodes, n) least squares given the settled parents
    parents: np.ndarray | None  # (parents, n); None at the root
    keys: np.ndarray | None  # (nodes,) for ties

    @classmethod
    def of(
        cls,
        tree: HistogramTree,
        fit: Estimates,
        level: int,
        above: np.ndarray | None,
        seeds: np.ndarray | None,
    ) -> _Level:
        variances = tuple(f.variance for f in tree.filters[level])
        size, keys = tree.spine.size(level), None
        if seeds is not None:
            node = np.arange(size // seeds.size)
            keys = hashed(hashed(seeds, np.array([level]))[:, None], node[None]).ravel()
        if above is None:
            metric = Metric(tree.domain, variances, np.arange(size), size, tied=False)
            return cls(metric, fit.values[0], None, keys)
        first, inner = tree.spine.firsts[level - 1], tree.spine.inner[level - 1]
        metric = Metric(tree.domain, variances, first, size)
        parents = above[inner].astype(float)
        return cls(metric, metric.tie(fit.values[level], parents), parents, keys)

    def of_parents(self, keep: np.ndarray) -> tuple[_Level, np.ndarray]:
        """The same for some of the parents only, and which nodes these are."""
        rows = np.flatnonzero(np.repeat(keep, self.metric.counts))
        parents = None if self.parents is None else self.parents[keep]
        keys = None if self.keys is None else self.keys[rows]
        return _Level(self.metric.of_parents(keep), self.target[rows], parents, keys), rows

    def settle(self, chain: Sequence[Marginal], how: _How, zeros: np.ndarray | None) -> _Result:
        """Walk down the chain."""
        worst, misplaced, iterations, coarse, x = np.zeros(1), np.zeros(1, np.int64), 0, None, np.zeros(0)
        for marginal in chain:
            mask = None if zeros is None else marginalise(~zeros, marginal) == 0
            metric, x = self._stage(marginal, coarse)
            residual, steps = np.zeros(1), 0
            if how.nonnegative:
                x, residual, steps = nearest_nonnegative(metric, x, mask, how.tolerance)
                x = np.maximum(x, 0.0) if mask is None else np.where(mask, 0.0, np.maximum(x, 0.0))
            if how.integer:
                x, missing = self._round(x, marginal, coarse, mask)
                misplaced = misplaced + missing
            coarse = (marginal, x)
            worst, iterations = np.maximum(worst, residual), max(iterations, steps)
        parents = np.zeros(self.metric.counts.size, np.int64)
        return _Result(x, worst + parents, misplaced + parents, iterations)

    def _stage(
        self, marginal: Marginal, coarse: tuple[Marginal, np.ndarray] | None
    ) -> tuple[Metric, np.ndarray]:
        """The marginal's tables and metric, given the coarser marginal and the parents."""
        domain = self.metric.domain.coarsened(marginal)
        variances = tuple(self._marginal_variance(marginal, c) for c in domain.components)
        tables = marginalise(self.target, marginal)
        if coarse is not None:
            variances, tables = _given(domain, variances, tables, relative(marginal, coarse[0]), coarse[1])
        metric = Metric(domain, variances, self.metric.first, self.metric.rows, self.metric.tied)
        if self.parents is not None:
            tables = metric.tie(tables, marginalise(self.parents, marginal))
        return metric, tables

    def _marginal_variance(self, marginal: Marginal, component: Component) -> np.ndarray:
        """Covariance of a marginal's component: `M V M'` on the same contrasts."""
        components = self.metric.domain.components
        fine = next(i for i, c in enumerate(components) if c.contrast == component.contrast)
        matrix = self.metric.domain.matrix(marginal, components[fine])
        return matrix @ self.metric.variances[fine] @ matrix.T

    def _round(self, x: np.ndarray, marginal: Marginal, coarse: tuple[Marginal, np.ndarray] | None, mask):
        first = np.append(self.metric.first, self.metric.rows)
        sums = None if self.parents is None else np.rint(marginalise(self.parents, marginal))
        more = {
            "column_sums": sums,
            "allowed": None if mask is None else ~mask,
            "nudge": None if self.keys is None else nudges(self.keys, x.shape[1]),
        }
        if coarse is None:
            return round_children(x, first, **more)
        family = cell_groups(relative(marginal, coarse[0]))
        return round_children(x, first, family=family, row_sums=coarse[1], **more)


def _given(
    domain: Domain, variances: tuple[np.ndarray, ...], tables: np.ndarray, coarse: Marginal, sums: np.ndarray
):
    """Condition tables and covariances on a coarser marginal of theirs."""
    coefficients, narrowed = domain.forward(tables), list(variances)
    for i, component in enumerate(domain.components):
        if domain.informs(coarse, component):
            rows = domain.matrix(coarse, component)
            gain, narrowed[i] = condition(variances[i], rows)
            part = component.view(coefficients)
            known = domain.of_table(sums.astype(float), coarse, component)
            part[...] = part + gain @ (known - rows @ part)
    return tuple(narrowed), domain.backward(coefficients)
