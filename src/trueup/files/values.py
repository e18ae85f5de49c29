"""Checks and conversions of the values in columns of text and of whole numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from numbers import Number
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import Source

Where = Callable[[int], str]
"""Says where the row of a position (from 0) stands, since what it holds may be confidential."""
MAX_NAMED_ROWS = 5
"""Rows at fault that a message names."""


@dataclass(frozen=True)
class Numbered:
    """A function that states the location of a row by its number, with the table's name if one is given."""

    table: Source | None = None

    def __call__(self, at: int) -> str:
        return self.table.row(at + 1) if self.table else f"row {at + 1}"


def rows_at(where: Where, at: NDArray[np.int64] | Sequence[int]) -> str:
    """Return words that state the locations of faulty rows.

    How many there are is said only of a table that is read row by row and tells rows by their numbers: a source that
    keeps these to itself keeps that as well.

    Examples
    --------
    >>> rows_at(Numbered(), [1]), rows_at(Numbered(), [1, 3]), rows_at(Numbered(), range(120))
    ('row 2', 'row 2 and row 4', 'row 1, row 2, row 3, row 4, row 5 and 115 more')
    >>> rows_at(lambda at: "a row", range(120))
    'a row'
    """
    if len(at) == 1 or not isinstance(where, Numbered):
        return where(int(at[0]))
    named = list(dict.fromkeys(where(int(row)) for row in at[:MAX_NAMED_ROWS]))
    if len(named) < min(len(at), MAX_NAMED_ROWS):
        return named[0]
    if len(at) > MAX_NAMED_ROWS:
        return f"{', '.join(named)} and {len(at) - MAX_NAMED_ROWS:,} more"
    return f"{', '.join(named[:-1])} and {named[-1]}"


MAX_COUNT = 2**62
"""Counts beyond this could overflow when noise is added."""
MAX_FLOAT = 2**53
"""A floating-point number beyond this may be a whole number that was rounded."""


_FRACTION = re.compile(r"(?<=[0-9])\.0+$")
"""A fraction of 0, which a column of floating-point numbers has where it is written as text."""


ROWS = Numbered()
"""Rows by their numbers alone."""


def whole_counts(values: NDArray, column: str, where: Where = ROWS) -> NDArray[np.int64]:
    """Return a column of counts as integers; refuse any value that is not a count, and name its row.

    Examples
    --------
    >>> whole_counts(np.array(["3", "1e2"], dtype=object), "pop")
    Traceback (most recent call last):
    trueup.errors.DataError: column 'pop' in row 2 holds text that is not a whole number. Needed: ...
    """
    problem = np.array([None] * len(values), dtype=object)
    numbers = _to_numbers(values, problem)
    problem[(numbers < 0) & (problem == None)] = "a negative number"  # noqa: E711
    problem[(numbers > MAX_COUNT) & (problem == None)] = "a number beyond 2^62"  # noqa: E711
    if (bad := np.flatnonzero(problem != None)).size:  # noqa: E711
        alike = "" if len(set(problem[bad])) == 1 else "values that are not counts, the first of which is "
        raise DataError(
            f"column '{column}' in {rows_at(where, bad)} holds {alike}{problem[bad[0]]}",
            needed="whole numbers from 0 to 2^62 in every row, without thousands separators",
        )
    return numbers.astype(np.int64)


def _to_numbers(values: NDArray, problem: NDArray) -> NDArray:
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind == "f":
        problem[values > MAX_FLOAT] = "a number too large for a floating-point column to hold exactly"
        problem[values != np.floor(values)] = "a fraction"
        problem[np.isinf(values)] = "an infinite number"
        problem[np.isnan(values)] = "no value"
        return np.where(np.isfinite(values), values, 0)
    if _plain_digits(given := values.tolist()):
        return np.array(list(map(int, given)), dtype=np.int64)
    numbers = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        numbers[row], problem[row] = _one_number(value)
    return numbers


def _plain_digits(values: list) -> bool:
    """Return True if all texts are numbers of 1 to 18 digits, which need no check one by one."""
    if (
        set(map(type, values)) != {str}
        or not 1 <= min(lengths := set(map(len, values))) <= max(lengths) <= 18
    ):
        return False
    digits = "".join(values)
    return digits.isascii() and digits.isdigit()


def _one_number(value: Any) -> tuple[int, str | None]:
    if is_missing(value):
        return 0, "no value"
    if isinstance(value, bool | np.bool_):
        return 0, "a boolean"
    if isinstance(value, str):
        text = _FRACTION.sub("", value.strip())
        whole = text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()
        return (int(text), None) if whole and len(text) < 25 else (0, "text that is not a whole number")
    if not isinstance(value, Number) or isinstance(value, complex) or not math.isfinite(value):  # pyright: ignore
        return 0, f"a {type(value).__name__}"
    whole = int(value)  # pyright: ignore[reportArgumentType]
    return whole, None if whole == value else "a fraction"


def whole_limits(values: NDArray, column: str) -> NDArray[np.int64]:
    """Return a public column of whole-number limits as integers, with -1 for missing values.

    Examples
    --------
    >>> whole_limits(np.array(["3", "", None], dtype=object), "prisons").tolist()
    [3, -1, -1]
    """
    if values.dtype.kind in "iu":
        return whole_counts(values, column)
    missing = np.array([is_missing(value) for value in values], dtype=bool)
    held = values if values.dtype.kind == "f" else values.astype(object)
    return np.where(missing, -1, whole_counts(np.where(missing, 0, held), column))


