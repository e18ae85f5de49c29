"""The report of counts that were reconciled from tables which somebody else published: no guarantee is claimed."""

from __future__ import annotations

import numpy as np

from trueup.model.cells import Margin
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reporting.drawing.blocks import Column, Facts, Notice, Page, Section, Table, Text
from trueup.reporting.drawing.words import number, numbers, plain, plural, table_name
from trueup.reporting.sections.counts import HIDDEN, counts_table
from trueup.reporting.sections.origin import Ledger, checks, making, origin, passed

CLAIM = "No guarantee is claimed."


def published_page(release: Release, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report."""
    unit = plural(spec.table.counts)
    return Page(
        spec.title,
        "Report on whole counts that fit tables which somebody else published",
        "",
        (
            (
                "Reconciled",
                "; ".join(f"{table_name(m)} ({release.cells.size(m):,})" for m in release.published),
            ),
            ("Privacy", CLAIM),
            ("Checks passed", passed(release)),
        ),
        (
            _claimed(release.measurements),
            _made(release.measurements),
            _counts(release, unit),
            checks(release),
            making(release, spec, unit),
            origin(release.measurements, spec, ledger),
        ),
        (
            f"These are numbers of {unit} that add up and that the published tables allow: one set of such numbers, not the true "
            "ones. How sure each is, the posterior says (`trueup infer --perturbed`).",
        ),
    )


def published_tables_page(measurements: Measurements, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of the tables themselves."""
    cells, unit = measurements.cells, plural(spec.table.counts)
    margins = dict.fromkeys(canonical(cells, h.margin) for h in measurements.headers)
    text = Text(f"What was published; '{HIDDEN}' where that is no number.")
    tables = (
        counts_table(
            cells,
            m,
            "published counts",
            "measurements",
            lambda at, m=m: _published(measurements, m, at, unit),
        )
        for m in margins
    )
    return Page(
        spec.title,
        "Report on tables that somebody else published",
        "",
        (
            ("Published", "; ".join(f"{table_name(m)} ({cells.size(m):,})" for m in margins)),
            ("Privacy", CLAIM),
        ),
        (
            _claimed(measurements),
            _made(measurements),
            Section("counts", "The published counts", (text, *tables)),
            origin(measurements, spec, ledger),
        ),
    )


def _claimed(measurements: Measurements) -> Section:
    noted = [Notice(text) for text in getattr(measurements.spec, "noted", ())]
    return Section("claimed", "What is claimed", (Text(CLAIM, *measurements.guarantee.sentences), *noted))


def _made(measurements: Measurements) -> Section:
    """Return the section on how each table was made."""
    facts = dict.fromkeys(
        (f"{plain(h.query)}, {table_name(h.margin)}", h.law.sentence())
        for h in measurements.headers
        if not h.exact
    )
    exact = dict.fromkeys(
        (f"{plain(h.query)}, {table_name(h.margin)}", "Published as exact.")
        for h in measurements.headers
        if h.exact
    )
    return Section("published", "How the published tables were made", (Facts((*facts, *exact)),))


def _counts(release: Release, unit: str) -> Section:
    text = Text(f"Each count stands beside what was published of it; '{HIDDEN}' where that is no number.")
    return Section(
        "counts", "The counts", (text, *(_published_table(release, m, unit) for m in release.published))
    )


def _published_table(release: Release, margin: Margin, unit: str) -> Table:
    counts = release.sums(margin)

    def columns(at: slice) -> list[Column]:
        own = Column(f"Count ({unit})", numbers(counts[at]), numeric=True)
        return [own, *_published(release.measurements, margin, at, unit)]

    return counts_table(release.cells, margin, "counts", "counts", columns)


def _published(measurements: Measurements, margin: Margin, at: slice, unit: str) -> list[Column]:
    """Return the column of what was published of some groups, if anything was."""
    shown = measurements.shown(margin)
    hidden = np.ma.getmaskarray(shown)
    if hidden.all():
        return []
    texts = [HIDDEN if not_shown else number(float(v)) for v, not_shown in zip(shown.data[at], hidden[at])]
    return [Column(f"Published ({unit})", texts, numeric=True)]
