"""The JSON Schema of a spec, with every law and every method."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from trueup.model.spec import FORMAT, Spec
from trueup.noise import JOINT_LAWS, LAWS
from trueup.reconcile import METHODS


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema of the spec format.

    Examples
    --------
    >>> spec_schema()["properties"]["format"]["const"]
    1
    """
    schema = Spec.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = f"trueup-spec-{FORMAT}"
    schema["$defs"]["Query"]["properties"]["noise"]["enum"] = [law.name for law in (*LAWS, *JOINT_LAWS)]
    methods = {kind.name: _method_schema(kind) for kind in METHODS}
    schema["$defs"] |= {f"method:{name}": entry for name, entry in methods.items()}
    schema["properties"]["reconcile"] = {
        "description": "the method and its parameters; by default the first method that fits",
        "anyOf": [{"$ref": f"#/$defs/method:{name}"} for name in methods]
        + [{"type": "object", "maxProperties": 0}],
    }
    return schema


def _method_schema(kind: Any) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema()
    properties = {"method": {"const": kind.name}, **schema.get("properties", {})}
    return {
        **schema,
        "title": kind.name,
        "description": kind.title,
        "properties": properties,
        "required": ["method"],
        "additionalProperties": False,
    }
