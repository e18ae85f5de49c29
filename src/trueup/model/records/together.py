"""Several sets of measurements as one problem: of the same counts, or of several periods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.names import PERIOD
from trueup.model.problem import Problem
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release
from trueup.model.spec import Spec


def read_together(several: Sequence[Measurements]) -> Measurements:
    """Join several sets of measurements of the same counts into one record.

    It states no guarantee: what the releases cost together follows from what each states, and a ledger adds it up.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> from trueup.measuring import measure
    >>> twice = [measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})) for _ in range(2)]
    >>> len(read_together(twice).headers), read_together(twice[:1]) is twice[0]
    (4, True)
    """
    if wrong := next((each for each in several if not isinstance(each, Measurements)), None):
        raise SpecError(
            f"a {type(wrong).__name__} is given among the measurements",
            needed="records that `trueup.measure` or `trueup.read_measurements` returned",
        )
    if not several:
        raise SpecError("no measurements are given", needed="at least one measurement")
    first, *others = several
    if not others:
        return first
    if any(cells_of(each) != cells_of(first) for each in others):
        raise SpecError(
            "the measurements have different "
            f"{'attributes' if all(cells_of(each)[0] == cells_of(first)[0] for each in others) else 'places'}",
            needed="the same places, and the same attributes with the same values",
            remedy="infer from each of them alone",
        )
    if len({each.digest for each in several}) < len(several):
        raise SpecError("the same measurements are given twice", needed="different records of measurements")
    return replace(
        first,
        headers=tuple(header for each in several for header in each.headers),
        values=tuple(values for each in several for values in each.values),
        bounds=tuple(bound for each in several for bound in each.bounds),
        guarantee=replace(first.guarantee, charges=(), sentences=("Several releases: each states its own.",)),
        simulation=any(each.simulation for each in several),
    )


def cells_of(measurements: Measurements) -> tuple:
    """Return the places' digest and the attributes, which measurements of the same counts have in common."""
    return measurements.cells.tree.digest, measurements.cells.attributes


def read_with_rules(
    source: Measurements | Release | Sequence[Measurements], spec: Spec | Problem | Constraints | None
) -> tuple[Measurements, Constraints, Problem | None]:
    """Return all measurements as one record, the constraints on true counts, and the first known problem or None."""
    if isinstance(source, Release):
        source = source.measurements
    several = (source,) if isinstance(source, Measurements) else tuple(source)
    measured = read_together(several)
    if isinstance(spec, Constraints):
        return measured, spec, None
    problems = [measured.by(spec)] if spec else _distinct_problems(each.by(None) for each in several)
    return measured, rules_together(problems, measured), problems[0]


