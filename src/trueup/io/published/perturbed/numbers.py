"""Readers of numbers as offices write them (1,234, 1.234,5 or 1 234).

Two conventions are known: English (1,234.5) and continental (1.234,5); spaces and apostrophes group thousands in both. All
texts of a table are read by one of them. Where both can read all, and differ, the table is refused until its spec says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from trueup.errors import DataError
from trueup.files.values import MAX_COUNT, MAX_FLOAT
from trueup.model.perturbed import PublishedTable

_SPACES = " \u00a0\u2009\u202f"
_APOSTROPHES = "'’"
_LONGEST = 40
"""Characters of the longest number."""
_POWER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?[eE][+-]?\d{1,2}", re.ASCII)
NUMBER_LIKE = re.compile(rf"(?:[-−]|(?:±|\+/-)\s?)?\d[\d.,\s{_SPACES}'’]*", re.ASCII)
"""What is meant as a number, whatever its signs mean."""
_ERROR = re.compile(r"^(±|\+/-)\s?(?=\d)")
"""Signs before an error."""
_MARKED = re.compile(
    rf"([-−]?\d[\d.,\s{_SPACES}'’]*?)"
    r"(?:\s?(?:[a-jln-su-zAC-FH-JLN-SU-Z]{1,2}(?![^\W\d_])|[*†‡§#]|[⁰¹²³⁴-⁹ᵃ-ᶻ]+|\(\w{1,2}\)|\[\w{1,3}\]|\(\d{1,3}(?:[.,]\d+)?\s?%\))"
    r"|\s\d{1,2}\))+"
)
"""A number and what marks it: a note, a revised or provisional value, its share; not k, m and t, which may be powers of ten."""


_BRACKETED = re.compile(r"\(\s*(\d[\d.,\s]*\d)\s*\)", re.ASCII)
"""A number of two digits or more that is marked as uncertain."""


class Convention(NamedTuple):
    """A way of writing numbers, with a thousands separator and a decimal sign."""

    thousands: str
    decimal: str


ENGLISH, CONTINENTAL = Convention(",", "."), Convention(".", ",")


def conventions(part: PublishedTable) -> list[Convention]:
    """Return the ways of writing numbers that an entry of the spec allows."""
    given = [
        each
        for each in (ENGLISH, CONTINENTAL)
        if part.decimal in (None, each.decimal) and part.thousands in (None, " ", "'", each.thousands)
    ]
    if part.thousands in (" ", "'"):
        return [each._replace(thousands="") for each in given]
    return given or [Convention(part.thousands or "", part.decimal or ".")]


def read_number(text: str, by: Convention) -> Decimal | None:
    """Return the number that a text states in one convention, or None for any other text.

    Examples
    --------
    >>> read_number("1,234.50", ENGLISH), read_number("1,234.50", CONTINENTAL), read_number("1 234", CONTINENTAL)
    (Decimal('1234.50'), None, Decimal('1234'))
    >>> read_number("877p", ENGLISH), read_number("1 204 (b)", ENGLISH), read_number("12k", ENGLISH)
    (Decimal('877'), Decimal('1204'), None)
    """
    bare = _ERROR.sub("", without_mark(text).strip()).replace("−", "-")
    if not 0 < len(bare) <= _LONGEST:
        return None
    if by.decimal == "." and _POWER.fullmatch(bare):
        return Decimal(bare)
    if not _pattern(by).fullmatch(bare):
        return None
    whole, _, fraction = bare.partition(by.decimal)
    digits = "".join(c for c in whole if c.isdigit() or c == "-")
    return Decimal(digits + ("." + fraction if fraction else ""))


def without_mark(text: str) -> str:
    """Return a number without the marks after it, and any other text unchanged."""
    marked = _MARKED.fullmatch(text.strip()) or _BRACKETED.fullmatch(text.strip())
    return marked[1].rstrip() if marked else text


@lru_cache(maxsize=16)
def _pattern(by: Convention) -> re.Pattern[str]:
    groups = [
        f"[{re.escape(_SPACES)}]",
        f"[{_APOSTROPHES}]",
        *([re.escape(by.thousands)] if by.thousands else []),
    ]
    grouped = [rf"\d{{1,3}}(?:{sign}\d{{3}})+" for sign in groups]
    if by.thousands == ",":
        grouped.append(r"\d{1,2}(?:,\d{2})+,\d{3}")  # lakhs
    return re.compile(rf"-?(?:\d+|{'|'.join(grouped)})(?:{re.escape(by.decimal)}\d+)?", re.ASCII)


class Numbers(NamedTuple):
    """The way in which one table writes numbers: a convention, a unit, and whether they are whole.

    Attributes
    ----------
    by
        The convention.
    whole
        True if numbers must be whole.
    unit
        Number of counts for which a 1 stands.
    """

    by: Convention
    whole: bool
    unit: int = 1

    def read(self, text: str) -> int | float | None:
        """Return the number that a text of the table states, or None for any other text."""
        found = read_number(text, self.by)
        return _held(None if found is None else found * self.unit, whole=self.whole)


def _held(found: Decimal | None, *, whole: bool) -> int | float | None:
    if found is None or abs(found) > (MAX_COUNT if found == found.to_integral_value() else MAX_FLOAT):
        return None
    if found == found.to_integral_value():
        return int(found) if whole else float(found)
    return None if whole else float(found)


def numbers_of(
    part: PublishedTable, texts: Sequence[str], variances: Sequence[str] = (), *, whole: bool
) -> Numbers:
    """Return the ways in which a table writes its numbers and its variances."""
    ways = [Numbers(by, whole, part.unit) for by in conventions(part)]
    likely = [text for text in texts if NUMBER_LIKE.fullmatch(without_mark(text).strip())]
    able = [
        way
        for way in ways
        if all(way.read(text) is not None for text in likely)
        and all(read_number(text, way.by) is not None for text in variances)
    ]
    if len(able) < 2:
        return (able or ways)[0]
    one, other = able[:2]
    if differ := next((text for text in likely if one.read(text) != other.read(text)), None):
        signs = {way.by.decimal: way.read(differ) for way in able}
        raise DataError(
            f"table '{part.name}' has the number '{differ}', which is {signs['.']} if a point is the decimal sign, and "
            f"{signs[',']} if a comma is",
            needed="the decimal sign of the table",
            remedy=f'write the decimal sign in the entry of \'{part.name}\': decimal = "." or decimal = ","',
        )
    return one
