"""Inference of a large family of tables by parts: chains on the upper levels, then draws below each place.

Given the tables of a place, those below it depend on nothing outside. So the tables of the places of one level come from
chains on a family that ends there. Measurements further down enter as sums over each of its places, with normal noise.
Below these places, tables are drawn for one draw of the places' tables after the other: the tables of the last draw are moved
to the nearest ones that fit the new tables, and sweeps of a chain that keeps these follow. Neighbouring places with few
cells are one part; each part estimates concentrations from its own tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.inferring.family_moves import TUNING_ROUNDS, TUNING_SWEEPS, FamilyMoves
from trueup.inferring.histogram_parts import MOST_CELLS, NO_END_MINUTES, Chained
from trueup.inferring.method import silent
from trueup.inferring.recast import parts_within
from trueup.kernel import Status
from trueup.kernel.families.walk import tuned, walk
from trueup.kernel.settling.descend import Settling
from trueup.layouts.columns import MeasuredRow
from trueup.layouts.family import FamilyProblem, family_problem
from trueup.layouts.family_rules import family_cells
from trueup.layouts.family_walk import FamilyWalk
from trueup.model.cells import Cells, Margin
from trueup.model.family import FamilyCells, family_of
from trueup.model.header import Measured
from trueup.noise import DiscreteGaussian
from trueup.noise.laws.undrawn import Exact
from trueup.run import Deadline, runs_of

Integers = NDArray[np.int64]
SWEEPS = 20
"""Sweeps of a part's chain from where a draw begins."""
MAX_CELLS_PER_PART = 1 << 14
"""Cells below neighbouring places that are one part, and learn together."""


@dataclass(frozen=True, eq=False)
class FamilyAbove(MeasuredRow):
    """The upper levels of a family of tables, with sums of the measurements below these levels.

    Attributes
    ----------
    curvature
        Curvature of the likelihood of each noisy sum that was measured further down (1 / counts squared); 0 for others.
    draws, seed
        Number of draws, and of its generator.
    """

    curvature: NDArray
    draws: int
    seed: np.random.SeedSequence


def draw_above(given: FamilyAbove) -> Chained:
    """Run Markov chains on the upper levels until they pass, and return their draws `(draws, n)`."""
    method = FamilyMoves(tier="chains")
    problem, layout = method.prepare(given.constraints, given.headers)
    summed, old = given.curvature > 0, layout.layout
    slope, curvature = np.where(summed, 0.0, old.slope), np.where(summed, given.curvature, old.curvature)
    chains = replace(layout, layout=old._replace(slope=slope, curvature=curvature))
    rng, deadline = np.random.default_rng(given.seed), Deadline.of(NO_END_MINUTES)
    drawn = method.apply((problem, chains), np.concatenate(given.values), given.draws, rng, silent, deadline)
    draws: Any = drawn.draws
    record = {name: drawn.stats[name] for name in ("sweeps", "largest_r_hat")}
    return Chained(draws.reshape(-1, draws.shape[-1])[: given.draws], record | {"refused": drawn.refused})


