"""Small made-up geographies and deliberately wrong methods and intervals that the tests of assess share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas

from trueup.assessing.estimators import IntervalRule
from trueup.assessing.replicate import simulate_many
from trueup.layouts.tree import tree_problem
from trueup.model.spec import parse_spec
from trueup.reconciling.method import Solution
from trueup.reconciling.tree_topdown import TreeTopDown

SPEC = """
format = 2
title = "Blocks"
table = { name = "blocks", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "state" }, { name = "tract", column = "tract" }, { name = "block", column = "block" }]
query = [{ name = "total", epsilon = { state = "1/5", tract = "2/5", block = "2/5" } }]
"""
SMALL = """
format = 2
title = "Areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/2", area = "1/2" } }]
"""


def blocks(rng: np.random.Generator, tracts: int = 12, most: int = 25) -> pandas.DataFrame:
    """Blocks of which two fifths are empty and a few hold thousands, as real blocks do."""
    sizes = rng.integers(2, most, tracts)
    tract = np.repeat([f"{t:02d}" for t in range(tracts)], sizes)
    count = np.floor(rng.lognormal(3, 1.6, tract.size)) * (rng.random(tract.size) > 0.4)
    block = [f"{i:04d}" for i in range(tract.size)]
    return pandas.DataFrame({"tract": tract, "block": block, "n": count.astype(int)})


def block_spec():
    return parse_spec(SPEC)


def area_spec():
    return parse_spec(SMALL)


def areas(counts) -> pandas.DataFrame:
    return pandas.DataFrame({"area": [f"{i:03d}" for i in range(len(counts))], "n": counts})


@dataclass(frozen=True)
class ClipThenRescale(TreeTopDown):
    """Wrong: negative noisy counts of cells are set to zero, and all are scaled to the noisy total."""

    name: ClassVar[str] = "clip-then-rescale"
    title: ClassVar[str] = "negative counts set to zero, all scaled to the total"

    def prepare(self, constraints, headers):
        return tree_problem(constraints, headers)

    def apply(self, state, values, rng):
        nodes = state.values(values)
        leaves = np.maximum(state.finest(nodes), 0)
        total = np.maximum(nodes[..., :1], 0)
        return Solution(np.rint(leaves * total / leaves.sum(axis=-1, keepdims=True)).astype(np.int64))

    def errors(self, state):
        return {}


@dataclass(frozen=True)
class NaiveMargin(IntervalRule):
    """Wrong: the noise margin of one finest count for every count, whatever it is a sum of."""

    level: float = 0.9
    name: ClassVar[str] = "naive"

    def bounds(self, published, margin, counts):
        finest = next(h for h in published.headers if h.margin == published.cells.finest)
        reach = float(finest.law.quantile(0.5 + self.level / 2))
        return counts - reach, counts + reach


def every_replicate(simulation, blocks, budget=0, number=0):
    """All estimated counts `(replicates, groups)` of one method, by margin."""
    headers, estimators = simulation.scenarios[budget]
    found = {strata.margin: [] for strata in simulation.strata}
    for block in blocks:
        values = simulate_many(
            simulation.cells, simulation.counts, headers, simulation._rng(block, 0), block.size
        )
        estimate = estimators[number].estimate(
            simulation.cells, list(found), values, simulation._rng(block, 1)
        )
        for margin, rows in found.items():
            rows.append(estimate.tables[margin])
    return {margin: np.concatenate(rows) for margin, rows in found.items()}
