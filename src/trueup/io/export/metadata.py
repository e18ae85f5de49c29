"""Metadata for registries of deployments of differential privacy: who, the unit, the loss, the mechanisms."""

from __future__ import annotations

from typing import Any

from trueup.errors import SpecError
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release
from trueup.privacy import outward
from trueup.version import __version__

MODEL = "central: one curator holds the records and adds noise before anything is published"


def deployment(record: Release | Measurements | Posterior, curator: str | None = None) -> dict[str, Any]:
    """Describe a release as registries of deployments list it; amounts are exact fractions, with a number rounded up beside."""
    if isinstance(record, Posterior):
        raise SpecError(
            "a posterior has no mechanism of its own",
            needed="the release or the measurements that it was drawn from",
        )
    measured = record.measurements if isinstance(record, Release) else record
    if measured.simulation:
        raise SpecError(
            "the noise is simulated, and nothing is deployed", needed="a release by `trueup release`"
        )
    guarantee = measured.guarantee
    spec: Any = measured.spec
    return {
        "title": spec.title if spec else None,
        "curator": curator,
        "dataset": spec.table.name if spec else None,
        "model": MODEL,
        "definition": _definition(guarantee),
        "unit of privacy": guarantee.unit,
        "neighbours": guarantee.neighbours,
        "privacy loss": None
        if guarantee.kind == "none"
        else _loss(guarantee.currency, guarantee.amount, guarantee.delta),
        "mechanisms": [
            {"query": c.query, "table": c.margin, "law": c.law, "loss": _loss(c.currency, c.amount, c.delta)}
            for c in guarantee.charges
        ],
        "laws of noise": [_law(header) for header in measured.headers],
        "accounting": "losses of all queries add up; each is stated for one step between neighbouring databases",
        "post-processing": dict(record.method) if isinstance(record, Release) else None,
        "published exactly": sorted({str(h.margin) for h in measured.headers if h.law.exact}),
        "statement": list(guarantee.sentences),
        "software": f"trueup {__version__}",
        "digest": record.digest,
    }


def _definition(guarantee: Guarantee) -> str:
    """Return the definition of privacy that a guarantee is of."""
    if guarantee.kind == "none":
        return "none is claimed"
    name = (
        "zero-concentrated" if guarantee.currency == "rho" else "approximate" if guarantee.delta else "pure"
    )
    among = " among databases with the same invariants" if guarantee.kind == "invariant" else ""
    return f"{name} differential privacy{among}"


def _loss(currency: str, amount: Any, delta: Any) -> dict[str, Any]:
    more = {"delta": str(delta)} if delta else {}
    return {"currency": currency, "exact": str(amount), "rounded up": outward(amount, 6)} | more


def _law(header: Measured) -> dict[str, Any]:
    parameters = {name: str(value) for name, value in header.law.parameters().items()}
    return {
        "query": header.query,
        "table": str(header.margin),
        "law": header.law.name,
        "parameters": parameters,
    }
