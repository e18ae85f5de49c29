"""The hierarchical prior of a family of tables, step by step from margins: slow, and without the layout of the chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import gammaln

from trueup.model.cells import Margin
from trueup.model.family import FamilyCells


@dataclass(frozen=True)
class Step:
    """Counts `(k,)` of a table that divide larger ones: whose part each is, and which share it has (-1: all alike)."""

    margin: Margin
    parent: np.ndarray
    share: np.ndarray
    open_: np.ndarray


def steps_of(cells: FamilyCells, i: int, above: int, open_: np.ndarray) -> list[Step]:
    """Return the steps of a table: places of the next level, and the next, then values of attributes; empty ones left out."""
    table, whole = cells.tables[i], cells.parts[i]
    kept = () if above < 0 else cells.separator(i, above).attributes
    levels = list(whole.tree.levels)
    first = levels.index(cells.tree.levels[0] if above < 0 else cells.separator(i, above).level)
    margins = [Margin(level, kept) for level in levels[first:]] + [table]
    here = open_[cells.starts[i] : cells.starts[i + 1]]
    found = []
    for coarse, fine in pairwise(margins):
        if whole.size(coarse) == whole.size(fine):
            continue
        parent = whole.groups(fine, coarse)
        inside = np.zeros(whole.size(fine), bool)
        inside[whole.groups(table, fine)[here]] = True
        drawn, width = fine == table and whole.shape[0] > 1, whole.n // whole.shape[0]
        if drawn and coarse.level == fine.level:
            share = np.arange(whole.n) % width
        elif drawn and coarse.attributes:
            share = np.arange(whole.n) // width
        else:
            share = np.full(whole.size(fine), -1)
        found.append(Step(fine, parent, share, inside))
    return found


def log_step(step: Step, counts: np.ndarray, a: float, weights: np.ndarray) -> np.ndarray:
    """Return the log probability `(t,)` of `counts` `(t, k)` given those that they divide."""
    size = step.parent.max() + 1
    w = np.where(step.share < 0, 1.0, weights[step.share]) * a
    totals = np.zeros((len(counts), size))
    mass = np.zeros(size)
    for part, parent in enumerate(step.parent):
        totals[:, parent] += counts[:, part]
        mass[parent] += w[part] if step.open_[part] else 0.0
    at, held = step.open_, mass > 0
    x = counts[:, at]
    parts = gammaln(x + w[at]) - gammaln(w[at]) - gammaln(x + 1)
    whole = gammaln(totals + 1)[:, held] + gammaln(mass[held]) - gammaln(totals[:, held] + mass[held])
    return parts.sum(axis=1) + whole.sum(axis=1)


def divided(
    cells: FamilyCells, parents: Sequence[int], open_: np.ndarray, tables: np.ndarray
) -> Iterator[tuple[Step, np.ndarray]]:
    """Yield every step of every table with its counts `(t, k)` in agreeing tables `(t, n)`."""
    for i, above in enumerate(parents):
        own = tables[:, cells.starts[i] : cells.starts[i + 1]]
        for step in steps_of(cells, i, above, open_):
            yield step, cells.parts[i].sum(own, step.margin)
