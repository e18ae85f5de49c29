"""Families of tables prepared for the compiled kernel of their Markov chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.families.walk import WalkLayout, WalkState, layout_fields
from trueup.layouts.family_rules import closed_zeros, family_cells
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.family import FamilyCells
from trueup.model.header import Measured

Integers = NDArray[np.int64]

DIVIDED_ANEW = (
    "This prior divides places for each value of {} apart, and knows nothing of a place's size from one value to the next: small "
    "places are drawn towards the others as often as there are values. Their totals come out too large, and their intervals may "
    "miss the true counts by far. Rely on the released counts and their margins of error there."
)
"""What is known against posteriors of such families."""


@dataclass(frozen=True, eq=False)
class FamilyWalk:
    """A family of tables prepared for Markov chains, without measured values.

    Attributes
    ----------
    cells
        The cells of all tables.
    headers
        The measured headers.
    layout
        For the kernel; its noisy values are zero.
    open_
        `(n,)` which cells are not zero by definition.
    mass
        Number of parts of each sum that the prior divides.
    """

    cells: FamilyCells
    headers: tuple[Measured, ...]
    layout: WalkLayout
    open_: NDArray[np.bool_]
    mass: NDArray[np.float64]

    @classmethod
    def of(
        cls, constraints: Constraints, headers: Sequence[Measured], within: Sequence[Margin] = ()
    ) -> FamilyWalk:
        """Return a family of tables prepared for Markov chains."""
        cells = family_cells(constraints)
        tree = cells.junction()
        masks = closed_zeros(constraints, tree)
        open_ = np.concatenate(
            [np.tile(~mask, part.shape[0]) for mask, part in zip(masks, cells.parts, strict=True)]
        )
        near = [
            [j for j in range(len(cells.tables)) if tree.parent[j] == i] for i in range(len(cells.tables))
        ]
        for i, parent in enumerate(tree.parent):
            near[i] += [parent] if parent >= 0 else []
        edges = _edges(cells, near, open_)
        shared = [[cells.separator(i, j) for j in others] for i, others in enumerate(near)]
        prior, mass = _prior_steps(cells, tree.parent, open_)
        layout = layout_fields(
            start=np.array(cells.starts),
            **_open(cells, open_),
            **_alike(cells, [[m] for m in within] or shared, open_),
            **edges,
            **prior,
            is_open=open_,
            **_seen(cells, [h for h in headers if not h.exact]),
            kept=_sums_of(cells, [h.margin for h in headers if h.exact])[0],
        )
        return cls(cells, tuple(headers), layout, open_, mass)

    def given(self, values: NDArray) -> WalkLayout:
        """Return the family with its measured values `(q,)`."""
        noisy = np.repeat(
            [not h.exact for h in self.headers], [self.cells.size(h.margin) for h in self.headers]
        )
        return self.layout._replace(noisy=np.ascontiguousarray(values[noisy], float))

    def state(self, counts: Integers, alpha: NDArray) -> WalkState:
        """Return the state of a chain at tables of counts `(n,)` that agree on all shared margins."""
        noisy = [h.sums(self.cells, counts) for h in self.headers if not h.exact]
        sums = np.concatenate(noisy).astype(float)
        held = np.zeros(len(self.mass))
        for column in self.layout.group.T:
            np.add.at(held, column[column >= 0], counts[column >= 0])
        weights = np.ones(self.layout.value_ptr[-1])
        return WalkState(
            counts.astype(np.int64), sums, held, self.mass.copy(), np.array(alpha, float), weights
        )

    @property
    def steps(self) -> int:
        """Return the number of steps in which the prior divides the sums of the family."""
        return int(self.layout.steps[-1])

    @property
    def chances(self) -> NDArray:
        """Return cumulative probabilities `(tables,)` of choosing each table, in proportion to its cells."""
        cells = np.diff(self.layout.open_ptr).astype(float)
        return np.cumsum(cells) / cells.sum()


def _ptr(counts: NDArray | Sequence[int]) -> Integers:
    return np.append(0, np.cumsum(counts)).astype(np.int64)


def _cells_of_table(cells: FamilyCells, i: int) -> slice:
    return slice(cells.starts[i], cells.starts[i + 1])


def _shared_cells(cells: FamilyCells, i: int, margin: Margin) -> Integers:
    """Return, for every cell of a table, the group of a margin that contains the cell."""
    return cells.parts[i].groups(cells.tables[i], margin)


def _open(cells: FamilyCells, open_: NDArray[np.bool_]) -> dict[str, Any]:
    held = [
        cells.starts[i] + np.flatnonzero(open_[_cells_of_table(cells, i)]) for i in range(len(cells.tables))
    ]
    return {"open_ptr": _ptr([len(part) for part in held]), "open_cells": np.concatenate(held)}


def _alike(
    cells: FamilyCells, shared: Sequence[Sequence[Margin]], open_: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return arrays that classify cells, where a class lies in the same groups of all shared margins."""
    like, classes = np.zeros(cells.n, np.int64), 0
    for i, margins in enumerate(shared):
        part = np.zeros(cells.parts[i].n, np.int64)
        for margin in margins:
            groups = _shared_cells(cells, i, margin)
            part = np.unique(part * (groups.max() + 1) + groups, return_inverse=True)[1].ravel()
        like[_cells_of_table(cells, i)] = classes + part
        classes += int(part.max()) + 1
    return {"like": like, **_members("like", like, np.flatnonzero(open_), classes)}


