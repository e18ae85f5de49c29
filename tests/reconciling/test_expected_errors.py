"""Simulated errors: every method has them, they are reproducible, and margins follow their definition."""

from __future__ import annotations

import re

import numpy as np
import pandas
import pytest

from tests.conformance.methods import FITTING
from tests.parameters import one_in
from trueup.errors import SpecError
from trueup.measuring import measure, simulate
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import (
    COARSE_MARGIN_COUNTS,
    CONFIDENCES,
    ErrorClass,
    ExpectedErrors,
    error_classes,
    whole_margin,
)
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.reconciling import published, reconcile, sums_of_published
from trueup.reconciling.expected_errors import MIN_REPLICATES, Sample, expected_errors, some_places


def _simulated(method, structure, population, seed=1):
    tables = published(structure.constraints)
    sample = Sample(structure.constraints.cells, population[None], structure.constraints, structure.headers)
    return expected_errors(method, sample, tables, np.random.default_rng(seed), said="a test", work=1), tables


@pytest.mark.parametrize(("method", "structure"), one_in(8, FITTING))
def test_every_method_has_errors_for_every_table(method, structure, rng):
    found, tables = _simulated(method, structure, structure.true_counts(rng))
    assert tuple(found.tables) == tables, found.note
    fixed = [
        c
        for c in found.classes
        if any(structure.constraints.cells.contains(c.table, i) for i in structure.constraints.invariants)
    ]
    assert all(c.rmse <= 1e-6 and max(c.margins) <= 1e-6 for c in fixed)
    for row in found.classes:
        assert list(row.margins) == sorted(row.margins)
        assert abs(row.bias) <= row.rmse + 1e-12


@pytest.mark.parametrize(("method", "structure"), FITTING[::9])
def test_the_same_seed_gives_the_same_errors(method, structure, rng):
    population = structure.true_counts(rng)
    assert _simulated(method, structure, population)[0] == _simulated(method, structure, population)[0]


@pytest.mark.parametrize("share", [percent / 100 for percent in CONFIDENCES])
def test_whole_margins_are_the_least_that_reach_their_share_unless_one_less_is_nearer(share, rng):
    for scale in (0.5, 2.0, 5.0, 40.0):
        size = np.sort(np.abs(np.rint(rng.normal(0, scale, 2000))).astype(np.int64))
        margin = whole_margin(size, share)
        covered, less = ((size <= m).mean() for m in (margin, margin - 1))
        if margin < COARSE_MARGIN_COUNTS:
            assert covered >= share > less
        else:
            assert covered >= share - (1 - share) / 5
            assert abs(covered - share) <= abs(less - share) + 1e-12 or less < share - (1 - share) / 5


def test_margins_are_looked_up_by_the_released_count():
    table = Margin("area", ("sex",))
    rows = tuple(ErrorClass(table, low, 500, 0.0, 1.0, (m,) * 5) for low, m in ((1, 3), (10, 5), (100, 8)))
    found = ExpectedErrors(rows, "").margin_of_error(table, np.array([-2, 0, 9, 10, 99, 100, 10**6]), "95%")
    assert found is not None
    assert found.tolist() == [3, 3, 3, 5, 5, 8, 8]
    assert ExpectedErrors(rows, "").margin_of_error(Margin("area"), np.array([1])) is None


@pytest.mark.parametrize("level", ["91%", 0.85, "99.5%"])
def test_other_levels_are_refused(level):
    with pytest.raises(SpecError, match="90%"):
        ExpectedErrors((), "").margin_of_error(Margin("area"), np.array([1]), level)


def test_classes_hold_every_error_once(rng):
    released, errors = rng.integers(0, 500, 3000), rng.integers(-9, 9, 3000)
    classes = error_classes(Margin("area"), released, errors, whole=True)
    assert sum(c.simulated for c in classes) == 3000
    assert sum(c.simulated * c.bias for c in classes) == pytest.approx(errors.sum())
    assert sum(c.simulated * c.rmse**2 for c in classes) == pytest.approx((errors**2).sum())


