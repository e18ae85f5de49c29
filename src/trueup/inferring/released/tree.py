"""Inference from released trees by Markov chains, which alternate between noisy and true counts.

One file: the chain of a tree, and how many run for how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring.chain_driver import Longer, refuse_forecast, until_long_enough
from trueup.inferring.chains import (
    AIMED_EFFECTIVE_SIZE,
    MIN_DIAGNOSED_DRAWS,
    ChainLimit,
    OutOfTimeError,
    thinned,
)
from trueup.inferring.method import Progress
from trueup.kernel.messages.pmf import SPLIT, Factors
from trueup.kernel.messages.solve import joint_draws, solve
from trueup.kernel.released.events import log_even
from trueup.kernel.released.tree import (
    DRAWN,
    SHUFFLED,
    ReleasedSplits,
    Weights,
    draw_weights,
    factors_of,
    windows_of,
)
from trueup.kernel.statistics.diagnostics import diagnose, r_hat_by_chance
from trueup.layouts.factors import FactorTable
from trueup.layouts.released import MAX_RELEASED_COUNT, half_width, redrawn, refuse_laws
from trueup.layouts.tree import TreeProblem
from trueup.model.prior import Prior
from trueup.model.records.drawn import Drawn
from trueup.run import Deadline, cores, told_time

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

DEPTHS = (60.0, 960.0, 15360.0)
"""Log mass, below its peak, at which a prior's table ends; the next is tried where counts are far from it."""
TOLERANCE = 1e-9
EDGE_SHARE_OF_TABLE = 0.9
"""Noise beyond this share of its table has odds below 1e-14: it says that more of it lies outside."""


@dataclass(frozen=True, eq=False)
class ReleasedTree:
    """The released counts of all nodes of a tree, with the laws, prior and method behind them.

    Attributes
    ----------
    problem
        The tree, each of whose levels was measured once.
    counts
        (nodes,) released counts.
    prior
        On the finest counts, or on their total.
    release
        `FIRST`, `SHUFFLED` or `DRAWN`.
    uniform
        True if a total over noisy parts that are all zero was split evenly.
    algorithm
        The same as in `ReleasedSum`.
    summed
        True if totals were also estimated from the noisy parts (see `trueup.inferring.released.summed`).
    """

    problem: TreeProblem
    counts: Integers
    prior: Prior
    release: int
    uniform: bool
    algorithm: int
    summed: bool = False

    def __post_init__(self) -> None:
        if self.counts.max() >= MAX_RELEASED_COUNT:
            raise SpecError("the released counts are out of range", needed="counts from 0 to 2^31")
        refuse_laws([h.law for h in self.problem.headers if not h.exact], self.algorithm)

    def settled(self) -> NDArray[np.bool_]:
        """Return a mask of nodes with unchanged counts: invariants, structural zeros, and their sums."""
        settled, child_ptr = self.problem.variance == 0, self.problem.child_ptr
        for v in range(settled.size - 1, -1, -1):
            children = settled[child_ptr[v] : child_ptr[v + 1]]
            settled[v] |= bool(children.size and children.all())
        return settled

    def edges(self) -> Reals:
        """Return, for each node, the noise (counts) beyond which its table of noise may be too narrow."""
        edges = np.full(self.counts.size, np.inf)
        for header, at in zip(self.problem.headers, self.problem.nodes):
            if not header.exact and header.law.open_ended:
                edges[at] = EDGE_SHARE_OF_TABLE * half_width(header.law) * (2 if self.algorithm == 1 else 1)
        return edges

    def weights(self) -> Weights:
        """Return the law of every node's weight, unused where a count was released unchanged."""
        headers = self.problem.headers
        laws = [h.law for h in headers if not h.exact]
        kind = np.zeros(self.counts.size, np.int64)
        for i, at in enumerate(nodes for h, nodes in zip(headers, self.problem.nodes) if not h.exact):
            kind[at] = i
        return weights_of(laws, kind, self.algorithm)

    def splits(self, settled: NDArray[np.bool_]) -> ReleasedSplits:
        """Return the splits of a positive count among parts whose counts were not released unchanged."""
        child_ptr, groups, even = self.problem.child_ptr, [], []
        for v in np.flatnonzero(np.diff(child_ptr) > 0):
            children = np.arange(child_ptr[v], child_ptr[v + 1])
            free = children[~settled[children]]
            if self.counts[free].sum() > 0:
                groups.append(free)
                even.append(self._even(self.counts[free]))
        sizes = [g.size for g in groups]
        member = np.concatenate(groups) if groups else np.zeros(0, np.int64)
        return ReleasedSplits(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), member, np.array(even)
        )

    def _even(self, k: Integers) -> float:
        """Return the probability of parts k given that all noisy parts are zero; 1 for a random draw."""
        if not self.uniform:
            return 0.0
        if self.release == DRAWN:
            return 1.0
        return float(np.exp(log_even(k, self.release == SHUFFLED)))

    def known(self, settled: NDArray[np.bool_], depth: float) -> Factors:
        """Return the factors of all nodes that do not depend on noise: priors and unchanged counts."""
        lower = np.where(settled, self.counts, 0)
        upper = np.where(settled, self.counts, np.int64(1) << 60)
        table = FactorTable(lower, upper)
        table.add_prior(self.prior, self.problem.nested.nodes[-1], depth)
        return table.build()


