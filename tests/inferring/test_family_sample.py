"""Estimates from a sample of a large tree's families: exact evidence of what remains, and what they are worth."""

from __future__ import annotations

import numpy as np
import pytest

from tests.inferring.problems import laplace_tree, noisy, states, tree_constraints
from trueup.errors import ConvergenceError
from trueup.inferring import hierarchical, infer, tree_estimate, tree_search, tree_work
from trueup.inferring.hierarchical import ascend, start_of, with_curvature
from trueup.inferring.tree_estimate import estimate_from
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_grid import TreeGrid
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_work import FamilySample
from trueup.io.published.sdhc import PUBLISHED
from trueup.layouts.splits import splits_of
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.prior import Bounded, Hierarchical
from trueup.model.records.measurements import Measurements
from trueup.run import Deadline
from trueup.run.local import LocalPool

PRIOR = Hierarchical(total=Bounded(3000))


def quiet(done, of):
    pass


def searched(cells, measured, prior=PRIOR):
    """A search on the whole tree, and the prior laid on it."""
    state = TreeExact(prior=prior).prepare(tree_constraints(cells), measured.headers)
    splits = splits_of(prior, state.problem.nested, state.problem.bounds()[1])
    return SolutionSearch(state, measured.flat, LocalPool()), splits


def test_the_evidence_of_a_sample_is_that_of_what_was_measured_in_it(rng):
    cells = states([3, 6, 4, 5])
    measured = noisy(cells, rng.negative_binomial(0.7, 0.05, cells.n), laplace_tree(cells, "1/2"), rng)
    search, splits = searched(cells, measured)
    sample = FamilySample.of(search.state, 9)
    kept = sample.nodes[sample.nodes >= 5] - 5
    assert 0 < len(kept) < cells.n
    nation, state, county = measured.headers
    fewer = (nation, state, Measured("total", Margin("county"), county.law, groups=kept))
    values = (*measured.values[:2], measured.values[2][kept])
    rest, all_splits = searched(cells, Measurements(cells, fewer, values, PUBLISHED, simulation=True))
    theta = rng.normal(0, 0.7, 2)
    ours = search.of(sample).objective(sample.splits(splits), quiet)(theta)
    theirs = rest.objective(all_splits, quiet)(theta)
    assert np.isclose(ours.value, theirs.value, rtol=0, atol=1e-5)
    assert np.allclose(ours.gradient, theirs.gradient, rtol=0, atol=1e-4)
    whole = search.objective(splits, quiet)(theta)
    assert abs(whole.value - ours.value) > 1


def test_grids_on_a_sample_have_its_evidence(rng):
    """As exact messages on the same families; those of the whole tree are another."""
    cells = states([3, 6, 4, 5])
    measured = noisy(cells, rng.negative_binomial(0.7, 0.05, cells.n), laplace_tree(cells, "1/5"), rng)
    search, splits = searched(cells, measured)
    sample = FamilySample.of(search.state, 9)
    theta = rng.normal(0, 0.7, 2)
    exact = search.of(sample).objective(sample.splits(splits), quiet)(theta)
    on_grids = TreeGrid(search.state, measured.flat, Deadline.of(), 0.2, sample=sample)
    ours = on_grids.objective(sample.splits(splits), quiet)(theta)
    assert np.isclose(ours.value, exact.value, rtol=0, atol=0.02)
    assert np.allclose(ours.gradient, exact.gradient, rtol=0, atol=0.05)
    whole = TreeGrid(search.state, measured.flat, Deadline.of(), 0.2).objective(splits, quiet)(theta)
    assert abs(whole.value - ours.value) > 1