@pytest.mark.parametrize("work", [100, 3000, 10**5, 10**7])
def test_a_sample_of_places_is_whole_below_the_chosen_ones(work, rng):
    areas = np.repeat(np.arange(60), rng.integers(1, 40, 60))
    columns = [{}, {"region": areas // 7}, {"area": areas}, {"block": np.arange(areas.size)}]
    cells = Cells(
        Tree.from_columns(["all", "region", "area", "block"], columns), (Attribute("sex", ("f", "m")),)
    )
    some, leaves = some_places(cells, work, np.random.default_rng(2))
    tree, whole = some.tree, cells.tree
    assert some.n <= max(2 * work // MIN_REPLICATES, 3 * cells.n // 60)
    assert (some.n == cells.n) == (work >= MIN_REPLICATES * cells.n)
    for level in range(4):
        for name, column in tree.keys[level].items():
            at = whole.ancestors(3, level)[leaves]
            np.testing.assert_array_equal(column[tree.ancestors(3, level)], whole.keys[level][name][at])
    if work >= 1000:
        children = np.diff(whole.leaf_ptr(2))
        kept = np.unique(whole.ancestors(3, 2)[leaves])
        np.testing.assert_array_equal(np.diff(tree.leaf_ptr(2)), children[kept])


SUMS = """
format = 2
title = "Dwellings"
table = { name = "d", kind = "counts", counts = "home", count = "n" }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "borough", column = "borough" }, { name = "ward", column = "ward" }]
attribute = [{ name = "type", values = ["a", "b", "c"] }, { name = "tenure", values = ["own", "rent"] }]
query = [
  { name = "total", epsilon = { ward = "1/2" } },
  { name = "both", attributes = ["type", "tenure"], epsilon = { ward = "1/2" } },
]
"""


@pytest.mark.thorough
def test_margins_of_sums_of_published_tables_hold_as_often_as_they_say(rng):
    """In 40 releases of 5 boroughs; the margins of single cells, which leave out that errors add up, hold far less."""
    places = {"borough": np.repeat(list("vwxyz"), 8), "ward": [f"{i:02d}" for i in range(40)]}
    problem = Problem.of(parse_spec(SUMS), pandas.DataFrame(places))
    sums, held, short = Margin("borough", ("type",)), [], []
    assert sums in sums_of_published(problem.constraints)
    for _ in range(40):
        truth = rng.poisson(rng.gamma(0.7, 40, problem.cells.n))
        released = reconcile(simulate(problem, truth, rng))
        off = np.abs(released.sums(sums) - problem.cells.sum(truth, sums))
        held.append(off <= released.margin_of_error(sums))
        short.append(off <= released.margin_of_error(problem.cells.finest).mean())
    assert 0.84 <= np.mean(held) <= 0.97  # 600 counts; those of one release err together
    assert np.mean(short) < 0.7


KNOWN = """
format = 2
title = "Homes"
table = { name = "homes", kind = "counts", counts = "home", count = "n" }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["house", "flat", "van"] }, { name = "let", values = ["yes", "no"] }]
query = [{ name = "q", attributes = ["kind", "let"], epsilon = { area = "1/2" } }]

[constraints]
zeros = [{ kind = "van", let = "yes" }]
bounds = [{ level = "area", attributes = ["kind"], where = { kind = "flat" }, upper = "flats" }]
"""


def test_counts_that_rules_make_zero_have_no_error_and_are_in_no_class():
    places = pandas.DataFrame({"area": list("abcdef"), "flats": [0, 9, 0, 50, 50, 50]})
    rows = [(a, kind, let, 40) for a in places.area for kind in ("house", "van") for let in ("yes", "no")]
    rows = [row for row in rows if row[1:3] != ("van", "yes")]
    data = pandas.DataFrame(rows, columns=["area", "kind", "let", "n"])
    release = reconcile(measure(parse_spec(KNOWN), data, geography=places))
    known = np.zeros((6, 3, 2), bool)
    known[:, 2, 0] = True  # let vans
    known[[0, 2], 1] = True  # flats where there are none
    figures, finest = release.figures("area x kind x let"), Margin("area", ("kind", "let"))
    assert np.ma.getmaskarray(figures["noisy"]).tolist() == known.ravel().tolist()
    assert ((figures["margin of error"] == 0) == known.ravel()).all()
    assert ((release.figures("area x kind")["margin of error"] == 0) == known.all(axis=2).ravel()).all()
    assert release.expected is not None
    simulated = sum(each.simulated for each in release.expected.tables[finest])
    replicates = int(re.findall(r"(\d+) replicates", release.expected.note)[0])
    assert simulated == replicates * (~known).sum()
