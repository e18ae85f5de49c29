"""Tables of records as dataframes and labelled arrays, and labels of counts and areas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.digits import ThreeLines, to_figure
from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin, place_labelled
from trueup.model.problem import Problem
from trueup.model.spec import Spec
from trueup.model.tables import dataset_of, margin_asked, table_of

MOST_SHOWN, MOST_FIGURES, LARGEST_SHOWN = 5, 5, 10_000
"""Counts and figures that a notebook shows of a record, and places that a level may have for that."""
NINE_OF_TEN = "90%"
"""The probability of margins of error where nobody asks for another."""


class Tabled(ThreeLines):
    """Base of the records that have figures for every group of a margin."""

    cells: Cells
    frame: str | None
    spec: Spec | None

    @cached_property
    def problem(self) -> Problem | None:
        """Return the problem of the record's spec and cells, made once; None if the spec is not known."""
        return None if self.spec is None else Problem(self.spec, self.cells)

    def figures(self, margin: Margin | str, level: float | str | None = None) -> Mapping[str, NDArray]:
        """Return figures as columns `(groups,)` for every group of a margin; masked where nothing is known."""
        raise NotImplementedError

    @property
    def shows_counts(self) -> bool:
        """Return True if a notebook shows the record's largest counts."""
        return False

    def _shown_figures(self, margin: Margin) -> Mapping[str, NDArray]:
        return self.figures(margin)

    def _repr_html_(self) -> str:
        """Return HTML with the record's lines, and its largest counts with their figures."""
        return super()._repr_html_() + self._largest_html()

    def _largest_html(self) -> str:
        levels = [margin for margin in map(Margin, self.cells.tree.levels) if self._shows(margin)]
        if not levels:
            return ""
        tables = ((margin, self._shown_figures(margin)) for margin in levels)
        shown, figures = next(each for each in tables if _is_uncertain(each[1]) or each[0] is levels[-1])
        columns = {name: np.ma.filled(np.ma.asarray(c, float), np.nan) for name, c in figures.items()}
        columns = dict(list(columns.items())[:MOST_FIGURES])
        order = np.argsort(-next(iter(columns.values())), kind="stable")[:MOST_SHOWN]
        labels = list(self.cells.margin_labels(shown))
        head = "".join(f"<th>{escape(name)}</th>" for name in (shown.level, *columns))
        rows = "".join(
            f"<tr><td>{escape(labels[at])}</td>"
            + "".join(f"<td>{to_figure(float(column[at]))}</td>" for column in columns.values())
            + "</tr>"
            for at in order
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _shows(self, margin: Margin) -> bool:
        """Return True if a margin's largest counts are shown: its level has several places, but few enough to list."""
        places = self.cells.tree.sizes[self.cells.tree.level(margin.level)]
        return (
            self.shows_counts
            and 1 < places <= LARGEST_SHOWN
            and all(a.partition for a in self.cells.attributes)
        )

    def _facts(self) -> Mapping[str, Any]:
        """Return facts on the record that are stored with an array of its figures."""
        raise NotImplementedError

    def table(
        self,
        table: Margin | str,
        by: str | Sequence[str] = (),
        *,
        wide: str | None = None,
        figure: str | None = None,
        level: float | str | None = None,
        backend: str | None = None,
    ) -> Any:
        """Return a table as a dataframe: keys, readable names and attributes, then the record's figures.

        Measurements hold `noisy` (`exact` for an invariant) and `margin of error`; releases `released`, `noisy` and
        `margin of error`, of any margin, published or not; posteriors `mean`, `sd`, `median`, `low`, `high` and how well these
        are known. All are counts; a figure is missing where nothing was measured or no margin is known.

        Parameters
        ----------
        table, by
            Its name, such as `"county"` or `"county x sex"`, and attributes that it is to be by as well.
        wide, figure
            The attribute whose values become columns, and the figure that these hold; by default the first of the record.
        level
            Probability of margins of error and intervals: 90 % by default, of a posterior its own.
        backend
            `"pandas"`, `"polars"` or `"pyarrow"`; by default that of the table that was measured, or the first installed.

        Raises
        ------
        TrueupError
            If the table, an attribute or the figure is not known, measurements do not hold the table, or no library of
            dataframes is installed.

        Examples
        --------
        >>> import pandas
        >>> from trueup.demo import AREAS
        >>> from trueup.measuring import measure
        >>> from trueup.reconciling import reconcile
        >>> noisy = measure(AREAS, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
        >>> noisy.table("area").columns.tolist()
        ['area', 'noisy', 'margin of error']
        >>> reconcile(noisy).table("area").columns.tolist()
        ['area', 'released', 'noisy', 'margin of error']
        """
        margin = margin_asked(self.cells, table, by)
        figures = self.figures(margin, level)
        return table_of(
            self.cells, margin, figures, wide=wide, figure=figure, backend=backend, known=self.frame
        )

    def to_xarray(
        self, table: str | None = None, by: str | Sequence[str] = (), level: float | str | None = None
    ) -> Any:
        """Return a table (by default the finest) as an `xarray.Dataset`, with dimensions for places and each attribute.

        Needs the extra `posterior`.
        """
        margin = margin_asked(self.cells, table or self.cells.finest_tables[-1], by)
        return dataset_of(self.cells, margin, self.figures(margin, level), self._facts())


def _is_uncertain(figures: Mapping[str, NDArray]) -> bool:
    """Return True if a table's figures show that some count is not known exactly."""
    spread = next(
        (figures[name] for name in ("sd", "margin of error", "noisy") if name in figures), np.ones(1)
    )
    return bool(np.ma.filled(np.ma.asarray(spread, float), 0.0).any())


@dataclass(frozen=True)
class Labels:
    """The labels of counts (cells, places of all levels, groups of other margins), with the group that each denotes.

    Attributes
    ----------
    found
        Margin and group of each.
    """

    found: Mapping[str, tuple[Margin, int]]

    @classmethod
    def of(cls, cells: Cells, margins: Iterable[Margin]) -> Labels:
        """Return a label for every count of the cells; a label that two counts share denotes the coarser margin's."""
        levels = (Margin(level, cells.coarsest.attributes) for level in reversed(cells.tree.levels))
        every = (*cells.finest_tables, *margins, *(m for m in levels if cells.holds(m)))
        return cls({label: (m, g) for m in every for g, label in enumerate(cells.margin_labels(m))})


Area = Mapping[str, str | Sequence[str]]
"""Places by their level."""


def area_name(places: Area) -> str:
    """Return a name for an area: its places, separated by commas."""
    return ", ".join(str(place) for _, place in listed_places(places))


def listed_places(places: Area) -> list[tuple[str, str]]:
    """Return the places of an area, each with its level."""
    return [(level, p) for level, of in places.items() for p in ((of,) if isinstance(of, str) else of)]


def places_of_area(cells: Cells, places: Area) -> NDArray[np.bool_]:
    """Return a mask `(places,)` of the last level's places that lie in an area."""
    if not isinstance(places, Mapping):
        raise SpecError(
            f"a {type(places).__name__} is given as an area",
            needed=f"places by their level, such as {{'{cells.tree.levels[-1]}': [...]}}",
        )
    if overlapping := [a.name for a in cells.attributes if not a.partition]:
        raise SpecError(
            f"the values of '{overlapping[0]}' overlap, so that a sum over them counts some units twice",
            needed="a sum of counts that do not overlap",
            remedy="add such counts by their labels: posterior.quantity(\"'first label' + 'second label'\")",
        )
    if not (listed := listed_places(places)):
        raise SpecError("the area holds no place", needed="at least one place")
    tree, last = cells.tree, len(cells.tree.levels) - 1
    times = np.zeros(tree.sizes[-1], np.int64)
    for name, place in listed:
        if (at := place_labelled(tree, name, str(place))) is None:
            raise SpecError(
                f"level '{name}' has no place '{place}'", needed=f"a key such as '{tree.label(name, 0)}'"
            )
        times += tree.ancestors(last, tree.level(name)) == at
    if times.max() > 1:
        twice = tree.label(tree.levels[-1], int(times.argmax()))
        raise SpecError(f"the area holds '{twice}' more than once", needed="places that do not overlap")
    return times > 0
