"""Where the table stands in a file: titles above it, a header of one row or more, notes below it.

The header is found by the names of the columns that the entry asks for: the first rows in which each of them names one column.
A row below the table is a note where it holds no value and nothing like the keys above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.table import Columns
from trueup.io.published.perturbed.grid import Row, delimiters_of, rows_of
from trueup.model.perturbed import PublishedTable

SEARCHED = 1000
"""Rows in which a header is searched for."""
DEEPEST = 5
"""Rows of a header."""
JOINED = " / "
"""What stands between the names of a header's rows."""
_NUMBERED = re.compile(r"column (\d{1,5})")
_NOTE = re.compile(
    r"(sources?|notes?|footnotes?|symbols?|legend|quellen?|anmerkung(en)?|hinweise?|fuentes?|notas?|fontes?|fonti?|bron|"
    r"källa|kilde|lähde|last updated|extracted|stand|©|\(c\)|[*†‡]|\(?\d{1,2}\)|\[\d{1,2}\])(\s|:|$|\W)",
    re.IGNORECASE,
)
_ODD = re.compile(r"[\s:;()©*†‡=]")


class Header(NamedTuple):
    """Where a header stands, in how many rows, and the column of each name that was asked for."""

    at: int
    height: int
    columns: dict[str, int]


def read_around(part: PublishedTable, source: Any, names: Sequence[str], values: Sequence[str]) -> Columns:
    """Read the named columns of the table in a file, whatever stands around it.

    Parameters
    ----------
    part
        The entry: `skip`, `header`, `below`, `sheet` and `fill` say what does not tell itself.
    source
        A CSV file or a workbook.
    names, values
        The columns, and those of them that hold values.

    Raises
    ------
    DataError
        If no row names all columns, or some name stands for two of them.
    """
    head: list[Row] = []
    for delimiter in delimiters_of(source):
        head = list(islice(rows_of(source, part.sheet, delimiter), SEARCHED + DEEPEST))
        if (found := find_header(head, names, part)) is not None:
            body = islice(rows_of(source, part.sheet, delimiter), found.at + found.height, None)
            width = max(map(len, head[found.at : found.at + found.height]), default=0)
            return _body(body, found, width, part, names, values)
    raise _not_found(part, source, names)


def find_header(head: Sequence[Row], names: Sequence[str], part: PublishedTable) -> Header | None:
    """The first rows in which each name stands for one column; few rows before many."""
    if not part.header:
        numbered = {name: _numbered(name) for name in names}
        return None if None in numbered.values() else Header(part.skip or 0, 0, numbered)  # pyright: ignore
    places = range(min(len(head), SEARCHED)) if part.skip is None else [part.skip]
    for height in range(part.header, DEEPEST + 1):
        for at in places:
            if len(block := head[at : at + height]) == height and (held := _columns(block, names)):
                return Header(at, height, held)
    return None


def _columns(block: Sequence[Row], names: Sequence[str]) -> dict[str, int] | None:
    every = column_names(block)
    found = {}
    for name in names:
        at = [k for k, known in enumerate(every) if _plain(name) in known]
        if not at and (number := _numbered(name)) is not None and number < len(every):
            at = [number]
        if len(at) != 1:
            return None
        found[name] = at[0]
    return found if any(_numbered(name) is None for name in names) or len(block) == 1 else None


def column_names(block: Sequence[Row]) -> list[tuple[str, ...]]:
    """The names by which each column of a header may be called, the shortest first.

    A cell of an upper row goes on to the right until the next one, as merged cells do.

    Examples
    --------
    >>> column_names([["Code", "Sex", ""], ["", "F", "M"]])
    [('Code',), ('F', 'Sex / F', 'Sex F'), ('M', 'Sex / M', 'Sex M')]
    """
    width = max(map(len, block))
    rows = [[_plain(cell) for cell in row] + [""] * (width - len(row)) for row in block]
    filled = [_carried(row) for row in rows[:-1]] + [rows[-1]]
    result = []
    for k in range(width):
        own = [row[k] for row in rows if row[k]]
        path = list(dict.fromkeys(row[k] for row in filled if row[k])) if own else []
        joined = [JOINED.join(path), " ".join(path)] if len(path) > 1 else []
        result.append(tuple(dict.fromkeys([*own[-1:], *joined])))
    return result


def _carried(row: Row) -> Row:
    result, last = [], ""
    for cell in row:
        last = cell or last
        result.append(last)
    return result


def _plain(text: str) -> str:
    return " ".join(text.replace("\ufeff", "").split())


def _numbered(name: str) -> int | None:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) - 1 if found and int(found[1]) else None


