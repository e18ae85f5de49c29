"""Counts at each place under linear inequalities, with their measurements, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, sqrt

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, GAUSSIAN, LAPLACE, TWO_SIDED_GEOMETRIC
from trueup.kernel.linear.feasible import Region, feasible_point
from trueup.model.constraints import Constraints, name_mask
from trueup.model.header import Measured, split
from trueup.noise.law import Law

Reals = NDArray[np.float64]
LARGEST_MULTIPLE = 2**20
"""Of a rule, so that tolerances of linear programs keep their meaning."""


@dataclass(frozen=True, eq=False)
class InequalityProblems:
    """All places' problems: `p` places, `n` cells at each, the same `m` rows."""

    constraints: Constraints
    headers: tuple[Measured, ...]
    kind: NDArray[np.int64]
    scale: Reals
    rows: Reals
    bounds: Reals
    names: tuple[str, ...]
    low: Reals
    high: Reals

    @property
    def discrete(self) -> bool:
        """Return True if counts are drawn as whole numbers."""
        return bool((self.kind >= DISCRETE_GAUSSIAN).any())

    def label(self, place: int) -> str:
        """Name a place."""
        tree = self.constraints.cells.tree
        return tree.label(tree.levels[-1], place)

    def lay(self, values: NDArray) -> tuple[Reals, Reals, Reals]:
        """Lay measured values `(q,)` on the places `(p, n)`; invariants narrow their box to a point."""
        cells = self.constraints.cells
        z = np.empty(cells.n)
        low, high = self.low.ravel().copy(), self.high.ravel().copy()
        for header, part in zip(self.headers, split(values, self.headers, cells)):
            at = slice(None) if header.groups is None else header.groups
            z[at] = part
            if header.exact:
                low[at], high[at] = np.maximum(low[at], part), np.minimum(high[at], part)
        shape = self.low.shape
        return z.reshape(shape), low.reshape(shape), high.reshape(shape)

    def join(self, counts: NDArray) -> NDArray:
        """Turn `(p, draws, n)` into `(draws, cells)`."""
        joined = np.moveaxis(counts, 0, 1).reshape(counts.shape[1], -1)
        return joined.astype(np.int64) if self.discrete else joined

    def feasible_points(self, z: Reals, low: Reals, high: Reals) -> Reals:
        """Return a feasible point `(p, n)` for every place, or refuse with a certificate."""
        _, first, same = np.unique(np.hstack([low, high]), axis=0, return_index=True, return_inverse=True)
        points = []
        for place in first:
            region = Region(self.rows, self.bounds, low[place], high[place], self.discrete)
            point, conflict = feasible_point(region)
            if point is None:
                raise InfeasibleError(
                    f"no counts at '{self.label(int(place))}' satisfy {self._conflict(conflict)} together",
                    remedy="drop or correct one of them",
                )
            points.append(point)
        return np.array(points)[same.ravel()]

    def _conflict(self, conflict: Sequence[int]) -> str:
        """Return the error naming contradictory rows and bounds by their numbers."""
        cells, n = self.constraints.cells, len(self.kind)
        kinds = [a.values for a in cells.attributes]
        labels = [
            ", ".join(str(v[i]) for v, i in zip(kinds, np.unravel_index(c, cells.shape[1:])))
            for c in range(n)
        ]
        every = [
            *(f"'{name}'" for name in self.names),
            *(f"the lower bound of '{label}'" for label in labels),
            *(f"the upper bound of '{label}'" for label in labels),
        ]
        return " and ".join(dict.fromkeys(every[i] for i in conflict))


def collect(constraints: Constraints, headers: Sequence[Measured]) -> InequalityProblems:
    cells = constraints.cells
    places, n = cells.shape[0], cells.n // cells.shape[0]
    kind, scale = np.zeros(cells.n, np.int64), np.ones(cells.n)
    known = {h.law: k for h in headers if not h.exact and (k := kind_and_scale(h.law))}
    first = next(iter(known), None)
    if first is None:
        raise SpecError("every count is an invariant", needed="at least one noisy measurement")
    for header in headers:
        at = slice(None) if header.groups is None else header.groups
        kind[at], scale[at] = known[first if header.exact else header.law]
    per_cell = kind.reshape(places, n)
    if len(np.unique(kind >= DISCRETE_GAUSSIAN)) > 1:
        raise SpecError("some noise is discrete, and some is not", needed="either of all cells")
    if (per_cell != per_cell[0]).any():
        raise SpecError(
            "the cells of different places have different kinds of noise", needed="one law for each cell"
        )
    rows, bounds, names = _rule_rows(constraints)
    low, high = _box(constraints)
    return InequalityProblems(
        constraints,
        tuple(headers),
        per_cell[0].copy(),
        scale.reshape(places, n),
        rows,
        bounds,
        names,
        low.reshape(places, n),
        high.reshape(places, n),
    )


def kind_and_scale(law: Law) -> tuple[int, float] | None:
    """Return the law's (kind, scale) code for the tilted sampler, or None if the sampler does not support it."""
    form = law.form
    if form is None or law.joint or not law.additive or form.reach < np.inf:
        return None
    if form.curvature == 0.0:
        return TWO_SIDED_GEOMETRIC if law.discrete else LAPLACE, 1.0 / form.slope
    if form.slope == 0.0:
        return DISCRETE_GAUSSIAN if law.discrete else GAUSSIAN, sqrt(0.5 / form.curvature)
    return None


def _rule_rows(constraints: Constraints) -> tuple[Reals, Reals, tuple[str, ...]]:
    """Return rules as rows `a theta >= b`, multiplied until their coefficients are whole numbers of no great size."""
    cells = constraints.cells
    n = cells.n // cells.shape[0]
    rows, bounds = np.zeros((len(constraints.linear), n)), np.zeros(len(constraints.linear))
    for k, rule in enumerate(constraints.linear):
        linear = rule.linear
        whole = lcm(*(c.denominator for c in (*linear.coefficients.values(), linear.bound)))
        whole = whole if whole <= LARGEST_MULTIPLE else 1
        sign = whole if linear.sense == ">=" else -whole
        for name, coefficient in linear.coefficients.items():
            rows[k] += float(sign * coefficient) * name_mask(cells, name).ravel()
        bounds[k] = float(sign * linear.bound)
    return rows, bounds, tuple(rule.linear.text for rule in constraints.linear)


def _box(constraints: Constraints) -> tuple[Reals, Reals]:
    low = np.full(constraints.cells.n, 0.0 if constraints.nonnegative else -np.inf)
    high = np.where(constraints.zero_cells, 0.0, np.inf)
    for bound in constraints.bounds:
        lower, upper = constraints.bound_values(bound)
        low, high = np.maximum(low, lower), np.minimum(high, upper)
    return low, high


def covered_once(constraints: Constraints, headers: Sequence[Measured]) -> bool:
    times = np.zeros(constraints.cells.n, np.int64)
    for header in headers:
        times[slice(None) if header.groups is None else header.groups] += 1
    return bool((times == 1).all())
