"""Linked tables of persons and households, prepared for the sampler of linked counts.

One file: every part reads the same columns, tables and places of one problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import cell_groups
from trueup.kernel.table_walks.linked import LinkedMoves, LinkedState, LinkedValues
from trueup.kernel.table_walks.linked_exchange import LinkedPools
from trueup.kernel.table_walks.linked_normal import LinkedForms, NormalPlaces
from trueup.kernel.table_walks.weights import Places, weigh_parts
from trueup.layouts.columns import UNMEASURED_VARIANCE, MeasuredRow, default_tables
from trueup.layouts.links import Integers, PlaceLinks, distinct, impossible, links_of, room_of
from trueup.layouts.prior_inputs import EVEN_SPLITS, PublicNumbers
from trueup.model.build import own_constraints
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.joined import ROOT, RecordTable
from trueup.model.nested import canonical
from trueup.noise import law_named

TYPICAL = (3, 5, 8, 13, 21, 34)
"""Households of a move in which persons have the proportions of all places."""
MAX_WINDOW_SDS = 1.0
"""Longest distance of the values of a window (standard deviations of a move's widest noise)."""
MAX_WHOLE_CELLS = 24
"""Places of more cells are not drawn whole: it takes the cube of their number."""


def refuses_linked(constraints: Constraints, headers: Sequence[Measured]) -> str | None:
    """Return the reason why the sampler of linked counts cannot solve a problem, or None if it can."""
    if not constraints.nonnegative:
        return "it needs nonnegative counts"
    if len(constraints.cells.tree.levels) < 2:
        return "it needs places on at least two levels"
    if constraints.bounds or constraints.invariants or any(h.exact for h in headers):
        return "it cannot enforce bounds or invariants"
    if unknown := [h.law.name for h in headers if h.law.form is None or np.isfinite(h.law.form.reach)]:
        return f"law '{unknown[0]}' is bounded, or does not factor over cells"
    places = set(constraints.cells.tree.levels)
    if any(name in places for h in headers for each in h.margin.where for name, _ in each):
        return "it needs measurements of all places of a level"
    found = None if constraints.joined is not None else links_of(constraints)
    return found if isinstance(found, str) else None


class _Table(NamedTuple):
    """Measured values of one margin: its level, the group of each column, and each group's value and law."""

    level: int
    group: Integers
    groups: int
    value: NDArray[np.float64]
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinkedProblem(MeasuredRow):
    """One replicate of measurements of linked tables, prepared for the sampler of linked counts.

    Attributes
    ----------
    public
        Public numbers that totals are split by.
    """

    public: PublicNumbers = EVEN_SPLITS

    @cached_property
    def links(self) -> PlaceLinks:
        """Return the links between persons and households in a place."""
        found = links_of(self.constraints)
        assert isinstance(found, PlaceLinks), found
        return found._replace(changes=distinct([*found.changes, *self._typical(found)]))

    def _typical(self, links: PlaceLinks) -> Iterator[Integers]:
        """Yield changes of a place that add several households with persons, in typical proportions.

        They rest on the published values alone, as the chains do.
        """
        if self.constraints.joined is not None or not len(links.slack):
            return
        whole = self._finest(self.values).sum(axis=0)
        for (persons, households), many in product(links.linked, TYPICAL):
            if whole[persons].sum() >= whole[households].sum() > 0:
                each = np.zeros(len(whole), np.int64)
                each[households] = np.rint(many * whole[households] / whole[households].sum())
                each[persons] = np.rint(each[households].sum() * whole[persons] / whole[households].sum())
                yield each

    @cached_property
    def places(self) -> Places:
        """Return the tree of places."""
        return self.public.places(self.cells.tree)

    @cached_property
    def tables(self) -> list[_Table]:
        """Return the measured tables, with one table for all disjoint groups of a margin."""
        found: list[tuple[Margin, _Table]] = []
        for header, values in zip(self.headers, self.values, strict=True):
            at = np.arange(self.cells.size(header.margin)) if header.groups is None else header.groups
            table = next(
                (t for m, t in found if m == header.margin and not (t.slope + t.curve)[at].any()), None
            )
            if table is None:
                table = self._empty(header.margin)
                found.append((header.margin, table))
            form = header.law.form
            assert form is not None
            table.value[at], table.slope[at], table.curve[at] = values, form.slope, form.curvature
        return [t for _, t in found]

    def _empty(self, margin: Margin) -> _Table:
        cells, n = self.cells, self.links.slack.shape[1]
        group = cell_groups(cells.marginal(margin.attributes)).astype(np.int64)
        size, groups = cells.size(margin), int(group.max()) + 1
        counted = cells.among(margin).reshape(-1, n)[0]
        empty = [np.zeros(size) for _ in range(3)]
        return _Table(cells.tree.level(margin.level), np.where(counted, group, -1), groups, *empty)

    @cached_property
    def known(self) -> LinkedValues:
        """Return the position and number of the values of each measured table, and the laws of all values."""
        start = np.cumsum([0, *(len(t.value) for t in self.tables)])[:-1]
        return LinkedValues(
            start.astype(np.int64),
            np.array([t.groups for t in self.tables], np.int64),
            np.concatenate([t.slope for t in self.tables]),
            np.concatenate([t.curve for t in self.tables]),
        )

    @cached_property
    def moves(self) -> LinkedMoves:
        """Return all moves of a Markov chain, with the measured values that each one changes."""
        rows, n, levels = self.links.moves, self.links.slack.shape[1], len(self.cells.tree.levels)
        columns = [np.flatnonzero(row) for row in rows]
        sums = np.stack([rows[:, p].sum(axis=1) for p in self.links.pools], axis=1)
        pools = [1 + np.flatnonzero(row[1:]) for row in sums]
        touched = list(self._touched(rows[:, :n], levels))
        return LinkedMoves(
            _starts(columns),
            np.concatenate(columns),
            np.concatenate([row[j] for row, j in zip(rows, columns)]),
            _starts(pools),
            np.concatenate(pools).astype(np.int64),
            np.concatenate([row[g] for row, g in zip(sums, pools)]).astype(np.int64),
            sums[:, 0].astype(np.int64),
            _starts([t[:, 0] for t in touched]),
            *(np.ascontiguousarray(part) for part in np.concatenate(touched).T),
        )

    @cached_property
    def units(self) -> Integers:
        """Return, for each of the `n` cells of a place, the move that changes this cell alone, or -1."""
        single = np.count_nonzero(self.links.changes, axis=1) == 1
        found = np.full(self.links.slack.shape[1], -1, np.int64)
        found[self.links.changes[single].argmin(axis=1)] = np.flatnonzero(single)
        return found

    def _touched(self, rows: Integers, levels: int) -> Iterator[Integers]:
        """Yield, for every move and level, the measured values that it changes: table, group and amount."""
        changes = []
        for t in self.tables:
            counted = t.group >= 0
            changed = np.zeros((len(rows), t.groups), np.int64)
            np.add.at(changed.T, t.group[counted], rows.T[counted])
            changes.append(changed)
        for m, level in product(range(len(rows)), range(levels)):
            found = [
                (r, g, changes[r][m, g])
                for r, t in enumerate(self.tables)
                if t.level == level
                for g in np.flatnonzero(changes[r][m])
            ]
            yield np.array(found, np.int64).reshape(-1, 3)

    @cached_property
    def forms(self) -> LinkedForms:
        """Return the sums of a place's cells on which the probability of the counts depends."""
        table = np.hstack([np.eye(self.links.slack.shape[1], dtype=np.int64), self.links.slack.T])
        pools = np.array([table[:, p].sum(axis=1) for p in self.links.pools])
        group, level = np.array([t.group for t in self.tables]), np.array([t.level for t in self.tables])
        free, pairs = self.links.pools[0], () if self.constraints.joined else self.links.linked
        counted = [[table[each, : len(table)].sum(axis=0) for each in pair] for pair in pairs]
        persons, households = np.array(counted, np.int64).reshape(-1, 2, len(table)).swapaxes(0, 1)
        slack = [self.links.slack[2 * i : 2 * i + 2] for i in range(len(pairs))]
        limits = [[-each[0][h[0]], each[1][h[0]]] for each, (_, h) in zip(slack, pairs)]
        own = persons, households, np.array(limits, np.int64).reshape(-1, 2)
        return LinkedForms(self.links.slack, pools, group, level, free, *map(np.ascontiguousarray, own))

    @cached_property
    def pools(self) -> LinkedPools:
        """Return the sets of columns that each divide one total, and what a column adds to later sets."""
        joined, links = self.constraints.joined, self.links
        n, (size, *_) = links.slack.shape[1], joined.links
        held = np.zeros((len(links.pools), len(links.pool_of)), np.int64)
        kinds = np.arange(n).reshape(joined.records, -1)[joined.households.start :][: joined.households.size]
        if joined.determined is not None:
            group = cell_groups(joined.persons.cells(ROOT).marginal(joined.determined.attributes))
            needed = joined.determined.held(np.eye(kinds.size, dtype=np.int64))
            for g, columns in enumerate(links.pools[1:], 1):
                held[g, kinds.ravel()] = needed[:, group[columns[0]]]
        else:  # for each value that both tables have, further persons beyond a top code and the room for them, then all persons
            for g, columns in enumerate(links.pools[1:], 1):
                own = columns[0] < n
                s = (columns[0] if own else np.flatnonzero(links.slack[columns[0] - n])[0]) % kinds.shape[1]
                held[g, kinds[:, s]] = size.persons if own else room_of(joined) - size.persons
                if own:
                    held[g, links.pools[g - 1][0]] = 1
        return LinkedPools(_starts(links.pools), np.concatenate(links.pools), held)

    @cached_property
    def exchanged(self) -> bool:
        """Return True if a move replaces households together with the persons in them.

        Of two tables they are if pools have all cells that moves change, and all persons whose number households determine.
        """
        joined, n = self.constraints.joined, self.links.slack.shape[1]
        if joined is None or (self.links.pool_of[:n] < 0)[self.links.changes.any(axis=0)].any():
            return False
        if joined.determined is None:
            return True
        every = np.repeat(joined.determined.weights.sum(axis=0), n // joined.records)
        first = joined.households.start * (n // joined.records)
        free = self.links.pools[0]
        return bool((self.pools.held[:, free].sum(axis=0) == every[free - first]).all())

    @cached_property
    def whole(self) -> bool:
        """Return True if all cells of a place can be drawn at once: they are few, and only nonnegative."""
        free = self.constraints.joined is None and not self.constraints.zero_combinations.any()
        return free and self.links.slack.shape[1] <= MAX_WHOLE_CELLS

    @cached_property
    def widest(self) -> NDArray[np.float64]:
        """Return the length `(k,)` in counts of the window of possible steps along each move."""
        precisions = [t.slope**2 / 2 + 2 * t.curve for t in self.tables]
        sd = np.array([1.0 / np.sqrt(p[p > 0].min()) for p in precisions])
        own, ptr = self.moves, self.moves.touch_ptr
        levels = len(self.cells.tree.levels)
        found = np.ones(len(own.free))
        for m in range(len(found)):
            touched = slice(ptr[m * levels], ptr[(m + 1) * levels])
            reach = sd[own.table[touched]] / np.abs(own.touch_by[touched])
            found[m] = max(1.0, MAX_WINDOW_SDS * reach.max(initial=1.0))
        return found

    def start(self, rng: np.random.Generator, away: float) -> Integers:
        """Return tables `(leaves, n)` that satisfy the rules, near the measured values with noise added."""
        noisy = [
            np.asarray(v, float) + away * h.law.variance**0.5 * rng.normal(size=len(v))
            for h, v in zip(self.headers, self.values, strict=True)
        ]
        x = self._settled(noisy, rng) if self.constraints.joined else self._finest(noisy)
        return self._repaired(np.where(self.constraints.zero_combinations, 0, x))

    def _finest(self, noisy: Sequence[NDArray]) -> Integers:
        """Return measured values of the finest cells as whole numbers, and 1 for unmeasured cells."""
        x = np.ones(self.cells.n)
        for header, values in zip(self.headers, noisy):
            if canonical(self.cells, header.margin) == self.cells.finest:
                x[slice(None) if header.groups is None else header.groups] = values
        return np.maximum(np.rint(x), 0).astype(np.int64).reshape(self.cells.shape[0], -1)

    def _settled(self, noisy: Sequence[NDArray], rng: np.random.Generator) -> Integers:
        """Return starting counts of persons and households, each table reconciled on its own."""
        joined = self.constraints.joined
        persons, households = (self._alone(table, noisy, rng) for table in joined.tables)
        kinds = households.reshape(len(households), joined.households.size, -1)
        kinds[:, impossible(joined)] = 0
        if joined.determined is not None:
            needed = joined.determined.held(households)
            group = cell_groups(joined.persons.cells(ROOT).marginal(joined.determined.attributes))
            open_ = ~self.constraints.zero_combinations[: len(group)]
            for g in range(needed.shape[1]):
                columns = np.flatnonzero((group == g) & open_)
                if len(columns):
                    persons[:, columns] = _divided(needed[:, g], persons[:, columns])
        return np.concatenate([persons, households], axis=1)

    def _alone(self, table: RecordTable, noisy: Sequence[NDArray], rng: np.random.Generator) -> Integers:
        """Return the counts `(leaves, cells of a place)` of one linked table, reconciled on its own."""
        joined, rules = self.constraints.joined, own_constraints(self.constraints, table)
        mine = [(h, v) for h, v in zip(self.headers, noisy) if joined.table(h.margin) is table]
        headers = [Measured(h.query, joined.own_margin(h.margin), h.law) for h, _ in mine]
        values = [v for _, v in mine]
        if not any(canonical(rules.cells, h.margin) == rules.cells.finest for h in headers):
            headers.append(Measured("start", rules.cells.finest, law_named("gaussian")(UNMEASURED_VARIANCE)))
            values.append(np.zeros(rules.cells.n))
        found = default_tables(rules, headers, np.concatenate(values), rng)
        return found.reshape(self.cells.shape[0], -1)

    def _repaired(self, x: Integers) -> Integers:
        """Return tables in which persons are added or removed until all links are satisfied."""
        pairs = zip(self.links.slack, self.links.persons, strict=True)
        for row, persons in sorted(pairs, key=lambda pair: -pair[0][pair[1][0]]):
            short, sign = np.maximum(-(x @ row), 0), int(row[persons[0]])
            for j in persons[::-1]:
                moved = short if sign > 0 else np.minimum(short, x[:, j])
                x[:, j] += sign * moved
                short = short - moved
        return x

    def state(self, x: Integers, a: float, kappa: float) -> LinkedState:
        """Return the state of a Markov chain at the tables `(leaves, n)`, given its concentrations."""
        tree, levels = self.cells.tree, len(self.cells.tree.levels)
        table = self.links.table(x)
        sums = np.stack([table[:, p].sum(axis=1) for p in self.links.pools], axis=1)
        total = [np.add.reduceat(sums[:, 0], tree.leaf_ptr(level)[:-1]) for level in range(levels)]
        inner = int(tree.level_ptr[-2])
        theta, gap = np.zeros((inner, table.shape[1])), []
        for level in range(levels - 1):
            rows = slice(tree.level_ptr[level], tree.level_ptr[level + 1])
            theta[rows] = np.add.reduceat(table, tree.leaf_ptr(level)[:-1], axis=0)
        for p in self.links.pools:
            share = theta[:, p] + 0.5
            theta[:, p] = share / share.sum(axis=1, keepdims=True)
        for t in self.tables:
            counted = t.group >= 0
            each = np.zeros((len(x), t.groups), np.int64)
            np.add.at(each.T, t.group[counted], x.T[counted])
            above = np.add.reduceat(each, tree.leaf_ptr(t.level)[:-1], axis=0)
            gap.append(above.ravel() - t.value)
        state = LinkedState(
            table.astype(np.int64),
            np.concatenate(total).astype(np.int64),
            sums.astype(np.int64),
            np.concatenate(gap),
            theta,
            np.full(levels, a),
            np.full((levels, len(self.links.pools)), kappa),
            np.ones(tree.level_ptr[-1]),
            np.zeros(self.public.covariates.shape[1]),
        )
        if len(self.public.log_share):
            weigh_parts(self.places, state)
        return state

    def normal(self, state: LinkedState) -> NormalPlaces:
        """Return the normal approximations of places for a Markov chain, with all coefficients zero."""
        leaves, n = len(state.x), self.links.slack.shape[1]
        empty = np.zeros((leaves, n)), np.zeros((leaves, n, n))
        steps = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64)
        return NormalPlaces(state.x[:, :n].astype(float), *empty, *steps)

    @property
    def connected(self) -> bool:
        """Return True if it is proved that moves lead from any table to every other table.

        Where there are no slacks: units of one pool are exchanged with its first kind, and a household comes and goes with its
        persons of first kinds, so that every table leads to the empty one. With slacks this is not proved.
        """
        return not len(self.links.slack)


def _starts(parts: Sequence) -> Integers:
    return np.cumsum([0, *map(len, parts)]).astype(np.int64)


def _divided(whole: NDArray, parts: Integers) -> Integers:
    """Return whole numbers that add up to totals `(leaves,)`, roughly in proportion to `parts`."""
    shares = (parts + 0.1) / (parts + 0.1).sum(axis=1, keepdims=True)
    found = np.floor(whole[:, None] * shares).astype(np.int64)
    found[np.arange(len(found)), shares.argmax(axis=1)] += whole.astype(np.int64) - found.sum(axis=1)
    return found
