"""Recognition of levels, readable names and attributes for a first spec, by column names, codes and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from csv import reader
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.files import Source, select

Document = dict[str, Any]

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
_CODED = re.compile(r"[_ ]?(code|id|no|nr|number|key)$", re.IGNORECASE)
_COUNT = re.compile(r"n|count|counts|pop|population|persons|people|total|households|number", re.IGNORECASE)


def propose_levels(places: Source, header: Sequence[str] | None = None) -> list[Document]:
    """Propose levels from the public places: prefixes of a known code, or columns from few places to many.

    Parameters
    ----------
    places
        The public list of places.
    header
        The names of the table's columns, among which those of places must be; None where the list is the table itself:
        then columns are taken that are called as places are.

    Examples
    --------
    >>> import pandas
    >>> from trueup.files.source import open_table
    >>> found = propose_levels(open_table(pandas.DataFrame({"GEOID": ["01001", "01003"], "n": [3, 4]})))
    >>> [(level["name"], level.get("prefix")) for level in found]
    [('state', 2), ('county', None)]
    >>> named = pandas.DataFrame({"town": ["a", "b"], "town_name": ["A", "B"]})
    >>> propose_levels(open_table(named), ["town", "sex"])
    [{'name': 'town', 'column': 'town', 'label': 'town_name'}]
    """
    known = places.columns()
    keys = [name for name in known if (is_place(name) if header is None else name in header)]
    labels = labels_of(places, keys)
    keys = [name for name in keys if name not in labels.values() and not _COUNT.fullmatch(name)]
    if header is not None:
        keys += _larger(places, keys, labels)
    if not keys:
        raise SpecError(
            "no column of places is found in the table"
            if header is None
            else "the table and the list of places have no column in common",
            needed="columns such as state, county, block or GEOID"
            if header is None
            else "the same names for the columns of places in both",
            remedy="rename them, name the levels, give the list of places as a file of its own, or make the header the first row",
        )
    text = {name: column.astype(str) for name, column in select(places, keys).items()}
    for name in filter(_CODE.fullmatch, keys):
        lengths = set(np.char.str_len(text[name]).tolist())
        if len(lengths) == 1 and (ladder := CODES.get(lengths.pop())):
            return _prefixes(name, ladder)
    keys.sort(key=lambda name: len(np.unique(text[name])))
    return [
        {"name": name, "column": name} | ({"label": labels[name]} if name in labels else {})
        for name in keys
        if (text[name] != "").any()
    ]


def labels_of(places: Source, keys: Sequence[str]) -> dict[str, str]:
    """Return the columns with readable names of keys, such as `town_name` for `town`.

    Examples
    --------
    >>> import pandas
    >>> from trueup.files.source import open_table
    >>> schools = pandas.DataFrame({"School Code": ["01", "02"], "School Name": ["Park", "Hill"]})
    >>> labels_of(open_table(schools), ["School Code"])
    {'School Code': 'School Name'}
    """
    named = {own: name for name in places.columns() if (own := _labelled(name))}
    found = {key: named[key] for key in keys if key in named}
    for key in keys:
        name = named.get(_CODED.sub("", key))
        if key not in found and name not in (None, key, *keys) and one_for_each(places, [key], [key, name]):
            found[key] = name
    return found


def _larger(places: Source, keys: Sequence[str], labels: Mapping[str, str]) -> list[str]:
    """Return the columns of larger places that only the public list has, with one value for each place."""
    others = [name for name in places.columns() if is_place(name) and name not in {*keys, *labels.values()}]
    return [name for name in others if keys and one_for_each(places, keys, [name])]


def one_for_each(places: Source, keys: Sequence[str], others: Sequence[str]) -> bool:
    """Return True if rows of the public list with equal keys also agree in the other columns."""
    rows = select(places, list(dict.fromkeys([*keys, *others])))
    alike = set(zip(*(rows[name].tolist() for name in keys)))
    return len(alike) == len(set(zip(*(column.tolist() for column in rows.values()))))


def _labelled(name: str) -> str | None:
    """Return the key column that a name such as `town_name` refers to; None for other names."""
    found = _LABEL.fullmatch(name)
    return found[1] if found else None


def _prefixes(column: str, ladder: Mapping[str, int]) -> list[Document]:
    *inner, last = ladder
    found: list[Document] = [{"name": name, "column": column, "prefix": ladder[name]} for name in inner]
    return [*found, {"name": last, "column": column}]


def is_place(name: str) -> bool:
    """Return True if a column's name suggests places or readable names of places.

    Examples
    --------
    >>> is_place("county_name"), is_place("GEOID"), is_place("sex")
    (True, True, False)
    """
    return bool(_CODE.fullmatch(name) or _PLACE.fullmatch(_labelled(name) or name))


def count_among(columns: Sequence[str]) -> str | None:
    """Return the first column whose name is one for counts, or None.

    Examples
    --------
    >>> count_among(["county", "pop"])
    'pop'
    """
    return next(filter(_COUNT.fullmatch, columns), None)


_BETWEEN = re.compile(r';(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A semicolon that is not part of a value in double quotes: an even number of quotes follows."""
_QUOTED_NAME = re.compile(r'\s*"((?:[^"]|"")*)"\s*(?:=|$)')
_DATES = {
    "month": re.compile(r"months\s+(\d{4})-(0[1-9]|1[0-2])\s+to\s+(\d{4})-(0[1-9]|1[0-2])", re.ASCII),
    "year": re.compile(r"years\s+(\d{4})\s+to\s+(\d{4})", re.ASCII),
}
_BINS = re.compile(r"bins\s+-?\d+(\s*,\s*-?\d+)*", re.ASCII)