def _not_found(part: PublishedTable, source: Any, names: Sequence[str]) -> DataError:
    """Say which column is missing, or stands twice; published names may be shown."""
    best, known = 0, [""]
    repeated: str | None = None
    for delimiter in delimiters_of(source):
        head = list(islice(rows_of(source, part.sheet, delimiter), SEARCHED))
        for at in range(len(head)):
            for height in (1, 2, 3):
                if not (block := head[at : at + height]):
                    continue
                every = [name for column in column_names(block) for name in column]
                held = sum(_plain(name) in every for name in names)
                if held > best:
                    best, known = held, every
                    repeated = next((n for n in names if every.count(_plain(n)) > 1), None)
    if repeated and best == len(names):
        ways = [name for name in known if name.endswith(f"{JOINED}{_plain(repeated)}")]
        return DataError(
            f"table '{part.name}' has several columns '{repeated}'",
            needed="a name of one column",
            remedy="name it by all rows of the header, such as "
            + (" or ".join(f"'{way}'" for way in ways[:3]) if ways else "'column 3' by its position"),
        )
    lost = next((name for name in names if _plain(name) not in known), names[0])
    near = get_close_matches(_plain(lost), known, 3, 0.4) or [name for name in known if name][:8]
    return DataError(
        f"table '{part.name}' has no column '{lost}' in a row with its other columns",
        needed="a header with the names of all columns that the entry names, in the same upper and lower case",
        remedy="take names that are there: " + ", ".join(f"'{name}'" for name in near)
        if near
        else "check the file and its sheet",
    )


def _body(
    body: Iterator[Row],
    found: Header,
    width: int,
    part: PublishedTable,
    names: Sequence[str],
    values: Sequence[str],
) -> Columns:
    at = [found.columns[name] for name in names]
    held: list[list[str]] = [[] for _ in names]
    short: list[bool] = []
    long: list[int] = []
    for number, row in enumerate(body):
        size = len(row)
        cells = [row[k] if k < size else "" for k in at]
        for column, cell in zip(held, cells):
            column.append(cell)
        short.append(size < width)
        if size > width and width and any(row[width:]):
            long.append(number)
    columns: Columns = {name: np.array(column, dtype=object) for name, column in zip(names, held)}
    keep = rows_kept(part, columns, values, np.array(short, bool))
    over = next((number for number in long if keep[number]), None)
    if over is not None:
        raise DataError(
            f"row {found.at + found.height + over + 1} of the file of table '{part.name}' has more cells than its header",
            needed="as many cells in every row, and quotation marks around numbers that hold the delimiter",
        )
    return _kept(part, columns, values, keep)


def without_notes(part: PublishedTable, columns: Columns, values: Sequence[str]) -> Columns:
    """The rows of the table: without blank ones, and without the notes below it."""
    return _kept(part, columns, values, rows_kept(part, columns, values))


def _kept(part: PublishedTable, columns: Columns, values: Sequence[str], keep: NDArray[np.bool_]) -> Columns:
    kept = columns if keep.all() else {name: column[keep] for name, column in columns.items()}
    if part.fill:
        kept = kept | {name: _filled(kept[name]) for name in columns if name not in values}
    return kept


def rows_kept(
    part: PublishedTable, columns: Columns, values: Sequence[str], short: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Tell which rows `(rows,)` are of the table, neither blank nor notes below it.

    Parameters
    ----------
    part
        The entry.
    columns
        Its columns of text.
    values
        Which of them hold values.
    short
        `(rows,)` which rows have fewer cells than the header.
    """
    rows = len(next(iter(columns.values())))
    short = np.zeros(rows, bool) if short is None else short
    blank = {name: _blank(column) for name, column in columns.items()}
    empty = np.logical_and.reduce(list(blank.values())) if blank else np.zeros(rows, bool)
    none = np.logical_and.reduce([blank[name] for name in values])
    keys = [name for name in columns if name not in values]
    end = rows
    if part.below is not None:
        held = np.flatnonzero(~empty)
        end = 0 if part.below >= len(held) else int(held[len(held) - part.below - 1]) + 1
    elif keys and rows:
        end = _last(part, columns, keys, empty, none, short)
    keep = ~empty
    keep[end:] = False
    return keep


def _last(
    part: PublishedTable,
    columns: Columns,
    keys: Sequence[str],
    empty: NDArray[np.bool_],
    none: NDArray[np.bool_],
    short: NDArray[np.bool_],
) -> int:
    """Where the notes below a table begin."""
    gaps = np.cumsum(empty)
    first = int(np.argmin(empty)) if not empty.all() else 0
    usual: dict[str, bool] = {}

    def odd(row: int) -> bool:
        """Whether the keys of a row are unlike all above it."""
        for name in keys:
            text = str(columns[name][row] or "")
            if text and _ODD.search(text):
                if name not in usual:
                    usual[name] = any(
                        _ODD.search(str(t or "")) for t in columns[name][first : max(row // 2, first + 1)]
                    )
                if not usual[name]:
                    return True
        return False

    end = len(empty)
    while end > first + 1:
        row = end - 1
        text = next((str(columns[name][row]) for name in keys if not _missing(columns[name][row])), "")
        after_gap = gaps[row] > gaps[first]
        said = bool(_NOTE.match(text))
        note = (
            none[row] and (not text or short[row] or after_gap or said or odd(row)) and "" not in part.codes
        )
        if not (empty[row] or note or (said and odd(row)) or (after_gap and text and odd(row))):
            break
        end = row
    return end


def _missing(value: Any) -> bool:
    return value is None or value == "" or value != value


def _blank(column: NDArray) -> NDArray[np.bool_]:
    if column.dtype.kind in "iub":
        return np.zeros(len(column), bool)
    if column.dtype.kind == "f":
        return np.isnan(column)
    return np.array([_missing(v) or (isinstance(v, str) and not v.strip()) for v in column.tolist()], bool)


def _filled(column: NDArray) -> NDArray:
    result, last = [], ""
    for value in column.tolist():
        last = value if not _missing(value) else last
        result.append(last)
    return np.array(result, dtype=object)
