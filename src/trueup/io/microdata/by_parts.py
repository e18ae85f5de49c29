"""Confidential counts of a whole country, computed by DuckDB in bounded memory and stored by part.

Rows are counted once, in one query that spills to disk what does not fit in memory. Only cells that hold
somebody are ever written: the zero cells of the declared domain appear where noise needs them, part by part.

One file: the tabulation in DuckDB, and the counts of occupied cells that it stores.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError
from trueup.files import Source, require, select
from trueup.files.csv_files import in_utf8
from trueup.files.database import ROW, Relation, connect, literal, parquet, quiet_duckdb, quoted
from trueup.files.memory import parse_memory
from trueup.files.source import files_read, open_table
from trueup.files.values import MAX_COUNT, whole_counts
from trueup.files.writing import staged
from trueup.io.microdata.row_places import (
    IDS,
    plain_keys,
    refuse_missing,
    refuse_rows,
    refuse_twins,
    require_columns,
)
from trueup.io.microdata.sql import cell_sql, join_sql, text_sql, whole_sql
from trueup.io.microdata.tabulate import cell_index, cells_named, read_counts, refuse_overflow, row_columns
from trueup.io.microdata.truncate import Limit, kept_sql, named_unit, refuse_unlimited, units_held
from trueup.model.cells import Cells
from trueup.model.reading import Reading
from trueup.model.spec import Spec


class Occupied(NamedTuple):
    """The cells of some places that have a count above zero, sorted by place and cell.

    Attributes
    ----------
    place
        Position of the place within the last level.
    cell
        Position of the attribute values within the place, in cell order.
    count
        Number of units, always above zero.
    """

    place: NDArray[np.int64]
    cell: NDArray[np.int32]
    count: NDArray[np.int64]


@dataclass(frozen=True)
class SparseCounts:
    """Confidential counts above zero, in one Parquet file for each part of the country.

    Attributes
    ----------
    folder
        Holds `part-000000.parquet` and so on, with the columns of `Occupied`.
    parts
        Number of parts; a part without units has a file without rows.
    """

    folder: Path
    parts: int

    def part(self, number: int) -> Path:
        """Return the path of the file with the counts of a part."""
        return self.folder / f"part-{number:06d}.parquet"

    def read(self, part: int, connection: Any = None) -> Occupied:
        """Read the nonzero counts of one part from its file.

        Raises
        ------
        DataError
            If the part is missing, truncated or damaged.
        """
        if not self.part(part).is_file():
            raise DataError(
                f"the file of part {part} is missing in '{self.folder}'",
                remedy="run the command again, so that the data are tabulated anew",
            )
        rows = select(open_table(self.part(part), connection), Occupied._fields)
        return Occupied(**{name: np.asarray(rows[name]) for name in Occupied._fields})


MEMORY_LIMIT = "4GB"
"""Default of the memory that DuckDB may use."""


def tabulate_by_parts(
    spec: Spec | Reading,
    cells: Cells,
    source: Any,
    out: Path,
    part_of_place: NDArray[np.integer],
    *,
    memory: str = MEMORY_LIMIT,
    threads: int | None = None,
    rows: str | None = None,
    limit: Limit | None = None,
    expected: int | None = None,
) -> SparseCounts:
    """Count the rows of a table of any size by cell, and write one file of nonzero counts for each part.

    Equal to `read_counts` in what it counts and in what it refuses, but what is held in memory is
    bounded: no dense table of all cells exists. Where the source is in memory already (a dataframe), or
    lists every cell itself (a wide table), it is read as there.

    Parameters
    ----------
    spec, cells
        The spec of the counts, and the public places crossed with the attributes.
    source
        A CSV or Parquet file, a folder or pattern of Parquet files, a DuckDB relation (copied first,
        the columns that matter alone, since its own connection sets its memory), or a dataframe.
    out
        A new folder, on a disk with room for spilled rows. It appears whole or not at all, and nobody
        but its owner can read it or what is spilled.
    part_of_place
        `(places,)`: the part of every place of the last level, from 0.
    memory, threads
        Limits for DuckDB, such as `"4GB"`; by default as many threads as there are processors.
    rows
        The column with the number of equal rows, if equal records were counted elsewhere.
    limit
        The limit on records of each unit, needed if the spec names a column of units.
    expected
        Number of rows that the source must hold, if it is known.

    Raises
    ------
    DataError
        In the same cases as `read_counts`. No message holds a count.
    TrueupError
        If memory and disk do not suffice.
    BundleError
        If the folder is occupied, or the disk refuses.
    SpecError
        If the memory is no size.

    Examples
    --------
    >>> import pandas, tempfile
    >>> from trueup.model.problem import public_cells
    >>> from trueup.model.spec import parse_spec
    >>> spec = parse_spec('''
    ... format = 2
    ... title = "People"
    ... table = { name = "demo", kind = "records", counts = "person" }
    ... privacy = { unit = "person", neighbours = "add-remove" }
    ... level = [{ name = "all" }, { name = "area", column = "area" }]
    ... query = [{ name = "total", epsilon = { area = "1/2" } }]
    ... ''')
    >>> cells = public_cells(spec, geography=pandas.DataFrame({"area": ["a", "b", "c"]}))
    >>> people = pandas.DataFrame({"area": ["c", "a", "c"]})
    >>> out = Path(tempfile.mkdtemp()) / "counts"
    >>> tabulate_by_parts(spec, cells, people, out, np.array([0, 0, 1])).read(1)
    Occupied(place=array([2]), cell=array([0], dtype=int32), count=array([2]))
    """
    spec = Reading.of(spec)
    refuse_unlimited(spec, limit)
    with staged(out, mode=0o700) as folder:
        spill, counts = folder / "spilled", SparseCounts(folder, int(part_of_place.max()) + 1)
        spill.mkdir()
        settings = {
            "memory_limit": f"{parse_memory(memory)}B",
            "temp_directory": str(spill),
            "threads": threads,
        }
        settings = {name: value for name, value in settings.items() if value}
        with connect(files=files_read(source), folders=[folder], **settings) as connection:
            _Tabulation(spec, cells, connection, spill, rows, limit, expected).run(
                in_utf8(source, spill), part_of_place, counts
            )
        shutil.rmtree(spill)
    return SparseCounts(out, counts.parts)


@dataclass(frozen=True)
class _Tabulation:
    """The state of one tabulation: a DuckDB connection, and a folder for intermediate files."""

    spec: Reading
    cells: Cells
    connection: Any
    spill: Path
    rows: str | None
    limit: Limit | None
    expected: int | None

    def run(self, source: Any, part_of_place: NDArray[np.integer], counts: SparseCounts) -> None:
        """Count and check every row of the source table, then write the counts of one part after another."""
        table = open_table(source, self.connection)
        with quiet_duckdb(table.name, getattr(table, "files", ())):
            self._register_places(part_of_place)
            if isinstance(table, Relation) and not self.spec.table.cells:
                self._count_rows(table if isinstance(source, str | Path) else self._copied(table))
            else:
                self._take_cells(source, table)
            (total,) = self._first("SELECT CAST(sum(count) AS DOUBLE) FROM counted")
            refuse_overflow(total or 0)
            for part in range(counts.parts):
                self._write_part(part, counts.part(part))

    def _needed(self) -> list[str]:
        others = (self.spec.table.count, self.limit and self.limit.column, self.rows)
        return list(dict.fromkeys([*row_columns(self.spec), *filter(None, others)]))

    def _register_places(self, part_of_place: NDArray[np.integer]) -> None:
        places = self.cells.shape[0]
        if part_of_place.shape != (places,):
            raise DataError(
                f"{len(part_of_place):,} places are assigned to parts",
                needed=f"a part for each of {places:,} places",
            )
        keys = {f"k{i}": column for i, column in enumerate(plain_keys(self.spec, self.cells).values())}
        rows = {**keys, "place": np.arange(places), "part": part_of_place.astype(np.int64)}
        self.connection.register("public_places", rows)
        self.connection.execute("CREATE TABLE places AS SELECT * FROM public_places")
        self.connection.unregister("public_places")

    def _copied(self, table: Relation) -> Relation:
        """Return a copy of the needed columns, because the other connection's memory cannot be limited."""
        needed = self._needed()
        path = self.spill / "given.parquet"
        require(table, needed)
        table.relation.project(", ".join(map(quoted, needed))).write_parquet(str(path))
        return Relation(table.name, self.connection.sql(f"FROM {parquet([path])}"))

    def _count_rows(self, table: Relation) -> None:
        """Count the rows of every cell in one pass over the table, and refuse faulty rows."""
        require_columns(self.spec, table, self._needed())
        table.relation.create_view("given")
        cell, joined = cell_sql(self.spec, self.cells, table), join_sql(self.spec, self.cells, table)
        column = self.spec.table.count
        whole = whole_sql(table, column) if column else "1"
        records = f"CAST(sum({quoted(self.rows)}) AS BIGINT)" if self.rows else "count(*)"
        if self.limit:
            self._count_kept(table, self.limit, cell, joined, records)
            return
        count = f"CAST(least(sum({whole}), {MAX_COUNT}) AS BIGINT)" if column else records
        apart = any(part.is_read for part in self.spec.attributes)
        written = f"count(DISTINCT {self._as_written(table)})" if column and apart else "1"
        self._spill(
            f"SELECT places.part, places.place, {cell} AS cell, {count} AS count, count(*) AS rows, "
            f"{written} AS written, count(*) - count({whole}) AS bad FROM {joined}"
        )
        if self._first("SELECT 1 FROM counted WHERE place IS NULL OR cell IS NULL LIMIT 1"):
            self._name_stray(table, f"{joined} WHERE places.place IS NULL OR {cell} IS NULL")
        (found,) = self._first(f"SELECT coalesce(sum({'rows' if column else 'count'}), 0) FROM counted")
        refuse_rows(int(found), self.expected, table)
        if column:
            self._refuse_twins(table, joined, cell)
            self._refuse_bad(table, column, whole)

    def _count_kept(self, table: Relation, limit: Limit, cell: str, joined: str, records: str) -> None:
        """Count, by cell, the records that remain under the limit on the records of each unit."""
        unit, width = text_sql(table, limit.column), _per_place(self.cells)
        self._write(
            "named",
            f"SELECT {unit} AS unit, CAST(places.place AS BIGINT) * {width} + {cell} AS cell, {records} AS count "
            f"FROM {joined} GROUP BY ALL",
        )
        if self._first("SELECT 1 FROM named WHERE unit IS NULL OR cell IS NULL LIMIT 1"):
            self._name_stray(
                table, f"{joined} WHERE places.place IS NULL OR {cell} IS NULL OR {unit} IS NULL"
            )
        self._spill(
            f"SELECT part, place, cell, CAST(sum(count) AS BIGINT) AS count FROM (SELECT cell // {width} AS place, "
            f"CAST(cell % {width} AS INTEGER) AS cell, count FROM ({kept_sql(limit)})) JOIN places USING (place)"
        )
        (given,), (kept,) = (
            self._first(f"SELECT coalesce(sum(count), 0) FROM {name}") for name in ("named", "counted")
        )
        refuse_rows(int(given), self.expected, table)
        limit.dropped, limit.units = int(given - kept), units_held(self.connection)

    def _take_cells(self, source: Any, table: Source) -> None:
        """Register the counts of a table that is in memory or has a column for each cell."""
        if self.spec.table.cells:
            dense = read_counts(self.spec, self.cells, source, rows=self.expected)
            index, units = np.flatnonzero(dense), dense[dense > 0]
        else:
            index, units = cells_named(self.spec, self.cells, table, self.limit, self.expected)
        place, cell = np.divmod(index, _per_place(self.cells))
        self.connection.register("named", {"place": place, "cell": cell.astype(np.int32), "units": units})
        counted = "SELECT part, place, cell, CAST(sum(units) AS BIGINT) AS count"
        self._spill(f"{counted} FROM named JOIN places USING (place)")

    def _spill(self, query: str) -> None:
        """Write the counts by cell that a query returns to a file, as the SQL table `counted`."""
        self._write("counted", f"{query} GROUP BY ALL ORDER BY part, place, cell")

    def _write(self, name: str, query: str) -> None:
        """Write the rows that a query returns to a Parquet file, as an SQL view of the given name."""
        file = self.spill / f"{name}.parquet"
        self.connection.execute(f"COPY ({query}) TO {literal(str(file))} (FORMAT parquet, COMPRESSION zstd)")
        self.connection.execute(f"CREATE VIEW {name} AS FROM {parquet([file])}")

    def _name_stray(self, table: Relation, stray: str) -> NoReturn:
        named = [*row_columns(self.spec), *([self.limit.column] if self.limit else [])]
        columns = ", ".join(f"given.{quoted(name)}" for name in [*named, ROW])
        first = self.connection.sql(f"{_NUMBERED} SELECT {columns} FROM {stray} ORDER BY given.{ROW} LIMIT 1")
        held = Relation(table.name, first).select([*named, ROW])
        cell_index(self.spec, self.cells, held, lambda at: self._said(table, held[ROW][at]))
        if self.limit:
            unit = np.array([named_unit(value) for value in held[self.limit.column].tolist()], dtype=object)
            refuse_missing(unit, self.limit.column, lambda at: self._said(table, held[ROW][at]), IDS)
        raise DataError(
            f"a row of {table.name} does not belong to any cell",
            needed="in every row a listed place and values that the attributes may have",
        )

    def _said(self, table: Relation, row: int) -> str:
        """Return words that state the location of a row, without its number if equal rows were merged."""
        return f"a row of {table.name}" if self.rows else table.row(int(row))

    def _refuse_twins(self, table: Relation, joined: str, cell: str) -> None:
        """Refuse two rows that have the same place and the same texts of attribute values."""
        if twin := self._first("SELECT place, cell FROM counted WHERE rows > written ORDER BY ALL LIMIT 1"):
            same = f"{joined} WHERE places.place = {twin[0]} AND {cell} = {twin[1]}"
            alike = f"GROUP BY {self._as_written(table)} HAVING count(*) > 1"
            numbers = self.connection.sql(
                f"{_NUMBERED} SELECT list(given.{ROW} ORDER BY given.{ROW}) FROM {same} {alike} ORDER BY ALL LIMIT 1"
            ).fetchall()[0][0]
            refuse_twins(np.zeros(2, np.int64), lambda at: table.row(numbers[at]))

    def _as_written(self, table: Relation) -> str:
        """Return SQL for the texts in a row that are read as other values, such as ages as ranges."""
        read = [text_sql(table, part.column or part.name) for part in self.spec.attributes if part.is_read]
        return f"[{', '.join(read)}]::VARCHAR[]"

    def _refuse_bad(self, table: Relation, column: str, whole: str) -> None:
        if not self._first("SELECT 1 FROM counted WHERE bad > 0 LIMIT 1"):
            return
        numbered = (
            f"SELECT row_number() OVER () AS row, {quoted(column)} AS value, {whole} AS whole FROM given"
        )
        bad = self.connection.sql(
            f"SELECT row, value FROM ({numbered}) WHERE whole IS NULL ORDER BY row LIMIT 1"
        )
        row, value = Relation(table.name, bad).select(["row", "value"]).values()
        where = table.row(int(row[0]))
        whole_counts(value, column, lambda at: where)
        raise DataError(
            f"column '{column}' in {where} holds something that is not a whole number",
            needed="whole numbers in every row",
        )

    def _first(self, query: str) -> Any:
        return next(iter(self.connection.execute(query).fetchall()), None)

    def _write_part(self, part: int, path: Path) -> None:
        held = f"SELECT place, cell, count FROM counted WHERE part = {part} AND count > 0"
        file = literal(str(path))
        self.connection.execute(
            f"COPY ({held} ORDER BY place, cell) TO {file} (FORMAT parquet, COMPRESSION zstd)"
        )


_NUMBERED = f"WITH numbered AS (SELECT *, row_number() OVER () AS {ROW} FROM given), given AS (FROM numbered)"
"""First part of a query that numbers the rows of the table, to say where a fault stands."""


def _per_place(cells: Cells) -> int:
    return cells.n // cells.shape[0]