def _members(name: str, label: Integers, members: Integers, labels: int) -> dict[str, Any]:
    order = members[np.argsort(label[members], kind="stable")]
    counts = np.bincount(label[members], minlength=labels)
    return {f"{name}_ptr": _ptr(counts), f"{name}_cells": order}


def _edges(cells: FamilyCells, near: Sequence[Sequence[int]], open_: NDArray[np.bool_]) -> dict[str, Any]:
    slots = [(i, j) for i, others in enumerate(near) for j in others]
    sides, pointers, fibres, filled = [np.zeros(0, np.int64)], [], [np.zeros(0, np.int64)], 0
    side_at, fibre_at, ends = [], [], 0
    for i, j in slots:
        margin = cells.separator(i, j)
        shared = _shared_cells(cells, i, margin)
        side_at.append(sum(map(len, sides)))
        sides.append(shared)
        own = _members("fibre", shared, np.flatnonzero(open_[_cells_of_table(cells, i)]), cells.size(margin))
        fibre_at.append(ends)
        pointers.append(filled + own["fibre_ptr"])
        ends += len(own["fibre_ptr"])
        fibres.append(cells.starts[i] + own["fibre_cells"])
        filled += len(own["fibre_cells"])
    return {
        "near_ptr": _ptr([len(others) for others in near]),
        "near": [j for _, j in slots],
        "back": [slots.index((j, i)) for i, j in slots],
        "side_at": side_at,
        "side": np.concatenate(sides),
        "fibre_at": fibre_at,
        "fibre_ptr": np.concatenate([*pointers, np.zeros(0, np.int64)]),
        "fibre_cells": np.concatenate(fibres),
    }


