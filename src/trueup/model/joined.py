"""Two linked tables in one table of records: which records belong to which table, and their links.

Let `H` be the counts of households and `P` those of persons at a place, for each combination `t` of attributes that
both tables have. Every household of size s holds s persons, so

    sum over s of  s H[s, t]  =  P[t],        sum over c of  c H[c, t]  =  P[t, those who are counted by c],

one equation for every attribute that counts persons. Where its last value is a top code ("7+"), that many persons is
the least that its households hold: then the left side is at most the right one. Both sides add up over places, so that
rules which hold at the places of the last level hold above. Sizes begin at one: no household is without a person.

One file: the rules, the sums of persons and the impossible households are three readings of the same links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.linear import Linear, parse_linear
from trueup.model.names import COUNTED_UNIT
from trueup.model.reading import Reading, plain_attribute
from trueup.model.spec import Spec
from trueup.model.spec_table import AttributePart
from trueup.model.stacking import RECORD
from trueup.model.tree import Tree

APART = "as households tell persons apart"
"""The recode of persons by the sets that households count without a top code."""
ROOT = Tree.from_columns(["all"], [{}])


@dataclass(frozen=True)
class RecordTable:
    """The kinds of records that belong to one of two linked tables.

    Attributes
    ----------
    counts
        The unit that one of the table's records stands for.
    own
        Its own attributes: its records are their combinations, in order.
    shared
        Those of both tables.
    start
        Position of its first record among the values of `record`.
    """

    counts: str
    own: tuple[Attribute, ...]
    shared: tuple[Attribute, ...]
    start: int

    @property
    def size(self) -> int:
        """Return the number of kinds of records in the table."""
        return prod(a.size for a in self.own)

    def cells(self, tree: Tree) -> Cells:
        """Return the cells of this table on its own."""
        return Cells(tree, (*self.own, *self.shared))

    def of(self, counts: NDArray, records: int) -> NDArray:
        """Return this table's part `(..., own cells)` of counts `(..., n)` of all records."""
        held = counts.reshape(*counts.shape[:-1], -1, records, prod(a.size for a in self.shared))
        return held[..., self.start : self.start + self.size, :].reshape(*counts.shape[:-1], -1)


@dataclass(frozen=True)
class PersonsLink:
    """A link between two tables: the number of persons in a household of each kind.

    Attributes
    ----------
    attribute
        The attribute of households that counts persons.
    counted
        The recode of persons whose group `yes` it counts; None where it counts them all.
    persons
        `(kinds of households,)`: how many of them a household of each kind holds, at least.
    exact
        True if a household holds no more persons than this number.
    """

    attribute: str
    counted: str | None
    persons: NDArray[np.int64]
    exact: bool


@dataclass(frozen=True, eq=False)
class PersonsHeld:
    """The numbers of persons, by kind of person, in households of each kind.

    Attributes
    ----------
    attributes
        The attributes by which these persons are told apart: at most one recode of their own, and those of both tables.
    weights
        `(groups of the recode, kinds of households)` persons.
    """

    attributes: tuple[str, ...]
    weights: NDArray[np.int64]

    def held(self, households: NDArray) -> NDArray:
        """Return the numbers of persons `(..., groups)` in households whose counts by kind are given."""
        table = households.reshape(*households.shape[:-1], self.weights.shape[1], -1)
        found = np.einsum("gk,...ks->...gs", self.weights, table)
        return found.reshape(*households.shape[:-1], -1)


