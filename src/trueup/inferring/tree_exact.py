"""Noisy counts on a tree: exact marginals of every node, independent joint draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, DataError, InfeasibleError, SpecError
from trueup.inferring.attainable import nothing_attained
from trueup.inferring.closed_tree import ClosedTree
from trueup.inferring.estimated import estimated_prior
from trueup.inferring.hierarchical import Objective, Spread, climb, given, start_of, uncertain
from trueup.inferring.method import InferenceMethod, Progress, announce, in_blocks
from trueup.inferring.tree_parts import ByBundles, Part, Top, drawn_from, expected_of
from trueup.kernel.messages.mixture import mixed
from trueup.kernel.messages.partition import Partition, cut_at, partition_tree, spread_messages
from trueup.kernel.messages.pmf import OPEN, Factors, reach_all
from trueup.kernel.messages.solve import Solved, joint_draws, marginals, mode, solve, too_short
from trueup.kernel.messages.tilting import bounds
from trueup.kernel.messages.upward import Tilted
from trueup.layouts.factors import FactorTable, FittedMasses
from trueup.layouts.splits import Splits, splits_of
from trueup.layouts.tree import TreeProblem, tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.nested import NestedTree
from trueup.model.prior import FLAT, PRIORS, AnyPrior, Estimated, Hierarchical, Prior
from trueup.model.records.drawn import Drawn
from trueup.model.records.marginals import Marginals
from trueup.run.executor import Executor
from trueup.run.local import LocalPool

Outcome = TypeVar("Outcome", Solved, Top)

DEPTHS = np.array([30.0, 50.0, 100.0, 240.0, 960.0, 3840.0, 15360.0, 61440.0, 245760.0])
"""Log mass, below its peak, at which a law's table ends; nodes where that is too soon go on to the next."""
ROUGHLY, FINE, WIDE = 1, 2, 4
"""Positions of the least depth, of that where next to nothing may be dropped, and of that of sums that are split: their parts'
messages lie at counts far from what was measured."""
ROUGH = 1e-6
"""Posterior mass that may be dropped while hyperparameters are sought."""

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
        Name, or name and parameters: `estimated`, one law for each combination of attribute values, fitted to the finest
        published values; `hierarchical`, whose hyperparameters are estimated from the noisy values;
        or a prior on the finest cells: flat, bounded, poisson, negative-binomial, masses; or flat-total.
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
    priors: ClassVar[tuple[type, ...]] = PRIORS
    parallel: ClassVar[bool] = True

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """The law of each count must be a factor of its own."""
        whole = [h.law.name for h in headers if not h.law.factors]
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
        state.refuse_impossible(values)
        if isinstance(self.prior, Estimated):
            announce(progress, "estimating the prior from the published values")
            state = state.fitted(values)
        closed = None if self.mode else ClosedTree.of(state.problem, values, state.prior)
        if closed is not None and (found := closed.summed(draws, rng, progress)) is not None:
            stats = _stats(0.0, 0.0, len(found.counts), interrupted=not found.whole)
            return Drawn(found.counts[None], independent=True, marginals=found.marginals, stats=stats)
        search = SolutionSearch(state, values, executor or LocalPool(), self.tolerance)
        record = {}
        if isinstance(self.prior, Hierarchical):
            splits = splits_of(self.prior, state.problem.nested, state.problem.bounds()[1])
            if not self.prior.concentrations:
                return self._estimated(search, splits, draws, rng, progress)
            search.splits = splits.parameters(given(self.prior, splits))
            record = {"prior": {"concentrations": "given"}}
        if state.cut is None or self.mode:  # a most probable vector is searched for in the whole tree
            solved = search.whole(self.tolerance)
            return self._drawn(search, [(1.0, solved, draws)], None, rng, progress, record)
        top = search.by_parts(state.cut, self.tolerance)
        return self._drawn(search, [(1.0, top.solved, draws)], (state.cut, top), rng, progress, record)

    def _estimated(
        self, search: SolutionSearch, splits: Splits, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Estimate hyperparameters, integrate over those that are uncertain, and draw."""
        state = search.state
        estimate = climb(search.objective(splits, progress), *start_of(splits))
        search.splits = splits.parameters(estimate.theta)
        level, free = uncertain(splits, estimate, len(state.problem.nested.margins), state.deepest_top)
        cut = state.cut_below(level) if free.any() else state.cut
        cut = None if self.mode else cut
        if cut is None:
            solved, below = search.whole(self.tolerance), None
            nodes, deeper = len(solved.tilted.low), partial(search.at, splits, self.tolerance)
        else:
            top = search.by_parts(cut, self.tolerance)
            solved, below, nodes, deeper = top.solved, (cut, top), int(cut.edges[0]), None
        spread = Spread(solved, nodes, splits, self.tolerance, deeper)
        mixture = spread.parts(estimate, free, draws, rng, progress)
        return self._drawn(
            search, mixture.parts, below, rng, progress, {"prior": mixture.record(splits, estimate, free)}
        )

    def _drawn(
        self,
        search: SolutionSearch,
        tops: Sequence[Part],
        below: tuple[Partition, Top] | None,
        rng: np.random.Generator,
        progress: Progress,
        more: dict,
    ) -> Drawn:
        """Marginals and draws of a mixture of solutions, of the whole tree or of its top."""
        nested, draws = search.state.problem.nested, sum(count for _, _, count in tops)
        leaves, whole = nested.nodes[-1], True
        if below is not None:
            parts = ByBundles(search.child_ptr, below[0], self.tolerance, search.executor)
            exact, counts = parts.down(below[1].bundles, tops, rng, progress)
            counts = counts[:, leaves - nested.level_ptr[-2]]
        else:
            exact = mixed([marginals(top) for _, top, _ in tops], np.array([w for w, _, _ in tops]))
            if len(tops) == 1:
                counts, whole = in_blocks(
                    lambda k: np.ascontiguousarray(joint_draws(tops[0][1], k, rng)[:, leaves]),
                    draws,
                    BLOCK,
                    progress,
                )
            else:
                counts = np.ascontiguousarray(drawn_from(tops, rng)[:, leaves])
                progress(draws, draws)
        dropped = float(sum(w * top.dropped for w, top, _ in tops))
        return Drawn(
            counts[None],
            independent=True,
            marginals=_by_margin(nested, *exact),
            mode=mode(tops[0][1])[leaves] if self.mode else None,
            stats={**_stats(dropped, search.deepest, len(counts), interrupted=not whole), **more},
        )


@dataclass(frozen=True, eq=False)
class _State:
    """A tree problem with its prior, and where a large tree is cut."""

    problem: TreeProblem
    prior: Prior | FittedMasses
    cut: Partition | None

    def fitted(self, values: NDArray) -> _State:
        """The state with the prior that is estimated from all values."""
        return replace(self, prior=estimated_prior(self.problem, values))

    def refuse_impossible(self, values: NDArray) -> None:
        """Refuse bounds that exclude each other, naming where."""
        self._refuse_empty(*self.problem.whole_bounds(values), "the invariants and bounds")

    def refuse_contradiction(self, values: NDArray, factors: Factors) -> None:
        """Refuse bounded noise, bounded priors and rules that allow no counts together, naming where."""
        ends = factors.start[1:] - factors.start[:-1]
        closed = factors.open_ended[factors.table] == 0
        node = np.repeat(np.arange(len(factors.lower)), np.diff(factors.ptr))[closed]
        low, high = factors.lower.copy(), factors.upper.copy()
        np.maximum.at(low, node, factors.base[closed])
        np.minimum.at(high, node, (factors.base + ends[factors.table] - 1)[closed])
        self._refuse_empty(low, high, "the invariants and bounds, and what the prior and the noise allow,")
        self._refuse_holes(factors, node, np.flatnonzero(closed), low, high)

    def _refuse_holes(
        self, factors: Factors, node: NDArray, row: NDArray, lower: NDArray, upper: NDArray
    ) -> None:
        """Refuse sums that counts between the holes of a prior do not make."""
        allowed: dict[int, NDArray] = {}
        for v, i in zip(node.tolist(), row.tolist(), strict=True):
            log = factors.log[factors.start[factors.table[i]] : factors.start[factors.table[i] + 1]]
            counts = factors.base[i] + np.flatnonzero(np.isfinite(log))
            allowed[v] = np.intersect1d(allowed.get(v, counts), counts[counts >= 0])
        child_ptr = self.problem.child_ptr
        low, high = bounds(child_ptr, lower, upper)
        leaves = np.flatnonzero(child_ptr[1:] == child_ptr[:-1])
        if not all(int(v) in allowed for v in leaves):
            return
        if (at := nothing_attained(child_ptr, low, high, allowed)) is not None:
            raise InfeasibleError(
                f"no counts to which {self.prior.name!r} gives mass add up to what is fixed at "
                f"'{self.problem.nested.label(at)}'",
                remedy="give mass to the counts between, or correct the prior",
            )

    def _refuse_empty(self, lower: NDArray, upper: NDArray, what: str) -> None:
        low, high = bounds(self.problem.child_ptr, lower, upper)
        if (empty := np.flatnonzero(low > high)).size:
            label = self.problem.nested.label(int(empty[0]))
            raise InfeasibleError(
                f"{what} at '{label}' and its parts cannot hold together", remedy="correct one of them"
            )

    @property
    def deepest_top(self) -> int:
        """The last level that a top may reach: the one above where a large tree is cut."""
        nested = self.problem.nested
        if self.cut is None:
            return len(nested.margins) - 1
        return int(np.searchsorted(nested.level_ptr, self.cut.edges[0]) - 1)

    def cut_below(self, level: int) -> Partition | None:
        """Cut below the leaves of a top that holds the levels up to `level`, and where memory asks for it; None at the last."""
        nested = self.problem.nested
        last = len(nested.margins) - 1
        return cut_at(nested.child_ptr, nested.level_ptr, level, BUNDLE) if 0 < level < last else None

    def factors(
        self, values: NDArray, depth: NDArray, splits: tuple[NDArray, NDArray] | None
    ) -> Factors | None:
        """Tables of every node's likelihood and prior, each to its depth; None where they would not fit in memory."""
        problem = self.problem
        table = FactorTable(*self.problem.whole_bounds(values))
        try:
            for header, nodes, part in zip(problem.headers, problem.nodes, problem.parts(values)):
                if not header.exact:
                    table.add_law(header.law, nodes, part, depth[nodes])
        except (
            DataError
        ):  # that a law is too wide is to be said of it at the least depth, not after deepening
            if depth.max() <= DEPTHS[WIDE]:
                raise
            return None
        table.add_prior(self.prior, problem.nested.nodes[-1], float(depth.max()))
        if splits is not None:
            table.add_splits(*splits)
        factors = table.build()
        low, high = bounds(problem.child_ptr, *reach_all(factors))
        self._refuse_improper(low, high)
        return factors if self._entries(low, high) <= MOST_ENTRIES else None

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


@dataclass(eq=False)
class SolutionSearch:
    """One tree that is solved again and again: depths of tables and tilts that served are where the next begins.

    Attributes
    ----------
    wanted
        Largest posterior mass that the method may drop.
    depth
        `(nodes,)` position in `DEPTHS` of each node's tables.
    splits
        Parameters of the splits, if the prior has any.
    start
        The tilts that were found last.
    """

    state: _State
    values: NDArray
    executor: Executor
    wanted: float = 1e-9
    splits: tuple[NDArray, NDArray] | None = None
    start: Tilted | None = None

    def __post_init__(self) -> None:
        self.depth = np.full(len(self.child_ptr) - 1, ROUGHLY)

    @property
    def child_ptr(self) -> NDArray:
        return self.state.problem.child_ptr

    @property
    def deepest(self) -> float:
        """The deepest table (nats below its peak)."""
        return float(DEPTHS[self.depth.max()])

    def whole(self, tolerance: float) -> Solved:
        """Solve the whole tree at once."""
        return self._deepened(
            lambda f: solve(self.child_ptr, f, tolerance, self.start),
            lambda s: too_short(self.child_ptr, s, tolerance),
            tolerance,
        )

    def by_parts(self, cut: Partition, tolerance: float) -> Top:
        """Solve the top of a cut tree, given the messages of its bundles."""
        parts = ByBundles(self.child_ptr, cut, tolerance, self.executor)
        return self._deepened(lambda f: parts.up(f, self.start), lambda top: top.short, tolerance)

    def at(self, splits: Splits, tolerance: float, theta: NDArray) -> Solved:
        """Solve the whole tree at some hyperparameters."""
        self.splits = splits.parameters(theta)
        return self.whole(tolerance)

    def objective(self, splits: Splits, progress: Progress) -> Objective:
        """Return the log density of hyperparameters, its gradient, and the posterior of counts, as a function."""

        def density(theta: NDArray) -> tuple[float, NDArray, NDArray]:
            announce(progress, "estimating the prior from the noisy values")
            self.splits = splits.parameters(theta)
            evidence, expected = self._evidence(ROUGH)
            value, gradient = splits.log_hyperprior(theta)
            return evidence + value, gradient + splits.gradient(theta, *expected[:2]), expected[2:]

        return density

    def _evidence(self, tolerance: float) -> tuple[float, NDArray]:
        if (cut := self.state.cut) is not None:
            top = self.by_parts(cut, tolerance)
            return top.evidence, ByBundles(self.child_ptr, cut, tolerance, self.executor).expected(top)
        solved = self.whole(tolerance)
        return solved.evidence, expected_of(solved, marginals(solved))

    def _deepened(
        self,
        solve: Callable[[Factors], Outcome],
        short: Callable[[Outcome], NDArray],
        tolerance: float,
    ) -> Outcome:
        """Deepen the tables that end too soon until the dropped mass is within the tolerance."""
        before = self.depth.copy()
        if self.splits is not None:
            inner = self.child_ptr[1:] > self.child_ptr[:-1]
            self.depth[inner] = np.maximum(self.depth[inner], WIDE)
        if tolerance < ROUGH:
            self.depth = np.maximum(self.depth, FINE)
        last = len(DEPTHS) - 1
        while (factors := self.state.factors(self.values, DEPTHS[self.depth], self.splits)) is not None:
            solved = solve(factors)
            if solved.dropped <= tolerance:
                self.start = solved.tilted
                return solved
            if self.start is not None and solved.dropped >= 1:  # tilts of another problem may be far off
                self.start = None
                continue
            self.state.refuse_contradiction(self.values, factors)
            deeper = self.depth < last
            if not deeper.any():
                break
            named = short(solved) & deeper
            self.depth[named if named.any() else deeper] += 1
        self.depth = before  # a prior far off, which the search has tried, must not spoil the next
        raise ConvergenceError(
            "the measurements disagree so far with each other, the prior or the bounds that no window of "
            f"counts holds all but {self.wanted:g} of the posterior",
            remedy="check that the laws and values belong to these margins; or raise 'tolerance'",
        )


def _stats(dropped: float, depth: float, draws: int, *, interrupted: bool) -> dict:
    return {"dropped_mass": dropped, "table_depth": depth, "draws": draws, "interrupted": interrupted}


def _by_margin(nested: NestedTree, start: NDArray, offset: NDArray, masses: NDArray) -> dict:
    """Cut the nodes' marginals into those of each margin, in the order of its groups."""
    result = {}
    for margin, nodes in zip(nested.margins, nested.nodes):
        sizes = np.diff(start)[nodes]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        if (np.diff(nodes) == 1).all():  # side by side: no copy of a nation's masses
            own = masses[start[nodes[0]] : start[nodes[-1] + 1]]
        else:
            own = masses[spread_messages(start[nodes], sizes)]
        result[margin] = Marginals(begin, offset[nodes], own)
    return result
