"""The report of a release."""

from __future__ import annotations

import numpy as np

from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reporting.drawing.blocks import Page
from trueup.reporting.drawing.words import number, plural, table_name
from trueup.reporting.pages.measurements import warning
from trueup.reporting.sections.adjustments import adjustments
from trueup.reporting.sections.counts import enumerated, released_counts
from trueup.reporting.sections.error import release_error
from trueup.reporting.sections.glossary import glossary
from trueup.reporting.sections.origin import Ledger, checks, making, origin, passed
from trueup.reporting.sections.protection import cost, protected, total_loss


def release_page(release: Release, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of a release; of one that came in many parts, a summary without its single counts."""
    if release.parts > 1:
        from trueup.io.bundle.read import StoredRelease
        from trueup.reporting.pages.release_by_parts import parts_page  # it reads bundles

        assert isinstance(release, StoredRelease)
        return parts_page(release, spec, ledger)
    measurements, unit = release.measurements, plural(spec.table.counts)
    return Page(
        spec.title,
        "Report on a release of counts with formal privacy protection",
        warning(measurements),
        _summary(release, unit),
        (
            protected(measurements.guarantee),
            cost(measurements),
            release_error(release, unit),
            released_counts(release, unit),
            adjustments(release, unit),
            enumerated(measurements),
            checks(release),
            making(release, spec, unit),
            origin(measurements, spec, ledger),
            glossary(measurements.guarantee),
        ),
    )


def _summary(release: Release, unit: str) -> tuple[tuple[str, str], ...]:
    guarantee, cells = release.measurements.guarantee, release.cells
    return (
        ("Released", "; ".join(f"{table_name(m)} ({cells.size(m):,})" for m in release.published)),
        ("Protected", f"each {guarantee.unit}"),
        ("Privacy loss", total_loss(guarantee)),
        *_typical(release, unit),
        ("Checks passed", passed(release)),
    )


def _typical(release: Release, unit: str) -> list[tuple[str, str]]:
    finest = release.published[-1]
    if (errors := release.margin_of_error(finest)) is None:
        return []
    margin = float(np.median(errors))
    return [(f"90 % margin of error, {table_name(finest)}", f"in the middle ± {number(margin)} {unit}")]
