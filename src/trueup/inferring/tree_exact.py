"""Exact posterior of noisy counts on a tree: marginals of every node, and independent joint draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.closed_tree import ClosedTree
from trueup.inferring.family_odds import cut_above_families, estimate_odds, families_at
from trueup.inferring.hierarchical import given
from trueup.inferring.method import InferenceMethod, Progress, announce, in_blocks
from trueup.inferring.prior_mixture import Spread, uncertain
from trueup.inferring.tree_approximate import ApproximateDraws
from trueup.inferring.tree_estimate import FAILURES, estimate_from, until_given_up
from trueup.inferring.tree_parts import CutTree, Top, Weighted, drawn_from
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_state import DEPTHS, ROUGHLY, TreeState, by_margin, holds_all_levels
from trueup.inferring.tree_work import AllowedWork, TooCostly, pass_cost, spent_exactly
from trueup.kernel.messages.partition import Partition, partition_tree
from trueup.kernel.messages.resolve import mixed_marginals
from trueup.kernel.messages.solve import (
    joint_draws,
    mode,
    rounded_marginals,
)
from trueup.layouts.splits import Splits, splits_of
from trueup.layouts.tree import tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import (
    HIERARCHICAL,
    PRIORS,
    AnyPrior,
    Estimated,
    Hierarchical,
)
from trueup.model.records.drawn import Drawn
from trueup.run.deadline import Deadline
from trueup.run.executor import Executor
from trueup.run.local import LocalThreads

DRAWS_AT_ONCE = 1000
MAX_WHOLE_NODES = 1 << 14
"""Nodes of the largest tree that is worked on whole."""
PART = 1 << 9
"""Nodes of a part of a larger one."""


@dataclass(frozen=True)
class TreeExact(InferenceMethod):
    """The posterior of counts on nested margins by convolution up the tree and conditioning down.

    No Markov chain: marginals of all nodes are exact up to a reported bound, draws are independent,
    whole, additive and inside every bound.

    Attributes
    ----------
    prior
        Name, or name and parameters: `hierarchical`, whose hyperparameters are estimated from the noisy values;
        `estimated`, one law for each combination of attribute values, fitted to the finest published values, the default of
        perturbed tables; or a prior on the finest cells: flat, bounded, poisson, negative-binomial, masses; or flat-total.
    tolerance
        Largest posterior mass that windows and rounding may drop; exceeded, it refuses.
    mode
        Whether to also find a most probable vector of counts; where the prior is estimated, given its parameters' mode.
    tier
        `exact`; `approximate`, messages on grids with a stated error, or where none are found chains of `histogram-gibbs`; or
        `auto`, exact where that takes little time.
    """

    prior: AnyPrior = HIERARCHICAL
    tolerance: float = 1e-9
    mode: bool = False
    tier: Literal["auto", "exact", "approximate"] = "auto"

    name: ClassVar[str] = "tree-exact"
    title: ClassVar[str] = "exact marginals and independent draws on nested margins"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})
    priors: ClassVar[tuple[type, ...]] = PRIORS
    parallel: ClassVar[bool] = True

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason if the law of some count does not factor over cells, or None."""
        whole = [h.law.name for h in headers if not h.law.factors]
        return f"law '{whole[0]}' does not factor over cells" if whole else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeState:
        """Lay laws, bounds and the prior on the nodes of the tree."""
        problem = tree_problem(constraints, headers)
        nested = problem.nested
        cut = (
            partition_tree(nested.child_ptr, nested.level_ptr, PART)
            if nested.level_ptr[-1] > MAX_WHOLE_NODES
            else None
        )
        return TreeState(problem, self.prior, cut)

    def apply(
        self,
        state: TreeState,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        executor: Executor | None = None,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the counts, and compute exact marginals of every margin of the tree."""
        state.refuse_impossible(values)
        if isinstance(self.prior, Estimated):
            announce(progress, "estimating the prior from the published values")
            state = state.fitted(values)
        closed = None if self.mode else ClosedTree.of(state.problem, values, state.prior)
        if closed is not None and (found := closed.summed(draws, rng, progress)) is not None:
            stats = _stats(0.0, 0.0, len(found.counts), interrupted=not found.whole)
            return Drawn(found.counts[None], independent=True, marginals=found.marginals, stats=stats)
        deadline = deadline or Deadline.of()
        otherwise = ApproximateDraws(state, values, draws, rng, progress, deadline)
        auto = self.tier == "auto"
        work = AllowedWork.of(len(state.child_ptr) - 1, deadline) if auto else AllowedWork(deadline=deadline)
        try:
            if self.tier == "approximate":
                raise TooCostly
            return self._exact(state, values, draws, rng, progress, executor or LocalThreads(), work)
        except TooCostly:
            if self.tier == "exact":
                raise spent_exactly(deadline) from None
            return otherwise.drawn()
        except ConvergenceError as error:
            if self.tier == "exact":
                raise
            try:
                return otherwise.drawn()
            except ConvergenceError:
                raise error from None

    def _exact(
        self,
        state: TreeState,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        executor: Executor,
        work: AllowedWork,
    ) -> Drawn:
        """Draw by exact messages, as long as they take no more work than allowed."""
        roughly = np.full(len(state.child_ptr) - 1, DEPTHS[ROUGHLY])
        low, high = state.windows(values, roughly)
        leaves = state.problem.nested.nodes[-1]
        work.refuse_wide(low[leaves], high[leaves])
        work.begin_pass(pass_cost(state.child_ptr, low, high))
        search = SolutionSearch(state, values, executor, self.tolerance, tries=work.tries, work=work)
        record = {}
        if isinstance(self.prior, Hierarchical):
            splits = splits_of(self.prior, state.problem.nested, state.problem.bounds()[1])
            if splits.names and not self.prior.concentrations:  # one count alone is not split
                return self._of_two_kinds_or_one(search, splits, draws, rng, progress)
            search.splits = splits.parameters(given(self.prior, splits))
            record = {"prior": {"concentrations": "given"}} if splits.names else {}
        if state.cut is None or self.mode:  # a most probable vector is searched for in the whole tree
            solved = search.whole(self.tolerance)
            return self._drawn(search, [(1.0, solved, draws)], None, rng, progress, record)
        top = search.by_parts(state.cut, self.tolerance)
        return self._drawn(search, [(1.0, top.solved, draws)], (state.cut, top), rng, progress, record)

    def _of_two_kinds_or_one(
        self, search: SolutionSearch, splits: Splits, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Draw under the prior of two kinds of parts if windows hold its posterior, else of one."""
        kinds = self.prior.most_kinds if isinstance(self.prior, Hierarchical) else 1
        try:
            return self._estimated(search, splits, draws, rng, progress, kinds=kinds)
        except ConvergenceError:
            if kinds == 1 or self.tier == "auto":  # grids take either
                raise
        afresh = SolutionSearch(
            search.state, search.values, search.executor, self.tolerance, work=search.work
        )
        return self._estimated(afresh, splits, draws, rng, progress, kinds=1)

    def _estimated(
        self,
        search: SolutionSearch,
        splits: Splits,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        *,
        kinds: int,
    ) -> Drawn:
        """Estimate hyperparameters, integrate over the uncertain ones, and draw."""
        state = search.state
        search, sample, splits, estimate = estimate_from(search, splits, progress, kinds=kinds)
        search.splits = splits.parameters(estimate.theta)
        families = None if self.mode else cut_above_families(state, splits, PART)
        most = state.deepest_top if families is None else families_at(state) - 1
        level, free = uncertain(splits, estimate, most)
        odds = estimate_odds(search, splits, estimate.theta, families, progress) if families else None
        cut = odds.cut if odds else self._cut_below(state, level)
        top = odds.top if odds else search.by_parts(cut, self.tolerance) if cut else None
        solved = top.solved if top else search.whole(self.tolerance)
        deeper = partial(search.at, splits, self.tolerance)
        deeper = until_given_up(deeper) if splits.mean else deeper
        parents, first = state.problem.nested.level_ptr[level : level + 2].tolist()
        spread = Spread(solved, first, parents, splits, self.tolerance, None if top else deeper)
        mixture = spread.parts(estimate, free, draws, rng, progress)
        if splits.mean and mixture.unsolved >= FAILURES:
            raise ConvergenceError(
                "the posterior under two kinds of parts could not be computed", remedy="set most_kinds = 1"
            )
        record = {"prior": mixture.record(splits, estimate, free)}
        if odds:
            record["prior"]["estimates"] |= odds.record(splits)
        if sample is not None:
            record["prior"]["estimated_from"] = sample.record(splits)
        below = (cut, top) if cut and top else None
        drawn = self._drawn(search, mixture.parts, below, rng, progress, record, (first, parents))
        return replace(drawn, mode=mode(solved)[state.problem.nested.nodes[-1]]) if self.mode else drawn

    def _cut_below(self, state: TreeState, level: int) -> Partition | None:
        """Return the cut of a large tree whose top holds the levels with varying splits; None for a search of the mode."""
        if self.mode:
            return None
        return state.cut_below(level + 1, PART) if level and state.cut else state.cut

    def _drawn(
        self,
        search: SolutionSearch,
        tops: Sequence[Weighted],
        below: tuple[Partition, Top] | None,
        rng: np.random.Generator,
        progress: Progress,
        more: dict,
        varying: tuple[int, int] = (0, 0),
    ) -> Drawn:
        """Return marginals and draws of a mixture of solutions, of the whole tree or of its top.

        `varying` is where they differ, as `mixed_marginals` has it.
        """
        search.start = None  # nothing is sought any more
        nested, draws = search.state.problem.nested, sum(count for _, _, count in tops)
        leaves, whole = nested.nodes[-1], True
        if below is not None:
            parts = CutTree(search.child_ptr, below[0], self.tolerance, search.executor)
            exact, counts, rounding = parts.down(below[1], tops, rng, progress)
            _reorder(counts, leaves - nested.level_ptr[-2])
        else:
            if len(tops) == 1:
                exact, rounding = rounded_marginals(tops[0][1])
                counts, whole = in_blocks(
                    lambda k: np.ascontiguousarray(joint_draws(tops[0][1], k, rng)[:, leaves]),
                    draws,
                    DRAWS_AT_ONCE,
                    progress,
                )
            else:
                exact, rounding = mixed_marginals(
                    [top for _, top, _ in tops], np.array([w for w, _, _ in tops]), *varying
                )
                counts = np.ascontiguousarray(drawn_from(tops, rng)[:, leaves])
                progress(draws, draws)
        if not np.isfinite(exact[2]).all():
            raise ConvergenceError(
                "some marginals exceed the range of floating-point numbers",
                remedy="give the prior's concentrations, or another prior",
            )
        dropped = min(float(sum(w * top.dropped for w, top, _ in tops)) + rounding, 1.0)
        return Drawn(
            counts[None],
            independent=True,
            marginals=by_margin(nested, *exact) if holds_all_levels(nested) else {},
            tables=tuple(nested.margins),
            mode=mode(tops[0][1])[leaves] if self.mode and len(tops) == 1 else None,
            stats={**_stats(dropped, search.deepest, len(counts), interrupted=not whole), **more},
        )


def _reorder(counts: NDArray, order: NDArray) -> None:
    """Put the columns of draws in order, in place: a copy of large draws would not fit in memory."""
    if (np.diff(order) != 1).any():
        for rows in range(0, len(counts), DRAWS_AT_ONCE // 20):
            counts[rows : rows + DRAWS_AT_ONCE // 20] = counts[rows : rows + DRAWS_AT_ONCE // 20, order]


def _stats(dropped: float, depth: float, draws: int, *, interrupted: bool) -> dict:
    return {"dropped_mass": dropped, "table_depth": depth, "draws": draws, "interrupted": interrupted}
