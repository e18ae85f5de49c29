"""Measurements of nested margins, prepared for methods on the nodes of one tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.tree import messages, posterior_variances, unidentified
from trueup.kernel.tree.topdown import attainable
from trueup.kernel.tree.whole import conflict, controlled_rounding, propagate
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import NestedTree, canonical

Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """A reconciliation problem on a tree of `n` nodes, with measured values and bounds for nodes.

    Attributes
    ----------
    nested
        The tree of the nested margins.
    headers
        The measured headers.
    at
        The nodes of each header's values.
    weights
        The weights of each header's values in the average of all values of a node.
    variance
        `(nodes,)` variance of each node's combined measurement (counts squared); 0 exact,
        infinite unmeasured.
    held
        `(nodes,)`: which nodes bounds alone fix (structural zeros); they count as exact.
    """

    constraints: Constraints
    nested: NestedTree
    headers: tuple[Measured, ...]
    at: tuple[slice | NDArray[np.int64], ...]
    weights: tuple[Reals | float, ...]
    variance: Reals
    held: NDArray[np.bool_]

    @property
    def child_ptr(self) -> NDArray[np.int64]:
        """Return child pointers: the children of node `v` are `child_ptr[v]:child_ptr[v + 1]`."""
        return self.nested.child_ptr

    @cached_property
    def nodes(self) -> tuple[NDArray[np.int64], ...]:
        """Return, for each measured margin, the nodes of its values."""
        margins = (canonical(self.nested.cells, header.margin) for header in self.headers)
        return tuple(
            self.nested.of(margin) if isinstance(at, slice) else at for margin, at in zip(margins, self.at)
        )

    @cached_property
    def messages(self) -> tuple[Reals, Reals]:
        """Return the gain and spread of every node, by which the upward pass weights measurements."""
        return messages(self.child_ptr, self.variance)

    def bounds(self) -> tuple[Reals, Reals]:
        """Return new arrays `(nodes,)` of lower and upper bounds on every node (counts)."""
        return _bounds(self.constraints, self.nested)

    def parts(self, measured: NDArray) -> list[NDArray]:
        """Return measured values `(..., q)` as one array for each measured margin."""
        return split(measured, self.headers, self.nested.cells)

    def whole_bounds(self, measured: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return bounds and invariants `(nodes,)` as whole numbers, with `OPEN` for no bound."""
        from trueup.kernel.messages.pmf import OPEN  # of inference alone

        lower, upper = self.bounds()
        lower = np.where(np.isinf(lower), -OPEN, np.ceil(np.maximum(lower, -(2.0**59)))).astype(np.int64)
        upper = np.where(np.isinf(upper), OPEN, np.floor(np.minimum(upper, 2.0**59))).astype(np.int64)
        for header, nodes, part in zip(self.headers, self.nodes, self.parts(measured)):
            if header.exact:
                lower[nodes], upper[nodes] = np.maximum(lower[nodes], part), np.minimum(upper[nodes], part)
        return lower, upper

    def values(self, measured: NDArray) -> Reals:
        """Return the measured values `(..., q)` by node `(..., nodes)`, and 0 for unmeasured nodes.

        Several measurements of a node are averaged with weights 1 / variance; an exact value
        overrides them.
        """
        table = np.zeros((*measured.shape[:-1], len(self.variance)))
        for at, weight, part in zip(self.at, self.weights, self.parts(measured)):
            table[..., at] += part * weight
        if self.held.any():
            table[..., self.held] = self.bounds()[0][self.held]
        return table

    def filled(self, nodes: Reals) -> Reals:
        """Return node values in which each unmeasured inner node has the sum of its children."""
        unmeasured = np.isinf(self.variance)
        level_ptr = self.nested.level_ptr
        for level in range(len(level_ptr) - 3, -1, -1):
            at = np.arange(level_ptr[level], level_ptr[level + 1])
            below = nodes[..., level_ptr[level + 1] : level_ptr[level + 2]]
            sums = np.add.reduceat(below, self.child_ptr[at] - level_ptr[level + 1], axis=-1)
            nodes[..., at] = np.where(unmeasured[at], sums, nodes[..., at])
        return nodes

    def finest(self, nodes: NDArray) -> NDArray:
        """Return the values of the finest cells `(..., n)`, given node values `(..., nodes)`."""
        return nodes[..., self.nested.at(self.nested.margins[-1])]

    def leaves_unmeasured(self) -> bool:
        """Return True if some finest cell was not measured."""
        return bool(np.isinf(self.finest(self.variance)).any())

    def conflict(self, nodes: Sequence[int] | NDArray) -> InfeasibleError:
        """Return the error that names nodes whose exact values and bounds contradict each other."""
        return InfeasibleError(
            f"the invariants and bounds of {self._names(nodes)} contradict each other",
            remedy="correct one of them",
        )

    def _names(self, nodes: Sequence[int] | NDArray) -> str:
        shown = [f"'{self.nested.label(int(v))}'" for v in nodes[:4]]
        more = len(nodes) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def tree_problem(constraints: Constraints, headers: Sequence[Measured]) -> TreeProblem:
    """Return the tree problem, in which each constraint and measured value has its node.

    Raises
    ------
    InfeasibleError
        If the bounds alone exclude each other, whatever is measured; it names them.
    """
    nested = constraints.nested
    lower, upper = _bounds(constraints, nested)
    margins = [canonical(nested.cells, header.margin) for header in headers]
    at = tuple(nested.at(m) if h.groups is None else nested.of(m)[h.groups] for h, m in zip(headers, margins))
    precision = np.zeros(nested.level_ptr[-1])
    exact = np.zeros(len(precision), dtype=bool)
    for header, nodes in zip(headers, at):
        if header.exact:
            exact[nodes] = True
        else:
            precision[nodes] += 1 / header.law.variance
    held = (lower == upper) & ~exact
    with np.errstate(divide="ignore"):
        variance = np.divide(1, precision, out=precision)
    variance[exact | held] = 0.0
    weights = tuple(_weight(header, variance[nodes]) for header, nodes in zip(headers, at))
    problem = TreeProblem(constraints, nested, tuple(headers), at, weights, variance, held)
    if (bad := propagate(nested.child_ptr, lower, upper)) >= 0:
        raise problem.conflict(conflict(nested.child_ptr, *problem.bounds(), bad))
    return problem


