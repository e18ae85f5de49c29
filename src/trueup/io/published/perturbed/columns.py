"""Readers of the columns of published tables as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, did_you_mean
from trueup.files import Columns, Encoded, is_csv, is_workbook, is_zst, select
from trueup.files.source import open_table
from trueup.io.published.perturbed.around import read_around
from trueup.io.published.perturbed.grid import cell_text, delimiters_of, numbers_columns, rows_of, unguarded
from trueup.io.published.perturbed.notes import without_notes
from trueup.model.perturbed import PerturbedSpec, PublishedTable

Texts = NDArray[np.str_]
MOST_KEYS = 100_000
"""Keys of a column among which sums of others are looked for."""
_SUM_OF = re.compile(
    r"[\s,:–-]+(total|insgesamt|zusammen|gesamt|totaal|totalt|i alt|összesen|razem|celkem|ogółem|итого|всего|計|合計|小計)$|"
    r"^(sub)?total( (of|de|du|des|da|do|di))?[\s:–-]+",
    re.IGNORECASE,
)
_TYPED = re.compile(r"-?\d+\.\d{3}", re.ASCII)


def read_columns(spec: PerturbedSpec, part: PublishedTable, source: Any) -> Columns:
    """Read the columns of a table that its entry in the spec names, as text."""
    names = [*spec.key_columns(part.level), *(attribute_column(spec, name) for name in part.attributes)]
    _refuse_strange(spec, part, names)
    keys = dict.fromkeys(names)
    values = [part.count] if part.count else [cell.count for cell in part.cells]
    wanted = [
        *(part.columns.get(name, name) for name in keys if name not in part.constant),
        *part.only,
        *values,
        *(cell.variance for own in part.columns_by_attributes() for cell in own if cell.variance),
    ]
    rows = _read_file_columns(part, source, list(dict.fromkeys(wanted)), values)
    rows = _only(part, rows)
    rows |= {name: rows[own] for name, own in part.columns.items()}
    rows |= {name: without_word_of_sum(rows[name], part.total_of(name)) for name in keys if name in rows}
    for name in part.attributes:
        rows |= _shared_with_places(spec, part, rows, name)
    size = len(next(iter(rows.values())))
    rows |= {name: np.full(size, value, object) for name, value in part.constant.items()}
    if not len(next(iter(rows.values()))):
        raise DataError(
            f"table '{part.name}' has no rows",
            needed="a row for each place or cell",
            remedy=f"give the file that holds '{part.name}', or correct `only`, `skip` and `header` in its entry",
        )
    return rows


def without_word_of_sum(column: NDArray, totals: Sequence[str]) -> NDArray:
    """Return a column of keys in which "East Total" becomes "East" if "East" is a key, too.

    Examples
    --------
    >>> without_word_of_sum(np.array(["East", "East Total", "Grand Total"], object), ["Grand Total"]).tolist()
    ['East', 'East', 'Grand Total']
    """
    if column.dtype.kind not in "OU" or len(known := set(column.tolist())) > MOST_KEYS:
        return column
    found = {key: _SUM_OF.sub("", key) for key in known if isinstance(key, str) and key not in totals}
    meant = {key: bare for key, bare in found.items() if bare != key and bare in known}
    return np.array([meant.get(key, key) for key in column.tolist()], object) if meant else column


def _refuse_strange(spec: PerturbedSpec, part: PublishedTable, names: Sequence[str]) -> None:
    """Refuse an entry that renames unused columns, or states totals of columns that do not exist."""
    every = [level.column or level.name for level in spec.levels[1:]]
    every += [name for a in spec.attributes for name in (*a.views, a.column)] + (
        [spec.parents.id] if spec.parents else []
    )
    for name in part.total if isinstance(part.total, dict) else ():
        if name not in every and name not in names:
            called = next((own for own, given in part.columns.items() if given == name), "")
            shown = ", ".join(dict.fromkeys(names))
            raise DataError(
                f"table '{part.name}' gives a total of '{name}', which is none of its columns of places and attributes",
                needed=f"one of: {shown}",
                remedy=f"did you mean '{called}'?" if called else did_you_mean(name, names),
            )
    if strange := [name for name in (*part.columns, *part.constant) if name not in names]:
        raise DataError(
            f"table '{part.name}' {'renames' if strange[0] in part.columns else 'sets'} the column '{strange[0]}', "
            "which it does not need",
            needed=f"one of: {', '.join(dict.fromkeys(names))}",
            remedy=f"leave '{strange[0]}' out of the entry",
        )


def _shared_with_places(spec: PerturbedSpec, part: PublishedTable, rows: Columns, attribute: str) -> Columns:
    """Split a column in which attribute values follow each place into two columns."""
    column = attribute_column(spec, attribute)
    own = part.columns.get(column, column)
    place = next((key for key in spec.key_columns(part.level) if part.columns.get(key, key) == own), None)
    if place is None or not len(rows[own]):
        return {}
    values = next(a.views[attribute] for a in spec.attributes if attribute in a.views)
    texts = text_of(rows[own])
    is_value = np.isin(texts, [*values, *part.total_of(column)])
    last = np.maximum.accumulate(np.where(is_value, 0, np.arange(len(texts))))
    return {place: texts[last], column: np.where(is_value, texts, "")}


def _only(part: PublishedTable, rows: Columns) -> Columns:
    """Return the rows of a table that its entry selects by `only`."""
    for name, wanted in part.only.items():
        texts = text_of(rows[name])
        keep = np.isin(texts, [wanted] if isinstance(wanted, str) else list(wanted))
        if not keep.any():
            held = ", ".join(f"'{text}'" for text in dict.fromkeys(texts.tolist()[:1000]))
            raise DataError(
                f"no row of table '{part.name}' says {wanted!r} in the column '{name}'",
                needed=f"one of: {held[:200]}",
            )
        rows = {each: column[keep] for each, column in rows.items()}
    return rows


def _read_file_columns(
    part: PublishedTable, source: Any, names: Sequence[str], values: Sequence[str]
) -> Columns:
    path = Path(source) if isinstance(source, str | Path | Encoded) else None
    if part.sheet and not (path and is_workbook(path)):
        raise DataError(
            f"`sheet` is given for table '{part.name}', but its file is not a workbook",
            needed="an xlsx or ods file, or an entry without `sheet`",
        )
    around = path is not None and path.is_file() and (is_workbook(path) or is_csv(path))
    if not around:
        if part.skip or part.header != 1:
            raise DataError(
                f"`skip` or `header` is given for table '{part.name}', but its file is not a CSV file or workbook",
                needed="an entry without `skip` and `header`",
            )
        table = open_table(source)
        ordered = [name for name in table.columns() if name in names]
        return without_notes(part, select(table, names if len(ordered) < len(names) else ordered), values)
    plain = (
        _plain(source, names)
        if path is not None
        and is_csv(path)
        and part.header == 1
        and not (part.skip or part.fill or part.below is not None)
        else None
    )
    if plain is not None:
        repeated = np.logical_and.reduce([text_of(column) == name for name, column in plain.items()])
        return without_notes(part, {name: column[~repeated] for name, column in plain.items()}, values)
    return read_around(part, source, names, values)


def _plain(source: Any, names: Sequence[str]) -> Columns | None:
    """Return the columns of a file that contains a table and nothing else, or None for any other file."""
    try:
        columns = select(open_table(source), names)
        first = [str(column[0]) for column in columns.values() if len(column)]
        numbered = all(len(text) < 6 or "=" in text for text in first)  # a look that costs less than the next
        return None if numbered and _numbers_its_columns(source) else columns
    except DataError:
        if is_zst(Path(source)):
            raise
        return None


def _numbers_its_columns(source: Any) -> bool:
    """Return True if the second row of a file contains only the numbers of the columns."""
    if is_zst(Path(source)):  # whose rows are read by their table alone
        table = open_table(source)
        columns = select(table, table.columns()).values()
        return numbers_columns([str(column[0]).strip() for column in columns if len(column)])
    tops = (list(islice(rows_of(source, None, sign, stripped=False), 2)) for sign in delimiters_of(source))
    return any(len(top) == 2 and numbers_columns([cell.strip() for cell in top[1]]) for top in tops)


def attribute_column(spec: PerturbedSpec, name: str) -> str:
    return next((a.column or name for a in spec.attributes if a.name == name), name)


def text_of(column: NDArray) -> Texts:
    """Return a column as text without surrounding blanks, and whole numbers without a fraction."""
    if column.dtype.kind in "iu":
        return column.astype(str)
    if column.dtype.kind == "U" and _is_plain(column):
        return np.char.strip(column)
    return np.array([_stripped_text(value) for value in column.tolist()], dtype=str)


def _is_plain(column: NDArray[np.str_]) -> bool:
    """Return True if no text has a mark before leading zeros, or digits of other scripts."""
    if not column.size or not column.dtype.itemsize:
        return True
    letters = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), -1)
    return not column[0].startswith('="') and bool(
        (letters[:, 0] != ord("'")).all() and (letters < 0x660).all()
    )


def _stripped_text(value: Any) -> str:
    if isinstance(value, str):
        return unguarded(value.strip())
    if value is None or isinstance(value, bool | int | float):
        return cell_text(value)
    if value != value or not isinstance(value == value, bool | np.bool_):  # NaN, or the NA of a dataframe
        return ""
    text = str(value).strip()  # a decimal, perhaps
    return f"{text}0" if _TYPED.fullmatch(text) else text
