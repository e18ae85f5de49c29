"""What pydantic finds wrong with a part of a spec, in the words of TOML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
_CHOICES = {"privacy.neighbours": ": write 'add-remove' or 'replace'"}


def innermost(faults: Sequence[Any]) -> list[Any]:
    """Drop a fault of a part where one inside that part caused it."""
    places = [fault["loc"] for fault in faults]
    return [f for f in faults if not any(p != f["loc"] and p[: len(f["loc"])] == f["loc"] for p in places)]


def fault_text(fault: Fault) -> str:
    """Say in which key the fault lies and what belongs there.

    Examples
    --------
    >>> fault_text({"type": "tuple_type", "loc": ("level",), "msg": "Input should be a valid tuple"})
    'level is not a list'
    """
    where = ".".join(str(part) for part in fault["loc"] if part not in _KINDS) or "spec"
    if fault["type"] == "extra_forbidden":
        return f"{where} is not a key of the spec"
    if fault["type"] == "missing":
        return f"{where} is missing" + _CHOICES.get(where, "")
    if fault["type"] in _EMPTY:
        return f"{where} is empty"
    if wanted := _WANTED.get(fault["type"]):
        return f"{where} is not {wanted.format_map(fault.get('ctx', {}))}"
    said = str(fault["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{where}: {said}" if fault["loc"] else said
