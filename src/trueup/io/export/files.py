"""Writers of tables to CSV, Parquet or Excel, with one file or sheet on how the data were protected.

Records are also made up here, so that they add up to every released table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError, TrueupError
from trueup.files.workbook import Sheet, workbook_of
from trueup.files.writing import write_csv, write_parquet
from trueup.io.bundle.manifest import slug
from trueup.io.export.content import Exported, ExportedTable
from trueup.model.cells import Cells, Margin
from trueup.model.family import FamilyCells
from trueup.model.records.release import Release
from trueup.model.tables import named_columns, position_of

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters that make a spreadsheet read a label as a formula."""


def write_csv_folder(folder: Path, exported: Exported, *, for_spreadsheets: bool) -> None:
    """Write a CSV file for each table, and `about.csv` on how the data were protected.

    Parameters
    ----------
    for_spreadsheets
        True to put an apostrophe before labels that a spreadsheet would run as formulas, and to begin each file with a
        byte order mark, by which spreadsheets recognise UTF-8. Otherwise labels are written as they are.
    """
    tables = ((slug(table.margin), table.columns, table.labels) for table in exported.tables)
    for name, columns, labels in chain(tables, [("about", exported.about_columns, {"about", "text"})]):
        path = folder / f"{name}.csv"
        write_csv(path, _guarded_labels(columns, labels) if for_spreadsheets else columns)
        if for_spreadsheets:
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())


def write_parquet_folder(folder: Path, exported: Exported) -> None:
    """Write a Parquet file for each table, and `about.parquet` on how the data were protected."""
    for table in exported.tables:
        write_parquet(folder / f"{slug(table.margin)}.parquet", table.columns)
    write_parquet(folder / "about.parquet", exported.about_columns)


def _guarded_labels(columns: dict[str, NDArray], labels: set[str]) -> dict[str, NDArray]:
    columns = {k: guarded(c) if k in labels else c for k, c in columns.items()}
    return {str(guarded(np.array([name]))[0]): column for name, column in columns.items()}


def guarded(labels: NDArray) -> NDArray:
    """Return labels with an apostrophe before each one that a spreadsheet would run as a formula.

    Examples
    --------
    >>> guarded(np.array(["01", "=1+1", "-"])).tolist()
    ['01', "'=1+1", "'-"]
    """
    return np.array([f"'{text}" if str(text).startswith(FORMULA) else str(text) for text in labels])


ROWS = 2**20 - 1
"""Rows of a sheet below its heading."""
_LONGEST = 31
_REFUSED = re.compile(r"[\[\]:*?/\\]")
_CONTROL = re.compile(r"[\x00-\x1f]")
_ABOUT = "About"


def workbook(exported: Exported) -> bytes:
    """Return an Excel workbook as bytes, with a sheet on how the data were protected and one for each table.

    Raises
    ------
    TrueupError
        If a table is longer than a sheet.
    """
    for table in exported.tables:
        refuse_long(table)
    about = exported.about_columns
    sheets = [Sheet(_ABOUT, about, frozenset(about), (32, 120))]
    for name, table in zip(sheet_names([str(t.margin) for t in exported.tables]), exported.tables):
        columns = table.columns
        widths = tuple(max(10, min(40, len(heading) + 4)) for heading in columns)
        sheets.append(Sheet(name, columns, frozenset(table.labels), widths))
    return workbook_of(sheets, exported.title)


def refuse_long(table: ExportedTable) -> None:
    """Refuse a table with more rows than a sheet of Excel can have."""
    rows = table.cells.size(table.margin)
    if table.wide is not None:
        kept = table.cells.kept(table.margin)
        rows //= kept[position_of(table.cells, table.margin, table.wide)].size
    if rows > ROWS:
        raise TrueupError(
            f"the table '{table.margin}' has {rows:,} rows, but a sheet of Excel holds at most {ROWS:,}",
            remedy="choose coarser tables with --table, or export to csv or parquet",
        )


def sheet_names(names: list[str]) -> list[str]:
    """Return distinct sheet names that Excel accepts, which differ in more than upper and lower case.

    Examples
    --------
    >>> sheet_names(["county x sex", "a/b", "a:b", "about"])
    ['county x sex', 'a_b', 'a_b 2', 'about 2']
    """
    taken, found = {_ABOUT.lower(), "history"}, []  # Excel keeps the second name to itself
    for name in names:
        plain = _REFUSED.sub("_", _CONTROL.sub("\ufffd", name)).strip("'")[:_LONGEST] or "table"
        tries = (plain, *(f"{plain[: _LONGEST - 5]} {i}" for i in range(2, 10_000)))
        found.append(next(each for each in tries if each.lower() not in taken))
        taken.add(found[-1].lower())
    return found


