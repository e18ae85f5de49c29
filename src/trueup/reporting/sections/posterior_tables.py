"""Tables of a posterior: a summary of every count and every ratio."""

from __future__ import annotations

import numpy as np

from trueup.model.cells import Margin
from trueup.model.records.marginals import Columns
from trueup.model.records.posterior import Posterior
from trueup.reporting.drawing.blocks import Column, Section, Table, Text
from trueup.reporting.drawing.words import number, numbers
from trueup.reporting.sections.counts import counts_table


def tables(posterior: Posterior, unit: str) -> Section:
    """Return a summary of every count, one table per margin."""
    margins = list(dict.fromkeys([*posterior.drawn.marginals, *posterior.cells.finest_tables]))
    text = Text(
        "Mean, standard deviation, median and interval of every true count, the probability of the interval itself, "
        "and what was published. The mean has the smallest expected squared error; it need not be whole."
    )
    return Section("counts", "All counts", (text, *(_table(posterior, m, unit) for m in margins)))


def _table(posterior: Posterior, margin: Margin, unit: str) -> Table:
    described = posterior.summary(margin)

    def columns(at: slice) -> list[Column]:
        return [*_described(described, at, unit), *_published(posterior, margin, at, unit)]

    return counts_table(posterior.cells, margin, "posterior counts", "summary", columns)


def _described(described: Columns, at: slice, unit: str) -> list[Column]:
    named = (
        ("mean", "Mean"),
        ("sd", "Standard deviation"),
        ("median", "Median"),
        ("low", "Interval from"),
        ("high", "to"),
    )
    found = [
        Column(f"{name} ({unit})" if unit else name, numbers(described[key][at]), numeric=True)
        for key, name in named
    ]
    found.append(Column("Its probability (%)", numbers(100 * described["mass"][at]), numeric=True))
    if np.any(described["mcse"][at] > 0):
        found.append(Column("Simulation error of the mean", numbers(described["mcse"][at]), numeric=True))
    return found


def _published(posterior: Posterior, margin: Margin, at: slice, unit: str) -> list[Column]:
    found = []
    if posterior.released is not None:
        released = posterior.cells.sum(posterior.released, margin)
        found.append(Column(f"Released ({unit})", numbers(released[at]), numeric=True))
    if posterior.noisy is not None and margin in posterior.cells.finest_tables:
        found.append(Column(f"Noisy ({unit})", numbers(posterior.noisy[0][at]), numeric=True))
    return found


def ratios(posterior: Posterior) -> Section | None:
    """Return the ratios that the spec asks for, beside their Fieller sets."""
    if not posterior.ratios:
        return None
    columns = posterior.ratio_summary()
    every = slice(None)
    found = [Column("Place", columns["place"].tolist()), Column("Quantity", columns["quantity"].tolist())]
    found += _described(columns, every, "")
    if np.any(columns["denominator_zero"] > 0):
        zero = numbers(100 * columns["denominator_zero"])
        found.append(Column("Probability that the denominator is 0 (%)", zero, numeric=True))
    if "noisy" in columns:
        found += [
            Column("Ratio of noisy counts", numbers(columns["noisy"]), numeric=True),
            Column("Fieller set", columns["fieller"].tolist()),
            Column("from", numbers(columns["fieller_low"]), numeric=True),
            Column("to", numbers(columns["fieller_high"]), numeric=True),
        ]
    text = Text(
        "The posterior interval of a ratio is always an interval inside the rules. The Fieller set beside it knows the "
        "noisy counts alone: where the denominator may be zero it is the complement of an interval, or the whole line. "
        "Where the true denominator may be 0 its probability is stated, and the rest holds given that it is not."
    )
    size = len(columns["place"])
    table = Table(
        "Ratios at every place", tuple(found), summary=f"{number(size)} ratios", unfolded=size <= 60
    )
    return Section("ratios", "Ratios", (text, table))
