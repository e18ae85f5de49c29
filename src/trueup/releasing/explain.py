"""Explanation of what a spec will do, before any confidential count is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import ThreeLines
from trueup.errors import TrueupError
from trueup.model.cells import Margin
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.model.records.release import unreadable_forecast
from trueup.model.spec import Spec
from trueup.model.verb import takes_records
from trueup.planning.contributions import RecordsOfUnits, WeighedBound, weigh_bounds
from trueup.reconciling import build, choose, describe, published, refuse_misfit
from trueup.reconciling.expected_errors import (
    Progress,
    Sample,
    at_standard_errors,
    expected_errors,
    populations,
    some_places,
)
from trueup.reconciling.method import Method
from trueup.releasing.engine import MEMORY_BYTES, default_engine, divided
from trueup.synth.own_places import made_up_counts, usual_persons
from trueup.synth.totals import PERSONS_PER_BLOCK

MAX_EXPLAINED_CELLS = 2**17
"""Cells that are reconciled in all when the errors are simulated: seconds."""


@dataclass(frozen=True)
class ExpectedError:
    """The expected error of a published table.

    Attributes
    ----------
    table, groups
        The margin, and its number of counts.
    noise
        Standard deviation of its noise (counts), None if not measured.
    least, most
        Smallest and largest standard error (counts) of weighted least squares over its groups,
        before nonnegativity and rounding; None where no closed form is known.
    """

    table: str
    groups: int
    noise: float | None
    least: float | None
    most: float | None


TAIL_PROBABILITY = 0.05
"""Probability with which the noise of a count may be larger than what is stated of it."""


@dataclass(frozen=True)
class NoiseTail:
    """Tail quantiles of the noise on a count of a table.

    Attributes
    ----------
    query, table
        Names of the query and of the table that it measures.
    law
        The law of the noise.
    counts
        Size (counts) that the noise exceeds with a probability of at most `TAIL_PROBABILITY`.
    exact
        True if no smaller count will do; otherwise the count is a proved bound.
    """

    query: str
    table: str
    law: str
    counts: int
    exact: bool


@dataclass(frozen=True, repr=False)
class Explanation(ThreeLines):
    """The plan of a release by a spec: engine, structure, method, privacy loss, expected errors, and tails of the noise.

    By parts there is no closed form of the errors: it is for trees that memory holds. Errors by size of the count
    (`classes`) are simulated on made-up populations of `units` in the public places. `bounds` on the records of one unit
    are weighed where it is stated how many records units have.
    """

    problem: Problem
    method: dict[str, Any]
    expected: tuple[ExpectedError, ...]
    engine: str = "memory"
    tails: tuple[NoiseTail, ...] = ()
    classes: ExpectedErrors | None = None
    bounds: tuple[WeighedBound, ...] = ()
    units: int = 0

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Return a sentence on the tables in which the margin of error exceeds most counts; empty if there are none."""
        return tuple(unreadable_forecast(self.classes, self.problem.cells, self.units))

    @property
    def title(self) -> str:
        """Return the title of the release."""
        return self.problem.spec.title

    @property
    def structure(self) -> str:
        """Return the name of the structure that the constraints have, such as 'tree'."""
        return self.problem.constraints.structure()

    @property
    def cells(self) -> int:
        """Return the number of finest cells."""
        return self.problem.cells.n

    @property
    def guarantee(self) -> Guarantee:
        """Return the privacy guarantee: what is protected, and at what cost."""
        return self.problem.guarantee

    def document(self) -> dict[str, Any]:
        """Return the explanation as JSON values, as `trueup explain --json` prints them."""
        return {
            "title": self.title,
            "structure": self.structure,
            "cells": self.cells,
            "method": self.method,
            "guarantee": asdict(self.guarantee),
            "expected": [asdict(each) for each in self.expected],
            "engine": self.engine,
            "tails": [asdict(each) for each in self.tails],
            "classes": asdict(self.classes) if self.classes else None,
            "unreadable": list(self.unreadable),
            "bounds": [asdict(each) for each in self.bounds],
        }

    def _lines(self) -> tuple[str, str, str]:
        tables = ", ".join(each.table for each in self.expected)
        cost = f"{self.guarantee.currency} = {self.guarantee.amount} for one {self.guarantee.unit}"
        return (
            f"Explanation: {self.title}",
            f"tables: {tables}; {cost}",
            f"by the method '{self.method['method']}'; structure: {self.structure}",
        )


