"""Time limits of exact messages on a large tree, and samples of the tree for hyperparameters.

*Limits.* Passes are counted beforehand, time is read between evaluations.

*A sample of families*, from which hyperparameters of the prior are estimated.
Where a count's parts are left out, so are all measurements below it, and it is a leaf. The splits left out sum to 1, so
the evidence of what remains is exact: that of the remaining values, which is a part of what was published. Which families
remain follows from the order of the public list of places alone: the i-th of a level where the fractional part of i times the
golden ratio is below a share. Such positions are spread evenly and keep step with nothing, as every tenth would with ten
kinds of people.

A concentration that n parts inform has a standard error of sqrt(2 / n) at best, and a larger one where counts are
noisy or places differ more than the prior says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.inferring.method import Progress, announce
from trueup.inferring.tree_state import DEPTHS, TreeState
from trueup.kernel.messages.kinds import with_divisors
from trueup.kernel.messages.partition import take_factors
from trueup.kernel.messages.pmf import SPLIT, Factors, reach_all
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import Split
from trueup.layouts.splits import Splits
from trueup.run import Deadline

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_DIRECT_WINDOW_COUNTS = 1500.0
"""Counts of a window up to which each of another's entries is multiplied by all of them; wider ones take a Fourier transform."""
MULTIPLICATIONS_PER_ENTRY = 40.0
"""Multiplications for each entry of a wider one, and each doubling of a family."""
MULTIPLICATIONS_PER_SECOND = 1e9
"""Multiplications in a second, at least."""
GRID_WINDOW_COUNTS = 300.0
"""Counts of a leaf's window from which on grids are as exact and many times as fast."""
BASE_SECONDS, SECONDS_A_NODE = 3.0, 1.2e-5
"""Seconds of a processor that evaluations by exact messages may take together, and that are added for each node to the power
3/2: grids take longer there, while hyperparameters of exact messages are sought on a sample."""
MAX_DEPTHS_TRIED = 4
"""Depths of tables that are tried at one point of the hyperparameters: each costs up to twice the one before."""
GRID_TIME_SHARE = 0.5
"""Share of a command's time after which trees are left to grids."""
EVALUATIONS, JUDGED, MOST_UNUSUAL = 40, 3, 2.0
"""Hyperparameters at which a tree is solved at most, as a rule, of how many the least time says how long these will take, and
how many times as much of one is counted: in others kernels are compiled, or other work slows them."""


class TooCostly(Exception):
    """The exception for exact messages that would take longer than allowed."""


@dataclass(eq=False)
class AllowedWork:
    """The time allowed for exact messages.

    Attributes
    ----------
    seconds
        Processor seconds that evaluations of hyperparameters may take together.
    deadline, share
        Deadline of the command, and the share of its time that may be spent; the rest is left for grids.
    tries
        Number of times that tables may be deepened for one point of the hyperparameters.
    ended, times
        Reading of the processor's clock after the last evaluation, and seconds of each but the first.
    """

    seconds: float = np.inf
    deadline: Deadline = field(default_factory=Deadline.of)
    share: float = 1.0
    tries: float = np.inf
    ended: float | None = None
    times: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: int, deadline: Deadline) -> AllowedWork:
        """Return the time allowed for exact messages on a tree with a given number of nodes."""
        return cls(BASE_SECONDS + SECONDS_A_NODE * nodes**1.5, deadline, GRID_TIME_SHARE, MAX_DEPTHS_TRIED)

    def refuse_wide(self, low: NDArray, high: NDArray) -> None:
        """Refuse exact tables of leaves that are so uncertain that grids are cheaper."""
        if np.isfinite(self.seconds) and np.median(np.asarray(high, float) - low) > GRID_WINDOW_COUNTS:
            raise TooCostly

    def begin_pass(self, multiplications: float) -> None:
        """Refuse one more upward pass if it would exceed the time allowed."""
        if multiplications > MULTIPLICATIONS_PER_SECOND * min(self.seconds, self.deadline.left(self.share)):
            raise TooCostly

    @property
    def usual(self) -> float:
        """Return the shortest time (seconds) of the latest evaluations of hyperparameters, 0 at first."""
        return min(self.times[-JUDGED:], default=0.0)

    def end_evaluation(self) -> None:
        """Record the time of an evaluation of hyperparameters, and stop if all will take too long."""
        now = time.process_time()
        if self.ended is not None:
            self.times.append(now - self.ended)
        self.ended = now
        usual = self.usual if len(self.times) >= JUDGED else 0.0
        spent = sum(min(one, MOST_UNUSUAL * usual) for one in self.times)
        rest = usual * max(EVALUATIONS - len(self.times), 0)
        # Many trees need a quarter of these evaluations: to give up sooner saves less than a wrong forecast costs.
        if spent > min(BASE_SECONDS, self.seconds) and spent + rest > self.seconds:
            raise TooCostly


def in_turn(
    thetas: Reals, deadline: Deadline, progress: Progress, drawn_in: float
) -> Iterator[tuple[int, Reals]]:
    """Yield number and hyperparameters of each integration point, and announce the time that remains.

    Drawing takes as long as `drawn_in` points.
    """
    began, count = time.monotonic(), len(thetas)
    for i, theta in enumerate(thetas):
        each = (time.monotonic() - began) / max(i, 1)
        told = f", {deadline.in_all(each * (count - i + drawn_in))}" if i else ""
        announce(progress, f"integrating over the prior, {i + 1} of {count} points{told}")
        yield i, theta


