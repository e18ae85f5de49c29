"""Margins of error by size of the count at several budgets, for targets on counts of a given size.

Least squares errs alike on counts of every size; a method that keeps counts whole and not below zero does not. `explain`
simulates its errors at one budget; here they are simulated at several, and between these each margin is interpolated, as a
function of the standard error that least squares has on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trueup.errors import SpecError
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import CONFIDENCES, ErrorClass, read_confidence
from trueup.model.spec import Spec
from trueup.planning.allocation import planned_spec
from trueup.planning.meeting import Planner
from trueup.releasing.explain import explain

FACTORS = (1 / 8, 1 / 3, 1.0, 3.0, 8.0)
"""Simulated margins of error, as multiples of the targets."""
MIN_SIMULATED_MARGIN_COUNTS = 0.5
"""Targets (counts) below are not simulated: nearly all noise is zero there."""


@dataclass(frozen=True)
class SizeClass:
    """The counts of a table within a range of sizes, with margins of error at several budgets.

    Attributes
    ----------
    table
        Its name.
    lowest, label
        The least released count of the range; the range in words.
    deviations
        Standard error (counts) of least squares on the table's worst count at each budget, ascending (k,).
    margins
        Margins of error (counts) there, not descending: k of them for each of `CONFIDENCES`.
    """

    table: str
    lowest: int
    label: str
    deviations: tuple[float, ...]
    margins: tuple[tuple[float, ...], ...]

    def margin(self, deviation: float, confidence: str | float) -> float:
        """Return the margin of error (counts) for a given standard error of the table.

        Examples
        --------
        >>> few = SizeClass("county", 1, "1-9", (1.0, 4.0), ((1.0, 3.0),) * 5)
        >>> [few.margin(deviation, "95%") for deviation in (0.5, 1, 2.5, 4, 8)]
        [0.5, 1.0, 2.0, 3.0, 6.0]
        """
        held = self._margins(confidence)
        inside = min(max(deviation, self.deviations[0]), self.deviations[-1])
        found = float(np.interp(inside, self.deviations, held))
        return found * deviation / inside

    def needed(self, margin: float, confidence: str | float) -> float:
        """Return the largest standard error of the table (counts) that keeps the margin of error within a given one.

        Examples
        --------
        >>> few = SizeClass("county", 1, "1-9", (1.0, 4.0), ((1.0, 3.0),) * 5)
        >>> [round(few.needed(margin, "95%"), 12) for margin in (0.5, 1, 2, 3, 6)]
        [0.5, 1.0, 2.5, 4.0, 8.0]
        """
        held = self._margins(confidence)
        if held[-1] <= margin:
            return self.deviations[-1] * margin / held[-1] if held[-1] else np.inf
        if margin < held[0]:
            return self.deviations[0] * margin / held[0]
        at = int(np.searchsorted(held, margin, side="right")) - 1
        share = (margin - held[at]) / (held[at + 1] - held[at])
        return self.deviations[at] + share * (self.deviations[at + 1] - self.deviations[at])

    def _margins(self, confidence: str | float) -> tuple[float, ...]:
        return self.margins[CONFIDENCES.index(read_confidence(confidence))]


@dataclass(frozen=True)
class MarginsBySize:
    """Margins of error by table and by size of the count, for any budget.

    Attributes
    ----------
    classes
        Every table's classes, in the order of size.
    note
        Sentence on what was simulated, or why nothing was.
    """

    classes: tuple[SizeClass, ...]
    note: str

    def of(self, table: str) -> tuple[SizeClass, ...]:
        """Return the size classes of a table; empty if the margins of error are the same in all."""
        found = tuple(c for c in self.classes if c.table == table)
        return found if len({c.margins for c in found}) > 1 else ()

    def target(self, table: str, lowest: int, margin: float, confidence: str | float) -> float:
        """Return the standard error (counts) of a table at which counts of one size have a given margin of error.

        Raises
        ------
        SpecError
            If the table has no such class, or the margin is out of range.
        """
        known = {c.lowest: c for c in self.of(table)}
        if lowest not in known:
            raise SpecError(
                f"the table '{table}' has no size class that begins at {lowest}",
                needed=f"one of {', '.join(map(str, known))}"
                if known
                else "a table in which the margin of error depends on the size of the count",
            )
        if not (np.isfinite(margin) and margin > 0):
            raise SpecError(
                f"the margin of error {margin} is out of range", needed="a finite margin of error above 0"
            )
        return known[lowest].needed(margin, confidence)

    def written(self) -> dict[str, Any]:
        """Return the margins as plain numbers and texts."""
        return {"note": self.note, "classes": [asdict(c) for c in self.classes]}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> MarginsBySize:
        """Return the margins that `written` turned into plain values."""
        rows = (
            SizeClass(
                c["table"], c["lowest"], c["label"], tuple(c["deviations"]), tuple(map(tuple, c["margins"]))
            )
            for c in written["classes"]
        )
        return cls(tuple(rows), written["note"])


def margins_by_size(
    spec: Spec | Problem,
    geography: Any = None,
    *,
    targets: Mapping[str, object] | Iterable[str],
    persons: int | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> MarginsBySize:
    """Simulate margins of error by size of the count, at budgets around one that meets given targets.

    Parameters
    ----------
    spec, geography, targets
        The parameters of `plan`.
    persons
        Units of the made-up populations, as in `explain`.
    progress
        Called as `progress(done, budgets)`.

    Returns
    -------
    MarginsBySize
        On made-up populations of these places (see `explain`); no confidential count is read.

    Raises
    ------
    TrueupError
        For everything that `plan` and `explain` refuse.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.proposal import propose_spec
    >>> places = pandas.DataFrame({"area": ["a", "b", "c"]})
    >>> spec = propose_spec(["area", "n"], places, title="Areas").spec
    >>> found = margins_by_size(spec, places, targets={"area": "20@95%"})
    >>> [c.label for c in found.of("area")]
    ['0-9', '10 and more']
    """
    problem = Problem.of(spec, geography)
    planner = Planner(problem)
    wanted = [reached.target for reached in planner.plan(targets, quick=True).targets]
    factors = [
        f for f in FACTORS if f >= 1 or min(t.counts for t in wanted) * f >= MIN_SIMULATED_MARGIN_COUNTS
    ]
    simulated = []
    for done, factor in enumerate(factors):
        progress(done, len(factors))
        scaled = [f"{t.table}={t.counts * factor!r}@{t.confidence!r}%" for t in wanted]
        planned = planner.plan(scaled, quick=True)
        shown = explain(Problem.of(planned_spec(problem.spec, planned), problem.cells.tree), persons=persons)
        simulated.append((dict(zip(planned.levels, planned.worst)), shown.classes))
    progress(len(factors), len(factors))
    named = simulated[factors.index(1.0)][1]
    if any(errors is None or not errors.classes for _, errors in simulated):
        return MarginsBySize((), named.note if named else "Nothing was simulated.")
    rows = (_size_class(c, label, simulated) for c, label in named.labelled())
    said = f"{named.note} So at each of {len(factors)} budgets; between them margins are interpolated."
    return MarginsBySize(tuple(row for row in rows if row is not None), said)


def _size_class(of: ErrorClass, label: str, simulated) -> SizeClass | None:
    """Return a size class with margins of error at every budget; None for a table without error."""
    deviations = np.array([worst.get(str(of.table), 0.0) for worst, _ in simulated])
    if not (np.isfinite(deviations).all() and (np.diff(deviations) > 0).all() and deviations[0] > 0):
        return None
    lowest = np.array([of.lowest])
    margins = [
        [float(errors.margin_of_error(of.table, lowest, percent / 100)[0]) for _, errors in simulated]
        for percent in CONFIDENCES
    ]
    rising = tuple(tuple(np.maximum.accumulate(row).tolist()) for row in margins)
    return SizeClass(str(of.table), of.lowest, label, tuple(deviations.tolist()), rising)
