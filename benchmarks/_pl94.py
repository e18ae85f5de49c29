"""A synthetic state shaped like the redistricting data: six levels down to blocks, 2,016 cells, eleven marginals.

Shares of the budget are close to those of the persons' tables of 2020, so that variances are as unequal as they were
in production: most of an upper level's budget goes to its totals, most of a block's to its cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.histogram import marginalise
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.undrawn import Exact

LEVELS = ("nation", "state", "county", "tract", "block group", "block")
RHO = 2.556
SHARES = (104, 1440, 447, 687, 1256, 165)  # of the levels, in 4099ths
QUERIES: dict[tuple[str, ...], tuple[int, ...]] = {  # shares of a level's budget, in 4100ths
    (): (0, 3773, 3126, 1567, 1705, 5),
    ("cenrace",): (52, 6, 10, 8, 3, 9),
    ("hispanic",): (26, 6, 10, 5, 3, 5),
    ("votingage",): (26, 6, 10, 5, 3, 5),
    ("hhinstlevels",): (26, 6, 10, 5, 3, 5),
    ("hhgq",): (26, 6, 10, 5, 3, 5),
    ("hispanic", "cenrace"): (130, 12, 28, 1933, 1055, 21),
    ("votingage", "cenrace"): (130, 12, 28, 10, 9, 21),
    ("votingage", "hispanic"): (26, 6, 10, 5, 3, 5),
    ("votingage", "hispanic", "cenrace"): (442, 34, 101, 67, 24, 71),
    ("hhgq", "votingage", "hispanic", "cenrace"): (3213, 230, 754, 482, 1288, 3945),
}
QUARTERS = ("household", "prison", "juvenile", "nursing", "other institution", "college", "military", "other")
SHAPE = (8, 2, 2)  # of quarters, voting age, Hispanic origin; then race


def attributes(races: int) -> tuple[Attribute, ...]:
    """The four attributes, with so many races."""
    levels = Recode("hhinstlevels", ("household", "institution", "none"), (0, 1, 1, 1, 1, 2, 2, 2))
    return (
        Attribute("hhgq", QUARTERS, recodes=(levels,)),
        Attribute("votingage", ("under 18", "18 and over")),
        Attribute("hispanic", ("no", "yes")),
        Attribute("cenrace", tuple(f"race {i}" for i in range(races))),
    )


@dataclass(frozen=True)
class State:
    """Places and true histograms of the blocks, in sparse rows."""

    tree: Tree
    pointer: NDArray[np.int64]  # (blocks + 1,) where a block's persons start
    persons: NDArray[np.int16]  # their cells
    races: int

    @cached_property
    def cells(self) -> Cells:
        """The finest cells."""
        return Cells(self.tree, attributes(self.races))

    @cached_property
    def headers(self) -> tuple[Measured, ...]:
        """Eleven marginals at every level but the nation's total, and the state's total as enumerated."""
        noisy = [
            Measured("q", Margin(level, names), _law(RHO * share / 4099 * shares[i] / 4100))
            for i, (level, share) in enumerate(zip(LEVELS, SHARES, strict=True))
            for names, shares in QUERIES.items()
            if shares[i]
        ]
        return (*noisy, Measured("invariant", Margin("state"), Exact()))

    @cached_property
    def constraints(self) -> Constraints:
        """Nonnegative counts and the state's total."""
        noisy = tuple(h.margin for h in self.headers if not h.exact)
        return Constraints(self.cells, noisy, invariants=(Margin("state"),))

    def truth(self, level: int, places: slice) -> NDArray[np.float64]:
        """Histograms (places, n)."""
        leaves = self.tree.leaf_ptr(level)[places.start : places.stop + 1]
        edges = self.pointer[leaves]
        owner = np.repeat(np.arange(leaves.size - 1), np.diff(edges))
        cell = self.persons[edges[0] : edges[-1]]
        n = 32 * self.races
        return np.bincount(owner * n + cell, minlength=(leaves.size - 1) * n).reshape(-1, n).astype(float)

    def answers(self, level: int, places: slice) -> list[NDArray[np.float64]]:
        """Noisy answers (places, groups) of a level's headers; the same whoever asks for which places."""
        own = [h for h in self.headers if h.margin.level == LEVELS[level]]
        truth = self.truth(level, places)
        tables = [marginalise(truth, self.cells.marginal(h.margin.attributes)) for h in own]
        for i, place in enumerate(range(places.start, places.stop)):
            rng = np.random.default_rng([level, place])
            for h, table in zip(own, tables, strict=True):
                if not h.exact:
                    table[i] += np.rint(rng.normal(0, float(h.law.variance) ** 0.5, table.shape[1]))
        return tables


def _law(rho: float) -> DiscreteGaussian:
    return DiscreteGaussian(Fraction(f"{1 / rho:.3f}"))  # one person changes two counts: variance 1 / rho


def synthetic(blocks: int, races: int = 63, seed: int = 0) -> State:
    """A state of so many blocks: about 27 to a block group, a third empty, few races a block, some quarters."""
    rng = np.random.default_rng(seed)
    sizes = [1, 1, *(max(1, round(blocks / b)) for b in (2200, 75, 27)), blocks]
    tree = Tree(LEVELS, *_pointers(sizes, rng))
    people = np.where(rng.random(blocks) < 0.65, rng.lognormal(3.6, 1.0, blocks), 0).astype(np.int64)
    tract = tree.ancestors(5, 3)
    quarters = np.where(rng.random(blocks) < 0.02, rng.integers(1, 8, blocks), 0)
    owner = np.repeat(np.arange(blocks), people)
    cenrace = np.minimum(_races(rng, tract[owner], sizes[3]), races - 1)
    hispanic = rng.random(owner.size) < rng.beta(1, 5, sizes[3])[tract[owner]]
    adult = rng.random(owner.size) < 0.77
    hhgq = np.where(rng.random(owner.size) < 0.9, quarters[owner], 0)
    codes = (hhgq, adult.astype(int), hispanic.astype(int), cenrace)
    persons = np.ravel_multi_index(codes, (*SHAPE, races)).astype(np.int16)
    return State(tree, np.append(0, np.cumsum(people)), persons, races)


def _pointers(sizes: list[int], rng: np.random.Generator):
    counts = []
    for above, below in pairwise(sizes):
        extra = rng.multinomial(below - above, rng.dirichlet(np.full(above, 3.0)))
        counts.append(1 + extra)
    every = np.concatenate([*counts, np.zeros(sizes[-1], np.int64)])
    return 1 + np.append(0, np.cumsum(every)), np.append(0, np.cumsum(sizes))


def _races(rng: np.random.Generator, tract: NDArray[np.int64], tracts: int) -> NDArray[np.int64]:
    """White, black, ... alone in a tract's own shares; two or more races now and then."""
    shares = np.cumsum(rng.dirichlet([8, 1.5, 0.1, 1, 0.05, 0.8], tracts), axis=1)
    alone = (rng.random(tract.size)[:, None] > shares[tract][:, :-1]).sum(axis=1)
    several = rng.random(tract.size) < 0.08
    return np.where(several, np.minimum(6 + rng.geometric(0.15, tract.size), 62), alone)
