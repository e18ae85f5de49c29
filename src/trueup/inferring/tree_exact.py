"""Noisy counts on a tree: exact marginals of every node, independent joint draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring.method import InferenceMethod, Progress, in_blocks
from trueup.inferring.tree_parts import ByBundles, Top
from trueup.kernel.messages.partition import Partition, partition_tree, spread_messages
from trueup.kernel.messages.pmf import OPEN, Factors, reach_all
from trueup.kernel.messages.solve import Solved, joint_draws, marginals, mode, solve
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable
from trueup.layouts.tree import TreeProblem, tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import NestedTree
from trueup.model.prior import FLAT, AnyPrior, Prior, settle_priors
from trueup.model.records.posterior import Drawn, Marginals
from trueup.noise.lattice.laws import LatticeL2Laplace
from trueup.run.executor import Executor
from trueup.run.local import LocalPool

Outcome = TypeVar("Outcome", Solved, Top)

DEPTHS = (60.0, 240.0, 960.0, 3840.0, 15360.0, 61440.0, 245760.0)
"""Log mass, below its peak, at which a law's table ends; the next is tried when measurements disagree."""

MOST_ENTRIES = 1 << 28
BLOCK = 1000
LARGE = 1 << 14
"""Nodes of the largest tree that is worked on whole."""
BUNDLE = 1 << 12
"""Nodes of a bundle of a larger one."""


