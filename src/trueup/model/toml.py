"""TOML text of plain values, and messages on the faults that pydantic finds."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from trueup.errors import SpecError, TrueupError, did_you_mean


def toml_text(given: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return a document as TOML text: single values first, then one table per mapping and table arrays for lists.

    Parameters
    ----------
    given
        The document.
    comments
        The comments above the document's parts, by the parts' keys.

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
        f"{said.get(k, '')}{_key(k)} = {value_text(v)}"
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


def inline_table(pairs: Mapping[str, Any]) -> str:
    """Return a table as one line of TOML, with quoted keys.

    Examples
    --------
    >>> print(inline_table({"sex": ["f", "m"]}))
    { "sex" = ["f", "m"] }
    """
    return f"{{ {', '.join(f'{_text(name)} = {value_text(value)}' for name, value in pairs.items())} }}"


def _is_table_array(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, dict) for one in value)


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {value_text(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_text(value: Any) -> str:
    """Return a plain value as TOML text.

    Examples
    --------
    >>> print(value_text(["f", "m"]))
    ["f", "m"]
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return _text(amount_text(value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(k))} = {value_text(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return str(value)


_DEEPEST, _LONGEST, MAX_CHARACTERS = 50, 1000, 8_000_000
_DEEP_KEY = re.compile(r"""(?m)(?:^|[\[{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){50}""")
"""A key of more than 50 parts: for one of 20,000 the parser takes some gigabytes."""


def read_toml(text: str, what: str = "the spec") -> dict[str, Any]:
    """Read TOML text into a dictionary; `what` names the text in errors."""
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
            remedy="correct the spec there, or check the path",
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # of a whole number that Python refuses to read, which is no error of TOML
        raise _too_long() from None
    _refuse_vast(document)
    return document


def _refuse_vast(value: Any, depth: int = 0) -> None:
    """Refuse deeply nested values and very long numbers, which would cause other errors later."""
    if depth > _DEEPEST:
        raise _too_deep()
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST:
        raise _too_long()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _refuse_vast(part, depth + 1)


def _too_deep() -> SpecError:
    return SpecError(
        "the spec nests lists or tables too deeply",
        needed=f"at most {_DEEPEST} lists or tables inside each other",
    )


def _too_long() -> SpecError:
    return SpecError(
        f"the spec holds a whole number of more than {_LONGEST:,} digits",
        needed="shorter numbers",
    )


Fault = Mapping[str, Any]
"""One entry of `ValidationError.errors()`."""

_TABLE, _LIST, _TEXT, _WHOLE = "a table of keys", "a list", "text", "a whole number"
_WANTED = {
    "model_type": _TABLE,
    "dict_type": _TABLE,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "string_type": _TEXT,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "finite_number": "a finite number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "literal_error": "{expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
}
_EMPTY = ("too_short", "string_pattern_mismatch")
_KINDS = ("constrained-int", "constrained-str")  # what pydantic calls the choices of a union
_ONE_OF = {"levels": "level", "attributes": "attribute", "queries": "query"}
"""Lists as they are called in Python and in the file."""
_CHOICES = {"privacy.neighbours": ": write 'add-remove' or 'replace'"}


def innermost(faults: Sequence[Any]) -> list[Any]:
    """Return the faults without those of a part that a fault inside the part caused."""
    places = [fault["loc"] for fault in faults]
    return [f for f in faults if not any(p != f["loc"] and p[: len(f["loc"])] == f["loc"] for p in places)]


def fault_text(fault: Fault, document: Any = None, keys: Collection[str] = ()) -> str:
    """Return a fault in words: the key, and the value that it needs.

    Parameters
    ----------
    fault, document
        The fault, and the document that was read, whose entries are called by their names.
    keys
        Every key that a part of the document may have, of which a misspelt one may have been meant.

    Examples
    --------
    >>> fault_text({"type": "tuple_type", "loc": ("level",), "msg": "Input should be a valid tuple"})
    'level is not a list'
    >>> fault_text({"type": "missing", "loc": ("query", 0, "noise")}, {"query": [{"name": "total"}]})
    "query 'total': noise is missing"
    >>> fault_text({"type": "extra_forbidden", "loc": ("titel",)}, keys=["title"])
    "titel is not a key of the spec; did you mean 'title'?"
    """
    loc = [part for part in fault["loc"] if part not in _KINDS]
    where = _place_in_spec(loc, document) or "spec"
    if fault["type"] == "extra_forbidden":
        near = did_you_mean(loc[-1], set(keys) - {loc[-1]})
        return "; ".join(filter(None, (f"{where} is not a key of the spec", near)))
    if fault["type"] == "missing":
        return f"{where} is missing" + _CHOICES.get(where, "")
    if fault["type"] in _EMPTY:
        return f"{where} is empty"
    if wanted := _WANTED.get(fault["type"]):
        return f"{where} is not {wanted.format_map(fault.get('ctx', {}))}"
    said = _said(fault.get("ctx", {}).get("error")) or str(fault["msg"]).removeprefix("Value error, ").rstrip(
        "."
    )
    return f"{where}: {said}" if loc else said


def _said(error: Any) -> str:
    """Return the text of an error in one part so that it fits into a longer sentence."""
    if not isinstance(error, TrueupError):
        return ""
    return "; ".join(
        text.rstrip(".")
        for text in (error.given, error.needed and f"needed: {error.needed}", error.remedy)
        if text
    )


def _place_in_spec(loc: Sequence[str | int], document: Any) -> str:
    """Return words for a position in a spec: entries of lists are called by name, or by number from 1."""
    text, at = "", document
    for key, after in zip(loc, (*loc[1:], None)):
        at = _inside(at, key)
        if isinstance(key, int):
            name = at.get("name") if isinstance(at, Mapping) else None
            text += f" '{name}'" if isinstance(name, str) and name.strip() else f" {key + 1}"
        else:
            text += (": " if " " in text else "." if text else "") + (
                _ONE_OF.get(key, key) if isinstance(after, int) else key
            )
    return text


def _inside(held: Any, key: str | int) -> Any:
    try:
        return held[key]
    except (KeyError, IndexError, TypeError):
        return None
