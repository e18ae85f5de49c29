"""Any constraints at all, written as rows: what the methods for general constraints share, and conflicts in labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.fit import Fit
from trueup.kernel.polyhedron import Polyhedron
from trueup.kernel.programs import Answer
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Constraints, LinearRule, name_mask
from trueup.model.measurements import Measured, split
from trueup.model.nested import canonical
from trueup.model.release import Solution
from trueup.reconcile.method import Method
from trueup.reconcile.span import OF_PROGRAMS, refuse_wide_span

INTEGER_CONFLICT_ROWS = 400  # above this, a conflict of whole numbers alone is not narrowed down


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """A reconciliation problem on `n` cells as rows of a polyhedron and measured sums.

    Attributes
    ----------
    constraints, headers
        What must hold and what was measured.
    """

    constraints: Constraints
    headers: tuple[Measured, ...]

    @property
    def cells(self) -> Cells:
        """The finest cells."""
        return self.constraints.cells

    def sums(self, margin: Margin, groups: NDArray | None = None) -> scipy.sparse.csr_array:
        """The 0/1 matrix (groups, n) of a margin."""
        fine = canonical(self.cells, margin)
        group = self.cells.groups(self.cells.finest, fine)
        n = self.cells.n
        matrix = scipy.sparse.csr_array((np.ones(n), (group, np.arange(n))), shape=(self.cells.size(fine), n))
        return matrix if groups is None else scipy.sparse.csr_array(matrix[groups])

    @cached_property
    def fit_matrix(self) -> scipy.sparse.csr_array:
        """All noisy measured sums, one a row."""
        rows = [self.sums(h.margin, h.groups) for h in self.headers if not h.exact]
        return scipy.sparse.csr_array(
            scipy.sparse.vstack([scipy.sparse.csr_array((0, self.cells.n)), *rows], format="csr")
        )

    def fit(self, values: NDArray) -> Fit:
        """The measured sums of one row of values `(q,)`, weighted by 1 / variance relative to the widest noise."""
        pairs = [(h, v) for h, v in zip(self.headers, self._split(values), strict=True) if not h.exact]
        measured = np.concatenate([np.zeros(0), *(v for _, v in pairs)])
        weights = np.concatenate([np.zeros(0), *(np.full(len(v), 1 / h.law.variance) for h, v in pairs)])
        return Fit(self.fit_matrix, measured, weights).relative()

    def polyhedron(self, values: NDArray) -> Polyhedron:
        """The constraints, with the exact values of one row `(q,)`."""
        equal, sums = self._rows("==", values)
        ranged, ends = self._rows("range", values)
        low, high = (np.concatenate([np.zeros(0), *(e[k] for e in ends)]) for k in (0, 1))
        nonnegative = self.constraints.nonnegative
        right = np.concatenate([np.zeros(0), *sums])
        return Polyhedron.of(
            self.cells.n,
            _stack(equal, self.cells.n),
            right,
            _stack(ranged, self.cells.n),
            low,
            high,
            nonnegative=nonnegative,
        )

    def labels(self, values: NDArray) -> list[str]:
        """Name every row of the polyhedron."""
        blocks = list(self._blocks(values))
        equal = [label for kind, _, _, labels in blocks if kind == "==" for label in labels]
        return equal + [label for kind, _, _, labels in blocks if kind == "range" for label in labels]

    def conflict(self, values: NDArray, *, integer: bool = False) -> InfeasibleError | None:
        """Name rows that cannot hold together, no more than needed; None if all can."""
        polyhedron = self.polyhedron(values)
        narrow = integer and polyhedron.rows <= INTEGER_CONFLICT_ROWS
        rows = polyhedron.conflict(integer=narrow)
        if rows:
            names = self.labels(values)
            shown = "; ".join(names[r] for r in rows[:6])
            more = f"; and {len(rows) - 6} more" if len(rows) > 6 else ""
            what = " in whole numbers" if narrow and polyhedron.feasible() else ""
            sign = " with counts of at least zero" if self.constraints.nonnegative else ""
            return InfeasibleError(
                f"these cannot hold together{what}{sign}: {shown}{more}",
                remedy="correct or drop one of them",
            )
        return None

    def refused(self, answer: Answer, values: NDArray, *, integer: bool = False) -> Answer:
        """The answer, unless it is none because the constraints exclude each other: then an error that says so."""
        if answer.status != "solved" and (error := self.conflict(values, integer=integer)):
            raise error
        return answer

    def _split(self, values: NDArray) -> list[NDArray]:
        return split(values, self.headers, self.cells) if self.headers else []

    def _rows(self, kind: str, values: NDArray) -> tuple[list[scipy.sparse.csr_array], list]:
        blocks = [b for b in self._blocks(values) if b[0] == kind]
        return [b[1] for b in blocks], [b[2] for b in blocks]

    def _blocks(self, values: NDArray) -> Iterator[tuple[str, scipy.sparse.csr_array, object, list[str]]]:
        """Blocks of rows: kind, matrix, right-hand sides (or both ends), labels."""
        for header, part in zip(self.headers, self._split(values), strict=True):
            if header.exact:
                groups = range(self.cells.size(header.margin)) if header.groups is None else header.groups
                names = [f"the invariant '{self.cells.margin_label(header.margin, int(g))}'" for g in groups]
                yield "==", self.sums(header.margin, header.groups), part.astype(float), names
        held = np.flatnonzero(self.constraints.zero_cells)
        if held.size:
            rows = scipy.sparse.csr_array(
                (np.ones(held.size), (np.arange(held.size), held)), shape=(held.size, self.cells.n)
            )
            yield (
                "==",
                rows,
                np.zeros(held.size),
                [f"the structural zero '{self.cells.label(int(c))}'" for c in held],
            )
        for bound in self.constraints.bounds:
            yield self._bound(bound)
        for rule in self.constraints.linear:
            yield self._rule(rule)

    def _bound(self, bound) -> tuple[str, scipy.sparse.csr_array, object, list[str]]:
        low, high = self.constraints.bound_values(bound)
        limited = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        names = [f"the bound on '{self.cells.margin_label(bound.margin, int(g))}'" for g in limited]
        return "range", self.sums(bound.margin, limited), (low[limited], high[limited]), names

    def _rule(self, rule: LinearRule) -> tuple[str, scipy.sparse.csr_array, object, list[str]]:
        places = self.sums(Margin(rule.level))
        weight = np.zeros(self.cells.shape)
        for name, coefficient in rule.linear.coefficients.items():
            weight += float(coefficient) * name_mask(self.cells, name)
        matrix = scipy.sparse.csr_array(places.multiply(weight.ravel()[None]))
        side = np.full(self.cells.tree.sizes[self.cells.tree.level(rule.level)], float(rule.linear.bound))
        names = [f"'{rule.linear.text}' at {self.cells.tree.label(rule.level, p)}" for p in range(side.size)]
        if rule.linear.sense == "==":
            return "==", matrix, side, names
        free = np.full(side.size, np.inf)
        return "range", matrix, (side, free) if rule.linear.sense == ">=" else (-free, side), names


def _stack(rows: Sequence[scipy.sparse.csr_array], n: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array((0, n)), *rows], format="csr"))


class LinearMethod(Method):
    """A method that needs no structure: one program a row of values."""

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> LinearProblem:
        """Write everything as rows."""
        problem = LinearProblem(constraints, tuple(headers))
        refuse_unmeasured(problem)
        refuse_wide_span(headers, OF_PROGRAMS)
        return problem

    @abstractmethod
    def project(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Answer:
        """Solve for one row of values `(q,)`; the rng settles ties between equally good whole points."""

    def apply(self, state: LinearProblem, values: NDArray, rng: np.random.Generator) -> Solution:
        """Reconcile values `(q,)` or `(b, q)`; the rng settles ties between equally good whole points."""
        answers = [self.project(state, row, rng) for row in np.atleast_2d(values)]
        x = np.stack([a.x for a in answers]).reshape(*values.shape[:-1], state.cells.n)
        if state.constraints.nonnegative:
            x = np.maximum(x, 0)
        gaps = [a.gap for a in answers]
        stats = {
            "largest residual (counts)": max(a.residual for a in answers),
            "largest relative gap": None if None in gaps else max(g for g in gaps if g is not None),
        }
        status = next((a.status for a in answers if a.status != "solved"), "solved")
        return Solution(
            np.rint(x).astype(np.int64) if self.integer and status == "solved" else x, status, stats
        )


def refuse_unmeasured(problem: LinearProblem) -> None:
    """Refuse finest cells that nothing speaks of alone: their counts would be made up."""
    finest = problem.cells.finest
    covered = [
        h for h in problem.headers if canonical(problem.cells, h.margin) == finest and h.groups is None
    ]
    if not covered:
        raise SpecError(
            f"the finest cells '{finest}' are not measured, so nothing says how to split the counts above them",
            remedy=f"give a query on '{finest}' a budget, or drop the last level or attribute",
        )