def _distinct_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return one problem for each distinct spec, the first that has it."""
    found: list[Problem] = []
    for problem in problems:
        if problem.spec not in (held.spec for held in found):
            found.append(problem)
    return found


def rules_together(problems: Sequence[Problem], measured: Measurements) -> Constraints:
    """Return constraints that combine those of several problems and the bounds of the measurements."""
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


def link_periods(source: Mapping[str, Measurements | Release]) -> tuple[Measurements, Constraints]:
    """Join measurements of several periods into one record with the period as an attribute; also return its constraints.

    Its prior is that of a histogram: how the counts of a place divide among periods varies around how they do at the place
    above it, with a concentration that is estimated. So periods inform each other as far as they are alike. They are not
    ordered: one is as near to the next as to any other.

    Parameters
    ----------
    source
        Names of periods, in order, and what was measured in each: equal places, attributes and laws, noise of its own.

    Raises
    ------
    SpecError
        If there are less than two periods, or they differ in more than their values, or cannot be linked.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> from trueup.measuring import measure
    >>> years = [measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": n})) for n in ([300, 400], [310, 390])]
    >>> measured, constraints = link_periods(dict(zip(["2025", "2026"], years)))
    >>> [str(header.margin) for header in measured.headers], constraints.structure()
    (['all x period', 'area x period'], 'histogram')
    """
    names = tuple(map(str, source))
    each = [held.measurements if isinstance(held, Release) else held for held in source.values()]
    if len(names) < 2 or not all(names) or not all(isinstance(held, Measurements) for held in each):
        raise SpecError(
            "the mapping of periods has fewer than two names"
            if len(names) < 2
            else "a period has no name, or is not given measurements",
            needed="two or more names, each with the measurements of a period",
        )
    first, *others = each
    for name, held in zip(names[1:], others):
        _refuse_different(f"the periods '{names[0]}' and '{name}'", first, held)
    rules = [held.by(None).constraints.within(*held.bounds) for held in each]
    if reason := _refuses(first.cells, rules[0], first.headers):
        raise SpecError(
            f"periods cannot be linked here: {reason}",
            remedy="infer each period alone, and compare the posteriors",
        )
    cells = Cells(first.cells.tree, (*first.cells.attributes, Attribute(PERIOD, names, partition=False)))
    both = replace(
        first,
        cells=cells,
        headers=tuple(replace(header, margin=_by_period(header.margin)) for header in first.headers),
        values=tuple(np.stack(values, axis=1).ravel() for values in zip(*(held.values for held in each))),
        bounds=(),
        guarantee=replace(first.guarantee, charges=(), sentences=("Several periods: each states its own.",)),
        simulation=any(held.simulation for held in each),
        left_out=None,
    )
    return both, _rules_by_period(cells, rules)


def two_periods(record: Any, periods: Sequence[str] | None = None) -> tuple[Posterior, Posterior]:
    """Return the separate posteriors of two periods from a joint posterior, by default of the last two.

    Raises
    ------
    SpecError
        If it is no posterior of several periods, or a period is not among them.
    """
    at = _axis_of_periods(record) if isinstance(record, Posterior) and not record.cells.is_family else None
    if at is None:
        raise SpecError(
            "one record without several periods is given, so that nothing can be compared",
            needed=f"two records to compare, or a posterior with the attribute '{PERIOD}'",
        )
    names = record.cells.attributes[at].values
    wanted = tuple(periods) if periods is not None else names[-2:]
    if len(wanted) != 2 or wanted[0] == wanted[1] or not set(wanted) <= set(names):
        raise SpecError(
            f"the periods {', '.join(map(repr, wanted))} are requested", needed=f"two of {', '.join(names)}"
        )
    first, second = (_of_period(record, at, names.index(name)) for name in wanted)
    return first, second


def _axis_of_periods(posterior: Posterior) -> int | None:
    found = [i for i, a in enumerate(posterior.cells.attributes) if a.name == PERIOD and len(a.values) > 1]
    return found[0] if found else None


def _of_period(posterior: Posterior, at: int, period: int) -> Posterior:
    cells, draws = posterior.cells, posterior.draws
    table = draws.reshape(*draws.shape[:2], *cells.shape)
    own = np.take(table, period, axis=3 + at).reshape(*draws.shape[:2], -1)
    others = tuple(a for i, a in enumerate(cells.attributes) if i != at)
    drawn = replace(posterior.drawn, draws=own, marginals={}, tables=(), mode=None, r_hat=None, ess=None)
    return replace(posterior, cells=Cells(cells.tree, others), drawn=drawn, noisy=None, released=None)


def _refuse_different(which: str, one: Measurements, other: Measurements) -> None:
    """Refuse two periods that differ in places, tables or laws."""
    if cells_of(one) != cells_of(other):
        raise SpecError(
            f"{which} have different {'attributes' if cells_of(one)[0] == cells_of(other)[0] else 'places'}",
            needed="the same places and attributes in both",
            remedy="infer each alone, and compare them by `trueup change`, which takes a crosswalk of places",
        )
    if _laws(one.headers) != _laws(other.headers):
        raise SpecError(
            f"{which} have different tables, or different noise on a table",
            needed="two releases with the same tables and noise, by the same spec",
            remedy="infer each alone, and compare them by `trueup change`",
        )
    if one.digest == other.digest:
        raise SpecError(f"{which} are the same measurements", needed="two different releases")


def _laws(headers: Sequence[Measured]) -> list[Any]:
    return [(h.query, h.margin, h.law.name, sorted(h.law.parameters().items())) for h in headers]


def _refuses(cells: Cells, rules: Constraints, headers: Sequence[Measured]) -> str | None:
    """Return the reason why these tables cannot form a histogram by period, or None."""
    if cells.is_family or rules.joined is not None or rules.structure() == "general":
        return "they hold several tables, or linear rules, and one table without them is needed"
    if len(cells.tree.levels) < 2:
        return "they have no places, and places on two levels or more are needed"
    if PERIOD in (*cells.tree.levels, *(a.name for a in cells.attributes)):
        return f"a level or an attribute is called '{PERIOD}'"
    if any(header.margin.where or header.groups is not None for header in headers):
        return "a table counts some units or places alone"
    return None


def _by_period(margin: Margin) -> Margin:
    return replace(margin, attributes=(*margin.attributes, PERIOD))


def _rules_by_period(cells: Cells, rules: Sequence[Constraints]) -> Constraints:
    """Return the constraints on the counts of all periods: the common rules, and the bounds of each period."""
    first = rules[0]
    if len({tuple((b.margin, b.where) for b in each.bounds) for each in rules}) > 1:
        raise SpecError("the periods have bounds on different tables", needed="the same bounds in all specs")
    bounds = tuple(
        replace(
            alike[0],
            margin=_by_period(alike[0].margin),
            lower=_limits([b.lower for b in alike], -np.inf, cells, alike[0].margin),
            upper=_limits([b.upper for b in alike], np.inf, cells, alike[0].margin),
        )
        for alike in zip(*(each.bounds for each in rules))
    )
    return replace(
        first,
        cells=cells,
        margins=tuple(map(_by_period, first.margins)),
        invariants=tuple(map(_by_period, first.invariants)),
        bounds=bounds,
        periods=True,
    )


def _limits(given: Sequence[Any], none: float, cells: Cells, margin: Margin) -> NDArray[np.float64] | None:
    """Return the limits of every group in every period, in one array; None if no period has any."""
    if all(limits is None for limits in given):
        return None
    groups = cells.size(margin)
    each = [none if limits is None else limits for limits in given]
    return np.stack([np.broadcast_to(np.asarray(one, float), groups) for one in each], axis=1).ravel()
