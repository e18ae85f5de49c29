"""Readers of the counts of every cell, confidential or released, from tables of counts or records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files import COUNT, Columns, Source, select
from trueup.files.source import open_table
from trueup.files.values import MAX_COUNT, Numbered, Where, plain_texts, rows_at, whole_counts
from trueup.io.microdata.row_places import (
    IDS,
    outside_domain,
    places_of_rows,
    refuse_missing,
    refuse_rows,
    refuse_twins,
    require_columns,
    row_place_columns,
)
from trueup.io.microdata.truncate import Limit, named_unit, refuse_unlimited, truncated
from trueup.model.cells import Attribute, Cells
from trueup.model.linear import parse_sum
from trueup.model.problem import Problem, public_cells, spec_and_text
from trueup.model.reading import Reading, topic_of
from trueup.model.records.release import ReleasedCounts
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart
from trueup.model.verb import entry_of


def read_counts(
    spec: Spec | Reading, cells: Cells, source: Any, limit: Limit | None = None, rows: int | None = None
) -> NDArray[np.int64]:
    """Return the confidential counts `(n,)` of all cells, which are zero for cells without a row.

    Where the spec names a column of units, each keeps at most as many records as the `limit` says. `rows` is how many
    rows the table must hold, where that is known; else it must hold one at least.

    Raises
    ------
    DataError
        If a column is missing, the table is empty or holds another number of rows, a count is not a whole number from 0
        to 2^62, or a row names an unknown place or value or a cell that another row holds. No message holds a count.
    """
    table, spec = open_table(source), Reading.of(spec)
    if spec.table.cells:
        return _wide(spec, cells, table, rows)
    return cells.tally(*cells_named(spec, cells.whole, table, limit, rows))


def cells_named(
    spec: Reading, cells: Cells, table: Source, limit: Limit | None = None, expected: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cell and the count of every row in a long table or of the records in a table.

    Raises
    ------
    DataError
        In the same cases as `read_counts`.
    """
    named = row_columns(spec)
    if spec.table.kind == "records":
        return _records_named(spec, cells, table, limit, expected)
    assert spec.table.count is not None
    require_columns(spec, table, [*named, spec.table.count])
    rows = select(table, [*named, spec.table.count])
    index = cell_index(spec, cells, rows, Numbered(table))
    refuse_rows(len(index), expected, table)
    refuse_twins(_as_written(spec.attributes, rows, index), Numbered(table))
    return index, whole_counts(rows[spec.table.count], spec.table.count, Numbered(table))


