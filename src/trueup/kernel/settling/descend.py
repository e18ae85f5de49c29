"""Nonnegative whole-number histograms on a tree, made from the top down, coarse marginals first.

Given a settled parent, its children's estimates from their subtrees become `t_c = z_c + V_c U^+ (x_p - s)`. They are
settled along a sequence of nested marginals (the total, ..., every cell): for each of them the nearest
nonnegative tables in the metric of the estimates' covariance, given the parent and the coarser marginal, are found
(`kernel.nearest`) and, if whole numbers are asked for, rounded with all these sums kept (`kernel.transport`).

The settled children of a parent depend only on the parent's table, the children's estimates and keys, so
levels may be settled in pieces and trees in segments.

Settling the total before the cells matters: nonnegativity biases small cells upwards, and a total that is the sum of
such cells is biased with them.

One file: a level is settled by stages, again without its margins where these fail, or at posterior means, and all three
return one kind of result to the loop over levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trueup.kernel import largest
from trueup.kernel.histogram import Marginal, cell_groups, marginalise, refines, relative, spread
from trueup.kernel.histogram.helmert import sum_rows
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.kernel.histogram.spine import Lower
from trueup.kernel.settling.nearest import TOLERANCE, Metric, tolerance_for
from trueup.kernel.settling.posterior_mean import posterior_means
from trueup.kernel.settling.refine import (
    Coarse,
    SettlingStage,
    drawn_cells,
    drawn_columns,
    drawn_parts,
    settle_marginals,
    total_of,
)
from trueup.kernel.settling.transport import mixed_keys

PIECE = 100_000  # cells that are settled together
SLACK = 1e-3  # variance (counts squared) that a cell at its posterior mean has at least when sums are kept


def settling_sequence(
    marginals: Sequence[Marginal], detailed: Marginal, exact: Sequence[Marginal] = ()
) -> list[Marginal]:
    """Return nested marginals from the coarsest to the detailed table, in the order in which their tables are made.

    A marginal that is not nested with those already chosen is left out: its answers follow from the others'.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, shape, summed
    >>> total, rows, columns = (summed(2), summed(3)), (identity(2), summed(3)), (summed(2), identity(3))
    >>> [shape(m) for m in settling_sequence([columns, total, rows], (identity(2), identity(3)))]
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
class SettledTables:
    """Nonnegative whole-number histograms (nodes, n) by level, with figures on how they were made.

    `residual` is the largest optimality residual of a projection (counts); `misplaced` the units for which rounding
    found no place (0: every sum is exact); `relaxed` the parents whose coarse marginals could not be settled first;
    `iterations` the most that a level and stage needed.
    """

    values: tuple[np.ndarray, ...]
    residual: float
    misplaced: int
    relaxed: int
    iterations: int


@dataclass(frozen=True)
class Settling:
    """Options for making tables nonnegative and whole.

    Attributes
    ----------
    nonnegative : keep counts from falling below zero
    integer : also round, every stage of the chain within its sums
    tolerance : tolerance of the projections (counts)
    posterior : below the root, settle at the posterior means of `kernel.settling.posterior_mean`, if no count is below
        zero; parents for which that fails as without it
    first : marginals of a root that has no fixed tables, nested or not, which are settled before its cells
        are held at zero (see `settle_marginals`); tables that are whole keep those of the chain exactly, others nearly
    drawn : draw whole tables in place of posterior means; see `kernel.settling.refine`
    leaves : mask of the last level's nodes; of other nodes those alone are settled that they depend on, and the rest is zero
    """

    nonnegative: bool = True
    integer: bool = True
    tolerance: float = TOLERANCE
    posterior: bool = False
    first: Sequence[Marginal] = ()
    drawn: np.random.Generator | None = None
    leaves: np.ndarray | None = None


