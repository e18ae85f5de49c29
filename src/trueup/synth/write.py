"""Writing of one synthetic region as Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.files.database import connect, literal, quoted, writing_by_duckdb
from trueup.model.build import build_cells
from trueup.model.cells import Cells
from trueup.model.spec import Spec
from trueup.model.tree import Tree
from trueup.synth.people import Households, PeopleDomain, Sparse, populate
from trueup.synth.places import Digits, grow, leaf_codes
from trueup.synth.totals import SynthRegion, WideTable
from trueup.version import __version__

UNITS, ROWS = 4_000_000, 2_000_000
"""Most records, and about most counts, in one part."""
LAST_RECORD_PROBABILITY = 0.6
"""Chance, made up, that a record is the last one of its unit, where units have identifiers."""
ROOT = "all"
"""Name of the root where a geography lists parents."""


@dataclass(frozen=True)
class RegionPlan:
    """The plan of one synthetic region: code, totals, and numbers of places.

    Attributes
    ----------
    region
        Code, name, totals.
    sizes
        Places of every level below the region.
    before
        Places of every level of the layout in the regions before this one.
    first
        True for the first region, which also writes the root.
    """

    region: SynthRegion
    sizes: tuple[int, ...]
    before: tuple[int, ...]
    first: bool


@dataclass(frozen=True)
class WriteRegion:
    """The task of drawing one synthetic region and writing it to files.

    Attributes
    ----------
    spec, layout
        The spec of the data, and the digits of codes on every level.
    folder
        Holds the folders `places` and `records` or `counts`.
    seed
        Seed of the whole country; every region has a generator of its own.
    """

    spec: Spec
    layout: tuple[Digits, ...]
    folder: Path
    seed: int

    def __call__(self, plan: RegionPlan) -> None:
        """Draw the region, and write its places and its counts or records."""
        rng = np.random.default_rng([self.seed, int(plan.region.code)])
        below = self.layout[len(self.layout) - len(plan.sizes) :]
        branch = grow(plan.sizes, [d.most for d in below], rng)
        codes = leaf_codes(branch, self.layout, int(plan.region.code), plan.before)
        with connect(
            folders=[self.folder], threads=1
        ) as connection:  # one thread, so that the same rows give the same bytes
            self._register(connection, plan, codes, branch.weights.size)
            self._write_places(connection, plan)
            if (households := Households.of(self.spec)) is not None:
                self._write_households(
                    connection, plan, households.draw(branch, plan.region.persons, plan.region.code, rng)
                )
                return
            drawn = populate(self.domain, branch, plan.region.persons, rng)
            parts = self._records(drawn, rng) if self.spec.table.kind == "records" else self._counts(drawn)
            for number, rows in enumerate(parts):
                self._write_part(connection, rows, plan.region.code, number)

    @cached_property
    def cells(self) -> Cells:
        """Return the cells of a single place."""
        return build_cells(self.spec, Tree.from_columns([ROOT], [{}]))

    @cached_property
    def domain(self) -> PeopleDomain:
        """Return the attributes as a domain from which inhabitants are drawn."""
        return PeopleDomain.of(self.cells, self.spec.constraints.zeros)

    def _register(self, connection: Any, plan: RegionPlan, codes: dict[str, NDArray], leaves: int) -> None:
        """Register tables of places and cells in DuckDB, to be joined with drawn rows."""
        numbers = {f"c{i}": code for i, code in enumerate(codes.values())}
        connection.register("numbers", {"leaf": np.arange(leaves, dtype=np.int32), **numbers})
        width = {d.column: d.end for d in self.layout}  # the last level of a column has the longest codes
        texts = [f"lpad(CAST(c{i} AS VARCHAR), {width[c]}, '0') AS {quoted(c)}" for i, c in enumerate(codes)]
        connection.execute(f"CREATE TABLE places AS SELECT {', '.join(['leaf', *texts])} FROM numbers")
        values = np.indices(self.domain.sizes).reshape(len(self.domain.sizes), prod(self.domain.sizes))
        named = {
            part.column or part.name: np.array(part.values)[index]
            for part, index in zip(self.spec.attributes, values)
        }
        connection.register("values", {"cell": np.arange(prod(self.domain.sizes), dtype=np.int32), **named})
        connection.execute("CREATE TABLE domain AS SELECT * FROM values")

    def _write_places(self, connection: Any, plan: RegionPlan) -> None:
        if not self.layout:
            return
        rows = self._parents(plan) if self.spec.parents is not None else self._leaves(plan)
        self._copy(connection, rows, self.folder / "places" / f"synthetic-{plan.region.code}.parquet")

    def _leaves(self, plan: RegionPlan) -> str:
        """Return an SQL query for the places of the last level, with readable names if declared."""
        columns = {d.column: quoted(d.column) for d in self.layout}
        for depth, level in enumerate(self.spec.levels):
            if level.label and level.label not in columns:
                columns[level.label] = self._label(plan, depth, level.name)
        named = ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())
        return f"SELECT {named} FROM places ORDER BY leaf"

    def _label(self, plan: RegionPlan, depth: int, name: str) -> str:
        if depth < len(self.layout) - len(plan.sizes) + 1:  # the root, or the region
            return literal(f"Synthetic {plan.region.name if depth else 'country'}")
        digits = self.layout[depth - 1]
        return f"{literal(f'Synthetic {name} ')} || left({quoted(digits.column)}, {digits.end})"

    def _parents(self, plan: RegionPlan) -> str:
        """Return an SQL query for the places of every level, each with its parent."""
        assert self.spec.parents is not None
        given, up = quoted(self.spec.parents.id), quoted(self.spec.parents.parent)
        rows = [f"SELECT '{ROOT}' AS {given}, '' AS {up}"] * plan.first
        for depth, digits in enumerate(self.layout):
            parent = f"left({given}, {digits.start})" if depth else f"'{ROOT}'"
            rows.append(
                f"SELECT DISTINCT left({given}, {digits.end}) AS {given}, {parent} AS {up} FROM places"
            )
        return f"SELECT * FROM ({' UNION ALL '.join(rows)}) ORDER BY ALL"

    def _records(self, drawn: Iterable[Sparse], rng: np.random.Generator) -> Iterator[dict[str, NDArray]]:
        """Yield tables with one row for each record, in random order within each table."""
        units = 0
        for leaf, cell, count in split_by_units(drawn, UNITS):
            order = rng.permutation(int(count.sum()))
            rows: dict[str, NDArray] = {
                "leaf": np.repeat(leaf, count)[order],
                "cell": np.repeat(cell, count)[order],
            }
            if self.spec.privacy.id is not None:
                rows["unit"] = units + self._units_of(rows["leaf"], rng)
                units += order.size
            yield rows

    def _units_of(self, leaf: NDArray, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the number of each row's unit; its records are near each other, and no more than the spec allows."""
        assert self.spec.privacy.contribution is not None
        held = np.minimum(
            rng.geometric(LAST_RECORD_PROBABILITY, leaf.size), self.spec.privacy.contribution.records
        )
        units = np.empty(leaf.size, np.int64)
        units[np.argsort(leaf, kind="stable")] = np.repeat(np.arange(leaf.size), held)[: leaf.size]
        return units

    def _counts(self, drawn: Iterable[Sparse]) -> Iterator[dict[str, NDArray]]:
        for sparse in _gathered(drawn, ROWS):
            yield {"leaf": sparse.leaf, "cell": sparse.cell, "units": sparse.count}

    def _write_part(self, connection: Any, rows: dict[str, NDArray], code: str, number: int) -> None:
        table, given_id = self.spec.table, f"printf('{code}-%08d', rows.unit)"
        folder = self.folder / ("records" if table.kind == "records" else "counts")
        keys = [f"places.{quoted(column)}" for column in dict.fromkeys(d.column for d in self.layout)]
        if table.cells:
            rows = WideTable.of(self.spec, self.cells).columns(rows, prod(self.domain.sizes))
            joined, held = "rows JOIN places USING (leaf)", [quoted(c) for c in rows if c != "leaf"]
        else:
            joined = "rows JOIN places USING (leaf) JOIN domain USING (cell)"
            held = [f"domain.{quoted(part.column or part.name)}" for part in self.spec.attributes]
            held += [f"units AS {quoted(table.count)}"] if table.count else []
            held += [f"{given_id} AS {quoted(self.spec.privacy.id or '')}"] if "unit" in rows else []
        connection.register("rows", rows)
        query = f"SELECT {', '.join([*keys, *held])} FROM {joined}"
        self._copy(connection, query, folder / f"synthetic-{code}-{number:04d}.parquet")
        connection.unregister("rows")

    def _write_households(
        self, connection: Any, plan: RegionPlan, drawn: Iterable[tuple[dict, dict]]
    ) -> None:
        """Write the tables of households and of persons. Places are in the table of households."""
        keys = ", ".join(
            f"places.{quoted(column)}" for column in dict.fromkeys(d.column for d in self.layout)
        )
        for number, tables in enumerate(drawn):
            name = f"synthetic-{plan.region.code}-{number:04d}.parquet"
            for part, rows in zip(("households", "records"), tables):
                connection.register("rows", rows)
                held = ", ".join(quoted(column) for column in rows if column != "leaf")
                joined = f"{f'{keys}, ' if keys else ''}{held} FROM rows JOIN places USING (leaf)"
                query = f"SELECT {joined if part == 'households' else f'{held} FROM rows'}"
                self._copy(connection, query, self.folder / part / name)
                connection.unregister("rows")

    def _copy(self, connection: Any, query: str, path: Path) -> None:
        said = f"{{synthetic: {literal(LABEL)}, made_by: {literal(f'trueup {__version__}')}, seed: '{self.seed}'}}"
        with writing_by_duckdb(path):
            connection.execute(
                f"COPY ({query}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd, KV_METADATA {said})"
            )


LABEL = "Synthetic: no person or place in it exists."


def _gathered(drawn: Iterable[Sparse], rows: int) -> Iterator[Sparse]:
    """Join tables of occupied cells until each has enough rows, without dividing a place between tables."""
    held: list[Sparse] = []
    for sparse in drawn:
        held.append(sparse)
        if sum(s.leaf.size for s in held) >= rows:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(held: list[Sparse]) -> Sparse:
    return Sparse(*map(np.concatenate, zip(*held)))


def split_by_units(drawn: Iterable[Sparse], units: int) -> Iterator[Sparse]:
    """Split tables of occupied cells so that each has a given number of units."""
    held = Sparse(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
    for sparse in drawn:
        held = _joined([held, sparse])
        while held.count.sum() > units:
            taken = np.clip(units - (held.count.cumsum() - held.count), 0, held.count)
            yield _with_counts(held, taken)
            held = _with_counts(held, held.count - taken)
    yield held


def _with_counts(held: Sparse, count: NDArray[np.int64]) -> Sparse:
    kept = np.flatnonzero(count)
    return Sparse(held.leaf[kept], held.cell[kept], count[kept])
