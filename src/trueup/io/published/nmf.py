"""Reader of the 2020 Census noisy-measurement files, which are Parquet in folders by level.

    {root}/{product}/{level}.parquet/{DPQuery|Constraint}/State=0SS/part*.parquet

A spec names the levels as the folders do (`US`, `State`, `County`, ...), takes each level's key as a
prefix of the spine code `geocode`, lists attributes in the order of the files' axes, and declares the
files' groupings of an axis (`hhinstlevels` of `hhgq`) as recodes under the files' names.

Of the constraints, rows with sign `=` are read as invariants, rows with `>=` and `<=` (the least and
most persons that group quarters of each type can hold: `hhgq_total_lb_con`, `hhgq_total_ub_con`) as
bounds on their margin. Which margin that is, the name says: the attributes before `_total`. Names
made of anything else than declared attributes (`nurse_nva_0_con`) state structural zeros, which a spec
declares itself; they are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files.database import connect_to_files, parquet, quiet_duckdb
from trueup.io.published.sdhc import PUBLISHED, stated_variance
from trueup.model.build import build_cells
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.spec_queries import Query
from trueup.model.tree import Tree
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.undrawn import Exact

_COLUMNS = {
    "DPQuery": ("geocode", "query_name", "query_shape", "value", "variance"),
    "Constraint": ("geocode", "query_name", "query_shape", "value", "sign"),
}
TOTAL, DETAILED = "total", "detailed"
_ENDINGS = ("_dpq", "_con", "_lb", "_ub", "_total")
_SIGNS = ("=", ">=", "<=")


class Row(NamedTuple):
    """The values of one query or constraint at one place, with its noise variance or sign."""

    geocode: str
    query: str
    shape: tuple[int, ...]
    values: NDArray[np.int64]
    given: str


def read_nmf(spec: Spec, root: str | Path) -> Measurements:
    """Read the measurements of a spec's queries from the Census Bureau's noisy-measurement files.

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
        length, a variance is not positive, or a sign is unknown.

    Examples
    --------
    >>> import tempfile
    >>> from trueup.demo import AREAS
    >>> read_nmf(AREAS, tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    trueup.errors.DataError: ...
    """
    root = Path(root)
    last = spec.levels[-1].name
    codes = np.unique([row.geocode for row in _level_rows(root, last, "DPQuery")])
    cells = build_cells(spec, _tree(spec, codes))
    headers, values = [], []
    for query in spec.queries:
        for level in query.budgets:
            for header, part in _measured(spec, cells, query, level, _level_rows(root, level, "DPQuery")):
                headers.append(header)
                values.append(part)
    bounds: list[Bound] = []
    for level in spec.levels:
        for margin, sign, groups, part in _constraints(spec, cells, level.name, root):
            if sign == "=":
                headers.append(Measured("invariant", margin, Exact(), groups))
                values.append(part)
            else:
                bounds.append(_margin_bound(cells, margin, sign, groups, part))
    return Measurements(cells, tuple(headers), tuple(values), PUBLISHED, bounds=tuple(bounds), spec=spec)


def _level_rows(root: Path, level: str, kind: str) -> list[Row]:
    """Return the rows of all queries, or of all constraints, at one level."""
    parts = {f"{level}.parquet", kind}
    files = sorted(str(p) for p in root.rglob("*.parquet") if p.is_file() and parts <= {*p.parts})
    if not files:
        if kind == "Constraint":
            return []
        raise DataError(
            f"'{root}' has no files for level '{level}'",
            needed=f"files with paths of the form {level}.parquet/{kind}/.../*.parquet",
        )
    with connect_to_files(files) as connection, quiet_duckdb(f"a file of level '{level}'"):
        relation = connection.sql(f"FROM {parquet(files, 'hive_partitioning = false, union_by_name = true')}")
        if missing := [name for name in _COLUMNS[kind] if name not in relation.columns]:
            raise DataError(
                f"the files of level '{level}' do not have the column '{missing[0]}'",
                remedy="give the folder of noisy-measurement files as they were published",
            )
        if len(relation) > sum(Path(file).stat().st_size for file in files):
            raise DataError(
                f"the files of level '{level}' have more rows than bytes",
                needed="files as they were published",
                remedy="download them again",
            )
        kinds = ("VARCHAR", "VARCHAR", "INTEGER[]", "BIGINT[]", "VARCHAR")
        read = (f"TRY_CAST({name} AS {kind})" for name, kind in zip(_COLUMNS[kind], kinds))
        rows = relation.select(", ".join(read)).fetchall()
    if any(None in row[:4] or None in row[2] or None in row[3] for row in rows):
        raise DataError(
            f"the files of level '{level}' have a row that lacks a value, or has one of another type",
            needed=f"a value of {', '.join(_COLUMNS[kind])} in every row; shapes and values are lists of whole numbers",
        )
    return [Row(g, q, tuple(s), np.array(v, np.int64), str(x)) for g, q, s, v, x in rows]


def _tree(spec: Spec, codes: NDArray) -> Tree:
    """Return the tree of places, with a prefix of the spine code as the key at each level."""
    columns: list[dict[str, NDArray]] = [{}]
    for level in spec.levels[1:]:
        key = codes if level.prefix is None else codes.astype(f"U{level.prefix}")
        columns.append({level.name: key})
    whole = [False] + [True] * (len(columns) - 1)
    return Tree.from_columns([level.name for level in spec.levels], columns, whole_code=whole)


def _measured(
    spec: Spec, cells: Cells, query: Query, level: str, rows: Iterable[Row]
) -> list[tuple[Measured, NDArray[np.int64]]]:
    """Return the description and values of a query at one level, separately for each noise variance."""
    margin = Margin(level, query.attributes)
    mine = [row for row in rows if _attributes(spec, row.query) == set(query.attributes)]
    _refuse_other_sizes(cells, margin, mine)
    place = _place_of(cells, level, mine)
    if sorted(row.geocode for row in mine) != sorted(place) or not mine:
        raise DataError(
            f"query '{query.name}' does not have one row for each place of level '{level}'",
            needed="one row for each place",
            remedy="give all files of the level, each once",
        )
    result = []
    for variance in sorted({row.given for row in mine}):
        groups, part = _join([row for row in mine if row.given == variance], place)
        law = DiscreteGaussian(stated_variance(variance, f"query '{query.name}' has the variance"))
        result.append((Measured(query.name, margin, law, groups), part))
    return result


def _refuse_other_sizes(cells: Cells, margin: Margin, rows: Iterable[Row]) -> None:
    """Refuse a row in which the number of values differs from the number of groups at a place."""
    each = cells.size(margin) // cells.tree.sizes[cells.tree.level(margin.level)]
    if wrong := [row for row in rows if len(row.values) != each or int(np.prod(row.shape)) != each]:
        raise DataError(
            f"query '{wrong[0].query}' of '{wrong[0].geocode}' has {len(wrong[0].values)} values",
            needed=f"{each} values",
        )


def _join(rows: Iterable[Row], place: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the groups and values in the rows of one margin, in the order of places."""
    ordered = sorted(rows, key=lambda row: place[row.geocode])
    groups = [place[row.geocode] * len(row.values) + np.arange(len(row.values)) for row in ordered]
    return np.concatenate(groups), np.concatenate([row.values for row in ordered])


def _attributes(spec: Spec, name: str) -> set[str]:
    """Return the attributes in the name of a query or constraint."""
    bare = name
    for ending in _ENDINGS:
        bare = bare.removesuffix(ending).strip()
    if bare == DETAILED:
        return {a.name for a in spec.attributes}
    return set() if bare == TOTAL else {factor.strip() for factor in bare.split("*")}


def _place_of(cells: Cells, level: str, rows: Iterable[Row]) -> dict[str, int]:
    """Return the position of each spine code within its level."""
    tree, at = cells.tree, cells.tree.level(level)
    if at == 0:
        return {row.geocode: 0 for row in rows}
    [column] = tree.keys[at].values()
    return {str(code): place for place, code in enumerate(column)}


def _constraints(
    spec: Spec, cells: Cells, level: str, root: Path
) -> list[tuple[Margin, str, NDArray[np.int64], NDArray[np.int64]]]:
    """Return the margin, sign, groups and values of every constraint at a level."""
    rows = _level_rows(root, level, "Constraint")
    if strange := [row for row in rows if row.given not in _SIGNS]:
        raise DataError(
            f"constraint '{strange[0].query}' of '{strange[0].geocode}' has the sign '{strange[0].given}'",
            needed=f"one of: {', '.join(_SIGNS)}",
        )
    place = _place_of(cells, level, rows)
    if stray := [row for row in rows if row.geocode not in place]:
        raise DataError(
            f"constraint '{stray[0].query}' is about the place '{stray[0].geocode}', for which no query is given",
            needed="constraints on places that have queries",
        )
    views = [name for attribute in spec.attributes for name in attribute.views]
    found = []
    for query, sign in dict.fromkeys((row.query, row.given) for row in rows):
        if not (named := _attributes(spec, query)) <= set(views):
            continue
        margin = canonical(cells, Margin(level, tuple(name for name in views if name in named)))
        mine = [row for row in rows if (row.query, row.given) == (query, sign)]
        _refuse_other_sizes(cells, margin, mine)
        found.append((margin, sign, *_join(mine, place)))
    return found


def _margin_bound(
    cells: Cells, margin: Margin, sign: str, groups: NDArray[np.int64], values: NDArray[np.int64]
) -> Bound:
    """Return a bound on every group of a margin; it is infinite for groups without a constraint."""
    limits = np.full(cells.size(margin), -np.inf if sign == ">=" else np.inf)
    limits[groups] = values
    listed = tuple(limits.tolist())
    return Bound(margin, lower=listed) if sign == ">=" else Bound(margin, upper=listed)
