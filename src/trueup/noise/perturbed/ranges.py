"""Ranges of numbers, as codes and thresholds name them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Range = tuple[float, float]
"""Smallest and largest number of a range, minus and plus infinity where there is none."""


def read_ranges(given: Any) -> tuple[Range, ...]:
    """Read ranges from pairs of numbers, or from their JSON text.

    Examples
    --------
    >>> read_ranges('[[1, 4], [null, 89]]')
    ((1.0, 4.0), (-inf, 89.0))
    """
    pairs = json.loads(given) if isinstance(given, str) else given
    return tuple((-np.inf if a is None else float(a), np.inf if b is None else float(b)) for a, b in pairs)


def in_ranges(numbers: ArrayLike, ranges: Iterable[Range]) -> NDArray[np.bool_]:
    """Return a mask of the numbers that lie in one of some ranges.

    Examples
    --------
    >>> in_ranges([0, 1, 5], [(1, 4)]).tolist()
    [False, True, False]
    """
    x = np.asarray(numbers, np.float64)
    found = np.zeros(x.shape, bool)
    for low, high in ranges:
        found |= (x >= low) & (x <= high)
    return found


def write_ranges(ranges: Iterable[Range]) -> str:
    """Return ranges as the JSON text that `read_ranges` reads."""
    return json.dumps([[None if np.isinf(end) else end for end in each] for each in ranges])


def range_text(ranges: Iterable[Range]) -> str:
    """Return ranges in words.

    Examples
    --------
    >>> range_text([(1, 4), (-np.inf, 89), (7, 7)])
    'from 1 to 4, up to 89, 7'
    """
    return ", ".join(
        f"{low:g}"
        if low == high
        else f"up to {high:g}"
        if np.isinf(low)
        else f"from {low:g}" + ("" if np.isinf(high) else f" to {high:g}")
        for low, high in ranges
    )
