"""The report of a release by parts: the summary of a whole country, without its single counts."""

from __future__ import annotations

import numpy as np

from trueup.io.bundle.read import StoredRelease
from trueup.model.build import cells_of_sizes
from trueup.model.spec import Spec
from trueup.reporting.drawing.blocks import Column, Page, Section, Table, Text
from trueup.reporting.drawing.words import number, numbers, plain, plural, table_name
from trueup.reporting.sections.error import expected_blocks, noise_margin
from trueup.reporting.sections.opening import about, counted_line, glossary, opening
from trueup.reporting.sections.origin import Ledger, checks, making, origin, passed
from trueup.reporting.sections.protection import cost, protected, total_loss


def parts_page(release: StoredRelease, spec: Spec, ledger: Ledger, level: float | str = "90%") -> Page:
    """Lay out the report of a release by parts."""
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
        Column("Places", [number(release.sizes[name]) for name in levels], numeric=True),
        Column("Counts", [number(size) for size in _sizes(release)], numeric=True),
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
        Column("Number of counts", [number(m.counts) for _, m in found], numeric=True),
        Column(
            f"Standard deviation of the noise ({unit})",
            numbers(np.sqrt([h.law.variance for h, _ in found])),
            numeric=True,
        ),
        Column(
            f"90 % noise margin (±\N{NO-BREAK SPACE}{unit})",
            [number(noise_margin(h.law)) for h, _ in found],
            numeric=True,
        ),
        Column(
            f"Released minus noisy count, root mean square ({unit})",
            numbers(np.array([m.rms for _, m in found])),
            numeric=True,
        ),
    )
    text = Text(
        "The noise was drawn at random from known laws, and all levels were combined by weighted least squares. The "
        "last column says how far the released counts are from the noisy ones: where it is close to the noise itself, "
        "nearly all noise was taken out again or pushed elsewhere by nonnegativity. It compares public numbers."
    )
    blocks = (*expected_blocks(release.expected, unit), text, Table("Noise of each table", columns))
    return Section("error", "Expected error, noise and adjustments", blocks)