MOST_RECORDS = 50_000_000
"""Rows that are made in memory: some numbers and texts for each."""
ABOUT = (
    "Records",
    "Made up, with a seed from the published digest: they add up to every released table. Tables are independent given what "
    "they share, so nothing else can be learnt from the records. No row is about anybody.",
)


def record_columns(release: Release) -> dict[str, NDArray]:
    """Return the columns `(records,)` of artificial records that add up to the released tables."""
    cells, counts = release.cells, np.asarray(release.counts)
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise SpecError(
            "the released counts include negative numbers or fractions, so they are not numbers of records",
            needed="whole counts of 0 or more",
            remedy="reconcile with a method that gives such counts, such as 'tree-topdown'",
        )
    refuse_overlapping_records(cells)
    total = int(release.sums(cells.coarsest).sum())
    if total > MOST_RECORDS:
        raise SpecError(
            f"the release counts {total:,} records, too many to write",
            needed=f"at most {MOST_RECORDS:,} records",
            remedy="export the tables instead, in another format than records",
        )
    rng = np.random.default_rng([int(release.digest, 16), 2])
    if not isinstance(cells, FamilyCells):
        at = np.repeat(np.arange(cells.n), counts)
        return {name: column[at] for name, column in named_columns(cells, cells.finest).items()}
    if cells.joint is not None:
        raise SpecError(
            "the released tables form a cycle without their joint table, so that records cannot be drawn from them",
            needed="tables without a cycle",
            remedy=f"measure '{cells.joint}' too, however noisily",
        )
    return _of_family(cells, cells.split(counts), rng)


def _of_family(cells: FamilyCells, tables: list[NDArray], rng: np.random.Generator) -> dict[str, NDArray]:
    tree = cells.junction()
    edges = [_edge(cells, i, tree.parent[i]) for i in tree.order[1:]]
    found = joined_records(tables, tree.order[0], edges, rng)
    deepest = max(range(len(tables)), key=lambda i: cells.tree.level(cells.tables[i].level))
    place = Margin(cells.tables[deepest].level)
    at = cells.parts[deepest].groups(cells.tables[deepest], place)[found[deepest]]
    columns = {name: column[at] for name, column in named_columns(cells, place).items()}
    for number in range(len(cells.attributes)):
        views = [cells.recodes(table.attributes)[number] for table in cells.tables]
        holder = max(range(len(views)), key=lambda i: views[i].size)
        if (view := views[holder]).name:
            values = named_columns(cells.parts[holder], cells.tables[holder])[view.name]
            columns[view.name] = values[found[holder]]
    return columns


def _edge(cells: FamilyCells, table: int, parent: int) -> Edge:
    shared = cells.separator(table, parent)
    own, parents = (cells.parts[i].groups(cells.tables[i], shared) for i in (table, parent))
    return Edge(table, parent, own, parents)


def refuse_overlapping_records(cells: Cells) -> None:
    """Refuse attributes with overlapping values, because counts of these are not numbers of records."""
    if overlapping := [a.name for a in cells.attributes if not a.partition]:
        raise SpecError(
            f"the values of '{overlapping[0]}' overlap, so that the counts are not numbers of records",
            needed="attributes with exactly one value for each record",
        )


Integers = NDArray[np.int64]


class Edge(NamedTuple):
    """A table and its parent in a junction tree, with the group of their shared margin for each cell."""

    table: int
    parent: int
    own: Integers
    parents: Integers


def joined_records(
    tables: Sequence[Integers], root: int, edges: Sequence[Edge], rng: np.random.Generator
) -> list[Integers]:
    """Draw records that add up to the given tables; return each record's cell `(records,)` in every table.

    Within each shared cell, the cells of a table are given to the records of its parent in random order. So tables are
    independent given the cells that they share.

    Parameters
    ----------
    tables
        Whole counts `(cells,)` that agree on what they share.
    root, edges
        A junction tree, parents before their children.

    Examples
    --------
    >>> edge = Edge(1, 0, np.array([0, 0, 1]), np.array([0, 1]))
    >>> found = joined_records([np.array([2, 1]), np.array([1, 1, 1])], 0, [edge], np.random.default_rng(1))
    >>> found[0].tolist(), sorted(found[1].tolist())
    ([0, 0, 1], [0, 1, 2])
    """
    found = [np.zeros(0, np.int64)] * len(tables)
    found[root] = np.repeat(np.arange(len(tables[root])), tables[root])
    for edge in edges:
        shared = edge.parents[found[edge.parent]]
        records = np.lexsort((rng.random(shared.size), shared))
        cells = np.repeat(np.arange(len(tables[edge.table])), tables[edge.table])
        found[edge.table] = np.empty(shared.size, np.int64)
        found[edge.table][records] = cells[np.argsort(edge.own[cells], kind="stable")]
    return found
