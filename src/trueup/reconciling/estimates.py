"""Modes and draws of approximate posteriors, for each node of a tree, given noisy counts.

Wang & Reiter (2021), section 3.1, for every node of a tree. `independent` uses a node's own noisy
counts; `summed` multiplies them with the likelihood of the sum of its children's noisy counts. A
node that was not measured is known through its children alone, whatever the approximation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError
from trueup.layouts.tree import TreeProblem
from trueup.model.prior import CountPrior, Flat
from trueup.noise.sums import MassTable, Shapes, convolved, reach, simulated, window

Integers = NDArray[np.int64]
Total = Literal["independent", "summed"]
Choose = Callable[[int, NDArray], int]
Sum = tuple[Counter, int]  # shapes of the readings that are added, and the sum of their centres

_TIE = 1e-9  # log masses closer than this are equal: a plateau, of which the lower middle is taken


@dataclass(frozen=True, eq=False)
class EstimateLayout:
    """The tree's measurements, prior and rules from which the posterior of each node is approximated.

    Attributes
    ----------
    ptr, header, place
        Noisy counts of node `v`: `header[ptr[v]:ptr[v + 1]]` and their positions `place` among
        the measured values.
    exact
        (nodes,) position of its exact value, or -1.
    alone
        (nodes,) whether its posterior is that of one noisy count under a flat prior.
    """

    problem: TreeProblem
    ptr: Integers
    header: Integers
    place: Integers
    exact: Integers
    alone: NDArray[np.bool_]
    total: Total
    prior: CountPrior
    prior_total: CountPrior
    monte_carlo: int

    def readings(self, node: int) -> list[tuple]:
        """Return the noise law of each noisy count of a node, and its position among the measured values."""
        rows = range(self.ptr[node], self.ptr[node + 1])
        return [(self.problem.headers[self.header[r]].law, self.place[r]) for r in rows]

    def inner(self) -> NDArray[np.bool_]:
        """Return a mask of the nodes that have children."""
        return np.diff(self.problem.child_ptr) > 0

    @cached_property
    def plain_sums(self) -> dict[int, tuple[Counter, Integers]]:
        """Return noise laws and value positions for the sums of nodes that were all measured exactly once."""
        first, last = self.problem.child_ptr[:-1], self.problem.child_ptr[1:]
        once = np.append(0, np.cumsum((self.exact >= 0) | (np.diff(self.ptr) == 1)))
        nodes = np.flatnonzero(self.inner() & (once[last] - once[first] == last - first))
        return {int(v): self._plain_sum(range(first[v], last[v])) for v in nodes}

    def _plain_sum(self, children: range) -> tuple[Counter, Integers]:
        noisy = [self.readings(c)[0] for c in children if self.exact[c] < 0]
        shapes = Counter(((law, 0),) for law, _ in noisy)
        exact = [self.exact[c] for c in children if self.exact[c] >= 0]
        return shapes, np.array([*exact, *(place for _, place in noisy)], np.int64)

    def settled(self) -> NDArray[np.bool_]:
        """Return a mask of the nodes whose counts are known: exact values and structural zeros."""
        return (self.exact >= 0) | (self.problem.bounds()[1] == 0)


def layout(
    problem: TreeProblem, total: Total, prior: CountPrior, prior_total: CountPrior, monte_carlo: int
) -> EstimateLayout:
    """Return the measurements and rules from which posteriors are approximated, before values are known."""
    prior.refuse_other_than(problem.nested.nodes[-1].size)
    prior_total.refuse_varying()
    nodes = problem.variance.size
    exact = np.full(nodes, -1)
    sizes = [at.size for at in problem.nodes]
    starts = np.cumsum([0, *sizes])
    noisy = [h for h, header in enumerate(problem.headers) if not header.exact]
    for h, header in enumerate(problem.headers):
        if header.exact:
            exact[problem.nodes[h]] = starts[h] + np.arange(sizes[h])
    node = np.concatenate([problem.nodes[h] for h in noisy] or [np.zeros(0, np.int64)])
    place = np.concatenate([starts[h] + np.arange(sizes[h]) for h in noisy] or [np.zeros(0, np.int64)])
    header = np.repeat(noisy, [sizes[h] for h in noisy]).astype(np.int64)
    order = np.argsort(node, kind="stable")
    number = np.bincount(node, minlength=nodes)
    plain = np.where(np.diff(problem.child_ptr) == 0, isinstance(prior, Flat), total == "independent")
    plain[0] &= isinstance(prior_total, Flat)
    return EstimateLayout(
        problem,
        np.concatenate([[0], np.cumsum(number)]),
        header[order],
        place[order],
        exact,
        (number == 1) & plain,
        total,
        prior,
        prior_total,
        monte_carlo,
    )


class Estimator:
    """Posterior modes and draws of the counts of a tree's nodes, with a cache across releases."""

    def __init__(self, plan: EstimateLayout, rng: np.random.Generator) -> None:
        self.plan, self.rng = plan, rng
        self._forget()

    def modes(self, values: Integers) -> Integers:
        """Return the posterior mode of every node's count, `(nodes,)`."""
        plan = self.plan
        estimates, alone = self._known(values), plan.alone & ~plan.settled()
        estimates[alone] = np.maximum(values[plan.place[plan.ptr[:-1][alone]]], 0)
        return self._settle(values, estimates, ~plan.alone, _lower_middle)

    def draws(self, values: Integers) -> Integers:
        """Return an independent posterior draw of every node's count, `(nodes,)`."""

        def choose(low: int, log: NDArray) -> int:
            cumulative = np.cumsum(np.exp(log - log.max()))
            return low + int(np.searchsorted(cumulative, self.rng.random() * cumulative[-1], side="right"))

        every = np.ones(self.plan.exact.size, bool)
        return self._settle(values, self._known(values), every, choose)

    def _forget(self) -> None:
        self.tables: dict[tuple, tuple[int, NDArray]] = {}
        self.sums: dict[tuple, MassTable] = {}

    def _known(self, values: Integers) -> Integers:
        """Return the exact values of nodes `(nodes,)`, with 0 at structural zeros and unknown nodes."""
        estimates = np.zeros(self.plan.exact.size, np.int64)
        given = self.plan.exact >= 0
        estimates[given] = values[self.plan.exact[given]]
        return estimates

    def _settle(self, values: Integers, estimates: Integers, unsettled: NDArray, choose: Choose) -> Integers:
        """Return counts `(nodes,)`, with a posterior mode or draw at every node whose count is not known."""
        plan, child_ptr = self.plan, self.plan.problem.child_ptr
        if plan.monte_carlo:
            self._forget()  # each row simulates its own sums
        inner, unsettled = plan.inner(), unsettled & ~plan.settled()
        cell = np.zeros(inner.size, np.int64)
        cell[plan.problem.nested.nodes[-1]] = np.arange(plan.problem.nested.nodes[-1].size)
        needs_sum = inner & ((plan.total == "summed") | (np.diff(plan.ptr) == 0))
        below: dict[int, Sum] = {}
        for v in np.flatnonzero(needs_sum | unsettled)[::-1].tolist():
            if needs_sum[v] and v in plan.plain_sums:
                shapes, places = plan.plain_sums[v]
                below[v] = shapes, int(values[places].sum())
            elif needs_sum[v]:
                below[v] = _sum_below(plan, values, below, range(child_ptr[v], child_ptr[v + 1]))
            if not unsettled[v]:
                continue
            own = tuple((law, int(values[place])) for law, place in plan.readings(v))
            prior = plan.prior_total if v == 0 else Flat() if inner[v] else plan.prior.at(int(cell[v]))
            estimates[v] = choose(*self._log_posterior(own, below.get(v), prior))
        return estimates

    def _log_posterior(self, own: tuple, below: Sum | None, prior: CountPrior) -> tuple[int, NDArray]:
        """Return a node's log posterior on a window of counts and the window's first count, from a cache."""
        key = (own, below and (frozenset(below[0].items()), below[1]), prior)
        if key not in self.tables:
            self.tables[key] = _log_posterior(own, below, prior, self._sum_table)
        return self.tables[key]

    def _sum_table(self, shapes: Shapes, distance: int) -> MassTable:
        """Return the law of the noise in a sum of counts, tabulated at least up to `distance` from 0."""
        far = 1 << max(int(distance).bit_length(), 6)
        key = (frozenset(shapes.items()), 0 if self.plan.monte_carlo else far)
        if key not in self.sums:
            draws = self.plan.monte_carlo
            self.sums[key] = simulated(shapes, draws, self.rng) if draws else convolved(shapes, far)
        return self.sums[key]