def weights_of(laws: list, kind: Integers, algorithm: int) -> Weights:
    """Return tables of the laws of weights, which are max(n, 0) or a posterior draw given n.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
    >>> weights = weights_of([DiscreteLaplace(Fraction(1))], np.zeros(3, np.int64), 2)
    >>> bool(np.isclose(weights.edge[0, 0, 0], weights.far[0, weights.far.shape[1] // 2 :].sum()))
    True
    """
    width = max(map(half_width, laws)) * (2 if algorithm == 1 else 1)
    distance = np.arange(-width, width + 1)
    true, drawn = np.arange(2 * width + 1), np.arange(width + 1)
    if algorithm == 1:
        far = [redrawn(law, np.array([3 * width]), 3 * width + distance)[0] for law in laws]
        return Weights(np.array(far), np.array([redrawn(law, true, drawn).T for law in laws]), kind)
    far = np.array([law.pmf(distance) for law in laws])
    return Weights(far, np.cumsum(far[:, ::-1][:, : width + 1], axis=1)[:, ::-1][:, None, :], kind)


def first_rate(k: Integers, rng: np.random.Generator) -> float:
    """Return a starting value of the auxiliary variable u behind a multinomial draw of k.

    From further off, the noise that suits it would lie beyond its tables.
    """
    return float(np.exp(min(0.3, 2 / np.sqrt(k.sum())) * rng.standard_normal()))


