"""Changes of counts between two releases with independent noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.source import as_frame
from trueup.model.cells import Margin
from trueup.model.three_lines import ThreeLines


@dataclass(frozen=True, eq=False, repr=False)
class CountChanges(ThreeLines):
    """The change of every count of a table from one release to a later one, with intervals.

    Attributes
    ----------
    table
        The table that is compared.
    labels
        Columns `(k,)` that name the places, as the later release has them, and values of attributes.
    figures
        Columns `(k,)`: `before`, `after`, `change` and its `low` and `high`; of posteriors `probability of growth` as well.
    level
        Probability of each interval.
    sources
        Digests of the two records.
    promise
        What the intervals hold, and under what.
    question
        What is compared in place of the table's counts.

    Examples
    --------
    >>> figures = {name: np.array([v]) for name, v in [("before", 3), ("after", 9), ("change", 6), ("low", 2), ("high", 10)]}
    >>> CountChanges(Margin("town"), {"town": np.array(["a"])}, figures, 0.9, ("12", "34")).direction.tolist()
    ['more']
    """

    table: Margin
    labels: Mapping[str, NDArray]
    figures: Mapping[str, NDArray]
    level: float
    sources: tuple[str, str]
    promise: str = ""
    question: str = ""

    @property
    def direction(self) -> NDArray:
        """Return `(k,)` what the interval shows: more, fewer, or `not known` if it holds 0."""
        low, high = self.figures["low"], self.figures["high"]
        return np.where(low > 0, "more", np.where(high < 0, "fewer", "not known"))

    def columns(self) -> dict[str, NDArray]:
        """Return labels, figures and the direction of every change."""
        return {**self.labels, **self.figures, "direction": self.direction}

    def to_frame(self, *, backend: str | None = None) -> Any:
        """Return the columns as a dataframe."""
        return as_frame(self.columns(), backend)

    def _lines(self) -> tuple[str, str, str]:
        told = {name: int((self.direction == name).sum()) for name in ("more", "fewer", "not known")}
        return (
            f"Change of '{self.question or self.table}' between two releases, {len(self.direction):,} "
            f"{'numbers' if self.question else 'counts'}",
            f"more: {told['more']:,}; fewer: {told['fewer']:,}; not known, as the interval holds 0: {told['not known']:,}",
            f"intervals at {100 * self.level:.3g} %, each by itself",
        )
