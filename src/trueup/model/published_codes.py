"""What the codes of a published table mean: <5, 1-9, 10 or more."""

from __future__ import annotations

import re

from trueup.noise.perturbed.interval import CountInterval

UNKNOWN = "unknown"
"""The meaning of a code that says nothing."""


_RANGE = re.compile(r"\s*(\d{1,15})\s*(?:-|–|to)\s*(\d{1,15})\s*", re.ASCII)


_BELOW = re.compile(r"\s*<\s*(=?)\s*(\d{1,15})\s*", re.ASCII)


_ABOVE = re.compile(r"\s*(?:>\s*(=?)\s*(\d{1,15})|(\d{1,15})\s*(?:\+|or more))\s*", re.ASCII)


def read_interval(text: str) -> CountInterval | None:
    """Read what a code says of a count: `1-9`, `<5`, `<=4`, `10+`, `>9`; None if it is no interval.

    `<5` alone is read as 0 to 4, which holds whether zeros are shown or not.

    Examples
    --------
    >>> read_interval("1-9"), read_interval("<5"), read_interval("10+"), read_interval("*")
    (CountInterval(low=1, high=9), CountInterval(low=0, high=4), CountInterval(low=10, high=None), None)
    """
    if found := _RANGE.fullmatch(text):
        return CountInterval(int(found[1]), int(found[2]))
    if found := _BELOW.fullmatch(text):
        return CountInterval(0, int(found[2]) - (not found[1]))
    if found := _ABOVE.fullmatch(text):
        return CountInterval(int(found[3]) if found[3] else int(found[2]) + (not found[1]))
    return None
