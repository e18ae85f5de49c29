"""The margins that a published table shows, each group at most once, whatever the table's layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.table import Columns
from trueup.io.published.perturbed.columns import Texts, attribute_column, text_of
from trueup.model.cells import Cells, Margin
from trueup.model.geography import key_columns
from trueup.model.nested import canonical
from trueup.model.perturbed import PerturbedSpec, PublishedTable


class ShownMargin(NamedTuple):
    """The groups of one margin that a table shows, and the texts that stand there.

    Attributes
    ----------
    margin
        The margin.
    groups
        `(v,)` which of its groups.
    texts
        `(v,)` what is published of them.
    """

    margin: Margin
    groups: NDArray[np.int64]
    texts: Texts


def shown_margins(
    spec: PerturbedSpec, cells: Cells, part: PublishedTable, rows: Columns
) -> Iterator[ShownMargin]:
    """The margins of a table, each group at most once."""
    place = _places(spec, cells, part, rows)
    if part.cells:
        for attributes in spec.margins_of(part):
            yield _complete(cells, part, _of_columns(cells, part, rows, place, attributes))
        return
    texts = text_of(rows[part.count or ""])
    named = [text_of(rows[attribute_column(spec, name)]) for name in part.attributes]
    totals = [column == part.total for column in named] if part.total else []
    some = np.logical_or.reduce(totals) if totals else np.zeros(len(texts), bool)
    every = np.logical_and.reduce(totals) if totals else some
    if (mixed := np.flatnonzero(some & ~every)).size:
        raise DataError(
            f"row {mixed[0] + 1} of table '{part.name}' sums over some of its attributes",
            needed=f"'{part.total}' for all of them, or for none; other margins are tables of their own",
        )
    margin = canonical(cells, Margin(part.level, part.attributes))
    groups = place[~some]
    for name, column in sorted(
        zip(part.attributes, named), key=lambda pair: margin.attributes.index(pair[0])
    ):
        groups = groups * len(_values_of(cells, name)) + _value_index(cells, part, name, column, ~some)
    yield _complete(cells, part, ShownMargin(margin, groups, texts[~some]))
    if some.any():
        yield _complete(
            cells, part, ShownMargin(canonical(cells, Margin(part.level)), place[some], texts[some])
        )


def _of_columns(
    cells: Cells, part: PublishedTable, rows: Columns, place: NDArray[np.int64], attributes: tuple[str, ...]
) -> ShownMargin:
    """One margin of a wide table."""
    margin = canonical(cells, Margin(part.level, attributes))
    each = cells.size(margin) // cells.tree.sizes[cells.tree.level(part.level)]
    groups, texts = [], []
    for cell in (cell for cell in part.cells if set(cell.where) == set(attributes)):
        within = 0
        for recode in cells.kept(margin):
            within = within * recode.size + recode.values.index(cell.where[recode.name])
        groups.append(place * each + within)
        texts.append(text_of(rows[cell.count]))
    return ShownMargin(margin, np.concatenate(groups), np.concatenate(texts))


def _places(spec: PerturbedSpec, cells: Cells, part: PublishedTable, rows: Columns) -> NDArray[np.int64]:
    """The place of every row."""
    at = cells.tree.level(part.level)
    keys = cells.tree.keys[at]
    if not keys:
        return np.zeros(len(next(iter(rows.values()))), np.int64)
    levels = {level.name if level.prefix else level.column: level for level in spec.levels}
    text = {name: text_of(column) for name, column in rows.items()}
    given = [key_columns(levels[name], text)[name].tolist() for name in keys]
    known = {key: i for i, key in enumerate(zip(*(column.tolist() for column in keys.values())))}
    found = np.array([known.get(key, -1) for key in zip(*given)], dtype=np.int64)
    if (lost := np.flatnonzero(found < 0)).size:
        shown = "/".join(column[lost[0]] for column in given)
        raise DataError(
            f"row {lost[0] + 1} of table '{part.name}' names the place '{shown}', which level '{part.level}' has not",
            needed="places that the tables of the last level, or the geography, list",
        )
    return found


def _values_of(cells: Cells, name: str) -> tuple[str, ...]:
    return next(view.values for a in cells.attributes for view in a.views if view.name == name)


def _value_index(
    cells: Cells, part: PublishedTable, name: str, column: Texts, rows: NDArray[np.bool_]
) -> NDArray[np.int64]:
    known = {value: i for i, value in enumerate(_values_of(cells, name))}
    found = np.array([known.get(value, -1) for value in column.tolist()], dtype=np.int64)
    if (lost := np.flatnonzero((found < 0) & rows)).size:
        raise DataError(
            f"row {lost[0] + 1} of table '{part.name}' has '{column[lost[0]]}' for '{name}'",
            needed=f"one of: {', '.join(known)}" + (f", or '{part.total}'" if part.total else ""),
        )
    return found[rows]


def _complete(cells: Cells, part: PublishedTable, shown: ShownMargin) -> ShownMargin:
    """Refuse a group that is listed twice, and one that is not listed unless the entry says what that means."""
    times = np.bincount(shown.groups, minlength=cells.size(shown.margin))
    if (twice := np.flatnonzero(times > 1)).size:
        label = cells.margin_label(shown.margin, int(twice[0]))
        raise DataError(
            f"table '{part.name}' lists '{label}' {times[twice[0]]} times", needed="each cell once"
        )
    lost = np.flatnonzero(times == 0)
    if not lost.size or part.unlisted == "unknown":
        return shown
    if part.unlisted == "zero":
        zeros = np.full(len(lost), "0")
        return ShownMargin(shown.margin, np.append(shown.groups, lost), np.append(shown.texts, zeros))
    raise DataError(
        f"table '{part.name}' lacks '{cells.margin_label(shown.margin, int(lost[0]))}'"
        + (f" and {lost.size - 1} more" if lost.size > 1 else ""),
        needed="a row for each place and value of its margin",
        remedy="say what a cell without a row means: unlisted = 'zero' or 'unknown'",
    )
