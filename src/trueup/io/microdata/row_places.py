"""The place of every row in a confidential table, found by keys, and refusals of faulty rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.files import Columns, Source, require
from trueup.files.values import Where, is_missing, plain_texts, rows_at
from trueup.model.cells import Cells
from trueup.model.geography import key_columns
from trueup.model.names import ISO_DATE
from trueup.model.place_keys import lost_zeros
from trueup.model.reading import Reading, topic_of
from trueup.model.spec_table import AttributePart, Level

PLACES, IDS, TABLE, ROWS, LINKS = "places", "ids", "table", "rows", "links"
"""Topics of refusals of confidential rows, beside those of columns; see `TrueupError`."""


def refuse_missing(values: NDArray, column: str, where: Where, topic: str, remedy: str = "") -> None:
    """Refuse a column that has no value in some row."""
    lost = np.flatnonzero([is_missing(value) for value in values])
    if lost.size:
        raise DataError(
            f"column '{column}' has no value in {rows_at(where, lost)}",
            needed="a value in every row",
            remedy=remedy,
            about=topic,
        )


def outside_domain(part: AttributePart, said: str, *, of_counts: bool) -> DataError:
    """Return the error for a value outside an attribute's domain, with remedies in the spec.

    The remedies depend on the spec alone: one that fits the value would tell of a confidential row what kind of value it holds.
    """
    remedies = ["correct the table" + ", and leave out rows of sums such as Total" * of_counts]
    remedies += _readings(part, "values" if of_counts else "all other values")
    return DataError(said, needed=_values_needed(part), remedy="; or ".join(remedies), about=topic_of(part))


def _values_needed(part: AttributePart) -> str:
    """Return words that describe the values a column may have, taken from the spec alone."""
    own = {part.other, part.missing} - {None}
    listed = ", ".join(value for value in part.values if value not in own)
    words = "".join(f", or '{word}'" for word in part.values if word in own)
    if part.bins:
        return f"whole numbers{'' if part.other else f' from {part.bins[0]}'}{words}"
    if part.date:
        among = "" if part.other else f", in one of: {listed}"
        return f"dates such as {part.form or ISO_DATE}{among}{words}"
    return f"one of: {', '.join(part.values)}"


def _readings(part: AttributePart, others: str) -> Iterator[str]:
    """Yield options of the spec by which other values could be read, without quoting confidential rows."""
    plain, texts = not (part.bins or part.date), [*part.values]
    if part.date and not part.form:
        yield 'say how the column writes dates: `form = "DD.MM.YYYY"`'
    if plain and not part.fold and any(map(str.isalpha, "".join(texts))):
        yield "have capitals and blanks make no difference: `fold = true`"
    if plain and all(text[:1].isdigit() for text in texts):
        yield "have numbers counted by ranges: `bins = [0, 15, 65]`"
    if plain and all(re.fullmatch(r"\d{4}(-\d\d)?", text) for text in texts):
        yield f'have dates such as {ISO_DATE} counted by `date = "month"` or "year"'
    if part.other is None:
        smaller = f"whole numbers below {part.bins[0]}" if part.bins else ""
        kind = smaller or (f"dates of other {part.date}s" if part.date else others)
        yield f'count {kind} together: `other = "other"`'


def refuse_twins(index: NDArray[np.int64], where: Where) -> None:
    """Refuse a table of counts in which two rows have the same index, and so count the same cell."""
    order = np.argsort(index, kind="stable")
    if (same := np.flatnonzero(np.diff(index[order]) == 0)).size:
        first, second = order[same[0] : same[0] + 2]
        raise DataError(
            f"{where(int(first))} and {where(int(second))} are about the same cell",
            needed="one row for each cell of a table of counts",
            remedy="remove repeated rows; if another column distinguishes them, sum over it or make it an attribute",
            about=TABLE,
        )


def refuse_rows(found: int, expected: int | None, table: Source) -> None:
    """Refuse a table that is empty or has another number of rows than expected."""
    if expected is None and not found:
        raise DataError(
            f"{table.name} has a header but no rows",
            needed="at least one row",
            remedy="give the complete file; if it should be empty, give --expect-rows 0",
            about=ROWS,
        )
    if expected not in (None, found):
        raise DataError(
            f"{table.name} does not have {expected:,} rows, the number that was stated",
            remedy="give the complete file, or the right number by --expect-rows",
            about=ROWS,
        )


def require_columns(spec: Reading, table: Source, columns: list[str]) -> None:
    """Refuse a table that lacks a needed column, such as a key of places."""
    keys, header = row_place_columns(spec), table.columns()
    held = [name for name in keys if name in header]
    if lost := [name for name in keys if held and name not in header]:
        told = ", ".join(f'"{name}"' for name in dict.fromkeys(held))
        raise DataError(
            f"{table.name} has no column '{lost[0]}'",
            needed="a column of that name in the header row, the first row of a file; upper and lower case matter",
            remedy=f"where the columns [{told}] identify a place, and the public list gives the larger places that contain it, "
            f"write place = [{told}] in [table]",
            about=f"column {lost[0].casefold()}",
        )
    require(table, columns)


def row_place_columns(spec: Reading) -> list[str]:
    """Return the names of the columns that identify the place of a row."""
    if spec.parents is not None:
        return [spec.parents.id]
    return [level.column for level in spec.levels if level.column and _tells_place(spec, level)]


def _tells_place(spec: Reading, level: Level) -> bool:
    return spec.table.place is None or level.column in spec.table.place


def places_of_rows(spec: Reading, cells: Cells, rows: Columns, where: Where) -> NDArray[np.int64]:
    """Return the place `(rows,)` of every row, as a position among the finest places.

    Raises
    ------
    DataError
        If a key is missing or names no place: in which row and column, never what stands there.
    """
    keys = plain_keys(spec, cells)
    if not keys:
        return np.zeros(len(next(iter(rows.values()))), dtype=np.int64)
    plain = {
        name: np.array(plain_texts(rows[name]), dtype=object)
        for name in dict.fromkeys(row_place_columns(spec))
    }
    for name, column in plain.items():
        refuse_missing(column, name, where, PLACES)
    if spec.parents is not None:
        given = {"id": plain[spec.parents.id]}
    else:
        given = {name: key_columns(level, plain)[name] for name, level in key_levels(spec, keys).items()}
    known = {key: i for i, key in enumerate(_row_contents(keys))}
    found = np.array([known.get(key, -1) for key in _row_contents(given)])
    if (lost := np.flatnonzero(found < 0)).size:
        columns = " and ".join(f"'{name}'" for name in dict.fromkeys(row_place_columns(spec)))
        rows_lost = rows_at(where, lost)
        verb = "names" if rows_lost == where(int(lost[0])) else "name"
        raise DataError(
            f"{rows_lost} {verb} no place of level '{cells.tree.levels[-1]}' of the geography (column {columns})",
            remedy=_lost_zeros(given, keys, int(lost[0]))
            or "correct or remove the row, or add the place: counts stand at the last level alone",
            about=PLACES,
        )
    return found.astype(np.int64)


def plain_keys(spec: Reading, cells: Cells) -> Columns:
    """Return the keys of the finest places as plain texts, with which the texts of rows are compared.

    Raises
    ------
    SpecError
        If the columns that are to tell the place are those of several places: who is counted where is then not known.
    DataError
        If two keys differ by '.0' alone.
    """
    every = cells.tree.keys[-1]
    if spec.table.place is None or spec.parents is not None:
        return _plain(every, cells)
    keys = {name: every[name] for name, level in key_levels(spec, every).items() if _tells_place(spec, level)}
    if not keys or len(set(_row_contents(keys))) < len(next(iter(keys.values()))):
        columns = " and ".join(f"'{name}'" for name in spec.table.place)
        raise SpecError(
            f"`place` in [table] names {columns}, in which several places of level '{cells.tree.levels[-1]}' have the "
            "same key",
            needed="columns whose keys identify each place",
            remedy="add a column to `place`, until no two places have the same key",
        )
    return _plain(keys, cells)


def _plain(keys: Columns, cells: Cells) -> Columns:
    if not any("." in text for column in keys.values() for text in column.tolist()):
        return keys
    plain = {name: np.array(plain_texts(column), dtype=object) for name, column in keys.items()}
    if len(set(_row_contents(plain))) < len(set(_row_contents(keys))):
        raise DataError(
            f"the keys of two places of level '{cells.tree.levels[-1]}' differ only by an ending '.0'",
            needed="keys as text, not as floating-point numbers",
        )
    return plain


def _lost_zeros(given: Columns, keys: Columns, row: int) -> str:
    found = (
        lost_zeros(name, str(column[row]), map(str, keys[name].tolist())) for name, column in given.items()
    )
    return next(filter(None, found), "")


def _row_contents(columns: Columns) -> Iterable:
    """Return the content of every row: a text if there is one column, otherwise a tuple of texts."""
    texts = [list(map(str, column.tolist())) for column in columns.values()]
    return texts[0] if len(texts) == 1 else zip(*texts)


def key_levels(spec: Reading, names: Iterable[str]) -> dict[str, Level]:
    """Return the level of each named key; every level has one key column of its own."""
    levels = {level.key: level for level in spec.levels}
    return {name: levels[name] for name in names}
