"""Inference of counts at single places under linear inequalities, by tilted rejection or Markov chains.

One file: the problem as arrays, and the draws and chains that solve it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import InfeasibleError, SpecError
from trueup.inferring.method import InferenceMethod, Progress, in_blocks
from trueup.kernel.inequalities.markov_chain import directions, run_chain
from trueup.kernel.inequalities.tilted import (
    DISCRETE_GAUSSIAN,
    GAUSSIAN,
    LAPLACE,
    TABLE_DEPTH,
    TWO_SIDED_GEOMETRIC,
    draw_inequalities,
)
from trueup.kernel.linear.absolute_deviations import Region, extreme_point, feasible_point
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.model.constraints import Constraints, name_mask
from trueup.model.header import Measured, split
from trueup.model.nested import canonical
from trueup.model.records.drawn import Drawn
from trueup.noise.law import Law
from trueup.run import Deadline

Reals = NDArray[np.float64]
LARGEST_MULTIPLE = 2**20
"""Largest number that a rule is multiplied by, so that tolerances of linear programs keep their meaning."""
PLACES_AT_ONCE = 2500
R_HAT, ESS = 1.01, 400.0
"""A chain is called a posterior if its R-hat is at most this and its effective size at least that."""
MOST_SWEEPS = 200_000
MIN_DIAGNOSED_DRAWS = 1000
"""Draws that the diagnostics rest on, at least."""
START_SCALES, START_SHARE = 5.0, 0.9
"""Scales of the noise within which chains start, and how far from a point inside towards the end of the region."""


@dataclass(frozen=True, eq=False)
class InequalityProblems:
    """The inference problems of `p` places, each with `n` cells and the same `m` linear inequalities."""

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
        """Return the name of a place."""
        tree = self.constraints.cells.tree
        return tree.label(tree.levels[-1], place)

    def lay(self, values: NDArray) -> tuple[Reals, Reals, Reals]:
        """Return values and bounds of every place `(p, n)`, from measured values `(q,)`."""
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
        """Return counts `(p, draws, n)` of all places, reordered as `(draws, cells)`."""
        joined = np.moveaxis(counts, 0, 1).reshape(counts.shape[1], -1)
        return joined.astype(np.int64) if self.discrete else joined

    def feasible_points(self, z: Reals, low: Reals, high: Reals) -> Reals:
        """Return a feasible point `(p, n)` for every place, or raise an error with a proof that there is none."""
        _, first, same = np.unique(np.hstack([low, high]), axis=0, return_index=True, return_inverse=True)
        points = []
        for place in first:
            region = Region(self.rows, self.bounds, low[place], high[place], self.discrete)
            point, conflict = feasible_point(region)
            if point is None:
                raise InfeasibleError(
                    f"no counts at '{self.label(int(place))}' satisfy these rules together: {self._conflict(conflict)}",
                    remedy="drop or correct one of them",
                )
            points.append(point)
        return np.array(points)[same.ravel()]

    def _conflict(self, conflict: Sequence[int]) -> str:
        """Return text that names contradictory rules and bounds, given their numbers."""
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
        raise SpecError(
            "some counts have discrete noise and others continuous noise",
            needed="only discrete or only continuous noise",
        )
    if (per_cell != per_cell[0]).any():
        raise SpecError(
            "the places have different laws of noise", needed="for each cell the same law at all places"
        )
    rows, bounds, names = _rule_rows(constraints)
    low, high = _cell_bounds(constraints)
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
    """Return the law's (kind, scale) code for the tilted sampler, or None if it is unsupported."""
    form = law.form
    if form is None or law.joint or not law.additive or form.reach < np.inf:
        return None
    if form.curvature == 0.0:
        return TWO_SIDED_GEOMETRIC if law.discrete else LAPLACE, 1.0 / form.slope
    if form.slope == 0.0:
        return DISCRETE_GAUSSIAN if law.discrete else GAUSSIAN, sqrt(0.5 / form.curvature)
    return None


def _rule_rows(constraints: Constraints) -> tuple[Reals, Reals, tuple[str, ...]]:
    """Return rules as rows `a theta >= b` with whole-number coefficients."""
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


def _cell_bounds(constraints: Constraints) -> tuple[Reals, Reals]:
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


