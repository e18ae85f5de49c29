"""The report pages of a release and of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Margin
from trueup.model.nested import canonical
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.reporting.drawing import Column, Map, Page, Section, Table, Text, numeric
from trueup.reporting.drawing.pictures import Figure, strips
from trueup.reporting.drawing.words import number, percent, plain, plural, table_name
from trueup.reporting.sections.counts import enumerated, noisy_counts, released_counts
from trueup.reporting.sections.error import noise_error, release_error
from trueup.reporting.sections.opening import (
    about,
    cost,
    counted,
    counted_line,
    opening,
    protected,
    total_loss,
)
from trueup.reporting.sections.origin import Ledger, checks, glossary, making, noise_making, origin, passed
from trueup.reporting.sections.results import released_results


def release_page(
    release: Release, spec: Spec, ledger: Ledger, level: float | str = "90%", shapes: str | Path | None = None
) -> Page:
    """Return the report page of a release."""
    if release.parts > 1:
        from trueup.io.bundle.read import StoredRelease
        from trueup.reporting.pages.other_releases import parts_page  # it reads bundles

        assert isinstance(release, StoredRelease)
        refuse_map(shapes)
        return parts_page(release, spec, ledger, level)
    if release.guarantee.kind == "none":
        from trueup.reporting.pages.other_releases import published_page

        return published_page(release, spec, ledger)
    measurements, unit = release.measurements, plural(spec.table.counts)
    certain, counts = [], []
    if shapes is not None:
        from trueup.reporting.drawing.maps import (  # without shapes no map is drawn
            read_shapes,
            shaded_by_count,
        )

        places = release_map(release, unit, level, read_shapes(shapes))
        certain = [Section("map", "How certain the numbers are, by place", (places,))]
        held = release.sums(Margin(places.level))
        counts = [shaded_by_count(places, release.cells, held, unit, f"{read_confidence(level)} %")]
    return Page(
        spec.title,
        "Report on a release of counts with formal privacy protection",
        warning(measurements),
        _summary(release, spec, unit, level),
        (
            released_results(release, counted(spec, unit), level, counts),
            protected(measurements.guarantee),
            cost(measurements),
            release_error(release, unit),
            *certain,
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
    """Refuse shapes of places for a report that shows no single counts."""
    if shapes is not None:
        raise SpecError(
            "shapes of places are given for a release in several parts",
            needed="a release in one part, whose page shows single counts",
            remedy="leave out the shapes",
        )


def release_map(
    release: Release,
    unit: str,
    level: float | str,
    features: Sequence[Mapping[str, Any]],
) -> Map:
    """Return a map of the places of a release, shaded by the certainty of counts.

    Raises
    ------
    DataError
        If the shapes are of no level that was released.
    """
    from trueup.reporting.drawing.maps import draw_map

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


def measurements_page(measurements: Measurements, spec: Spec, ledger: Ledger) -> Page:
    """Return the report page of measurements."""
    if measurements.guarantee.kind == "none":
        from trueup.reporting.pages.other_releases import published_tables_page

        return published_tables_page(measurements, spec, ledger)
    unit = plural(spec.table.counts)
    return Page(
        spec.title,
        "Report on noisy counts with formal privacy protection",
        warning(measurements),
        (*counted_line(spec, unit), *_noise_summary(measurements)),
        (
            protected(measurements.guarantee),
            cost(measurements),
            noise_error(measurements, unit),
            noisy_counts(measurements, unit),
            enumerated(measurements),
            noise_making(measurements),
            origin(measurements, spec, ledger),
            glossary(measurements.guarantee),
        ),
    )


def warning(measurements: Measurements) -> str:
    """Return a warning that simulated noise protects nobody; empty for real noise."""
    if not measurements.simulation:
        return ""
    return (
        "Simulation, not for publication: the noise came from a seeded generator and can be reproduced, so it "
        "protects nobody. The statements on privacy below describe what real noise of the same laws would give."
    )


def _noise_summary(measurements: Measurements) -> tuple[tuple[str, str], ...]:
    cells, guarantee = measurements.cells, measurements.guarantee
    margins = dict.fromkeys(canonical(cells, h.margin) for h in measurements.headers)
    return (
        ("Measured", "; ".join(f"{table_name(m)} ({cells.size(m):,})" for m in margins)),
        ("Protected", f"each {guarantee.unit}"),
        ("Privacy loss", total_loss(guarantee)),
    )


_AT = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
_NAMES = ("Smallest", "5 % quantile", "25 % quantile", "Median", "75 % quantile", "95 % quantile", "Largest")


def adjustments(release: Release, unit: str) -> Section:
    """Return the section on the distances between released and noisy counts."""
    heading = "What reconciliation changed"
    changes = _changes(release)
    if not changes:
        return Section("changes", heading, (Text("Nothing: no count carries noise."),))
    facts = {"whole": release.checks.get("whole numbers"), "not negative": (release.counts >= 0).all()}
    rules = " and ".join(name for name, holds in facts.items() if holds)
    kept = f" and keep them {rules}," if rules else ""
    text = Text(
        f"To make the counts add up,{kept} reconciliation moved them away from the noisy counts. The "
        "change is a public quantity: it is computed from noisy and released counts only. "
        "It removes noise as well, so a change is not an error."
    )
    quantiles = {name: np.quantile(change, _AT) for name, change in changes.items()}
    return Section("changes", heading, (text, _picture(quantiles, unit), _table(changes, quantiles, unit)))


def _changes(release: Release) -> dict[str, NDArray]:
    noisy = (h for h in release.measurements.headers if not h.exact)
    return {
        f"{plain(header.query)}, {table_name(header.margin)}": change
        for header, change in zip(noisy, release.adjustments().values(), strict=True)
    }


def _picture(quantiles: dict[str, NDArray], unit: str) -> Figure:
    rows = {name: row[1:6].tolist() for name, row in quantiles.items()}
    widest = max(quantiles, key=lambda name: quantiles[name][5] - quantiles[name][1])
    message = (
        f"Picture of the distribution of changes: they are widest in {widest}, where 90 % lie between "
        f"{number(quantiles[widest][1])} and {number(quantiles[widest][5])} {unit}."
    )
    caption = "How the changes of each table are distributed. The extremes are in the table below."
    return strips(rows, f"released − noisy count ({unit})", message, caption)


def _table(changes: dict[str, NDArray], quantiles: dict[str, NDArray], unit: str) -> Table:
    spread = np.array(list(quantiles.values()))
    columns = (
        Column("Noisy table", list(changes)),
        *(numeric(f"{name} ({unit})", column) for name, column in zip(_NAMES, spread.T)),
        numeric(
            f"Root mean square ({unit})",
            np.array([np.sqrt(np.mean(np.square(c, dtype=float))) for c in changes.values()]),
        ),
        numeric("Unchanged (%)", [percent(np.mean(c == 0)) for c in changes.values()]),
    )
    return Table("Released minus noisy count, by table", columns)