def _prior_steps(
    cells: FamilyCells, parent: Sequence[int], open_: NDArray[np.bool_]
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Return arrays that describe how the prior divides sums in steps, and each sum's number of parts."""
    steps = [_steps_of(cells, i, above) for i, above in enumerate(parent)]
    sizes = [cells.size(margin) for own in steps for margin in own]
    group = np.full((cells.n, max(map(len, steps))), -1)
    ends, sums_ptr = _ptr([len(own) for own in steps]), _ptr(sizes)
    mass = np.zeros(sums_ptr[-1])
    value, widths, apart, blocks, members = np.zeros(cells.n, np.int64), [], [], [], [np.zeros(0, np.int64)]
    for i, own in enumerate(steps):
        at, first, filled = _cells_of_table(cells, i), ends[i], sum(widths)
        for s, margin in enumerate(own):
            group[at, s] = sums_ptr[first + s] + _shared_cells(cells, i, margin)
        finer = [*group[at, 1 : len(own)].T, np.arange(cells.starts[i], cells.starts[i + 1])]
        for s, parts in enumerate(finer):
            distinct = np.unique(np.stack([group[at, s], parts])[:, open_[at]], axis=1)[0]
            mass += np.bincount(distinct, minlength=len(mass))
        kinds, weight, gap = _kinds(cells, i, own[-1])
        widths.append(max(1, len(kinds)))
        apart.append(gap)
        value[at] = filled + weight
        counts = np.bincount(kinds)
        blocks.append(sum(map(len, members)) + _ptr(counts) if len(kinds) else np.zeros(0, np.int64))
        members.append(filled + np.argsort(kinds, kind="stable"))
    return {
        "group": group,
        "steps": ends,
        "sums_ptr": sums_ptr,
        "value": value,
        "value_ptr": _ptr(widths),
        "apart": np.array(apart),
        "block_ptr": _ptr([len(own) for own in blocks]),
        "blocks": np.concatenate(blocks),
        "in_blocks": np.concatenate(members),
    }, mass


def _steps_of(cells: FamilyCells, i: int, above: int) -> list[Margin]:
    """Return the margins that the prior divides in turn: the shared margin at one level after the other."""
    table, tree = cells.tables[i], cells.tree
    shared = Margin(tree.levels[0]) if above < 0 else cells.separator(i, above)
    found, last = [shared], tree.level(table.level)
    for level in range(tree.level(shared.level) + 1, last + 1):
        margin = Margin(tree.levels[level], shared.attributes)
        if cells.parts[i].size(found[-1]) < cells.parts[i].size(margin) < cells.parts[i].n:
            found.append(margin)
    return found


def divided_anew(cells: FamilyCells) -> str | None:
    """Return a warning if the prior divides places separately for each value of an attribute, or None."""
    names = {
        f"'{name}'": None
        for i, above in enumerate(cells.junction().parent)
        for margin, finer in pairwise(_steps_of(cells, i, above))
        if margin.level != finer.level
        for name in margin.attributes
    }
    return DIVIDED_ANEW.format(" and ".join(names)) if names else None


def _kinds(cells: FamilyCells, i: int, divided: Margin) -> tuple[Integers, Integers, int]:
    """Return the weights by which the prior divides sums: the sum of each weight, and each cell's weight.

    Weights are of values, common to places, or of places, where these are divided for each of several values. There are none in a
    table of one place, and where places are divided once.
    """
    part, table, none = cells.parts[i], cells.tables[i], np.zeros(0, np.int64)
    each, at = part.n // part.shape[0], np.arange(part.n)
    fine = Margin(table.level, divided.attributes)
    if part.shape[0] > 1 and part.size(Margin(divided.level)) == part.shape[0]:
        return _shared_cells(cells, i, fine)[:each], at % each, 1
    if part.shape[0] > 1 and divided.attributes and part.size(fine) == part.n:
        return part.groups(Margin(table.level), Margin(divided.level)), at // each, each
    return none, np.zeros(part.n, np.int64), 1


def _seen(cells: FamilyCells, headers: Sequence[Measured]) -> dict[str, Any]:
    """Return arrays of the noisy sums that contain each cell, and of the laws of these sums."""
    seen, sizes = _sums_of(cells, [h.margin for h in headers])
    forms: list[Any] = [h.law.form for h in headers]
    return {
        "seen": seen,
        "noisy": np.zeros(sum(sizes)),
        "slope": np.repeat([form.slope for form in forms], sizes),
        "curvature": np.repeat([form.curvature for form in forms], sizes),
    }


def _sums_of(cells: FamilyCells, margins: Sequence[Margin]) -> tuple[Integers, list[int]]:
    """Return the groups of margins `(n, columns)` that contain each cell, and the size of each margin."""
    sizes = [cells.size(margin) for margin in margins]
    columns: list[list[Integers]] = [[] for _ in cells.tables]
    for first, margin in zip(_ptr(sizes), margins):
        i = cells.holders(margin)[0]
        columns[i].append(first + _shared_cells(cells, i, margin))
    found = np.full((cells.n, max(map(len, columns))), -1)
    for i, own in enumerate(columns):
        for at, column in enumerate(own):
            found[_cells_of_table(cells, i), at] = column
    return found, sizes