@dataclass(frozen=True)
class LinearInequalities(InferenceMethod):
    """The posterior of each place's counts given independent noise and linear inequalities.

    Draws are exact and independent. Where many inequalities bind and almost no proposal is
    accepted, chains take over for that place alone; they are flagged, and refused unless they agree.

    Attributes
    ----------
    least
        Acceptance rate below which a place is left to the chain.
    chains
        Number of chains per such place.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private
    measurements of constrained parameters", equation (6).
    """

    least: float = 1e-3
    chains: int = 4

    name: ClassVar[str] = "linear-inequalities"
    title: ClassVar[str] = "independent draws under linear inequalities at every place"
    structures: ClassVar[frozenset[str]] = frozenset({"general"})

    def refuses(self, constraints: Constraints, headers: Sequence[Measured]) -> str | None:
        """Return the reason why this method does not fit the constraints and laws, or None."""
        finest = constraints.cells.finest
        last = constraints.cells.tree.levels[-1]
        if any(canonical(constraints.cells, h.margin) != finest for h in headers):
            return f"every measurement must be of the finest cells '{finest}'"
        if any(rule.level != last for rule in constraints.linear):
            return f"every linear rule must hold at single places of '{last}'"
        if any(rule.linear.sense == "==" for rule in constraints.linear):
            return "it supports linear inequalities, but no equalities"
        if any(canonical(constraints.cells, b.margin) != finest for b in constraints.bounds):
            return f"every bound must be on the finest cells '{finest}'"
        unknown = {h.law.name for h in headers if not h.exact and kind_and_scale(h.law) is None}
        if unknown:
            return f"it cannot draw from the law '{min(unknown)}'"
        return None if covered_once(constraints, headers) else "every cell must be measured exactly once"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> InequalityProblems:
        """Return rows, bounds and laws of all places; every place is a separate problem."""
        return collect(constraints, headers)

    def apply(
        self,
        state: InequalityProblems,
        values: NDArray,
        draws: int,
        rng: np.random.Generator,
        progress: Progress,
        deadline: Deadline | None = None,
    ) -> Drawn:
        """Draw the counts of all places, by chains for the places where rejection takes too long."""
        z, low, high = state.lay(values)
        points = state.feasible_points(z, low, high)
        acceptance = np.ones(len(z))

        def block(size: int) -> NDArray:
            out, rate = draw_inequalities(
                state.kind, z, state.scale, state.rows, state.bounds, low, high, size, self.least, rng
            )
            np.minimum(acceptance, rate, out=acceptance)
            return out

        deadline = deadline or Deadline.of()
        counts, whole = in_blocks(block, draws, PLACES_AT_ONCE, progress, deadline)
        left = np.flatnonzero(acceptance == 0)
        stats: dict[str, Any] = {
            "draws": counts.shape[1],
            "interrupted": not whole,
            "lowest_acceptance": float(acceptance.min()),
            "dropped_mass": 2 * len(state.kind) * np.exp(-TABLE_DEPTH) if state.discrete else 0.0,
            "places_by_chain": [state.label(int(p)) for p in left],
        }
        if not left.size:
            return Drawn(state.join(counts)[None], independent=True, stats=stats)
        each = -(-counts.shape[1] // self.chains)
        if (more := each * self.chains - counts.shape[1]) > 0:
            counts = np.concatenate([counts, block(more)], axis=1)
        return self._by_chain(state, (z, low, high), points, counts, left, rng, stats, deadline)

    def _by_chain(self, state, problems, points, counts, left, rng, stats, deadline: Deadline) -> Drawn:
        """Replace the draws of the places in `left` by draws of Markov chains.

        Raises
        ------
        ConvergenceError
            If time is spent before each has had any.
        """
        length = counts.shape[1] // self.chains
        chains = counts.reshape(len(counts), self.chains, length, -1)
        worst, least = 1.0, np.inf
        for done, place in enumerate(left):
            if deadline.passed:
                remedy = "allow more `minutes`, relax a rule, or infer fewer places"
                raise deadline.spent(self.name, f"Markov chains at {done} of {len(left)} places", remedy)
            found, r_hat, ess = self._until_they_agree(
                state,
                [part[place] for part in problems],
                points[place],
                place,
                max(length, MIN_DIAGNOSED_DRAWS // self.chains),
                rng,
                deadline,
            )
            chosen = np.linspace(0, found.shape[1] - 1, length).round().astype(int)
            chains[place] = found[:, chosen]
            worst, least = max(worst, r_hat), min(least, ess)
        stats |= {"chains": self.chains, "largest_r_hat": worst, "smallest_ess": least}
        refused = ""
        if worst > R_HAT or least < ESS:
            names = ", ".join(stats["places_by_chain"][:3])
            refused = f"the Markov chains at {names} have R-hat {worst:.3f} and {least:.0f} effective draws; relax a rule"
        joined = np.stack([state.join(chains[:, c]) for c in range(self.chains)])
        # Real counts under linear inequalities are a convex set, whose inside steps along single coordinates connect; whole
        # ones need not be.
        return Drawn(joined, independent=False, connected=not state.discrete, refused=refused, stats=stats)

    def _until_they_agree(
        self, state, problem, point, place, length, rng, deadline: Deadline
    ) -> tuple[NDArray, float, float]:
        """Return draws of one place by Markov chains, thinned until the chains agree or reach a limit."""
        z, low, high = problem
        moves = directions(state.rows, low < high)
        arguments = (state.kind, z, state.scale[place], low, high)
        starts = _distant_starts(state, problem, state.scale[place], point, self.chains, rng)
        thin = 1
        while True:
            began = time.monotonic()
            chains = np.stack(
                [
                    run_chain(arguments, state.rows, state.bounds, moves, start, length, length, thin, rng)
                    for start in starts
                ]
            )
            # Rules are sums that mix by other moves than their counts do.
            r_hat, ess = diagnose(np.concatenate([chains, chains @ state.rows.T], axis=2))
            good = r_hat.max() <= R_HAT and ess.min() >= ESS
            late = 4 * (time.monotonic() - began) > deadline.left()
            if good or late or 4 * thin * length > MOST_SWEEPS:
                return chains, float(r_hat.max()), float(ess.min())
            thin *= 4


def _distant_starts(state, problem, scale, point, chains: int, rng: np.random.Generator) -> list[Reals]:
    """Return starting points for Markov chains, feasible and far apart relative to the noise."""
    z, low, high = problem
    low = np.maximum(low, np.minimum(z - START_SCALES * scale, point - 1))
    high = np.minimum(high, np.maximum(z + START_SCALES * scale, point + 1))
    starts, cost = [], np.zeros(len(z))
    for chain in range(chains):
        cost = -cost if chain % 2 else rng.normal(size=len(z)) / scale
        end = extreme_point(Region(state.rows, state.bounds, low, high, state.discrete), cost)
        if end is None:
            starts.append(point)
        else:
            starts.append(end if state.discrete else point + START_SHARE * (end - point))
    return starts
