"""Methods under assessment, each applied to batches of simulated measurements.

Intervals whose coverage is assessed: rules that turn one replicate's published counts into bounds.
A rule is a class with a name; what is listed in `RULES` can be asked for by that name, and any other
object with the same interface can be given to `assess` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import InferenceMethod as InferMethod
from trueup.inferring.method import silent
from trueup.kernel import Status
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured, split
from trueup.model.nested import canonical
from trueup.model.records.drawn import Drawn, interval_of_draws
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.reconciling import unsolved
from trueup.reconciling.expected_errors import MIN_REPLICATES, ErrorSimulation
from trueup.reconciling.method import Method

Bounds = tuple[NDArray, NDArray]


@dataclass(frozen=True, eq=False)
class Published:
    """The published data of `b` replicates, the only data that an interval rule may use.

    Attributes
    ----------
    cells, headers
        The cells and what was measured.
    values
        `(b, q)` noisy values.
    errors
        Standard errors (counts) that the method states, by margin.
    simulate
        Simulates the errors to expect from the first replicate, as a release does from its own values.
    """

    cells: Cells
    headers: Sequence[Measured]
    values: NDArray
    errors: Mapping[Margin, NDArray]
    simulate: Callable[[], ExpectedErrors] | None = None

    @cached_property
    def expected(self) -> ExpectedErrors | None:
        """Return the expected errors by size of the released count, or None if they were not simulated."""
        return self.simulate() if self.simulate else None

    def measured(self, margin: Margin) -> tuple[Measured, NDArray] | None:
        """Return header and values `(b, groups)` of the first query that measured a whole margin, or None."""
        for header, values in zip(self.headers, split(self.values, self.headers, self.cells)):
            whole = header.groups is None and not header.exact
            if whole and canonical(self.cells, header.margin) == margin:
                return header, values
        return None


class IntervalRule(ABC):
    """A rule that gives an interval for every count of a margin.

    Attributes
    ----------
    name
        Its name.
    level
        The probability with which it claims to hold the true count.
    """

    name: ClassVar[str]
    level: float

    @abstractmethod
    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return lower and upper ends `(b, groups)` of a margin's intervals, or None if there are none."""


@dataclass(frozen=True)
class LeastSquares(IntervalRule):
    """Intervals around the reconciled count, from the least-squares standard error and normal quantiles.

    It ignores nonnegativity, rounding and the shape of the noise distribution.
    """

    level: float = 0.9
    name: ClassVar[str] = "least-squares"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends `(b, groups)` of the intervals; None if standard errors are unknown."""
        from scipy.special import ndtri

        if (errors := published.errors.get(margin)) is None:
            return None
        reach = float(ndtri(0.5 + self.level / 2)) * errors
        return counts - reach, counts + reach


@dataclass(frozen=True)
class NoiseMargin(IntervalRule):
    """Intervals around the noisy count, from the margin of error of its noise."""

    level: float = 0.9
    name: ClassVar[str] = "noise"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends `(b, groups)` of the intervals; None if the margin was not measured."""
        if (found := published.measured(margin)) is None:
            return None
        header, values = found
        reach = float(np.max(header.law.quantile(0.5 + self.level / 2)))
        return values - reach, values + reach


@dataclass(frozen=True)
class BySize(IntervalRule):
    """Intervals around the reconciled count, from simulated errors of counts of the same released size.

    The margin of tables and reports. Replicates of a block share the simulation of the block's first.
    """

    level: float = 0.9
    name: ClassVar[str] = "by-size"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends `(b, groups)` of the intervals; None if errors by size were not simulated."""
        found = published.expected and published.expected.margin_of_error(margin, counts, self.level)
        return None if found is None else (counts - found, counts + found)


RULES: tuple[type[Any], ...] = (LeastSquares, NoiseMargin, BySize)
"""Every rule that has a name."""


POSTERIOR = "posterior"
"""Name of the intervals of an inference method."""


@dataclass(frozen=True, eq=False)
class ReplicateEstimates:
    """Estimated counts of `b` replicates, and intervals for the true counts.

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
    """A prepared reconciliation method with its interval rules, for simulated measurements."""

    method: Method
    state: Any
    headers: Sequence[Measured]
    rules: Sequence[IntervalRule]
    errors: Mapping[Margin, NDArray] = field(default_factory=dict)
    simulation: ErrorSimulation | None = None

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Reconcile each row of measured values `(b, q)`, and return estimates and intervals."""
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
    """A prepared inference method, for posterior means and intervals from simulated measurements."""

    method: InferMethod
    state: Any
    draws: int
    level: float

    def estimate(
        self, cells: Cells, margins: Sequence[Margin], values: NDArray, rng: np.random.Generator
    ) -> ReplicateEstimates:
        """Infer the counts from each row of measured values, and return posterior means and intervals."""
        made = (self.method.apply(self.state, row, self.draws, rng, silent) for row in values)
        drawn = [one.accepted(self.method.name) for one in made]
        found = {margin: [self._describe(cells, d, margin) for d in drawn] for margin in margins}
        tables = {margin: np.stack([mean for mean, _, _ in rows]) for margin, rows in found.items()}
        intervals = {
            (POSTERIOR, margin): (np.stack([r[1] for r in rows]), np.stack([r[2] for r in rows]))
            for margin, rows in found.items()
        }
        return ReplicateEstimates(tables, intervals)

    def _describe(self, cells: Cells, drawn: Drawn, margin: Margin) -> tuple[NDArray, NDArray, NDArray]:
        """Return the posterior mean of every group of a margin, and the ends of its interval."""
        if (exact := drawn.marginals.get(margin)) is not None:
            return exact.mean, *exact.interval(self.level)
        table = cells.sum(drawn.draws, margin)
        draws = table.reshape(-1, table.shape[-1])
        return draws.mean(axis=0), *interval_of_draws(draws, self.level, 0.0)


Estimator = Reconciler | Inferrer
