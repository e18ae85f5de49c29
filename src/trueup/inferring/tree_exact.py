"""Exact posterior of noisy counts on a tree: marginals of every count, and independent joint draws.

One file: the method, with the stages of its exact solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.inferring.hierarchical import Estimate, given
from trueup.inferring.method import InferenceMethod, Progress, announce, in_blocks
from trueup.inferring.prior_mixture import Spread, count_points, uncertain
from trueup.inferring.solved_tree import SolvedTree, stats_of
from trueup.inferring.tree_estimate import (
    MAX_FAILED_SOLUTIONS,
    cut_above_families,
    estimate_from,
    estimate_odds,
    families_at,
    until_given_up,
)
from trueup.inferring.tree_parts import drawn_from, mixture_weights
from trueup.inferring.tree_search import MOST_LOST_BY_PARTS, SolutionSearch
from trueup.inferring.tree_state import DEPTHS, ROUGHLY, TreeState, by_margin, holds_all_levels
from trueup.inferring.tree_work import AllowedWork, FamilySample, TooCostly, pass_cost
from trueup.kernel.messages.partition import Partition, partition_tree
from trueup.kernel.messages.resolve import mixed_marginals
from trueup.kernel.messages.solve import joint_draws, mode, rounded_marginals
from trueup.layouts.splits import Splits, splits_of
from trueup.layouts.tree import tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import HIERARCHICAL, PRIORS, AnyPrior, Estimated, Hierarchical
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline, Executor
from trueup.run.local import LocalThreads

DRAWS_AT_ONCE = 1000
MAX_WHOLE_NODES = 1 << 14
"""Nodes of the largest tree that is worked on whole."""
PASSES_LEFT = 6
"""Evaluations of hyperparameters that finer messages on the whole tree, its marginals and draws take as long as."""
MAX_PART_NODES = 1 << 9
"""Nodes of a part of a larger one."""


@dataclass(frozen=True)
class TreeExact(InferenceMethod):
    """The posterior of counts on nested margins, by exact messages up the tree and draws down it.

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
        True to also find a most probable vector of counts; if the prior is estimated, given the mode of its parameters.
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
        """Return why the measurements do not fit (a law is no product over cells), or None if they do."""
        whole = [h.law.name for h in headers if not h.law.factors]
        return f"under the law '{whole[0]}' the noise of one count depends on other counts" if whole else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> TreeState:
        """Return the tree's problem, with laws, bounds and the prior assigned to its nodes."""
        problem = tree_problem(constraints, headers)
        nested = problem.nested
        cut = (
            partition_tree(nested.child_ptr, nested.level_ptr, MAX_PART_NODES)
            if nested.level_ptr[-1] > MAX_WHOLE_NODES
            else None
        )
        return TreeState(problem, self.prior, cut, None)

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
        """Draw the counts, and compute exact marginals of every measured margin of the tree."""
        state.refuse_impossible(values)
        if isinstance(self.prior, Estimated):
            from trueup.inferring.estimated import estimated_prior  # of perturbed tables alone

            announce(progress, "estimating the prior from the published values")
            state = replace(state, prior=estimated_prior(state.problem, values))
        state = state.flat_given_bounds(values)
        if not (self.mode or isinstance(state.prior, Hierarchical)):
            from trueup.inferring.closed_tree import ClosedTree  # likewise

            closed = ClosedTree.of(state.problem, values, state.prior)
            if closed is not None and (found := closed.summed(draws, rng, progress)) is not None:
                stats = stats_of(0.0, 0.0, len(found.counts), interrupted=not found.whole)
                return Drawn(found.counts[None], independent=True, marginals=found.marginals, stats=stats)
        deadline = deadline or Deadline.of()

        def otherwise() -> Drawn:
            from trueup.inferring.tree_approximate import ApproximateTree  # exact messages need no grids

            return ApproximateTree(state, values, draws, rng, progress, deadline).drawn()

        auto = self.tier == "auto"
        work = AllowedWork.of(len(state.child_ptr) - 1, deadline) if auto else AllowedWork(deadline=deadline)
        try:
            if self.tier == "approximate":
                raise TooCostly
            found = self.solved(state, values, draws, rng, progress, executor or LocalThreads(), work)
            return self._drawn(found, rng, progress)
        except TooCostly:
            if self.tier == "exact":
                raise ConvergenceError(
                    f"exact inference would take longer than the {deadline.allowed / 60:g} minutes allowed",
                    remedy="give tier = 'approximate', or allow more `minutes`",
                ) from None
            return otherwise()
        except ConvergenceError as error:
            if self.tier == "exact":
                raise
            try:
                return otherwise()
            except ConvergenceError:
                raise error from None

    def solved(
        self,
        state: TreeState,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        executor: Executor,
        work: AllowedWork,
    ) -> SolvedTree:
        """Return the tree solved by exact messages, within the time allowed."""
        _begin_work(state, values, work)
        search = SolutionSearch(state, values, executor, self.tolerance, tries=work.tries, work=work)
        record = {}
        if isinstance(self.prior, Hierarchical):
            splits = splits_of(self.prior, state.problem.nested, state.problem.bounds()[1])
            if splits.names and not self.prior.concentrations:  # one count alone is not split
                return self._of_two_kinds_or_one(search, splits, draws, rng, progress)
            search.splits = splits.parameters(given(self.prior, splits))
            record = {"prior": {"concentrations": "given"}} if splits.names else {}
        if state.cut is None or self.mode:  # a most probable vector is searched for in the whole tree
            return SolvedTree(search, [(1.0, search.whole(self.tolerance), draws)], None, record)
        top = search.by_parts(state.cut, self.tolerance)
        return SolvedTree(search, [(1.0, top.solved, draws)], top, record)

    def _of_two_kinds_or_one(
        self, search: SolutionSearch, splits: Splits, draws: int, rng: np.random.Generator, progress: Progress
    ) -> SolvedTree:
        """Return the tree solved under a prior with two kinds of parts if possible, else with one."""
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
    ) -> SolvedTree:
        """Return the tree solved at estimated hyperparameters, integrated over the uncertain ones."""
        search, sample, splits, estimate = estimate_from(search, splits, progress, kinds=kinds)
        try:
            return self._integrated(search, sample, splits, estimate, draws, rng, progress)
        except ConvergenceError:
            if search.state.cut is None or not search.may_be_whole:
                raise
        whole = replace(search, state=replace(search.state, cut=None), start=None)
        return self._integrated(whole, sample, splits, estimate, draws, rng, progress)

    def _integrated(
        self,
        search: SolutionSearch,
        sample: FamilySample | None,
        splits: Splits,
        estimate: Estimate,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
    ) -> SolvedTree:
        """Return the tree solved at given hyperparameters, integrated over the uncertain ones."""
        state = search.state
        search.splits = splits.parameters(estimate.theta)
        families = None if self.mode else cut_above_families(state, splits, MAX_PART_NODES)
        most = state.deepest_top if families is None else families_at(state) - 1
        level, free = uncertain(splits, estimate, most)
        cut = self._cut_below(state, level)
        parents, first = state.problem.nested.level_ptr[level : level + 2].tolist()
        points = count_points(first) if free.any() and cut is None else 0
        _announce_rest(search, sample, points, progress)
        odds = estimate_odds(search, splits, estimate.theta, families, progress) if families else None
        most_lost = MOST_LOST_BY_PARTS if search.may_be_whole else np.inf
        top = odds.top if odds else search.by_parts(cut, self.tolerance, most_lost) if cut else None
        solved = top.solved if top else search.whole(self.tolerance)
        deeper = partial(search.at, splits, self.tolerance)
        deeper = until_given_up(deeper) if splits.mean else deeper
        spread = Spread(solved, first, parents, splits, self.tolerance, None if top else deeper)
        mixture = spread.parts(estimate, free, draws, rng, progress, search.work.deadline)
        if splits.mean and mixture.unsolved >= MAX_FAILED_SOLUTIONS:
            raise ConvergenceError(
                "the posterior under two kinds of parts could not be computed",
                remedy="set most_kinds = 1 in the prior",
            )
        record = {"prior": mixture.record(splits, estimate, free)}
        if odds:
            record["prior"]["estimates"] |= odds.record(splits)
        if sample is not None:
            record["prior"]["estimated_from"] = sample.record(splits)
        best = mode(solved)[state.problem.nested.nodes[-1]] if self.mode else None
        return SolvedTree(search, mixture.parts, top, record, (first, parents), best)

    def _cut_below(self, state: TreeState, level: int) -> Partition | None:
        """Return the cut of a large tree below all levels with uncertain splits, or None for others."""
        if self.mode:
            return None
        return state.cut_below(level + 1, MAX_PART_NODES) if level and state.cut else state.cut

    def _drawn(self, found: SolvedTree, rng: np.random.Generator, progress: Progress) -> Drawn:
        """Return marginals and draws of counts from a mixture of solutions."""
        search, tops, top = found.search, found.tops, found.top
        search.start = None  # nothing is sought any more
        nested, draws = search.state.problem.nested, sum(count for _, _, count in tops)
        leaves, whole = nested.nodes[-1], True
        if top is not None:
            exact, counts, rounding = top.tree.down(top, tops, rng, progress)
            _reorder(counts, leaves - nested.level_ptr[-2])
        elif len(tops) == 1:
            exact, rounding = rounded_marginals(tops[0][1])
            counts, whole = in_blocks(
                lambda k: np.ascontiguousarray(joint_draws(tops[0][1], k, rng)[:, leaves]),
                draws,
                DRAWS_AT_ONCE,
                progress,
            )
        else:
            solutions = [one for _, one, _ in tops]
            exact, rounding = mixed_marginals(solutions, mixture_weights(tops), *found.varying)
            counts = np.ascontiguousarray(drawn_from(tops, rng)[:, leaves])
            progress(draws, draws)
        refuse_endless(exact[2])
        best = found.best
        if self.mode and best is None and len(tops) == 1:
            best = mode(tops[0][1])[leaves]
        return Drawn(
            counts[None],
            independent=True,
            marginals=by_margin(nested, *exact) if holds_all_levels(nested) else {},
            mode=best,
            stats=found.stats(rounding, len(counts), whole=whole),
        )


