"""A first draft of a spec: from the names of a table's columns and from the public places, never from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.files.source import open_table
from trueup.files.table import require, select
from trueup.noise.rational import rational

Document = dict[str, Any]


def draft(
    table: Any,
    levels: Sequence[Any] | None,
    attributes: Any,
    public: Any,
    *,
    title: str | None = None,
    name: str | None = None,
    unit: str | None = None,
    neighbours: str | None = None,
    count: str | None = None,
    epsilon: Any = None,
    matters: str | None = None,
) -> tuple[Document, dict[str, str]]:
    """Draft the parts of a spec, and what is left to decide of them, by part; see `trueup.Spec.of`."""
    held, places = open_table(table), open_table(public)
    columns = held.columns()
    stated = [_level(level) for level in (common_columns(held, places) if levels is None else levels)]
    named = [level["column"] for level in stated if "column" in level]
    require(places, named)
    given = [_attribute(part) for part in _listed(attributes)]
    require(held, [*named, *(a.get("column", a["name"]) for a in given), *([count] if count else [])])
    if not stated or "column" in stated[0]:
        stated = [{"name": _free("all", [*named, *(a["name"] for a in given)])}, *stated]
    whole = rational(1 if epsilon is None else epsilon, "epsilon")
    document = {
        "title": title or "Untitled",
        "table": {
            "name": name or "dataset",
            "kind": "counts" if count else "records",
            "counts": unit or "person",
            **({"count": count} if count else {}),
        },
        "privacy": {"unit": unit or "person", "neighbours": neighbours or "add-remove"},
        "levels": stated,
        "attributes": given,
        "queries": queries([level["name"] for level in stated], [a["name"] for a in given], whole, matters),
    }
    free = [c for c in columns if c not in {*named, count, *(a.get("column", a["name"]) for a in given)}]
    return document, dict(_undecided(title, name, unit, count, epsilon, matters, whole, free))


def queries(
    levels: Sequence[str], attributes: Sequence[str], epsilon: Fraction, matters: str | None = None
) -> list[Document]:
    """Measure totals at every level and each attribute at the last: all alike, or one at half of the budget.

    Raises
    ------
    SpecError
        If what matters is none of the tables.

    Examples
    --------
    >>> queries(["all", "town"], [], Fraction(1), "town")
    [{'name': 'total', 'epsilon': {'all': Fraction(1, 2), 'town': Fraction(1, 2)}}]
    >>> queries(["all", "town"], ["sex"], Fraction(1), "town x sex")[0]["epsilon"]["all"]
    Fraction(1, 4)
    """
    names = [*levels, *(f"{levels[-1]} x {a}" for a in attributes)]
    if matters is not None and matters not in names:
        raise SpecError(f"'{matters}' is no table of the draft", needed=f"one of: {', '.join(names)}")
    others = max(len(names) - 1, 1)
    share = {
        name: epsilon / len(names)
        if matters is None or len(names) == 1
        else epsilon / (2 if name == matters else 2 * others)
        for name in names
    }
    total = {"name": "total", "epsilon": {level: share[level] for level in levels}}
    return [
        total,
        *(
            {"name": a, "attributes": [a], "epsilon": {levels[-1]: share[f"{levels[-1]} x {a}"]}}
            for a in attributes
        ),
    ]


def measured_tables(measured: Iterable[Any]) -> list[str]:
    """Name every table that the queries of a spec measure, as `queries` does."""
    return [" x ".join([level, *query.attributes]) for query in measured for level in query.budgets]


def attributes_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read attributes with their values from text.

    Raises
    ------
    SpecError
        If one has no values.

    Examples
    --------
    >>> attributes_of(["sex=f, m"])
    {'sex': ['f', 'm']}
    """
    found = {}
    for text in texts:
        name, _, values = text.partition("=")
        found[name.strip()] = [value.strip() for value in values.split(",") if value.strip()]
        if not found[name.strip()]:
            raise SpecError(
                f"the attribute '{text}' has no values", needed="all that it may have, such as sex=f,m"
            )
    return found


def common_columns(table: Any, places: Any) -> list[str]:
    """Columns that a table has in common with the public places, from few places to many."""
    columns = [c for c in places.columns() if c in set(table.columns())]
    if not columns:
        raise SpecError(
            "the table and the list of places have no column in common",
            needed="the same names for the columns of places in both",
            remedy="rename them, or name the levels",
        )
    sizes = {c: len(np.unique(values.astype(str))) for c, values in select(places, columns).items()}
    return sorted(columns, key=sizes.__getitem__)


def _level(level: Any) -> Document:
    if isinstance(level, str):
        return {"name": level, "column": level}
    if isinstance(level, Mapping) and "name" in level:
        return dict(level)
    raise SpecError(
        f"a {type(level).__name__} is given as a level", needed="the name of a column of the public places"
    )


def _listed(attributes: Any) -> Iterable[Any]:
    if isinstance(attributes, Mapping):
        return [{"name": name, "values": values} for name, values in attributes.items()]
    return [attributes] if isinstance(attributes, str) else attributes


def _attribute(attribute: Any) -> Document:
    """Refuse an attribute without values: those of the table would tell which of them occur."""
    if isinstance(attribute, Mapping) and attribute.get("values") and "name" in attribute:
        return {**attribute, "values": list(attribute["values"])}
    name = attribute.get("name") if isinstance(attribute, Mapping) else attribute
    shown = name if isinstance(name, str) else "..."
    raise SpecError(
        f"attribute '{shown}' comes without its values, which are not taken from confidential rows",
        needed="all values that it may have, whether or not anybody has them",
        remedy=f"attributes={{'{shown}': ['...', '...']}}",
    )


def _free(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _free(f"{name} places", taken)


def _undecided(
    title: str | None,
    name: str | None,
    unit: str | None,
    count: str | None,
    epsilon: Any,
    matters: str | None,
    whole: Fraction,
    free: Sequence[str],
) -> Iterable[tuple[str, str]]:
    if title is None:
        yield "title", "what the release is called"
    table = [] if name else ["the name under which the ledger keeps this dataset's budget"]
    if count is None and free:
        table.append(
            "whether each row is one of the units counted; if a column holds their number, the table is one of counts"
        )
    if table:
        yield "table", "; ".join(table)
    if unit is None:
        yield "privacy", "who is protected, and in how many rows one of them may stand"
    spent = "" if epsilon is not None else f"how much privacy loss to spend (epsilon = {whole} is drafted); "
    yield (
        "query",
        f"{spent}which tables matter most: each has the same share; `trueup plan` finds better ones",
    )
    yield "constraints", "what must hold: impossible combinations, counts that are published exactly"