def settle(
    tree: HistogramLeastSquares,
    estimates: Sequence[np.ndarray],
    chains: Sequence[Sequence[Marginal]],
    how: Settling = Settling(),
    *,
    required: Sequence[Sequence[Marginal]] = (),
    zeros: Sequence[np.ndarray] | None = None,
    keys: Sequence[np.ndarray] = (),
    above: np.ndarray | None = None,
    bounds: tuple[Sequence[Lower], Sequence[Lower]] = ((), ()),
    fixed: tuple[Marginal, Sequence[np.ndarray]] | None = None,
) -> SettledTables:
    """Make the tables of every level nonnegative and whole, given those of the level above.

    Parameters
    ----------
    tree : prepared tree
    estimates : per level (nodes, n), from the subtrees or from everything: given the parent they say the same
    chains : per level, nested marginals from the coarsest to the detailed histogram, the level's exact ones
        among them
    how : see `Settling`
    required : per level, the shorter chain (exact marginals, detailed histogram) for parents under which zeros
        make the longer one impossible
    zeros : per level, (nodes, n) True where a cell is zero by definition
    keys : per level (nodes,) uint64, which settle ties of rounding (see `node_keys`); without them the lowest
        index goes up
    above : (roots, n) the roots' tables, if these are settled already
    bounds : closed lower bounds per level whose marginals are in the chains (see `kernel.histogram.spine`), and the
        same of upper bounds, as lower bounds on minus the counts; parents whose posterior means lead to tables beyond these
        are settled as without `posterior`
    fixed : a marginal whose tables are settled already, and these (nodes, groups) for every level or for the first ones:
        they are kept, what is settled is what the marginals of the chains that refine it say beyond them, and estimates
        are taken given them

    Examples
    --------
    >>> from trueup.kernel.histogram.anova import Domain
    >>> from trueup.kernel.histogram import identity, summed
    >>> from trueup.kernel.histogram.spine import Spine
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> spine = Spine(np.array([1, 3, 3, 3]))
    >>> plan = [[(total, 1.0)], [(detailed, 1.0)]]
    >>> tree = HistogramLeastSquares.prepare(Domain.of([total, detailed]), spine, plan)
    >>> fit = tree.fit([[np.array([[8.0]])], [np.array([[6.0, -1.0], [3.0, 0.0]])]])
    >>> settle(tree, fit.subtree, [[total, detailed]] * 2).values
    (array([[8, 0]]), array([[5, 0],
           [3, 0]]))
    """
    lower, upper = bounds
    results = [] if above is None else [_Result.given(above)]
    wanted = None if how.leaves is None else tree.spine.above(how.leaves)
    for level in range(len(results), tree.spine.depth):
        parents = None if level == 0 else results[-1].x[tree.spine.inner[level - 1]].astype(float)
        known = None if fixed is None or level >= len(fixed[1]) else (fixed[0], fixed[1][level])
        stage = _Level.of(
            tree,
            estimates[level],
            level,
            parents,
            keys[level] if keys else None,
            lower[level] if lower else None,
            upper[level] if upper else None,
            known,
        )
        if parents is None and how.first and how.nonnegative and known is None and how.drawn is None:
            stage = stage.from_marginals(how.first, zeros[level] if zeros else None, how.tolerance)
        mask = None if zeros is None or not zeros[level].any() else zeros[level]
        rows = np.arange(stage.metric.rows)
        if wanted is not None and level:
            stage, rows = stage.of_parents(np.flatnonzero(wanted[level - 1]))
            mask = None if mask is None else mask[rows]
        chain, short = chains[level], required[level] if required else [chains[level][-1]]
        if known is not None:
            chain, short = finer_than(known[0], chain), finer_than(known[0], short)
            if not chain:  # nothing is left to settle
                x = spread(known[1], known[0])
                results.append(_Result.given(np.rint(x).astype(np.int64) if how.integer else x))
                continue
        pieces = [
            _with_fallback(stage.of_parents(some)[0], chain, short, how, None if mask is None else mask[part])
            for some, part in stage.pieces()
        ]
        results.append(_Result.joined(pieces).at(rows, tree.spine.size(level)))
    return SettledTables(
        tuple(r.x for r in results),
        largest(r.residual.max() for r in results),
        sum(int(r.misplaced.sum()) for r in results),
        sum(r.relaxed for r in results),
        max(r.iterations for r in results),
    )


