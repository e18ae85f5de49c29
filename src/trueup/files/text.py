"""Columns of text: all at one width where they are about as long, else each by its own length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.whole import is_missing

OBJECT = 65
"""Bytes that a text of its own takes besides its characters."""


def as_text(values: Iterable[Any]) -> NDArray:
    """Hold values as texts, a missing one as an empty text.

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


def encoded(column: NDArray) -> bytes:
    """The texts of a column as bytes in which no two columns of equal length agree."""
    if column.dtype.kind == "U":
        return np.char.encode(column, "utf-8").tobytes()
    return b"".join(f"{len(text)}:{text}".encode() for text in column.tolist())
