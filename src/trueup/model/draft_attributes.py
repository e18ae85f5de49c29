"""Attributes of a draft, as they are typed: their values, and how a column is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from csv import reader
from typing import Any

from trueup.errors import SpecError
from trueup.model.place_columns import Document

_BETWEEN = re.compile(r';(?=(?:[^"]*"[^"]*")*[^"]*$)')
"""A semicolon that is not part of a value in double quotes: an even number of quotes follows."""
_DATES = {
    "month": re.compile(r"months\s+(\d{4})-(0[1-9]|1[0-2])\s+to\s+(\d{4})-(0[1-9]|1[0-2])", re.ASCII),
    "year": re.compile(r"years\s+(\d{4})\s+to\s+(\d{4})", re.ASCII),
}
_BINS = re.compile(r"bins\s+-?\d+(\s*,\s*-?\d+)*", re.ASCII)


def attributes_of(texts: Sequence[str]) -> list[Document]:
    """Read attributes from text: values between commas, bins or dates, then how rows are read, after semicolons.

    A value with a comma or a semicolon stands in double quotes.
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
    >>> attributes_of(["age=bins 0, 15, 65", "day=years 2025 to 2026; form DD.MM.YYYY"])
    [{'name': 'age', 'bins': [0, 15, 65]}, {'name': 'day', 'date': 'year', 'values': ['2025', '2026'], 'form': 'DD.MM.YYYY'}]
    """
    return [_attribute_of(text) for text in texts]


def _attribute_of(text: str) -> Document:
    name, _, rest = text.partition("=")
    values, *rules = (part.strip() for part in _BETWEEN.split(rest))
    found = {"name": name.strip(), **_domain(values)}
    if not found.get("values", found.get("bins")):
        raise SpecError(
            f"the attribute '{text}' has no values",
            needed="all that it may have, such as sex=f,m, age=bins 0, 15, 65 or date=months 2026-01 to 2026-12",
        )
    return found | {key: value for rule in rules if rule for key, value in [_rule(rule)]}


def _domain(text: str) -> Document:
    """Return the values that a text lists, the bins that it gives, or the months or years from one to another."""
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
        f"'{text}' is no rule by which a column is read",
        needed="missing NAME, other NAME, form DD.MM.YYYY (of dates) or fold",
        remedy="put a value that holds a semicolon in double quotes",
    )


def listed_values(text: str) -> list[str]:
    """Return the values between commas or on lines; one in double quotes may hold commas."""
    each = (value.strip() for row in reader(text.splitlines(), skipinitialspace=True) for value in row)
    return [value for value in each if value]


def written_values(values: Iterable[str]) -> str:
    """Return values as `listed_values` reads them.

    Examples
    --------
    >>> written_values(["none", 'farming, "wild" fishing'])
    'none, "farming, ""wild"" fishing"'
    """
    quoted = (value.replace('"', '""') for value in values)
    return ", ".join(f'"{value}"' if {",", '"'} & set(value) else value for value in quoted)


def attribute_parts(attributes: Any) -> list[Document]:
    """Return the attributes that are given as a mapping from names to values, as parts of a spec, or one text."""
    if isinstance(attributes, Mapping):
        attributes = [{"name": name, "values": values} for name, values in attributes.items()]
    return [_attribute(part) for part in several(attributes) or []]


def several(texts: Any) -> Any:
    """Return one text as a list of it: its letters are none."""
    return [texts] if isinstance(texts, str) else texts


def _attribute(attribute: Any) -> Document:
    """Refuse an attribute without values: those of the table would tell which of them occur."""
    if isinstance(attribute, Mapping) and "name" in attribute:
        if attribute.get("values"):
            return {**attribute, "values": list(several(attribute["values"]))}
        if attribute.get("bins"):
            return dict(attribute)
    name = attribute.get("name") if isinstance(attribute, Mapping) else attribute
    shown = name if isinstance(name, str) else "..."
    raise SpecError(
        f"attribute '{shown}' comes without its values, which are not taken from confidential rows",
        needed="all values that it may have, whether or not anybody has them",
        remedy=f"attributes={{'{shown}': ['...', '...']}}",
    )
