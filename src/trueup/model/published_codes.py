"""Meanings of the codes in a published table: a value, a range of the true or published count, or nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trueup.noise.perturbed.ranges import CountInterval

UNKNOWN, HIDDEN = "unknown", "hidden"
"""The meaning of a code that says nothing, and of one for whatever the law does not show."""
PUBLISHED, SOME = "published", "some"
"""Words before a range of the published number, and before a range whose counts are hidden only in part."""
INSTEAD = re.compile(r"-([2-9])\1{8}(\.0+)?")
"""Numbers that stand for a word, as the Census API writes them: -666666666 for an estimate that was not made."""
FORMS = (
    "a value such as '0', a range of the true count such as '1-4', '<5', '10+' or 'some 1-4', of the published number such as "
    "'published <90', 'hidden' or 'unknown'"
)

_WHOLE = r"(\d{1,15})"
_RANGE = re.compile(rf"\s*{_WHOLE}\s*(?:-|–|—|to|bis|à)\s*{_WHOLE}\s*")
_BELOW = re.compile(rf"\s*(?:(?:<|below|under|less than|fewer than)\s*(=?)|(≤))\s*{_WHOLE}\s*", re.ASCII)
_AT_MOST = re.compile(
    rf"\s*(?:{_WHOLE}\s*(?:or|and) (?:fewer|less|under|below)|(?:up to|at most|no more than)\s*{_WHOLE})\s*",
    re.ASCII,
)
_ABOVE = re.compile(rf"\s*(?:>\s*(=?)\s*{_WHOLE}|≥\s*{_WHOLE}|{_WHOLE}\s*(?:\+|or more))\s*", re.ASCII)
_VALUE = re.compile(r"\s*-?\d{1,15}\s*", re.ASCII)


@dataclass(frozen=True)
class CodeMeaning:
    """The meaning of a code in a published table, such as a range of counts.

    Attributes
    ----------
    of
        Subject of the meaning: a published `value`, the true `count`, the `published` number, whatever the law has `hidden`, or
        nothing (`unknown`).
    low, high
        Its range.
    every
        For a range of true counts, True if every count in it is shown as this code.
    below
        True if the upper end was written as the number below which it lies: for fractions, all numbers below it.
    """

    of: Literal["value", "count", "published", "hidden", "unknown"]
    low: float = -np.inf
    high: float = np.inf
    every: bool = True
    below: bool = False

    @property
    def interval(self) -> CountInterval:
        """Return the meaning as an interval of true counts."""
        return CountInterval(int(max(self.low, 0)), None if np.isinf(self.high) else int(self.high))


def read_interval(text: str) -> CountInterval | None:
    """Read an interval of counts from a code such as `1-9`, `<5` or `10+`; return None for other codes.

    `<5` alone is read as 0 to 4, which holds whether zeros are shown or not.

    Examples
    --------
    >>> read_interval("1-9"), read_interval("<5"), read_interval("10+"), read_interval("*")
    (CountInterval(low=1, high=9), CountInterval(low=0, high=4), CountInterval(low=10, high=None), None)
    """
    if found := _RANGE.fullmatch(text):
        ends = int(found[1]), int(found[2])
        return CountInterval(*ends) if ends[0] <= ends[1] else None  # such as 2023-12
    if found := _BELOW.fullmatch(text):
        return CountInterval(0, max(int(found[3]) - (not found[1] and not found[2]), 0))
    if found := _AT_MOST.fullmatch(text):
        return CountInterval(0, int(found[1] or found[2]))
    if found := _ABOVE.fullmatch(text):
        least = found[4] or found[3]
        return CountInterval(int(least) if least else int(found[2]) + (not found[1]))
    return None


def read_meaning(text: str) -> CodeMeaning | None:
    """Read the meaning that a spec declares for a code; return None for other texts.

    Examples
    --------
    >>> read_meaning("published <90")
    CodeMeaning(of='published', low=-inf, high=89, every=True, below=True)
    >>> read_meaning("0").of
    'value'
    >>> read_meaning("some 1-4")
    CodeMeaning(of='count', low=1, high=4, every=False, below=False)
    """
    bare = text.strip()
    if bare in (UNKNOWN, HIDDEN):
        return CodeMeaning("unknown" if bare == UNKNOWN else "hidden")
    first, _, rest = bare.partition(" ")
    if first == PUBLISHED:
        return _published(rest)
    if _VALUE.fullmatch(bare):
        return CodeMeaning("value", int(bare), int(bare))
    found = read_interval(rest if first == SOME else bare)
    if found is None:
        return None
    high = np.inf if found.high is None else found.high
    return CodeMeaning("count", found.low, high, every=first != SOME)


def _published(text: str) -> CodeMeaning | None:
    """Read a meaning in terms of the published number: one value, or a range; return None for other texts."""
    if _VALUE.fullmatch(text):
        return CodeMeaning("value", int(text), int(text))
    if (found := read_interval(text)) is None:
        return None
    below = _BELOW.fullmatch(text)
    low, high = -np.inf if below else found.low, np.inf if found.high is None else found.high
    return CodeMeaning("published", low, high, below=bool(below and not below[1] and not below[2]))


def plain_meaning(text: str, *, noisy: bool) -> CodeMeaning | None:
    """Read a code without declared meaning, such as `<5`; with noise it describes the published number, else the count.

    Examples
    --------
    >>> plain_meaning("<5", noisy=False), plain_meaning("<90", noisy=True).of
    (CodeMeaning(of='count', low=0, high=4, every=True, below=False), 'published')
    """
    return None if read_interval(text) is None else read_meaning(f"{PUBLISHED} {text}" if noisy else text)
