"""First drafts of specs from a table's column names and the public places, without reading rows.

One file: what is drafted and what is left to decide are one list of questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.files import Source, require
from trueup.files.source import open_table
from trueup.model.columns_recognised import (
    Document,
    attribute_parts,
    is_place,
    labels_of,
    one_for_each,
    propose_levels,
    several,
)
from trueup.model.names import bare_name, is_figure


class Decided(NamedTuple):
    """Decisions of the user on a drafted spec; see `trueup.Spec.of`."""

    title: str | None = None
    name: str | None = None
    unit: str | None = None
    neighbours: str | None = None
    count: str | None = None
    epsilon: Any = None
    matters: str | None = None
    counts: str | None = None
    id: str | None = None
    records: int | None = None
    keys: str | None = None
    tables: Sequence[str] = ()


def draft(
    table: Any, levels: Sequence[Any] | None, attributes: Any, public: Any, decided: Decided
) -> tuple[Document, dict[str, str]]:
    """Draft the parts of a spec, and list what remains to decide; see `trueup.Spec.of`."""
    title, name, unit, neighbours, count, epsilon, matters, counts, of_units, records, keys, tables = decided
    held = open_table(table)
    columns = held.columns()
    levels, tables = several(levels), several(tables)
    stated = _stated_levels(levels, public, columns)
    named = [level["column"] for level in stated if "column" in level]
    given = attribute_parts(attributes)
    used = [*named, *(a.get("column", a["name"]) for a in given), *filter(None, [count, of_units])]
    place = _own_place_columns(held, public, named) if keys is None else None
    require(held, [name for name in used if not place or name in place or name not in named])
    if not tables:
        _refuse_vast(given)
    if not stated or "column" in stated[0]:
        stated = [{"name": "all"}, *stated]
    name_apart(stated, given)
    whole = rational(1 if epsilon is None else epsilon, "epsilon")
    places, names = [level["name"] for level in stated], [a["name"] for a in given]
    drafted = (
        queries_of_tables(tables, places, names, whole, matters)
        if tables
        else queries(places, names, whole, matters)
    )
    counted = counts or (unit or "person" if records in (None, 1) else "record")
    document = {
        "title": title or "Untitled",
        "table": {
            "name": name or "dataset",
            "kind": "counts" if count else "records",
            "counts": counted,
            **({"count": count} if count else {}),
            **({"keys": keys} if keys else {}),
            **({"place": place} if place else {}),
        },
        "privacy": {
            "unit": unit or "person",
            "neighbours": neighbours or "add-remove",
            **_limit(of_units, records, unit or "person"),
        },
        "levels": stated,
        "attributes": given,
        "queries": drafted,
        **(
            {"reconcile": {"method": "family-tree"}}
            if tables and _stops_above(drafted, places, names)
            else {}
        ),
    }
    unused = [c for c in columns if c not in used]
    return document, dict(_undecided(title, name, unit, count, counted, epsilon, matters, whole, unused))


_IDENTIFIER = re.compile(r"(^|[_ ])(id|nr|no|number|key|ssn|pid)$|(?-i:[a-z]I[dD]$)", re.IGNORECASE)
"""Names of columns that identify somebody."""
MOST_COMBINATIONS = 1_000_000
"""Most combinations of attribute values whose joint table a draft measures."""


def _refuse_vast(attributes: Sequence[Document]) -> None:
    combinations = prod(len(attribute.get("values") or attribute["bins"]) for attribute in attributes)
    if combinations > MOST_COMBINATIONS:
        raise SpecError(
            f"the attributes have {combinations:,} combinations of values",
            needed=f"at most {MOST_COMBINATIONS:,} combinations, each of which is a count at every place",
            remedy="leave out attributes, or group their values",
        )


def _stated_levels(levels: Sequence[Any] | None, public: Any, columns: Sequence[str]) -> list[Document]:
    """Return the given levels, or those that the public places suggest; none without places."""
    if public is None:
        if levels:
            raise SpecError(
                "levels are named, but no public list of places is given",
                needed="all places, occupied or not",
                remedy="give the list (--geography FILE, in Python public=...), or name no level",
            )
        return []
    places = open_table(public)
    stated = [_level(level) for level in (propose_levels(places, columns) if levels is None else levels)]
    require(places, [level["column"] for level in stated if "column" in level])
    labels = labels_of(places, [level for level in levels or () if isinstance(level, str)])
    return [{**({"label": labels[k]} if (k := level["name"]) in labels else {}), **level} for level in stated]


def _own_place_columns(table: Source, public: Any, named: Sequence[str]) -> list[str] | None:
    """Return the table's place columns if the public list determines the others from them; else None."""
    held = [name for name in named if name in table.columns()]
    if held in ([], list(named)) or not one_for_each(open_table(public), held, named):
        return None
    return list(dict.fromkeys(held))


