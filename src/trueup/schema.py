"""The JSON Schema of specs, with the parameters of every noise law and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from trueup import inferring, reconciling
from trueup.model.perturbed import PerturbedSpec
from trueup.model.prior import PRIORS
from trueup.model.records.quantity import Ratio
from trueup.model.spec import FORMAT, Spec
from trueup.noise import JOINT_LAWS, LAWS
from trueup.noise.perturbed import PERTURBATIONS, READ
from trueup.run import DEFAULT_MINUTES, MIN_MINUTES


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema of the spec format.

    Examples
    --------
    >>> spec_schema()["properties"]["format"]["const"]
    2
    """
    schema = Spec.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = f"trueup-spec-{FORMAT}"
    schema["$defs"]["Query"]["properties"]["noise"]["enum"] = [*LAWS.names, *JOINT_LAWS.names]
    _add_methods(schema, "reconcile", reconciling.METHODS, {}, {"type": "object", "maxProperties": 0})
    _add_methods(schema, "infer", inferring.METHODS, _shared_of_infer(), _ANY_METHOD)
    return schema


def published_schema() -> dict[str, Any]:
    """Return the JSON Schema of specs of tables that somebody else published.

    Examples
    --------
    >>> schema = published_schema()
    >>> "random-rounding" in schema["$defs"]["PublishedLaw"]["properties"]["name"]["enum"]
    True
    """
    schema = PerturbedSpec.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = "trueup-published-1"
    names = [*LAWS.names, *(name for name in PERTURBATIONS.names if name not in READ)]
    law = {"type": "object", "required": ["name"], "properties": {"name": {"enum": names}}}
    kinds: list[Any] = [kind for kind in (*LAWS, *PERTURBATIONS) if kind.name in names]
    parameters = {field.name for kind in kinds for field in fields(kind)}
    law["properties"] |= {name: {} for name in sorted(parameters | {"file"})}
    schema["$defs"]["PublishedLaw"] = {**law, "additionalProperties": False}
    table, one = schema["$defs"]["PublishedTable"]["properties"], {"$ref": "#/$defs/PublishedLaw"}
    table["law"] = {
        "description": table["law"]["description"],
        "anyOf": [one, {"type": "array", "items": one}],
    }
    _add_methods(schema, "reconcile", reconciling.METHODS, {}, _ANY_METHOD)
    _add_methods(schema, "infer", inferring.METHODS, _shared_of_infer(), _ANY_METHOD)
    return schema


_ANY_METHOD = {
    "type": "object",
    "not": {"required": ["method"]},
    "description": "parameters of the first method that fits",
}


def _shared_of_infer() -> dict[str, Any]:
    """Return the schema entries of `[infer]` that are not parameters of a method."""
    minutes = {
        "type": "number",
        "minimum": MIN_MINUTES,
        "default": DEFAULT_MINUTES,
        "description": "wall time until an answer or a refusal stands",
    }
    ratio = {**TypeAdapter(Ratio).json_schema(), "additionalProperties": False}
    return {"minutes": minutes, "quantity": {"type": "array", "items": ratio}}


def _add_methods(schema: dict, verb: str, kinds: Sequence[type], shared: dict, unnamed: dict) -> None:
    """Add the methods of reconciliation or inference, with their parameters, to the schema."""
    methods = {f"method:{kind.name}": _method_schema(kind, shared) for kind in kinds}
    for method in methods.values():
        schema["$defs"] |= method.pop("$defs", {})  # references are resolved at the root
    schema["$defs"] |= methods
    schema["properties"][verb] = {
        "description": "the method and its parameters; by default the first method that fits",
        "anyOf": [*({"$ref": f"#/$defs/{name}"} for name in methods), unnamed],
    }


def _method_schema(kind: Any, shared: dict) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema()
    properties = {"method": {"const": kind.name}, **schema.get("properties", {}), **shared}
    for prior in (
        schema["$defs"][kind.__name__] for kind in PRIORS if kind.__name__ in schema.get("$defs", {})
    ):
        prior["required"] = ["name", *prior.get("required", [])]  # a table of a spec names its prior
    return {
        **schema,
        "title": kind.name,
        "description": kind.title,
        "properties": properties,
        "required": ["method"],
        "additionalProperties": False,
    }