def _sum_below(plan: EstimateLayout, values: Integers, below: dict[int, Sum], children: range) -> Sum:
    """Return the noise laws of a node's children, each with its number of children, and the sum of values."""
    shapes, centre = Counter(), 0
    for c in children:
        if plan.exact[c] >= 0:
            centre += int(values[plan.exact[c]])
        elif readings := plan.readings(c):
            first = int(values[readings[0][1]])
            shapes[tuple((law, int(values[place]) - first) for law, place in readings)] += 1
            centre += first
        elif c in below:
            shapes.update(below[c][0])
            centre += below[c][1]
    return shapes, centre


def _log_posterior(
    own: tuple, below: Sum | None, prior: CountPrior, sum_table: Callable[[Shapes, int], MassTable]
) -> tuple[int, NDArray]:
    """Return a node's log posterior on a window of counts, and the first count of the window."""
    if below is not None and not below[0]:
        return below[1], np.zeros(1)  # all children exact
    windows = [(value - reach(law), value + reach(law)) for law, value in own]
    windows += [w for w in (prior.window(),) if w is not None]
    table, centre = None, 0
    if below is not None:
        shapes, centre = below
        table = sum_table(shapes, max((abs(value - centre) for _, value in own), default=0))
        windows.append((centre + table.low, centre + table.low + table.log.size - 1))
    counts = window(*(max(end, 0) for end in (min(w[0] for w in windows), max(w[1] for w in windows))))
    log = prior.logpmf(counts)
    for law, value in own:
        log = log + law.logpmf(value - counts)
    if table is not None:
        log = log + table.at(counts - centre)
    if log.max() == -np.inf:
        raise InfeasibleError(
            "the prior excludes every count that the noisy counts allow",
            remedy="choose a prior that allows more counts",
        )
    return int(counts[0]), log


def _lower_middle(low: int, log: NDArray) -> int:
    """Return the mode of a log posterior. Of several equally likely counts, return the lower middle one."""
    plateau = np.flatnonzero(log >= log.max() - _TIE)
    return low + int(plateau[(plateau.size - 1) // 2])
