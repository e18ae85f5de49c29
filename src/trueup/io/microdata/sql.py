"""Rules for reading attribute values as a spec declares, and the checks of `tabulate` as SQL.

What is no number beside `bins`, and no date beside `date`, has none, `other` or not: it is an error of the table.
Each is a function of one row's value, so that a record is counted in one cell as before, and sensitivities stay what they are.
Every function is written twice, here and as SQL in `values_sql`; a test holds the two against each other.

**SQL** over a view `given` joined to a table `places`. Each expression is null exactly where its twin in `tabulate`
refuses a row, so that one pass over the rows counts them and finds out whether any is at fault; `tabulate` itself
then says which.
"""

from __future__ import annotations

import re
from functools import reduce
from string import ascii_lowercase, ascii_uppercase

from trueup.errors import DataError
from trueup.files.database import Relation, literal, quoted
from trueup.files.values import BLANKS, LARGEST_WHOLE, MAX_COUNT, MAX_FLOAT, folded_case, plain_text
from trueup.io.microdata.row_places import key_levels, plain_keys
from trueup.model.cells import Cells
from trueup.model.names import forms_of
from trueup.model.reading import Reading
from trueup.model.spec_table import AttributePart, bin_labels

NUMBER = "-?[0-9]{1,18}"
"""Pattern of a whole number that is put into bins."""


def compared_values(part: AttributePart) -> list[str]:
    """Return the values of an attribute as plain texts, with which the texts of rows are compared."""
    plain = list(map(plain_text, part.values))
    return [folded_case(value) for value in plain] if part.fold else plain


def value_read(part: AttributePart, text: str) -> str:
    """Return the attribute value that a row's text stands for, or a text outside the domain if there is none.

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
    """Return a value such as `other` or `missing` in the form in which values are compared."""
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


_WHOLE = ("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint")
_RATIONAL = ("float", "double", "decimal", "hugeint", "uhugeint")
_DATES = ("date", "timestamp", "timestamp_ns", "timestamp_s", "timestamp_ms")


def join_sql(spec: Reading, cells: Cells, table: Relation) -> str:
    """Return SQL that joins every row to its place in the SQL table `places`."""
    names = list(plain_keys(spec, cells))
    if not names:
        return "given CROSS JOIN places"
    keys = [_key(spec, name, table) for name in names]
    same = " AND ".join(f"places.k{i} = {key}" for i, key in enumerate(keys))
    return f"given LEFT JOIN places ON {same}"


def _key(spec: Reading, name: str, table: Relation) -> str:
    if spec.parents is not None:
        return text_sql(table, spec.parents.id)
    level = key_levels(spec, [name])[name]
    assert level.column is not None
    text = text_sql(table, level.column)
    return text if level.prefix is None else f"left({text}, {level.prefix})"


def text_sql(table: Relation, column: str) -> str:
    """Return SQL that writes a key or value as `plain_text` does, or null if it is missing."""
    name, kind = f"given.{quoted(column)}", type_of(table, column)
    if kind == "boolean":
        return f"CASE WHEN {name} THEN 'True' WHEN NOT {name} THEN 'False' END"
    if kind in _WHOLE:
        return f"CAST({name} AS VARCHAR)"
    if kind in ("float", "double"):
        whole = f"{name} = floor({name}) AND abs({name}) < {LARGEST_WHOLE:.0f}"
        text = (
            f"CASE WHEN {whole} THEN CAST(CAST({name} AS BIGINT) AS VARCHAR) ELSE CAST({name} AS VARCHAR) END"
        )
        return f"CASE WHEN NOT isnan({name}) THEN {text} END"
    if kind in _DATES:
        at = f"CAST({name} AS TIMESTAMP)"
        day, second = (f"strftime({at}, '{form}')" for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S"))
        return f"CASE WHEN {at} = date_trunc('day', {at}) THEN {day} ELSE {second} END"
    if kind not in ("varchar", "enum", "null", "decimal"):
        raise DataError(
            f"column '{column}' of {table.name} is of the type {kind.upper()}",
            needed="text, whole numbers or dates for keys and values of attributes",
        )
    return f"nullif({_plain_sql(f'CAST({name} AS VARCHAR)')}, '')"


def _plain_sql(text: str) -> str:
    """Return SQL that removes surrounding blanks and an ending such as `.0` from a text."""
    bare = _bare(text)
    whole = rf"regexp_replace({bare}, '^(-?[0-9]+)\.0+$', '\1')"
    return f"CASE WHEN contains({text}, '.') THEN {whole} ELSE {bare} END"


def _bare(text: str) -> str:
    """Return SQL that removes surrounding blanks from a text."""
    seen = f"{text} >= '!' AND right({text}, 1) > ' ' AND strlen({text}) = length({text})"
    return f"CASE WHEN {seen} THEN {text} ELSE trim({text}, {literal(BLANKS)}) END"


def whole_sql(table: Relation, column: str) -> str:
    """Return SQL that reads a count as a whole number, or null if `whole_counts` would refuse it."""
    name, kind = f"given.{quoted(column)}", type_of(table, column)
    if kind == "varchar":
        digits = rf"regexp_extract({_bare(name)}, '^(-?[0-9]{{1,24}})(\.0+)?$', 1)"
        return _in_range_sql(f"TRY_CAST({digits} AS HUGEINT)", MAX_COUNT)
    if kind in _WHOLE:
        return _in_range_sql(name, MAX_COUNT)
    if kind in _RATIONAL:
        value = f"CAST({name} AS DOUBLE)"
        return _in_range_sql(f"CASE WHEN {value} = floor({value}) THEN {value} END", MAX_FLOAT)
    return "CAST(NULL AS BIGINT)"


def _in_range_sql(value: str, most: int) -> str:
    return f"CASE WHEN {value} BETWEEN 0 AND {most} THEN CAST({value} AS BIGINT) END"


def type_of(table: Relation, column: str) -> str:
    """Return the name of DuckDB's type for a column."""
    return table.relation.types[table.columns().index(column)].id


