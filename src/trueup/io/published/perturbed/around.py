"""Search for a table within a file, below titles and header rows and above notes.

The header is found by the names of the columns that the entry asks for: the first rows in which each of them names one column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from trueup.errors import DataError
from trueup.files import Columns
from trueup.io.published.perturbed.grid import Row, delimiters_of, rows_of
from trueup.io.published.perturbed.notes import kept_rows, rows_kept
from trueup.model.perturbed import PublishedTable

SEARCHED = 1000
"""Rows in which a header is searched for."""
DEEPEST = 5
"""Rows of a header."""
JOINED = " / "
"""What stands between the names of a header's rows."""
_NUMBERED = re.compile(r"column (\d{1,5})")


class Header(NamedTuple):
    """The position of a table's header, its number of rows, and the column of each requested name."""

    at: int
    height: int
    columns: dict[str, int]


def read_around(part: PublishedTable, source: Any, names: Sequence[str], values: Sequence[str]) -> Columns:
    """Read the named columns of the table in a file, without the titles and notes around it.

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
            header = head[found.at : found.at + found.height]
            return _body(
                ([] if row in header[-1:] else row for row in body),
                found,
                max(map(len, header), default=0),
                part,
                names,
                values,
            )
    raise _not_found(part, source, names)


def find_header(head: Sequence[Row], names: Sequence[str], part: PublishedTable) -> Header | None:
    """Return the header with the fewest rows in which each name belongs to one column, or None."""
    if not part.header:
        numbered = {name: at for name in names if (at := _numbered(name)) is not None}
        wide = max(map(len, head[part.skip or 0 :]), default=0)
        found = len(numbered) == len(set(names)) and wide > max(numbered.values())
        return Header(part.skip or 0, 0, numbered) if found else None
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
        at = [k for k in at if _in_full(every[k]) == _plain(name)] if len(at) > 1 else at
        if not at and (number := _numbered(name)) is not None and number < len(every):
            at = [number]
        if len(at) != 1:
            return None
        found[name] = at[0]
    return found if any(_numbered(name) is None for name in names) or len(block) == 1 else None


def _in_full(names: Sequence[str]) -> str:
    """Return the longer name of a column, which joins the texts of all header rows."""
    return names[min(1, len(names) - 1)]


def column_names(block: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return all possible names of each column below a header, the shortest first.

    A cell of an upper row goes on to the right until the next one, as merged cells do.

    Examples
    --------
    >>> column_names([["Code", "Sex", ""], ["", "F", "M"]])
    [('Code',), ('F', 'Sex / F', 'Sex F'), ('M', 'Sex / M', 'Sex M')]
    >>> column_names([["Sex", "All"], ["F", ""], ["n", "n"]])[1]
    ('n', 'All / n', 'All n')
    """
    width = max(map(len, block))
    rows = [[_plain(cell) for cell in row] + [""] * (width - len(row)) for row in block]
    filled: list[Row] = []
    for row in rows[:-1]:
        filled.append(_carried_below(row, filled))
    filled.append(rows[-1])
    result = []
    for k in range(width):
        own = [row[k] for row in rows if row[k]]
        ended = (
            rows[0][k] and len(own) == 1 and len(rows) > 2
        )  # nothing goes on below a name that begins here
        path = list(dict.fromkeys(own if ended else [row[k] for row in filled if row[k]])) if own else []
        joined = [JOINED.join(path), " ".join(path)] if len(path) > 1 else []
        result.append(tuple(dict.fromkeys([*own[-1:], *joined])))
    return result


def _carried_below(row: Row, above: Sequence[Row]) -> Row:
    """Return a row of header names in which a blank repeats the name on its left, as merged cells do."""
    result: Row = []
    for k, cell in enumerate(row):
        goes_on = k > 0 and all(upper[k] == upper[k - 1] for upper in above)
        result.append(cell or (result[-1] if goes_on else ""))
    return result


def carried(row: Row) -> Row:
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
    """Return the error for a column that is missing from a table or occurs twice."""
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
            needed="a name that only one column has",
            remedy="name it by all rows of the header, such as "
            + (" or ".join(f"'{way}'" for way in ways[:3]) if ways else "'column 3' by its position"),
        )
    lost = next((name for name in names if _plain(name) not in known), names[0])
    free = [name for name in dict.fromkeys(known) if name and name not in map(_plain, names)]
    alike = [name for name in free if name.casefold() == _plain(lost).casefold()]
    near = alike or get_close_matches(_plain(lost), free, 3, 0.4) or free[:8]
    return DataError(
        f"table '{part.name}' has no header row with column '{lost}' and the other columns that the spec names",
        needed="a header row with each of these columns, spelled the same, upper and lower case included",
        remedy=(
            "use names that are in the header: " + ", ".join(f"'{name}'" for name in near)
            if near
            else "correct the names; in a workbook, set `sheet` to the name of the sheet that contains the table"
        ),
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
    blank = 0
    for number, row in enumerate(body):
        size = len(row)
        cells = [row[k] if k < size else "" for k in at]
        for column, cell in zip(held, cells):
            column.append(cell)
        short.append(size < width)
        if size > width and width and any(row[width:]):
            long.append(number)
        blank = 0 if any(row) else blank + 1  # rows at the end, which an editor need not show
    columns: Columns = {
        name: np.array(column, dtype=object) for _, name, column in sorted(zip(at, names, held))
    }  # as the file has them
    keep = rows_kept(part, columns, values, np.array(short, bool), blank + (part.below or 0))
    over = next((number for number in long if keep[number]), None)
    if over is not None:
        raise DataError(
            f"row {found.at + found.height + over + 1} of the file of table '{part.name}' has more cells than the header",
            needed="as many cells in every row as in the header; numbers that contain the delimiter need quotation marks",
        )
    return kept_rows(part, columns, values, keep)