def finer_than(fixed: Marginal, chain: Sequence[Marginal]) -> list[Marginal]:
    """Return those marginals of a chain that are finer than a marginal whose tables are known."""
    return [m for m in chain if refines(m, fixed) and not refines(fixed, m)]


def node_keys(seeds: np.ndarray, level: int, nodes: np.ndarray) -> np.ndarray:
    """Return keys (seeds * nodes,) that break ties by a node's identity instead of its position.

    Examples
    --------
    >>> seeds = np.array([5, 7], np.uint64)
    >>> bool(node_keys(seeds, 1, np.arange(3))[4] == node_keys(seeds[1:], 1, np.array([1]))[0])
    True
    """
    return mixed_keys(mixed_keys(seeds, np.array([level]))[:, None], nodes[None]).ravel()


@dataclass(frozen=True)
class _Result:
    x: np.ndarray
    residual: np.ndarray  # (parents,)
    misplaced: np.ndarray  # (parents,)
    iterations: int
    relaxed: int = 0

    @classmethod
    def given(cls, x: np.ndarray) -> _Result:
        """Return the result of a level whose tables are known."""
        return cls(x, np.zeros(1), np.zeros(1, np.int64), 0)

    @classmethod
    def joined(cls, parts: Sequence[_Result]) -> _Result:
        """Return the results of successive runs of parents as one result of the level."""
        x, residual, misplaced = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("x", "residual", "misplaced")
        )
        return cls(x, residual, misplaced, max(p.iterations for p in parts), sum(p.relaxed for p in parts))

    def at(self, rows: np.ndarray, size: int) -> _Result:
        """Return the result with its tables in the given rows of a larger array, and zeros elsewhere."""
        if rows.size == size:
            return self
        x = np.zeros((size, self.x.shape[1]), self.x.dtype)
        x[rows] = self.x
        return replace(self, x=x)


def _with_fallback(
    stage: _Level,
    chain: Sequence[Marginal],
    short: Sequence[Marginal],
    how: Settling,
    zeros: np.ndarray | None,
) -> _Result:
    """Return a level's tables, which are made along other chains for parents where the first way fails."""
    known = not any(v.any() for v in stage.metric.variances)  # then nothing is left to infer
    if how.posterior and how.nonnegative and stage.parents is not None and not known:
        result = stage.settle_at_means(chain if how.integer else short, how, zeros)
        return _again(stage, result, how, zeros, chain, short)
    result = stage.settle(chain, how, zeros)
    return result if len(short) == len(chain) else _again(stage, result, how, zeros, short)


def _again(
    stage: _Level, result: _Result, how: Settling, zeros: np.ndarray | None, *chains: Sequence[Marginal]
) -> _Result:
    """Return the result after the tables of failed parents are made again along other chains in turn."""
    failed = ~(result.residual <= tolerance_for(stage.target, how.tolerance)) | (result.misplaced > 0)
    if not failed.any() or not chains:
        return result
    part, rows = stage.of_parents(np.flatnonzero(failed))
    mask = None if zeros is None else zeros[rows]
    again = _again(part, part.settle(chains[0], how, mask), how, mask, *chains[1:])
    result.x[rows] = again.x
    result.residual[failed], result.misplaced[failed] = again.residual, again.misplaced
    iterations = max(result.iterations, again.iterations)
    return _Result(result.x, result.residual, result.misplaced, iterations, int(failed.sum()))


