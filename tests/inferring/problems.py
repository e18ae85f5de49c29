"""Small problems for inference: cells, headers, simulated noise, constraints."""

from __future__ import annotations

import numpy as np

from trueup.inferring import METHODS
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.records.measurements import Measurements
from trueup.model.tree import Tree
from trueup.noise import law_named

KINDS = [kind for kind in METHODS if not kind.released]
"""Methods of inference from noisy counts."""


def star(parts):
    """One total and its parts."""
    names = [f"p{k:04d}" for k in range(parts)]
    return Cells(Tree.from_columns(["all", "part"], [{}, {"part": names}]))


def states(counties):
    """Three levels: nation, states with the given numbers of counties."""
    state = [f"s{k}" for k, size in enumerate(counties) for _ in range(size)]
    county = [f"c{i}" for size in counties for i in range(size)]
    return Cells(Tree.from_columns(["nation", "state", "county"], [{}, {"state": state}, {"county": county}]))


def noisy(cells, counts, laws, rng):
    """Measurements of the margins in `laws`, with seeded noise."""
    headers = tuple(Measured("total", margin, law) for margin, law in laws.items())
    values = tuple(cells.sum(counts, h.margin) + draw(h.law, cells.size(h.margin), rng) for h in headers)
    return Measurements(cells, headers, values, PUBLISHED, simulation=True)


def draw(law, size, rng):
    """Seeded noise by inversion of the cdf: a road of its own, apart from the exact samplers."""
    noise = law.quantile(rng.random(size)) if law.variance else np.zeros(size)
    return noise.astype(np.int64) if law.discrete else noise


def laplace_tree(cells, epsilon="1"):
    """The discrete Laplace law at every level."""
    return {Margin(level): law_named("discrete-laplace")(epsilon) for level in cells.tree.levels}


def tree_constraints(cells, **more):
    """Nonnegative counts on nested margins."""
    return Constraints(cells, tuple(Margin(level) for level in cells.tree.levels), **more)


def families(places):
    """Places with three counts of their own: persons under and over 18, and families."""
    names = [f"{k:02d}" for k in range(places)]
    kinds = Attribute("count", ("under18", "over18", "families"), partition=False)
    return Cells(Tree.from_columns(["all", "place"], [{}, {"place": names}]), (kinds,))


FAMILY_RULES = ("families >= 1", "under18 + over18 >= 2 * families", "under18 + over18 <= 10 * families")


def family_constraints(cells, rules=FAMILY_RULES, **more):
    """The rules of average family size at every place."""
    linear = tuple(LinearRule(parse_linear(rule), "place") for rule in rules)
    return Constraints(cells, (cells.finest,), linear=linear, **more)


def family_measurements(places, rng, law):
    cells = families(places)
    truth = np.tile([30, 60, 25], places)
    return cells, Measurements(
        cells, (Measured("m", cells.finest, law),), (truth + draw(law, cells.n, rng),), PUBLISHED
    )
