"""Histogram reconciliation by segments: the same integers as on the whole tree, however it is cut."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.histogram_segments import places_of, segment_of
from tests.conformance.structures import STRUCTURES
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.kernel.histogram.least_squares import HistogramLeastSquares
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Bound, Constraints, violations
from trueup.model.header import Measured, split
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian
from trueup.noise.laws.undrawn import Exact
from trueup.reconciling import histogram_parts as on_segments
from trueup.reconciling.histogram_parts import down, joined_summaries, tie_seed, up
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.segments import SegmentPlan, segment_plan

HISTOGRAMS = [
    s
    for s in STRUCTURES
    if s.constraints.structure() == "histogram" and all(b.upper is None for b in s.constraints.bounds)
]


def answers_of(segment, cells, headers, parts):
    """Cut the measured values of whole levels to a segment's places."""
    found = []
    for level in segment.measured:
        own = [p for h, p in zip(headers, parts, strict=True) if h.margin.level == cells.tree.levels[level]]
        found.append([p.reshape(cells.tree.sizes[level], -1)[places_of(segment, level)] for p in own])
    return found


def of_places(summary, places):
    """A summary of some places."""
    return summary and {name: part[places] for name, part in summary.items()}


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
        [segment_of(plan, constraints, *pair, *run) for run in runs(cells.tree.sizes[pair[0]], size)]
        for pair in pairwise(edges)
    ]
    below: list = [None] * len(rows)
    for i in range(len(rows) - 1, 0, -1):
        summaries = []
        for segment in pickle.loads(pickle.dumps(rows[i])):
            told = of_places(below[i], places_of(segment, segment.bottom))
            summaries.append(up(segment, answers_of(segment, cells, headers, parts), told))
        below[i - 1] = joined_summaries(summaries)
    above, tables = None, None
    for row, known in zip(rows, below, strict=True):
        done = [
            down(
                s,
                answers_of(s, cells, headers, parts),
                of_places(known, places_of(s, s.bottom)),
                None if above is None else above[places_of(s, s.top)],
                seed,
            )
            for s in row
        ]
        above = tables = np.concatenate([d.tables[-1] for d in done])
    return tables.ravel()


DEFAULT = HistogramTree(estimates="least-squares")


def whole_tree(constraints, headers, values, seed_of, method=DEFAULT):
    return method.apply(method.prepare(constraints, headers), values, np.random.default_rng(seed_of)).values


@pytest.mark.parametrize("method", [DEFAULT, HistogramTree()], ids=lambda m: m.estimates)
@pytest.mark.parametrize("structure", HISTOGRAMS, ids=lambda s: s.name)
def test_any_cutting_gives_the_integers_of_the_whole_tree(structure, method, rng):
    constraints, headers = structure.constraints, structure.headers
    if HistogramTree().refuses(constraints):
        pytest.skip("beyond the method")
    values = structure.noisy_values(structure.true_counts(rng), rng)[0]
    whole = whole_tree(constraints, headers, values, 7, method)
    depth = len(constraints.cells.tree.levels)
    for boundaries in ([], *([b] for b in range(1, depth - 1))):
        for size in (1, 2, 1000):
            cut = by_segments(
                constraints, headers, values, seed(7), boundaries, size, posterior=method.posterior
            )
            np.testing.assert_array_equal(cut, whole)


def seed(number):
    return tie_seed(np.random.default_rng(number))