class ReleasedTreeChain:
    """A Markov chain of the true counts of a released tree, with the noisy counts of the last step."""

    def __init__(self, tree: ReleasedTree, rng: np.random.Generator) -> None:
        self.tree, self.rng = tree, rng
        self.settled, self.edges = tree.settled(), tree.edges()
        self.weights, self.splits = tree.weights(), tree.splits(self.settled)
        root = np.zeros(0 if self.settled[0] else 1, np.int64)
        self.nodes = np.concatenate([root, self.splits.member])
        self._tabulate_priors(list(DEPTHS))
        self.noisy, self.low, self.high = (tree.counts.copy() for _ in range(3))
        self.rate = np.ones(tree.counts.size)
        for first, last in pairwise(self.splits.ptr.tolist()):
            member = self.splits.member[first:last]
            self.rate[member] = first_rate(tree.counts[member], rng)
        if tree.release == DRAWN:
            windows_of(tree.counts, self.splits.member, self.rate, self.low, self.high)
        self.true = self._draw_true()

    def _tabulate_priors(self, depths: list[float]) -> None:
        """Tabulate the priors to the first depth, and order the tables of priors and weights by node."""
        self.known, self.deeper = self.tree.known(self.settled, depths[0]), depths[1:]
        count = self.settled.size
        every = np.concatenate([np.repeat(np.arange(count), np.diff(self.known.ptr)), self.nodes])
        self.order = np.argsort(every, kind="stable")
        self.ptr = np.concatenate([[0], np.cumsum(np.bincount(every, minlength=count))])

    def step(self) -> Integers:
        """Draw noisy counts given true ones, then true counts given noisy ones. Return the true counts."""
        tree = self.tree
        state = (self.true, self.noisy, self.rate, self.low, self.high, self.rng)
        possible = draw_weights(self.weights, self.splits, tree.release, tree.counts, *state)
        if not possible or (np.abs(self.noisy - self.true) > self.edges)[self.nodes].any():
            raise far_apart()
        self.true = self._draw_true()
        return self.true

    def _draw_true(self) -> Integers:
        """Draw the true counts of the tree given the noisy ones."""
        known = self.known
        base, start, log = factors_of(
            self.weights, self.tree.counts, self.nodes, self.low, self.high, self.rate
        )
        tables = len(known.start) - 1
        factors = Factors(
            self.ptr,
            np.concatenate([known.base, base])[self.order],
            np.concatenate([known.table, tables + np.arange(base.size)])[self.order],
            np.concatenate([known.start, known.start[-1] + start[1:]]),
            np.concatenate([known.log, log]),
            np.concatenate([known.open_ended, np.zeros(base.size)]),
            known.lower,
            known.upper,
            *(getattr(known, field) for field in SPLIT),
        )
        solved = solve(self.tree.problem.child_ptr, factors, TOLERANCE)
        if solved.dropped <= TOLERANCE:
            return joint_draws(solved, 1, self.rng)[0]
        if not self.deeper:
            raise far_apart()
        self._tabulate_priors(self.deeper)
        return self._draw_true()


def far_apart() -> InfeasibleError:
    """Return the error for released counts that would need noise beyond the tables of noise."""
    return InfeasibleError(
        "no noisy counts near the released ones are possible under the prior and the laws",
        needed="counts as a multinomial method released them, and a prior that allows counts near them",
        remedy="give the method that released them, the laws of its noise, and a prior that allows such counts",
    )


CHAINS, WARM_UP = 4, 100
TIMED_STEPS = 3
"""Steps of which the quickest predicts the time of the others; the first may compile kernels."""


@dataclass(eq=False)
class _TreeChains:
    """The Markov chains of a released tree, in the form in which runs are made and lengthened.

    Attributes
    ----------
    steps
        One of each chain, which returns the `(nodes,)` counts that it leads to.
    kept, thin
        Draws of each chain, and steps between them in the last run.
    sweeps
        Steps of each chain in a run, at most.
    """

    steps: list[Callable[[], Integers]]
    kept: int
    sweeps: int
    limit: ChainLimit
    thin: int = 1
    seconds: float = 0.0

    @property
    def chains(self) -> int:
        """Return the number of chains."""
        return len(self.steps)

    def run(self, tell: Progress, thin: int = 1) -> Integers:
        """Return counts `(chains, kept, nodes)` at every `thin`-th step."""
        began, runs = time.monotonic(), []
        for step in self.steps:
            runs.append(_run(step, self.kept, thin, self.limit))
            tell(len(runs), self.chains)
        self.thin, self.seconds = thin, time.monotonic() - began
        return np.array(runs)

    def diagnosed(self, run: NDArray) -> dict[str, Any]:
        """Return the convergence diagnostics of every count of the tree."""
        r_hat, ess = diagnose(run)
        allowed, worst, least = (
            r_hat_by_chance(run.shape[2], AIMED_EFFECTIVE_SIZE),
            float(r_hat.max()),
            float(ess.min()),
        )
        record = {"largest_r_hat": worst, "r_hat_allowed": allowed, "smallest_ess": least}
        return {
            "r_hat": r_hat,
            "ess": ess,
            "passed": worst <= allowed and least >= AIMED_EFFECTIVE_SIZE,
            "record": record,
        }

    def longer(self, run: NDArray, found: Mapping[str, Any]) -> Longer | None:
        """Return a run with twice as many steps between draws, or None if the limit is reached."""
        twice = 2 * self.thin
        if twice * self.kept > self.sweeps:
            return None
        seconds = 2 * self.seconds * min(self.chains, cores())
        return Longer(seconds, f"{twice} steps to a draw", partial(self.run, thin=twice))