@pytest.mark.thorough
def test_estimates_from_a_sample_agree_with_those_from_all_within_their_standard_errors(rng, monkeypatch):
    """Those of concentrations half as large again are more than five standard errors off."""
    cells = states([12] * 150)
    mean = rng.gamma(3.0, 10.0, 150).repeat(12)
    measured = noisy(cells, rng.poisson(mean * rng.gamma(0.5, 2.0, cells.n)), laplace_tree(cells), rng)
    search, splits = searched(cells, measured, Hierarchical())
    objective, (theta, guess, few) = search.objective(splits, quiet), start_of(splits)
    every = with_curvature(objective, ascend(objective, theta, guess, few), guess, few)
    monkeypatch.setattr(tree_estimate, "BEGIN", 300)
    monkeypatch.setattr(tree_estimate, "SAMPLE_PARTS", 800)
    monkeypatch.setattr(hierarchical, "MAX_CURVATURE_PARTS", 200)
    _, sample, chosen, found = estimate_from(search, splits, quiet)
    assert chosen is splits
    used = sample.record(splits)
    assert used["state"] == [150, 150]
    assert 700 <= used["county"][0] <= 900
    assert used["county"][1] == 1800
    assert found.settled
    off = (found.theta - every.theta) / found.sd
    assert np.abs(off).max() < 5
    assert abs(off[1] + np.log(1.5) / found.sd[1]) > 5
    one = TreeExact(prior=Hierarchical(most_kinds=1))
    record = infer(measured, one, spec=tree_constraints(cells), draws=8).drawn.stats["prior"]
    assert record["estimated_from"] == used
    estimates = record["estimates"].values()
    assert [row["mode"] for row in estimates] == found.theta.tolist()
    assert [row["sd"] is None for row in estimates] == [False, True]


def test_a_sample_keeps_step_with_no_order(rng):
    """Parents in turn of several kinds are kept in equal shares, whatever their number."""
    for count in (3, 7, 10, 12):
        share = 1 / count
        kept = (np.arange(5000) * tree_work.GOLDEN) % 1.0 < share
        kinds = np.bincount(np.arange(5000)[kept] % count, minlength=count)
        assert kinds.min() > 0.8 * kept.sum() / count
        every = np.bincount(np.arange(0, 5000, count) % count, minlength=count)
        assert every.min() == 0


def test_small_trees_are_seen_whole(rng):
    cells = states([3, 4])
    search, _ = searched(cells, noisy(cells, np.full(7, 5), laplace_tree(cells), rng))
    assert FamilySample.of(search.state, 7) is None


def test_a_giant_family_is_left_out_of_a_sample(rng):
    """Of 14 families the last one of those whose turn comes holds most parts."""
    cells = states([20] * 13 + [2000])
    measured = noisy(cells, rng.poisson(3, cells.n), laplace_tree(cells, "1/2"), rng)
    sample = FamilySample.of(searched(cells, measured)[0].state, 300)
    assert 20 <= len(sample.nodes) - 15 <= 300


def test_one_family_of_many_parts_is_seen_whole(rng):
    cells = states([12])
    search, _ = searched(cells, noisy(cells, np.full(12, 5), laplace_tree(cells), rng))
    assert FamilySample.of(search.state, 7) is None


@pytest.mark.parametrize("most", [2, 99])
def test_a_search_ends_where_deeper_tables_lose_as_much(most, rng, monkeypatch):
    cells = states([3, 6, 4, 5])
    measured = noisy(cells, rng.negative_binomial(0.7, 0.05, cells.n), laplace_tree(cells, "1/2"), rng)
    search, splits = searched(cells, measured)
    search.splits, settle, tries = splits.parameters(np.zeros(2)), tree_search.settle_tilts, []

    def lame(*given, **options):
        tries.append(len(tries))
        return settle(*given, **options)._replace(dropped=0.95)

    monkeypatch.setattr(tree_search, "settle_tilts", lame)
    monkeypatch.setattr(tree_search, "MOST_LOST", most)
    with pytest.raises(ConvergenceError, match="larger ranges of counts"):
        search.whole(1e-9)
    assert (len(tries) == 2) == (most == 2)
