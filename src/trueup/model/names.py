"""Names that a spec declares and refers to, and forms of dates, as regular expressions for Python and DuckDB.

Column names reserved for figures in tables stand beside keys of places, readable names and attributes.
One list for all who write tables: a key or an attribute of the same name would be overwritten in some of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from trueup.errors import did_you_mean
from trueup.files.values import plain_text

COUNTED_UNIT = "counted"
"""The recode that tells persons from households, where two tables are joined."""
ISO_DATE = "2026-03-14"
"""The date by which messages show the form that needs no statement."""
PERIOD = "period"
"""The attribute by which counts of several periods are told apart."""


def refuse_alike(what: str, names: list[str]) -> None:
    """Refuse names that differ in case or punctuation alone, because they become names of files and columns."""
    alike = list(map(bare_name, names))
    for i, name in enumerate(names):
        if (first := alike.index(alike[i])) < i:
            raise ValueError(
                f"{what} '{names[first]}' and '{name}' differ only in case or punctuation: rename one of them"
            )
        if inside := next((other for other in names if other.startswith(f"{name}.")), None):
            raise ValueError(
                f"{what} '{inside}' consists of the name of {what} '{name}', a dot and more: rename one of them"
            )


def refuse_repeats(what: str, names: list[str]) -> None:
    """Refuse a name that is declared twice."""
    if twice := repeated(names):
        raise ValueError(f"{what} '{twice[0]}' is declared twice: leave one out, or rename it")


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in order.

    Examples
    --------
    >>> repeated(["a", "b", "a"])
    ['a']
    """
    return [name for name, times in Counter(names).items() if times > 1]


def refuse_unknown_name(name: str, names: list[str], what: str, where: str) -> None:
    """Refuse a name that is not declared, and suggest the nearest that is."""
    if name not in names:
        hint = did_you_mean(name, names) or f"declared: {', '.join(names) or 'none'}"
        raise ValueError(f"{where} names the unknown {what} '{name}'; {hint}")


def refuse_taken_columns(levels: Sequence[Any], attributes: Sequence[Any], keys: Iterable[str]) -> None:
    """Refuse levels, keys and attributes that would become the same column, or a column of figures.

    Parameters
    ----------
    levels, attributes
        The declared levels and attributes; a level's readable names are the column `LEVEL name`.
    keys
        The columns of keys.
    """
    views = [view for attribute in attributes for view in attribute.views]
    names = [f"{level.name} name" for level in levels if level.label]
    columns = list(keys)
    refuse_repeats("published column", [name.casefold() for name in (*columns, *names, *views)])
    others = {name.casefold() for name in views}
    if both := [level.name for level in levels if level.name.casefold() in others]:
        raise ValueError(f"'{both[0]}' names both a level and an attribute: give one of them another name")
    remedies = {
        "attribute": 'name it otherwise, and say where it stands: column = "..."',
        "level": "name it otherwise",
        "column": "rename it in the files and in the spec",
    }
    every = [("attribute", view) for view in views] + [("level", level.name) for level in levels]
    for what, name in (*every, *(("column", name) for name in columns)):
        if is_figure(name):
            raise ValueError(
                f"{what} '{name}' has the name of a column of figures in the tables: {remedies[what]}"
            )


MEASURED = ("noisy", "exact", "margin of error")
RELEASED = ("released", "noisy", "margin of error")
COUNTED = ("count", "standard_error")
"""In the tables of a bundle."""
DESCRIBED = ("label", "mean", "sd", "median", "low", "high", "mass", "mcse", "ess", "r_hat")
"""Of a posterior."""
DRAW_COLUMNS = ("chain", "draw", "count")
ASSESSED = ("method", "budget", "statistic", "about", "value", "mc_error")
FIGURES = frozenset({*MEASURED, *RELEASED, *COUNTED, *DESCRIBED, *DRAW_COLUMNS, *ASSESSED})


def is_figure(name: str) -> bool:
    """Return True if a name equals that of a column of figures, apart from case and punctuation.

    Examples
    --------
    >>> is_figure("Margin_of_error"), is_figure("margin")
    (True, False)
    """
    return bare_name(name) in _TAKEN


def bare_name(name: str) -> str:
    """Return a name in lower case with other characters than letters and digits replaced by `_`."""
    return re.sub(r"\W", "_", name).casefold()


_TAKEN = frozenset(map(bare_name, FIGURES))


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
