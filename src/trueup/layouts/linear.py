"""Linear constraints of any form as rows of a matrix, and errors that name contradictory constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel import Status
from trueup.kernel.histogram import refines
from trueup.kernel.linear import Fit
from trueup.kernel.linear.polyhedron import Polyhedron
from trueup.kernel.linear.programs import Answer
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.linear_system import RowBlock, contradiction, margin_rows, polyhedron, rule_blocks
from trueup.model.nested import canonical
from trueup.noise.law import Law


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """A reconciliation problem on `n` cells, with constraints and measurements as rows of matrices.

    Attributes
    ----------
    constraints, headers
        The constraints, and the measured headers.
    """

    constraints: Constraints
    headers: tuple[Measured, ...]

    @property
    def cells(self) -> Cells:
        """Return the finest cells."""
        return self.constraints.cells

    @property
    def lowest(self) -> float:
        """Return the lowest value of a count: 0, or minus infinity if counts may be negative."""
        return 0.0 if self.constraints.nonnegative else -np.inf

    def sums(self, margin: Margin, groups: NDArray | None = None) -> scipy.sparse.csr_array:
        """Return the matrix `(groups, n)` of 0 and 1 that sums cells into the groups of a margin."""
        return margin_rows(self.cells, margin, groups)

    @cached_property
    def fit_matrix(self) -> scipy.sparse.csr_array:
        """Return the sparse matrix of 0 and 1 that maps cells to the noisy measurements."""
        rows = [self.sums(h.margin, h.groups) for h in self.headers if not h.exact]
        return scipy.sparse.csr_array(
            scipy.sparse.vstack([scipy.sparse.csr_array((0, self.cells.n)), *rows], format="csr")
        )

    def fit(self, values: NDArray, weight: Callable[[Law], float] | None = None) -> Fit:
        """Return the matrix, the noisy values of one replicate `(q,)`, and their relative weights."""
        weight = weight or (lambda law: 1 / law.variance)
        pairs = [(h, v) for h, v in zip(self.headers, self._split(values), strict=True) if not h.exact]
        measured = np.concatenate([np.zeros(0), *(v for _, v in pairs)])
        weights = np.concatenate([np.zeros(0), *(np.full(len(v), weight(h.law)) for h, v in pairs)])
        return Fit(self.fit_matrix, measured, weights).relative()

    def polyhedron(self, values: NDArray) -> Polyhedron:
        """Return the polyhedron of all constraints, with the exact values of one replicate `(q,)`."""
        return polyhedron(self.constraints, self._blocks(values))[0]

    def conflict(self, values: NDArray, *, integer: bool = False) -> InfeasibleError | None:
        """Return the error that names a smallest set of contradictory constraints, or None."""
        return contradiction(*polyhedron(self.constraints, self._blocks(values)), integer=integer)

    def disagreement(self, values: NDArray) -> InfeasibleError | None:
        """Return the error that names two invariants whose common sums differ, or None."""
        exact = [(h, v) for h, v in zip(self.headers, self._split(values), strict=True) if h.exact]
        for (one, v), (other, w) in combinations([(h, v) for h, v in exact if h.groups is None], 2):
            shared = common(self.cells, one.margin, other.margin)
            if shared is None:
                continue
            sums = [
                np.bincount(self.cells.groups(h.margin, shared), part, self.cells.size(shared))
                for h, part in ((one, v), (other, w))
            ]
            if (differ := np.flatnonzero(sums[0] != sums[1])).size:
                where = self.cells.margin_label(shared, int(differ[0]))
                return InfeasibleError(
                    f"the invariants '{one.margin}' and '{other.margin}' have different sums at '{where}'",
                    remedy="correct one of them, so that these sums agree",
                )
        return None

    def refused(self, answer: Answer, values: NDArray, *, integer: bool = False) -> Answer:
        """Return the answer of a solver; raise an error that names contradictory constraints if it failed."""
        if answer.status is not Status.SOLVED and (error := self.conflict(values, integer=integer)):
            raise error
        return answer

    def _split(self, values: NDArray) -> list[NDArray]:
        return split(values, self.headers, self.cells) if self.headers else []

    def _blocks(self, values: NDArray) -> Iterator[RowBlock]:
        """Yield the invariants with their exact values, and then all other rules, as rows of a matrix."""
        for header, part in zip(self.headers, self._split(values), strict=True):
            if header.exact:
                groups = range(self.cells.size(header.margin)) if header.groups is None else header.groups
                names = [f"the invariant '{self.cells.margin_label(header.margin, int(g))}'" for g in groups]
                sides = part.astype(float)
                yield RowBlock(self.sums(header.margin, header.groups), sides, sides, names, equal=True)
        yield from rule_blocks(self.constraints)


def log_slope(law: Law) -> float:
    """Return the mean slope of a law's negative log mass from 0 to its standard deviation (1 / counts).

    For two-sided geometric noise of mass `exp(-epsilon |k|)` it is epsilon, 1 / scale, whatever the distance: the
    weighted absolute deviations are then minus the log likelihood, up to a constant.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import DiscreteLaplace
    >>> log_slope(DiscreteLaplace(Fraction(5, 2)))
    2.5
    """
    distance = max(1.0, float(np.rint(law.variance**0.5)))
    at_zero, away = law.logpmf(np.array([0.0, distance]))
    return float(at_zero - away) / distance


def common(cells: Cells, one: Margin, other: Margin) -> Margin | None:
    """Return a margin that two margins have in common, or None if neither refines the other's attributes."""
    level = min(one.level, other.level, key=cells.tree.level)
    tables = [cells.marginal(m.attributes) for m in (one, other)]
    if refines(*tables):
        return Margin(level, other.attributes)
    return Margin(level, one.attributes) if refines(*reversed(tables)) else None


def _alone(problem: LinearProblem) -> NDArray[np.bool_]:
    """Return a mask `(n,)` of the cells that have a measurement of their own."""
    found = np.zeros(problem.cells.n, bool)
    for header in problem.headers:
        rows = problem.sums(header.margin, header.groups)
        found[rows.indices[rows.indptr[:-1][np.diff(rows.indptr) == 1]]] = True
    return found


def refuse_unmeasured_rows(problem: LinearProblem) -> None:
    """Refuse finest cells that no measurement or rule determines, as their counts are arbitrary."""
    finest = problem.cells.finest
    covered = [
        h for h in problem.headers if canonical(problem.cells, h.margin) == finest and h.groups is None
    ]
    if not covered and not _alone(problem).all():
        raise SpecError(
            f"the finest cells '{finest}' are not measured, so nothing says how to split the counts above them",
            remedy=f"give a query on '{finest}' a budget, or leave out the last level or attribute",
        )
