"""Factor tables for the tree kernels, built from likelihoods, priors and bounds."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.messages.pmf import Factors, no_splits
from trueup.model.prior import (
    Bounded,
    Estimated,
    Flat,
    FlatTotal,
    Hierarchical,
    Masses,
    NegativeBinomial,
    Poisson,
    Prior,
)
from trueup.noise.law import MAX_TABLE_ENTRIES, Law

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


Split = tuple[Reals, Reals, Reals, Reals, Integers]
"""The fields `SPLIT` of `Factors`."""


class FittedMasses(NamedTuple):
    """Fitted log masses of the counts 0, 1, ... for each class of finest cells.

    Attributes
    ----------
    log
        `(classes, counts)`.
    kind
        `(n,)` the class of each cell.
    """

    log: Reals
    kind: Integers

    @property
    def name(self) -> str:
        """Return the name of the fitted prior."""
        return Estimated().name


class FactorTable:
    """Factors of the nodes of a tree, in which nodes with equal laws and priors share a table.

    Parameters
    ----------
    lower, upper
        `(nodes,)` hard bounds.
    tabled
        Tables of laws, and how far below the value they begin, that further ones find made.

    Examples
    --------
    >>> from trueup.noise import law_named
    >>> table = FactorTable(np.zeros(2, np.int64), np.full(2, 9))
    >>> law = law_named("discrete-laplace")("1")
    >>> table.add_law(law, np.array([1]), np.array([4]), depth=10.0)
    >>> factors = table.build()
    >>> factors.base.tolist(), factors.ptr.tolist(), len(factors.log)
    ([-6], [0, 0, 1], 21)
    """

    def __init__(
        self, lower: Integers, upper: Integers, tabled: dict[Hashable, tuple[Reals, int]] | None = None
    ) -> None:
        self._lower, self._upper = lower.copy(), upper.copy()
        self._tabled = {} if tabled is None else tabled
        self._splits: Split | None = None
        self._known: dict[Hashable, tuple[int, int]] = {}
        self._logs: list[Reals] = []
        self._open: list[float] = []
        self._rows: list[tuple[Integers, Integers, int]] = []

    def add_law(self, law: Law, nodes: Integers, values: NDArray, depth: float | Reals) -> None:
        """Add the likelihood of the counts of nodes, given their published values under one noise law.

        Values whose tables differ by a shift alone share one: noise that is added has a table for each fraction, a
        perturbation one for each value.
        """
        every = np.broadcast_to(depth, nodes.shape)
        for one in np.unique(every).tolist():
            some = np.flatnonzero(every == one)
            kinds = law.kinds(values[some])
            if (
                len(kinds) and (kinds == kinds[0]).all()
            ):  # as of all whole numbers: no copies of a nation's are sorted
                self._add_kind(law, nodes[some], values[some], one)
                continue
            order = some[np.argsort(kinds, kind="stable")]
            for same in np.split(order, np.unique(np.sort(kinds), return_index=True)[1][1:]):
                self._add_kind(law, nodes[same], values[same], one)

    def _add_kind(self, law: Law, nodes: Integers, values: NDArray, depth: float) -> None:
        """Add the likelihood of nodes whose tables of log masses are the same except for a shift."""
        if not len(nodes):
            return
        key = (law, float(law.kinds(values[0])), depth)
        if key not in self._tabled:
            first, log = law.table(values[0], depth)
            self._tabled[key] = log, int(np.floor(values[0])) - first
        reach = self._table(key, lambda: self._tabled[key], law.open_ended)
        at = self._known[key][0]
        if (
            law.open_ended and not law.additive
        ):  # what a table leaves out above goes on, but no hidden count below it
            self._lower[nodes] = np.maximum(self._lower[nodes], law.bounds(values[0])[0])
        if len(self._logs[at]):
            self._rows.append((nodes, np.floor(values).astype(np.int64) - reach, at))
        else:  # all counts from its lower end on are alike
            self._lower[nodes] = np.maximum(self._lower[nodes], law.bounds(values[0])[0])

    def add_prior(self, prior: Prior | FittedMasses, leaves: Integers, depth: float) -> None:
        """Add the factors of a prior on the finest cells or on their total."""
        match prior:
            case FittedMasses():
                for kind, log in enumerate(prior.log):
                    self.add_masses(("fitted", kind), log, leaves[prior.kind == kind])
            case Flat():
                return
            case Bounded():
                self._upper[leaves] = np.minimum(self._upper[leaves], prior.upper)
            case Masses():
                self.add_masses("masses", prior.logpmf(np.arange(len(prior.masses))), leaves)
            case FlatTotal():
                self._add_flat_total(prior, leaves)
            case Hierarchical():
                self.add_prior(prior.total, np.zeros(1, np.int64), depth)
            case Poisson() | NegativeBinomial():
                prior.refuse_other_than(len(leaves))
                for cell, leaf in enumerate(leaves):
                    self._add_cell(prior.at(cell), leaf, depth)
            case _:
                self.add_masses(prior, prior.tabled(), leaves)
        self._lower[leaves] = np.maximum(self._lower[leaves], 0)

    def add_masses(self, key: Hashable, log: Reals, nodes: Integers, first: int = 0) -> None:
        """Add a factor to nodes, given its log masses at the counts `first`, `first + 1`, ...."""
        self._table(key, lambda: (log, 0), open_ended=0.0)
        self._rows.append((nodes, np.full(len(nodes), first, np.int64), self._known[key][0]))

    def add_splits(self, splits: Split) -> None:
        """Add the factors of the prior by which the count of each node splits among its children."""
        self._splits = tuple(map(np.asarray, splits))  # pyright: ignore[reportAttributeAccessIssue]

    def build(self) -> Factors:
        """Return all factors in the layout that the tree kernels read."""
        n = len(self._lower)
        none = np.zeros(0, np.int64)
        nodes = np.concatenate([row[0] for row in self._rows] or [none])
        sorted_already = (nodes[1:] >= nodes[:-1]).all()
        order = slice(None) if sorted_already else np.argsort(nodes, kind="stable")
        base = np.concatenate([row[1] for row in self._rows] or [none])
        table = np.concatenate([np.full(len(row[0]), row[2]) for row in self._rows] or [none])
        sizes = [len(log) for log in self._logs]
        return Factors(
            np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=n))]).astype(np.int64),
            base[order].astype(np.int64, copy=False),
            table[order].astype(np.int64, copy=False),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(self._logs or [np.zeros(0)]),
            np.array(self._open, dtype=float),
            self._lower,
            self._upper,
            *(self._splits or no_splits(n)),
        )

    def _table(self, key: Hashable, make: Callable[[], tuple[Reals, int]], open_ended: float) -> int:
        """Store a table of log masses under a key if it is new, and return the position of its origin."""
        if key not in self._known:
            log, reach = make()
            self._known[key] = (len(self._logs), reach)
            self._logs.append(log)
            self._open.append(open_ended)
        return self._known[key][1]

    def _add_cell(self, prior: Poisson | NegativeBinomial, leaf: int, depth: float) -> None:
        bend = min(float(prior.size), 1.0) if isinstance(prior, NegativeBinomial) else 1.0  # pyright: ignore[reportArgumentType]
        start = -self._table(prior, lambda: _prior_table(prior, depth), open_ended=bend)
        self._rows.append((np.array([leaf]), np.array([start]), self._known[prior][0]))

    def _add_flat_total(self, prior: FlatTotal, leaves: Integers) -> None:
        cells = int(np.sum(self._upper[leaves] > 0))
        totals = np.arange(prior.upper + 1)
        root = np.zeros(1, np.int64)
        self._upper[0] = min(self._upper[0], prior.upper)
        self.add_masses("total", prior.log_total(totals, max(cells, 1)), root)
        if prior.split == "multinomial":
            for leaf, share in zip(leaves, prior.shares(len(leaves))):
                self.add_masses(("part", share), prior.log_part(totals, share), np.array([leaf]))


def _prior_table(prior: Poisson | NegativeBinomial, depth: float) -> tuple[Reals, int]:
    """Return the log masses of a unimodal prior near its peak, and minus the first of these counts."""
    top = int(np.max(prior.mean)) + 1
    peak = float(np.max(prior.logpmf(np.arange(min(top, MAX_TABLE_ENTRIES) + 1))))
    last = top + 1
    while peak - float(prior.logpmf(last)) < depth and last < MAX_TABLE_ENTRIES:
        last *= 2
    log = prior.logpmf(np.arange(last + 1))
    inside = np.flatnonzero(log >= peak - depth)
    first, last = int(inside[0]), int(inside[-1])
    return log[first : last + 1], -first