def draw_tree(
    tree: ReleasedTree,
    draws: int,
    rng: np.random.Generator,
    sweeps: int,
    progress: Progress,
    deadline: Deadline,
    chain_of: Callable[[ReleasedTree, np.random.Generator], Any],
) -> Drawn:
    """Return draws of Markov chains that are doubled in length until every count has mixed.

    Raises
    ------
    ConvergenceError
        If the time is spent before the first run is finished.
    SpecError
        If it is predicted not to be finished in time.
    """
    steps = [chain_of(tree, child).step for child in rng.spawn(CHAINS)]
    kept = -(-max(draws, MIN_DIAGNOSED_DRAWS) // CHAINS)
    _refuse_slow(steps[0], CHAINS * (WARM_UP + kept), deadline)
    chains = _TreeChains(steps, kept, sweeps, ChainLimit(deadline))
    try:
        for step in steps:
            _run(step, WARM_UP, 1, chains.limit)
        judged = until_long_enough(chains, chains.run, draws, progress)
    except OutOfTimeError:
        raise spent(deadline, "a part of its first run") from None
    found, leaves, refused = judged.found, tree.problem.nested.nodes[-1], ""
    if not judged.enough:
        more = (
            "allow more `minutes`"
            if judged.late
            else f"allow more sweeps: sweeps = {4 * sweeps} under [infer]"
        )
        refused = (
            "R-hat {largest_r_hat:.3f} (at most {r_hat_allowed:.3f} is allowed), effective draws {smallest_ess:.0f} "
            "(at least {ess:.0f}) after {sweeps:,} sweeps; {more}"
        ).format(**found["record"], ess=AIMED_EFFECTIVE_SIZE, sweeps=chains.thin * kept, more=more)
    return Drawn(
        np.ascontiguousarray(thinned(judged.run, draws)[:, :, leaves]),
        independent=False,
        connected=_connected(tree),
        r_hat=found["r_hat"][leaves],
        ess=found["ess"][leaves],
        refused=refused,
        stats={"chains": CHAINS, "thinned_by": chains.thin, **found["record"]},
    )


def _refuse_slow(step: Callable[[], Integers], steps: int, deadline: Deadline) -> None:
    """Refuse a number of chain steps that would take longer than the time left."""
    seconds = np.inf
    for _ in range(TIMED_STEPS):
        began = time.monotonic()
        step()
        seconds = min(seconds, time.monotonic() - began)
    if not deadline.passed:
        text = f"{steps:,} steps of Markov chains are predicted to take {told_time(steps * seconds)}"
        less = "use the measurements with 'tree-exact', where they are public"
        refuse_forecast(text, steps * seconds, 0.0, deadline, less)


def _connected(tree: ReleasedTree) -> bool:
    """Return True if a single step of the chain can lead from any true counts to any others.

    Behind a draw the auxiliary numbers, of full support, are all that a step remembers. Behind a mode, or where totals were
    summed, it is the noisy counts, and noise without bounds makes any of them possible given any true ones.
    """
    unbounded = all(h.law.open_ended for h in tree.problem.headers if not h.exact)
    return unbounded or (tree.release == DRAWN and not tree.summed)


def spent(deadline: Deadline, done: str) -> ConvergenceError:
    """Return the error for Markov chains that ran out of time."""
    return deadline.spent("released-multinomial", done, "allow more `minutes`, or ask for fewer draws")


def _run(step: Callable[[], Integers], count: int, thin: int, limit: ChainLimit) -> Integers:
    """Return counts `(count, nodes)` of one chain at every `thin`-th step."""
    out = []
    for _ in range(count):
        if limit.passed:
            raise OutOfTimeError
        for _ in range(thin):
            true = step()
        out.append(true)
    return np.array(out)
