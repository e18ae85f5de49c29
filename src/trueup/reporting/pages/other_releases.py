"""The report pages of a release by parts and of counts fitted to tables that others published."""

from __future__ import annotations

import numpy as np

from trueup.io.bundle.read import StoredRelease
from trueup.model.build import cells_of_sizes
from trueup.model.cells import Margin
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reporting.drawing import Column, Facts, Notice, Page, Section, Table, Text, numeric
from trueup.reporting.drawing.words import number, plain, plural, table_name
from trueup.reporting.sections.counts import HIDDEN, counts_table
from trueup.reporting.sections.error import expected_blocks, noise_margin
from trueup.reporting.sections.opening import about, cost, counted_line, opening, protected, total_loss
from trueup.reporting.sections.origin import Ledger, checks, glossary, making, origin, passed


def parts_page(release: StoredRelease, spec: Spec, ledger: Ledger, level: float | str = "90%") -> Page:
    """Return the report page of a release by parts."""
    unit = plural(spec.table.counts)
    return Page(
        spec.title,
        "Report on a release of counts with formal privacy protection, made by parts",
        "",
        (*counted_line(spec, unit), *_summary(release)),
        (
            protected(release.guarantee),
            cost(release),
            _levels(release),
            _errors(release, unit),
            checks(release),
            making(release, spec, unit),
            about(spec, release),
            origin(release, spec, ledger),
            glossary(release.guarantee),
        ),
        opening(release, unit, level),
    )


def _summary(release: StoredRelease) -> tuple[tuple[str, str], ...]:
    places = "; ".join(f"{plain(name)} ({size:,})" for name, size in release.sizes.items())
    return (
        ("Places", places),
        ("Counts", number(sum(_sizes(release)))),
        ("Protected", f"each {release.guarantee.unit}"),
        ("Privacy loss", total_loss(release.guarantee)),
        ("Checks passed", passed(release)),
    )


def _levels(release: StoredRelease) -> Section:
    levels = [margin.level for margin in release.published]
    columns = (
        Column("Level", [plain(name) for name in levels]),
        numeric("Places", [number(release.sizes[name]) for name in levels]),
        numeric("Counts", [number(size) for size in _sizes(release)]),
        Column("Released table", [table_name(margin) for margin in release.published]),
    )
    note = "Tables list the counts that are not zero; every other count of the public places is zero."
    return Section("levels", "What was released", (Table("Released tables", columns, note),))


def _sizes(release: StoredRelease) -> list[int]:
    """Return the number of counts of each released table."""
    cells = cells_of_sizes(release.spec, list(release.sizes.values()))
    return [cells.size(margin) for margin in release.published]


def _errors(release: StoredRelease, unit: str) -> Section:
    noisy = {(h.query, h.margin.level): h for h in release.headers if not h.exact}
    found = [(noisy[m.query, m.level], m) for m in release.misses]
    columns = (
        Column("Noisy table", [f"{plain(h.query)}, {table_name(h.margin)}" for h, _ in found]),
        numeric("Number of counts", [number(m.counts) for _, m in found]),
        numeric(f"Standard deviation of the noise ({unit})", np.sqrt([h.law.variance for h, _ in found])),
        numeric(
            f"90 % noise margin (±\N{NO-BREAK SPACE}{unit})", [number(noise_margin(h.law)) for h, _ in found]
        ),
        numeric(
            f"Released minus noisy count, root mean square ({unit})", np.array([m.rms for _, m in found])
        ),
    )
    text = Text(
        "The noise was drawn at random from known laws, and all levels were combined by weighted least squares. The "
        "last column says how far the released counts are from the noisy ones: where it is close to the noise itself, "
        "nearly all noise was taken out again or pushed elsewhere by nonnegativity. It compares public numbers."
    )
    blocks = (*expected_blocks(release.expected, unit), text, Table("Noise of each table", columns))
    return Section("error", "Expected error, noise and adjustments", blocks)


CLAIM = "No guarantee is claimed."


def published_page(release: Release, spec: Spec, ledger: Ledger) -> Page:
    """Return the report page of whole counts that fit tables which somebody else published."""
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
    """Return the report page of tables that somebody else published."""
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
    """Return the section on how each published table was made."""
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
        own = numeric(f"Count ({unit})", counts[at])
        return [own, *_published(release.measurements, margin, at, unit)]

    return counts_table(release.cells, margin, "counts", "counts", columns)


def _published(measurements: Measurements, margin: Margin, at: slice, unit: str) -> list[Column]:
    """Return a column with the published values of some groups, or an empty list if all are hidden."""
    shown = measurements.shown(margin)
    hidden = np.ma.getmaskarray(shown)
    if hidden.all():
        return []
    texts = [HIDDEN if not_shown else number(float(v)) for v, not_shown in zip(shown.data[at], hidden[at])]
    return [numeric(f"Published ({unit})", texts)]
