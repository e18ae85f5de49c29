"""Section on what reconciliation changed: released minus noisy counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.model.records.release import Release
from trueup.reporting.drawing.blocks import Column, Section, Table, Text
from trueup.reporting.drawing.pictures import Figure, strips
from trueup.reporting.drawing.words import number, numbers, percent, plain, table_name

_AT = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
_NAMES = ("Smallest", "5 % quantile", "25 % quantile", "Median", "75 % quantile", "95 % quantile", "Largest")


def adjustments(release: Release, unit: str) -> Section:
    """Show how far released counts lie from the noisy counts they were made from."""
    heading = "What reconciliation changed"
    changes = _changes(release)
    if not changes:
        return Section("changes", heading, (Text("Nothing: no count carries noise."),))
    text = Text(
        f"To make the counts add up,{_kept_rules(release)} reconciliation moved them away from the noisy counts. The "
        "change is a public quantity: it is computed from noisy and released counts only. "
        "It removes noise as well, so a change is not an error."
    )
    quantiles = {name: np.quantile(change, _AT) for name, change in changes.items()}
    return Section("changes", heading, (text, _picture(quantiles, unit), _table(changes, quantiles, unit)))


def _kept_rules(release: Release) -> str:
    """Return in words what else was kept; continuous methods, and those that allow negative counts, keep less."""
    facts = {"whole": release.checks.get("whole numbers"), "not negative": (release.counts >= 0).all()}
    kept = " and ".join(name for name, holds in facts.items() if holds)
    return f" and keep them {kept}," if kept else ""


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
        *(
            Column(f"{name} ({unit})", numbers(column), numeric=True)
            for name, column in zip(_NAMES, spread.T)
        ),
        Column(
            f"Root mean square ({unit})",
            numbers(np.array([np.sqrt(np.mean(np.square(c, dtype=float))) for c in changes.values()])),
            numeric=True,
        ),
        Column("Unchanged (%)", [percent(np.mean(c == 0)) for c in changes.values()], numeric=True),
    )
    return Table("Released minus noisy count, by table", columns)