@dataclass(frozen=True, eq=False)
class LinkedTables:
    """A table of persons and a table of households, with the links between them.

    Attributes
    ----------
    persons, households
        The tables.
    links
        The links between the tables; that of all persons of a household comes first.
    views
        For every recode of `record` that keeps records of one table apart, the attributes and recodes of that table.
    most
        Largest number of persons that a household keeps.
    """

    persons: RecordTable
    households: RecordTable
    links: tuple[PersonsLink, ...]
    views: dict[str, tuple[str, ...]]
    most: int

    @classmethod
    def of(cls, spec: Spec | Reading) -> LinkedTables | None:
        """Return the tables that a spec links, or None if it has one table."""
        join = getattr(spec.table, "join", None)  # published tables of others have a name alone
        if join is None:
            return None
        shared = tuple(map(plain_attribute, spec.attributes[1:]))
        names = [a.name for a in shared]
        parts = [part for part in join.attributes if part.name not in names]
        person = spec.table.counts
        own = [[p for p in parts if (p.of == person) is kind] for kind in (True, False)]
        persons = RecordTable(person, tuple(map(plain_attribute, own[0])), shared, 0)
        counting = sorted((p for p in own[1] if p.persons is not None), key=lambda p: bool(p.persons))
        persons = RecordTable(person, tuple(_counted(p, counting) for p in own[0]), shared, 0)
        households = RecordTable(
            join.counts, tuple(_halved(p, join.views) for p in own[1]), shared, persons.size
        )
        links = tuple(_link(part, households) for part in counting)
        kept = spec.privacy.contribution
        assert kept is not None, "a spec of two tables says how many persons a household keeps"
        return cls(persons, households, links, join.views, kept.records)

    @property
    def tables(self) -> tuple[RecordTable, RecordTable]:
        """Return the table of persons, then that of households."""
        return self.persons, self.households

    @property
    def records(self) -> int:
        """Return the number of kinds of records in both tables."""
        return self.persons.size + self.households.size

    def table(self, margin: Margin) -> RecordTable:
        """Return the one of the two tables whose units a margin counts."""
        counted = dict(margin.where[0])[COUNTED_UNIT]
        return next(t for t in self.tables if t.counts == counted)

    def own_margin(self, margin: Margin) -> Margin:
        """Return a margin of all records as a margin of the table that it counts."""
        table, names = self.table(margin), []
        for name in margin.attributes:
            if name == RECORD:
                names += [a.name for a in table.own]
            else:
                names += self.views.get(name, (name,))
        return Margin(margin.level, tuple(names))

    @cached_property
    def rules(self) -> tuple[Linear, ...]:
        """Return the linear rules that link the tables."""
        combined = product(*([(a.name, v) for v in a.values] for a in self.persons.shared))
        return tuple(
            self._rule(link, "".join(f", {name}={value}" for name, value in held))
            for held in combined
            for link in self.links
        )

    def _rule(self, link: PersonsLink, where: str) -> Linear:
        attribute = next(a for a in self.households.own if a.name == link.attribute)
        name = link.attribute if link.attribute in self.views else RECORD
        left = " + ".join(
            f"{persons_of(value)} * '{name}={self._label(name, value)}{where}'"
            for value in attribute.values
            if persons_of(value)
        )
        right = f"{COUNTED_UNIT}={self.persons.counts}" if link.counted is None else f"{link.counted}=yes"
        return parse_linear(f"{left} {'==' if link.exact else '<='} '{right}{where}'")

    def _label(self, view: str, value: str) -> str:
        """Return a value's name in the combined table: the value, or `households: attribute=value` for a kind of record."""
        return value if view != RECORD else f"{self.households.counts}: {self.households.own[0].name}={value}"

    @cached_property
    def determined(self) -> PersonsHeld | None:
        """Return the numbers of persons in each household kind that exact links determine, or None.

        The sets of persons that exact links count lie within each other or apart (which is checked when the spec is read):
        each set without those within it is a group of its own, and what a household holds of it is a difference.
        """
        if not self.links[0].exact:
            return None
        sets = [link for link in self.links if link.exact]
        _, weights = self._apart(sets)
        names = tuple(a.name for a in self.persons.shared)
        return PersonsHeld((APART, *names) if sets[1:] else names, weights)

    @cached_property
    def demands(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each person kind's set, and the least number of persons by set and household kind.

        Sets are as the links tell persons apart, those with a top code too.
        """
        order, weights = self._apart(list(self.links))
        inside = np.stack([self.inside(self.links[i]) for i in order])
        return np.max(np.arange(len(order))[:, None] * inside, axis=0), weights

    def _apart(self, sets: list[PersonsLink]) -> tuple[list[int], NDArray[np.int64]]:
        """Return sets, largest first, and persons `(sets, household kinds)` that are in no smaller set."""
        inside = [self.inside(link) for link in sets]
        order = sorted(range(len(sets)), key=lambda i: -inside[i].sum())
        weights = np.stack([sets[i].persons for i in order])
        for row, i in enumerate(order):
            within = [r for r in range(row + 1, len(order)) if _directly(inside, order, row, r)]
            weights[row] = sets[i].persons - sum(
                (sets[order[r]].persons for r in within), np.zeros_like(weights[0])
            )
        return order, weights

    @cached_property
    def least(self) -> tuple[PersonsHeld, ...]:
        """Return, for each link with a top code, the smallest number of persons in each household kind."""
        names, found = tuple(a.name for a in self.persons.shared), []
        for link in (link for link in self.links if not link.exact):
            if link.counted is None:
                found.append(PersonsHeld(names, link.persons[None]))
            else:
                found.append(PersonsHeld((link.counted, *names), np.stack([link.persons, 0 * link.persons])))
        return tuple(found)

    def inside(self, link: PersonsLink) -> NDArray[np.bool_]:
        """Return a mask of the kinds of persons that a link counts."""
        if link.counted is None:
            return np.ones(self.persons.size, bool)
        return self.persons.cells(ROOT).where({link.counted: "yes"}).reshape(self.persons.size, -1)[:, 0]

    @cached_property
    def zeros(self) -> tuple[dict[str, str], ...]:
        """Return the impossible household kinds, which hold more persons of some set than in all, as structural zeros."""
        names = [a.name for a in self.households.own]
        kinds = list(product(*(a.values for a in self.households.own)))
        never = (self.determined.weights < 0).any(axis=0) if self.determined else np.zeros(len(kinds), bool)
        return tuple(dict(zip(names, kinds[k])) for k in np.flatnonzero(never))

    def record_of(self, kind: dict[str, str]) -> dict[str, str]:
        """Return a household kind as a condition on the combined table of records."""
        named = ", ".join(f"{name}={value}" for name, value in kind.items())
        return {RECORD: f"{self.households.counts}: {named}"}


def _directly(inside: list[NDArray[np.bool_]], order: list[int], outer: int, inner: int) -> bool:
    """Return True if set `inner` lies in set `outer` with no set of the list between them."""
    held = [inside[i] for i in order]
    between = any(
        (held[inner] <= held[r]).all() and (held[r] <= held[outer]).all() for r in range(outer + 1, inner)
    )
    return bool((held[inner] <= held[outer]).all()) and not between


def persons_of(value: str) -> int:
    """Return the smallest number of persons that a value such as `7+` of a counting attribute stands for.

    Examples
    --------
    >>> persons_of("3"), persons_of("7+")
    (3, 7)
    """
    return int(value.removesuffix("+"))


def _counted(part: AttributePart, counting: list[AttributePart]) -> Attribute:
    """Return a person attribute with a two-group recode for each set of values that a household attribute counts."""
    attribute, recodes = plain_attribute(part), []
    for count in counting:
        for name, values in (count.persons or {}).items():
            view = next((r for r in attribute.views if r.name == name), None)
            if view is not None:
                wanted = [values] if isinstance(values, str) else values
                inside = [v for v, g in zip(part.values, view.groups) if view.values[g] in wanted]
                rest = [v for v in part.values if v not in inside]
                recodes.append(
                    Recode.of(f"counted in {count.name}", {"yes": inside, "no": rest}, part.values)
                )
    exact = [f"counted in {c.name}" for c in counting if not c.values[-1].endswith("+")]
    inside = [np.array(r.groups) == 0 for r in recodes if r.name in exact]
    sets = sorted(inside, key=lambda held: -held.sum())
    if sets:
        apart = np.max([(i + 1) * held for i, held in enumerate(sets)], axis=0)
        labels = tuple(str(i) for i in range(len(sets) + 1))
        recodes.append(Recode(APART, labels, tuple(apart.tolist())))
    return Attribute(attribute.name, attribute.values, attribute.partition, (*attribute.recodes, *recodes))


def _halved(part: AttributePart, views: dict[str, tuple[str, ...]]) -> Attribute:
    """Return a household attribute with a recode into below `k` and `k` or more for every `k` that is measured."""
    attribute, named = plain_attribute(part), {name for names in views.values() for name in names}
    halves = [
        Recode(
            f"{part.name} >= {persons_of(v)}",
            (f"below {v}", f"{v} or more"),
            tuple(int(i >= k) for i in range(attribute.size)),
        )
        for k, v in enumerate(part.values)
        if part.persons is not None and f"{part.name} >= {v.removesuffix('+')}" in named
    ]  # fmt: skip
    return Attribute(attribute.name, attribute.values, attribute.partition, (*attribute.recodes, *halves))


def _link(part: AttributePart, households: RecordTable) -> PersonsLink:
    at = [a.name for a in households.own].index(part.name)
    persons = np.indices([a.size for a in households.own])[at].ravel()
    held = np.array([persons_of(v) for v in part.values])
    counted = f"counted in {part.name}" if part.persons else None
    return PersonsLink(part.name, counted, held[persons], not part.values[-1].endswith("+"))
