"""Reconciliation: counts that satisfy every constraint, computed from measurements.

One line in `METHODS` makes a method known to the spec, its schema, `trueup methods`, the docs and the suites.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, DataError, SpecError
from trueup.kernel import Status
from trueup.model.build import family_if_any
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints, slack, violations
from trueup.model.header import Measured
from trueup.model.names import COUNTED_UNIT
from trueup.model.nested import canonical
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.verb import describe, entry_of, make, refuse_method, structural_misfit, takes_records
from trueup.reconciling.expected_errors import WORK, ErrorSimulation, chosen_level
from trueup.reconciling.method import Method, Solution
from trueup.registry import Registry

if TYPE_CHECKING:
    from trueup.model.family import FamilyCells

METHODS: Registry[Method] = Registry(
    "trueup.reconciling",
    {
        "tree-topdown": "tree_topdown.TreeTopDown",
        "multinomial-mode": "multinomial.MultinomialMode",
        "multinomial-sample": "multinomial.MultinomialSample",
        "tree-equality": "tree_topdown.TreeEquality",
        "margins-projection": "margins_projection.MarginsProjection",
        "histogram-tree": "histogram_tree.HistogramTree",
        "joined-tree": "joined_tree.JoinedTree",
        "family-tree": "family_tree.FamilyTree",
        "general-projection": "general_projection.GeneralProjection",
    },
)
"""Every method; the first that fits a structure is its default."""
MOST_SUMS = 40
"""Sums of published tables whose errors are simulated with those of the tables."""
MAX_EXACT_COUNT = 2**53
"""Whole numbers up to this are exact in double precision, in which the methods compute."""
MAX_TRUE_COUNT = 2**52
"""Largest true count or sum, so that noisy ones stay below `MAX_EXACT_COUNT`: no law's noise nears 2^52."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A reconciliation method, with all that it computes before any measured value is known."""

    method: Method
    constraints: Constraints
    state: Any

    @classmethod
    def of(cls, constraints: Constraints, headers: Sequence[Measured], method: Method) -> Prepared:
        """Return a method prepared for constraints and laws, or raise SpecError if it does not fit."""
        refuse_misfit(method, constraints, headers)
        return cls(method, constraints, method.prepare(constraints, headers))

    @property
    def simulation(self) -> ErrorSimulation:
        """Return a function that simulates the errors of releases by this method."""
        whole = (
            chosen_level(self.constraints.cells, WORK // self.method.effort) < 0
        )  # else some places are prepared
        return ErrorSimulation(
            self.method,
            self.constraints,
            (*published(self.constraints), *(sums_of_published(self.constraints) if whole else ())),
            self.state if whole else None,
        )

    def reconcile(self, measurements: Measurements) -> Release:
        """Return the release that the prepared method makes from given measurements."""
        refuse_inexact(measurements.flat)
        solution = self.method.apply(self.state, measurements.flat, measurements.rng())
        name = self.method.name
        if solution.status is not Status.SOLVED:
            raise unsolved(name, solution.status)
        checks = rules_kept(self.constraints, measurements, solution)
        if self.method.integer and (broken := [rule for rule, holds in checks.items() if not holds]):
            raise unsolved(name, f"its counts break {', '.join(broken)}, which is a defect of the method")
        return Release(
            measurements,
            solution.values,
            describe(self.method),
            checks,
            solution.stats,
            published=published(self.constraints),
            errors=self.method.errors(self.state),
            expects=self.simulation,
        )


@takes_records
def reconcile(
    measurements: Measurements | Release | Sequence[Measurements],
    method: Method | str | None = None,
    *,
    spec: Spec | Problem | Constraints | None = None,
) -> Release:
    """Turn measurements into counts that satisfy every constraint of their spec.

    Parameters
    ----------
    measurements
        Noisy counts, several of the same ones, or a Release, whose measurements are taken; equal ones give equal results.
    method
        A method with its parameters, or its name; by default the spec's.
    spec
        Constraints and method, where the measurements hold no spec, or to replace its own; or the constraints alone.

    Returns
    -------
    Release
        Counts of all `n` cells with the checks that they passed.

    Raises
    ------
    SpecError
        If the method does not fit the structure of the constraints.
    DataError
        If a noisy count is beyond 2^53.
    InfeasibleError
        If it is proved that no counts satisfy the constraints.
    ConvergenceError
        If the method finds no solution although none is proved not to exist.

    Examples
    --------
    >>> import pandas
    >>> from trueup.measuring import measure
    >>> from trueup.demo import AREAS
    >>> released = reconcile(measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [3, 4]})))
    >>> int(released.counts.sum()) == int(released.sums("all")[0]), bool((released.counts >= 0).all())
    (True, True)
    """
    from trueup.model.records.together import read_with_rules  # it loads posteriors

    measured, constraints, problem = read_with_rules(measurements, spec)
    if method is None and problem is not None and (family := _as_family(measured, problem)) is not measured:
        measured, constraints, problem = read_with_rules(family, spec)
    constraints = constraints.within(*measured.value_bounds)
    chosen = (
        build(method, {})
        if isinstance(method, str)
        else method or choose(problem.spec.reconcile if problem else {}, constraints)
    )
    return Prepared.of(constraints, measured.headers, chosen).reconcile(measured)


def _as_family(measurements: Measurements, problem: Problem) -> Measurements:
    """Return other publishers' noisy tables as a family of tables, if their margins form a family.

    Such tables are read into their full cross, which their own methods of inference take.
    """
    constraints = problem.constraints
    noisy = all(h.groups is None and h.law.additive and not h.law.joint for h in measurements.headers)
    family = noisy and measurements.guarantee.kind == "none" and not problem.spec.reconcile
    if not family or (cells := family_if_any(constraints)) is None:
        return measurements
    return replace(measurements, cells=cells)


def unsolved(method: str, why: str) -> ConvergenceError:
    """Return the error for a method that found no counts, although the constraints may be consistent."""
    return ConvergenceError(
        f"method '{method}' found no solution: {why}",
        remedy="use the method 'general-projection' with more `seconds`, or leave out some tables or rules",
    )


def published(constraints: Constraints) -> tuple[Margin, ...]:
    """Return the margins of the tables that a release publishes."""
    cells = constraints.cells
    kept = cells.coarsest.attributes
    if constraints.joined is not None:  # nothing is a sum of persons and households
        tables = (COUNTED_UNIT,), cells.finest.attributes
        return tuple(Margin(level, names) for level in cells.tree.levels for names in tables)
    if cells.is_family:
        return _published_of_family(cast("FamilyCells", cells), constraints)
    totals = (Margin(level, kept) for level in cells.tree.levels)
    every = {
        canonical(cells, m)
        for m in (*totals, *constraints.margins, *constraints.invariants, cells.finest)
        if not m.where  # a count of some units alone stands among the measurements
    }
    return _coarse_first(cells, every)


def _published_of_family(cells: FamilyCells, constraints: Constraints) -> tuple[Margin, ...]:
    """Return the margins of the tables that a release of a family of tables publishes."""
    totals = {Margin(level) for level in cells.tree.levels if cells.holders(Margin(level))}
    own = {canonical(cells, m) for m in (*constraints.margins, *constraints.invariants)}
    return _coarse_first(cells, totals.union(own, cells.tables, cells.separators))


def sums_of_published(constraints: Constraints) -> tuple[Margin, ...]:
    """Return up to `MOST_SUMS` margins that sum published tables and that readers may need."""
    if constraints.joined is not None:
        return ()
    cells, tables = constraints.cells, published(constraints)
    kept = cells.coarsest.attributes
    wanted = {
        canonical(cells, Margin(level, tuple(dict.fromkeys((*kept, *names)))))
        for table in tables
        for level in cells.tree.levels[: cells.tree.level(table.level) + 1]
        for names in (table.attributes, *((name,) for name in table.attributes))
    }
    return _coarse_first(cells, {margin for margin in wanted if cells.holds(margin)} - {*tables})[:MOST_SUMS]


def _coarse_first(cells: Cells, margins: Collection[Margin]) -> tuple[Margin, ...]:
    return tuple(sorted(margins, key=lambda m: (cells.tree.level(m.level), len(m.attributes), m.attributes)))


def choose(entry: Mapping[str, Any], constraints: Constraints) -> Method:
    """Return the reconciliation method that a spec names, or the default for the structure of its margins.

    Raises
    ------
    SpecError
        If the name or a parameter is unknown, or no method handles the structure.
    """
    name, parameters = entry_of(entry)
    return default(constraints) if name is None else build(name, parameters)


def default(constraints: Constraints) -> Method:
    """Return the first reconciliation method that handles the constraints."""
    for kind in METHODS:
        method = kind()
        if misfit(method, constraints) is None:
            return method
    structure = constraints.structure()
    fitting = (kind() for kind in METHODS if structure in kind.structures)
    if why := [f"'{method.name}' cannot: {misfit(method, constraints)}" for method in fitting]:
        raise SpecError(f"no method of reconciliation keeps these constraints: {'; '.join(why)}")
    raise SpecError(
        "no method of reconciliation keeps these constraints",
        needed=f"a structure among: {', '.join(sorted(set().union(*(k.structures for k in METHODS))))}",
        remedy="measure nested tables, or leave out the constraint that crosses them",
    )


def build(name: str, parameters: Mapping[str, Any]) -> Method:
    """Return the reconciliation method of the given name and parameters, or raise SpecError."""
    return make(METHODS, "reconciliation", name, parameters)


def misfit(method: Method, constraints: Constraints, headers: Sequence[Measured] = ()) -> str | None:
    """Return why a reconciliation method does not fit the constraints or measurements, or None if it fits."""
    structural = structural_misfit(method, constraints.structure())
    return structural or method.refuses(constraints) or (method.refuses_noise(headers) if headers else None)


def refuse_misfit(method: Method, constraints: Constraints, headers: Sequence[Measured] = ()) -> None:
    """Raise SpecError if the method does not fit the constraints or the measurements."""
    refuse_method(method, misfit(method, constraints, headers))


def refuse_inexact(counts: NDArray[np.int64], most: int = MAX_EXACT_COUNT) -> None:
    """Raise DataError if counts are too large for double precision to hold their sums exactly."""
    if (np.abs(counts) > most).any():
        raise DataError(
            f"a count or a sum of counts is beyond 2^{most.bit_length() - 1}; with noise it may pass 2^53, where "
            "reconciliation is not exact",
            needed=f"counts whose sums stay below 2^{most.bit_length() - 1}",
            remedy="count in larger units",
        )


def rules_kept(constraints: Constraints, measurements: Measurements, solution: Solution) -> dict[str, bool]:
    """Return, for each kind of rule, True if the released counts satisfy all rules of this kind."""
    counts, cells = solution.values, constraints.cells
    invariants = (
        (np.abs(header.sums(cells, counts) - values) <= slack(counts)).all()
        for header, values in zip(measurements.headers, measurements.values)
        if header.exact
    )
    whole = counts.dtype.kind in "iu" or bool(np.all(np.equal(np.mod(counts, 1), 0)))
    # Every published table is a sum of the same cells, so additivity holds by construction; the
    # check from the published files alone is `trueup check`.
    return {
        "whole numbers": whole,
        "every constraint": not violations(constraints, counts),
        "invariants exact": all(invariants),
    }
