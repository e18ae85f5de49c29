"""Pictures of a posterior: curves of distributions, and intervals beside published values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells
from trueup.model.records.drawn import Marginals
from trueup.model.records.posterior import Posterior
from trueup.reporting.drawing import Section, Text
from trueup.reporting.drawing.pictures import (
    BINS_OF_DRAWS,
    MOST_BINS,
    Figure,
    Mark,
    PictureAxis,
    Ridge,
    Ridges,
    Shape,
    steps,
)
from trueup.reporting.drawing.words import number, percent
from trueup.reporting.sections.counts import names_with_parents

RIDGELINES_A_SIDE = 5
"""Smallest counts, and largest ones, that have a ridgeline."""

MOST_ROWS = 30
"""Rows of the picture of intervals."""


class PosteriorView:
    """The finest counts of a posterior, prepared for pictures: summary, names and published values."""

    def __init__(self, posterior: Posterior, unit: str, *, published: bool = False) -> None:
        self.posterior, self.unit, self.published = posterior, unit, published
        tables = [posterior.summary(margin) for margin in posterior.cells.finest_tables]
        self.table = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        self.by_size = np.argsort(self.table["mean"], kind="stable")
        self.noisy = None if posterior.noisy is None else posterior.noisy[0]
        self.noisy_name = "published count" if published else "noisy count"

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of counts for which no number was published."""
        return np.zeros(len(self.by_size), bool) if self.noisy is None else ~np.isfinite(self.noisy)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return a mask `(n,)` of counts that have one possible value, or the same value in all draws."""
        return self.table["sd"] < 1e-9

    @property
    def known_words(self) -> str:
        """Return words for how a count with a single value is known: exactly, or the same in every draw."""
        return "known to the unit" if self.exact is not None else "the same in every draw"

    @property
    def by_doubt(self) -> NDArray:
        """Return cells in order of uncertainty, with hidden counts first."""
        width = self.table["high"] - self.table["low"]
        return np.lexsort((self.table["mean"], -width, ~self.hidden, self.known))

    @property
    def origin(self) -> tuple[str, NDArray]:
        """Return the name and the values `(n,)` from which differences are taken: released, noisy or median counts."""
        if self.posterior.released is not None:
            return "released count", self.posterior.released
        if self.noisy is not None and np.isfinite(self.noisy).all():
            return self.noisy_name, self.noisy
        return "median", self.table["median"]

    @property
    def exact(self) -> Marginals | None:
        """Return exact marginals of the finest counts, or None if the method has only draws."""
        tables = self.posterior.cells.finest_tables
        return self.posterior.drawn.marginals.get(tables[0]) if len(tables) == 1 else None

    def name(self, cell: int) -> str:
        """Return the readable name of a cell."""
        return cell_name(self.posterior.cells, cell)

    def masses(self, cell: int) -> tuple[NDArray, NDArray]:
        """Return the values of a count in increasing order, and their probabilities."""
        if self.exact is not None:
            return self.exact.pmf(cell)
        values, times = np.unique(self.posterior.draws[..., cell], return_counts=True)
        return values, times / times.sum()


def cell_name(cells: Cells, cell: int) -> str:
    """Return the readable name of one of the finest cells."""
    if cells.is_family:
        return cells.label(cell)
    place, *_ = np.unravel_index(cell, cells.shape)
    named = names_with_parents(cells, len(cells.tree.levels) - 1, np.array([place]))
    label = cells.label(cell)
    return (
        label
        if named is None
        else label.replace(cells.tree.label(cells.tree.levels[-1], int(place)), named[0], 1)
    )


def shapes(view: PosteriorView) -> Section:
    """Return the section with ridgelines of the smallest and the largest, or of the least certain counts."""
    origin, at = view.origin
    rows = tuple(_ridge(view, cell, float(at[cell])) for cell in _shown(view))
    lowest, highest = min(r.edges[0] for r in rows), max(r.edges[-1] for r in rows)
    axis = PictureAxis.around([lowest, highest, 0.0], f"true count − {origin} ({view.unit})")
    rows = tuple(
        Ridge(r.name, r.note, r.edges, r.heights, tuple(m for m in r.marks if axis.low <= m.at <= axis.high))
        for r in rows
    )
    noisy = view.noisy is not None and origin == "released count"
    legend = _legend(view, noisy)
    widest = max(rows, key=lambda row: row.edges[-1] - row.edges[0])
    picture = Ridges(
        f"Ridgelines: the probability of each possible true count of {len(rows)} counts; the widest is "
        f"that of {widest.name}.",
        f"Each curve shows how probable every true count is, as its difference from the {origin} (dashed line). All "
        "curves are drawn to the same height. "
        + (f"A {view.noisy_name} beyond the picture is not drawn." if noisy else ""),
        axis,
        rows,
        legend,
    )
    return Section(
        "shapes", "What the true counts may be", (Text(*_hidden(view), _few(view, len(rows))), picture)
    )


def _hidden(view: PosteriorView) -> tuple[str, ...]:
    """Return sentences on published values that are hidden, and on counts that are certain all the same."""
    if not view.published or view.noisy is None:
        return ()
    hidden, known, n = view.hidden, view.known, len(view.by_size)
    of, among = (f"{number(hidden.sum())} of", hidden) if hidden.any() else ("None of", ~hidden)
    whose = "these" if hidden.any() else "all"
    return (
        f"{of} {number(n)} counts are hidden; {number((among & known).sum())} of {whose} are {view.known_words}.",
    )


def _few(view: PosteriorView, rows: int) -> str:
    """Return the sentence that says which counts have a ridgeline."""
    order = "the least certain first" if view.published else "from the smallest to the largest"
    exact = f" One that is {view.known_words} is a tick without a curve." if view.known.any() else ""
    if rows == len(view.by_size):
        return f"All counts, {order}.{exact}"
    few = (
        f"The {2 * RIDGELINES_A_SIDE} least certain of the finest counts, hidden ones first"
        if view.published
        else f"The {RIDGELINES_A_SIDE} smallest and the {RIDGELINES_A_SIDE} largest of the finest counts"
    )
    asked = ", and those that were asked for" if view.posterior.chosen else ""
    return f"{few}{asked}. The tables below hold all of them.{exact}"


def _legend(view: PosteriorView, noisy: bool) -> tuple[tuple[Shape, str], ...]:
    shapes: tuple[tuple[Shape, str], ...] = (
        ("thin", f"{percent(view.posterior.level)} interval"),
        ("tick", "median"),
        ("diamond", view.noisy_name),
    )
    return shapes if noisy else shapes[:2]


def _shown(view: PosteriorView) -> list[int]:
    """Return the cells to show as ridgelines: the requested ones, and the first and last in order."""
    order = view.by_doubt if view.published else view.by_size
    if len(order) <= 2 * RIDGELINES_A_SIDE + 2:
        return order.tolist()
    cells, wanted = view.posterior.cells, set(view.posterior.chosen)
    labels = (cells.label(cell) for cell in range(cells.n)) if wanted else ()
    chosen = [cell for cell, label in enumerate(labels) if label in wanted]
    first, last = (2 * RIDGELINES_A_SIDE, 0) if view.published else (RIDGELINES_A_SIDE, RIDGELINES_A_SIDE)
    some = {*order[:first].tolist(), *order[len(order) - last :].tolist(), *chosen}
    return [cell for cell in order.tolist() if cell in some]


def _ridge(view: PosteriorView, cell: int, origin: float) -> Ridge:
    if view.known[cell]:
        at = float(view.table["median"][cell]) - origin
        note = f"{view.origin[0]} {number(origin)}; {view.known_words}: {number(at + origin)}"
        return Ridge(view.name(cell), note, (at, at), (), (Mark("tick", at),))
    values, masses = view.masses(cell)
    whole = bool(np.all(values == np.round(values)))
    edges, heights = steps(values - origin, masses, whole, MOST_BINS if view.exact else BINS_OF_DRAWS)
    low, median, high = (float(view.table[k][cell]) for k in ("low", "median", "high"))
    marks = [Mark("thin", low - origin, high - origin), Mark("tick", median - origin)]
    if view.noisy is not None and view.origin[0] == "released count" and np.isfinite(view.noisy[cell]):
        marks.append(Mark("diamond", float(view.noisy[cell]) - origin))
    note = (
        f"{view.origin[0]} {number(origin)}; {percent(view.posterior.level)}: {number(low)} to {number(high)}"
    )
    return Ridge(view.name(cell), note, edges, heights, tuple(marks))


def intervals(view: PosteriorView) -> Section | None:
    """Return the section with intervals of the largest counts, beside published values."""
    origin, at = view.origin
    if origin == "median":
        return None
    cells = view.by_size[::-1][:MOST_ROWS].tolist()
    rows = tuple((view.name(c), _interval_marks(view, c, float(at[c]))) for c in cells)
    axis = PictureAxis.around(
        [0.0, *(v for _, marks in rows for m in marks for v in (m.at, m.to))],
        f"true count − {origin} ({view.unit})",
    )
    table, n = view.table, len(at)
    outside = int(np.sum((at < table["low"]) | (at > table["high"])))
    said_outside = f"Every {origin} lies inside the interval of its true count."
    if outside:
        said_outside = (
            f"{number(outside)} of {number(n)} {origin}s lie outside the interval of their true count: the other "
            "published counts, or the rules, speak against them."
        )
    noisy = view.noisy is not None and origin == "released count"
    picture = Figure(
        f"Picture of intervals of the true count around the {origin}, for the {len(cells)} largest counts. {said_outside}",
        f"Intervals of the {len(cells)} largest counts, largest first, as differences from the {origin}.",
        axis,
        rows,
        (*_legend(view, noisy), ("circle", origin)),
    )
    return Section("intervals", f"Intervals against {origin}s", (Text(said_outside), picture))


def _interval_marks(view: PosteriorView, cell: int, origin: float) -> tuple[Mark, ...]:
    low, median, high = (float(view.table[k][cell]) - origin for k in ("low", "median", "high"))
    marks = [Mark("thin", low, high), Mark("tick", median, median), Mark("circle", 0.0)]
    if view.noisy is not None and view.origin[0] == "released count" and np.isfinite(view.noisy[cell]):
        noisy = float(view.noisy[cell]) - origin
        marks.insert(2, Mark("diamond", noisy, noisy))
    return tuple(marks)
