"""The 2020 Census noisy-measurement files: Parquet in hive folders, one row per query and place.

    {root}/{product}/{level}.parquet/{DPQuery|Constraint}/State=0SS/part*.parquet

A spec names the levels as the folders do (`US`, `State`, `County`, ...), takes each level's key as a
prefix of the spine code `geocode`, lists attributes in the order of the files' axes, and declares the
files' groupings of an axis (`hhinstlevels` of `hhgq`) as recodes under the files' names. Of the
constraints, exact totals (`total_con`, sign `=`) are read as invariants; bounds on group quarters
are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.io.sdhc import PUBLISHED
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.measurements import Measured, Measurements
from trueup.model.spec import Query, Spec
from trueup.model.tree import Tree
from trueup.noise.discrete_gaussian import DiscreteGaussian
from trueup.noise.exact import Exact
from trueup.noise.law import Law

_COLUMNS = ("geocode", "query_name", "query_shape", "value", "variance")
TOTAL, DETAILED = "total", "detailed"


class Row(NamedTuple):
    """One query at one place."""

    geocode: str
    query: str
    shape: tuple[int, ...]
    values: NDArray[np.int64]
    variance: str


def read_nmf(spec: Spec, root: str | Path) -> Measurements:
    """Read the queries of a spec from published files.

    Parameters
    ----------
    spec
        Its queries are found by their attributes (the order of factors in a query's name is not
        stable), at the levels they name; its budgets do not matter.
    root
        A folder that holds the levels' folders, at any depth.

    Raises
    ------
    DataError
        If a level, a query of some place or a column is missing, a value list has the wrong
        length, or a variance is not positive.

    Examples
    --------
    See `write_nmf`.
    """
    root = Path(root)
    last = spec.levels[-1].name
    codes = np.unique([row.geocode for row in _rows(root, last, "DPQuery")])
    cells = build_cells(spec, _tree(spec, codes))
    headers, values = [], []
    for query in spec.queries:
        for level in query.budgets:
            for header, part in _measured(spec, cells, query, level, _rows(root, level, "DPQuery")):
                headers.append(header)
                values.append(part)
    for level in spec.levels:
        for header, part in _invariants(cells, level.name, _rows(root, level.name, "Constraint")):
            headers.append(header)
            values.append(part)
    return Measurements(cells, tuple(headers), tuple(values), PUBLISHED)


def _rows(root: Path, level: str, kind: str) -> list[Row]:
    """All rows of a level; none where constraints are absent."""
    import duckdb

    files = sorted(str(p) for p in root.rglob("*.parquet") if p.is_file() and _belongs(p, level, kind))
    if not files:
        if kind == "Constraint":
            return []
        raise DataError(
            f"'{root}' has no files for level '{level}'", needed=f"{level}.parquet/{kind}/.../*.parquet"
        )
    with duckdb.connect(":memory:") as connection:
        relation = connection.read_parquet(files, union_by_name=True)
        if missing := [name for name in _COLUMNS if name not in relation.columns]:
            raise DataError(f"the files of level '{level}' lack the column '{missing[0]}'")
        rows = relation.select(", ".join(_COLUMNS)).fetchall()
    return [Row(str(g), str(q), tuple(s), np.array(v, np.int64), str(x)) for g, q, s, v, x in rows]


def _belongs(path: Path, level: str, kind: str) -> bool:
    return f"{level}.parquet" in path.parts and kind in path.parts


def _tree(spec: Spec, codes: NDArray) -> Tree:
    """Every level's key is a prefix of the spine code; the last level's is the whole code."""
    columns: list[dict[str, NDArray]] = [{}]
    for level in spec.levels[1:]:
        key = codes if level.prefix is None else codes.astype(f"U{level.prefix}")
        columns.append({level.name: key})
    whole = [False] + [True] * (len(columns) - 1)
    return Tree.from_columns([level.name for level in spec.levels], columns, whole_code=whole)


def _measured(
    spec: Spec, cells: Cells, query: Query, level: str, rows: Iterable[Row]
) -> list[tuple[Measured, NDArray[np.int64]]]:
    """Headers of one query at one level, one per variance."""
    margin = Margin(level, query.attributes)
    mine = [row for row in rows if _attributes(spec, row.query) == set(query.attributes)]
    each = cells.size(margin) // cells.tree.sizes[cells.tree.level(level)]
    if wrong := [row for row in mine if len(row.values) != each or int(np.prod(row.shape)) != each]:
        raise DataError(
            f"query '{wrong[0].query}' of '{wrong[0].geocode}' has {len(wrong[0].values)} values",
            needed=f"{each} values",
        )
    place = _place_of(cells, level, mine)
    if sorted(row.geocode for row in mine) != sorted(place) or not mine:
        raise DataError(f"query '{query.name}' is not listed once for every place of level '{level}'")
    result = []
    for variance in sorted({row.variance for row in mine}):
        chosen = sorted((row for row in mine if row.variance == variance), key=lambda row: place[row.geocode])
        groups = np.concatenate([place[row.geocode] * each + np.arange(each) for row in chosen])
        header = Measured(query.name, margin, _law(query, variance), groups)
        result.append((header, np.concatenate([row.values for row in chosen])))
    return result


def _attributes(spec: Spec, name: str) -> set[str]:
    """Attributes of a query's name: `hispanic * cenrace_dpq`."""
    bare = name.removesuffix("_dpq").strip()
    if bare == DETAILED:
        return {a.name for a in spec.attributes}
    return set() if bare == TOTAL else {factor.strip() for factor in bare.split("*")}


