"""How an assessment is carried out: interruptions, workers, blocks, what may stand in for the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

import trueup
from tests.assessing.worlds import area_spec, areas, block_spec, blocks
from tests.parameters import one_in
from trueup.assessing import assess
from trueup.assessing.replicate import replicate_blocks
from trueup.errors import DataError
from trueup.measuring import measure
from trueup.model.build import build_constraints
from trueup.model.mechanism import plan_measurements
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.reconciling import METHODS, misfit, reconcile
from trueup.reconciling.tree_topdown import TreeTopDown


def same(one, other):
    assert one.summary.keys() == other.summary.keys()
    return all(np.array_equal(one.summary[name], other.summary[name]) for name in one.summary)


def stop_after(replicates):
    def progress(done, of):
        if done >= replicates:
            raise KeyboardInterrupt

    return progress


def test_equal_seeds_give_equal_figures_and_others_do_not(rng):
    table = blocks(rng)
    first, again, other = (assess(block_spec(), table, replicates=60, seed=s) for s in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_an_interruption_keeps_the_blocks_before_it(rng):
    table = blocks(rng)
    told = []
    whole = assess(block_spec(), table, replicates=200, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (200, 200)
    assert len(told) >= 20
    cut = assess(block_spec(), table, replicates=200, progress=stop_after(70))
    assert cut.interrupted
    assert not whole.interrupted
    assert 70 <= cut.replicates < 90
    assert cut.rows(statistic="bias")["replicates"].max() == cut.replicates
    with pytest.raises(KeyboardInterrupt):
        assess(block_spec(), table, replicates=200, progress=stop_after(1))


@pytest.mark.slow
def test_workers_change_no_figure(rng):
    table = blocks(rng)
    assert same(*(assess(block_spec(), table, replicates=80, workers=w) for w in (1, 2)))


@pytest.mark.parametrize("replicates", [40, 41, 59, 1000, 10_007])
@pytest.mark.parametrize("cells", [2, 5_000, 7_000_000])
def test_blocks_hold_every_replicate_once_and_at_least_two(replicates, cells):
    made = replicate_blocks(replicates, cells)
    assert sum(b.size for b in made) == replicates
    assert all(b.size >= 2 for b in made)
    assert len(made) >= 20
    assert [b.start for b in made] == np.cumsum([0, *(b.size for b in made[:-1])]).tolist()


def released(counts):
    spec = area_spec()
    return spec, reconcile(measure(spec, areas(counts)))


def test_a_release_stands_in_for_the_truth_and_is_public():
    spec, release = released([300, 500, 20])
    found = assess(spec, release, replicates=60)
    assert found.public
    assert found.truth == "the counts of an earlier release"


def test_a_simulated_release_is_not_public():
    spec, release = released([300, 500, 20])
    seeded = replace(release, measurements=replace(release.measurements, simulation=True))
    assert not assess(spec, seeded, replicates=60).public


def test_a_release_below_zero_or_of_other_levels_is_refused():
    spec, release = released([300, 500, 20])
    with pytest.raises(DataError, match="below zero or fractions"):
        assess(spec, replace(release, counts=np.array([-3, 500, 20])), replicates=60)
    with pytest.raises(DataError, match="below zero or fractions"):
        assess(spec, replace(release, counts=np.array([3.5, 500, 20])), replicates=60)
    with pytest.raises(DataError, match="other levels"):
        assess(block_spec(), release, replicates=60)


def test_methods_of_one_name_are_told_apart_by_their_parameters():
    found = trueup.assess(
        area_spec(),
        areas([30, 50]),
        replicates=40,
        methods=[TreeTopDown(), ("tree-topdown", {"rounding": "none"})],
    )
    assert [m.label for m in found.methods] == ["tree-topdown", "tree-topdown, rounding none"]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", one_in(2, METHODS), ids=lambda kind: kind.name)
def test_every_method_that_fits_can_be_assessed(kind):
    """Batches go through every method; those that fit neither a total with its parts nor a table are left out."""
    for spec, table in ((area_spec(), areas([0, 3, 50, 400])), (sex_by_age(), SEX_BY_AGE)):
        cells = public_cells(spec, table)
        headers, _ = plan_measurements(spec, cells)
        if misfit(kind(), build_constraints(spec, cells), headers) is None:
            found = assess(spec, table, replicates=40, methods=[kind()], public_truth=True)
            for margin in found.levels:
                assert 0 < found.figure("rmse", str(margin))[0] < 40


SEX_BY_AGE = pandas.DataFrame(
    {"sex": ["f"] * 3 + ["m"] * 3, "age": ["y", "m", "o"] * 2, "n": [0, 3, 9, 100, 40, 2]}
)


def sex_by_age():
    """A table with crossing margins."""
    return parse_spec(
        """
format = 2
title = "Sexes and ages"
table = { name = "people", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }]
attribute = [{ name = "sex", values = ["f", "m"] }, { name = "age", values = ["y", "m", "o"] }]
query = [
  { name = "by_sex", attributes = ["sex"], epsilon = { all = "1/2" } },
  { name = "by_age", attributes = ["age"], epsilon = { all = "1/2" } },
  { name = "cells", attributes = ["sex", "age"], epsilon = { all = "1/2" } },
]
"""
    )


def test_noise_that_keeps_invariants_is_drawn_as_whole_vectors():
    spec = parse_spec(
        """
format = 2
title = "Areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", noise = "lattice-laplace", epsilon = { area = "1/2" } }]
constraints = { invariants = [{ level = "all" }] }
"""
    )
    found = assess(spec, areas([300, 500, 200]), replicates=60, methods=["tree-topdown"])
    assert found.figure("rmse", "all")[0] == 0
    assert found.figure("rmse", "area")[0] > 1


def test_trees_are_what_siblings_are_counted_in():
    from trueup.assessing.tally import stratify
    from trueup.model.cells import Cells, Margin

    tree = Tree.from_columns(["all", "state", "county"], [{}, {"s": list("aabbb")}, {"c": list("12345")}])
    strata = stratify(Cells(tree), np.array([0, 7, 10, 99, 100]), Margin("county"), (1, 10, 100))
    assert {c.by: dict(zip(c.labels, c.units.tolist())) for c in strata.classings} == {
        "level": {"all": 5},
        "size": {"0": 1, "1-9": 1, "10-99": 2, "100 and more": 1},
        "siblings": {"2-4": 5},
    }
