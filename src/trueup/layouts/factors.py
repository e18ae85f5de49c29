"""Collect likelihoods, priors and bounds into the factor tables of the tree kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
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
from trueup.noise.law import Law
from trueup.noise.perturbed import Perturbation
from trueup.noise.perturbed.base import NO_LIMIT

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
WIDEST = 1 << 24
"""Most entries of one table (counts)."""


class FittedMasses(NamedTuple):
    """Log masses of the counts 0, 1, ... of each class of the finest cells.

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
        """The name of the prior that was fitted."""
        return Estimated().name


class FactorTable:
    """Grows factor by factor; equal laws and priors share one table.

    Parameters
    ----------
    lower, upper
        `(nodes,)` hard bounds.

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

    def __init__(self, lower: Integers, upper: Integers) -> None:
        self._lower, self._upper = lower.copy(), upper.copy()
        self._splits: tuple[Reals, Reals] | None = None
        self._known: dict[Hashable, tuple[int, int]] = {}
        self._logs: list[Reals] = []
        self._open: list[float] = []
        self._rows: list[tuple[Integers, Integers, int]] = []

    def add_law(self, law: Law, nodes: Integers, values: NDArray, depth: float | Reals) -> None:
        """Measure nodes under a law of noise, down to `depth` nats below its peak: one for all, or each its own.

        Values with a fraction, as continuous noise gives them, have a table for each fraction; those of a perturbation
        one for each value, all there is.
        """
        if isinstance(law, Perturbation):
            self._add_perturbed(law, nodes, np.asarray(values, np.int64))
            return
        whole = np.floor(values).astype(np.int64)
        every = np.broadcast_to(depth, nodes.shape)
        kinds, which = np.unique(np.column_stack([values - whole, every]), axis=0, return_inverse=True)
        for k, (fraction, one) in enumerate(kinds.tolist()):
            key, at = (law, fraction, one), which.ravel() == k
            reach = self._table(
                key, lambda f=fraction, d=one: _law_table(law, d, f), float(np.isinf(_support(law)))
            )
            self._rows.append((nodes[at], whole[at] - reach, self._known[key][0]))

    def _add_perturbed(self, law: Perturbation, nodes: Integers, values: Integers) -> None:
        """Say what each published value leaves of the true count; equal tables are shared, wherever they begin."""
        order = np.argsort(values, kind="stable")
        every, first = np.unique(values[order], return_index=True)
        for value, at in zip(every.tolist(), np.split(order, first[1:])):
            low, high = (int(end) for end in law.bounds(value))
            if high >= NO_LIMIT:  # only intervals are open, and flat
                self._lower[nodes[at]] = np.maximum(self._lower[nodes[at]], low)
                continue
            low, log = law.table(value)
            key = ("perturbed", log.tobytes())
            self._table(key, lambda log=log: (log, 0), open_ended=0.0)
            self._rows.append((nodes[at], np.full(len(at), low), self._known[key][0]))

    def add_prior(self, prior: Prior | FittedMasses, leaves: Integers, depth: float) -> None:
        """Add a prior on the finest cells, or on their total."""
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

    def add_masses(self, key: Hashable, log: Reals, nodes: Integers) -> None:
        """Multiply by a table of log masses at 0, 1, ..., and zero elsewhere; equal keys share it."""
        self._table(key, lambda: (log, 0), open_ended=0.0)
        self._rows.append((nodes, np.zeros(len(nodes), np.int64), self._known[key][0]))

    def add_splits(self, alpha: Reals, total: Reals) -> None:
        """Let every node split its count among its children, as `Factors` has it."""
        self._splits = alpha, total

    def build(self) -> Factors:
        """Return the tables in the kernels' layout."""
        n = len(self._lower)
        none = np.zeros(0, np.int64)
        nodes = np.concatenate([row[0] for row in self._rows] or [none])
        order = np.argsort(nodes, kind="stable")
        base = np.concatenate([row[1] for row in self._rows] or [none])
        table = np.concatenate([np.full(len(row[0]), row[2]) for row in self._rows] or [none])
        sizes = [len(log) for log in self._logs]
        return Factors(
            np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=n))]).astype(np.int64),
            base[order].astype(np.int64),
            table[order].astype(np.int64),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(self._logs or [np.zeros(0)]),
            np.array(self._open, dtype=float),
            self._lower,
            self._upper,
            *(self._splits or no_splits(n)),
        )

    def _table(self, key: Hashable, make: Callable[[], tuple[Reals, int]], open_ended: float) -> int:
        """Store a table once; return how far left of its origin it starts."""
        if key not in self._known:
            log, reach = make()
            self._known[key] = (len(self._logs), reach)
            self._logs.append(log)
            self._open.append(open_ended)
        return self._known[key][1]

    def _add_cell(self, prior: Poisson | NegativeBinomial, leaf: int, depth: float) -> None:
        bend = min(_one_size(prior), 1.0)
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


def _one_size(prior: Poisson | NegativeBinomial) -> float:
    """Size of a negative binomial; infinite for Poisson."""
    return float(prior.size) if isinstance(prior, NegativeBinomial) else np.inf  # pyright: ignore[reportArgumentType]


def _support(law: Law) -> float:
    """Largest possible draw of a law (counts); infinite for most."""
    return float(getattr(law, "support", (-np.inf, np.inf))[1])


def _law_table(law: Law, depth: float, fraction: float = 0.0) -> tuple[Reals, int]:
    """Log mass of the noise of a value that lies `fraction` above a whole number, for counts `-reach..reach` from that.

    It reaches `depth` nats below the peak.
    """
    reach = 1
    peak = float(law.logpmf(0))
    while reach < _support(law) and peak - float(law.logpmf(reach)) < depth:
        reach *= 2
        if reach > WIDEST:
            raise DataError(
                f"the noise of law '{law.name}' is wider than {WIDEST:,} counts", needed="a larger budget"
            )
    low = reach // 2
    while reach - low > 1:
        middle = (low + reach) // 2
        low, reach = (middle, reach) if peak - float(law.logpmf(middle)) < depth else (low, middle)
    reach = int(min(reach, _support(law))) + (fraction > 0)
    return np.asarray(law.logpmf(fraction - np.arange(-reach, reach + 1))), int(reach)


def _prior_table(prior: Poisson | NegativeBinomial, depth: float) -> tuple[Reals, int]:
    """Log mass of a unimodal prior where it is within `depth` nats of its peak; minus its first count."""
    top = int(np.max(prior.mean)) + 1
    peak = float(np.max(prior.logpmf(np.arange(min(top, WIDEST) + 1))))
    last = top + 1
    while peak - float(prior.logpmf(last)) < depth and last < WIDEST:
        last *= 2
    log = prior.logpmf(np.arange(last + 1))
    inside = np.flatnonzero(log >= peak - depth)
    first, last = int(inside[0]), int(inside[-1])
    return log[first : last + 1], -first
