"""A spec with planned budgets."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from trueup.model.cells import Margin
from trueup.model.problem import Problem, spec_and_text
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.planning.allocation import Allocation


def planned_spec(spec: Spec | Problem | str | Path, plan: Allocation) -> Spec:
    """Return the spec with the budgets of a plan; tables without budgets leave their query, empty queries the spec.

    Budgets that cost nothing, as that of a total that replacing a unit leaves alone, stay as they are.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo.areas import AREAS
    >>> from trueup.planning.plan import plan
    >>> found = plan(AREAS, pandas.DataFrame({"area": ["a", "b"]}), targets=["area=10@95%"])
    >>> sum(planned_spec(AREAS, found).queries[0].budgets.values()) == found.total
    True
    """
    budgets = dict(zip(map(_unordered, plan.levels), plan.budgets))
    free = {_unordered(name) for name, given in zip(plan.levels, plan.given) if not given}
    stated, _ = spec_and_text(spec)
    queries = tuple(_planned(query, budgets, free) for query in stated.queries)
    return stated.model_copy(update={"queries": tuple(q for q in queries if q is not None)})


def _unordered(table: str) -> tuple[str, frozenset[str]]:
    level, *attributes = table.split(" x ")
    return level, frozenset(attributes)


def _planned(query: Query, budgets: Mapping, free: set) -> Query | None:
    amounts: dict[str, Fraction] = {}
    for level, given in query.budgets.items():
        table = _unordered(str(Margin(level, query.attributes)))
        amounts[level] = given if table in free else budgets[table]
    kept = {level: amount for level, amount in amounts.items() if amount}
    return query.model_copy(update={query.currency: kept, "levels": ()}) if kept else None