@takes_records
def explain(
    spec: Spec | Problem | str | Path,
    geography: Any = None,
    *,
    method: str | None = None,
    memory: int = MEMORY_BYTES,
    persons: int | None = None,
    records: RecordsOfUnits | None = None,
    simulate: bool = True,
    progress: Progress = lambda done, of: None,
) -> Explanation:
    """Explain what a spec will do, from the public places alone.

    Parameters
    ----------
    spec
        The spec, the path of one, or a Problem.
    geography
        The public list of places. Where the spec declares a table's keys public the table itself
        will do: only its key columns are read.
    method
        Name of a reconciliation method, to compare with the spec's own.
    memory
        Bytes that the release may use: what does not fit is released by parts.
    persons
        Units of a made-up population; by default as many as there would be if the places of the lowest level whose
        name is known (state, county, tract, block group, block) had as many as in the United States.
    records
        Distribution of the number of records of a unit, as you state it: then limits on them are compared.
    simulate
        True to simulate errors, which takes seconds.
    progress
        Called as `progress(done, replicates)`.

    Raises
    ------
    TrueupError
        For everything that `release` would refuse before it reads a count.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> plan = explain(AREAS, pandas.DataFrame({"area": ["a", "b"]}), persons=80)
    >>> plan.structure, plan.method["method"], [round(e.most, 2) for e in plan.expected]
    ('sum', 'tree-topdown', [2.29, 2.29])
    >>> plan.classes.note
    'Simulated: 200 replicates of measuring and reconciling 20 made-up populations of 80 in 2 of 2 places.'
    """
    problem = Problem.of(spec, geography)
    cells, constraints = problem.cells, problem.constraints
    engine = "memory" if method else default_engine(problem, memory)
    by_parts = engine != "memory"
    chosen = (
        build(method, {})
        if method
        else divided(problem.spec, problem.headers)[0]
        if by_parts
        else choose(problem.spec.reconcile, constraints)
    )
    headers = problem.headers
    if problem.spec.infer:
        from trueup.inferring import refuse_asked  # slow to import

        refuse_asked(problem)
    if not by_parts:
        refuse_misfit(chosen, constraints, headers)
    alone = cells.shape[0] == 1  # nothing tells how many units one place has
    assumed = PERSONS_PER_BLOCK * cells.n if alone else usual_persons(cells.tree)
    units = assumed if persons is None else persons
    state = None if by_parts else chosen.prepare(constraints, headers)
    errors = {} if by_parts else chosen.errors(state)
    # A cell's noise given the invariants has another variance than the law of one cell: its tail is stated.
    alone = (h for h in headers if not h.law.joint)
    noise = {h.margin: float(np.sqrt(h.law.variance)) for h in alone}
    rows = (
        ExpectedError(
            str(margin),
            cells.size(margin),
            noise.get(margin),
            *((float(e.min()), float(e.max())) if (e := errors.get(margin)) is not None else (None, None)),
        )
        for margin in published(constraints)
    )
    return Explanation(
        problem,
        describe(chosen),
        tuple(rows),
        engine,
        tuple(_tail(header) for header in headers if not header.exact),
        _simulated(problem, chosen, state, errors, units, progress, " (a guess)" * (persons is None))
        if simulate
        else None,
        weigh_bounds(problem, records, units) if records else (),
        units,
    )


def _simulated(
    problem: Problem,
    method: Method,
    state: Any,
    errors: Mapping[Margin, NDArray],
    units: int,
    progress: Progress,
    guess: str,
) -> ExpectedErrors:
    """Return the expected errors of a method by size of the count, simulated on made-up populations."""
    rng = np.random.default_rng(0)
    work = MAX_EXPLAINED_CELLS // method.effort
    cells, _ = some_places(problem.cells, work, rng)
    whole = cells is problem.cells
    local = problem if whole else Problem(problem.spec, cells)
    share = cells.shape[0] / problem.cells.shape[0]
    try:
        number = populations(cells, MAX_EXPLAINED_CELLS)
        drawn = np.stack([made_up_counts(local, rng, max(1, round(units * share))) for _ in range(number)])
        sample = Sample(cells, drawn, local.constraints, local.headers, state if whole else None)
    except TrueupError as error:
        return ExpectedErrors((), f"Errors could not be simulated before the release: {error}")
    made = f"{number} made-up populations" if number > 1 else "a made-up population"
    total = int(cells.sum(drawn[0], Margin(cells.tree.levels[0])).sum())
    said = f"{made} of {total:,}{guess} in {sample.of(problem.cells)}"
    tables = published(problem.constraints)
    found = expected_errors(
        method, sample, tables, rng, said=said, work=MAX_EXPLAINED_CELLS, progress=progress
    )
    return at_standard_errors(found.as_forecast(), errors, problem.cells, work)


def _tail(header: Measured) -> NoiseTail:
    tail = header.law.tail(TAIL_PROBABILITY)
    return NoiseTail(header.query, str(header.margin), header.law.name, tail.counts, tail.exact)