def cell_sql(spec: Reading, cells: Cells, table: Relation) -> str:
    """Return SQL for the cell of a row, as a position among the cells of its place."""
    positions = [(a.size, position_sql(part, table)) for a, part in zip(cells.attributes, spec.attributes)]
    index = reduce(lambda index, axis: f"({index}) * {axis[0]} + {axis[1]}", positions, "0")
    return f"CAST({index} AS INTEGER)"


def position_sql(part: AttributePart, table: Relation) -> str:
    """Return SQL for the position of a row's value in an attribute's domain, or null if it is outside."""
    domain = ", ".join(map(literal, compared_values(part)))
    return f"CAST(enum_code(TRY_CAST({_value_sql(part, table, domain)} AS ENUM({domain}))) AS INTEGER)"


def _value_sql(part: AttributePart, table: Relation, domain: str) -> str:
    text = _given_sql(part, table)
    own, value = folded_sql(text) if part.fold else text, ""
    if part.bins:
        number = f"TRY_CAST(regexp_extract({text}, '^{NUMBER}$') AS BIGINT)"
        labels = reversed(list(zip(part.bins, bin_labels(part.bins))))
        ranges = " ".join(f"WHEN {number} >= {low} THEN {literal(label)}" for low, label in labels)
        value = f"CASE {ranges} ELSE CAST({number} AS VARCHAR) END"
    elif part.date:
        value = _date_sql(part.date, part.form, text)
    value = f"CASE WHEN {own} IN ({domain}) THEN {own} ELSE {value} END" if value else own
    if part.other is not None:
        other = literal(own_value(part, part.other))
        value = f"CASE WHEN {value} IN ({domain}) THEN {value} WHEN {value} IS NOT NULL THEN {other} END"
    if part.missing is not None:
        value = f"CASE WHEN {text} IS NULL THEN {literal(own_value(part, part.missing))} ELSE {value} END"
    return value


def _date_sql(date: str, form: str | None, text: str) -> str:
    """Return SQL for the month or year of a text that is a date, or null for any other text."""
    cases = []
    for each in forms_of(date, form):
        pattern = literal(f"^{each.pattern}$")
        value = f"regexp_extract({text}, {pattern}, {each.year})"
        if date == "month":
            value = f"concat({value}, '-', lpad(regexp_extract({text}, {pattern}, {each.month}), 2, '0'))"
        cases.append(f"WHEN regexp_matches({text}, {pattern}) THEN {value}")
    return f"CASE {' '.join(cases)} END"


def folded_sql(text: str) -> str:
    """Return SQL that lowers the ASCII letters of a text and replaces each run of blanks by one blank."""
    return f"regexp_replace(translate({text}, '{ascii_uppercase}', '{ascii_lowercase}'), ' +', ' ', 'g')"


def _given_sql(part: AttributePart, table: Relation) -> str:
    """Return SQL for a row's value as text, in which dates are written in ISO 8601."""
    column = part.column or part.name
    if part.date and type_of(table, column) in _DATES:
        return f"strftime(CAST(given.{quoted(column)} AS TIMESTAMP), '%Y-%m-%d')"
    return text_sql(table, column)
