"""Attribute values of a table, read as the spec declares: bins of numbers, months of dates, unlisted values.

What is no number beside `bins`, and no date beside `date`, has none, `other` or not: it is an error of the table.
Each is a function of one row's value, so that a record is counted in one cell as before, and sensitivities stay what they are.
Every function is written twice, here and as SQL in `values_sql`; a test holds the two against each other.
"""

from __future__ import annotations

import re

from trueup.files.values import folded_case, plain_text
from trueup.model.date_forms import forms_of
from trueup.model.spec_table import AttributePart, bin_labels

NUMBER = "-?[0-9]{1,18}"
"""A whole number that is put into bins."""


def compared_values(part: AttributePart) -> list[str]:
    """Return the values of an attribute in the form in which rows are compared with them."""
    plain = list(map(plain_text, part.values))
    return [folded_case(value) for value in plain] if part.fold else plain


def value_read(part: AttributePart, text: str) -> str:
    """Return the value of the domain that a row's plain text stands for; a text outside the domain if none.

    A value of the domain stands for itself, so that tables that are made up are read as well.

    Examples
    --------
    >>> age = AttributePart(name="age", bins=(0, 15, 65), missing="unknown")
    >>> age.values, [value_read(age, text) for text in ("14", "70", "", "-3")]
    (('0-14', '15-64', '65 and more', 'unknown'), ['0-14', '65 and more', 'unknown', '-3'])
    >>> month = AttributePart(name="month", values=("2026-01", "2026-02"), date="month", other="other")
    >>> [value_read(month, text) for text in ("2026-02-28", "2025-12-31", "28.02.2026")]
    ['2026-02', 'other', '']
    """
    if not text:
        return own_value(part, part.missing) if part.missing else ""
    own = compared_values(part)
    value = folded_case(text) if part.fold else text
    if value not in own and part.bins:
        value = _binned(part.bins, text)
    elif value not in own and part.date:
        value = _dated(part.date, part.form, text)
    if part.other is not None and value and value not in own:
        return own_value(part, part.other)
    return value


def own_value(part: AttributePart, value: str) -> str:
    """Return one of the part's own values in the form of its domain."""
    return folded_case(plain_text(value)) if part.fold else plain_text(value)


def _binned(bins: tuple[int, ...], text: str) -> str:
    if not re.fullmatch(NUMBER, text):
        return ""
    if int(text) < bins[0]:
        return text
    return bin_labels(bins)[sum(int(text) >= low for low in bins) - 1]


def _dated(date: str, form: str | None, text: str) -> str:
    for each in forms_of(date, form):
        if found := re.fullmatch(each.pattern, text):
            year = found[each.year]
            return year if date == "year" else f"{year}-{found[each.month]:0>2}"
    return ""