def _begin_work(state: TreeState, values: NDArray, work: AllowedWork) -> None:
    """Refuse exact messages whose first pass would cost too much."""
    low, high = state.windows(values, np.full(len(state.child_ptr) - 1, DEPTHS[ROUGHLY]))
    leaves = state.problem.nested.at(state.problem.nested.margins[-1])
    work.refuse_wide(low[leaves], high[leaves])
    work.begin_pass(pass_cost(state.child_ptr, low, high))


def _announce_rest(
    search: SolutionSearch, sample: FamilySample | None, points: int, progress: Progress
) -> None:
    """Announce the predicted time of the whole command, once the hyperparameters are estimated."""
    work, nodes = search.work, len(search.state.child_ptr) - 1
    seen = nodes if sample is None else len(sample.nodes)
    left = work.usual * (PASSES_LEFT * nodes / seen + points)
    if left:
        announce(progress, f"solving the whole tree, {work.deadline.in_all(left)}")


def refuse_endless(masses: NDArray) -> None:
    """Refuse marginals that contain an infinite or undefined number."""
    if not np.isfinite(masses).all():
        raise ConvergenceError(
            "the posterior could not be computed: some probabilities are too small for floating-point numbers",
            remedy="give the prior's concentrations, or another prior",
        )


def _reorder(counts: NDArray, order: NDArray) -> None:
    """Reorder the columns of draws in place, to need no second copy in memory."""
    if (np.diff(order) != 1).any():
        for rows in range(0, len(counts), DRAWS_AT_ONCE // 20):
            counts[rows : rows + DRAWS_AT_ONCE // 20] = counts[rows : rows + DRAWS_AT_ONCE // 20, order]
