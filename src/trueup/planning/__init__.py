"""Planning: expected errors of tables, and the division of a privacy budget between tables.

A plan is asked for by targets: the largest margin of error that a table may have, also a table of areas off the hierarchy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.nested import canonical

NEEDED = "TABLE=COUNTS or TABLE=COUNTS@PERCENT%, such as 'county x sex=10@95%'"


@dataclass(frozen=True)
class Target:
    """A required margin of error for a table.

    Attributes
    ----------
    margin
        The table.
    counts
        The margin of error that is wanted, in counts.
    confidence
        Probability, in per cent, with which the error must stay within it.
    mean
        True for the root mean square over the table; False for every count of the table.
    """

    margin: Margin
    counts: float
    confidence: float = 90.0
    mean: bool = False

    @property
    def table(self) -> str:
        """Return the name of the table for which the target is set, such as 'county x sex'."""
        return f"mean:{self.margin}" if self.mean else str(self.margin)

    def __str__(self) -> str:
        return f"{self.table}={self.counts:g}@{self.confidence:g}%"


def read_targets(
    given: Mapping[str, object] | Iterable[str], constraints: Constraints, areas: str | None = None
) -> tuple[Target, ...]:
    """Read targets from a mapping of tables to margins of error, or from texts."""
    texts = [f"{k}={v}" for k, v in given.items()] if isinstance(given, Mapping) else list(given)
    targets = tuple(_target(text, constraints, areas) for text in texts)
    names = [t.table for t in targets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SpecError(f"two targets are given for '{twice}'", needed="one target for each table")
    return targets


def _target(text: str, constraints: Constraints, areas: str | None) -> Target:
    name, equals, value = text.rpartition("=")
    if not equals:
        raise SpecError(f"the target '{text}' has no '=', as in 'county x sex=10'", needed=NEEDED)
    counts, at, confidence = value.partition("@")
    mean, named = name.strip().startswith("mean:"), name.strip().removeprefix("mean:").strip()
    margin = read_table(named, constraints.cells, areas)
    target = Target(margin, _number(counts, text), _percent(confidence, text) if at else 90.0, mean=mean)
    for invariant in constraints.invariants if margin.level != areas else ():
        if constraints.cells.contains(margin, invariant):
            raise SpecError(
                f"the table '{margin}' is fixed by the invariant '{invariant}', so that its error is always zero",
                remedy="leave this target out",
            )
    if not (isfinite(target.counts) and target.counts > 0):
        raise SpecError(f"the target '{text}' is out of range", needed="a finite margin of error above 0")
    return target


def read_table(name: str, cells: Cells, areas: str | None = None) -> Margin:
    """Return the margin that a table's name, such as 'county x sex', denotes."""
    first, *attributes = (part.strip() for part in name.split(" x "))
    if first == areas:
        return Margin(first, tuple(r.name for r in cells.recodes(attributes) if r.name))
    if first not in cells.tree.levels:
        levels = ", ".join(cells.tree.levels if areas is None else (*cells.tree.levels, areas))
        raise SpecError(f"there is no level '{first}' to plan", needed=f"one of {levels}; {NEEDED}")
    return canonical(cells, Margin(first, tuple(attributes)))


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(
            f"the target '{whole}' lacks a number, as in 'county=10@95%'", needed=NEEDED
        ) from None


def _percent(text: str, whole: str) -> float:
    percent = _number(text.strip().removesuffix("%"), whole)
    if not (text.strip().endswith("%") and 0 < percent < 100):
        raise SpecError(
            f"the percentage of the target '{whole}' is out of range",
            needed="more than 0% and less than 100%",
        )
    return percent