@dataclass(frozen=True)
class _Level:
    """One level of a tree below parents with known tables: estimates, their metric and bounds."""

    metric: Metric
    estimates: np.ndarray  # (nodes, n)
    parents: np.ndarray | None  # (parents, n); None at the root
    keys: np.ndarray | None  # (nodes,) for ties
    lower: Lower | None
    upper: Lower | None = None
    fixed: tuple[Marginal, np.ndarray] | None = None  # a marginal that is settled already, and its tables

    @classmethod
    def of(
        cls,
        tree: HistogramLeastSquares,
        estimates: np.ndarray,
        level: int,
        parents: np.ndarray | None,
        keys: np.ndarray | None,
        lower: Lower | None,
        upper: Lower | None = None,
        fixed: tuple[Marginal, np.ndarray] | None = None,
    ) -> _Level:
        variances = tuple(f.variance for f in tree.filters[level])
        size = tree.spine.size(level)
        first = np.arange(size) if level == 0 else tree.spine.firsts[level - 1]
        metric = Metric(tree.domain, variances, first, size, level > 0)
        return cls(metric, estimates, parents, keys, lower, upper, fixed)

    def pieces(self) -> Iterator[tuple[np.ndarray, slice]]:
        """Yield runs of parents whose children have few cells in all, with the rows of the children."""
        last = np.append(self.metric.first, self.metric.rows)
        cells = last * self.estimates.shape[1]
        start = 0
        while start < last.size - 1:
            stop = max(int(np.searchsorted(cells, cells[start] + PIECE, "right")) - 1, start + 1)
            yield np.arange(start, stop), slice(last[start], last[stop])
            start = stop

    def of_parents(self, keep: np.ndarray) -> tuple[_Level, np.ndarray]:
        """Return the level below some of its parents only, and the rows of these parents' children."""
        metric, rows = self.metric.of_parents(keep)
        parents = None if self.parents is None else self.parents[keep]
        keys = None if self.keys is None else self.keys[rows]
        lower = None if self.lower is None else self.lower.at(rows)
        upper = None if self.upper is None else self.upper.at(rows)
        fixed = None if self.fixed is None else (self.fixed[0], self.fixed[1][rows])
        return _Level(metric, self.estimates[rows], parents, keys, lower, upper, fixed), rows

    def from_marginals(
        self, marginals: Sequence[Marginal], zeros: np.ndarray | None, tolerance: float
    ) -> _Level:
        """Return the level with nonnegative estimates wherever they can be found."""
        x, residual, _ = settle_marginals(self.metric, self.estimates, marginals, zeros, tolerance)
        found = residual <= tolerance_for(self.estimates, tolerance)
        return replace(self, estimates=np.where(found[:, None], x, self.estimates))

    @cached_property
    def target(self) -> np.ndarray:
        """Return the least-squares tables (nodes, n) that add up to the parents' tables."""
        return self.estimates if self.parents is None else self.metric.tie(self.estimates, self.parents)

    def settle(self, chain: Sequence[Marginal], how: Settling, zeros: np.ndarray | None) -> _Result:
        """Fit or draw the tables of a chain of nested marginals, each given the marginals before it."""
        parents = np.zeros(self.metric.counts.size, np.int64)
        worst, misplaced, iterations = np.zeros(parents.size), parents, 0
        coarse, x = self.fixed, np.zeros(0)
        for marginal in chain:
            mask = None if zeros is None else marginalise(~zeros, marginal) == 0
            stage = self._stage(marginal, coarse and Coarse.of(marginal, *coarse), mask)
            if (limit := self._most(marginal)) is not None:
                stage = replace(stage, most=limit)
            least = None if self.lower is None else self.lower.of(marginal)
            if least is not None:
                stage = stage.above(least)
            x, residual, steps = stage.tables, parents, 0
            if how.drawn is not None and self.parents is None:
                x = drawn_parts(stage.metric, stage.tables, stage.coarse, stage.held, how.drawn)
            elif how.nonnegative:
                x, residual, steps = stage.nearest(how.tolerance)
            if how.integer:
                x, missing = stage.rounded(x)
                misplaced = misplaced + missing
            if least is not None:
                x = x + least
            coarse = (marginal, x)
            worst, iterations = np.maximum(worst, residual), max(iterations, steps)
        return _Result(x, self._within(chain[-1], x, worst), misplaced, iterations)

    def settle_at_means(self, chain: Sequence[Marginal], how: Settling, zeros: np.ndarray | None) -> _Result:
        """Return whole tables that are made from posterior means, marginal by marginal."""
        assert self.parents is not None
        metric, target = self._given()
        means, variances, found, spreads = posterior_means(metric, target, self.parents)
        totals = None
        if how.drawn is not None:
            means, variances, totals = self._draws(means, variances, found, spreads, how.drawn)
            found = np.nan_to_num(found)
            if self.fixed is None:
                chain = [total_of(chain[-1]), *(m for m in chain if cell_groups(m).any())]
        open_ = np.repeat(self.parents > 0, self.metric.counts, axis=0)
        worst, misplaced = np.where(np.isnan(found[:, 0]), np.inf, 0.0), np.zeros(len(found), np.int64)
        if zeros is not None:  # covariances are those of cells of which the parent has some
            worst[np.logical_or.reduceat((zeros & open_).any(axis=1), self.metric.first)] = np.inf
        variances = np.where(open_, variances + SLACK, 0.0)
        coarse, x = self.fixed, means
        for marginal in chain:
            groups = cell_groups(marginal)
            size = int(groups.max()) + 1
            within = coarse and Coarse.of(marginal, *coarse)
            sums = marginalise(self.parents, marginal)
            tables, spread = sum_rows(means, groups, size), sum_rows(variances, groups, size)
            if metric.knows(marginal):
                tables = sum_rows(target, groups, size)
            elif totals is not None and size == 1:
                tables, spread = totals
            stage = SettlingStage(self.metric, tables, sums, within, None, self.keys)
            least = None if self.lower is None else self.lower.of(marginal)
            if least is not None:
                stage = stage.above(least)
            x, residual = stage.tied(spread)
            if how.integer:
                x, missing = stage.rounded(x)
                misplaced = misplaced + missing
            if least is not None:
                x = x + least
            coarse, worst = (marginal, x), np.maximum(worst, residual)
        return _Result(x, self._within(chain[-1], x, worst), misplaced, 0)

    def _most(self, marginal: Marginal) -> np.ndarray | None:
        """Return upper bounds (nodes, cells) on a marginal's table, or None if there are none."""
        negative = None if self.upper is None else self.upper.of(marginal)
        return None if negative is None else -negative

    def _within(self, finest: Marginal, x: np.ndarray, worst: np.ndarray) -> np.ndarray:
        """Return every parent's residual, or infinity if a child's table exceeds an upper bound."""
        if self.upper is None:
            return worst
        for marginal in self.upper.marginals:
            limit = self._most(marginal)
            assert limit is not None
            over = (marginalise(x, relative(finest, marginal)) > limit + TOLERANCE).any(axis=1)
            worst = np.where(np.logical_or.reduceat(over, self.metric.first), np.inf, worst)
        return worst

    def _draws(
        self,
        means: np.ndarray,
        variances: np.ndarray,
        found: np.ndarray,
        spreads: np.ndarray,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Return draws of the cells and of the tables' totals, with variances for fitting them."""
        draws = drawn_cells(means, variances, rng)
        totals = drawn_cells(means.sum(axis=1), spreads, rng)
        if (failed := np.isnan(found[:, 0])).any():
            without, rows = self.of_parents(np.flatnonzero(failed))
            assert without.parents is not None
            draws[rows] = drawn_columns(*without._given(), without.parents, rng)
            totals[rows], spreads[rows], variances[rows] = draws[rows].sum(axis=1), 1.0, 1.0
        return draws, variances, (totals[:, None], spreads[:, None] + SLACK)

    def _given(self) -> tuple[Metric, np.ndarray]:
        """Return metric and least-squares tables, given parents' tables and known tables of a marginal."""
        if self.fixed is None or self.parents is None:
            return self.metric, self.target
        metric, tables = Coarse(*self.fixed).given(self.metric, self.target)
        return metric, metric.tie(tables, self.parents)

    def _stage(self, marginal: Marginal, coarse: Coarse | None, zeros: np.ndarray | None) -> SettlingStage:
        """Return the task of making one marginal's tables, given the coarser marginal and the parents."""
        metric, tables = self.metric.coarsened(marginal, self.target)
        if coarse is not None:
            metric, tables = coarse.given(metric, tables)
        sums = None if self.parents is None else marginalise(self.parents, marginal)
        if sums is not None:
            tables = metric.tie(tables, sums)
        return SettlingStage(metric, tables, sums, coarse, zeros, self.keys)
