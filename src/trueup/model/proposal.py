"""Proposals of levels, attributes and tables for a first spec, from column names and the codes of public places.

`Spec.of` drafts one from what was decided; here the decisions are proposed. No row of a confidential table is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trueup.errors import SpecError
from trueup.files.source import open_table
from trueup.model.columns_recognised import count_among, is_place, propose_levels
from trueup.model.draft import name_apart
from trueup.model.spec import Spec

_SPENT = Fraction(1, 2)
"""Budget (rho) of a first spec, until it is planned."""


@dataclass(frozen=True)
class Proposal:
    """A proposed first spec, with the decisions that are left to the user.

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
        The title and the protected unit of the spec.

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
    named = isinstance(table, list | tuple) and all(isinstance(name, str) for name in table)
    source = None if named else open_table(table)
    header = list(table) if source is None else source.columns()
    listed = source if places is None else open_table(places)
    if listed is None:
        raise SpecError("no list of places is given", needed="a file or a dataframe with all places")
    found = propose_levels(listed, None if places is None else header)
    used = {x for level in found for x in (level["column"], level.get("label")) if x}
    levels = [{"name": "all"}, *found]
    rest = [name for name in header if name not in used and not is_place(name)]
    return _proposed(title, unit, levels, rest, public=places is None)


def _proposed(
    title: str, unit: str, levels: list[dict[str, Any]], rest: Sequence[str], *, public: bool
) -> Proposal:
    attributes, table, left = propose_table(rest)
    called = [attribute["name"] for attribute in attributes]
    name_apart(levels, attributes)
    renamed = {old: attribute["name"] for old, attribute in zip(called, attributes)}
    for attribute in attributes:
        attribute.pop("column", None)  # a wide table has none for an attribute
    for cell in table.get("cell", ()):
        cell["where"] = {renamed[name]: value for name, value in cell["where"].items()}
    if public and table["kind"] == "records":
        raise SpecError(
            "the table has no column of counts, so that its rows are records, whose places are confidential",
            needed="the public list of all places in a file of its own",
            remedy="give the list of places as a separate file",
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
    """Return queries at every level for totals, for each attribute and for all attributes together, with equal budgets."""
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
    """Return the attributes, the spec's part on the table, and the columns left over, all judged by column names.

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
    if count := count_among(columns):
        return [], {"kind": "counts", "count": count}, [c for c in columns if c != count]
    return [], {"kind": "records"}, list(columns)
