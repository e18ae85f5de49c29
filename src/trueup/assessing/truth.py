"""The true or pseudo-true counts of an assessment: a table, or an earlier release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.microdata.truncate import Limit
from trueup.measuring import limit_of, read_confidential
from trueup.model.build import build_cells
from trueup.model.cells import Cells
from trueup.model.constraints import refuse_violations, violations
from trueup.model.problem import Problem, spec_and_text
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.planning.contributions import RecordsOfUnits
from trueup.reconciling.expected_errors import MIN_REPLICATES, some_places
from trueup.synth.own_places import made_up_counts


@dataclass(frozen=True, eq=False)
class Truth:
    """Counts that an assessment treats as the true ones.

    Attributes
    ----------
    cells, counts
        The cells and their `(n,)` counts.
    public
        True if the counts are public.
    sentence
        Sentence on what the counts are.
    limit
        The limit on each unit's records with the number dropped, if the spec limits records that were read.
    """

    cells: Cells
    counts: NDArray[np.int64]
    public: bool
    sentence: str
    limit: Limit | None = None

    @property
    def truncation(self) -> dict[str, Any]:
        """Return the limit on each unit's records and the number dropped, also for other possible limits.

        Empty where no limit was applied.
        """
        if self.limit is None:
            return {}
        found = {"records of a unit, at most": self.limit.records, "records dropped": self.limit.dropped}
        return found | ({"records that bounds drop": _by_bound(self.limit)} if self.limit.units else {})


def _by_bound(limit: Limit) -> dict[str, int]:
    """Return the number of records that each possible limit on a unit's records would drop."""
    many = sum(limit.units.values())
    held = RecordsOfUnits({records: units / many for records, units in limit.units.items()})
    return {str(bound): held.dropped(bound, many) for bound in held.bounds(limit.records)}


def read_truth(
    spec: Spec | Problem | str | Path, source: Any, geography: Any, *, public: bool
) -> tuple[Problem, Truth]:
    """Return the true counts, read from a table or taken from a release, and the problem on their places.

    Raises
    ------
    SpecError, DataError, InfeasibleError
        If it does not fit the spec; no message holds a count.
    """
    if isinstance(source, Truth):
        return _on(spec, source.cells), source
    if isinstance(source, Release):
        return _of_release(spec, source, public=public)
    problem = Problem.of(spec, geography, data=source)
    limit = limit_of(problem.spec)
    counts = read_confidential(problem.spec, problem.cells, source, limit, problem.constraints, problem.rows)
    said = "a table that was declared public" if public else "a confidential table"
    return problem, Truth(problem.cells, counts, public, said, limit)


def _on(spec: Spec | Problem | str | Path, cells: Cells) -> Problem:
    """Return the problem of a spec on the places of the true counts."""
    if isinstance(spec, Problem) and spec.cells is cells:
        return spec
    return Problem(spec_and_text(spec)[0], cells)


def _of_release(spec: Spec | Problem | str | Path, source: Release, *, public: bool) -> tuple[Problem, Truth]:
    """Return an earlier release's counts as true counts, with the problem on their places."""
    problem, cells = _on(spec, source.cells), source.cells
    same = tuple(level.name for level in problem.spec.levels) == cells.tree.levels
    if not same or cells.attributes != build_cells(problem.spec, cells.tree).attributes:
        raise DataError(
            f"the release has other {'attributes' if same else 'levels'} than the spec",
            needed="a release whose levels and attributes are those of the spec",
        )
    counts = np.asarray(source.counts)
    if (counts < 0).any() or (counts != np.floor(counts)).any():
        raise DataError(
            "the release holds counts below zero or fractions",
            needed="whole counts from 0",
            remedy="reconcile it anew with a method that gives whole counts, such as 'tree-topdown'",
        )
    whole = counts.astype(np.int64)
    refuse_violations(violations(problem.constraints, whole), "the counts of the release")
    known = public or not source.measurements.simulation
    return problem, Truth(cells, whole, known, "the counts of an earlier release")


def made_up_truth(
    spec: Spec | Problem | str | Path, geography: Any = None, *, cells: int = 5_000, seed: int = 0
) -> Truth:
    """Return a made-up population on the public places of a spec, for comparing methods in advance.

    Parameters
    ----------
    spec, geography
        A `Problem`, or a spec and its public places.
    cells
        About so many finest cells: of more, some places are chosen at random with all below them.
    seed
        Seed of the population and of the choice of places.

    Returns
    -------
    Truth
        Public counts, for `assess(spec, truth)`.

    Raises
    ------
    SpecError
        If the spec has lower limits or linear rules, which drawn counts would break.

    Examples
    --------
    >>> from trueup.demo import AREAS
    >>> from trueup.model.tree import Tree
    >>> truth = made_up_truth(AREAS, Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> truth.public, truth.counts.shape
    (True, (2,))
    """
    problem, rng = Problem.of(spec, geography), np.random.default_rng(seed)
    some, _ = some_places(problem.cells, cells * MIN_REPLICATES, rng)
    counts = made_up_counts(Problem(problem.spec, some), rng)
    said = f"a made-up population in {some.shape[0]:,} of {problem.cells.shape[0]:,} places"
    return Truth(some, counts, True, said)