@dataclass(frozen=True)
class TreeExact(InferenceMethod):
    """The posterior of counts on nested margins by convolution up the tree and conditioning down.

    No Markov chain: marginals of all nodes are exact up to a reported bound, draws are independent,
    whole, additive and inside every bound.

    Attributes
    ----------
    prior
        Name, or name and parameters, of a prior on the finest cells: flat, bounded, poisson,
        negative-binomial, masses, or flat-total.
    tolerance
        Largest posterior mass that windows and rounding may drop; exceeded, it refuses.
    mode
        Whether to also find a most probable vector of counts.
    """

    prior: AnyPrior = FLAT
    tolerance: float = 1e-9
    mode: bool = False

    name: ClassVar[str] = "tree-exact"
    title: ClassVar[str] = "exact marginals and independent draws on nested margins"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})
    parallel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        settle_priors(self)

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """The law of each count must be a factor of its own."""
        whole = [h.law.name for h in headers if isinstance(h.law, LatticeL2Laplace)]
        return f"law '{whole[0]}' does not factor over cells" if whole else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> _State:
        """Lay laws, bounds and the prior on the nodes of the tree."""
        problem = tree_problem(constraints, headers)
        nested = problem.nested
        cut = (
            partition_tree(nested.child_ptr, nested.level_ptr, BUNDLE)
            if nested.level_ptr[-1] > LARGE
            else None
        )
        return _State(problem, self.prior, cut)

    def apply(
        self,
        state: _State,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        executor: Executor | None = None,
    ) -> Drawn:
        """Draw the counts, and give exact marginals of every margin of the tree."""
        if state.cut is None or self.mode:  # a most probable vector is searched for in the whole tree
            return self._whole(state, values, draws, rng, progress)
        return self._by_bundles(state, state.cut, values, draws, rng, progress, executor or LocalPool())

    def _whole(
        self, state: _State, values: NDArray, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        nested = state.problem.nested
        leaves = nested.nodes[-1]
        solved, depth = self._solve(state, values, lambda f: solve(nested.child_ptr, f, self.tolerance))
        counts, complete = in_blocks(
            lambda k: np.ascontiguousarray(joint_draws(solved, k, rng)[:, leaves]), draws, BLOCK, progress
        )
        return Drawn(
            counts[None],
            independent=True,
            marginals=_by_margin(nested, *marginals(solved)),
            mode=mode(solved)[leaves] if self.mode else None,
            stats=_stats(solved.dropped, depth, len(counts), interrupted=not complete),
        )

    def _by_bundles(
        self,
        state: _State,
        cut: Partition,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        executor: Executor,
    ) -> Drawn:
        nested = state.problem.nested
        bundles = ByBundles(nested.child_ptr, cut, self.tolerance, executor)
        top, depth = self._solve(state, values, bundles.up)
        exact, counts = bundles.down(top, draws, rng, progress)
        return Drawn(
            counts[None, :, nested.nodes[-1] - nested.level_ptr[-2]],
            independent=True,
            marginals=_by_margin(nested, *exact),
            stats=_stats(top.dropped, depth, draws, interrupted=False),
        )

    def _solve(
        self, state: _State, values: NDArray, solve: Callable[[Factors], Outcome]
    ) -> tuple[Outcome, float]:
        """Deepen the laws' tables until the dropped mass is within the tolerance."""
        state.refuse_impossible(values)
        for depth in DEPTHS:
            factors = state.factors(values, depth)
            if factors is None:
                break
            solved = solve(factors)
            if solved.dropped <= self.tolerance:
                return solved, depth
            if depth == DEPTHS[0]:
                state.refuse_contradiction(values)
        raise ConvergenceError(
            "the measurements disagree so far with each other, the prior or the bounds that no window of "
            f"counts holds all but {self.tolerance:g} of the posterior",
            remedy="check that the laws and values belong to these margins; or raise 'tolerance'",
        )


@dataclass(frozen=True, eq=False)
class _State:
    """A tree problem with its prior, and where a large tree is cut."""

    problem: TreeProblem
    prior: Prior
    cut: Partition | None

    def hard_bounds(self, values: NDArray) -> tuple[NDArray, NDArray]:
        """Bounds and invariants `(nodes,)`, as integers."""
        problem = self.problem
        lower = np.where(
            np.isinf(problem.lower), -OPEN, np.ceil(np.maximum(problem.lower, -(2.0**59)))
        ).astype(np.int64)
        upper = np.where(np.isinf(problem.upper), OPEN, np.floor(np.minimum(problem.upper, 2.0**59))).astype(
            np.int64
        )
        for header, nodes, part in zip(problem.headers, problem.nodes, self.parts(values)):
            if header.exact:
                lower[nodes], upper[nodes] = np.maximum(lower[nodes], part), np.minimum(upper[nodes], part)
        return lower, upper

    def parts(self, values: NDArray) -> list[NDArray]:
        """Cut measured values into those of each header."""
        return split(values, self.problem.headers, self.problem.nested.cells)

    def refuse_impossible(self, values: NDArray) -> None:
        """Refuse bounds that exclude each other, naming where."""
        self._refuse_empty(*self.hard_bounds(values), "the invariants and bounds")

    def refuse_contradiction(self, values: NDArray) -> None:
        """Refuse bounded noise, bounded priors and rules that allow no counts together, naming where."""
        factors = self._tables(values, DEPTHS[0])
        ends = factors.start[1:] - factors.start[:-1]
        closed = factors.open_ended[factors.table] == 0
        node = np.repeat(np.arange(len(factors.lower)), np.diff(factors.ptr))[closed]
        low, high = factors.lower.copy(), factors.upper.copy()
        np.maximum.at(low, node, factors.base[closed])
        np.minimum.at(high, node, (factors.base + ends[factors.table] - 1)[closed])
        self._refuse_empty(low, high, "the invariants and bounds, and what the prior and the noise allow,")

    def _refuse_empty(self, lower: NDArray, upper: NDArray, what: str) -> None:
        low, high = bounds(self.problem.child_ptr, lower, upper)
        if (empty := np.flatnonzero(low > high)).size:
            label = self.problem.nested.label(int(empty[0]))
            raise InfeasibleError(
                f"{what} at '{label}' and its parts cannot hold together", remedy="correct one of them"
            )

    def factors(self, values: NDArray, depth: float) -> Factors | None:
        """Tables of every node's likelihood and prior; None where they would not fit in memory."""
        factors = self._tables(values, depth)
        low, high = bounds(self.problem.child_ptr, *reach_all(factors))
        self._refuse_improper(low, high)
        return factors if self._entries(low, high) <= MOST_ENTRIES else None

    def _tables(self, values: NDArray, depth: float) -> Factors:
        problem = self.problem
        table = FactorTable(*self.hard_bounds(values))
        for header, nodes, part in zip(problem.headers, problem.nodes, self.parts(values)):
            if not header.exact:
                table.add_law(header.law, nodes, part, depth)
        table.add_prior(self.prior, problem.nested.nodes[-1], depth)
        return table.build()

    def _entries(self, low: NDArray, high: NDArray) -> int:
        """Most entries of the leaves' tables that are held at once."""
        edges = self.cut.leaves if self.cut else self.problem.nested.level_ptr[-2:]
        before = np.concatenate([[0], np.cumsum((high - low + 1).clip(0))])
        return int(np.diff(before[edges]).max())

    def _refuse_improper(self, low: NDArray, high: NDArray) -> None:
        if (open_ended := np.flatnonzero((low <= -OPEN) | (high >= OPEN))).size:
            leaves = self.problem.nested.nodes[-1]
            label = self.problem.nested.label(int(np.intersect1d(open_ended, leaves)[0]))
            raise SpecError(
                f"the posterior is improper: nothing bounds '{label}'",
                needed="a measurement of it or of a sum that holds it, a bound, or a proper prior",
                remedy='for example [infer] prior = { name = "bounded", upper = 1000 }',
            )


def _stats(dropped: float, depth: float, draws: int, *, interrupted: bool) -> dict:
    return {"dropped_mass": dropped, "table_depth": depth, "draws": draws, "interrupted": interrupted}


def _by_margin(nested: NestedTree, start: NDArray, offset: NDArray, masses: NDArray) -> dict:
    """Cut the nodes' marginals into those of each margin, in the order of its groups."""
    result = {}
    for margin, nodes in zip(nested.margins, nested.nodes):
        sizes = np.diff(start)[nodes]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        result[margin] = Marginals(begin, offset[nodes], masses[spread_messages(start[nodes], sizes)])
    return result