def _limit(column: str | None, records: int | None, unit: str) -> Document:
    """Return the part of a spec that limits the rows of one unit, with the column that identifies the unit."""
    if records is None:
        if column is None:
            return {}
        raise SpecError(
            f"column '{column}' identifies the {unit} of each row, but no limit on the rows of one {unit} is given",
            needed="a whole number above zero",
            remedy="give the limit (--most 5, in Python records=5); rows beyond it are left out, and the noise grows with it",
        )
    return {**({"id": column} if column else {}), "contribution": {"records": records}}


def name_apart(levels: Sequence[Document], attributes: Sequence[Document]) -> None:
    """Rename levels and attributes so that no two names are alike or equal a column of figures."""
    taken: list[str] = []
    columns = [level["column"] for level in levels if "column" in level]
    root, *others = levels
    for level in others:
        level["name"] = _apart(level["name"].replace(".", " "), taken, " places")
        taken += [level["name"], *([f"{level['name']} name"] if "label" in level else [])]
    taken += columns
    root["name"] = _apart(root["name"], [*taken, *(a["name"] for a in attributes)], " places")
    taken.append(root["name"])
    for attribute in attributes:
        column = attribute.get("column", attribute["name"])
        attribute["name"] = _apart(attribute["name"].replace(".", " "), taken, " group")
        if column != attribute["name"]:
            attribute["column"] = column
        taken.append(attribute["name"])


def _apart(name: str, taken: Sequence[str], ending: str) -> str:
    """Return a name that differs from those taken and from figures; an ending is added as often as necessary."""
    free = name.strip() and not is_figure(name) and bare_name(name) not in map(bare_name, taken)
    return name if free else _apart(f"{name}{ending}".strip(), taken, ending)


def queries(
    levels: Sequence[str], attributes: Sequence[str], epsilon: Fraction, matters: str | None = None
) -> list[Document]:
    """Return queries for totals at every level and, at the last level, for growing sets of attributes.

    Each table is one of sums of the next, so that the last determines all, and every method takes them.

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
    >>> [query["name"] for query in queries(["town"], ["sex", "age"], Fraction(1))]
    ['total', 'sex', 'sex x age']
    """
    chain = [list(attributes[: k + 1]) for k in range(len(attributes))]
    names = [*levels, *(" x ".join([levels[-1], *by]) for by in chain)]
    share = _shares(names, epsilon, matters)
    total = {
        "name": untaken("total", [" x ".join(by) for by in chain]),
        "epsilon": {level: share[level] for level in levels},
    }
    measured = (
        {
            "name": " x ".join(by),
            "attributes": by,
            "epsilon": {levels[-1]: share[" x ".join([levels[-1], *by])]},
        }
        for by in chain
    )
    return [total, *measured]


