"""Types of the parts of a manifest and of an assessment, which are checked before any part is used.

A part that is missing or of another type raises `pydantic.ValidationError`, which is a ValueError.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, Optional, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, create_model, model_validator

from trueup.model.guarantee import Change, Charge, Guarantee
from trueup.model.records.assessment import Assessed, Budget, Flag
from trueup.model.records.drawn import Conflict
from trueup.model.records.quantity import Ratio
from trueup.model.records.release import Miss
from trueup.noise.law import Cost, Currency
from trueup.privacy.contribution import Relation

Whole = Annotated[int, Field(ge=0, le=2**62)]
Amount = str | Whole


class _Part(BaseModel):
    """A part of a manifest, with typed keys; unknown keys of later versions are ignored."""

    model_config = ConfigDict(strict=True, defer_build=True)


class _Margin(_Part):
    level: str
    attributes: list[str]
    where: list[dict[str, str]] = []


class _Header(_Margin):
    query: str
    law: str
    parameters: dict[str, Any]


class _Counts(_Margin):
    files: str


class _Exact(_Part):
    """A part that has no other keys."""

    model_config = ConfigDict(extra="forbid")


def _fields_of(record: type, **kinds: Any) -> PlainValidator:
    """Return the check that a part has all fields of a record and no others, with their types in JSON.

    Whole numbers are not below 0, and exact amounts are texts. For other fields `kinds` gives a type, or a type and a default.
    """
    written = {int: Whole, Fraction: Amount}
    types = {name: kinds.get(name, written.get(kind, kind)) for name, kind in get_type_hints(record).items()}
    fields: Any = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in types.items()}
    return PlainValidator(create_model(record.__name__, __base__=_Exact, **fields).model_validate)


_Price = Annotated[tuple[Relation, Annotated[Any, _fields_of(Cost)]], Field(strict=False)]
_Charge = Annotated[Any, _fields_of(Charge, prices=(list[_Price], []))]
_Change = Annotated[Any, _fields_of(Change)]
_Guarantee = Annotated[
    Any,
    _fields_of(
        Guarantee,
        charges=list[_Charge],
        sentences=list[str],
        change=(Optional[_Change], None),  # noqa: UP045
    ),
]


class _Level(_Part):
    level: str
    places: Whole


class _Class(_Exact):
    table: _Margin
    lowest: float
    simulated: Whole
    bias: float
    rmse: float
    margins: Annotated[list[float], Field(min_length=5)]


class _Expected(_Part):
    note: str
    confidences: list[Whole]
    classes: list[_Class]


class _Stamp(_Part):
    ledger: str
    entry: Whole
    head: str


class Manifest(_Part):
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
    misses: list[Annotated[Any, _fields_of(Miss)]] = []
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


class _Recode(_Part):
    name: str
    values: list[str]
    groups: list[Whole]


class _Attribute(_Part):
    name: str
    values: Annotated[list[str], Field(min_length=1)]
    partition: bool
    recodes: list[_Recode]

    @model_validator(mode="after")
    def _groups_exist(self) -> _Attribute:
        if any(len(r.groups) != len(self.values) or max(r.groups) >= len(r.values) for r in self.recodes):
            raise ValueError("a recode does not give each value of its attribute a group")
        return self


class _Shape(_Part):
    chains: Annotated[int, Field(ge=1, le=10_000)]
    draws: Annotated[int, Field(ge=1, le=2**31)]
    cells: Annotated[int, Field(ge=1, le=2**31)]


class _DrawnHow(_Part):
    independent: bool
    connected: bool
    approximate: str


class _Prior(_Part):
    name: str


class _Estimated(_Part):
    doubts: list[str] = []


class _InferredBy(_Part):
    method: str
    prior: _Prior | None = None
    within: str | None = None


class _Stats(_Part):
    prior: _Estimated | None = None
    prior_instead: str = ""
    doubt: str = ""


class KeptPosterior(_Part):
    """The manifest of a posterior, with the type of every part that is read."""

    files: dict[str, str]
    title: str
    source: str
    level: Annotated[float, Field(gt=0, lt=1)]
    levels: Annotated[list[_Level], Field(min_length=1)]
    attributes: list[_Attribute]
    tables: list[_Margin]
    ratios: list[Annotated[Any, _fields_of(Ratio)]]
    shape: _Shape
    drawn: _DrawnHow
    method: _InferredBy
    conflicts: list[Annotated[Any, _fields_of(Conflict)]] | None
    counted: str
    stats: _Stats


_Method = Annotated[Any, _fields_of(Assessed, verb=Literal["reconcile", "infer", "comparator"])]
_Budget = Annotated[Any, _fields_of(Budget, currency=Currency)]
_Flag = Annotated[Any, _fields_of(Flag, what=Literal["bias", "coverage"])]


class KeptAssessment(_Part):
    """The manifest of an assessment, with the type of every part."""

    format: int
    title: str
    public: bool
    truth: str
    methods: Annotated[list[_Method], Field(min_length=1)]
    budgets: Annotated[list[_Budget], Field(min_length=1)]
    levels: Annotated[list[_Margin], Field(min_length=1)]
    intervals: dict[str, float]
    replicates: Annotated[Whole, Field(ge=1)]
    asked: Whole
    seed: int
    flags: list[_Flag]
    stats: dict[str, Any]
