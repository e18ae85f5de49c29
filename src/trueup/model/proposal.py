"""Propose levels, attributes and tables by the names of a table's columns and the codes of the public places, for a first spec.

`Spec.of` drafts one from what was decided; here the decisions are proposed. No row of a confidential table is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.files.source import open_table
from trueup.files.table import Columns
from trueup.model.spec import Spec

CODES = {
    15: {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15},
    12: {"state": 2, "county": 5, "tract": 11, "block group": 12},
    11: {"state": 2, "county": 5, "tract": 11},
    5: {"state": 2, "county": 5},
}
"""Levels of the codes of the United States by their length, each with the characters that it takes."""
_CODE = re.compile(r"geo_?(id|code)\d*|fips|gisjoin|geography", re.IGNORECASE)
_PLACE = re.compile(
    r"nation|country|region|state|province|county|district|municipality|commune|city|town|tract|zone|"
    r"block_?group|block|area|ward|vtd|parish|place|postcode|zip|lsoa|msoa|oa|nuts\d?|canton|land|kreis",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(.*?)[_ ]?(name|label)s?$", re.IGNORECASE)
_COUNT = re.compile(r"n|count|counts|pop|population|persons|people|total|households|number", re.IGNORECASE)
_SPENT = Fraction(1, 2)
"""What a first spec spends, in rho: to be planned."""


@dataclass(frozen=True)
class Proposal:
    """A spec to begin with, and what it leaves to decide.

    Attributes
    ----------
    spec
        Levels, and the attributes that a wide table's columns name.
    left
        Columns of the table that it does not use: attributes, of which somebody must say the values.
    """

    spec: Spec
    left: tuple[str, ...]


def propose_spec(table: Any, places: Any = None, *, title: str = "Counts", unit: str = "person") -> Proposal:
    """Propose a spec from the names of a table's columns and the public list of places.

    Parameters
    ----------
    table
        The table: a path, a dataframe, or the names of its columns. Its names are read, never its rows.
    places
        The public list of places: a path or a dataframe. None where the list of places in the table is public itself:
        then, and only then, its columns of places are read.
    title, unit
        Of the spec.

    Returns
    -------
    Proposal
        Every proposal is by names and lengths of codes; a budget is to be planned.

    Raises
    ------
    TrueupError
        If a file cannot be read, or no column of places is found.

    Examples
    --------
    >>> import pandas
    >>> places = pandas.DataFrame({"state": ["01", "01", "02"], "county": ["001", "003", "001"]})
    >>> found = propose_spec(["state", "county", "sex"], places)
    >>> [level.name for level in found.spec.levels], found.spec.table.kind, found.left
    (['all', 'state', 'county'], 'records', ('sex',))
    """
    source = None if _is_header(table) else open_table(table)
    header = list(table) if source is None else source.columns()
    listed = source if places is None else open_table(places)
    if listed is None:
        raise SpecError("no list of places is given", needed="a file or a dataframe with all places")
    known = listed.columns()
    named = [name for name in known if name in header or places is not None]
    columns = [name for name in named if _is_place(name)] or (named if places is not None else [])
    if not columns:
        raise SpecError(
            "no column of places is found in the table",
            needed="columns such as state, county, block or GEOID",
            remedy="give the list of places as a file of its own",
        )
    levels = propose_levels(listed.select(columns))
    used = {x for level in levels for x in (level.get("column"), level.get("label")) if x}
    rest = [name for name in header if name not in used and not _is_place(name)]
    return _proposed(title, unit, levels, rest, public=places is None)


def _is_header(table: Any) -> bool:
    return isinstance(table, list | tuple) and all(isinstance(name, str) for name in table)


def _is_place(name: str) -> bool:
    label = _LABEL.fullmatch(name)
    return bool(_CODE.fullmatch(name) or _PLACE.fullmatch(label[1] if label else name))


def propose_levels(places: Columns) -> list[dict[str, Any]]:
    """Propose levels from the public places: prefixes of a known code, or columns from few places to many.

    Examples
    --------
    >>> [level["name"] for level in propose_levels({"GEOID": np.array(["01001", "01003"])})]
    ['all', 'state', 'county']
    """
    text = {name: np.array([str(value) for value in column]) for name, column in places.items()}
    for name in (name for name in text if _CODE.fullmatch(name)):
        lengths = set(np.char.str_len(text[name]).tolist())
        if len(lengths) == 1 and (ladder := CODES.get(lengths.pop())):
            return [{"name": "all"}, *_prefixes(name, ladder)]
    labels = {match[1]: name for name in text if (match := _LABEL.fullmatch(name)) and match[1] in text}
    keys = [name for name in text if name not in labels.values() and (text[name] != "").any()]
    keys.sort(key=lambda name: len(np.unique(text[name])))
    levels: list[dict[str, Any]] = [{"name": "all"}]
    for name in keys:
        label = {"label": labels[name]} if name in labels else {}
        levels.append({"name": name if name != "all" else "place", "column": name, **label})
    return levels


def _prefixes(column: str, ladder: Mapping[str, int]) -> list[dict[str, Any]]:
    *inner, last = ladder
    found: list[dict[str, Any]] = [{"name": name, "column": column, "prefix": ladder[name]} for name in inner]
    return [*found, {"name": last, "column": column}]


def _proposed(
    title: str, unit: str, levels: list[dict[str, Any]], rest: Sequence[str], *, public: bool
) -> Proposal:
    attributes, table, left = propose_table(rest)
    if public and table["kind"] == "records":
        raise SpecError(
            "the table has no column of counts, so its rows are records, whose places are confidential",
            needed="the public list of all places",
            remedy="give the list of places as a file of its own",
        )
    table = {"name": title, **table, "counts": unit, **({"keys": "public"} if public else {})}
    document = {
        "title": title,
        "table": table,
        "privacy": {"unit": unit, "neighbours": "add-remove"},
        "level": levels,
        **({"attribute": attributes} if attributes else {}),
        "query": queries_of([str(level["name"]) for level in levels], [a["name"] for a in attributes]),
    }
    return Proposal(Spec(**document), tuple(left))


def queries_of(levels: Sequence[str], attributes: Sequence[str]) -> list[dict[str, Any]]:
    """Totals, each attribute, and all of them together, on every level: equal shares of a budget to be planned."""
    sets = [(), *((name,) for name in attributes), *([tuple(attributes)] if len(attributes) > 1 else [])]
    share = _SPENT / (len(sets) * len(levels))
    return [
        {
            "name": " by ".join(names) or "total",
            **({"attributes": list(names)} if names else {}),
            "noise": "discrete-gaussian",
            "levels": list(levels),
            "rho": str(share),
        }
        for names in sets
    ]


def propose_table(
    columns: Sequence[str],
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Attributes, the table's part of the spec, and the columns that are left, from the names of columns that hold no place.

    Columns that share a beginning (`pop_white`, `pop_black`) are the values of an attribute; families with the same endings
    (`female_old`, `male_old`) are two attributes, unless a column has the family's own name and is its total.

    Examples
    --------
    >>> attributes, table, left = propose_table(["f_young", "f_old", "m_young", "m_old"])
    >>> [a["values"] for a in attributes], len(table["cell"]), left
    ([['f', 'm'], ['young', 'old']], 4, [])
    >>> propose_table(["sex", "age"])[1:]
    ({'kind': 'records'}, ['sex', 'age'])
    """
    families: dict[str, list[str]] = {}
    for name in columns:
        first, _, ending = name.partition("_")
        if ending:
            families.setdefault(first, []).append(ending)
    families = {first: endings for first, endings in families.items() if len(endings) > 1}
    whole = [first for first in families if first in columns]
    if families:
        first = whole[0] if whole else next(iter(families))
        alike = [] if whole else [name for name, ends in families.items() if ends == families[first]]
        crossed = alike if len(alike) > 1 else []
        attributes = [{"name": "category", "values": families[first]}]
        if crossed:
            attributes.insert(0, {"name": "kind", "values": crossed})
        cells = [
            {"count": f"{name}_{end}", "where": {**({"kind": name} if crossed else {}), "category": end}}
            for name in (crossed or [first])
            for end in families[first]
        ]
        used = {cell["count"] for cell in cells}
        return attributes, {"kind": "counts", "cell": cells}, [c for c in columns if c not in used]
    if counts := [name for name in columns if _COUNT.fullmatch(name)]:
        return [], {"kind": "counts", "count": counts[0]}, [c for c in columns if c != counts[0]]
    return [], {"kind": "records"}, list(columns)