QUARTERS = Attribute(
    "quarters",
    ("home", "prison", "nursing", "college"),
    recodes=(Recode("kind", ("home", "inside", "other"), (0, 1, 1, 2)),),
)
ADULT = Attribute("adult", ("no", "yes"))
RACE = Attribute("race", ("a", "b", "c"))
FEATURES = {
    "plain": {},
    "zeros": {"zeros": ({"quarters": "nursing", "adult": "no"},)},
    "invariants": {"invariants": (Margin("l1"), Margin("l3", ("kind",)))},
    "bounds": {"bounds": (Bound(Margin("l4", ("kind",)), lower=2, where=(("kind", "inside"),)),)},
    "everything": {
        "zeros": ({"quarters": "nursing", "adult": "no"}, {"quarters": "college", "race": "c"}),
        "invariants": (Margin("l1"), Margin("l2", ("kind",))),
        "bounds": (
            Bound(Margin("l4", ("quarters",)), lower=1, where=(("quarters", "prison"),)),
            Bound(Margin("l3"), lower=4),
        ),
    },
}


def ragged(rng):
    """Five levels: places with one child, places that end early and stand for themselves below."""
    ids, parents, row = ["r"], [""], ["r"]
    for _ in range(4):
        grown = [(f"{p}{i:02d}", p) for p in row for i in range(rng.integers(0 if len(row) > 2 else 2, 4))]
        ids, parents, row = (
            [*ids, *(c for c, _ in grown)],
            [*parents, *(p for _, p in grown)],
            [c for c, _ in grown],
        )
    return Tree.from_parents(ids, parents, [f"l{i}" for i in range(5)])


def deep_problem(rng, features):
    """Constraints, headers, and noisy values of a truth in which whole subtrees are empty and bounds hold."""
    cells = Cells(ragged(rng), (QUARTERS, ADULT, RACE))
    names = [(), ("kind",), ("quarters",), ("adult",), ("adult", "race"), ("quarters", "adult", "race")]
    noisy = [Margin(level, n) for level in cells.tree.levels for n in names]
    constraints = Constraints(cells, tuple(noisy), **features)
    headers = tuple(
        Measured("q", m, DiscreteGaussian(Fraction(int(rng.integers(1, 9))))) for m in noisy
    ) + tuple(Measured("invariant", m, Exact()) for m in constraints.invariants)
    counts = rng.poisson(rng.gamma(0.3, 4, cells.shape))
    counts[cells.tree.ancestors(4, 1) == 1] = 0
    if constraints.bounds:
        counts[:, 1, 1, 0] += 4
    counts = counts.ravel() * ~constraints.zero_cells
    tables = [(cells.sum(counts, h.margin), 0 if h.exact else float(h.law.variance) ** 0.5) for h in headers]
    return (
        constraints,
        headers,
        np.concatenate([t + np.rint(rng.normal(0, 1, t.shape) * sd) for t, sd in tables]),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("method", [DEFAULT, HistogramTree()], ids=lambda m: m.estimates)
@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES.keys())
def test_deep_ragged_trees_with_every_kind_of_constraint(features, method, rng):
    constraints, headers, values = deep_problem(rng, features)
    whole = whole_tree(constraints, headers, values, 3, method)
    assert not violations(constraints, whole)
    for header, part in zip(headers, split(values, headers, constraints.cells), strict=True):
        if header.exact:
            np.testing.assert_array_equal(constraints.cells.sum(whole, header.margin), part)
    for boundaries, size in (([2], 1), ([1, 3], 1), ([1, 2, 3], 2)):
        cut = by_segments(constraints, headers, values, seed(3), boundaries, size, posterior=method.posterior)
        np.testing.assert_array_equal(cut, whole)


@pytest.mark.thorough
def test_ties_settled_by_the_place_in_a_bundle_are_found_out(rng, monkeypatch):
    """The mutant: keys that number the places of a segment from zero."""
    constraints, headers, _ = deep_problem(rng, {})
    cells = constraints.cells
    alike = [cells.sum(np.ones(cells.n), h.margin) + 3 * (h.margin.level < "l3") for h in headers]
    values = np.concatenate(alike)  # siblings tie for what is above
    whole = whole_tree(constraints, headers, values, 3)
    np.testing.assert_array_equal(by_segments(constraints, headers, values, seed(3), [2], 1), whole)
    keys = on_segments.node_keys
    monkeypatch.setattr(on_segments, "node_keys", lambda s, level, nodes: keys(s, level, nodes - nodes[0]))
    assert (by_segments(constraints, headers, values, seed(3), [2], 1) != whole).any()


