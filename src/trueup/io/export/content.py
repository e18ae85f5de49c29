"""Content of an export: tables, rows on how the data were protected, and metadata for registries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.io.bundle.posterior import margins
from trueup.model.cells import Cells, Margin
from trueup.model.guarantee import Guarantee
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release
from trueup.model.statements import limited
from trueup.model.tables import named_columns, one_column_a_value, position_of, probability_of
from trueup.privacy import outward
from trueup.version import __version__

Record = Release | Measurements | Posterior
_POSTERIOR = ("mean", "sd", "median", "low", "high", "mass")


@dataclass(frozen=True, eq=False)
class ExportedTable:
    """A table to export, with one or more figures `(groups,)` for each group of a margin.

    Attributes
    ----------
    cells, margin
        The cells of the data, and the margin whose groups are the rows.
    figures
        Values of each figure by its name, the main figure first.
    exact
        Mask of the counts that are published as enumerated.
    wide
        The attribute whose values become columns; None for a row for each group.
    """

    cells: Cells
    margin: Margin
    figures: Mapping[str, NDArray]
    exact: NDArray[np.bool_]
    wide: str | None = None

    @property
    def columns(self) -> dict[str, NDArray]:
        """Return all columns of the exported table by heading."""
        if self.wide is None:
            return named_columns(self.cells, self.margin) | dict(self.figures)
        return one_column_a_value(self.cells, self.margin, next(iter(self.figures.values())), self.wide)

    @property
    def labels(self) -> set[str]:
        """Return the headings of the exported table's columns of text."""
        attributes = tuple(name for name in self.margin.attributes if name != self.wide)
        return set(named_columns(self.cells, Margin(self.margin.level, attributes)))


@dataclass(frozen=True, eq=False)
class Exported:
    """The content of an export: a title, rows on how the data were protected, and tables.

    Attributes
    ----------
    title, unit
        The title of the data, and the unit that is counted.
    about
        Pairs of a heading and a sentence on what was protected and how.
    tables
        The tables, coarse to fine.
    """

    title: str
    unit: str
    about: tuple[tuple[str, str], ...]
    tables: tuple[ExportedTable, ...]

    @property
    def about_columns(self) -> dict[str, NDArray]:
        """Return the rows on how the data were protected as two columns."""
        return dict(zip(("about", "text"), map(np.array, zip(*self.about))))


def content(
    record: Record, tables: Sequence[str] = (), *, wide: str | None = None, level: float | str = "90%"
) -> Exported:
    """Return the content of an export of all tables or of the named tables.

    Raises
    ------
    SpecError
        If a table is not declared, was not measured, or no table is by the attribute `wide`.
    """
    level = probability_of(level)
    margins = [record.cells.margin(name) for name in tables] or _margins(record)
    if wide is not None and not tables:
        margins = [m for m in margins if wide in m.attributes] or margins[-1:]
    if wide is not None:
        for margin in margins:
            position_of(record.cells, margin, wide)
    shown = tuple(_exported_table(record, margin, wide, level) for margin in margins)
    measured = record.measurements if isinstance(record, Release) else record
    spec = measured.spec if isinstance(measured, Measurements) else None
    title = spec.title if spec else "Tables"
    return Exported(title, spec.table.counts if spec else "", tuple(_about(record, title, level)), shown)


def _margins(record: Record) -> list[Margin]:
    """Return the margins to export, which are those that count all units."""
    if isinstance(record, Release):
        return list(record.published)
    if isinstance(record, Posterior):
        return margins(record)
    return list(dict.fromkeys(h.margin for h in record.headers if not h.margin.where))


def _exported_table(record: Record, margin: Margin, wide: str | None, level: float) -> ExportedTable:
    figures = record.figures(margin, level)
    if isinstance(record, Posterior):
        figures = {name: figures[name] for name in _POSTERIOR}
    exact = np.zeros(record.cells.size(margin), bool)
    if not isinstance(record, Posterior):
        exact = (record.measurements if isinstance(record, Release) else record).exact(margin)
    return ExportedTable(record.cells, margin, figures, exact, wide)


def _about(record: Record, title: str, level: float):
    yield "Title", title
    measured = record.measurements if isinstance(record, Release) else record
    if isinstance(measured, Measurements):
        if measured.spec:
            yield "Dataset", measured.spec.table.name
            most = limited(measured.spec)
            yield "Counted", measured.spec.table.counts + (f", {most}; others are left out" if most else "")
        if (alone := measured.left_out) is not None:
            unit = measured.spec.privacy.unit if measured.spec else "unit"
            yield (
                "Left out",
                f"{max(alone.value, 0):,} records, of each {unit} at most {alone.most:,}; "
                f"± {alone.margin_of_error(level):,} ({100 * level:.3g} %)",
            )
        for sentence in measured.guarantee.sentences:
            yield "Privacy", sentence
        what = "How it was made:" if measured.guarantee.kind == "none" else "Noise of"
        said = ((f"{what} '{h.margin}' ({h.query})", h.law.sentence()) for h in measured.headers)
        yield from dict.fromkeys(said)
    if isinstance(record, Release):
        yield "Method of reconciliation", _described(record.method)
        for rule, holds in record.checks.items():
            yield "Checked", f"{rule}: {'holds' if holds else 'does not hold'}"
    if isinstance(record, Posterior):
        yield "Method of inference", _described(record.method)
        yield "Intervals", record.promise
    else:
        yield (
            "Margin of error",
            f"the error of a count is no larger with a probability of {100 * level:.3g} %; empty where none is known",
        )
    yield "Made with", f"trueup {__version__}"


def _described(method: Mapping[str, Any]) -> str:
    options = [f"{k} = {v}" for k, v in method.items() if k != "method" and v not in (None, "", ())]
    return str(method.get("method", "")) + (f" ({', '.join(options)})" if options else "")


MODEL = "central: one curator holds the records and adds noise before anything is published"


def deployment(record: Release | Measurements | Posterior, curator: str | None = None) -> dict[str, Any]:
    """Return a release's entry for registries of deployments, with its privacy loss and noise laws."""
    if isinstance(record, Posterior):
        raise SpecError(
            "a posterior is given, which has no mechanism of its own",
            needed="the release or the measurements that it was drawn from",
        )
    measured = record.measurements if isinstance(record, Release) else record
    if measured.simulation:
        raise SpecError(
            "the noise of this release is simulated, so that it protects no data",
            needed="a release of real data by `trueup release`",
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
        "laws of noise": [
            {
                "query": header.query,
                "table": str(header.margin),
                "law": header.law.name,
                "parameters": {name: str(value) for name, value in header.law.parameters().items()},
            }
            for header in measured.headers
        ],
        "accounting": "losses of all queries add up; each is stated for one step between neighbouring databases",
        "post-processing": dict(record.method) if isinstance(record, Release) else None,
        "published exactly": sorted({str(h.margin) for h in measured.headers if h.law.exact}),
        "statement": list(guarantee.sentences),
        "software": f"trueup {__version__}",
        "digest": record.digest,
    }


def _definition(guarantee: Guarantee) -> str:
    """Return the name of the privacy definition that a guarantee satisfies."""
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
