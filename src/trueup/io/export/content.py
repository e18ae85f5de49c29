"""Content of an export in any format: the tables of a record, and a page on what was protected and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.release import Release
from trueup.model.statements import limited
from trueup.model.tables import named_columns, one_column_a_value, position_of, probability_of
from trueup.version import __version__

Record = Release | Measurements | Posterior
_POSTERIOR = ("mean", "sd", "median", "low", "high", "mass")


@dataclass(frozen=True, eq=False)
class ExportedTable:
    """A table with its figures `(groups,)`; masked if there is none.

    Attributes
    ----------
    cells, margin
        Its groups.
    figures
        By what they are, the main one first.
    exact
        Which counts are published as enumerated.
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
        """Return all columns by their headings: keys of places, readable names, attributes, figures."""
        if self.wide is None:
            return named_columns(self.cells, self.margin) | dict(self.figures)
        return one_column_a_value(self.cells, self.margin, next(iter(self.figures.values())), self.wide)

    @property
    def labels(self) -> set[str]:
        """Return the headings of the columns that hold text."""
        attributes = tuple(name for name in self.margin.attributes if name != self.wide)
        return set(named_columns(self.cells, Margin(self.margin.level, attributes)))


@dataclass(frozen=True, eq=False)
class Exported:
    """The content of a file or a folder of tables.

    Attributes
    ----------
    title, unit
        What was counted.
    about
        What was protected and how, in rows of a heading and a sentence.
    tables
        The tables, coarse to fine.
    """

    title: str
    unit: str
    about: tuple[tuple[str, str], ...]
    tables: tuple[ExportedTable, ...]


def content(
    record: Record, tables: Sequence[str] = (), *, wide: str | None = None, level: float | str = "90%"
) -> Exported:
    """Collect the tables of a record, all of them or the named ones.

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
    """Return the tables that a record holds for counts of all units."""
    if isinstance(record, Release):
        return list(record.published)
    if isinstance(record, Posterior):
        return list(dict.fromkeys([*record.drawn.marginals, *record.cells.finest_tables]))
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
