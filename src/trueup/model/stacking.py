"""Rewriting of a spec with two linked tables as a spec of one table that holds both kinds of records.

A spec with `[table.join]` counts persons and the households that they live in. Its attributes belong to persons, to
households or to the household's reference person, or count the persons of a household. Here they become attributes of
one table of records: `record` says what a record is (a person of some age, a household of some size), its recodes are
the attributes of one table alone with one group more for the records of the other, and attributes of the household by
which persons are counted too stay attributes of their own, of both. A query counts the records of one table by
`where = { counted = ... }`. All else of a spec means what it means of one table.

A query that is cumulative over an ordered attribute of m values becomes m queries, of the total and of `at least k` for
every k but the first, with an m-th of the budget each. Of each of these a household moves one count by one, so that m
counts with variance m / (2 rho) each cost rho together, as a vector of squared L2 sensitivity m would. Sizes up to tau
have m = tau, and the persons' total is the sum over k of the households of size at least k: its variance,
`tau * tau / (2 rho)`, is that of a count of persons which was measured alone.

One file: every step reads the same attributes, and what one makes of them the next one names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from trueup.digits import rational
from trueup.model.names import COUNTED_UNIT

RECORD, OTHER = "record", "-"
"""The attribute that tells records apart, and the group of the records of the other table; its recode is `COUNTED_UNIT`."""
REFERENCE = "reference"
"""Whose attribute it is, where it is neither the persons' nor the households' own."""

Values = dict[str, list[str]]


class View(NamedTuple):
    """A query's grouping of an attribute of one table: the values in each group."""

    name: str
    of: str
    groups: Values


def stacked(document: Any) -> Any:
    """Return the document of a spec as one of a single table; unchanged if it links no tables or is malformed."""
    table = document.get("table") if isinstance(document, Mapping) else None
    join = table.get("join") if isinstance(table, Mapping) else None
    if not isinstance(join, Mapping) or "attribute" in join:
        return document
    document = {_WRITTEN.get(name, name): part for name, part in document.items()}
    if not _well_formed(document):
        return document
    try:
        return _Stack(document).document()
    except (KeyError, TypeError, AttributeError):
        raise ValueError(
            "an attribute, a query or a rule of a spec with [table.join] lacks its name, or a field has the wrong type"
        ) from None


_WRITTEN = {"attributes": "attribute", "queries": "query"}
"""Names in the file of the parts of a spec made in Python."""


def _well_formed(document: Mapping) -> bool:
    """Return True if all parts of a document that the rewriting needs have the right types."""
    parts = [document.get(name, ()) for name in ("attribute", "query")]
    lists = all(isinstance(part, Sequence) and all(isinstance(x, Mapping) for x in part) for part in parts)
    return lists and isinstance(document.get("privacy"), Mapping) and "counts" in document["table"]