def _weight(header: Measured, combined: Reals) -> Reals | float:
    """Return the weights of one margin's measured values among all measurements of the same nodes."""
    if header.exact:
        return 1.0
    if np.isinf(header.law.variance):  # an interval without an upper end
        return 0.0
    if combined.size and combined.min() == combined.max():
        combined = combined[:1]
    weight = np.where(combined == 0, 0.0, combined / header.law.variance)
    return weight if weight.size > 1 else float(weight.sum())


def tree_standard_errors(problem: TreeProblem) -> dict[Margin, Reals]:
    """Return the standard errors (counts) of least squares for every node, by margin.

    Closed form: the posterior variance under flat priors and Gaussian noise of the same variances,
    which is the variance of the linear estimate whatever the law.
    """
    nested = problem.nested
    variances = posterior_variances(nested.child_ptr, problem.messages[1])
    return {margin: np.sqrt(variances[nested.at(margin)]) for margin in nested.margins}


def refuse_unmeasured(problem: TreeProblem) -> None:
    """Refuse finest cells that were not measured, because their counts would be arbitrary."""
    if problem.leaves_unmeasured():
        finest = problem.nested.margins[-1]
        raise SpecError(
            f"the finest cells '{finest}' are not measured, so nothing says how to split the counts above them",
            remedy=f"give a query on '{finest}' a budget, or leave out the last level or attribute",
        )


def refuse_unidentified(problem: TreeProblem) -> None:
    """Refuse measurements from which least squares cannot determine some count."""
    if (node := unidentified(problem.child_ptr, problem.messages[1])) >= 0:
        finest = problem.nested.margins[-1]
        alone = all(header.margin != finest for header in problem.headers)
        raise SpecError(
            f"the measurements do not determine '{problem.nested.label(node)}' and its siblings, "
            "so nothing says how to split the count above them",
            needed="a measurement of every part but one",
            remedy=f"give a query on '{finest}' a budget, or drop the last level or attribute"
            + "; `[reconcile] method = 'family-tree'` releases the tables that are measured alone" * alone,
        )


def refuse_conflicts(problem: TreeProblem, nodes: Reals) -> None:
    """Refuse exact values and bounds on nodes `(..., nodes)` that contradict each other."""
    exact, (lower, upper) = problem.variance == 0, problem.bounds()
    low, high = np.empty_like(lower), np.empty_like(upper)
    for row in np.atleast_2d(nodes):
        bad = attainable(problem.child_ptr, exact, lower, upper, row, low, high)
        if bad >= 0:
            lower, upper = np.where(exact, row, lower), np.where(exact, row, upper)
            raise problem.conflict(conflict(problem.child_ptr, lower, upper, bad))


def whole_values(problem: TreeProblem, x: Reals, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return node values `(..., nodes)` rounded to whole numbers by controlled rounding."""
    seeds = rng.integers(2**63, size=x.shape[:-1], dtype=np.uint64)
    return controlled_rounding(problem.child_ptr, inverse_variance(problem), x, seeds)


def inverse_variance(problem: TreeProblem) -> Reals:
    """Return 1 / variance of every node, or 0 for exact and for unmeasured nodes."""
    known = problem.variance > 0
    return np.divide(1.0, problem.variance, out=np.zeros(len(known)), where=known)


def largest_adjustment(problem: TreeProblem, nodes: Reals, x: NDArray) -> float:
    """Return the largest difference (counts) between a measured value and its reconciled count."""
    moved = np.subtract(x, nodes)
    if not (measured := problem.variance < np.inf).all():
        moved = moved[..., measured]
    return float(max(moved.max(initial=0.0), -moved.min(initial=0.0)))


def _bounds(constraints: Constraints, nested: NestedTree) -> tuple[Reals, Reals]:
    lowest = 0.0 if constraints.nonnegative else -np.inf
    lower = np.full(nested.level_ptr[-1], lowest)
    upper = np.full(nested.level_ptr[-1], np.inf)
    if constraints.zero_cells.any():
        zeros = nested.nodes[-1][constraints.zero_cells]
        lower[zeros] = upper[zeros] = 0.0
    for bound in constraints.bounds:
        at = nested.at(canonical(nested.cells, bound.margin))
        low, high = constraints.bound_values(bound)
        lower[at], upper[at] = np.maximum(lower[at], low), np.minimum(upper[at], high)
    return lower, upper
