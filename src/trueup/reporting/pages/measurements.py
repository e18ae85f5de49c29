"""The report of measurements."""

from __future__ import annotations

from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.reporting.drawing.blocks import Page
from trueup.reporting.drawing.words import plural, table_name
from trueup.reporting.pages.published import published_tables_page
from trueup.reporting.sections.counts import enumerated, noisy_counts
from trueup.reporting.sections.error import noise_error
from trueup.reporting.sections.glossary import glossary
from trueup.reporting.sections.opening import counted_line
from trueup.reporting.sections.origin import Ledger, noise_making, origin
from trueup.reporting.sections.protection import cost, protected, total_loss


def measurements_page(measurements: Measurements, spec: Spec, ledger: Ledger) -> Page:
    """Lay out the report of measurements."""
    if measurements.guarantee.kind == "none":
        return published_tables_page(measurements, spec, ledger)
    unit = plural(spec.table.counts)
    return Page(
        spec.title,
        "Report on noisy counts with formal privacy protection",
        warning(measurements),
        (*counted_line(spec, unit), *_summary(measurements)),
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
    """Return a warning if the noise protects nobody."""
    if not measurements.simulation:
        return ""
    return (
        "Simulation, not for publication: the noise came from a seeded generator and can be reproduced, so it "
        "protects nobody. The statements on privacy below describe what real noise of the same laws would give."
    )


def _summary(measurements: Measurements) -> tuple[tuple[str, str], ...]:
    cells, guarantee = measurements.cells, measurements.guarantee
    margins = dict.fromkeys(canonical(cells, h.margin) for h in measurements.headers)
    return (
        ("Measured", "; ".join(f"{table_name(m)} ({cells.size(m):,})" for m in margins)),
        ("Protected", f"each {guarantee.unit}"),
        ("Privacy loss", total_loss(guarantee)),
    )