def public_numbers(values: NDArray, column: str) -> NDArray:
    """Return a public column of finite numbers, as integers if possible, with NaN for missing values.

    Examples
    --------
    >>> public_numbers(np.array(["0.5", "-2", ""], dtype=object), "rain").tolist()
    [0.5, -2.0, nan]
    """
    try:
        return whole_limits(values, column)
    except DataError:
        missing = np.array([is_missing(value) for value in values], dtype=bool)
        try:
            found = np.where(missing, math.nan, np.where(missing, 0, values).astype(float))
        except (TypeError, ValueError):
            found = np.full(len(values), math.inf)
    if np.isinf(found).any():
        raise DataError(
            f"column '{column}' holds something that is not a finite number", needed="numbers, such as 0.25"
        )
    return found


def is_missing(value: Any) -> bool:
    """Return True if a value is None, empty text, NaN, or the NA of a dataframe library.

    Examples
    --------
    >>> import pandas
    >>> [is_missing(v) for v in (None, "", float("nan"), pandas.NA, 0, "0")]
    [True, True, True, True, False, False]
    """
    itself = value == value  # False for NaN, and no truth value at all for NA
    return value is None or not isinstance(itself, bool | np.bool_) or not itself or value == ""


BYTES_PER_PYTHON_TEXT = 65
"""Bytes that a text of its own takes besides its characters."""


def as_text(values: Iterable[Any]) -> NDArray:
    """Return values as texts, with an empty text for a missing value.

    NumPy gives every text of an array the width of the longest, four bytes a character: one key of 20,000 characters would
    cost a nation's places 80 kB each. So texts of very different lengths are objects.

    Examples
    --------
    >>> as_text(["01", None]), as_text(["01", "x" * 1000]).dtype
    (array(['01', ''], dtype='<U2'), dtype('O'))
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "U":
        return values
    texts = _python_values(values) if isinstance(values, np.ndarray) else list(values)
    if any(type(value) is not str for value in texts):
        texts = ["" if is_missing(value) else _written(value) for value in texts]
    lengths = list(map(len, texts))
    if 4 * max(lengths, default=0) * len(texts) <= 2 * (BYTES_PER_PYTHON_TEXT * len(texts) + sum(lengths)):
        return np.array(texts, dtype=str)
    objects = np.empty(len(texts), dtype=object)
    objects[:] = texts
    return objects


BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000"
)
"""Characters that `str.strip` removes."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_WHOLE_WITH_FRACTION = re.compile(r"(-?[0-9]+)\.0+")
LARGEST_WHOLE = 1e15
"""Floating-point numbers up to here are written in full by Python and DuckDB alike."""


def plain_text(value: Any) -> str:
    """Return a key or value as text for comparison: without outer blanks or an ending such as '.0'.

    Examples
    --------
    >>> [plain_text(value) for value in (" North ", 3.0, "3.0", "3.10", "03", None, True, datetime(2025, 3, 1))]
    ['North', '3', '3', '3.10', '03', '', 'True', '2025-03-01']
    """
    text = "" if is_missing(value) else _written(value).strip()
    whole = _WHOLE_WITH_FRACTION.fullmatch(text) if "." in text else None
    return whole[1] if whole else text


def _written(value: Any) -> str:
    """Return a value as text: a whole number without a fraction, a date without the time if that is midnight."""
    if isinstance(value, float | np.floating) and value == np.floor(value) and abs(value) < LARGEST_WHOLE:
        return str(int(value))
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "seconds")
    return str(value)


def _python_values(values: NDArray) -> list:
    """Return the values of an array as Python's own, dates to the second."""
    return (values.astype("datetime64[s]") if values.dtype.kind == "M" else values).tolist()


def plain_texts(values: NDArray) -> list[str]:
    """Return a column of keys or values as texts for comparison; each distinct value is converted once."""
    given = _python_values(values)
    kinds = set(map(type, given))
    if len(kinds) > 1 or not kinds <= {str, int, bool, datetime}:  # 1, 1.0 and True are equal
        return list(map(plain_text, given))
    plain = {value: plain_text(value) for value in set(given)}
    return [plain[value] for value in given]


def folded_case(text: str) -> str:
    """Return a text with ASCII letters in lower case and single blanks.

    Examples
    --------
    >>> folded_case("Not  KNOWN")
    'not known'
    """
    return re.sub(" +", " ", text.translate(_LOWER))


def without_blanks(text: NDArray) -> NDArray:
    """Return texts without blanks around them, and without '.0' if every text ends in it after a whole number.

    Examples
    --------
    >>> without_blanks(np.array([" a", "b "])).tolist(), without_blanks(np.array(["1.0", "10.0"])).tolist()
    (['a', 'b'], ['1', '10'])
    >>> without_blanks(np.array(["1.0", "1.1"])).tolist()
    ['1.0', '1.1']
    """
    plain = (
        np.char.strip(text) if text.dtype.kind == "U" else as_text([each.strip() for each in text.tolist()])
    )
    if plain.size and _WHOLE_WITH_FRACTION.fullmatch(str(plain[0])):
        found = [_WHOLE_WITH_FRACTION.fullmatch(each) for each in plain.tolist()]
        return as_text([each[1] for each in found if each]) if all(found) else plain
    return plain


def encoded(column: NDArray) -> bytes:
    """Return the texts of a column as bytes; two columns of equal length have equal bytes only if they are equal."""
    if column.dtype.kind == "U":
        return np.char.encode(column, "utf-8").tobytes()
    return b"".join(f"{len(text)}:{text}".encode() for text in column.tolist())
