"""Two linked tables of persons and households, read as one table of records.

Nothing is counted of a person that is not kept: first of all each household keeps at most so many of its persons
(`truncate`, the reference person before all others, which is a choice by the household's own records like the rest),
then sizes, numbers of persons and the reference person's attributes are those of the kept ones. So the rules that link
the tables hold for the records that are counted, and one household moves what it holds itself and nothing else.

One file: each step writes a table that the next step reads from the same database.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from trueup.errors import DataError
from trueup.files import JoinedTables, require
from trueup.files.database import ROW, Relation, connect, literal, quiet_duckdb, quoted
from trueup.files.memory import parse_memory
from trueup.files.source import files_read, open_table
from trueup.files.values import plain_text
from trueup.io.microdata.row_places import LINKS, outside_domain
from trueup.io.microdata.sql import position_sql, text_sql
from trueup.io.microdata.truncate import Limit, kept_sql
from trueup.model.joined import LinkedTables, persons_of
from trueup.model.reading import Reading
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart, JoinPart
from trueup.model.stacking import RECORD, REFERENCE


@contextmanager
def linked_records(
    spec: Spec | Reading,
    source: Any,
    limit: Limit | None,
    *,
    spill: Path | None = None,
    memory: str | None = None,
    threads: int | None = None,
) -> Iterator[Any]:
    """Yield the table of records that a spec of two linked tables counts, or the source if it links none.

    Afterwards `limit` states the numbers of records left out, by reason, and of persons dropped.

    Parameters
    ----------
    spec, source
        The spec of the counts, and a `JoinedTables` if the spec links two tables.
    limit
        The limit on persons of each household.
    spill, memory, threads
        A folder for what does not fit in memory, and limits for DuckDB.
    """
    spec = Reading.of(spec)
    if spec.table.join is None:
        yield source
        return
    if not isinstance(source, JoinedTables):
        raise DataError(
            "the spec links two tables, but only one is given",
            needed=f"two tables, one of {spec.table.counts}s and one of {spec.table.join.counts}s",
            remedy="give the second table by another --data FILE, or both in Python as trueup.JoinedTables(persons, "
            "households)",
        )
    settings = {"memory_limit": memory and f"{parse_memory(memory)}B", "threads": threads}
    settings = {name: value for name, value in settings.items() if value}
    folders = [] if spill is None else [spill.parent]  # beside it the records are counted
    if spill is not None:
        settings["temp_directory"] = str(spill)
    assert limit is not None
    with connect(files=files_read(source), folders=folders, **settings) as connection:
        yield _Linking(spec, spec.table.join, connection, limit).records(source)


@dataclass(frozen=True)
class _Linking:
    spec: Reading
    join: JoinPart
    connection: Any
    limit: Limit

    @cached_property
    def joined(self) -> LinkedTables:
        found = LinkedTables.of(self.spec)
        assert found is not None
        return found

    def parts(self, of: str) -> list[AttributePart]:
        """Return the declared attributes of persons, of households or of reference persons."""
        return [p for p in self.join.attributes if p.of == of and p.persons is None]

    def records(self, source: JoinedTables) -> Relation:
        """Return the records to count from two linked tables, and refuse any that do not link."""
        given = {"persons": source.persons, "households": source.households}
        tables = {name: self._view(name, data) for name, data in given.items()}
        with quiet_duckdb("the linked tables"):
            self._read_households(tables["households"])
            self._read_persons(tables["persons"])
            self._set_apart(tables["persons"].name, tables["households"].name)
            self._keep()
            relation = self.connection.sql(self._stacked())
        name = tables["households"].name
        return Relation(name, relation, (), self.connection, where=lambda _: f"a row of {name}")

    def _view(self, name: str, source: Any) -> Relation:
        """Return the table of persons or of households as a view with row numbers."""
        table = open_table(source, self.connection)
        needed = self._columns(name)
        require(table, needed)
        if isinstance(table, Relation) and isinstance(source, str | Path):
            relation = table.relation
        else:  # of another connection, or in memory
            self.connection.register(f"{name}_held", dict(table.select(needed)))
            relation = self.connection.table(f"{name}_held")
        columns = ", ".join(map(quoted, needed))
        relation.project(f"{columns}, row_number() OVER () AS {ROW}").create_view(f"{name}_given")
        given = self.connection.table(f"{name}_given")
        return Relation(table.name, given, (), self.connection, where=table.row)

    def _columns(self, name: str) -> list[str]:
        if name == "households":
            keys = [level.column for level in self.spec.levels if level.column]
            own = [p.column or p.name for p in self.parts(self.join.counts)]
            return list(dict.fromkeys([self.join.id, *keys, *own]))
        own = [p.column or p.name for p in (*self.parts(self.spec.table.counts), *self.parts(REFERENCE))]
        who = [self.join.reference.column] if self.join.reference else []
        return list(dict.fromkeys([self.join.id, *own, *who]))

    def _read_households(self, table: Relation) -> None:
        """Register one row for each household: its identifier, its place, and its attribute values."""
        keys = [level.column for level in self.spec.levels if level.column]
        columns = [f"given.{quoted(key)}" for key in dict.fromkeys(keys)]
        parts = self.parts(self.join.counts)
        columns += [f"{position_sql(p, table)} AS {quoted('at ' + p.name)}" for p in parts]
        unit = text_sql(table, self.join.id)
        self._make(
            "household",
            f"SELECT {', '.join([f'{unit} AS unit', *columns])}, given.{ROW} FROM households_given AS given",
        )
        self._refuse_outside(table, "household", parts)
        if self._first("SELECT 1 FROM household WHERE unit IS NULL LIMIT 1"):
            (row,) = self._first(f"SELECT min({ROW}) FROM household WHERE unit IS NULL")
            raise DataError(
                f"column '{self.join.id}' has no value in {table.row(int(row))}",
                needed="a value in every row",
                about=LINKS,
            )

    def _read_persons(self, table: Relation) -> None:
        """Count persons by household, own attribute values, and attribute values of the reference person."""
        own, of_reference = self.parts(self.spec.table.counts), self.parts(REFERENCE)
        who = self.join.reference
        is_reference = (
            f"({text_sql(table, who.column)} = {literal(plain_text(who.value))})" if who else "false"
        )
        positions = [f"{position_sql(p, table)} AS {quoted('at ' + p.name)}" for p in own]
        positions += [
            f"CASE WHEN coalesce({is_reference}, false) THEN {position_sql(p, table)} ELSE 0 END AS {quoted('at ' + p.name)}"
            for p in of_reference
        ]
        unit = text_sql(table, self.join.id)
        rows = ", ".join([f"{unit} AS unit", f"coalesce({is_reference}, false) AS is_reference", *positions])
        self.connection.execute(
            f"CREATE TEMP VIEW person AS SELECT {rows}, given.{ROW} FROM persons_given AS given"
        )
        index = "0"
        for part in (*own, *of_reference):
            index = f"({index}) * {len(part.values)} + {quoted('at ' + part.name)}"
        index = f"({index}) * 2 + CAST(is_reference AS INTEGER)"
        self._make(
            "everybody",
            f"SELECT unit, CAST({index} AS BIGINT) AS cell, count(*) AS count FROM person GROUP BY ALL",
        )
        if self._first("SELECT 1 FROM everybody WHERE cell IS NULL LIMIT 1"):
            self._refuse_outside(table, "person", [*own, *of_reference])

    def _refuse_outside(self, table: Relation, name: str, parts: list[AttributePart]) -> None:
        """Refuse a row with a value outside the domain of its attribute, and state the row's number."""
        for part in parts:
            at = quoted("at " + part.name)
            row = self._first(f"SELECT min({ROW}) FROM {name} WHERE {at} IS NULL")
            if row and row[0] is not None:
                where = f"column '{part.column or part.name}', {table.row(int(row[0]))}"
                said = f"{where}, holds no value of the domain of '{part.name}'"
                raise outside_domain(part, said, of_counts=False)

    def _set_apart(self, persons: str, households: str) -> None:
        """Refuse persons and households that do not link, or count and leave them out if the spec says so."""
        person, household = self.spec.table.counts, self.join.counts
        self._make(
            "held",
            "SELECT unit, sum(count) AS persons, sum(CASE WHEN cell % 2 = 1 THEN count ELSE 0 END) AS referred "
            "FROM everybody WHERE unit IS NOT NULL GROUP BY unit",
        )
        self._make("listed", "SELECT unit, count(*) AS times FROM household GROUP BY unit")
        referred = "SELECT count(*) FROM held JOIN listed USING (unit) WHERE referred {} AND " + str(
            bool(self.join.reference)
        )
        apart = {
            "persons without a household": "SELECT sum(count) FROM everybody WHERE unit IS NULL",
            "persons of unknown households": "SELECT sum(persons) FROM held ANTI JOIN listed USING (unit)",
            "households without persons": "SELECT count(*) FROM listed ANTI JOIN held USING (unit)",
            "households listed twice": "SELECT count(*) FROM listed WHERE times > 1",
            "households without a reference person": referred.format("= 0"),
            "households with several reference persons": referred.format("> 1"),
        }
        for name, query in apart.items():
            if not (found := self._first(query)[0] or 0):
                continue
            if name not in self.join.apart:
                raise DataError(
                    f"there are {self._said(name)}, in the column '{self.join.id}' of {persons} and {households}",
                    needed=f"every {person} in one {household}, and every {household} listed once, with its {person}s"
                    + (f" and one reference {person}" if self.join.reference else ""),
                    remedy=f'correct the tables, or have them counted apart: apart = ["{name}"] under [table.join]',
                    about=LINKS,
                )
            self.limit.apart[name] = int(found)
        one = " AND referred = 1" if self.join.reference else ""
        self._make("linked", f"SELECT unit FROM held JOIN listed USING (unit) WHERE times = 1{one}")
        self._make("named", "SELECT unit, cell, count FROM everybody SEMI JOIN linked USING (unit)")

    def _said(self, name: str) -> str:
        return (
            name.replace("households", f"{self.join.counts}s")
            .replace("household", self.join.counts)
            .replace("persons", f"{self.spec.table.counts}s")
        )

    def _keep(self) -> None:
        """Keep at most as many persons of each household as the limit allows, and count them."""
        first = "cell % 2 DESC, " if self.join.reference else ""
        self._make("kept", kept_sql(self.limit, first=first))
        given, kept = (self._first(f"SELECT coalesce(sum(count), 0) FROM {t}")[0] for t in ("named", "kept"))
        self.limit.dropped = int(given - kept)
        width = 2 * prod(len(p.values) for p in self.parts(REFERENCE))
        numbers = [f"sum(count) AS {quoted('all')}"]
        for part in (part for part in self.join.attributes if part.persons):
            inside = ", ".join(map(str, self._inside(part)))
            number_of = f"sum(count) FILTER (WHERE cell // {width} IN ({inside}))"
            numbers.append(f"coalesce({number_of}, 0) AS {quoted(part.name)}")
        numbers.append(f"max(CASE WHEN cell % 2 = 1 THEN cell % {width} ELSE 0 END) AS reference")
        self._make("counted", f"SELECT unit, {', '.join(numbers)} FROM kept GROUP BY unit")

    def _inside(self, part: AttributePart) -> list[int]:
        """Return the positions of the kinds of persons whose number is an attribute of households."""
        link = next(x for x in self.joined.links if x.attribute == part.name)
        attributes = self.joined.persons.own
        (at,) = [i for i, a in enumerate(attributes) if any(r.name == link.counted for r in a.recodes)]
        yes = next(r for r in attributes[at].recodes if r.name == link.counted).groups
        below = prod(a.size for a in attributes[at + 1 :])
        return [k for k in range(self.joined.persons.size) if yes[k // below % attributes[at].size] == 0]

    def _stacked(self) -> str:
        """Return SQL for one row per remaining person and per household, with the label of its record."""
        keys = list(dict.fromkeys(level.column for level in self.spec.levels if level.column))
        shared = [
            f"[{', '.join(map(literal, part.values))}][CAST({self._value(part)} + 1 AS INTEGER)] AS {quoted(part.name)}"
            for part in self.join.attributes
            if part.name in [a.name for a in self.joined.persons.shared]
        ]
        columns = ", ".join([*(f"household.{quoted(key)}" for key in keys), *shared])
        columns = f"{columns}, " if columns else ""
        values = self.spec.attributes[0].values
        width = 2 * prod(len(p.values) for p in self.parts(REFERENCE))
        labels = f"[{', '.join(map(literal, values))}]"
        start, index = self.joined.households.start, "0"
        own = [p for p in self.join.attributes if p.name in [a.name for a in self.joined.households.own]]
        for part in own:
            index = f"({index}) * {len(part.values)} + ({self._value(part)})"
        person = f"{labels}[CAST(cell // {width} + 1 AS INTEGER)] AS {quoted(RECORD)}"
        household = f"{labels}[CAST({start} + {index} + 1 AS INTEGER)] AS {quoted(RECORD)}"
        each = "(SELECT unit, cell, unnest(range(CAST(count AS BIGINT))) AS ordinal FROM kept)"
        return (
            f"SELECT {columns}{person} FROM {each} JOIN counted USING (unit) JOIN household USING (unit) "
            f"UNION ALL SELECT {columns}{household} FROM counted JOIN household USING (unit)"
        )

    def _value(self, part: AttributePart) -> str:
        """Return SQL for a household's value of an attribute, as a position in the attribute's domain."""
        if part.persons is not None:
            held = quoted("all") if not part.persons else quoted(part.name)
            return f"least(counted.{held} - {persons_of(part.values[0])}, {len(part.values) - 1})"
        if part.of == REFERENCE:
            parts = self.parts(REFERENCE)
            below = 2 * prod(len(p.values) for p in parts[parts.index(part) + 1 :])
            return f"counted.reference // {below} % {len(part.values)}"
        return f"household.{quoted('at ' + part.name)}"

    def _make(self, name: str, query: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {query}")

    def _first(self, query: str) -> Any:
        return next(iter(self.connection.execute(query).fetchall()), None)