def test_lower_bounds_bind_where_noise_would_break_them(rng):
    constraints, headers, values = deep_problem(rng, FEATURES["bounds"])
    constraints = replace(constraints, bounds=(replace(constraints.bounds[0], lower=4),))
    free = replace(constraints, bounds=())
    broken, kept = (whole_tree(c, headers, values, 3) for c in (free, constraints))
    assert violations(constraints, broken)
    inside = constraints.cells.sum(kept, constraints.bounds[0].margin).reshape(-1, 3)[:, 1]
    assert inside.min() == 4
    assert (inside > 4).any()


def limited_by_place(rng, least, more, features="everything"):
    """A problem whose lower bounds differ from place to place, on two levels; some places have none."""
    constraints, headers, values = deep_problem(rng, FEATURES[features])
    sizes = constraints.cells.tree.sizes
    leaves = rng.integers(least, least + more, sizes[4]).astype(float)  # the truth has 4 everywhere
    leaves[rng.random(leaves.size) < 0.2] = -np.inf
    bounds = (
        Bound(Margin("l4", ("quarters",)), np.repeat(leaves, 4), where=(("quarters", "prison"),)),
        Bound(
            Margin("l3", ("kind",)), np.repeat(rng.integers(0, 5.0, sizes[3]), 3), where=(("kind", "inside"),)
        ),
    )
    return replace(constraints, bounds=bounds), headers, values


@pytest.mark.thorough
@pytest.mark.parametrize("case", range(4))
def test_lower_bounds_that_differ_from_place_to_place_under_any_cutting(case, rng):
    constraints, headers, values = limited_by_place(rng, 0, 5)
    whole = whole_tree(constraints, headers, values, 3)
    assert not violations(constraints, whole)
    for boundaries, size in (([], 1), ([1 + case % 3], 1), ([1, 3], 2), ([1, 2, 3], 1)):
        cut = by_segments(constraints, headers, values, seed(3), boundaries, size)
        np.testing.assert_array_equal(cut, whole)


@pytest.mark.thorough
def test_bounds_of_the_wrong_places_or_of_one_level_alone_are_found_out(rng, monkeypatch):
    """The mutants: limits counted from a segment's first place, and limits that do not reach the segments above."""
    constraints, headers, values = limited_by_place(rng, 2, 3, "bounds")
    values -= 6  # so that limits bind on every level
    whole = whole_tree(constraints, headers, values, 3)
    cut = by_segments(constraints, headers, values, seed(3), [2], 1)
    np.testing.assert_array_equal(cut, whole)
    every = SegmentPlan.bounds
    shifted = lambda plan, given: tuple(  # noqa: E731
        tuple(np.roll(t, 1, axis=0) for t in level) for level in every(plan, given)
    )
    monkeypatch.setattr(SegmentPlan, "bounds", shifted)
    assert (by_segments(constraints, headers, values, seed(3), [2], 1) != whole).any()
    monkeypatch.setattr(SegmentPlan, "bounds", every)
    heard = up
    deaf = lambda s, *given: {k: b * (not k.startswith("bound_")) for k, b in heard(s, *given).items()}  # noqa: E731
    monkeypatch.setitem(by_segments.__globals__, "up", deaf)
    assert (by_segments(constraints, headers, values, seed(3), [2], 1) != whole).any()


