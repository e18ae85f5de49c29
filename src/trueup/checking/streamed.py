"""Checks of a bundle whose tables are stored in many files, read through DuckDB in bounded memory.

One file: every rule is a query on the same views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from trueup.checking import Check, promised
from trueup.files.database import literal, parquet, quoted
from trueup.io.bundle.manifest import header_in, listed, margin_in
from trueup.io.bundle.places import limit_column
from trueup.io.bundle.strict import damaged_bundle
from trueup.io.bundle.tables import label_sql, place_edges, query_label
from trueup.kernel.histogram import cell_groups
from trueup.model.build import cells_of_sizes, local_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints, name_mask
from trueup.model.family import FamilyCells, marginal_in, table_alone
from trueup.model.header import Measured
from trueup.model.spec import Spec
from trueup.model.spec_queries import BoundPart


@dataclass(frozen=True)
class Files:
    """The public files of a bundle, read as tables of a DuckDB database.

    Places have one text each, as in the measurements; a histogram's cell is its position in cell order.
    """

    public: Path
    spec: Spec
    manifest: Mapping[str, Any]
    connection: Any

    def findings(self) -> Iterator[Check]:
        """Yield the verdict on every rule that the tables of the bundle must satisfy."""
        self._refuse_more_rows()
        listed_tables = [table.finest for table in self._tables]
        lost = [str(margin) for margin in self._one_place.finest_tables if margin not in listed_tables]
        yield Check("every table of the spec is there", not lost, tuple(lost))
        self._views()
        sizes = [self._one(f"SELECT count(*) FROM {quoted(f'place {i}')}") for i in self._levels]
        stated = [entry["places"] for entry in self.manifest["levels"]]
        yield Check("the places are as many as stated", sizes == stated)
        cells = cells_of_sizes(self.spec, sizes)
        yield promised(self.spec, cells, self.manifest)
        headers = [header_in(entry) for entry in self.manifest["headers"]]
        yield self._complete(cells, headers)
        for table in range(len(self._tables)):
            yield from self._table(table)
        for sums, table in self._nested():
            yield self._sums(sums, table)
        for header in (h for h in headers if h.exact):
            yield self._invariant(header)
        for level in self._levels if self._constraints.linear else ():
            yield self._linked(level)
        bounds = self._constraints.bounds
        for bound, part in zip(bounds, self.spec.constraints.bounds, strict=True):
            yield self._bounded(bound, part)

    def _refuse_more_rows(self) -> None:
        """Refuse Parquet files whose footers state more rows than the manifest allows."""
        places = {entry["level"]: entry["places"] for entry in self.manifest["levels"]}
        most = {"places.parquet": max(places.values(), default=0)}
        # One row is of no place: the number of records that a limit left out, where it was measured.
        most["measurements/*.parquet"] = 1 + sum(places.get(e["level"], 0) for e in self.manifest["headers"])
        for entry, cells in zip(self.manifest["counts"], self._tables):
            most[entry["files"]] = places.get(entry["level"], 0) * prod(cells.shape[1:])
        for pattern, rows in most.items():
            if self._one(f"SELECT count(*) FROM {self._parquet(pattern)}") > rows:
                raise damaged_bundle(
                    f"'{pattern}' holds more rows than the {rows:,} that its manifest allows"
                )

    @property
    def _names(self) -> list[str]:
        return [level.name for level in self.spec.levels]

    @property
    def _levels(self) -> range:
        return range(len(self.spec.levels))

    def _views(self) -> None:
        """Create the SQL views `place i`, `domain i` and `count i` of each level or table, and `measured`."""
        places = parquet([self.public / "places.parquet"])
        held = [c[0] for c in self.connection.execute(f"DESCRIBE SELECT * FROM {places}").fetchall()]
        label = [self._label(level, held) for level in self._levels]
        for i in self._levels:
            parent = label[i - 1] if i else "NULL"
            limits = (
                f", {quoted(limit_column(self._names[i], name))} AS {quoted(f'limit {name}')}"
                for name in self.spec.limit_columns[i]
            )
            self._view(
                f"place {i}",
                f"SELECT DISTINCT {label[i]} AS place, {parent} AS parent{''.join(limits)} FROM {places}",
            )
        for i, (entry, cells) in enumerate(zip(self.manifest["counts"], self._tables)):
            self._domain(i, cells)
            files, level = self._parquet(entry["files"]), len(cells.tree.levels) - 1
            keys = self._key_names(level, held)
            text = label_sql(keys) if keys else literal(self._names[level])
            named = "".join(f" AND t.{quoted(a.name)} = d.{quoted(a.name)}" for a in cells.attributes)
            self._view(
                f"count {i}",
                f"SELECT {text} AS place, d.cell AS cell, t.count AS count FROM {files} t "
                f"LEFT JOIN {quoted(f'domain {i}')} d ON true{named}",
            )
        self._view("measured", f"SELECT * FROM {self._parquet('measurements/*.parquet')}")

    def _parquet(self, pattern: str) -> str:
        """Return the listed files that match a pattern and exist."""
        paths = (self.public / name for name in listed(self.manifest, pattern))
        return parquet(path for path in paths if path.is_file())

    def _domain(self, table: int, cells: Cells) -> None:
        shape = cells.shape[1:]
        grid = np.indices(shape).reshape(len(shape), -1) if shape else []
        columns = {a.name: np.array(a.values)[at] for a, at in zip(cells.attributes, grid)}
        self.connection.register("given", {"cell": np.arange(prod(shape)), **columns})
        self.connection.execute(f"CREATE TABLE {quoted(f'domain {table}')} AS SELECT * FROM given")

    @cached_property
    def _tables(self) -> list[Cells]:
        """Return the layout of every released table as if each level had a single place."""
        return [table_alone(self._one_place, margin_in(entry)) for entry in self.manifest["counts"]]

    def _said(self, table: int) -> str:
        margin = self._tables[table].finest
        return f"'{margin}'" if self._one_place.is_family else f"level '{margin.level}'"

    def _nested(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of two tables of which the counts of the first are sums over the second."""
        if not isinstance(self._one_place, FamilyCells):
            yield from pairwise(range(len(self._tables)))
            return
        margins = [table.finest for table in self._tables]
        for sums, margin in enumerate(margins):
            for held in self._one_place.holders(margin):
                if self._one_place.tables[held] in margins and self._one_place.tables[held] != margin:
                    yield sums, margins.index(self._one_place.tables[held])

    def _key_names(self, level: int, held: Sequence[str]) -> list[str]:
        prefix = f"{self._names[level]}."
        return [name.removeprefix(prefix) for name in held if name.startswith(prefix)]

    def _label(self, level: int, held: Sequence[str]) -> str:
        keys = [f"{self._names[level]}.{name}" for name in self._key_names(level, held)]
        return label_sql(keys) if keys else literal(self._names[level])

    def _view(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE VIEW {quoted(name)} AS {query}")

    def _one(self, query: str) -> Any:
        return self.connection.execute(query).fetchall()[0][0]

    def _found(self, rule: str, query: str) -> Check:
        """Return a verdict that passes if the query finds no place, and else names the first places found."""
        rows = self.connection.execute(f"SELECT DISTINCT place FROM ({query}) LIMIT 3").fetchall()
        return Check(rule, not rows, tuple(str(row[0]) for row in rows))

    def _complete(self, cells: Cells, headers: Sequence[Measured]) -> Check:
        """Check that each place has one row for every query of its level, with a value for each group."""
        rows = {
            "level": np.array([h.margin.level for h in headers]),
            "query": np.array([query_label(h) for h in headers]),
            "exact": np.array([h.exact for h in headers]),
            "groups": np.array([np.diff(place_edges(cells, h.at(cells)))[0] for h in headers]),
        }
        self.connection.register("given_headers", rows)
        self.connection.execute("CREATE TABLE headers AS SELECT * FROM given_headers")
        places = " UNION ALL ".join(
            f"SELECT place, {literal(name)} AS level FROM {quoted(f'place {i}')}"
            for i, name in enumerate(self._names)
        )
        asked = f"SELECT p.place, level, query, exact, groups FROM ({places}) p JOIN headers USING (level)"
        given = "SELECT place, level, query, exact, len(value) AS groups FROM measured WHERE level <> ''"
        differ = f"(({asked}) EXCEPT ALL ({given})) UNION ALL (({given}) EXCEPT ALL ({asked}))"
        return self._found("every place is measured once by every query of its level", differ)

    def _table(self, table: int) -> Iterator[Check]:
        said, counts, margin = self._said(table), quoted(f"count {table}"), self._tables[table].finest
        known = f"place IN (SELECT place FROM {quoted(f'place {self._names.index(margin.level)}')})"
        yield self._found(
            f"the table of {said} lists public places and values of the domain",
            f"SELECT place FROM {counts} WHERE cell IS NULL OR NOT ({known})",
        )
        yield self._found(
            f"the table of {said} lists no cell twice",
            f"SELECT place FROM {counts} GROUP BY place, cell HAVING count(*) > 1",
        )
        kind = self.connection.execute(f"DESCRIBE SELECT count FROM {counts}").fetchall()[0][1]
        yield Check(f"the counts of {said} are whole numbers", kind == "BIGINT")
        if self.spec.constraints.nonnegative:
            yield self._found(
                f"no count of {said} is negative", f"SELECT place FROM {counts} WHERE count < 0"
            )
        if (zero := np.flatnonzero(self._constraints.zero_groups(margin))).size:
            yield self._found(
                f"{said} keeps the structural zeros",
                f"SELECT place FROM {counts} WHERE count <> 0 AND cell IN ({', '.join(map(str, zero))})",
            )

    @cached_property
    def _one_place(self) -> Cells:
        """Return the layout of the cells as if each level had a single place."""
        return cells_of_sizes(self.spec, [1] * len(self._names))

    @cached_property
    def _constraints(self) -> Constraints:
        """Return the constraints on the cells as if each level had a single place."""
        return local_constraints(self.spec, self._one_place)

    def _linked(self, level: int) -> Check:
        """Check linear rules on two linked tables: sums that must be zero, or at most zero."""
        cells, rules = self._one_place, self._constraints.linear
        weights = np.zeros((len(rules), cells.n))
        for row, rule in zip(weights, rules):
            for name, coefficient in rule.linear.coefficients.items():
                row += float(coefficient) * name_mask(cells, name).ravel()
        rule, cell = np.nonzero(weights)
        exact = np.array([r.linear.sense == "==" for r in rules])
        held = {
            "rule": rule,
            "cell": cell,
            "weight": weights[rule, cell].astype(np.int64),
            "exact": exact[rule],
        }
        self.connection.register("given_rules", held)
        sums = (
            f"SELECT place, rule, exact, sum(weight * count) AS gap FROM {quoted(f'count {level}')} "
            "JOIN given_rules USING (cell) GROUP BY ALL"
        )
        broken = f"SELECT place FROM ({sums}) WHERE gap > 0 OR (exact AND gap <> 0)"
        return self._found(
            f"the two tables of level '{self._names[level]}' do not contradict each other", broken
        )

    def _sums(self, sums: int, table: int) -> Check:
        """Check that a table's counts are the sums over a table of the same level or of a lower one."""
        margin, levels = (
            self._tables[sums].finest,
            [len(self._tables[i].tree.levels) - 1 for i in (sums, table)],
        )
        summed = self._grouped(table, margin)
        for level in range(levels[1], levels[0], -1):
            summed = (
                f"SELECT parent AS place, grp, sum(count) AS count FROM ({summed}) "
                f"JOIN {quoted(f'place {level}')} USING (place) GROUP BY ALL"
            )
        differ = (
            f"SELECT place FROM (SELECT place, cell + 1 AS grp, count FROM {quoted(f'count {sums}')}) a "
            f"FULL JOIN ({summed}) b USING (place, grp) WHERE coalesce(a.count, 0) <> coalesce(b.count, 0)"
        )
        return self._found(f"{self._said(sums)} is the sum of {self._said(table)}", differ)

    def _invariant(self, header: Measured) -> Check:
        """Compare the released counts of an invariant with the exact counts published for it."""
        enumerated = (
            "SELECT place, unnest(value) AS count, generate_subscripts(value, 1) AS grp FROM measured "
            f"WHERE level = {literal(header.margin.level)} AND query = {literal(query_label(header))}"
        )
        differ = (
            f"SELECT place FROM ({enumerated}) a FULL JOIN ({self._margin(header.margin)}) b USING (place, grp) "
            "WHERE coalesce(a.count, 0) <> coalesce(b.count, 0)"
        )
        return self._found(f"the invariant '{header.margin}' is as enumerated", differ)

    def _bounded(self, bound: Bound, part: BoundPart) -> Check:
        """Check that every group of a margin is within its limits, where a null is no limit."""
        every = Constraints(self._one_place, ()).bound_values(replace(bound, lower=0))[0]
        self.connection.register("given_bounded", {"grp": np.flatnonzero(every == 0) + 1})
        level, (low, high) = self._names.index(bound.margin.level), map(_limit_sql, (part.lower, part.upper))
        outside = (
            f"SELECT place FROM (SELECT place, {low} AS low, {high} AS high FROM {quoted(f'place {level}')}) p "
            f"CROSS JOIN given_bounded LEFT JOIN ({self._margin(bound.margin)}) m USING (place, grp) "
            "WHERE coalesce(count, 0) < low OR coalesce(count, 0) > high"
        )
        return self._found(f"the bounds on '{bound.margin}' hold", outside)

    def _margin(self, margin: Margin) -> str:
        """Return a query for a margin's released counts by place and group, without groups of zero."""
        margins = (table.finest for table in self._tables)
        contains = self._one_place.contains
        return self._grouped(
            next(i for i, m in enumerate(margins) if m.level == margin.level and contains(margin, m)), margin
        )

    def _grouped(self, table: int, margin: Margin) -> str:
        """Return a query that sums a table's counts by place and group; the first group has number 1."""
        groups = cell_groups(marginal_in(self._tables[table], margin))
        self.connection.register("given_groups", {"cell": np.arange(groups.size), "grp": groups + 1})
        counts = quoted(f"count {table}")
        return f"SELECT place, grp, sum(count) AS count FROM {counts} JOIN given_groups USING (cell) GROUP BY ALL"


def _limit_sql(limit: int | str | None) -> str:
    if isinstance(limit, str):
        return quoted(f"limit {limit}")
    return "CAST(NULL AS BIGINT)" if limit is None else str(limit)