def pass_cost(child_ptr: Integers, low: NDArray, high: NDArray) -> float:
    """Return the estimated number of multiplications in one upward pass through a tree.

    Examples
    --------
    >>> pass_cost(np.array([1, 3, 3, 3]), np.zeros(3), np.array([18.0, 9.0, 9.0])) > 200
    True
    """
    width = np.maximum(np.asarray(high, float) - np.asarray(low, float) + 1.0, 0.0)
    inner = np.flatnonzero(np.diff(child_ptr))
    if not len(inner):
        return float(width.sum())
    sums = np.add.reduceat(width[child_ptr[0] :], child_ptr[inner] - child_ptr[0])
    doublings = np.log2(np.diff(child_ptr)[inner] + 1.0)
    return float(
        (
            sums * np.minimum(sums, MAX_DIRECT_WINDOW_COUNTS) + MULTIPLICATIONS_PER_ENTRY * sums * doublings
        ).sum()
    )


BEGIN, SAMPLE_PARTS = 1000, 5000
"""Parts of a level, where it has more, from which the search begins, and from which hyperparameters are estimated."""
GOLDEN, MOST_OVER = (5**0.5 - 1) / 2, 2
"""Spread of the families that are chosen, and how many times too many parts they may have."""


@dataclass(frozen=True, eq=False)
class FamilySample(TreeState):
    """A smaller tree problem: a sample of the nodes, without the descendants of the others.

    Attributes
    ----------
    nodes, kept_children
        Nodes that remain, in order, and child pointers among these nodes.
    """

    nodes: Integers
    kept_children: Integers

    @property
    def child_ptr(self) -> Integers:
        """Return child pointers: the children of node `v` are `child_ptr[v]:child_ptr[v + 1]`."""
        return self.kept_children

    @classmethod
    def of(cls, state: TreeState, enough: int) -> FamilySample | None:
        """Return a sample with at most about `enough` counts on each level, or None for a small tree."""
        nested = state.problem.nested
        if np.diff(nested.level_ptr).max() <= enough:
            return None
        sizes, levels, children = np.diff(nested.child_ptr), [np.zeros(1, np.int64)], []
        for _ in nested.margins[1:]:
            parents = levels[-1]
            share = min(enough / max(sizes[parents].sum(), 1), 1.0)
            turn = (np.arange(len(parents)) * GOLDEN) % 1.0
            kept = np.where(turn < share, sizes[parents], 0)
            if kept.sum() > MOST_OVER * enough:  # a giant family is among them
                inner = np.flatnonzero(kept)
                inner = inner[np.argsort(turn[inner])]
                kept[inner[1:][np.cumsum(kept[inner])[1:] > enough]] = 0
            children.append(kept)
            within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
            levels.append(np.repeat(nested.child_ptr[parents], kept) + within)
        if sum(map(len, levels)) == nested.level_ptr[-1]:  # one family holds all that are many
            return None
        children.append(np.zeros(len(levels[-1]), np.int64))
        child_ptr = 1 + np.concatenate([[0], np.cumsum(np.concatenate(children))])
        return cls(state.problem, state.prior, None, state.total, np.concatenate(levels), child_ptr)

    def splits(self, whole: Splits) -> Splits:
        """Return the prior's splits for the nodes of the sample."""
        each = ("free", "level", "log_share", "covariates", "category")
        return replace(
            whole, child_ptr=self.child_ptr, **{name: getattr(whole, name)[self.nodes] for name in each}
        )

    def factors(self, values: NDArray, depth: NDArray, splits: Split | None = None) -> Factors | None:
        """Return the tables of the sampled nodes, with bounds that the omitted nodes imply."""
        key = id(values), depth.tobytes()
        if (
            key not in self._made
        ):  # of large trees, what costs most; from one evaluation to the next splits alone change
            self._made.clear()
            self._made[key] = self._without_splits(values, depth)
        own = self._made[key]
        if own is None:
            return None
        if splits is None:
            return own
        own = own._replace(**dict(zip(SPLIT, splits)))
        return with_divisors(own, *bounds(self.child_ptr, *reach_all(own)))

    @cached_property
    def _made(self) -> dict[tuple[int, bytes], Factors | None]:
        """Return a cache of the last tables, which do not include the prior's splits."""
        return {}

    def _without_splits(self, values: NDArray, depth: NDArray) -> Factors | None:
        every = np.full(len(self.problem.child_ptr) - 1, DEPTHS[0])
        every[self.nodes] = depth
        if (found := super().tables(values, every)) is None:
            return None
        low, high = bounds(self.problem.child_ptr, found.lower, found.upper)
        return take_factors(found, self.nodes)._replace(lower=low[self.nodes], upper=high[self.nodes])

    def refuse_contradiction(self, values: NDArray, factors: Factors) -> None:
        """Do nothing, because contradictions are found when the whole tree is solved."""

    def record(self, splits: Splits) -> dict[str, list[int]]:
        """Return, for each concentration, the numbers of parts in the sample and in the whole tree."""
        used, every = self.splits(splits).families(), splits.families()
        return {
            str(margin): [int(some), int(all_)]
            for margin, some, all_ in zip(self.problem.nested.margins[1:], used, every)
        }