@pytest.mark.thorough
def test_bounds_by_place_have_tables_exactly_where_some_table_keeps_them(rng):
    """Brute force over all small tables: invariants by place and kind, bounds by place under them."""
    tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    margins = (Margin("all", ("sex",)), Margin("area", ("sex",)))
    headers = (
        *(Measured("q", m, DiscreteGaussian(4)) for m in margins),
        Measured("invariant", Margin("area"), Exact()),
    )
    every = np.stack(np.meshgrid(*[np.arange(5)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    found = []
    for _ in range(60):
        lower, totals = rng.integers(-1, 4, 4).astype(float), rng.integers(0, 5, 2)
        bound = Bound(Margin("area", ("sex",)), np.where(lower < 0, -np.inf, lower))
        constraints = Constraints(cells, margins, invariants=(Margin("area"),), bounds=(bound,))
        keep = (every >= lower).all(axis=1) & (every.reshape(-1, 2, 2).sum(axis=2) == totals).all(axis=1)
        values = np.concatenate([rng.integers(-3, 6, 6), totals])
        method = DEFAULT
        found.append(bool(keep.any()))
        state = method.prepare(constraints, headers)
        if not keep.any():
            with pytest.raises(InfeasibleError, match=r"cannot all hold.*the bound on"):
                method.apply(state, values, np.random.default_rng(1))
            continue
        table = method.apply(state, values, np.random.default_rng(1)).values
        assert not violations(constraints, table)
        np.testing.assert_array_equal(cells.sum(table, Margin("area")), totals)
    assert 5 < sum(found) < 55


def test_what_segments_cannot_keep_is_refused_in_words(rng):
    constraints, headers, _ = deep_problem(rng, {})
    cells = constraints.cells
    crossing = (Bound(Margin("l4", ("quarters",)), lower=1), Bound(Margin("l4", ("race",)), lower=1))
    zero = ({"quarters": "prison", "race": "a"},)
    for features, match in (
        ({"bounds": (Bound(Margin("l4"), upper=3),)}, "cannot enforce upper bounds"),
        ({"bounds": crossing}, "crosses another"),
    ):
        with pytest.raises(SpecError, match=match):
            segment_plan(Constraints(cells, constraints.margins, **features), headers)
    finest = Bound(Margin("l4", ("quarters", "adult", "race")), lower=1)
    with pytest.raises(InfeasibleError, match="that structural zeros exclude"):
        segment_plan(Constraints(cells, constraints.margins, zeros=zero, bounds=(finest,)), headers)


def test_contradictory_invariants_are_found_on_the_way_up(rng):
    constraints, headers, values = deep_problem(rng, {"invariants": (Margin("l1"), Margin("l3"))})
    values[-1] += 1
    for cuts in ([2], [], [1, 2, 3]):
        with pytest.raises(InfeasibleError, match="of level 'l1' and of level 'l3'"):
            by_segments(constraints, headers, values, seed(3), cuts, 1)


def test_what_the_arithmetic_cannot_tell_blames_no_invariant(rng, monkeypatch):
    """A residual of the least squares, however large, proves nothing of invariants whose sums agree."""
    constraints, headers, values = deep_problem(rng, {"invariants": (Margin("l1"), Margin("l3"))})
    solve = HistogramLeastSquares.up
    monkeypatch.setattr(HistogramLeastSquares, "up", lambda *given: (solve(*given)[0], (1e9, 0, 0)))
    with pytest.raises(ConvergenceError, match="rules exclude"):
        by_segments(constraints, headers, values, seed(3), [2], 1)


def test_a_plan_is_small_and_a_summary_survives_a_file(rng, tmp_path):
    constraints, headers, values = deep_problem(rng, FEATURES["everything"])
    plan, cells = segment_plan(constraints, headers), constraints.cells
    assert len(pickle.dumps(plan)) < 50_000
    segment = segment_of(plan, constraints, 2, len(cells.tree.levels) - 1, 0, 2)
    summary = up(segment, answers_of(segment, cells, headers, split(values, headers, cells)))
    np.savez(tmp_path / "summary.npz", **summary)
    with np.load(tmp_path / "summary.npz") as file:
        again = dict(file)
    assert again.keys() == summary.keys()
    assert all(np.array_equal(again[k], v) and len(v) == 2 for k, v in summary.items())
