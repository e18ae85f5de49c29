"""One stage of settling: tables of a marginal under their settled parents, given a coarser marginal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trueup.kernel.histogram.anova import Domain
from trueup.kernel.histogram.marginals import Marginal, cell_groups, marginalise, relative, spread
from trueup.kernel.histogram.node_filter import condition
from trueup.kernel.settling.nearest import Metric, nearest_nonnegative
from trueup.kernel.settling.transport import SNAP, nudges, round_children
from trueup.kernel.settling.two_way import nearest_two_way


@dataclass(frozen=True)
class Coarse:
    """A coarser marginal that was settled before: as a marginal of the stage's tables, and its counts."""

    marginal: Marginal
    counts: np.ndarray  # (rows, families)

    @classmethod
    def of(cls, marginal: Marginal, coarse: Marginal, counts: np.ndarray) -> Coarse:
        """Make one from two marginals of the same histograms."""
        return cls(relative(marginal, coarse), counts)

    def given(
        self, domain: Domain, variances: tuple[np.ndarray, ...], tables: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Condition tables and their covariances on the coarser marginal."""
        coefficients, narrowed = domain.forward(tables), list(variances)
        own = domain.coarsened(self.marginal)
        known = {c.contrast: c.view(part) for part in [own.forward(self.counts)] for c in own.components}
        for i, component in enumerate(domain.components):
            if domain.informs(self.marginal, component):
                rows = domain.matrix(self.marginal, component)
                gain, narrowed[i] = condition(variances[i], rows)
                part = component.view(coefficients)
                part[...] = part + gain @ (known[component.contrast] - rows @ part)
        return tuple(narrowed), domain.backward(coefficients)

    def determined(self, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows in which no family has a choice, and what all rows would be if their families had none."""
        open_cells = (~held).astype(np.int64)
        choice = marginalise(open_cells, self.marginal)
        known = ((choice == 1) | (self.counts == 0)).all(axis=1)
        return known, np.where(held, 0.0, spread(self.counts, self.marginal))


@dataclass(frozen=True)
class SettlingStage:
    """Tables (rows, m) that obey the sums, with the constraints that they must keep.

    `sums` (parents, m) are the parents' tables, None at the root; `zeros` cells that are zero by definition; `keys`
    (rows,) settle ties of rounding; `most` (rows, m) upper bounds.
    """

    metric: Metric
    tables: np.ndarray
    sums: np.ndarray | None
    coarse: Coarse | None
    zeros: np.ndarray | None
    keys: np.ndarray | None
    most: np.ndarray | None = None

    def above(self, least: np.ndarray) -> SettlingStage:
        """Return the stage with bounds (rows, m) subtracted from the tables and all their sums."""
        sums = None if self.sums is None else self.sums - self.metric.sums(least)
        coarse = self.coarse
        if coarse is not None:
            coarse = Coarse(coarse.marginal, coarse.counts - marginalise(least, coarse.marginal))
        most = None if self.most is None else self.most - least
        return replace(self, tables=self.tables - least, sums=sums, coarse=coarse, most=most)

    @property
    def held(self) -> np.ndarray | None:
        """Cells that can only be zero: by definition, by a bound, or since a sum that they belong to is zero."""
        empty = [] if self.zeros is None else [self.zeros]
        if self.most is not None:
            empty.append(self.most <= 0)
        if self.sums is not None:
            empty.append(np.repeat(self.sums == 0, self.metric.counts, axis=0))
        if self.coarse is not None:
            empty.append(spread(self.coarse.counts == 0, self.coarse.marginal))
        return np.logical_or.reduce(empty) if empty else None

    def nearest(self, tolerance: float) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the nearest nonnegative tables, every parent's residual, and the most iterations."""
        held = self.held
        if held is None or self.coarse is None:
            found = nearest_nonnegative(self.metric, self.tables, held, tolerance, self.most)
        else:
            found = self._after_the_forced(self.coarse, held, tolerance)
        x = np.clip(found[0], 0.0, self.most)
        return x if held is None else np.where(held, 0.0, x), *found[1:]

    def tied(self, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest nonnegative tables if cells had their own variances (rows, m), and every parent's residual."""
        assert self.sums is not None
        first = np.append(self.metric.first, self.metric.rows)
        if self.coarse is None:
            return nearest_two_way(self.tables, variances, first, self.sums)
        family = cell_groups(self.coarse.marginal)
        return nearest_two_way(self.tables, variances, first, self.sums, self.coarse.counts, family)

    def _after_the_forced(
        self, coarse: Coarse, held: np.ndarray, tolerance: float
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Project only rows with a choice: for most lowest places none is left once their coarse counts are settled;
        rows are set aside, and what they take is taken off their parents."""
        known, forced = coarse.determined(held)
        x, rest, steps = np.where(known[:, None], forced, 0.0), np.flatnonzero(~known), 0
        left = None if self.sums is None else self.sums - self.metric.sums(x)
        # Where no row is left, what the sums miss.
        residual = np.zeros(self.metric.counts.size) if left is None else np.abs(left).max(axis=1)
        if rest.size:
            metric, parents = self.metric.of_rows(rest)
            tables = self.tables[rest] if left is None else metric.tie(self.tables[rest], left[parents])
            most = None if self.most is None else self.most[rest]
            found = nearest_nonnegative(metric, tables, held[rest], tolerance, most)
            x[rest], residual[parents], steps = found
        return x, residual, steps

    def rounded(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whole tables that keep the sums, and for every parent the units that found no place."""
        first = np.append(self.metric.first, self.metric.rows)
        open_ = None if self.zeros is None else ~self.zeros
        if self.most is not None:
            inside = np.floor(x + SNAP) < self.most
            open_ = inside if open_ is None else open_ & inside
        more = {
            "column_sums": None if self.sums is None else np.rint(self.sums),
            "allowed": open_,
            "nudge": None if self.keys is None else nudges(self.keys, x.shape[1]),
        }
        if self.coarse is None:
            return round_children(x, first, **more)
        family = cell_groups(self.coarse.marginal)
        return round_children(x, first, family=family, row_sums=self.coarse.counts, **more)