@dataclass(frozen=True, eq=False)
class FamilyPart(MeasuredRow):
    """A part of a family of tables: neighbouring places, all places below them, and the measurements there.

    Attributes
    ----------
    roots
        Draws `(draws, places, cells)` of the places' own sums of each table.
    seed
        Seed of the part's random generator.
    """

    roots: Sequence[NDArray]
    seed: np.random.SeedSequence

    def draw(self) -> NDArray[np.int32]:
        """Return draws `(draws, n)` of the part's tables."""
        rng, cells = np.random.default_rng(self.seed), family_cells(self.constraints)
        roots = [Margin(cells.tree.levels[0], table.attributes) for table in cells.tables]
        held = tuple(Measured("of the place", margin, Exact()) for margin in roots)
        chain = FamilyWalk.of(self.constraints, (*self.headers, *held), roots)
        zeros = np.zeros(sum(map(cells.size, roots)))
        layout = chain.given(np.concatenate([*self.values, zeros]))
        problem, found = family_problem(self.constraints, self.headers), []
        measured = np.concatenate(self.values)
        start = self._settled(problem, measured, 0, rng, Settling(posterior=True, drawn=rng))
        state = chain.state(start, np.exp(rng.normal(size=chain.steps)))
        means = np.full((len(cells.tables), 3), max(1.0, self._spread / 2))
        tally, out = np.zeros((2, *means.shape), np.int64), np.empty((1, cells.n), np.int64)
        for _ in range(TUNING_ROUNDS):
            tally[:] = 0
            more = (means, tally, chain.chances, TUNING_SWEEPS, out)
            walk(rng, layout, state, False, False, *more)
            means = tuned(means, tally)
        for draw in range(len(self.roots[0])):
            held = np.concatenate([h.sums(cells, state.x) for h in self.headers])
            moved = self._settled(problem, held, draw, rng, Settling())
            state = chain.state(moved, state.alpha)._replace(mass=state.mass, weights=state.weights)
            walk(rng, layout, state, False, False, means, tally, chain.chances, SWEEPS, out)
            found.append(out[0].astype(np.int32))
        return np.stack(found)

    @property
    def _spread(self) -> float:
        return float(np.sqrt(np.median([h.law.variance for h in self.headers])))

    def _settled(
        self, problem: FamilyProblem, values: NDArray, draw: int, rng: np.random.Generator, how: Settling
    ) -> Integers:
        """Return the whole-number tables `(n,)` nearest to given values, below the roots' drawn tables."""
        above = {i: root[draw].astype(np.int64) for i, root in enumerate(self.roots)}
        fit = problem.fit(values[None].astype(float), subtrees=True)
        settled = problem.settle_fit(fit, rng.integers(2**63, size=1, dtype=np.uint64), how, above)
        if any(table.misplaced for table in settled.values()):
            raise ConvergenceError(Status.UNSOLVED)
        return np.concatenate([settled[i].values[-1].ravel() for i in range(len(settled))])


