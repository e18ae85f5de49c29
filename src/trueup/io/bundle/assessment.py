"""Assessments of accuracy on disk, stored under `internal/` unless the true counts are public.

assessment.json        methods, budgets, replicates, seed, flags, what was cut
spec.toml              the spec as it was given
summary.parquet        one row per figure of a level, a size class or another class, with its Monte Carlo error
counts/*.parquet       for each table, one row per figure of every single count
report.html            the report
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from trueup.errors import BundleError
from trueup.files.database import connect, quoted, writing_by_duckdb
from trueup.files.writing import staged, write_parquet
from trueup.io.bundle.manifest import slug
from trueup.io.bundle.schema import ManifestMargin, ManifestPart, Whole, fields_of
from trueup.io.bundle.strict import amount, read_json, read_text, read_typed, refuse_links
from trueup.model.cells import Margin
from trueup.model.records.assessment import FIELDS, Assessed, Assessment, Budget, Columns, Flag
from trueup.model.spec import Spec, parse_spec
from trueup.model.tables import margin_columns
from trueup.noise.law import Currency
from trueup.version import __version__

FORMAT = 1
MANIFEST = "assessment.json"
MOST_FIGURES = 200_000
"""Rows of a summary: twenty tables under five methods and budgets have less than half of them."""
_SUMMARY = dict.fromkeys(FIELDS, "text") | {
    "value": "number",
    "mc_error": "number",
    "replicates": "whole",
    "units": "whole",
}
_UNKNOWN = ("value", "mc_error")
"""Columns that may lack a value: unknown figures, and errors of figures that do not vary between replicates."""
_PLACES = ("internal", "public")
_WRITTEN = (
    *("title", "public", "truth", "methods", "budgets", "levels", "intervals"),
    *("replicates", "asked", "seed", "flags", "stats"),
)
"""Fields of an assessment that its manifest holds."""

_Method = Annotated[Any, fields_of(Assessed, verb=Literal["reconcile", "infer", "comparator"])]
_Budget = Annotated[Any, fields_of(Budget, currency=Currency)]
_Flag = Annotated[Any, fields_of(Flag, what=Literal["bias", "coverage"])]


class KeptAssessment(ManifestPart):
    """The manifest of an assessment, with the type of every part."""

    format: int
    title: str
    public: bool
    truth: str
    methods: Annotated[list[_Method], Field(min_length=1)]
    budgets: Annotated[list[_Budget], Field(min_length=1)]
    levels: Annotated[list[ManifestMargin], Field(min_length=1)]
    intervals: dict[str, float]
    replicates: Annotated[Whole, Field(ge=1)]
    asked: Whole
    seed: int
    flags: list[_Flag]
    stats: dict[str, Any]


def write_assessment(out: str | Path, spec_text: str, assessment: Assessment, page: str) -> Path:
    """Write an assessment to a folder that appears whole or not at all; return the folder of its files.

    A confidential one goes to `internal/`, which nobody else may read, and has no `public/` beside it.

    Parameters
    ----------
    out
        A new folder.
    spec_text, page
        The spec as it was given, and the report.

    Raises
    ------
    BundleError
        If the folder is occupied or the disk refuses.
    """
    place = "public" if assessment.public else "internal"
    with staged(Path(out)) as folder:
        inside = folder / place
        inside.mkdir(mode=0o755 if assessment.public else 0o700)
        (inside / "counts").mkdir()
        (inside / "spec.toml").write_text(spec_text, encoding="utf-8")
        (inside / "report.html").write_text(page, encoding="utf-8")
        write_parquet(inside / "summary.parquet", assessment.summary)
        for margin in assessment.levels:
            write_single_counts(inside / "counts" / f"{slug(margin)}.parquet", assessment, margin)
        manifest = {
            "format": FORMAT,
            "trueup": __version__,
            "kind": "assessment",
            "spec": hashlib.sha256(spec_text.encode()).hexdigest(),
            **{name: getattr(assessment, name) for name in _WRITTEN},
            "levels": [{"level": m.level, "attributes": list(m.attributes)} for m in assessment.levels],
        }
        text = json.dumps(manifest, indent=2, default=lambda x: vars(x) if is_dataclass(x) else str(x))
        (inside / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return Path(out) / place


def holds_assessment(folder: str | Path) -> bool:
    """Return True if a folder contains an assessment."""
    return any((Path(folder) / place / MANIFEST).is_file() for place in _PLACES)


def is_confidential(folder: str | Path) -> bool:
    """Return True if a folder contains an assessment whose true counts were not declared public."""
    return holds_assessment(folder) and not read_assessment(folder)[0].public


def read_assessment(folder: str | Path) -> tuple[Assessment, Spec]:
    """Read an assessment and its spec, but not the errors of single counts, which stay in their files."""
    inside = next((p for place in _PLACES if (p := Path(folder) / place / MANIFEST).is_file()), None)
    if inside is None:
        raise BundleError(f"'{folder}' holds no assessment", remedy="run `trueup assess`")
    try:
        manifest = read_json(inside)
        spec = parse_spec(read_text(inside.parent / "spec.toml"))
        if manifest["format"] == FORMAT:
            KeptAssessment.model_validate(manifest)
            refuse_links(inside.parent, ["summary.parquet"])
            summary = read_typed(inside.parent / "summary.parquet", _SUMMARY, MOST_FIGURES, may_lack=_UNKNOWN)
            summary |= {name: summary[name].astype(float) for name in _UNKNOWN}
            return replace(_read_assessment(manifest, summary), spec=spec), spec
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BundleError(
            f"the assessment in '{folder}' is damaged",
            remedy="restore the folder, or run `trueup assess` again",
        ) from None
    raise BundleError(
        f"'{folder}' has format {manifest['format']}",
        needed=f"format {FORMAT}",
        remedy="run `trueup assess` again with this version",
    )


def write_single_counts(path: Path, assessment: Assessment, margin: Margin) -> None:
    """Write the errors of every single count of a table, with one row for each figure.

    Texts are joined to numbers inside DuckDB: millions of rows repeat a few names and keys.
    """
    if assessment.cells is None:
        raise BundleError(
            "the assessment was read from a folder without the figures of single counts",
            remedy="read them from the files in its folder counts/",
        )
    keys = margin_columns(assessment.cells, margin)
    labels, parts = _parts(assessment, margin)
    columns = ", ".join(f"k.{quoted(name)}" for name in keys)
    said = ", ".join(f"l.{name}" for name in labels)
    with connect(folders=[path.parent]) as connection:
        connection.register("k", keys | {"trueup_group": np.arange(assessment.cells.size(margin))})
        connection.register("l", labels | {"trueup_part": np.arange(len(labels["method"]))})
        connection.register("f", parts)
        joined = connection.sql(
            f"SELECT {columns}, {said}, f.value, f.mc_error "
            "FROM f JOIN k USING (trueup_group) JOIN l USING (trueup_part) ORDER BY trueup_part, trueup_group"
        )
        with writing_by_duckdb(path):
            joined.write_parquet(str(path), compression="zstd")


def _parts(assessment: Assessment, margin: Margin) -> tuple[Columns, Columns]:
    """Return labels for each method, budget and statistic, and all their values in one column."""
    labels: list[tuple[str, str, str, str]] = []
    found: list[tuple] = []
    for (method, budget, table), figures in assessment.figures.items():
        for (statistic, about), pair in figures.items() if table == margin else ():
            labels.append((method, budget, statistic, about))
            found.append(pair)
    names: Columns = dict(zip(("method", "budget", "statistic", "about"), map(np.array, zip(*labels))))
    groups = len(found[0][0])
    return names, {
        "trueup_part": np.repeat(np.arange(len(found)), groups),
        "trueup_group": np.tile(np.arange(groups), len(found)),
        "value": np.concatenate([np.asarray(v, float) for v, _ in found]),
        "mc_error": np.concatenate([np.asarray(e, float) for _, e in found]),
    }


def _read_assessment(manifest: dict[str, Any], summary: Columns) -> Assessment:
    exact = ({**b, "scale": amount(b["scale"]), "amount": amount(b["amount"])} for b in manifest["budgets"])
    records = {
        "methods": tuple(Assessed(**method) for method in manifest["methods"]),
        "budgets": tuple(Budget(**budget) for budget in exact),
        "levels": tuple(Margin(m["level"], tuple(m["attributes"])) for m in manifest["levels"]),
        "flags": tuple(Flag(**flag) for flag in manifest["flags"]),
    }
    return Assessment(cells=None, summary=summary, **{n: manifest[n] for n in _WRITTEN} | records)
