"""Histogram reconciliation by segments: the same integers as on the whole tree, however it is cut."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from tests.conformance.structures import STRUCTURES

from trueup.model.measurements import split
from trueup.reconcile.histogram_tree import HistogramTree
from trueup.reconcile.on_segments import Summary, down, segment_plan, tie_seed, up

HISTOGRAMS = [s for s in STRUCTURES if s.constraints.structure() == "histogram"]


def answers_of(segment, cells, headers, parts):
    """Cut the measured values of whole levels to a segment's places."""
    found = []
    for level in segment.measured:
        own = [p for h, p in zip(headers, parts, strict=True) if h.margin.level == cells.tree.levels[level]]
        found.append([p.reshape(cells.tree.sizes[level], -1)[segment.places(level)] for p in own])
    return found


def runs(places, size):
    """Runs of neighbouring places, `size` at a time."""
    return [(a, min(a + size, places)) for a in range(0, places, size)]


def by_segments(constraints, headers, values, seed, boundaries, size, **options):
    """Both sweeps, every task through pickle."""
    cells = constraints.cells
    plan = segment_plan(constraints, headers, **options)
    parts = split(values, headers, cells)
    edges = [0, *boundaries, len(cells.tree.levels) - 1]
    rows = [
        [plan.segment(cells.tree, *pair, *run) for run in runs(cells.tree.sizes[pair[0]], size)]
        for pair in pairwise(edges)
    ]
    below: list = [None] * len(rows)
    for i in range(len(rows) - 1, 0, -1):
        summaries = []
        for segment in pickle.loads(pickle.dumps(rows[i])):
            told = None if below[i] is None else below[i].of(segment.places(segment.bottom))
            summaries.append(up(segment, answers_of(segment, cells, headers, parts), told))
        below[i - 1] = Summary.join([Summary.of_arrays(s.arrays()) for s in summaries])
    above, tables = None, None
    for row, known in zip(rows, below, strict=True):
        done = [
            down(
                s,
                answers_of(s, cells, headers, parts),
                None if known is None else known.of(s.places(s.bottom)),
                None if above is None else above[s.start : s.stop],
                seed,
            )
            for s in row
        ]
        above = tables = np.concatenate([d.tables[-1] for d in done])
    return tables.ravel()


@pytest.mark.parametrize("structure", HISTOGRAMS, ids=lambda s: s.name)
def test_any_cutting_gives_the_integers_of_the_whole_tree(structure, rng):
    constraints, headers = structure.constraints, structure.headers
    method = HistogramTree()
    if method.refuses(constraints):
        pytest.skip("beyond the method")
    values = structure.noisy_values(structure.true_counts(rng), rng)[0]
    state = method.prepare(constraints, headers)
    whole = method.apply(state, values, np.random.default_rng(7)).values
    seed = tie_seed(np.random.default_rng(7))
    depth = len(constraints.cells.tree.levels)
    for boundaries in ([], *([b] for b in range(1, depth - 1)), list(range(1, depth - 1))):
        for size in (1, 2, 1000):
            cut = by_segments(constraints, headers, values, seed, boundaries, size)
            np.testing.assert_array_equal(cut, whole)
