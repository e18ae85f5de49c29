"""Several releases of the same counts, each with its own noise, combined in one posterior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from trueup.errors import SpecError
from trueup.model.constraints import Constraints
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec


def read_together(several: Sequence[Measurements]) -> Measurements:
    """Put measurements of the same counts into one record for inference and reconciliation.

    It states no guarantee: what the releases cost together follows from what each states, and a ledger adds it up.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo.areas import AREAS
    >>> from trueup.measuring import measure
    >>> twice = [measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})) for _ in range(2)]
    >>> len(read_together(twice).headers), read_together(twice[:1]) is twice[0]
    (4, True)
    """
    if wrong := next((each for each in several if not isinstance(each, Measurements)), None):
        raise SpecError(
            f"a {type(wrong).__name__} stands among several measurements",
            needed="records that `trueup.measure` or `trueup.read_measurements` returned",
        )
    if not several:
        raise SpecError("no measurements are given", needed="at least one record")
    first, *others = several
    if not others:
        return first
    if any(cells_of(each) != cells_of(first) for each in others):
        raise SpecError(
            "the measurements are not of the same cells",
            needed="the same places, and the same attributes with the same values",
            remedy="infer from each of them alone",
        )
    if len({each.digest for each in several}) < len(several):
        raise SpecError("the same measurements are given twice", needed="each of them once")
    return replace(
        first,
        headers=tuple(header for each in several for header in each.headers),
        values=tuple(values for each in several for values in each.values),
        bounds=tuple(bound for each in several for bound in each.bounds),
        guarantee=replace(first.guarantee, charges=(), sentences=("Several releases: each states its own.",)),
        simulation=any(each.simulation for each in several),
    )


def cells_of(measurements: Measurements) -> tuple:
    """Return what two measurements have in common if they are of the same cells."""
    return measurements.cells.tree.digest, measurements.cells.attributes


def read_with_rules(
    source: Measurements | Release | Sequence[Measurements], spec: Spec | Problem | Constraints | None
) -> tuple[Measurements, Constraints, Problem | None]:
    """Return all measurements as one record, the constraints on the true counts, and the first problem, if one is known."""
    if isinstance(source, Release):
        source = source.measurements
    several = (source,) if isinstance(source, Measurements) else tuple(source)
    measured = read_together(several)
    if isinstance(spec, Constraints):
        return measured, spec, None
    problems = [measured.by(spec)] if spec else _distinct(each.by(None) for each in several)
    return measured, rules_together(problems, measured), problems[0]


def _distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first problem of each spec."""
    found: list[Problem] = []
    for problem in problems:
        if problem.spec not in (held.spec for held in found):
            found.append(problem)
    return found


def rules_together(problems: Sequence[Problem], measured: Measurements) -> Constraints:
    """Return the constraints of several problems together: the rules of all, and bounds published with the values."""
    return reduce(_both, (problem.constraints for problem in problems)).within(*measured.bounds)


def _both(one: Constraints, other: Constraints) -> Constraints:
    def merged(name: str) -> tuple[Any, ...]:
        held = getattr(one, name)
        return (*held, *(each for each in getattr(other, name) if each not in held))

    return replace(
        one,
        **{name: merged(name) for name in ("margins", "invariants", "zeros", "linear")},
        bounds=(*one.bounds, *other.bounds),
        nonnegative=one.nonnegative or other.nonnegative,
    )