def attributes_of(texts: Sequence[str]) -> list[Document]:
    """Read attributes from text: values between commas, bins or dates, then rules after semicolons.

    A value with a comma or a semicolon stands in double quotes, and so does a name with an equals sign.
    Rules are `missing NAME`, `other NAME`, `form DD.MM.YYYY` and `fold`, as in a spec.

    Raises
    ------
    SpecError
        If values are missing or a rule is none of these.

    Examples
    --------
    >>> attributes_of(["sex=f, m; missing not known; fold", 'work=none, "farming, fishing"'])
    [{'name': 'sex', 'values': ['f', 'm'], 'missing': 'not known', 'fold': True}, \
{'name': 'work', 'values': ['none', 'farming, fishing']}]
    >>> attributes_of(['"Pay = none, low"=yes,no'])
    [{'name': 'Pay = none, low', 'values': ['yes', 'no']}]
    >>> attributes_of(["age=bins 0, 15, 65", "day=years 2025 to 2026; form DD.MM.YYYY"])
    [{'name': 'age', 'bins': [0, 15, 65]}, {'name': 'day', 'date': 'year', 'values': ['2025', '2026'], 'form': 'DD.MM.YYYY'}]
    """
    return [_attribute_of(text) for text in texts]


def _attribute_of(text: str) -> Document:
    quoted = _QUOTED_NAME.match(text)
    name, rest = (quoted[1].replace('""', '"'), text[quoted.end() :]) if quoted else text.partition("=")[::2]
    values, *rules = (part.strip() for part in _BETWEEN.split(rest))
    found = {"name": name.strip(), **_domain(values)}
    if not found.get("values", found.get("bins")):
        raise SpecError(
            f"the attribute '{text}' has no values",
            needed="all values that it may have, such as sex=f,m, age=bins 0, 15, 65 or date=months 2026-01 to 2026-12",
        )
    return found | {key: value for rule in rules if rule for key, value in [_rule(rule)]}


def _domain(text: str) -> Document:
    """Return the attribute values that a text states: a list, bins, or a range of months or years."""
    if _BINS.fullmatch(text):
        return {"bins": [int(low) for low in text.removeprefix("bins").split(",")]}
    if found := _DATES["month"].fullmatch(text):
        first, m, last, n = map(int, found.groups())
        months = range(12 * first + m - 1, 12 * last + n)
        return {"date": "month", "values": [f"{k // 12:04}-{k % 12 + 1:02}" for k in months]}
    if found := _DATES["year"].fullmatch(text):
        first, last = map(int, found.groups())
        return {"date": "year", "values": [f"{year:04}" for year in range(first, last + 1)]}
    return {"values": listed_values(text)}


def _rule(text: str) -> tuple[str, Any]:
    key, _, value = text.partition(" ")
    if text == "fold":
        return "fold", True
    if key in ("missing", "other", "form") and value.strip():
        return key, value.strip().strip('"')
    raise SpecError(
        f"'{text}' is not a rule for reading a column",
        needed="one of: missing NAME, other NAME, form DD.MM.YYYY (for dates), fold",
        remedy="put a value that holds a semicolon in double quotes",
    )


def listed_values(text: str) -> list[str]:
    """Return the values in a text, between commas or on lines; a value in double quotes may contain commas."""
    each = (value.strip() for row in reader(text.splitlines(), skipinitialspace=True) for value in row)
    return [value for value in each if value]


def written_values(values: Iterable[str]) -> str:
    """Return values as one text that `listed_values` reads back.

    Examples
    --------
    >>> written_values(["none", 'farming, "wild" fishing'])
    'none, "farming, ""wild"" fishing"'
    """
    quoted = (value.replace('"', '""') for value in values)
    return ", ".join(f'"{value}"' if {",", '"'} & set(value) else value for value in quoted)


def attribute_parts(attributes: Any) -> list[Document]:
    """Return attributes as parts of a spec, given a mapping from names to values, a list of parts, or one text."""
    if isinstance(attributes, Mapping):
        attributes = [{"name": name, "values": values} for name, values in attributes.items()]
    return [_attribute(part) for part in several(attributes) or []]


def several(texts: Any) -> Any:
    """Return a single text as a list of one."""
    return [texts] if isinstance(texts, str) else texts


def _attribute(attribute: Any) -> Document:
    """Return an attribute's part of a spec; refuse one without values, because the table would reveal which occur."""
    if isinstance(attribute, Mapping) and "name" in attribute:
        if attribute.get("values"):
            return {**attribute, "values": list(several(attribute["values"]))}
        if attribute.get("bins"):
            return dict(attribute)
    name = attribute.get("name") if isinstance(attribute, Mapping) else attribute
    shown = name if isinstance(name, str) else "..."
    raise SpecError(
        f"attribute '{shown}' is given without its values, and confidential rows are not searched for them",
        needed="all values that the attribute may have, whether or not they occur",
        remedy=f"attributes={{'{shown}': ['...', '...']}}",
    )
