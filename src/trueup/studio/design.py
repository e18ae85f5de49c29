"""Changes to a spec, made by posted forms."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from trueup import Spec, TrueupError, parse_spec
from trueup.model.columns_recognised import listed_values
from trueup.model.proposal import queries_of
from trueup.model.toml import toml_text

Form = Mapping[str, str]
MANY_SETS = 12
"""Most sets of attributes for which a page proposes tables."""


def document(spec: Spec) -> dict[str, Any]:
    """Return the spec as plain values, as in a TOML document."""
    return tomllib.loads(spec.text())


def changed(held: Mapping[str, Any]) -> str:
    """Return the TOML of a document that was changed; refuse it if it is no valid spec."""
    text = toml_text({name: part for name, part in held.items() if part not in ([], {})})
    parse_spec(text)
    return text


def change_structure(spec: Spec, form: Form) -> str:
    """Return the TOML of a spec with the levels and attributes of a form."""
    held = document(spec)
    before = _names(held)
    held["title"] = form.get("title", "").strip() or spec.title
    if not _rows(form, "level"):
        raise TrueupError("no level has a name", needed="a name for the first level, which holds all places")
    held["level"] = [_level(row, root=i == 0) for i, row in enumerate(_rows(form, "level").values())]
    old = dict(enumerate(held.get("attribute", [])))
    rows = _rows(form, "attribute")
    held["attribute"] = [_posted_attribute(row, old.get(number, {})) for number, row in rows.items()]
    new_names = {old[number]["name"]: row["name"] for number, row in rows.items() if number in old}
    for cell in held["table"].get("cell", []):
        cell["where"] = {new_names.get(name, name): value for name, value in cell.get("where", {}).items()}
    if _names(held) != before:
        levels, attributes = _names(held)
        held["query"] = queries_of(levels, attributes)
    return changed(held)


def _names(held: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    return [x["name"] for x in held["level"]], [x["name"] for x in held.get("attribute", [])]


def _rows(form: Form, part: str) -> dict[int, dict[str, str]]:
    """Return the rows `part.0.name`, `part.0.column`, ... of a form by number; rows without a name are left out."""
    rows: dict[int, dict[str, str]] = {}
    for key, value in form.items():
        first, _, rest = key.partition(".")
        number, _, name = rest.partition(".")
        if first == part and number.isdecimal() and len(number) < 6:
            rows.setdefault(int(number), {})[name] = value.strip()
    return {number: rows[number] for number in sorted(rows) if rows[number].get("name")}


def _level(row: Mapping[str, str], *, root: bool) -> dict[str, Any]:
    level: dict[str, Any] = {"name": row["name"]}
    if not root and row.get("column"):
        level["column"] = row["column"]
    if not root and row.get("prefix"):
        level["prefix"] = _whole(row["prefix"], f"the prefix of level '{row['name']}'")
    if row.get("label"):
        level["label"] = row["label"]
    return level


def _posted_attribute(row: Mapping[str, str], old: Mapping[str, Any]) -> dict[str, Any]:
    attribute = {**old, "name": row["name"], "values": listed_values(row.get("values", ""))}
    if row.get("column") and row["column"] != row["name"]:
        attribute["column"] = row["column"]
    return attribute


def _whole(text: str, what: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 10):
        raise TrueupError(f"{what} is '{text[:40]}'", needed="a whole number")
    return int(text)


def change_protection(spec: Spec, form: Form) -> str:
    """Return the TOML of a spec with the unit of protection of a form."""
    held = document(spec)
    privacy: dict[str, Any] = {"unit": form.get("unit", "").strip(), "neighbours": form.get("neighbours", "")}
    held["table"]["counts"] = form.get("counts", "").strip() or held["table"]["counts"]
    if records := form.get("records", "").strip():
        privacy["contribution"] = {"records": _whole(records, "the number of records of one unit")}
    if identifier := form.get("id", "").strip():
        privacy["id"] = identifier
    held["privacy"] = privacy
    return changed(held)


def sets(spec: Spec) -> list[tuple[str, ...]]:
    """Return the sets of attributes that the page offers for tables: those measured, and other small ones."""
    views = [view for a in spec.attributes for view in a.views]
    home = {view: a.name for a in spec.attributes for view in a.views}
    pairs = [pair for pair in combinations(views, 2) if home[pair[0]] != home[pair[1]]]
    whole = tuple(a.name for a in spec.attributes)
    proposed = [(), *((view,) for view in views), *pairs, whole]
    held = [q.attributes for q in spec.queries]
    found = dict.fromkeys(held)
    for one in proposed:
        if len(found) < MANY_SETS and not any(set(one) == set(other) for other in found):
            found[one] = None
    return sorted(found, key=len)


def choose_tables(spec: Spec, form: Form) -> str:
    """Return the TOML of a spec with the tables of a form: `table.SET.LEVEL`, where SET is a position in `sets`."""
    held, currency = document(spec), form.get("currency", spec.queries[0].currency)
    law = {"rho": "discrete-gaussian", "epsilon": "discrete-laplace"}.get(currency)
    if law is None:
        raise TrueupError(f"the unit of the budget is '{currency[:40]}'", needed="rho or epsilon")
    known = {frozenset(q.attributes): q for q in spec.queries}
    queries = []
    for number, names in enumerate(sets(spec)):
        levels = [level.name for i, level in enumerate(spec.levels) if f"table.{number}.{i}" in form]
        if not levels:
            continue
        old = known.get(frozenset(names))
        given = old.budgets if old is not None and old.noise == law else {}
        amounts = {x: str(given.get(x, "1/100")) for x in levels}
        name = old.name if old else " by ".join(names) or "total"
        queries.append(
            {"name": name, **({"attributes": list(names)} if names else {}), "noise": law, currency: amounts}
        )
    if not queries:
        raise TrueupError(
            "no table is chosen",
            needed="at least one table, and one that determines the finest counts",
            remedy="choose a table with all attributes at the last level",
        )
    held["query"] = queries
    return changed(held)


def choose_method(spec: Spec, name: str) -> str:
    """Return the TOML of a spec with a method of reconciliation, or with none."""
    held = document(spec)
    if name:
        held["reconcile"] = {"method": name}
    else:
        held.pop("reconcile", None)
    return changed(held)