def queries_of_tables(
    tables: Sequence[str],
    levels: Sequence[str],
    attributes: Sequence[str],
    epsilon: Fraction,
    matters: str | None = None,
) -> list[Document]:
    """Return queries that measure exactly the given tables.

    Examples
    --------
    >>> queries_of_tables(["town", "town x sex", "sex x age"], ["all", "town"], ["sex", "age"], Fraction(1))[1:]
    [{'name': 'sex', 'attributes': ['sex'], 'epsilon': {'town': Fraction(1, 3)}}, \
{'name': 'sex x age', 'attributes': ['sex', 'age'], 'epsilon': {'all': Fraction(1, 3)}}]
    """
    share = _shares(list(dict.fromkeys(tables)), epsilon, matters)
    found: dict[tuple[str, ...], dict[str, Fraction]] = {}
    for table, amount in share.items():
        parts = [part.strip() for part in table.split(" x ")]
        level, by = (parts[0], parts[1:]) if parts[0] in levels else (levels[0], parts)
        if unknown := [name for name in by if name not in attributes]:
            raise SpecError(
                f"table '{table}' names '{unknown[0]}'",
                needed=f"one level or none ({', '.join(levels)}), then attributes ({', '.join(attributes) or 'none are given'})",
            )
        found.setdefault(tuple(name for name in attributes if name in by), {})[level] = amount
    named = [" x ".join(by) for by in found if by]
    return [
        {
            "name": " x ".join(by) or untaken("total", named),
            **({"attributes": list(by)} if by else {}),
            "epsilon": budgets,
        }
        for by, budgets in found.items()
    ]


def _stops_above(queries: Sequence[Document], levels: Sequence[str], attributes: Sequence[str]) -> bool:
    """Return True if one table contains all others and is not the full cross."""
    tables = [(levels.index(level), {*q.get("attributes", ())}) for q in queries for level in q["epsilon"]]
    largest = max(depth for depth, _ in tables), set().union(*(by for _, by in tables))
    return largest in tables and largest != (len(levels) - 1, {*attributes})


def _shares(names: Sequence[str], epsilon: Fraction, matters: str | None) -> dict[str, Fraction]:
    """Divide epsilon among tables: evenly, or half of it to the table that matters most and the rest evenly."""
    if matters is not None and matters not in names:
        raise SpecError(f"'{matters}' is not a table of the draft", needed=f"one of: {', '.join(names)}")
    even = matters is None or len(names) == 1
    return {
        name: epsilon / len(names) if even else epsilon / (2 if name == matters else 2 * (len(names) - 1))
        for name in names
    }


def measured_tables(measured: Iterable[Any]) -> list[str]:
    """Return the names of all tables that the queries of a spec measure."""
    return [" x ".join([level, *query.attributes]) for query in measured for level in query.budgets]


def _level(level: Any) -> Document:
    if isinstance(level, str):
        return {"name": level, "column": level}
    if isinstance(level, Mapping) and "name" in level:
        return dict(level)
    raise SpecError(
        f"a {type(level).__name__} is given as a level", needed="the name of a column of the public places"
    )


def untaken(name: str, taken: Sequence[str]) -> str:
    """Return the name if it is not taken, else the name with an ending that makes it free."""
    return name if name not in taken else untaken(f"{name} of all", taken)


def _undecided(
    title: str | None,
    name: str | None,
    unit: str | None,
    count: str | None,
    counted: str,
    epsilon: Any,
    matters: str | None,
    whole: Fraction,
    free: Sequence[str],
) -> Iterable[tuple[str, str]]:
    if title is None:
        yield "title", "what the release is called"
    table = [] if name else ["the name under which the ledger keeps this dataset's budget"]
    if counted == "record":
        table.append("what one record is, such as a visit: `counts` says 'record'")
    elif count is None and free:
        table.append(
            "whether each row is one of the units counted; if a column holds their number, the table is one of counts"
        )
        if ids := [name for name in free if _IDENTIFIER.search(name)]:
            table.append(
                f"whether one of those protected stands in several rows under the same {' or '.join(ids)}: then --unit, --id and "
                "--most"
            )
    if count is not None and (other := [name for name in free if not is_place(name)]):
        table.append(
            f"whether the columns {', '.join(other)} are attributes: in a table of counts each cell has one row"
        )
    if table:
        yield "table", "; ".join(table)
    if unit is None:
        yield "privacy", "who is protected, and in how many rows one of them may stand"
    spent = "" if epsilon is not None else f"how much privacy loss to spend (epsilon = {whole} is drafted); "
    share = f"how the other tables share what '{matters}' leaves: evenly"
    even = "which tables matter most: each has the same share"
    yield "query", f"{spent}{share if matters else even}; `trueup plan` finds better shares"
    yield "constraints", "what must hold: impossible combinations, counts that are published exactly"
