"""Problems prepared for the column sampler, which updates one column of cells at all places together.

One file: all of it is derived from one problem, its cells and what was measured of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.kernel.histogram import cell_groups
from trueup.kernel.settling.descend import Settling
from trueup.kernel.settling.nearest import tolerance_for
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.table_walks.columns import ChainState, Directions, MeasuredTables, TreeMessages
from trueup.kernel.table_walks.gibbs_steps import STRENGTH, Alike
from trueup.kernel.table_walks.place_masses import NARROW, WIDE
from trueup.kernel.table_walks.weights import Places, weigh_parts
from trueup.layouts import without_upper
from trueup.layouts.histogram import MAX_PROJECTION_ERROR_COUNTS, histogram_problem
from trueup.layouts.prior_inputs import EVEN_SPLITS, PublicNumbers, total_given_bounds
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.noise import law_named

WINDOWS, SPANS = (8, NARROW), (16, WIDE)
"""Least and most steps of a place's window and of siblings' sums."""
COLUMNS_PER_PAIR = 4
"""Columns to a pair in a sweep, where no sum of cells is known better than these."""
STEPS_A_DEVIATION = 4.0
"""Steps to a standard deviation of the noise, at most, where it is wide."""
MIN_RELATIVE_VARIANCE = 0.1
"""Variance of the noise, of a mean count of a level, above which rates are moved there."""
MAX_CELLS_WITH_RATE_MOVES = 50_000
"""Cells up to which rates are moved: on larger problems few sweeps are made, and more is known of counts."""
SIGNS = 1, -1, -1, 1
"""Of the columns of a direction."""
MAX_SINGLE_PRECISION = 1 << 24
"""Whole numbers below which single precision holds."""
UNSTARTED = "no tables that keep everything exact were found to start from"
UNSTARTED_REMEDY = "use the method 'lattice-moves', or infer an area of its own"
UNMEASURED_VARIANCE = 10**8
"""Variance (counts squared) of what stands in, at the start of a chain alone, for finest cells that nobody measured."""


@dataclass(frozen=True, eq=False)
class MeasuredRow:
    """One replicate of measured values, with the constraints and the measured margins.

    Attributes
    ----------
    constraints, headers, values
        The constraints, and the measured values header by header.
    """

    constraints: Constraints
    headers: tuple[Measured, ...]
    values: tuple[NDArray, ...]

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.constraints.cells

    @property
    def columns(self) -> int:
        """Return the number of cells of one place, the columns of the matrix of places and cells."""
        return self.cells.n // self.cells.shape[0]


@dataclass(frozen=True, eq=False)
class ColumnProblem(MeasuredRow):
    """One replicate of measurements on a hierarchy of histograms, prepared for the column sampler.

    Attributes
    ----------
    message
        `(n, n)` precision and `(n,)` pull of a normal law of the root's table that is known besides.
    a
        Concentration of totals if it is given, else 0.
    public
        Public numbers that totals are split by.
    """

    message: tuple[NDArray, NDArray] | None = None
    a: float = 0.0
    public: PublicNumbers = EVEN_SPLITS

    @cached_property
    def places(self) -> Places:
        """Return the tree of places."""
        return self.public.places(self.cells.tree)

    @cached_property
    def open(self) -> NDArray[np.float64]:
        """Return an array `(columns,)` with 0 for structural zeros and 1 for other columns."""
        return 1.0 - self.constraints.zero_cells.reshape(self.cells.shape[0], -1)[0]

    @cached_property
    def alike(self) -> Alike:
        """Return the columns, except structural zeros, that have each value of each attribute."""
        shape = self.cells.shape[1:]
        grid = np.indices(shape).reshape(len(shape), -1)
        axes = [i for i, size in enumerate(shape) if size > 1]
        found = [grid[i] == k for i in axes for k in range(shape[i])] if len(axes) > 1 else []
        columns = [np.flatnonzero(one & (self.open > 0)) for one in found]
        ptr = np.append(0, np.cumsum([len(one) for one in columns]))
        return Alike(ptr.astype(np.int64), np.concatenate([np.zeros(0, np.int64), *columns]))

    @cached_property
    def _known(self) -> list[tuple[Margin, NDArray, Any, int]]:
        """Return the margin, values, form of the noise law, and side of every measurement and bound.

        The side is 0 for a measurement, 1 for a lower bound and -1 for an upper bound.
        """
        exact = (0.0, 0.0, 0.0)
        known = [
            (h.margin, np.asarray(v), exact if h.exact else tuple(h.law.form or exact), 0)
            for h, v in zip(self.headers, self.values, strict=True)
        ]
        for b in self.constraints.bounds:
            lower, upper = self.constraints.bound_values(b)
            if b.lower is not None:
                known.append((b.margin, np.maximum(lower, 0.0), exact, 1))
            if b.upper is not None:
                known.append((b.margin, upper, exact, -1))
        return known

    @cached_property
    def tables(self) -> MeasuredTables:
        """Return the measured tables as arrays for the compiled kernel of the column sampler."""
        group = [cell_groups(self.cells.marginal(m.attributes)) for m, *_ in self._known]
        sizes = np.array([g.max() + 1 for g in group], np.int64)
        slope, curve, reach = (np.array([f[i] for _, _, f, _ in self._known], float) for i in range(3))
        start = np.append(0, np.cumsum([len(v) for _, v, _, _ in self._known]))[:-1]
        n = self.columns
        message, pull = self.message or (np.zeros((0, 0)), np.zeros(0))
        return MeasuredTables(
            np.array([self.cells.tree.level(m.level) for m, *_ in self._known], np.int64),
            sizes,
            start.astype(np.int64),
            np.stack(group).astype(np.int64).reshape(-1, n),
            slope,
            curve,
            reach,
            np.array([bound for *_, bound in self._known], np.int64),
            np.ascontiguousarray(message, dtype=float),
            np.ascontiguousarray(pull, dtype=float),
            *self._prior_of_total,
        )

    @property
    def _prior_of_total(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.message is not None or len(self.public.log_share):
            return np.zeros(0), np.zeros(0)
        given = (self.a,) * (len(self.cells.tree.levels) - 1) if self.a else ()
        return total_given_bounds(self.constraints, self.headers, self.values, given)

    def moves(self, starts: Sequence[NDArray[np.integer[Any]]]) -> Directions:
        """Return the directions of moves within a place, with step sizes and windows that suit the noise.

        A step is at most a quarter of the deviation that noise leaves to a lowest place along its direction, and half of the
        largest total: no posterior is much wider than either.

        Parameters
        ----------
        starts
            Tables `(leaves, n)` where chains start.
        """
        scale = self._scales
        largest, total = (
            max(int(x.sum(axis=1).max()) for x in starts),
            max(x.sum(dtype=np.int64) for x in starts),
        )
        wide = (scale**2 > MIN_RELATIVE_VARIANCE * total / np.array(self.cells.tree.sizes)) & (
            self.cells.n <= MAX_CELLS_WITH_RATE_MOVES
        )
        window = int(np.clip(7 * scale[-1], *WINDOWS))
        span = np.clip(14 * scale, *SPANS).astype(np.int64)
        open_ = np.flatnonzero(self.open)
        pairs, squares = self._pairs(), self._squares()
        held = any(h.exact and self.cells.tree.level(h.margin.level) == len(scale) - 1 for h in self.headers)
        singles = (open_[:0] if held else open_)[:, None]
        exchanges = len(open_) if self._sums_are_narrow else -(-len(open_) // COLUMNS_PER_PAIR)
        turns = np.array([exchanges if len(pairs) else 0, len(open_) // 4 if len(squares) else 0])
        single, pair, square = (self._longest(columns, largest) for columns in (singles, pairs, squares))
        return Directions(
            singles,
            pairs,
            squares,
            single,
            pair,
            square,
            turns.astype(np.int64),
            window,
            span,
            np.where(wide, scale, 0.0),
        )

    def _longest(self, columns: NDArray[np.int64], largest: int) -> NDArray[np.float64]:
        """Return the longest step `(k,)` in counts along each of the directions `(k, columns)`."""
        precision = np.zeros(len(columns))
        for h, group in zip(self.headers, self.tables.group):
            if self.cells.tree.level(h.margin.level) == len(self.cells.tree.levels) - 1 and not h.exact:
                changed = np.zeros((len(columns), columns.shape[1]))
                for k in range(columns.shape[1]):
                    for i in range(columns.shape[1]):
                        changed[:, k] += SIGNS[i] * (group[columns[:, i]] == group[columns[:, k]])
                # Each changed group is met once for each of its columns: those that cancel are not met at all.
                met = (group[columns][:, :, None] == group[columns][:, None]).sum(axis=2)
                precision += (changed**2 / met).sum(axis=1) / h.law.variance
        with np.errstate(divide="ignore"):
            wide = precision**-0.5 / STEPS_A_DEVIATION
        return np.maximum(np.minimum(wide, largest / 2), 1.0)

    @property
    def _sums_are_narrow(self) -> bool:
        """Return True if some sum of a place's cells is measured with less noise than the cells are."""
        last = len(self.cells.tree.levels) - 1
        known = {True: np.inf, False: np.inf}  # the finest cells, and sums of theirs
        for h in self.headers:
            if self.cells.tree.level(h.margin.level) == last:
                finest = canonical(self.cells, h.margin) == canonical(self.cells, self.cells.finest)
                known[finest] = min(known[finest], 0.0 if h.exact else h.law.variance)
        return known[False] < known[True]

    @property
    def _scales(self) -> NDArray[np.float64]:
        """Return the smallest standard deviation of noise on each level, in counts and at least 1."""
        narrowest = np.full(len(self.cells.tree.levels), np.inf)
        for h in self.headers:
            if not h.exact:
                at = self.cells.tree.level(h.margin.level)
                narrowest[at] = min(narrowest[at], h.law.variance**0.5)
        known = np.where(np.isfinite(narrowest), narrowest, np.nanmin(np.append(narrowest, 1e6)))
        return np.maximum(known, 1.0)

    def _pairs(self) -> NDArray[np.int64]:
        """Return the pairs of columns `(p, 2)` that differ in one attribute."""
        grid = np.arange(self.columns).reshape(self.cells.shape[1:])
        found = [np.zeros((0, 2), np.int64)]
        for axis in range(grid.ndim):
            lines = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])
            first, second = np.triu_indices(grid.shape[axis], 1)
            found.append(np.stack([lines[:, first].ravel(), lines[:, second].ravel()], axis=1))
        return self._only_open(np.concatenate(found))

    def _squares(self) -> NDArray[np.int64]:
        """Return the sets of four columns `(q, 4)` that combine two values of each of two attributes."""
        grid = np.arange(self.columns).reshape(self.cells.shape[1:])
        found = [np.zeros((0, 4), np.int64)]
        for one in range(grid.ndim):
            for other in range(one + 1, grid.ndim):
                planes = np.moveaxis(grid, (one, other), (-2, -1)).reshape(
                    -1, grid.shape[one], grid.shape[other]
                )
                (a, b), (c, d) = np.triu_indices(grid.shape[one], 1), np.triu_indices(grid.shape[other], 1)
                a, c = (part.ravel() for part in np.meshgrid(a, c))
                b, d = (part.ravel() for part in np.meshgrid(b, d))
                corners = (planes[:, a, c], planes[:, b, c], planes[:, a, d], planes[:, b, d])
                found.append(np.stack([part.ravel() for part in corners], axis=1))
        return self._only_open(np.concatenate(found))

    def _only_open(self, columns: NDArray) -> NDArray[np.int64]:
        return np.ascontiguousarray(columns[self.open[columns].all(axis=1)], dtype=np.int64)

    def start(self, rng: np.random.Generator, away: float) -> NDArray[np.int64]:
        """Return starting counts `(leaves, n)`, reconciled from the values with more noise under exact rules.

        Raises
        ------
        ConvergenceError
            If the released tables do not keep all exact values.
        """
        headers = list(self.headers)
        if not any(self.cells.size(h.margin) == self.cells.n for h in headers):
            headers.append(Measured("start", self.cells.finest, law_named("gaussian")(UNMEASURED_VARIANCE)))
        lower = without_upper(self.constraints)
        found = default_tables(lower, headers, self._noisier(headers, rng, away), rng)
        return self._moved_below(found.reshape(self.cells.shape[0], -1))

    def _moved_below(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Move counts above the upper bound of a place to other places, leaving exact totals unchanged."""
        above = [b for b in self.constraints.bounds if b.upper is not None]
        if not above:
            return x
        tree = self.cells.tree
        exact = [tree.level(h.margin.level) for h in self.headers if h.exact]
        most = np.full(len(x), np.inf)
        for b in above:
            if b.margin.level == tree.levels[-1] and not b.margin.attributes and not b.where:
                most = np.minimum(most, np.floor(np.asarray(b.upper, float)))
        excess = np.maximum(x.sum(axis=1) - most, 0).astype(np.int64)
        moved = _taken(x, excess)
        x = x - moved
        if exact:
            groups = tree.leaf_ptr(max(exact))
            for first, stop in pairwise(groups.tolist()):
                freed = moved[first:stop].sum(axis=0)
                _place_freed_counts(x[first:stop], freed, most[first:stop])
        flat = x.ravel()
        exceeded = (self.cells.sum(flat, b.margin) > self.constraints.bound_values(b)[1] for b in above)
        missed = (self.cells.sum(flat, h.margin) != v for h, v in zip(self.headers, self.values) if h.exact)
        if any(wrong.any() for wrong in (*exceeded, *missed)):
            raise ConvergenceError(UNSTARTED, remedy=UNSTARTED_REMEDY)
        return x

    def _noisier(
        self, headers: Sequence[Measured], rng: np.random.Generator, away: float
    ) -> NDArray[np.float64]:
        """Return the measured values plus normal noise of `away` times their standard deviations."""
        values, at = np.zeros(sum(self.cells.size(h.margin) for h in headers)), 0
        for h, v in zip(self.headers, self.values, strict=True):
            part = values[at : at + len(v)]
            if not h.exact:
                rng.standard_normal(out=part)
                part *= away * h.law.variance**0.5
            part += v
            at += len(v)
        return values

    def state(self, x: NDArray[np.integer[Any]], a: float, kappa: float, rate: float = 0.0) -> ChainState:
        """Return the state of a Markov chain at the tables `(leaves, n)`, given the prior's parameters."""
        levels = len(self.cells.tree.levels)
        tree, flat = self.cells.tree, x.ravel().astype(np.int64)
        total = np.concatenate([self.cells.sum(flat, Margin(level)) for level in tree.levels])
        gaps = [self.cells.sum(flat, m) - v for m, v, *_ in self._known]
        inner = int(tree.level_ptr[-2])
        theta = np.empty((inner, self.columns))
        for level in range(levels - 1):
            rows = slice(tree.level_ptr[level], tree.level_ptr[level + 1])
            theta[rows] = np.add.reduceat(x, tree.leaf_ptr(level)[:-1], axis=0)
        theta = self.open * (theta + 0.5)
        theta /= theta.sum(axis=1, keepdims=True)
        each = np.full(levels, 1.0)
        gap, top = _together(gaps, total[0]), x.sum(axis=0).astype(float)
        kappas, sizes = np.full((levels, self.columns), kappa), x.sum(axis=1) + 1.0
        first = np.full(len(x), np.flatnonzero(self.open)[0])
        lived, rates = np.ones(len(x), bool), np.full(tree.sizes[-2], rate)
        values = len(self.alike.ptr) - 1
        state = ChainState(
            x,
            total,
            gap,
            top,
            theta,
            a * each,
            kappa * each,
            kappas,
            sizes,
            first,
            lived,
            rates,
            np.array([rate, STRENGTH[0] / STRENGTH[1]]),
            np.zeros((inner, values)),
            np.full((levels, values), HYPERPRIOR.factor),
            np.ones((inner, self.columns)),
            np.ones(len(total)),
            np.zeros(self.public.covariates.shape[1]),
        )
        if len(self.public.log_share):
            weigh_parts(self.places, state)
        return state

    def work(self) -> TreeMessages:
        """Allocate the arrays of messages that one Markov chain needs."""
        nodes, inner = len(self.places.parent), int(self.places.level_ptr[-2])
        own = np.zeros(WIDE * inner + NARROW * (nodes - inner), np.float32)
        return TreeMessages(own, np.zeros(WIDE * (nodes + 2), np.float32), np.zeros((nodes, 4), np.int32))

    @property
    def connected(self) -> bool:
        """Return True if it is proved that moves lead from any table to every other table.

        Then one may move a unit between columns of a place (pairs), and in a column between any two places under the same
        fixed totals (singles): these lead from any table to any other through nonnegative ones.
        """
        exact = [h.margin for h in self.headers if h.exact]
        last = self.cells.tree.levels[-1]
        return not self.constraints.bounds and all(not m.attributes and m.level != last for m in exact)


def _together(gaps: list[NDArray], total: int) -> NDArray:
    """Return arrays of differences as one array, in single precision if that is exact."""
    whole = all(gap.dtype.kind in "iu" or bool((gap == np.rint(gap)).all()) for gap in gaps)
    largest = 2 * total + max(float(np.abs(gap).max(initial=0)) for gap in gaps)
    return np.concatenate(
        gaps, dtype=np.float32 if whole and largest < MAX_SINGLE_PRECISION else np.float64, casting="unsafe"
    )


def _taken(x: NDArray[np.int64], excess: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole counts `(leaves, n)` to remove from the cells of each place, `excess` in total."""
    below = np.cumsum(x, axis=1)
    ends = below * excess[:, None] // np.maximum(below[:, -1:], 1)  # whole, and the last is the excess
    return np.diff(ends, axis=1, prepend=0)


def _place_freed_counts(x: NDArray[np.int64], freed: NDArray[np.int64], most: NDArray[np.float64]) -> None:
    """Add counts `(n,)` of each column to the first places whose totals are below their upper bounds."""
    room = np.maximum(most - x.sum(axis=1), 0)
    for column in np.flatnonzero(freed):
        below = np.minimum(np.cumsum(room), freed[column])
        added = np.diff(below, prepend=0).astype(np.int64)
        x[:, column] += added
        room -= added


def default_tables(
    constraints: Constraints, headers: Sequence[Measured], values: NDArray, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return whole counts `(n,)` that satisfy every invariant, by the default method of `reconcile`."""
    problem = histogram_problem(constraints, headers, folded=True)
    fit, _ = problem.least_squares(values[None])
    fit = replace(fit, values=())  # settling looks at the subtrees' alone
    close = tolerance_for(values, MAX_PROJECTION_ERROR_COUNTS)
    del values  # as wide as all else
    seeds = rng.integers(2**63, size=1, dtype=np.uint64)
    found = problem.settle(fit, problem.chains, seeds, Settling(posterior=True, first=problem.first))
    if found.misplaced or not found.residual <= close:
        raise ConvergenceError(UNSTARTED, remedy=UNSTARTED_REMEDY)
    return problem.fold.unfold(found.values[-1].astype(np.int64)).ravel()