@dataclass(frozen=True, eq=False)
class CutFamily(MeasuredRow):
    """A family that is cut at a level of its places."""

    @property
    def cells(self) -> FamilyCells:
        """Return the cells of all tables."""
        return family_cells(self.constraints)

    @cached_property
    def level(self) -> int:
        """Return the highest level that has several places, each with few enough cells: that of the parts' roots.

        Raises
        ------
        SpecError
            If there is none.
        """
        sizes = self.cells.tree.sizes
        for level in range(1, len(sizes) - 1):
            if sizes[level] > 1 and self.below(level) and self.part_cells(level).max() <= MOST_CELLS:
                return level
        raise SpecError(
            "no level of places is suitable for cutting these tables into parts",
            needed=f"a level with several places, each with at most {MOST_CELLS:,} cells in the tables of the levels below it",
            remedy="leave out --engine",
        )

    def below(self, level: int) -> list[Margin]:
        """Return the family's tables whose finest places lie below a level."""
        return [t for t in self.cells.tables if self.cells.tree.level(t.level) > level]

    def part_cells(self, level: int) -> Integers:
        """Return the number of cells below each place of a level."""
        cells, found = self.cells, np.zeros(self.cells.tree.sizes[level], np.int64)
        for table in self.below(level):
            at = cells.tree.level(table.level)
            each = cells.size(table) // cells.tree.sizes[at]
            found += each * np.diff(cells.tree.starts(level, at))
        return found

    def above(self, draws: int, seed: np.random.SeedSequence) -> FamilyAbove:
        """Return the upper levels of the family, with sums of the measurements below them."""
        cells, name = self.cells, self.cells.tree.levels[self.level]

        def cut(margin: Margin) -> Margin:
            deep = cells.tree.level(margin.level) > self.level
            return replace(margin, level=name) if deep else margin

        margins = tuple(dict.fromkeys(cut(m) for m in self.constraints.margins))
        fixed = tuple(dict.fromkeys(cut(m) for m in self.constraints.invariants))
        some = replace(self.constraints, margins=margins, invariants=fixed)
        own = Cells(cells.tree.branch(0, 0, 1, self.level), cells.attributes)
        some = replace(some, cells=own)
        some = replace(some, cells=family_of(own, some.held))
        kept: dict[tuple, tuple[Measured, NDArray, NDArray]] = {}
        for i, (header, values) in enumerate(zip(self.headers, self.values)):
            margin = cut(header.margin)
            kept[(margin,) if header.exact else (margin, i)] = self._summed(header, margin, values)
        headers, values, curvature = zip(*kept.values())
        noisy = [c for c, h in zip(curvature, headers) if not h.exact]
        return FamilyAbove(some, headers, values, np.concatenate(noisy), draws, seed)

    def _summed(self, header: Measured, margin: Margin, values: NDArray) -> tuple[Measured, NDArray, NDArray]:
        """Return a measured table with its values summed over the parts' root places."""
        tree, level = self.cells.tree, self.cells.tree.level(header.margin.level)
        if level <= self.level:
            return header, values, np.zeros(len(values))
        starts = tree.starts(self.level, level)
        table = np.add.reduceat(values.reshape(tree.sizes[level], -1), starts[:-1], axis=0)
        if header.exact:
            return replace(header, margin=margin), table.ravel(), np.zeros(table.size)
        spread = np.repeat(np.diff(starts) * float(header.law.variance), table.shape[1])
        law = DiscreteGaussian(Fraction(float(spread.mean())).limit_denominator(1000))
        return Measured(header.query, margin, law), table.ravel(), 0.5 / spread

    def part(
        self, above: FamilyCells, draws: NDArray, places: tuple[int, int], seed: np.random.SeedSequence
    ) -> FamilyPart:
        """Return the part with the given neighbouring root places, given draws of the tables above."""
        tree, tables = above.tree, self.below(self.level)
        deep = [h.margin for h in self.headers if self.cells.tree.level(h.margin.level) > self.level]
        zeros = tuple(
            zero
            for zero in self.constraints.zeros
            if any(self.cells.contains(Margin(tree.levels[0], tuple(zero)), table) for table in tables)
        )
        fixed = tuple(m for m in self.constraints.invariants if m in deep)
        lower = replace(self.constraints, margins=tuple(dict.fromkeys(deep)), invariants=fixed, zeros=zeros)
        measured = [(h, v) for h, v in zip(self.headers, self.values) if h.margin in deep]
        below = [h for h, _ in measured], [v for _, v in measured]
        some, headers, values, _ = parts_within(lower, *below, self.level, *places)
        sums = (above.sum(draws, Margin(tree.levels[-1], t.attributes)) for t in family_cells(some).tables)
        roots = [x.reshape(len(x), tree.sizes[-1], -1)[:, slice(*places)].astype(np.int32) for x in sums]
        return FamilyPart(some, headers, values, roots, seed)

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """Return the range of root places of every part, as its first place and the place after its last."""
        return runs_of(np.cumsum(self.part_cells(self.level)) - 1, MAX_CELLS_PER_PART)

    def joined(self, above: FamilyCells, top: NDArray, parts: Sequence[NDArray]) -> NDArray:
        """Return draws `(draws, n)` of all tables, joined from the draws above the parts and in the parts."""
        cells, tree, deep = self.cells, self.cells.tree, self.below(self.level)
        found, starts = np.empty((len(top), cells.n), np.int64), [0] * len(parts)
        for i, table in enumerate(cells.tables):
            own = found[:, cells.starts[i] : cells.starts[i + 1]]
            if table not in deep:
                own[...] = above.sum(top, table)
                continue
            level = tree.level(table.level)
            ends = tree.starts(self.level, level) * (cells.size(table) // tree.sizes[level])
            for k, (places, drawn) in enumerate(zip(self.runs, parts, strict=True)):
                first, end = ends[[*places]]
                own[:, first:end] = drawn[:, starts[k] :][:, : end - first]
                starts[k] += int(end - first)
        return found
