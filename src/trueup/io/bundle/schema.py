"""Types of the parts of a manifest, which are checked before any part is used.

A part that is missing or of another type raises `pydantic.ValidationError`, which is a ValueError.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Optional, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, create_model, model_validator

from trueup.model.guarantee import Change, Charge, Guarantee
from trueup.model.records.drawn import Conflict
from trueup.model.records.quantity import Ratio
from trueup.model.records.release import Miss
from trueup.noise.law import Cost
from trueup.privacy.contribution import Relation

Whole = Annotated[int, Field(ge=0, le=2**62)]
Amount = str | Whole


class ManifestPart(BaseModel):
    """A part of a manifest, with typed keys; unknown keys of later versions are ignored."""

    model_config = ConfigDict(strict=True, defer_build=True)


class ManifestMargin(ManifestPart):
    """The margin that a table is about."""

    level: str
    attributes: list[str]
    where: list[dict[str, str]] = []


class _Header(ManifestMargin):
    query: str
    law: str
    parameters: dict[str, Any]


class _Counts(ManifestMargin):
    files: str


class _Exact(ManifestPart):
    """A part that has no other keys."""

    model_config = ConfigDict(extra="forbid")


def fields_of(record: type, **kinds: Any) -> PlainValidator:
    """Return the check that a part has all fields of a record and no others, with their types in JSON.

    Whole numbers are not below 0, and exact amounts are texts or whole numbers. For other fields `kinds` gives a type, or a
    type and a default.
    """
    written = {int: Whole, Fraction: Amount}
    types = {name: kinds.get(name, written.get(kind, kind)) for name, kind in get_type_hints(record).items()}
    fields: Any = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in types.items()}
    return PlainValidator(create_model(record.__name__, __base__=_Exact, **fields).model_validate)


_Price = Annotated[tuple[Relation, Annotated[Any, fields_of(Cost)]], Field(strict=False)]
_Charge = Annotated[Any, fields_of(Charge, prices=(list[_Price], []))]
_Change = Annotated[Any, fields_of(Change)]
_Guarantee = Annotated[
    Any,
    fields_of(
        Guarantee,
        charges=list[_Charge],
        sentences=list[str],
        change=(Optional[_Change], None),  # noqa: UP045
    ),
]


class _Level(ManifestPart):
    level: str
    places: Whole


class _Class(_Exact):
    table: ManifestMargin
    lowest: float
    simulated: Whole
    bias: float
    rmse: float
    margins: Annotated[list[float], Field(min_length=5)]


class _Expected(ManifestPart):
    note: str
    confidences: list[Whole]
    classes: list[_Class]


class _Stamp(ManifestPart):
    ledger: str
    entry: Whole
    head: str


class Manifest(ManifestPart):
    """The manifest of a bundle, with the type of every part."""

    format: int
    kind: str
    files: dict[str, str]
    parts: dict[str, str] = {}
    spec: str
    measurements: str
    seal: str = ""
    cells: Whole
    levels: Annotated[list[_Level], Field(min_length=1)]
    headers: list[_Header]
    guarantee: _Guarantee
    ledger: _Stamp | None
    method: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    stats: dict[str, float | str | None] = {}
    misses: list[Annotated[Any, fields_of(Miss)]] = []
    counts: list[_Counts] = []
    noted: list[str] = []
    expected: _Expected | None = Field(None, alias="expected errors")

    @model_validator(mode="after")
    def _is_complete(self) -> Manifest:
        needed = {"parts", "seal"} if self.guarantee.kind != "none" else set()
        needed |= {"method", "checks", "stats", "counts"} if self.kind != "measurements" else set()
        if needed - self.model_fields_set or (
            "method" in self.model_fields_set and "method" not in self.method
        ):
            raise ValueError("a part is missing")
        return self


class _Recode(ManifestPart):
    name: str
    values: list[str]
    groups: list[Whole]


class _Attribute(ManifestPart):
    name: str
    values: Annotated[list[str], Field(min_length=1)]
    partition: bool
    recodes: list[_Recode]

    @model_validator(mode="after")
    def _groups_exist(self) -> _Attribute:
        if any(len(r.groups) != len(self.values) or max(r.groups) >= len(r.values) for r in self.recodes):
            raise ValueError("a recode does not give each value of its attribute a group")
        return self


class _Shape(ManifestPart):
    chains: Annotated[int, Field(ge=1, le=10_000)]
    draws: Annotated[int, Field(ge=1, le=2**31)]
    cells: Annotated[int, Field(ge=1, le=2**31)]


class _DrawnHow(ManifestPart):
    independent: bool
    connected: bool
    approximate: str


class _Prior(ManifestPart):
    name: str


class _Estimated(ManifestPart):
    doubts: list[str] = []


class _InferredBy(ManifestPart):
    method: str
    prior: _Prior | None = None
    within: str | None = None


class _Stats(ManifestPart):
    prior: _Estimated | None = None
    prior_instead: str = ""
    doubt: str = ""


class KeptPosterior(ManifestPart):
    """The manifest of a posterior, with the type of every part that is read."""

    files: dict[str, str]
    title: str
    source: str
    level: Annotated[float, Field(gt=0, lt=1)]
    levels: Annotated[list[_Level], Field(min_length=1)]
    attributes: list[_Attribute]
    tables: list[ManifestMargin]
    ratios: list[Annotated[Any, fields_of(Ratio)]]
    shape: _Shape
    drawn: _DrawnHow
    method: _InferredBy
    conflicts: list[Annotated[Any, fields_of(Conflict)]] | None
    counted: str
    stats: _Stats
