"""Families of tables by segments: the same integers as on the whole tree, however it is cut."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest

from tests.families import random_family, random_tree
from tests.reconciling.test_families import truth_of
from trueup.kernel.histogram.spine import Spine
from trueup.model.constraints import Constraints
from trueup.model.header import simulate_many, split
from trueup.model.tree import Tree
from trueup.reconciling.family_tree import FamilySegment, FamilyTree
from trueup.reconciling.histogram_parts import joined_summaries, tie_seed


def segments_of(plan, tree: Tree, top: int, bottom: int, size: int):
    """Yield runs of neighbouring places of a level with all below them, as segments."""
    for first in range(0, tree.sizes[top], size):
        last = min(first + size, tree.sizes[top])
        branch = tree.branch(top, first, last, bottom)
        firsts = tuple(int(tree.starts(top, level)[first]) for level in range(top, bottom + 1))
        spine = Spine(branch.child_ptr, branch.sizes[0])
        yield FamilySegment(plan, range(top, bottom + 1), spine, firsts)


def by_segments(plan, cells, headers, values, seed, boundaries, size):
    """Both sweeps, every task through pickle; the tables, one after another."""
    tree, whole = cells.tree, split(values, headers, cells.whole)
    parts = [p.reshape(cells.margin_shape(h.margin)[0], -1) for h, p in zip(headers, whole, strict=True)]

    def answers(segment):
        levels = segment.levels if segment.levels[-1] == len(tree.levels) - 1 else segment.levels[:-1]
        for at, level in enumerate(levels):
            rows = slice(segment.firsts[at], segment.firsts[at] + segment.spine.size(at))
            yield [
                p[rows] for h, p in zip(headers, parts, strict=True) if tree.level(h.margin.level) == level
            ]

    edges = [0, *boundaries, len(tree.levels) - 1]
    rows = [pickle.loads(pickle.dumps(list(segments_of(plan, tree, *e, size)))) for e in pairwise(edges)]
    below = [None] * len(rows)
    for i in range(len(rows) - 1, 0, -1):
        below[i - 1] = joined_summaries([s.up(list(answers(s)), _of(below[i], s)) for s in rows[i]])
    found, above = {}, None
    for row, known in zip(rows, below, strict=True):
        done = [
            s.down(list(answers(s)), _of(known, s), None if above is None else above[_places(s, 0)], seed)
            for s in row
        ]
        assert all(d.solved for d in done)
        for at, level in enumerate(done[0].levels):
            found[level] = np.concatenate([d.tables[at] for d in done])
        above = done[0] and found[max(found)]
    tables = []
    for i, layout in enumerate(plan.problem.tables):
        widths = plan.widths(layout.levels - 1)
        start = sum(widths[:i])
        tables.append(found[layout.levels - 1][:, start : start + widths[i]].ravel())
    return np.concatenate(tables)


def _places(segment, level):
    return slice(segment.firsts[level], segment.firsts[level] + segment.spine.size(level))


def _of(summary, segment):
    if summary is None:
        return None
    at = len(segment.levels) - 1
    return {name: part[_places(segment, at)] for name, part in summary.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("estimates", ["posterior-means", "least-squares"])
def test_any_cutting_gives_the_integers_of_the_whole_tree(estimates, rng):
    method, depths = FamilyTree(estimates=estimates), set()
    for _ in range(6):
        cells, headers = random_family(rng, [random_tree(rng)])
        depths |= {table.level for table in cells.tables}
        constraints = Constraints(cells, tuple(h.margin for h in headers))
        values = simulate_many(cells, truth_of(cells, rng), headers, rng, 1)[0]
        whole = method.apply(method.prepare(constraints, headers), values, np.random.default_rng(7)).values
        seed = tie_seed(np.random.default_rng(7))
        one_each = cells.on(Tree(cells.tree.levels, np.array([1, 2, 3, 4, 4]), np.arange(5)))
        plan = method.divide(Constraints(one_each, constraints.margins), headers)
        for boundaries in ([], [1], [2], [1, 2]):
            for size in (1, 2, 100):
                cut = by_segments(plan, cells, headers, values, seed, boundaries, size)
                np.testing.assert_array_equal(cut, whole)
    assert len(depths) > 2
