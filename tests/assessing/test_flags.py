"""Flags have power: wrong methods and intervals are flagged on the data on which the defaults' claims hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from numpy.typing import NDArray

from benchmarks._nonnegative import nonnegative
from tests.assessing.worlds import ClipThenRescale, NaiveMargin, area_spec, areas, block_spec, blocks
from trueup.assessing import assess
from trueup.assessing.estimators import LeastSquares
from trueup.layouts.tree import TreeProblem
from trueup.model.spec import load_spec
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_topdown import RoundedTreeMethod, TreeTopDown


def kinds(found):
    return {(flag.what, flag.method, flag.about) for flag in found.flags}


def test_wrong_methods_and_intervals_are_flagged_where_the_defaults_are_not(rng):
    found = assess(
        block_spec(),
        blocks(rng, tracts=40),
        replicates=600,
        methods=["tree-topdown", "tree-equality", ClipThenRescale()],
        intervals=[LeastSquares(), NaiveMargin()],
        public_truth=True,
    )
    assert kinds(found) == {
        ("bias", "clip-then-rescale", ""),
        ("coverage", "clip-then-rescale", "naive"),
        ("coverage", "tree-topdown", "naive"),
        ("coverage", "tree-equality", "naive"),
    }
    assert all("naive" in flag.sentence for flag in found.flags if flag.what == "coverage")


@dataclass(frozen=True)
class GlobalOptimum(RoundedTreeMethod):
    """The nearest additive counts that are nowhere below zero: leaves lifted to zero push their totals up."""

    name: ClassVar[str] = "global-optimum"
    title: ClassVar[str] = "global nonnegative least squares, rounded"

    def solve(self, state: TreeProblem, nodes: NDArray) -> Solution:
        return Solution(nonnegative(state.child_ptr, state.variance, nodes)[0])


@pytest.mark.thorough
def test_the_global_optimum_is_flagged_for_the_totals_it_pushes_up(rng):
    table = blocks(rng, tracts=60, most=60)
    table["n"] *= rng.random(len(table)) > 0.5
    found = assess(
        block_spec(), table, replicates=600, methods=["tree-topdown", GlobalOptimum()], public_truth=True
    )
    assert [f.method for f in found.flags if f.what == "bias" and f.level == "state"] == ["global-optimum"]


def test_an_interval_that_claims_more_than_it_holds_is_flagged(rng):
    class Bold(LeastSquares):
        """Wrong: claims 97 % for 90 %."""

        name = "bold"

        def bounds(self, published, margin, counts):
            return LeastSquares(0.9).bounds(published, margin, counts)

    found = assess(
        area_spec(), areas([500, 900, 70]), replicates=4_000, intervals=[Bold(0.97)], public_truth=True
    )
    assert kinds(found) == {("coverage", "tree-topdown", "bold")}


@pytest.mark.thorough
def test_right_claims_are_not_flagged_whatever_the_seed(rng):
    """About a thousand tests of right claims: a margin of two or three errors would flag some."""
    for seed in rng.integers(2**31, size=60).tolist():
        found = assess(
            area_spec(),
            areas([40, 500, 900, 70]),
            replicates=40,
            methods=["tree-equality"],
            seed=seed,
            public_truth=True,
        )
        assert found.flags == ()


@pytest.mark.slow
def test_real_blocks(data_dir):
    from pathlib import Path

    spec = load_spec(Path(__file__).parents[2] / "examples" / "blocks.toml")
    found = assess(
        spec,
        data_dir / "ri_blocks_2010.csv.gz",
        replicates=400,
        methods=[TreeTopDown(), ClipThenRescale()],
        intervals=["least-squares", NaiveMargin()],
        public_truth=True,
    )
    assert kinds(found) == {
        ("bias", "clip-then-rescale", ""),
        ("coverage", "clip-then-rescale", "naive"),
        ("coverage", "tree-topdown", "naive"),
    }
