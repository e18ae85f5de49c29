"""Answers: one question about counts, and changes of counts between two releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import ThreeLines, to_figure
from trueup.errors import SpecError
from trueup.files.source import as_frame
from trueup.model.cells import Margin
from trueup.model.records.asked import AskedDraws
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import described_where_defined


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorAnswer(ThreeLines):
    """The answer to one question, from the draws of a posterior.

    Attributes
    ----------
    question
        The question in the user's words.
    asked
        Draws `(chains, draws, k)` of the quantity, of one (`k = 1`) or of each place of a level.
    posterior
        The posterior on which the answer is based.
    level
        Probability of its intervals.

    Examples
    --------
    >>> from trueup.model.cells import Cells
    >>> from trueup.model.records.asked import ask_draws
    >>> from trueup.model.records.drawn import Drawn
    >>> from trueup.model.records.places_asked import Names
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> posterior = Posterior(cells, Drawn(np.array([[[3, 4], [5, 4], [4, 4], [4, 6]]]), True), {"method": "demo"}, "")
    >>> answer = PosteriorAnswer("b > a", ask_draws("b > a", Names(cells), posterior.draws), posterior)
    >>> answer.probability
    0.5
    """

    question: str
    asked: AskedDraws
    posterior: Posterior
    level: float = 0.9

    @property
    def draws(self) -> NDArray:
        """Return the values of the quantity in each draw: `(chains, draws)`, or `(chains, draws, k)` for `k` places."""
        return self.asked.draws[..., 0] if self.asked.names is None else self.asked.draws

    @property
    def probability(self) -> float:
        """Return the probability of the event asked for; raise SpecError if the question is not one comparison."""
        if not self.asked.event or self.asked.names is not None:
            raise SpecError(
                f"the question '{self.question}' is not one comparison",
                needed="a comparison, such as 'a > b'; for answers with several places, use `figures()`",
            )
        return float(self.figures()["probability"][0])

    def figures(self) -> dict[str, NDArray]:
        """Return figures of the answer as columns, with one row, or one for each place.

        Returns
        -------
        The places under the name of their level, then those of `Posterior.summary` but its labels; of events `probability` and
        `mcse`; and `undefined` (the probability that a denominator is 0) where that is possible.
        """
        draws, known = self.asked.draws, self.asked.names
        labels = {} if known is None else {str(self.asked.level): np.array(known)}
        columns = described_where_defined(
            draws, lambda held, least: self.posterior.describe(held, self.level, least), self.asked.least
        )
        if self.asked.event:
            columns = {"probability": columns["mean"], "mcse": columns["mcse"]}
        gaps = np.isnan(draws).mean(axis=(0, 1))
        return {**labels, **columns, **({"undefined": gaps} if gaps.any() else {})}

    def table(self, *, backend: str | None = None) -> Any:
        """Return the figures as a dataframe."""
        return as_frame(self.figures(), backend, known=self.posterior.frame)

    @property
    def rests_on(self) -> str:
        """Return words for the number and kind of draws and the record on which the answer is based."""
        chains, draws, _ = self.posterior.draws.shape
        return f"{chains * draws:,} {self.posterior.drawn.kind}, of the record {self.posterior.source[:12] or 'not named'}"

    def _lines(self) -> tuple[str, str, str]:
        return (self.question, self._found, self.rests_on)

    @property
    def _found(self) -> str:
        first: Mapping[str, Any] = {name: column[0] for name, column in self.figures().items()}
        if self.asked.names is not None:
            return f"of each of {len(self.asked.names):,} places of '{self.asked.level}'; see `table()`"
        undefined = first.get("undefined", 0.0)
        if undefined == 1:
            return "not defined, as a denominator is 0 in every draw"
        given = f", given that no denominator is 0 (probability {1 - undefined:.3f})" if undefined else ""
        if self.asked.event:
            return f"probability {first['probability']:.3f}{given}"
        low, high = to_figure(first["low"]), to_figure(first["high"])
        return f"mean {to_figure(first['mean'])}, {first['mass']:.1%} interval {low} to {high}{given}"


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
        A sentence on what the intervals hold, and under which conditions.
    question
        The question that is compared in place of the table's counts.

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
        """Return the direction of each change `(k,)` as its interval shows.

        Counts are `more` or `fewer`, answers to a question `larger` or `smaller`; or there is `no change`, if the interval
        holds 0 alone, or the direction is `not known`, if it holds 0 and other values, or `not defined`.
        """
        low, high = self.figures["low"], self.figures["high"]
        shown = [low > 0, high < 0, (low == 0) & (high == 0), np.isnan(low)]
        return np.select(shown, [*self._words, "no change", "not defined"], "not known")

    @property
    def _words(self) -> tuple[str, str]:
        return ("larger", "smaller") if self.question else ("more", "fewer")

    def columns(self) -> dict[str, NDArray]:
        """Return the labels, figures and direction of every change, as columns."""
        return {**self.labels, **self.figures, "direction": self.direction}

    def to_frame(self, *, backend: str | None = None) -> Any:
        """Return the columns as a dataframe."""
        return as_frame(self.columns(), backend)

    def _lines(self) -> tuple[str, str, str]:
        found = self.direction.tolist()
        told = [f"{name}: {found.count(name):,}" for name in self._words]
        told += [f"{name}: {found.count(name):,}" for name in ("no change", "not defined") if name in found]
        told.append(f"not known, as the interval holds 0: {found.count('not known'):,}")
        return (
            f"Change of '{self.question or self.table}' between two releases, {len(self.direction):,} "
            f"{'numbers' if self.question else 'counts'}",
            "; ".join(told),
            f"intervals at {100 * self.level:.3g} %, each by itself",
        )
