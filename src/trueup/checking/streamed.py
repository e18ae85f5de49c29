"""Checks of a bundle's tables that came in many parts, streamed through DuckDB in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from trueup.checking.stated import promised
from trueup.errors import BundleError
from trueup.files.database import literal, parquet, quoted
from trueup.io.bundle.manifest import header_in, listed
from trueup.io.bundle.places import limit_column
from trueup.io.bundle.tables import label_sql, place_edges, query_label
from trueup.kernel.histogram.marginals import cell_groups
from trueup.model.build import cells_of_sizes, local_constraints
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints, name_mask
from trueup.model.header import Measured
from trueup.model.spec import Spec
from trueup.model.spec_queries import BoundPart

Finding = tuple[str, bool, tuple[str, ...]]
"""A rule, whether it holds, and the first places where it does not."""


@dataclass(frozen=True)
class Files:
    """The public files as tables of a database.

    Places have one text each, as in the measurements; a histogram's cell is its position in cell order.
    """

    public: Path
    spec: Spec
    manifest: Mapping[str, Any]
    connection: Any

    def findings(self) -> Iterator[Finding]:
        """Check every rule."""
        self._refuse_more_rows()
        self._views()
        sizes = [self._one(f"SELECT count(*) FROM {quoted(f'place {i}')}") for i in self._levels]
        yield "the places are as many as stated", sizes == [e["places"] for e in self.manifest["levels"]], ()
        cells = cells_of_sizes(self.spec, sizes)
        laws = promised(self.spec, cells, self.manifest)
        yield laws.rule, laws.holds, laws.where
        headers = [header_in(entry) for entry in self.manifest["headers"]]
        yield self._complete(cells, headers)
        for level in self._levels:
            yield from self._table(level)
        for above, below in pairwise(self._levels):
            yield self._sums(above, below)
        for header in (h for h in headers if h.exact):
            yield self._invariant(header)
        for level in self._levels if self._constraints.linear else ():
            yield self._linked(level)
        bounds = self._constraints.bounds
        for bound, part in zip(bounds, self.spec.constraints.bounds, strict=True):
            yield self._bounded(bound, part)

    def _refuse_more_rows(self) -> None:
        """Refuse files of more rows than the manifest announces, by the numbers in their footers: none is unpacked."""
        places = {entry["level"]: entry["places"] for entry in self.manifest["levels"]}
        cells = prod(len(attribute.values) for attribute in self.spec.attributes)
        most = {"places.parquet": max(places.values(), default=0)}
        # One row is of no place: the number of records that a limit left out, where it was measured.
        most["measurements/*.parquet"] = 1 + sum(places.get(e["level"], 0) for e in self.manifest["headers"])
        most |= {e["files"]: places.get(e["level"], 0) * cells for e in self.manifest["counts"]}
        for pattern, rows in most.items():
            if self._one(f"SELECT count(*) FROM {self._parquet(pattern)}") > rows:
                raise BundleError(
                    f"'{pattern}' holds more than the {rows:,} rows that are announced",
                    remedy="restore the bundle",
                )

    @property
    def _names(self) -> list[str]:
        return [level.name for level in self.spec.levels]

    @property
    def _levels(self) -> range:
        return range(len(self.spec.levels))

    def _views(self) -> None:
        """Make `place i` (place, parent, limits), `domain` (cell, attributes), `count i` (place, cell, count), `measured`."""
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
        self._domain()
        for i, entry in enumerate(self.manifest["counts"]):
            files = self._parquet(entry["files"])
            keys = self._key_names(i, held)
            text = label_sql(keys) if keys else literal(self._names[i])
            named = "".join(f" AND t.{quoted(a.name)} = d.{quoted(a.name)}" for a in self.spec.attributes)
            self._view(
                f"count {i}",
                f"SELECT {text} AS place, d.cell AS cell, t.count AS count FROM {files} t LEFT JOIN domain d ON true{named}",
            )
        self._view("measured", f"SELECT * FROM {self._parquet('measurements/*.parquet')}")

    def _parquet(self, pattern: str) -> str:
        """Return the files of a pattern that are listed and exist."""
        paths = (self.public / name for name in listed(self.manifest, pattern))
        return parquet(path for path in paths if path.is_file())

    def _domain(self) -> None:
        shape = [len(a.values) for a in self.spec.attributes]
        grid = np.indices(shape).reshape(len(shape), -1) if shape else []
        columns = {a.name: np.array(a.values)[at] for a, at in zip(self.spec.attributes, grid)}
        self.connection.register("given", {"cell": np.arange(int(np.prod(shape, dtype=np.int64))), **columns})
        self.connection.execute("CREATE TABLE domain AS SELECT * FROM given")

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

    def _found(self, rule: str, query: str) -> Finding:
        """Return a finding that holds if a query finds nothing; the query names places."""
        rows = self.connection.execute(f"SELECT DISTINCT place FROM ({query}) LIMIT 3").fetchall()
        return rule, not rows, tuple(str(row[0]) for row in rows)

    def _complete(self, cells: Cells, headers: Sequence[Measured]) -> Finding:
        """Check that every place has one row for each query of its level, with a value for each group."""
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

    def _table(self, level: int) -> Iterator[Finding]:
        name, counts = self._names[level], quoted(f"count {level}")
        known = f"place IN (SELECT place FROM {quoted(f'place {level}')})"
        yield self._found(
            f"the table of level '{name}' lists public places and values of the domain",
            f"SELECT place FROM {counts} WHERE cell IS NULL OR NOT ({known})",
        )
        yield self._found(
            f"the table of level '{name}' lists no cell twice",
            f"SELECT place FROM {counts} GROUP BY place, cell HAVING count(*) > 1",
        )
        kind = self.connection.execute(f"DESCRIBE SELECT count FROM {counts}").fetchall()[0][1]
        yield f"the counts of level '{name}' are whole numbers", kind == "BIGINT", ()
        if self.spec.constraints.nonnegative:
            yield self._found(
                f"no count of level '{name}' is negative", f"SELECT place FROM {counts} WHERE count < 0"
            )
        if self._constraints.zeros:
            yield self._found(
                f"level '{name}' keeps the structural zeros",
                f"SELECT place FROM {counts} JOIN domain USING (cell) WHERE count <> 0 AND ({self._zeros()})",
            )

    @cached_property
    def _one_place(self) -> Cells:
        """Return the cells of one place on every level."""
        return cells_of_sizes(self.spec, [1] * len(self._names))

    @cached_property
    def _constraints(self) -> Constraints:
        """Return the constraints at every place."""
        return local_constraints(self.spec, self._one_place)

    def _linked(self, level: int) -> Finding:
        """Check the rules that link two tables, as weights of cells whose sums are zero, or at most zero."""
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

    def _zeros(self) -> str:
        """Return SQL that selects the cells that are structural zeros."""
        zero = self._constraints.zero_cells
        return f"cell IN ({', '.join(map(str, np.flatnonzero(zero)))})"

    def _sums(self, above: int, below: int) -> Finding:
        """Compare the table of a level with the sums of the level below."""
        summed = (
            f"SELECT parent AS place, cell, sum(count) AS count FROM {quoted(f'count {below}')} "
            f"JOIN {quoted(f'place {below}')} USING (place) GROUP BY ALL"
        )
        differ = (
            f"SELECT place FROM (SELECT place, cell, count FROM {quoted(f'count {above}')}) a "
            f"FULL JOIN ({summed}) b USING (place, cell) WHERE coalesce(a.count, 0) <> coalesce(b.count, 0)"
        )
        return self._found(f"level '{self._names[above]}' is the sum of level '{self._names[below]}'", differ)

    def _invariant(self, header: Measured) -> Finding:
        """Compare an invariant's released counts with the enumerated ones."""
        enumerated = (
            "SELECT place, unnest(value) AS count, generate_subscripts(value, 1) AS grp FROM measured "
            f"WHERE level = {literal(header.margin.level)} AND query = {literal(query_label(header))}"
        )
        differ = (
            f"SELECT place FROM ({enumerated}) a FULL JOIN ({self._margin(header.margin)}) b USING (place, grp) "
            "WHERE coalesce(a.count, 0) <> coalesce(b.count, 0)"
        )
        return self._found(f"the invariant '{header.margin}' is as enumerated", differ)

    def _bounded(self, bound: Bound, part: BoundPart) -> Finding:
        """Check the groups of a margin against their limits, unlisted ones included; null is no limit."""
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
        """Return a query for the released counts of a margin, by place and group (from 1); zero groups may be missing."""
        groups = (
            cell_groups(self._one_place.marginal(margin.attributes))
            if self.spec.attributes
            else np.zeros(1, int)
        )
        self.connection.register("given_groups", {"cell": np.arange(groups.size), "grp": groups + 1})
        counts = quoted(f"count {self._names.index(margin.level)}")
        return f"SELECT place, grp, sum(count) AS count FROM {counts} JOIN given_groups USING (cell) GROUP BY ALL"


def _limit_sql(limit: int | str | None) -> str:
    if isinstance(limit, str):
        return quoted(f"limit {limit}")
    return "CAST(NULL AS BIGINT)" if limit is None else str(limit)