def _as_written(parts: Iterable[AttributePart], rows: Columns, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each row, which differs if texts of one cell differ, such as two ages."""
    for part in parts:
        if part.is_read:
            _, value = np.unique(_plain_values(rows[part.column or part.name]), return_inverse=True)
            _, index = np.unique(np.stack([index, value]), axis=1, return_inverse=True)
    return index


def _records_named(
    spec: Reading, cells: Cells, table: Source, limit: Limit | None, expected: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    refuse_unlimited(spec, limit)
    named = [*row_columns(spec), *([limit.column] if limit else [])]
    require_columns(spec, table, named)
    rows = table.tabulate(named)

    def first(at: int) -> str:
        return table.row_with({name: rows[name][at] for name in named})

    index, count = cell_index(spec, cells, rows, first), rows[COUNT].astype(np.int64)
    refuse_rows(int(count.sum()), expected, table)
    if limit is None:
        return index, count
    unit = np.array([named_unit(value) for value in rows[limit.column].tolist()], dtype=object)
    refuse_missing(unit, limit.column, first, IDS)
    return truncated(limit, unit, index, count)


def row_columns(spec: Reading) -> list[str]:
    """Return the names of the columns that identify the cell of a row in a long table or of a record."""
    return list(dict.fromkeys([*row_place_columns(spec), *(a.column or a.name for a in spec.attributes)]))


def cell_index(spec: Reading, cells: Cells, rows: Columns, where: Where) -> NDArray[np.int64]:
    """Return the cell `(rows,)` of every row, as a position among all cells.

    Raises
    ------
    DataError
        If a key or value is missing, or names no place or no value of the domain: it says in which row and column,
        never what stands there, since that is confidential.
    """
    index = places_of_rows(spec, cells, rows, where)
    of_counts = spec.table.kind == "counts"
    for part, attribute in zip(spec.attributes, cells.attributes):
        values = rows[part.column or part.name]
        index = index * attribute.size + _value_index(values, part, attribute, where, of_counts=of_counts)
    return index


def _value_index(
    values: NDArray, part: AttributePart, attribute: Attribute, where: Where, *, of_counts: bool
) -> NDArray[np.int64]:
    column, topic, plain = part.column or part.name, topic_of(part), _plain_values(values)
    if part.missing is None:
        refuse_missing(np.array(plain, dtype=object), column, where, topic, _MISSING)
    from trueup.io.microdata.sql import compared_values, value_read

    if part.is_read:
        read = {text: value_read(part, text) for text in set(plain)}
        plain = [read[text] for text in plain]
    known = {value: i for i, value in enumerate(compared_values(part))}
    found = np.array([known.get(value, -1) for value in plain], dtype=np.int64)
    if (lost := np.flatnonzero(found < 0)).size:
        said = f"column '{column}' holds a value outside the domain of '{attribute.name}' in {rows_at(where, lost)}"
        raise outside_domain(part, said, of_counts=of_counts)
    return found


_MISSING = 'say what stands for no value: `missing = "unknown"` in the attribute counts such rows apart'


def _plain_values(values: NDArray) -> list[str]:
    """Return the values of a column as texts, with dates in ISO 8601."""
    if values.dtype.kind == "M":
        return ["" if text == "NaT" else text for text in np.datetime_as_string(values, unit="D").tolist()]
    return plain_texts(values)


def _wide(spec: Reading, cells: Cells, table: Source, expected: int | None) -> NDArray[np.int64]:
    """Return the counts of all cells from a wide table, where each cell has a column or a sum of columns."""
    keys = [*row_place_columns(spec), *(part.column or part.name for part in spec.columns)]
    sums = [parse_sum(cell.count) for cell in spec.table.cells]
    used = sorted({name for terms in sums for name in terms})
    require_columns(spec, table, [*keys, *used])
    rows = select(table, [*keys, *used])
    refuse_rows(len(next(iter(rows.values()))), expected, table)
    whole = {name: whole_counts(rows[name], name, Numbered(table)) for name in used}
    place = index = places_of_rows(spec, cells, rows, Numbered(table))
    stated = {}
    for part, attribute in zip(spec.attributes, cells.attributes):
        if part in spec.columns:
            values = rows[part.column or part.name]
            stated[part.name] = _value_index(values, part, attribute, Numbered(table), of_counts=True)
            index = index * attribute.size + stated[part.name]
    refuse_twins(_as_written(spec.columns, rows, index), Numbered(table))
    counts = np.zeros(np.prod(cells.shape), dtype=np.int64)
    for cell, terms in zip(spec.table.cells, sums):
        named = {a.name: a.values.index(cell.where[a.name]) for a in cells.attributes if a.name in cell.where}
        at = [(stated | named)[a.name] for a in cells.attributes]
        values = sum(whole[name] * c for name, c in _whole_terms(terms, cell.count).items())
        index = np.ravel_multi_index(np.broadcast_arrays(place, *at), cells.shape)
        np.add.at(counts, index, whole_counts(np.asarray(values), cell.count, Numbered(table)))
    if cells.is_family:
        held = np.flatnonzero(counts)
        return cells.tally(held, counts[held])
    return counts


def _whole_terms(terms: dict[str, Fraction], text: str) -> dict[str, int]:
    if any(c.denominator != 1 for c in terms.values()):
        raise SpecError(f"expression '{text}' holds a fraction", needed="whole-number multiples of columns")
    return {name: int(c) for name, c in terms.items()}


def refuse_overflow(total: float) -> None:
    """Refuse counts whose sum exceeds 2^62, because sums of 64-bit integers could overflow."""
    if total > MAX_COUNT:
        raise DataError("the sum of all counts is beyond 2^62", needed="counts whose sums stay below 2^62")


METHODS = ("multinomial-mode", "multinomial-sample")
"""Methods whose released counts have a posterior without the measurements."""
RELEASED = "released"
"""The column of released counts, as bundles and exports name it."""


def read_released(spec: Spec | Problem | str | Path, source: Any, geography: Any = None) -> ReleasedCounts:
    """Read counts that a multinomial method released and published without the noisy measurements.

    Parameters
    ----------
    spec
        The spec of the release: levels and attributes, the noise of each query, and the method under `[reconcile]`.
    source
        A row for each finest count: columns of its place and attributes, and `released` or the column of counts that the spec
        names. Cells without a row are zero.
    geography
        All places; by default those of the rows.

    Raises
    ------
    SpecError
        The spec names no method whose released counts have a posterior.
    DataError
        A column is missing, or a row is of no known cell.

    Examples
    --------
    >>> import pandas
    >>> from trueup.demo import AREAS
    >>> spec = AREAS.model_copy(update={"reconcile": {"method": "multinomial-mode"}})
    >>> read_released(spec, pandas.DataFrame({"area": ["a", "b"], "released": [300, 400]}))
    Released counts: Two areas
      2 finest cells, no measurements
      released by the method 'multinomial-mode'
    """
    stated, text = spec_and_text(spec)
    name, parameters = entry_of(stated.reconcile)
    if name not in METHODS:
        raise SpecError(
            "released counts alone have no posterior under "
            + (f"the method '{name}'" if name else "a spec that names no method"),
            needed='[reconcile] method = "multinomial-mode" or "multinomial-sample"',
            remedy="name the method that released the counts; or, if noisy counts were published, infer from those",
        )
    table = open_table(source)
    column = RELEASED if RELEASED in table.columns() else stated.table.count or RELEASED
    if isinstance(spec, Problem) or geography is not None:
        problem = Problem.of(spec, geography)
    else:  # places that were published need no list of their own
        listed = stated.model_copy(update={"table": stated.table.model_copy(update={"keys": "public"})})
        problem = Problem(stated, public_cells(listed, source), text)
    reading = Reading.of(stated)
    counted = reading.table.model_copy(update={"kind": "counts", "count": column})
    return ReleasedCounts(
        problem,
        read_counts(replace(reading, table=counted), problem.cells, source),
        {"method": name} | parameters,
    )
