"""Margins that a published table shows, for tables of any layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.published.perturbed.columns import Texts, attribute_column, text_of
from trueup.io.published.perturbed.places import TableRows, place_index
from trueup.model.cells import Cells, Margin
from trueup.model.nested import canonical
from trueup.model.perturbed import PerturbedSpec, PublishedTable
from trueup.model.published_table import NO_ROW
from trueup.model.toml import inline_table


class ShownMargin(NamedTuple):
    """Groups of a margin that a table shows, with their published texts.

    Attributes
    ----------
    margin, attributes
        The margin, and the attributes by which the spec names it.
    groups
        `(v,)` which of its groups.
    texts
        `(v,)` what is published of them.
    variances
        `(v,)` the texts of their variances, where rows have some.
    """

    margin: Margin
    attributes: tuple[str, ...]
    groups: NDArray[np.int64]
    texts: Texts
    variances: Texts | None = None


def shown_margins(spec: PerturbedSpec, cells: Cells, table: TableRows) -> Iterator[ShownMargin]:
    """Yield every margin that a table shows, one for each level and each set of attributes."""
    part = table.part
    keys = [
        *table.codes.values(),
        *(text_of(table.columns[attribute_column(spec, name)]) for name in part.attributes),
    ]
    blank = any((texts == "").any() for texts in keys)
    for at in np.unique(table.level)[::-1].tolist():
        rows = table.level == at
        place = place_index(spec, cells.tree, table, at, rows)
        main = spec.levels[at].name == part.level
        for each in _shown_at(spec, cells, table, at, rows, place):
            whole = main and set(part.attributes) <= set(each.attributes)
            yield _complete(cells, part, each, whole=whole, blank=blank)


def _shown_at(
    spec: PerturbedSpec,
    cells: Cells,
    table: TableRows,
    at: int,
    rows: NDArray[np.bool_],
    place: NDArray[np.int64],
) -> Iterator[ShownMargin]:
    """Yield the margins that a table shows at one level, one for each set of attributes that it crosses."""
    part, level = table.part, spec.levels[at].name
    named = {name: text_of(table.columns[attribute_column(spec, name)][rows]) for name in part.attributes}
    summed = np.zeros((int(rows.sum()), len(named)), bool)
    for k, (name, column) in enumerate(named.items()):
        summed[:, k] = np.isin(column, part.total_of(attribute_column(spec, name)))
    patterns, which = np.unique(summed, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns.tolist()):
        here = which.ravel() == k
        by_row = tuple(name for name, out in zip(named, pattern) if not out)
        for own in part.columns_by_attributes():
            attributes = (*own[0].where, *by_row)
            _refuse_overlapping(spec, part, attributes)
            margin = canonical(cells, Margin(level, attributes))
            groups = []
            for cell in own:
                group = place[here]
                for name in sorted(attributes, key=margin.attributes.index):
                    values = _values_of(cells, name)
                    index = (
                        values.index(cell.where[name])
                        if name in cell.where
                        else _value_index(
                            cells,
                            part,
                            (name, attribute_column(spec, name)),
                            named[name],
                            here,
                            np.flatnonzero(rows),
                        )
                    )
                    group = group * len(values) + index
                groups.append(group)
            texts = [text_of(table.columns[cell.count][rows])[here] for cell in own]
            yield ShownMargin(
                margin,
                attributes,
                np.concatenate(groups),
                np.concatenate(texts),
                np.concatenate(
                    [text_of(table.columns[cell.variance][rows])[here] for cell in own if cell.variance]
                )
                if part.by_row
                else None,
            )


def _refuse_overlapping(spec: PerturbedSpec, part: PublishedTable, attributes: tuple[str, ...]) -> None:
    for attribute in spec.attributes:
        if not attribute.partition and not any(name in attribute.views for name in attributes):
            raise DataError(
                f"table '{part.name}' has rows that sum over '{attribute.name}', whose values overlap, so that some "
                "units are counted twice",
                needed=f"a value of '{attribute.name}' in every row that is read",
                remedy="leave those rows out: only = { COLUMN = what it says in the rows to read }",
            )


def _values_of(cells: Cells, name: str) -> tuple[str, ...]:
    return next(view.values for a in cells.attributes for view in a.views if view.name == name)


def _value_index(
    cells: Cells,
    part: PublishedTable,
    names: tuple[str, str],
    column: Texts,
    rows: NDArray[np.bool_],
    numbers: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return, for each row, the position of its value among the values of an attribute."""
    name, called = names
    known = {value: i for i, value in enumerate(_values_of(cells, name))}
    found = np.array([known.get(value, -1) for value in column.tolist()], dtype=np.int64)
    if (lost := np.flatnonzero((found < 0) & rows)).size:
        given = column[lost[0]]
        own = part.columns.get(called, called)
        label = next((text for text in part.total_of(called) if text), "")
        only = inline_table({own: [*known, *([label] if label else [])]})
        whole = f"where it is the sum over '{name}', say so in the entry: total = {inline_table({called: str(given)})}; "
        raise DataError(
            f"row {numbers[lost[0]] + 1} of table '{part.name}' has '{given}' for '{name}'",
            needed=f"one of: {', '.join(known)}, or what stands for their sum",
            remedy=f"declare the value; or, {'' if label else whole}where it is the sum of some values, leave its rows out: "
            f"only = {only}",
        )
    return found[rows]


def _complete(
    cells: Cells, part: PublishedTable, shown: ShownMargin, *, whole: bool, blank: bool
) -> ShownMargin:
    """Refuse groups of a margin that are listed twice, and missing groups that the entry does not explain."""
    if not whole and "" not in part.codes and (empty := shown.texts == "").any():
        kept = ~empty
        variances = None if shown.variances is None else shown.variances[kept]
        shown = shown._replace(groups=shown.groups[kept], texts=shown.texts[kept], variances=variances)
    times = np.bincount(shown.groups, minlength=cells.size(shown.margin))
    if (twice := np.flatnonzero(times > 1)).size:
        label = cells.margin_label(shown.margin, int(twice[0]))
        raise DataError(
            f"table '{part.name}' lists '{label}' {times[twice[0]]} times",
            needed="each cell once",
            remedy="leave the other rows out: only = { COLUMN = what it says in the rows to read }; or "
            + (
                "where a blank repeats the key above, say so in the entry: fill = true"
                if blank and not part.fill
                else "make the column that tells these rows apart an attribute, or a level of places; where the "
                "file has none, write one into a copy of it"
            ),
        )
    lost = np.flatnonzero(times == 0)
    if not lost.size or not whole or part.unlisted == "unknown":
        return shown
    if part.unlisted in ("zero", "hidden"):
        said = "0" if part.unlisted == "zero" else NO_ROW
        if shown.variances is not None:
            shown = shown._replace(variances=np.append(shown.variances, np.full(len(lost), "0")))
        return shown._replace(
            groups=np.append(shown.groups, lost), texts=np.append(shown.texts, np.full(len(lost), said))
        )
    raise DataError(
        f"table '{part.name}' lacks '{cells.margin_label(shown.margin, int(lost[0]))}'"
        + (f" and {lost.size - 1} more" if lost.size > 1 else ""),
        needed="a row for each place and value of its margin",
        remedy='say in the entry what a cell without a row means: unlisted = "unknown", or unlisted = "zero" where its publisher '
        'leaves out counts of zero, and no others; or unlisted = "hidden" where its law is followed by a threshold below which '
        "rows are left out",
    )
