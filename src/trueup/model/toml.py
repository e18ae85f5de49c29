"""TOML text of plain values: tables, lists, texts, numbers and exact amounts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any


def toml_text(given: Mapping[str, Any]) -> str:
    """Write a document: single values first, then a table for every mapping and an array of tables for every list of them.

    Examples
    --------
    >>> print(toml_text({"title": "Areas", "level": [{"name": "all"}]}), end="")
    title = "Areas"
    <BLANKLINE>
    [[level]]
    name = "all"
    """
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
