"""Attribute values read in DuckDB: SQL twins of the functions of `values`."""

from __future__ import annotations

from functools import reduce
from string import ascii_lowercase, ascii_uppercase

from trueup.files.database import Relation, literal, quoted
from trueup.io.microdata.sql import text_sql, type_of
from trueup.io.microdata.values import DATES, NUMBER, compared_values, own_value
from trueup.model.cells import Cells
from trueup.model.reading import Reading
from trueup.model.spec_table import AttributePart, bin_labels


def cell_sql(spec: Reading, cells: Cells, table: Relation) -> str:
    """Return SQL for the position of a row's attribute values within its place, in cell order."""
    positions = [(a.size, position_sql(part, table)) for a, part in zip(cells.attributes, spec.attributes)]
    index = reduce(lambda index, axis: f"({index}) * {axis[0]} + {axis[1]}", positions, "0")
    return f"CAST({index} AS INTEGER)"


def position_sql(part: AttributePart, table: Relation) -> str:
    """Return SQL for the position of a row's value in its domain; null if it is not in it."""
    domain = ", ".join(map(literal, compared_values(part)))
    return f"CAST(enum_code(TRY_CAST({_value_sql(part, table, domain)} AS ENUM({domain}))) AS INTEGER)"


def _value_sql(part: AttributePart, table: Relation, domain: str) -> str:
    text = _given_sql(part, table)
    own, value = folded_sql(text) if part.fold else text, ""
    if part.bins:
        number = f"TRY_CAST(regexp_extract({text}, '^{NUMBER}$') AS BIGINT)"
        labels = reversed(list(zip(part.bins, bin_labels(part.bins))))
        value = (
            f"CASE {' '.join(f'WHEN {number} >= {low} THEN {literal(label)}' for low, label in labels)} END"
        )
    elif part.date:
        value = f"regexp_extract({text}, '^{DATES[part.date]}$', 1)"
    value = f"CASE WHEN {own} IN ({domain}) THEN {own} ELSE {value} END" if value else own
    if part.other is not None:
        other = literal(own_value(part, part.other))
        value = f"CASE WHEN {value} IN ({domain}) THEN {value} WHEN {text} IS NOT NULL THEN {other} END"
    if part.missing is not None:
        value = f"CASE WHEN {text} IS NULL THEN {literal(own_value(part, part.missing))} ELSE {value} END"
    return value


def folded_sql(text: str) -> str:
    """Return SQL that lowers a text's ASCII letters and makes blanks single; see `folded_case`."""
    return f"regexp_replace(translate({text}, '{ascii_uppercase}', '{ascii_lowercase}'), ' +', ' ', 'g')"


def _given_sql(part: AttributePart, table: Relation) -> str:
    """Return SQL for a row's value as text, also from columns of dates if dates are read."""
    column = part.column or part.name
    if part.date and type_of(table, column) in (
        "date",
        "timestamp",
        "timestamp_ns",
        "timestamp_s",
        "timestamp_ms",
    ):
        return f"strftime(CAST(given.{quoted(column)} AS TIMESTAMP), '%Y-%m-%d')"
    return text_sql(table, column)