def _place_of(cells: Cells, level: str, rows: Iterable[Row]) -> dict[str, int]:
    """Position of every spine code within a level; the root is whatever code its rows give it."""
    tree, at = cells.tree, cells.tree.level(level)
    if at == 0:
        return {row.geocode: 0 for row in rows}
    [column] = tree.keys[at].values()
    return {str(code): place for place, code in enumerate(column)}


def _law(query: Query, variance: str) -> Law:
    try:
        value = Fraction(variance)
    except ValueError:
        value = Fraction(0)
    if value <= 0:
        raise DataError(f"query '{query.name}' has the variance '{variance}'", needed="a number above 0")
    return DiscreteGaussian(value)


def _invariants(cells: Cells, level: str, rows: Sequence[Row]) -> list[tuple[Measured, NDArray[np.int64]]]:
    """Exact totals of a level."""
    place = _place_of(cells, level, rows)
    totals = sorted((row for row in rows if row.query == "total_con"), key=lambda row: place[row.geocode])
    if not totals:
        return []
    groups = np.array([place[row.geocode] for row in totals])
    header = Measured("invariant", Margin(level), Exact(), groups)
    return [(header, np.array([int(row.values[0]) for row in totals]))]


def write_nmf(
    root: str | Path, spec: Spec, measurements: Measurements, product: str = "US_Person_PL_PROD"
) -> None:
    """Write measurements in the published layout, places partitioned by the first three characters.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 1
    ... title = "Two counties"
    ... table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
    ... privacy = { unit = "person", neighbours = "replace" }
    ... level = [{ name = "US" }, { name = "State", column = "geocode", prefix = 3 }, { name = "County", column = "geocode" }]
    ... attribute = [{ name = "sex", values = ["f", "m"] }]
    ... query = [{ name = "by sex", attributes = ["sex"], levels = ["State", "County"], rho = 1 }]
    ... ''')
    >>> cells = build_cells(spec, _tree(spec, np.array(["044001", "044003"])))
    >>> law = DiscreteGaussian("9/4")
    >>> headers = (Measured("by sex", Margin("State", ("sex",)), law), Measured("by sex", Margin("County", ("sex",)), law))
    >>> noisy = Measurements(cells, headers, (np.array([7, -1]), np.array([4, 0, 3, 1])), PUBLISHED)
    >>> root = tempfile.mkdtemp()
    >>> write_nmf(root, spec, noisy)
    >>> [v.tolist() for v in read_nmf(spec, root).values]
    [[7, -1], [4, 0, 3, 1]]
    """
    tables: dict[tuple[str, str, str], list[tuple]] = {}
    cells = measurements.cells
    for header, values in zip(measurements.headers, measurements.values):
        level = cells.tree.level(header.margin.level)
        places = cells.tree.sizes[level]
        each = cells.size(header.margin) // places
        groups = np.arange(cells.size(header.margin)) if header.groups is None else header.groups
        kind = "Constraint" if header.exact else "DPQuery"
        for k in range(0, len(groups), each):
            code = _code(cells, level, int(groups[k]) // each)
            row = (
                code,
                *_query_columns(cells, header),
                values[k : k + each].tolist(),
                float(header.law.variance),
            )
            tables.setdefault((header.margin.level, kind, code[:3]), []).append(row)
    for (level, kind, state), rows in tables.items():
        folder = Path(root) / product / f"{level}.parquet" / kind / f"State={state}"
        folder.mkdir(parents=True, exist_ok=True)
        _write_part(folder / "part-0.parquet", rows)


def _code(cells: Cells, level: int, place: int) -> str:
    if level == 0:
        return "0"
    [column] = cells.tree.keys[level].values()
    return str(column[place])


def _query_columns(cells: Cells, header: Measured) -> tuple[str, list[int]]:
    name = " * ".join(r.name for r in cells.kept(header.margin)) or TOTAL
    shape = [r.size for r in cells.recodes(header.margin.attributes)] or [1]
    return f"{name}_con" if header.exact else f"{name}_dpq", shape


def _write_part(path: Path, rows: Sequence[tuple]) -> None:
    import duckdb

    with duckdb.connect(":memory:") as connection:
        connection.execute(
            "CREATE TABLE part (geocode VARCHAR, query_name VARCHAR, query_shape INTEGER[], value BIGINT[], "
            "variance DOUBLE)"
        )
        connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?)", list(rows))
        connection.table("part").write_parquet(str(path))
