"""Checks and indices of `tabulate`, as SQL over a view `given` joined to a table `places`.

Each expression is null exactly where its twin in `tabulate` refuses a row, so that one pass over the rows counts
them and finds out whether any is at fault; `tabulate` itself then says which.
"""

from __future__ import annotations

from trueup.errors import DataError
from trueup.files.database import Relation, literal, quoted
from trueup.files.text import BLANKS, LARGEST_WHOLE
from trueup.files.whole import MAX_COUNT, MAX_FLOAT
from trueup.io.microdata.tabulate import key_levels
from trueup.model.cells import Cells
from trueup.model.reading import Reading

_WHOLE = ("tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint")
_RATIONAL = ("float", "double", "decimal", "hugeint", "uhugeint")


def join_sql(spec: Reading, cells: Cells, table: Relation) -> str:
    """Join every row to its place, whose keys are the columns `k0`, `k1`, ... of `places`."""
    names = list(cells.tree.keys[-1])
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
    """Return SQL that writes a key, an attribute value or an identifier as `plain_text` does; null if it is missing."""
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
    if kind not in ("varchar", "enum", "null", "decimal"):
        raise DataError(
            f"column '{column}' of {table.name} is of the type {kind.upper()}",
            needed="text or whole numbers for keys and attribute values",
        )
    return f"nullif({_plain_sql(f'CAST({name} AS VARCHAR)')}, '')"


def _plain_sql(text: str) -> str:
    """Return SQL that removes surrounding blanks and a fraction of 0."""
    bare = _bare(text)
    whole = rf"regexp_replace({bare}, '^(-?[0-9]+)\.0+$', '\1')"
    return f"CASE WHEN contains({text}, '.') THEN {whole} ELSE {bare} END"


def _bare(text: str) -> str:
    """Return SQL that removes surrounding blanks, skipping the slow trim if first and last characters are visible."""
    seen = f"{text} >= '!' AND right({text}, 1) > ' ' AND strlen({text}) = length({text})"
    return f"CASE WHEN {seen} THEN {text} ELSE trim({text}, {literal(BLANKS)}) END"


def whole_sql(table: Relation, column: str) -> str:
    """Return SQL that writes a count as a whole number; null if `whole_counts` refuses it."""
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
    """Return DuckDB's type of a column."""
    return table.relation.types[table.columns().index(column)].id
