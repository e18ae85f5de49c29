"""Faults that pydantic finds in a part of a spec, in the words of TOML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trueup.errors import TrueupError, did_you_mean

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
    """Drop a fault of a part if one inside that part caused it."""
    places = [fault["loc"] for fault in faults]
    return [f for f in faults if not any(p != f["loc"] and p[: len(f["loc"])] == f["loc"] for p in places)]


def fault_text(fault: Fault, document: Any = None, keys: Collection[str] = ()) -> str:
    """Return in which key the fault lies and what belongs there.

    Parameters
    ----------
    fault, document
        What is wrong, and what was read: its entries are called by their names.
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
    """Return the text of a part's error, to be included in that of the whole."""
    if not isinstance(error, TrueupError):
        return ""
    return "; ".join(
        text.rstrip(".")
        for text in (error.given, error.needed and f"needed: {error.needed}", error.remedy)
        if text
    )


def _place_in_spec(loc: Sequence[str | int], document: Any) -> str:
    """Return a place in a spec for readers: an entry of a list by its name, or counted from 1."""
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
