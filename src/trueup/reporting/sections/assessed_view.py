"""Common code of the sections of an assessment's report: figures by place, and names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trueup.digits import error_digit
from trueup.model.cells import Margin
from trueup.model.records.assessment import Assessment, Budget, Columns
from trueup.model.spec import Spec
from trueup.reporting.drawing.charts import WHISKER, Point
from trueup.reporting.drawing.words import number, plain, plural, table_name

WHISKERS = (
    f"Thin upright lines reach {WHISKER:g} Monte Carlo errors to either side; where none is seen it is smaller than "
    "the mark."
)
"""How to read the lines through the marks."""


class AssessmentView:
    """A record at one budget, the one nearest to the spec's own."""

    def __init__(self, record: Assessment, spec: Spec) -> None:
        self.record, self.unit = record, plural(spec.table.counts)
        self.places = [level.name for level in spec.levels]
        self.budget: Budget = min(record.budgets, key=lambda b: abs(np.log(float(b.scale))))
        self.names = [method.label for method in record.methods]

    def points(self, statistic: str, *, by: str, level: str, units: Sequence[str], about: str | None = None):
        """Return for each method its points, one per unit; None if it has none."""
        held = self._lookup(statistic, by, level, about)
        return {name: [held.get((name, unit)) for unit in units] for name in self.names}

    def _lookup(self, statistic: str, by: str, level: str, about: str | None) -> dict[tuple[str, str], Point]:
        wanted = {"statistic": statistic, "by": by, "level": level, "budget": self.budget.label}
        rows = self.record.rows(**wanted, **({} if about is None else {"about": about}))
        values = zip(rows["method"], rows["unit"], rows["value"], rows["mc_error"])
        return {(str(m), str(u)): (float(v), float(e)) for m, u, v, e in values}

    def classes(self, by: str, level: str) -> dict[str, int]:
        """Return names of the classes of a level, and how many counts each holds."""
        rows = self.record.rows(
            statistic="bias", by=by, level=level, budget=self.budget.label, method=self.names[0]
        )
        return {str(unit): int(n) for unit, n in zip(rows["unit"], rows["units"])}

    @property
    def drawn(self) -> list[Margin]:
        """Return the tables that charts show: totals of every level, and the finest."""
        finest = self.record.levels[-1]
        return [m for m in self.record.levels if not m.attributes or m == finest]

    def parent(self, margin: Margin) -> str:
        """Return the level above that of a margin."""
        return plain(self.places[self.places.index(margin.level) - 1])

    @property
    def at(self) -> str:
        """Return which budget is shown, if there are several."""
        return f" Shown at {self.budget.label}." if len(self.record.budgets) > 1 else ""


def places_of(classes: dict[str, int], margin: Margin) -> list[tuple[str, str]]:
    """Name classes for a chart, each with how many groups it holds."""
    return [(name.replace("-", "–"), f"{n:,} {named(margin, n)}") for name, n in classes.items()]


def counts_of(margin: Margin) -> str:
    """Name the counts of a table: `block counts`, `block counts by sex`."""
    return table_name(margin).replace(plain(margin.level), f"{plain(margin.level)} counts", 1)


def named(margin: Margin, n: int) -> str:
    """Name the groups of a table: its places, or counts where attributes divide them."""
    one = "count" if margin.attributes else plain(margin.level)
    return one if n == 1 else plural(one)


def with_error(rows: Columns) -> list[str]:
    """Return figures with their Monte Carlo errors as text."""
    return [
        f"{number(three_digits(v))} ± {error_digit(e, v)}" for v, e in zip(rows["value"], rows["mc_error"])
    ]


def three_digits(value: float) -> float:
    """Return a value to three digits, the precision of Monte Carlo figures."""
    return float(f"{value:.3g}")


def extreme(series: dict, places: Sequence[str], unit: str) -> str:
    """Return which value of a chart is largest in size, and where."""
    every = [
        (abs(p[0]), p[0], name, place)
        for name, row in series.items()
        for place, p in zip(places, row)
        if p is not None
    ]
    _, value, name, place = max(every)
    return f"the largest is {number(three_digits(value))} {unit}, for method {name} at {place}"
