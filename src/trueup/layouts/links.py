"""Links between the persons and households of a place, and changes of counts that satisfy them.

Two tables of records that `[table.join]` links, or counts of persons and households at every place under rules such as

    k households <= persons <= K households.

Each such pair of rules has two slacks, `persons - k households` and `K households - persons`, whose sum is (K - k) households:
of the places that households leave for further persons, so many are taken. They are a pool of two columns: persons given
households are beta-binomial around the share of the place above, and kinds of persons are a pool of all persons. So small
groups borrow persons per household from the places around them, where a flat prior on the counts pulls their ratio towards the
middle of what the rules allow.

Of two linked tables, households are the free pool, and persons are pools of the sets whose numbers households determine. Where
the size has a top code, the persons beyond it are slacks of the same kind: a household keeps a known number at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import cell_groups
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints, name_mask
from trueup.model.joined import ROOT, LinkedTables
from trueup.model.linear import Linear

Integers = NDArray[np.int64]
DIVISIONS_A_HOUSEHOLD, EXCHANGES = 3, 6
"""Divisions among kinds of persons that are drawn for each household, and exchanges with others that are drawn for it."""
MAX_PERSON_CHANGE = 2
"""Two households are changed into two that hold as many persons where one of them changes by so many at most."""
MAX_EXTRA_PERSONS = 4
"""Households are tried with so many persons above the least, at most."""


class PlaceLinks(NamedTuple):
    """The links among the `n` cells of a place, with `m` slack variables for inequalities.

    Attributes
    ----------
    slack
        `(m, n)` slacks as sums of cells: these are at least zero.
    pools
        Columns of each pool; the free one first.
    persons
        For each slack, the columns of the persons that it counts.
    changes
        `(k, n)` changes of the cells that keep every equality.
    linked
        Persons and households whose ratio is watched.
    """

    slack: Integers
    persons: tuple[Integers, ...]
    pools: tuple[Integers, ...]
    changes: Integers
    linked: tuple[tuple[Integers, Integers], ...]

    @property
    def moves(self) -> Integers:
        """Return the changes `(k, n + m)` of the `n` cells and the `m` slack variables."""
        return np.hstack([self.changes, self.changes @ self.slack.T])

    def table(self, cells: Integers) -> Integers:
        """Return the cells and slack variables `(..., n + m)` for cells `(..., n)`."""
        return np.concatenate([cells, cells @ self.slack.T], axis=-1)

    @property
    def pool_of(self) -> Integers:
        """Return, for each of the `n + m` columns, the number of the set that contains it, or -1."""
        found = np.full(sum(self.slack.shape), -1, np.int64)
        for g, columns in enumerate(self.pools):
            found[columns] = g
        return found


def links_of(constraints: Constraints) -> PlaceLinks | str:
    """Return the links of persons and households in a place, or the reason why they cannot be sampled."""
    open_ = ~constraints.zero_combinations
    if constraints.joined is not None:
        return _of_tables(constraints.joined, open_)
    return _of_rules(constraints, open_)


def _of_rules(constraints: Constraints, open_: NDArray[np.bool_]) -> PlaceLinks | str:
    """Return the links that rules `k h <= persons <= K h` state, or the reason why a rule is unsuitable."""
    pairs: dict[tuple, dict[str, int]] = defaultdict(dict)
    last = constraints.cells.tree.levels[-1]
    for rule in constraints.linear:
        found = None if rule.level != last else _sides(constraints.cells, rule.linear)
        if found is None:
            return f"rule '{rule.linear.text}' is not of the form k households <= persons <= K households"
        pairs[found[:2]][found[2]] = found[3]
    held = [j for each in pairs for side in each for j in side]
    if len(set(held)) < len(held) or any(set(limits) != {"least", "most"} for limits in pairs.values()):
        return "counts are not linked by pairs of rules k households <= persons <= K households, each in one"
    return _paired([(np.array(p), np.array(h), x["least"], x["most"]) for (p, h), x in pairs.items()], open_)


def _sides(cells: Cells, rule: Linear) -> tuple[tuple[int, ...], tuple[int, ...], str, int] | None:
    """Return the persons, households, side and factor of a linking rule, or None for any other rule."""
    row = np.sum(
        [float(by) * name_mask(cells, name).ravel() for name, by in rule.coefficients.items()], axis=0
    )
    row = row if rule.sense == ">=" else -row
    above, below = set(row[row > 0].tolist()), set((-row[row < 0]).tolist())
    if rule.bound or rule.sense == "==" or len(above) != 1 or len(below) != 1 or 1.0 not in above | below:
        return None
    side, times = ("least", below.pop()) if above == {1.0} else ("most", above.pop())
    persons, households = (row > 0, row < 0) if side == "least" else (row < 0, row > 0)
    if times != int(times):
        return None
    at = [tuple(np.flatnonzero(each).tolist()) for each in (persons, households)]
    return at[0], at[1], side, int(times)


def _paired(pairs: list[tuple[Integers, Integers, int, int]], open_: NDArray[np.bool_]) -> PlaceLinks:
    """Return the links for pairs of rules, each given as persons, households, smallest and largest ratio."""
    n, rng = len(open_), np.random.default_rng(len(open_))
    slack, pools, changes = [], [], [_unit(n, {j: 1}) for j in np.flatnonzero(open_)]
    for persons, households, least, most in pairs:
        own = persons[open_[persons]]
        pools += [np.array([n + len(slack), n + len(slack) + 1]), own]
        slack += [_unit(n, dict.fromkeys(persons, 1) | dict.fromkeys(households, -least))]
        slack += [_unit(n, dict.fromkeys(persons, -1) | dict.fromkeys(households, most))]
        changes += _swaps(own, n)
        for h, size in product(
            households[open_[households]], range(least, min(least + MAX_EXTRA_PERSONS, most) + 1)
        ):
            changes += [_unit(n, {h: 1}) + each for each in _divisions([(own, size)], n, rng)]
    taken = {j for persons, *_ in pairs for j in persons}
    free = np.array([j for j in np.flatnonzero(open_) if j not in taken], np.int64)
    changes += _swaps(free, n)
    counted = tuple(persons for persons, *_ in pairs for _ in range(2))
    linked = tuple((persons, households) for persons, households, *_ in pairs)
    return PlaceLinks(
        np.array(slack, np.int64).reshape(-1, n), counted, _pools(free, pools), distinct(changes), linked
    )


def _of_tables(joined: LinkedTables, open_: NDArray[np.bool_]) -> PlaceLinks:
    """Return the links between a table of households and the table of the persons in them."""
    shared = prod(a.size for a in joined.persons.shared)
    n, rng = len(open_), np.random.default_rng(len(open_))
    at = np.arange(n).reshape(joined.records, shared)
    persons, households = (at[t.start : t.start + t.size] for t in joined.tables)
    exact, size = joined.determined, joined.links[0]
    open_ = open_.copy()
    open_[households[impossible(joined)]] = False
    determined = np.zeros(persons.shape, np.int64)
    if exact is not None:
        marginal = joined.persons.cells(ROOT).marginal(exact.attributes)
        determined = cell_groups(marginal).reshape(persons.shape) // shared
    sets, weights = _demands(joined)
    slack, counted, pools, changes = [], [], [], []
    for s in range(shared):
        own = [persons[(determined[:, s] == g), s] for g in range(determined.max() + 1)]
        own = [each[open_[each]] for each in own]
        changes += [row for each in own for row in _swaps(each, n)]
        for link in (link for link in joined.links if not link.exact):
            row = np.zeros(n, np.int64)
            row[households[:, s]], row[persons[joined.inside(link), s]] = -link.persons, 1
            slack.append(row)
            counted.append(persons[joined.inside(link), s])
            if link is size:  # what households with the top code hold beyond it
                pools.append(np.array([n + len(slack) - 1, n + len(slack)]))
                room = room_of(joined)
                slack.append(_unit(n, dict.fromkeys(persons[:, s], -1) | dict(zip(households[:, s], room))))
                counted.append(_last_inside(joined, persons[:, s]))
                changes += [_unit(n, {j: 1}) for each in own for j in each]
        pools += own
        kinds = [persons[sets == g, s] for g in range(len(weights))]
        kinds = [each[open_[each]] for each in kinds]
        held = {h: list(zip(kinds, weights[:, k])) for k, h in enumerate(households[:, s]) if open_[h]}
        held = {h: needs for h, needs in held.items() if all(len(of) or not many for of, many in needs)}
        changes += _households(held, n, rng)
    free = households.ravel()[open_[households.ravel()]]
    return PlaceLinks(
        np.array(slack, np.int64).reshape(-1, n),
        tuple(counted),
        _pools(free, pools),
        distinct(changes),
        ((persons.ravel(), households.ravel()),),
    )


def room_of(joined: LinkedTables) -> Integers:
    """Return the largest number of persons that a household of each kind can have."""
    size = joined.links[0]
    return np.where((not size.exact) & (size.persons == size.persons.max()), joined.most, size.persons)


def impossible(joined: LinkedTables) -> NDArray[np.bool_]:
    """Return a mask of the kinds of households that need more persons of some kind than they can have."""
    room = room_of(joined)
    return np.any([link.persons > room for link in joined.links], axis=0)


def _demands(joined: LinkedTables) -> tuple[Integers, Integers]:
    """Return `LinkedTables.demands`, changed so that no household requires a negative number of persons.

    A top code may ask for more of a set than another one does of the set around it. Moves then keep the number of the
    household, or add the persons where that has a top code too.
    """
    (sets, weights), size = joined.demands, joined.links[0]
    weights = weights.copy()
    for kind in weights.T:
        lacking = -kind[kind < 0].sum()
        np.maximum(kind, 0, out=kind)
        for g in range(len(kind) if size.exact else 0):
            taken = min(lacking, kind[g])
            kind[g], lacking = kind[g] - taken, lacking - taken
    return sets, weights


def _last_inside(joined: LinkedTables, persons: Integers) -> Integers:
    """Return the kinds of persons sorted by the number of links that count them, the largest first."""
    counted = np.sum([joined.inside(link) for link in joined.links[1:]], axis=0) * np.ones(len(persons))
    return persons[np.argsort(-counted, kind="stable")]


def _households(held: dict[int, list], n: int, rng: np.random.Generator) -> list[Integers]:
    """Return changes of a place that add or replace one or two households with their persons."""
    changes, every = [], list(held)
    for h, needs in held.items():
        changes += [_unit(n, {h: 1}) + each for each in _divisions(needs, n, rng)]
        for other in _exchange_partners(every, h, rng):
            more = [(of, many - less) for (of, many), (_, less) in zip(needs, held[other])]
            changes += [
                _unit(n, {h: 1}) - _unit(n, {other: 1}) + each for each in _divisions(more, n, rng)[:2]
            ]
    sizes = defaultdict(list)
    for h, needs in held.items():
        sizes[tuple(int(many) for _, many in needs)].append(h)
    for a in sizes:
        for c in (c for c in sizes if 0 < sum(abs(x - y) for x, y in zip(c, a)) <= MAX_PERSON_CHANGE):
            for b in sizes:
                d = tuple(y - (z - x) for x, y, z in zip(a, b, c))
                if d in sizes and {a, b} != {c, d}:
                    picked = [sizes[each][int(rng.integers(len(sizes[each])))] for each in (a, b, c, d)]
                    changes.append(sum(_unit(n, {j: by}) for j, by in zip(picked, (-1, -1, 1, 1))))
    return changes


def _exchange_partners(every: list[int], h: int, rng: np.random.Generator) -> list[int]:
    """Return the kinds of households to exchange for kind `h`: its neighbours, and some at random."""
    at = every.index(h)
    near = [every[k] for k in (at - 1, at + 1) if 0 <= k < len(every)]
    return list(dict.fromkeys([*near, *(int(x) for x in rng.permutation(every)[:EXCHANGES] if x != h)]))


def _divisions(needs: Sequence[tuple[Integers, int]], n: int, rng: np.random.Generator) -> list[Integers]:
    """Return some ways `(n,)` to divide required numbers of persons among kinds of persons."""
    first = np.zeros(n, np.int64)
    for of, many in needs:
        if many:
            first[of[0]] += many
    if all(len(of) < 2 or not many for of, many in needs):
        return [first]
    found = [first]
    for _ in range(DIVISIONS_A_HOUSEHOLD):
        each = np.zeros(n, np.int64)
        for of, many in needs:
            if many:
                each[of] += np.sign(many) * rng.multinomial(abs(many), rng.dirichlet(np.ones(len(of))))
        found.append(each)
    return found


def _swaps(columns: Integers, n: int) -> list[Integers]:
    """Return changes that move one unit between two columns, for some pairs of columns."""
    k = len(columns)
    pairs = {(i, j) for i in range(k) for j in range(i + 1, k) if i == 0 or j == i + 1 or k <= 8}
    return [_unit(n, {columns[i]: 1, columns[j]: -1}) for i, j in sorted(pairs)]


def _unit(n: int, by: dict) -> Integers:
    row = np.zeros(n, np.int64)
    for j, amount in by.items():
        row[j] = amount
    return row


def distinct(changes: Sequence[Integers]) -> Integers:
    """Return the distinct changes `(k, columns)`, where a change and its opposite count as one."""
    rows = [tuple(int(x) for x in row) for row in changes]
    signed = (min(row, tuple(-x for x in row)) for row in rows if any(row))
    return np.array(list(dict.fromkeys(signed)), np.int64)


def _pools(free: Integers, others: Sequence[Integers]) -> tuple[Integers, ...]:
    """Return the sets of columns that each divide one total, the set of free columns first."""
    return (free, *(p for p in others if len(p) > 1))
