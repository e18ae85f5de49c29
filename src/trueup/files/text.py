"""Columns of text: of fixed width if lengths are similar, else each by its own length."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.whole import is_missing

OBJECT = 65
"""Bytes that a text of its own takes besides its characters."""


def as_text(values: Iterable[Any]) -> NDArray:
    """Return values as texts, a missing one as an empty text.

    NumPy gives every text of an array the width of the longest, four bytes a character: one key of 20,000 characters would
    cost a nation's places 80 kB each. So texts of very different lengths are objects.

    Examples
    --------
    >>> as_text(["01", None]), as_text(["01", "x" * 1000]).dtype
    (array(['01', ''], dtype='<U2'), dtype('O'))
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "U":
        return values
    held = np.asarray(values, dtype=object) if isinstance(values, np.ndarray) else values
    texts = list(held)
    if any(type(value) is not str for value in texts):
        texts = ["" if is_missing(value) else str(value) for value in texts]
    lengths = list(map(len, texts))
    if 4 * max(lengths, default=0) * len(texts) <= 2 * (OBJECT * len(texts) + sum(lengths)):
        return np.array(texts, dtype=str)
    objects = np.empty(len(texts), dtype=object)
    objects[:] = texts
    return objects


BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + "\u2028\u2029\u202f\u205f\u3000"
)
"""What `str.strip` takes off a text."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_WHOLE_WITH_FRACTION = re.compile(r"(-?[0-9]+)\.0+")
LARGEST_WHOLE = 1e15
"""Floating-point numbers up to here are written in full by Python and DuckDB alike."""


def plain_text(value: Any) -> str:
    """Return a key or value in comparable form: no surrounding blanks, whole numbers without a fraction; empty if missing.

    Examples
    --------
    >>> [plain_text(value) for value in (" North ", 3.0, "3.0", "3.10", "03", None, True)]
    ['North', '3', '3', '3.10', '03', '', 'True']
    """
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating) and value == np.floor(value) and abs(value) < LARGEST_WHOLE:
        return str(int(value))
    text = str(value).strip()
    whole = _WHOLE_WITH_FRACTION.fullmatch(text) if "." in text else None
    return whole[1] if whole else text


def plain_texts(values: NDArray) -> list[str]:
    """Return the same for a column, converting equal values once."""
    given = values.tolist()
    kinds = set(map(type, given))
    if len(kinds) > 1 or not kinds <= {str, int, bool}:  # 1, 1.0 and True are equal
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
    """Strip the blanks off both ends of texts; where all are whole numbers with a fraction of 0, as a column of floating-point
    numbers is written, that as well.

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
    """Return the texts of a column as bytes that differ for any two columns of equal length."""
    if column.dtype.kind == "U":
        return np.char.encode(column, "utf-8").tobytes()
    return b"".join(f"{len(text)}:{text}".encode() for text in column.tolist())
