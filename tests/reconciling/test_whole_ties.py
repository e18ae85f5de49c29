"""Whole points found by integer programming: ties fall to no cell because of where it is listed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from tests.conformance.structures import STRUCTURES
from trueup.arrays import projection
from trueup.kernel.linear.whole_fit import in_any_order, whole_nearest
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace, Exact
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.margins_projection import MarginsProjection

METHODS = (GeneralProjection("l1", "optimal"), GeneralProjection())
RUNS = 60


def _points(method, cells, invariants, values, rng):
    """Answers `(RUNS, n)` to the same values, which tie."""
    constraints = Constraints(cells, (cells.finest,), invariants=invariants, nonnegative=False)
    headers = [Measured("noisy", cells.finest, DiscreteLaplace("1"))]
    headers += [Measured("kept", margin, Exact()) for margin in invariants]
    state = method.prepare(constraints, headers)
    return method.apply(state, np.tile(np.concatenate(values), (RUNS, 1)), rng).values


def _on_a_sum(method, rng):
    """Which of four counties bears the odd person, as counts of 0..3."""
    tree = Tree.from_columns(["state", "county"], [{}, {"county": list("abcd")}])
    points = _points(method, Cells(tree), (Margin("state"),), ([0, 0, 0, 0], [1]), rng)
    assert (points.sum(axis=1) == 1).all()
    return np.bincount(points.argmax(axis=1), minlength=4)


def _on_a_table(method, rng):
    """Which of the six ways to put ones on a 3 x 3 table's permutations came out."""
    cells = Cells(
        Tree.from_columns(["all"], [{}]), tuple(Attribute(name, tuple("abc")) for name in ("one", "two"))
    )
    margins = tuple(Margin("all", (name,)) for name in ("one", "two"))
    points = _points(method, cells, margins, ([0] * 9, [1] * 3, [1] * 3), rng).reshape(-1, 3, 3)
    assert ((points.sum(axis=1) == 1) & (points.sum(axis=2) == 1)).all()
    return np.unique(points.argmax(axis=2) @ [9, 3, 1], return_counts=True)[1]


def _p_value(seen, classes):
    expected = RUNS / classes
    unseen = (classes - len(seen)) * expected
    return chi2.sf(((seen - expected) ** 2 / expected).sum() + unseen, classes - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "classes"),
    [(_on_a_sum, 4), pytest.param(_on_a_table, 6, marks=pytest.mark.slow)],
    ids=["sum", "table"],
)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.rounding)
def test_equally_good_points_are_equally_likely(method, draw, classes, rng, monkeypatch):
    assert _p_value(draw(method, rng), classes) > 1e-6
    given_order = lambda solve, polyhedron, fit, rng: solve(polyhedron, fit)  # noqa: E731
    monkeypatch.setattr(projection, "in_any_order", given_order)
    assert _p_value(draw(method, rng), classes) < 1e-6


def test_an_order_changes_no_loss_and_no_feasibility(rng):
    """Equalities, ranges and unequal weights survive the shuffle: only what ties may move."""
    structure = next(s for s in STRUCTURES if s.name == "overlapping sums")
    method = GeneralProjection("l1", "optimal")
    state = method.prepare(structure.constraints, structure.headers)
    for values in structure.noisy_values(structure.true_counts(rng), rng, 3):
        polyhedron, fit = state.polyhedron(values), state.fit(values)
        given = whole_nearest(polyhedron, fit)
        for _ in range(3):
            ours = in_any_order(whole_nearest, polyhedron, fit, rng)
            assert ours.objective == pytest.approx(given.objective)
            assert fit.objective(ours.x) == pytest.approx(fit.objective(given.x))
            assert polyhedron.residual(ours.x) < 1e-9


@pytest.mark.parametrize("method", [HistogramTree(), MarginsProjection()], ids=lambda m: m.name)
def test_a_total_of_a_half_goes_up_as_often_as_down(method, rng):
    """Margins of 601 and 600 persons and cells of 600 weigh 3, 2 and 1: a rule that always goes one way gives 0 or 200."""
    sexes, ages = Attribute("sex", tuple("fm")), Attribute("age", tuple("abc"))
    cells = Cells(Tree.from_columns(["all"], [{}]), (sexes, ages))
    tables = [("sex",), ("age",), ("sex", "age")]
    headers = [Measured(" ".join(t), Margin("all", t), DiscreteLaplace("1")) for t in tables]
    state = method.prepare(Constraints(cells, tuple(h.margin for h in headers)), headers)
    counts = method.apply(state, np.tile([301, 300, 200, 200, 200, *[100] * 6], (200, 1)), rng).values
    totals, times = np.unique(counts.sum(axis=1), return_counts=True)
    assert totals.tolist() == [600, 601]
    assert 50 < times[0] < 150  # of a fair coin: all but 1e-12
