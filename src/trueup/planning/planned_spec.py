"""A spec with planned budgets, and specs as TOML text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from trueup.model.cells import Margin
from trueup.model.spec import Query, Spec
from trueup.planning.allocation import Allocation


def planned_spec(spec: Spec, plan: Allocation) -> Spec:
    """The spec with the budgets of a plan; a table without a budget leaves its query, and an empty query the spec.

    Budgets that cost nothing, as that of a total that replacing a unit leaves alone, stay as they are.
    """
    budgets = dict(zip(map(_unordered, plan.levels), plan.budgets))
    free = {_unordered(name) for name, given in zip(plan.levels, plan.given) if not given}
    queries = tuple(_planned(query, budgets, free) for query in spec.queries)
    return spec.model_copy(update={"queries": tuple(q for q in queries if q is not None)})


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


def spec_text(spec: Spec) -> str:
    """Write a spec as TOML; reading it gives the same spec.

    Examples
    --------
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two areas"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
    ... ''')
    >>> parse_spec(spec_text(spec)) == spec
    True
    """
    given = spec.model_dump(by_alias=True, exclude_defaults=True, mode="python")
    for written, query in zip(given["query"], spec.queries):
        amount = query.rho if query.epsilon is None else query.epsilon
        written[query.currency] = query.budgets if isinstance(amount, dict) else amount
    single = [
        f"{_key(k)} = {_value(v)}" for k, v in given.items() if not isinstance(v, dict) and not _tables(v)
    ]
    parts = ["\n".join(single)]
    for name, value in given.items():
        if isinstance(value, dict):
            parts.append("\n".join([f"[{_key(name)}]", *_lines(value)]))
        elif _tables(value):
            parts += ["\n".join([f"[[{_key(name)}]]", *_lines(one)]) for one in value]
    return "\n\n".join(parts) + "\n"


def _tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, dict) for one in value)


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return _text(amount_text(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(k))} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def amount_text(amount: Fraction) -> str:
    """An exact amount as a decimal number where it has one of at most 12 places, else as a fraction.

    Examples
    --------
    >>> amount_text(Fraction(1, 8)), amount_text(Fraction(1, 3)), amount_text(Fraction(2))
    ('0.125', '1/3', '2')
    """
    for places in range(13):
        if (amount * 10**places).denominator == 1:
            return f"{float(amount):.{places}f}" if places else str(amount.numerator)
    return str(amount)
