"""Assessed estimators: a method of reconciliation, or of inference, on a batch of simulated values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.assessing.intervals import Bounds, IntervalRule, Published
from trueup.inferring.method import InferenceMethod as InferMethod
from trueup.kernel.status import Status
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.records.drawn import Drawn
from trueup.model.records.quantity import equal_tails
from trueup.reconciling import unsolved
from trueup.reconciling.expected_errors import MIN_REPLICATES, ErrorSimulation
from trueup.reconciling.method import Method

POSTERIOR = "posterior"
"""Name of the intervals of an inference method."""


@dataclass(frozen=True, eq=False)
class ReplicateEstimates:
    """Counts of a batch of `b` replicates, and intervals for them.

    Attributes
    ----------
    tables
        `(b, groups)` counts of every margin that is assessed.
    intervals
        Lower and upper ends `(b, groups)` by the rule's name and margin.
    """

    tables: Mapping[Margin, NDArray]
    intervals: Mapping[tuple[str, Margin], Bounds]


@dataclass(frozen=True, eq=False)
class Reconciler:
    """A prepared method of reconciliation with its interval rules."""

    method: Method
    state: Any
    headers: Sequence[Measured]
    rules: Sequence[IntervalRule]
    errors: Mapping[Margin, NDArray] = field(default_factory=dict)
    simulation: ErrorSimulation | None = None

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Reconcile values `(b, q)`."""
        solution = self.method.apply(self.state, values, rng)
        if solution.status is not Status.SOLVED:
            raise unsolved(self.method.name, solution.status)
        tables = {margin: cells.sum(solution.values, margin) for margin in margins}
        published = Published(
            cells, self.headers, values, self.errors, self._simulator(solution.values, values, rng)
        )
        intervals = {
            (rule.name, margin): bounds
            for rule in self.rules
            for margin, counts in tables.items()
            if (bounds := rule.bounds(published, margin, counts)) is not None
        }
        return ReplicateEstimates(tables, intervals)

    def _simulator(self, counts: NDArray, values: NDArray, rng: np.random.Generator):
        simulation, work = self.simulation, MIN_REPLICATES * counts.shape[-1]
        if simulation is None:
            return None
        return lambda: simulation.simulate(counts[0], values[0], self.headers, rng, work=work)


@dataclass(frozen=True, eq=False)
class Inferrer:
    """A prepared method of inference: posterior means, and equal-tailed intervals of probability `level`."""

    method: InferMethod
    state: Any
    draws: int
    level: float

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Infer from each row of values `(b, q)`."""
        drawn = [self._draw(row, rng) for row in values]
        found = {margin: [self._describe(cells, d, margin) for d in drawn] for margin in margins}
        tables = {margin: np.stack([mean for mean, _, _ in rows]) for margin, rows in found.items()}
        intervals = {
            (POSTERIOR, margin): (np.stack([r[1] for r in rows]), np.stack([r[2] for r in rows]))
            for margin, rows in found.items()
        }
        return ReplicateEstimates(tables, intervals)

    def _draw(self, row: NDArray, rng: np.random.Generator) -> Drawn:
        drawn = self.method.apply(self.state, row, self.draws, rng, lambda done, of: None)
        return drawn.accepted(self.method.name)

    def _describe(self, cells: Cells, drawn: Drawn, margin: Margin) -> tuple[NDArray, NDArray, NDArray]:
        """Return mean and ends of the interval of every group."""
        tails = (1 - self.level) / 2, (1 + self.level) / 2
        if (exact := drawn.marginals.get(margin)) is not None:
            return exact.mean, exact.quantile(tails[0]), exact.quantile(tails[1])
        table = cells.sum(drawn.draws, margin)
        draws = table.reshape(-1, table.shape[-1])
        low, high = equal_tails(draws, self.level)
        return draws.mean(axis=0), low, high


Estimator = Reconciler | Inferrer