class _Stack:
    def __init__(self, document: Mapping) -> None:
        self.given = document
        self.table, self.join = document["table"], document["table"]["join"]
        self.person, self.household = self.table["counts"], self.join.get("counts")
        if self.household == self.person:
            raise ValueError(
                f"[table] and [table.join] both count '{self.person}': give each table the name of its own unit as "
                "`counts`"
            )
        self.most = self._most()
        if document["privacy"].get("id") is not None:
            raise ValueError(
                "[privacy] id is given, but [table.join] already names that column: leave it out"
            )
        self.attributes = [self._attribute(part) for part in document.get("attribute", ())]
        self.shared = self._shared()
        self.own = {
            table: [a for a in self.attributes if a["name"] not in self.shared and self._is_of(a, table)]
            for table in (self.person, self.household)
        }
        combined = {
            t: list(product(*(a["values"] for a in self.own[t]))) for t in (self.person, self.household)
        }
        self.records = {
            table: [self._label(table, held) for held in rows] for table, rows in combined.items()
        }
        self.combined = combined
        self.views: dict[str, list[str]] = {}
        self.recodes: dict[str, Values] = {COUNTED_UNIT: dict(self.records)}
        self.views[COUNTED_UNIT] = []

    def _most(self) -> int:
        """Return the largest number of persons of one household that are counted."""
        held = self.given["privacy"].get("contribution")
        most = held.get("records") if isinstance(held, Mapping) else held
        if isinstance(most, int) and not isinstance(most, bool) and most >= 1:
            return most
        given = "" if most is None else f", 1 or more, not {most!r}"
        raise ValueError(
            f"[table.join] does not say how many {self.person}s of one {self.household} are kept{given}: write "
            f"contribution = {{ records = ... }} under [privacy]"
        )

    def _attribute(self, part: Mapping) -> dict[str, Any]:
        held = {"of": self.person, **part}
        if held["of"] not in (self.person, self.household, REFERENCE):
            raise ValueError(
                f"attribute '{held.get('name')}' belongs to '{held['of']}', which is none of the tables: write of = "
                f"'{self.person}', '{self.household}' or '{REFERENCE}'"
            )
        if held["of"] == REFERENCE and "reference" not in self.join:
            raise ValueError(
                f"attribute '{held.get('name')}' is of the reference {self.person}, but [table.join] does not say who "
                f"that is: add reference = {{ column = ..., value = ... }}"
            )
        if "persons" in held:
            held = {"values": [str(k) for k in range(0 if held["persons"] else 1, self.most + 1)], **held}
            held["of"] = self.household
        return held

    def _is_of(self, attribute: Mapping, table: str) -> bool:
        return (attribute["of"] == self.person) == (table == self.person)

    def _shared(self) -> list[str]:
        """Return the household attributes by which queries count persons."""
        views = {name: a for a in self.attributes for name in self._views_of(a)}
        found = []
        for query in self.given.get("query", ()):
            if query.get("counts", self.person) != self.person:
                continue
            for name in query.get("attributes", ()):
                attribute = views.get(name)
                if attribute is not None and "persons" in attribute:
                    raise ValueError(
                        f"query '{query.get('name')}' counts {self.person}s by '{name}', a number of {self.person}s in "
                        f"a {self.household}: count {self.household}s by '{name}' instead"
                    )
                if attribute is not None and attribute["of"] != self.person:
                    found.append(attribute["name"])
        return [a["name"] for a in self.attributes if a["name"] in found]

    @staticmethod
    def _views_of(attribute: Mapping) -> dict[Any, Values]:
        """Return the values in every group of an attribute and of its recodes, by name."""
        own = {attribute.get("name"): {v: [v] for v in attribute.get("values", ())}}
        return own | {r.get("name"): dict(r.get("groups", {})) for r in attribute.get("recode", ())}

    def _label(self, table: str, held: Sequence[str]) -> str:
        named = ", ".join(f"{a['name']}={v}" for a, v in zip(self.own[table], held))
        return f"{table}: {named}" if named else table

    def document(self) -> dict[str, Any]:
        counted = self._counted()
        queries = [each for query in self.given.get("query", ()) for each in self._queries(query)]
        for link in counted:  # rules between the tables name these
            self.view(self.household, [View(link["name"], link["name"], self._views_of(link)[link["name"]])])
            for name, values in link["persons"].items():
                self.view(self.person, [self._condition(link, name, values)])
        constraints = self._constraints()
        record = {
            "name": RECORD,
            "values": [*self.records[self.person], *self.records[self.household]],
            "recode": [{"name": name, "groups": groups} for name, groups in self.recodes.items()],
        }
        shared = [
            {k: v for k, v in a.items() if k not in ("of", "column")}
            for a in self.attributes
            if a["name"] in self.shared
        ]
        join = {**self.join, "attribute": self.attributes, "views": self.views}
        return {
            **self.given,
            "table": {**self.table, "join": join},
            "attribute": [record, *shared],
            "query": queries,
            "constraints": constraints,
        }

    def _counted(self) -> list[dict[str, Any]]:
        """Return the attributes that count persons; the one that counts all persons comes first."""
        found = [a for a in self.attributes if "persons" in a]
        if len([a for a in found if not a["persons"]]) != 1:
            raise ValueError(
                f"[table.join] needs an attribute with the number of {self.person}s in a {self.household}: add "
                f'[[attribute]] name = "size", persons = {{}}'
            )
        self._refuse_crossed(found)
        return sorted(found, key=lambda a: bool(a["persons"]))

    def _refuse_crossed(self, counted: Sequence[Mapping]) -> None:
        """Refuse sets of counted persons that partly overlap."""
        views = [self._condition(a, *pair) for a in counted for pair in a["persons"].items()]
        for one, other in combinations(views, 2):
            sets = [set(view.groups["yes"]) for view in (one, other)]
            nested = sets[0] <= sets[1] or sets[1] <= sets[0] or not sets[0] & sets[1]
            if one.of != other.of or not nested or sets[0] == sets[1]:
                raise ValueError(
                    f"the groups of values of '{one.name}' and '{other.name}' partly overlap: choose groups that are "
                    "nested or have no value in common"
                )
        size = next((a for a in counted if not a["persons"]), None)
        exact = [a["name"] for a in counted if a["persons"] and not _topped(a)]
        if size is not None and _topped(size) and exact:
            raise ValueError(
                f"'{size['name']}' has a top code but '{exact[0]}' has none: list every value up to {self.most} in "
                f"'{size['name']}', and group them by a recode"
            )
        for part in counted:
            first, values = (0 if part["persons"] else 1), [str(v) for v in part["values"]]
            wanted = [str(first + k) for k in range(len(values))]
            top = first + len(values) - 1
            if _topped(part):
                wanted[-1] += "+"
            if (
                values != wanted
                or len(values) < 2
                or (top != self.most and not _topped(part))
                or top > self.most
            ):
                raise ValueError(
                    f"the values of '{part['name']}' must run from '{first}' to '{self.most}', or to a top code such as "
                    "'7+': leave them out to have all of them"
                )

    def _condition(self, link: Mapping, name: str, values: Any) -> View:
        """Return the grouping of persons into those that an attribute counts and the others."""
        attribute = next((a for a in self.own[self.person] if name in self._views_of(a)), None)
        where = f"attribute '{link['name']}'"
        if attribute is None or len(link["persons"]) != 1:
            raise ValueError(
                f"{where} counts {self.person}s by '{name}': name one attribute of the {self.person}s, or a recode of one"
            )
        groups, wanted = (
            self._views_of(attribute)[name],
            [values] if isinstance(values, str) else list(values),
        )
        if unknown := [v for v in wanted if v not in groups]:
            raise ValueError(
                f"{where} counts {self.person}s with the value '{unknown[0]}', which '{name}' does not have: name one of "
                f"{', '.join(map(str, groups))}"
            )
        inside = [v for group in wanted for v in groups[group]]
        rest = [v for v in attribute["values"] if v not in inside]
        if not inside or not rest:
            raise ValueError(
                f"{where} counts {'all' if inside else 'none'} of the {self.person}s: leave it out"
            )
        return View(f"counted in {link['name']}", attribute["name"], {"yes": inside, "no": rest})

    def view(self, table: str, parts: Sequence[View]) -> str:
        """Return the name of the recode of records that tells apart the groups of some attributes of one table."""
        if not parts:
            return COUNTED_UNIT
        names = [a["name"] for a in self.own[table]]
        parts = sorted(parts, key=lambda part: names.index(part.of))
        owners = [names.index(part.of) for part in parts]
        if len(set(owners)) < len(owners):
            raise ValueError(
                f"'{parts[0].name}' and '{parts[1].name}' are the same attribute: name one of them"
            )
        name = " x ".join(part.name for part in parts)
        records, combined = self.records[table], self.combined[table]
        held = [
            {label: {i for i, of in enumerate(combined) if of[at] in own} for label, own in p.groups.items()}
            for p, at in zip(parts, owners)
        ]
        groups: Values = {
            ", ".join(labels): [
                records[i] for i in sorted(set.intersection(*map(dict.__getitem__, held, labels)))
            ]
            for labels in product(*(p.groups for p in parts))
        }
        other = self.household if table == self.person else self.person
        groups[OTHER] = self.records[other]
        if all(len(held) == 1 for held in groups.values()):
            return RECORD
        self.views[name] = [part.name for part in parts]
        self.recodes[name] = groups
        return name

    def _queries(self, query: Mapping) -> list[dict[str, Any]]:
        held = dict(query)
        table, cumulative = held.pop("counts", self.person), held.pop("cumulative", None)
        where = f"query '{held.get('name')}'"
        if table not in (self.person, self.household):
            raise ValueError(
                f"{where} counts '{table}': write counts = '{self.person}' or counts = '{self.household}'"
            )
        own, shared = self._named(table, held.get("attributes", ()), where)
        if cumulative is None:
            return [self._query(held, table, own, shared)]
        values = next((list(part.groups) for part in own if part.name == cumulative), None)
        if values is None or cumulative not in (a["name"] for a in self._counted()):
            raise ValueError(
                f"{where} is cumulative over '{cumulative}', which is not a number of {self.person}s among its "
                "attributes: name one that is"
            )
        if "rho" not in held:
            raise ValueError(
                f"{where} is cumulative, which with epsilon costs {len(values)} times the budget without a gain: give "
                "`rho` instead"
            )
        rest = [part for part in own if part.name != cumulative]
        each = {**held, "rho": _divided_amount(held["rho"], len(values))}
        found = [self._query({**each, "name": f"{held.get('name')}: all"}, table, rest, shared)]
        for k in range(1, len(values)):
            name = f"{cumulative} >= {values[k].removesuffix('+')}"
            halves = View(
                name, cumulative, {f"below {values[k]}": values[:k], f"{values[k]} or more": values[k:]}
            )
            named = {**each, "name": f"{held.get('name')}: {name}"}
            found.append(self._query(named, table, [*rest, halves], shared))
        return found

    def _named(self, table: str, names: Sequence[str], where: str) -> tuple[list[View], list[str]]:
        """Return the groupings that a query names for its own table, and the names of attributes of both tables."""
        own, shared = [], []
        for name in names:
            attribute = next((a for a in self.attributes if name in self._views_of(a)), None)
            if attribute is not None and attribute["name"] in self.shared:
                shared.append(name)
            elif attribute is not None and attribute in self.own[table]:
                own.append(View(name, attribute["name"], self._views_of(attribute)[name]))
            elif attribute is not None:
                raise ValueError(
                    f"{where} counts {table}s by '{name}', which they do not have: leave it out, or count the other table"
                )
            else:
                known = ", ".join(a["name"] for a in self.attributes)
                raise ValueError(f"{where} names the unknown attribute '{name}'; declared: {known}")
        return own, shared

    def _query(self, held: Mapping, table: str, own: Sequence[View], shared: Sequence[str]) -> dict[str, Any]:
        return {**held, "attributes": [self.view(table, own), *shared], "where": {COUNTED_UNIT: table}}

    def _constraints(self) -> dict[str, Any]:
        given = dict(self.given.get("constraints", {}))
        if refused := [name for name in ("invariants", "bounds", "linear") if given.get(name)]:
            raise ValueError(
                f"constraints.{refused[0]} is not available with [table.join]: leave it out; the rules that link the "
                "two tables hold without it, and `zeros` may be given"
            )
        if not given.get("nonnegative", True):
            raise ValueError("counts of two linked tables are never negative: leave out nonnegative = false")
        if "zeros" in given:
            given["zeros"] = [each for zero in given["zeros"] for each in self._zeros(zero)]
        return given

    def _zeros(self, zero: Mapping[str, str]) -> list[dict[str, str]]:
        """Return a structural zero of one table as conditions on all kinds of records with the given values."""
        both = {name: value for name, value in zero.items() if name in self.shared}
        rest = {name: value for name, value in zero.items() if name not in both}
        if not rest:
            return [both]
        table = next(
            (t for t in self.own if set(rest) <= {a["name"] for a in self.own[t]}),
            None,
        )
        if table is None:
            raise ValueError(
                f"a structural zero names '{next(iter(rest))}' together with attributes of the other table: name "
                "attributes of one table"
            )
        names = [a["name"] for a in self.own[table]]
        found = [
            {RECORD: record, **both}
            for record, held in zip(self.records[table], self.combined[table])
            if all(held[names.index(name)] == value for name, value in rest.items())
        ]
        if not found:
            raise ValueError(
                f"a structural zero names a value that '{next(iter(rest))}' does not have: name one of its values"
            )
        return found


def _topped(part: Mapping) -> bool:
    """Return True if the last value of an attribute that counts persons is a top code, such as `7+`."""
    return str(part["values"][-1]).endswith("+")


def _divided_amount(amount: Any, parts: int) -> Any:
    if isinstance(amount, Mapping):
        return {level: _divided_amount(each, parts) for level, each in amount.items()}
    return str(rational(amount, "the budget") / parts)
