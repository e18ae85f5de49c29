"""Forms of dates in a column, as regular expressions for Python and DuckDB."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from trueup.files.values import plain_text

_YEAR, _MONTH, _DAY = "([0-9]{4})", "(0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])"
_TIME = "(?:[ T][0-9:.+Z -]*)?"
_ISO = {
    "month": f"{_YEAR}-{_MONTH}(?:-{_DAY}{_TIME})?",
    "year": f"{_YEAR}(?:-{_MONTH}(?:-{_DAY}{_TIME})?)?",
}
_VALUES = {"month": (f"[0-9]{{4}}-{_MONTH}", "2026-03"), "year": ("[0-9]{4}", "2026")}
_FORM = re.compile(r"(YYYY|MM|DD)(?:([-./ ]?)(YYYY|MM|DD)(?:\2(YYYY|MM|DD))?)?")


class DateForm(NamedTuple):
    """A form in which a column writes dates, as a regular expression.

    Attributes
    ----------
    pattern
        A regular expression of a whole text.
    year, month
        The groups that hold them.
    """

    pattern: str
    year: int
    month: int


@cache
def forms_of(date: str, form: str | None) -> tuple[DateForm, ...]:
    """Return the forms in which a column may write dates, the stated one before ISO 8601.

    Examples
    --------
    >>> forms_of("month", "DD.MM.YYYY")[0]
    DateForm(pattern='(?:0?[1-9]|[12][0-9]|3[01])\\\\.(0?[1-9]|1[0-2])\\\\.([0-9]{4})(?:[ T][0-9:.+Z -]*)?', year=2, month=1)
    """
    iso = DateForm(_ISO[date], 1, 2)
    if form is None:
        return (iso,)
    parts = re.findall("YYYY|MM|DD", form)
    texts = {"YYYY": _YEAR, "MM": _MONTH, "DD": _DAY}
    pattern = re.sub("YYYY|MM|DD|[.]", lambda m: texts.get(m[0], r"\."), form)
    pattern = pattern if form == "".join(parts) else pattern.replace("0[1-9]", "0?[1-9]")
    groups = [part for part in parts if part != "DD"]
    month = groups.index("MM") + 1 if "MM" in groups else 0
    return DateForm(pattern + _TIME, groups.index("YYYY") + 1, month), iso


def refuse_date(date: str | None, form: str | None, values: set[str]) -> None:
    """Refuse a form without month or year, and values that are not dates."""
    if form is not None:
        parts = re.findall("YYYY|MM|DD", form)
        needed = {"YYYY", "MM"} if date == "month" else {"YYYY"}
        mixed = parts == ["YYYY", "DD", "MM"] or len(set(parts)) < len(parts)
        if date is None or not _FORM.fullmatch(form) or needed - set(parts) or mixed:
            raise ValueError(
                f'its form \'{form}\' does not describe a {date or "date"}; needed: with date = "month" or "year", one such as '
                "'DD.MM.YYYY', 'MM/DD/YYYY' or 'YYYYMMDD'"
            )
    if date is None:
        return
    pattern, example = _VALUES[date]
    if wrong := sorted(value for value in values if not re.fullmatch(pattern, plain_text(value))):
        raise ValueError(f"its value '{wrong[0]}' is not a {date}; needed: values such as '{example}'")
