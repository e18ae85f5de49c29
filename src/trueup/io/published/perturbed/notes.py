"""Notes and blank rows below a published table, recognised by missing values and unusual keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files import Columns
from trueup.model.perturbed import PublishedTable

_NOTE = re.compile(
    r"(sources?|notes?|footnotes?|symbols?|legend|quellen?|anmerkung(en)?|hinweise?|fuentes?|notas?|fontes?|fonti?|bron|"
    r"källa|kilde|lähde|zeichen(erklärung)?|legende|legenda|leyenda|simboli|"
    r"last updated|extracted|stand|©|\(c\)|[*†‡]|\(?\d{1,2}\)|\[\d{1,2}\])(\s|:|$|\W)",
    re.IGNORECASE,
)
_ODD = re.compile(r"[\s:;()©*†‡=]")


def without_notes(part: PublishedTable, columns: Columns, values: Sequence[str]) -> Columns:
    """Return the columns of a table without its blank rows and the notes below it."""
    return kept_rows(part, columns, values, rows_kept(part, columns, values, below=part.below or 0))


def kept_rows(
    part: PublishedTable, columns: Columns, values: Sequence[str], keep: NDArray[np.bool_]
) -> Columns:
    """Return selected rows of a table, in which blank keys repeat the key above if the entry says so."""
    kept = columns if keep.all() else {name: column[keep] for name, column in columns.items()}
    if part.fill:
        keys = [name for name in columns if name not in values]
        filled = carried_keys([["" if _missing(v) else v for v in kept[name].tolist()] for name in keys])
        kept = kept | {name: np.array(texts, dtype=object) for name, texts in zip(keys, filled)}
    return kept


def rows_kept(
    part: PublishedTable,
    columns: Columns,
    values: Sequence[str],
    short: NDArray[np.bool_] | None = None,
    below: int = 0,
) -> NDArray[np.bool_]:
    """Return a mask `(rows,)` of the rows that are part of the table rather than blank or notes.

    Parameters
    ----------
    part
        The entry.
    columns
        Its columns of text.
    values
        Names of the columns that hold values.
    short
        `(rows,)` which rows have fewer cells than the header.
    below
        Rows at the end that are none of the table.
    """
    rows = len(next(iter(columns.values())))
    short = np.zeros(rows, bool) if short is None else short
    blank = {name: _blank(column) for name, column in columns.items()}
    legend = _explains_code(part, columns, values, ~np.logical_and.reduce(list(blank.values())))
    empty = np.logical_and.reduce(list(blank.values())) if blank else np.zeros(rows, bool)
    none, short = np.logical_and.reduce([blank[name] for name in values]) | legend, short | legend
    keys = [name for name in columns if name not in values]
    end = max(rows - below, 0)
    if part.below is None and keys and rows:
        end = _last(part, columns, keys, empty, none, short)
    keep = ~empty & ~(none & part.headings)
    keep[end:] = False
    return keep


def _explains_code(
    part: PublishedTable, columns: Columns, values: Sequence[str], held: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return a mask of the last rows that explain a code or contain a sentence."""
    first, found = next(iter(columns.values())), np.zeros(len(held), bool)
    for row in reversed(np.flatnonzero(held).tolist()):
        says = [str(columns[name][row]) for name in values if not _missing(columns[name][row])]
        if not says:
            continue
        if len(says) != 1 or " " not in says[0] or says[0] in part.codes:
            break
        found[row] = says[0].count(" ") > 3 or any(first[row] in columns[name].tolist() for name in values)
    return found


def _last(
    part: PublishedTable,
    columns: Columns,
    keys: Sequence[str],
    empty: NDArray[np.bool_],
    none: NDArray[np.bool_],
    short: NDArray[np.bool_],
) -> int:
    """Return the number of the row at which the notes below a table begin."""
    gaps = np.cumsum(empty)
    given = np.sum([~_blank(columns[name]) for name in keys], axis=0)
    first = int(np.argmin(empty)) if not empty.all() else 0
    usual: dict[str, bool] = {}

    def odd(row: int) -> bool:
        """Return True if the keys of a row differ in form from the keys of all rows above it."""
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
        fewer = bool((given[row] < given[first:row][~none[first:row]]).all())  # keys than any row of values
        like_note = not text or fewer or short[row] or after_gap or said or odd(row)
        note = none[row] and like_note and ("" not in part.codes or fewer)
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


def carried_keys(columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return columns of keys in which each blank is replaced by the key above.

    Behind another key in a column with blanks, a blank is a sum: the parts are named anew.

    Examples
    --------
    >>> carried_keys([["East", "", "East Total"], ["Ely", "Diss", ""]])
    [['East', 'East', 'East Total'], ['Ely', 'Diss', '']]
    """
    opens = ["" in column for column in columns]
    last = [""] * len(columns)
    result: list[list[str]] = [[] for _ in columns]
    for row in zip(*columns):
        anew = False
        for k, cell in enumerate(row):
            new = bool(cell) and cell != last[k]
            last[k] = cell or ("" if anew else last[k])
            anew = anew or (new and opens[k])
            result[k].append(last[k])
    return result
