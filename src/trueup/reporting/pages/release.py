"""The report of a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reporting.drawing.blocks import Page, Section
from trueup.reporting.drawing.map import Map, draw_map, shaded_by_count
from trueup.reporting.drawing.outlines import read_shapes
from trueup.reporting.drawing.words import number, plural, table_name
from trueup.reporting.pages.measurements import warning
from trueup.reporting.pages.published import published_page
from trueup.reporting.sections.adjustments import adjustments
from trueup.reporting.sections.counts import enumerated, released_counts
from trueup.reporting.sections.error import release_error
from trueup.reporting.sections.glossary import glossary
from trueup.reporting.sections.opening import about, counted_line, opening
from trueup.reporting.sections.origin import Ledger, checks, making, origin, passed
from trueup.reporting.sections.protection import cost, protected, total_loss
from trueup.reporting.sections.results import released_results


def release_page(
    release: Release, spec: Spec, ledger: Ledger, level: float | str = "90%", shapes: str | Path | None = None
) -> Page:
    """Lay out the report of a release; for one that came in many parts, a summary without its single counts."""
    if release.parts > 1:
        from trueup.io.bundle.read import StoredRelease
        from trueup.reporting.pages.release_by_parts import parts_page  # it reads bundles

        assert isinstance(release, StoredRelease)
        refuse_map(shapes)
        return parts_page(release, spec, ledger, level)
    if release.guarantee.kind == "none":
        return published_page(release, spec, ledger)
    measurements, unit = release.measurements, plural(spec.table.counts)
    places = None if shapes is None else release_map(release, unit, level, read_shapes(shapes))
    return Page(
        spec.title,
        "Report on a release of counts with formal privacy protection",
        warning(measurements),
        _summary(release, spec, unit, level),
        (
            released_results(release, unit, level, _counts_map(release, unit, level, places)),
            protected(measurements.guarantee),
            cost(measurements),
            release_error(release, unit),
            *_map(places),
            released_counts(release, unit, level),
            adjustments(release, unit),
            enumerated(measurements),
            checks(release),
            making(release, spec, unit),
            about(spec, release),
            origin(measurements, spec, ledger),
            glossary(measurements.guarantee),
        ),
        opening(release, unit, level),
    )


def refuse_map(shapes: object) -> None:
    """Refuse shapes for a page that shows no single counts."""
    if shapes is not None:
        raise SpecError("shapes are given", needed="a release in one part, whose page shows single counts")


def _map(places: Map | None) -> tuple[Section, ...]:
    return () if places is None else (Section("map", "How certain the numbers are, by place", (places,)),)


def _counts_map(release: Release, unit: str, level: float | str, places: Map | None) -> tuple[Map, ...]:
    if places is None:
        return ()
    counts = release.sums(Margin(places.level))
    return (shaded_by_count(places, release.cells, counts, unit, f"{read_confidence(level)} %"),)


def release_map(
    release: Release,
    unit: str,
    level: float | str,
    features: Sequence[Mapping[str, Any]],
) -> Map:
    """Draw the places of a release by the certainty of their counts.

    Raises
    ------
    DataError
        If the shapes are of no level that was released.
    """
    places = [m for m in release.published if not m.attributes]
    margins = {m.level: error for m in places if (error := release.margin_of_error(m, level)) is not None}
    counts = {m.level: release.sums(m) for m in places}
    return draw_map(release.cells, features, counts, margins, unit, f"{read_confidence(level)} %")


def _summary(release: Release, spec: Spec, unit: str, level: float | str) -> tuple[tuple[str, str], ...]:
    guarantee, cells = release.measurements.guarantee, release.cells
    return (
        *counted_line(spec, unit),
        ("Released", "; ".join(f"{table_name(m)} ({cells.size(m):,})" for m in release.published)),
        ("Protected", f"each {guarantee.unit}"),
        ("Privacy loss", total_loss(guarantee)),
        *_typical(release, unit, level),
        ("Checks passed", passed(release)),
    )


def _typical(release: Release, unit: str, level: float | str) -> list[tuple[str, str]]:
    finest = release.published[-1]
    if (errors := release.margin_of_error(finest, level)) is None:
        return []
    margin = float(np.median(errors))
    return [
        (
            f"Typical {read_confidence(level)} % margin of error, {table_name(finest)}",
            f"± {number(margin)} {unit}: half of these counts have a smaller one, half a larger one",
        )
    ]
