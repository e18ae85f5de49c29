"""TOML text of plain values, written and read: tables, lists, texts, numbers and exact amounts."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from trueup.errors import SpecError


def toml_text(given: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return a document as TOML: single values first, then a table per mapping and an array of tables per list of mappings.

    Parameters
    ----------
    given
        The document.
    comments
        What is said above its parts, by their keys.

    Examples
    --------
    >>> print(toml_text({"title": "Areas", "level": [{"name": "all"}]}), end="")
    title = "Areas"
    <BLANKLINE>
    [[level]]
    name = "all"
    """
    said = {
        name: "".join(f"# {line}\n" for line in text.split("\n")) for name, text in (comments or {}).items()
    }
    single = [
        f"{said.get(k, '')}{_key(k)} = {_value(v)}"
        for k, v in given.items()
        if not isinstance(v, dict) and not _is_table_array(v)
    ]
    parts = ["\n".join(single)]
    for name, value in given.items():
        if isinstance(value, dict):
            parts.append(said.get(name, "") + "\n".join([f"[{_key(name)}]", *_lines(value)]))
        elif _is_table_array(value):
            first, *others = ("\n".join([f"[[{_key(name)}]]", *_lines(one)]) for one in value)
            parts += [said.get(name, "") + first, *others]
    return "\n\n".join(parts) + "\n"


def amount_text(amount: Fraction) -> str:
    """Return an exact amount as a decimal number of at most 12 places if possible, else as a fraction.

    Examples
    --------
    >>> amount_text(Fraction(1, 8)), amount_text(Fraction(1, 3)), amount_text(Fraction(2))
    ('0.125', '1/3', '2')
    """
    for places in range(13):
        if (amount * 10**places).denominator == 1:
            return f"{float(amount):.{places}f}" if places else str(amount.numerator)
    return str(amount)


def _is_table_array(value: Any) -> bool:
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


_DEEPEST, _LONGEST, MAX_CHARACTERS = 50, 1000, 8_000_000
_DEEP_KEY = re.compile(r"""(?m)(?:^|[\[{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){50}""")
"""A key of more than 50 parts: for one of 20,000 the parser takes some gigabytes."""


def read_toml(text: str, what: str = "the spec") -> dict[str, Any]:
    """Read TOML text that somebody wrote by hand; messages call it `what`."""
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"{what} has more than {MAX_CHARACTERS:,} characters", needed="a spec in TOML")
    if _DEEP_KEY.search(text):
        raise _too_deep()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"{what} is not TOML: {error}",
            needed="a spec in TOML",
            remedy="correct it there, or check the path",
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # of a whole number that Python refuses to read, which is no error of TOML
        raise _too_long() from None
    _refuse_vast(document)
    return document


def _refuse_vast(value: Any, depth: int = 0) -> None:
    """Refuse deep nesting and long numbers, which no spec needs and which fail later with unfit messages."""
    if depth > _DEEPEST:
        raise _too_deep()
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST:
        raise _too_long()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _refuse_vast(part, depth + 1)


def _too_deep() -> SpecError:
    return SpecError(
        "the spec nests lists or tables too deeply", needed=f"at most {_DEEPEST} within each other"
    )


def _too_long() -> SpecError:
    return SpecError(
        f"the spec holds a whole number of more than {_LONGEST:,} digits",
        needed="numbers that counts and budgets can reach",
    )
