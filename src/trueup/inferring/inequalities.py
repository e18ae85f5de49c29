"""Counts at one place under linear inequalities: exact draws by tilted rejection, else a chain."""

from __future__ import annotations

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
from trueup.kernel.linear.feasible import Region, extreme_point, feasible_point
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.model.constraints import Constraints, name_mask
from trueup.model.header import Measured, split
from trueup.model.nested import canonical
from trueup.model.records.posterior import Drawn
from trueup.noise.law import Law
from trueup.noise.laws.discrete_gaussian import DiscreteGaussian
from trueup.noise.laws.discrete_laplace import DiscreteLaplace
from trueup.noise.laws.gaussian import Gaussian
from trueup.noise.laws.laplace import Laplace

Reals = NDArray[np.float64]
BLOCK = 2500
R_HAT, ESS = 1.01, 400.0
"""A chain is called a posterior if its R-hat is at most this and its effective size at least that."""

MOST_SWEEPS = 200_000
FEWEST = 1000
"""Draws that the diagnostics rest on, at least."""
REACH, INSIDE = 5.0, 0.9
"""Scales of the noise within which chains start, and how far from a point inside towards the end of the region."""


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
        """Each finest cell must be measured once; rules and bounds must speak of single places."""
        finest = constraints.cells.finest
        last = constraints.cells.tree.levels[-1]
        if any(canonical(constraints.cells, h.margin) != finest for h in headers):
            return f"every measurement must be of the finest cells '{finest}'"
        if any(rule.level != last for rule in constraints.linear):
            return f"every linear rule must hold at single places of '{last}'"
        if any(rule.linear.sense == "==" for rule in constraints.linear):
            return "it knows inequalities, not equalities"
        if any(canonical(constraints.cells, b.margin) != finest for b in constraints.bounds):
            return f"every bound must be on the finest cells '{finest}'"
        unknown = {h.law.name for h in headers} - {law.name for law in _SCALES} - {"exact"}
        if unknown:
            return f"it cannot draw from the law '{min(unknown)}'"
        return None if _covered_once(constraints, headers) else "every cell must be measured exactly once"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> _State:
        """Collect rows, bounds and laws; every place is a problem of its own."""
        return _collect(constraints, headers)

    def apply(
        self, state: _State, values: NDArray, draws: int, rng: np.random.Generator, progress: Progress
    ) -> Drawn:
        """Draw all places; then run chains for the places that rejection left out."""
        z, low, high = state.lay(values)
        points = state.feasible_points(z, low, high)
        acceptance = np.ones(len(z))

        def block(size: int) -> NDArray:
            out, rate = draw_inequalities(
                state.kind, z, state.scale, state.rows, state.bounds, low, high, size, self.least, rng
            )
            np.minimum(acceptance, rate, out=acceptance)
            return out

        counts, whole = in_blocks(block, draws, BLOCK, progress)
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
        return self._by_chain(state, (z, low, high), points, counts, left, rng, stats)

    def _by_chain(self, state, problems, points, counts, left, rng, stats) -> Drawn:
        """Replace the draws of the places in `left` by chains; every place gets as many chains."""
        length = counts.shape[1] // self.chains
        chains = counts.reshape(len(counts), self.chains, length, -1)
        worst, least = 1.0, np.inf
        for place in left:
            found, r_hat, ess = self._until_they_agree(
                state,
                [part[place] for part in problems],
                points[place],
                place,
                max(length, FEWEST // self.chains),
                rng,
            )
            chosen = np.linspace(0, found.shape[1] - 1, length).round().astype(int)
            chains[place] = found[:, chosen]
            worst, least = max(worst, r_hat), min(least, ess)
        stats |= {"chains": self.chains, "largest_r_hat": worst, "smallest_ess": least}
        status = "solved"
        if worst > R_HAT or least < ESS:
            names = ", ".join(stats["places_by_chain"][:3])
            status = (
                f"the chains at {names} have R-hat {worst:.3f} and {least:.0f} effective draws; relax a rule"
            )
        joined = np.stack([state.join(chains[:, c]) for c in range(self.chains)])
        # Real counts under linear inequalities are a convex set, whose inside steps along single coordinates connect; whole
        # ones need not be.
        return Drawn(joined, independent=False, connected=not state.discrete, status=status, stats=stats)

    def _until_they_agree(self, state, problem, point, place, length, rng) -> tuple[NDArray, float, float]:
        """Run chains from opposite ends of one place, thinning more until they mix or the limit is reached."""
        z, low, high = problem
        moves = directions(state.rows, low < high)
        arguments = (state.kind, z, state.scale[place], low, high)
        starts = _ends(state, problem, state.scale[place], point, self.chains, rng)
        thin = 1
        while True:
            chains = np.stack(
                [
                    run_chain(arguments, state.rows, state.bounds, moves, start, length, length, thin, rng)
                    for start in starts
                ]
            )
            # Rules are sums that mix by other moves than their counts do.
            r_hat, ess = diagnose(np.concatenate([chains, chains @ state.rows.T], axis=2))
            good = r_hat.max() <= R_HAT and ess.min() >= ESS
            if good or 4 * thin * length > MOST_SWEEPS:
                return chains, float(r_hat.max()), float(ess.min())
            thin *= 4


def _ends(state, problem, scale, point, chains: int, rng: np.random.Generator) -> list[Reals]:
    """Feasible points far apart: towards opposite ends in turn, within reach of the noise; else the point that is known."""
    z, low, high = problem
    low = np.maximum(low, np.minimum(z - REACH * scale, point - 1))
    high = np.minimum(high, np.maximum(z + REACH * scale, point + 1))
    starts, cost = [], np.zeros(len(z))
    for chain in range(chains):
        cost = -cost if chain % 2 else rng.normal(size=len(z)) / scale
        end = extreme_point(Region(state.rows, state.bounds, low, high, state.discrete), cost)
        if end is None:
            starts.append(point)
        else:
            starts.append(end if state.discrete else point + INSIDE * (end - point))
    return starts


_SCALES: dict[type, tuple[int, Any]] = {
    Gaussian: (GAUSSIAN, lambda law: sqrt(law.sigma2)),
    Laplace: (LAPLACE, lambda law: float(law.scale)),
    DiscreteGaussian: (DISCRETE_GAUSSIAN, lambda law: sqrt(law.sigma2)),
    DiscreteLaplace: (TWO_SIDED_GEOMETRIC, lambda law: float(1 / law.epsilon)),
}
"""Kind and scale of every law that the tilted kernel draws from."""


@dataclass(frozen=True, eq=False)
class _State:
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
        """Whether counts are drawn as whole numbers."""
        return bool((self.kind >= DISCRETE_GAUSSIAN).any())

    def label(self, place: int) -> str:
        """Name a place."""
        tree = self.constraints.cells.tree
        return tree.label(tree.levels[-1], place)

    def lay(self, values: NDArray) -> tuple[Reals, Reals, Reals]:
        """Lay measured values `(q,)` on the places `(p, n)`; invariants close their box."""
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
        """Name rows, then lower and upper bounds, by their numbers."""
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


def _collect(constraints: Constraints, headers: Sequence[Measured]) -> _State:
    cells = constraints.cells
    places, n = cells.shape[0], cells.n // cells.shape[0]
    kind, scale = np.zeros(cells.n, np.int64), np.ones(cells.n)
    known = next((h.law for h in headers if not h.exact), None)
    for header in headers:
        at = slice(None) if header.groups is None else header.groups
        kind[at], scale[at] = _kind_scale(header.law if not header.exact else known)
    per_cell = kind.reshape(places, n)
    if (per_cell != per_cell[0]).any() or len(np.unique(kind >= DISCRETE_GAUSSIAN)) > 1:
        raise SpecError(
            "the cells of different places carry different kinds of noise", needed="one law for each cell"
        )
    rows, bounds, names = _rows(constraints)
    low, high = _box(constraints)
    return _State(
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


def _kind_scale(law: Law | None) -> tuple[int, float]:
    if law is None:
        raise SpecError("every count is an invariant", needed="at least one noisy measurement")
    kind, scale = _SCALES[type(law)]
    return kind, scale(law)


def _rows(constraints: Constraints) -> tuple[Reals, Reals, tuple[str, ...]]:
    """Rules as rows `a theta >= b`, multiplied until their coefficients are whole numbers."""
    cells = constraints.cells
    n = cells.n // cells.shape[0]
    rows, bounds = np.zeros((len(constraints.linear), n)), np.zeros(len(constraints.linear))
    for k, rule in enumerate(constraints.linear):
        linear = rule.linear
        whole = lcm(*(c.denominator for c in (*linear.coefficients.values(), linear.bound)))
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


def _covered_once(constraints: Constraints, headers: Sequence[Measured]) -> bool:
    times = np.zeros(constraints.cells.n, np.int64)
    for header in headers:
        times[slice(None) if header.groups is None else header.groups] += 1
    return bool((times == 1).all())
