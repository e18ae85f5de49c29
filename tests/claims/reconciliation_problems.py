"""Random reconciliation problems, and what independent solvers say of them.

A problem is drawn in this order. Its kind: a tree of places, a table of one place with crossing margins, histograms
on a hierarchy, or anything with linear rules. Its size: 2 to 2,000 cells, evenly in the logarithm. True counts: one
in three problems has counts up to 10, 10^4 and 10^9 each, a share of them zero. Then what holds: structural zeros,
invariants (nested or crossing), lower bounds from 0 to the true count itself, upper bounds, linear rules that the true
counts keep. Then noise: two-sided geometric or discrete Gaussian, its widths up to 100 times apart, from far below the
counts to far above them. One in ten problems is then spoilt: an invariant is off by one, or a bound is above it.

The matrices are written down cell by cell here, apart from those of the package. Clarabel solves the least squares,
HiGHS (`scipy.optimize.milp`) the least absolute deviations and the nearest point in whole numbers, and says whether any
counts exist. What HiGHS has found when its time is over refutes a gap too, if it is near enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import clarabel
import numpy as np
import scipy
from numpy.typing import NDArray

from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.noise.laws.undrawn import Exact

KINDS = ("tree", "margins", "histogram", "general")
SCALES = (10, 10**4, 10**9)
MOST_CELLS = 2000


@dataclass(frozen=True)
class Problem:
    """Constraints, headers and measured values `(q,)`; `truth` are counts that obey all, None if it was spoilt."""

    kind: str
    constraints: Constraints
    headers: tuple[Measured, ...]
    values: NDArray[np.int64]
    truth: NDArray[np.int64] | None

    @cached_property
    def rows(self) -> Rows:
        """All constraints and measurements as matrices."""
        return Rows.of(self)


def draw(rng: np.random.Generator, most: int = MOST_CELLS) -> Problem:
    """Draw one problem of at most so many cells."""
    kind = str(rng.choice(KINDS))
    cells = _cells(kind, int(np.exp(rng.uniform(np.log(2), np.log(most)))), rng)
    zeros = _zeros(cells, rng)
    counts = _counts(cells, rng)
    counts[Constraints(cells, (), zeros=zeros).zero_cells] = 0
    every = _margins(cells)
    invariants = _invariants(every, rng)
    bounds = _bounds(cells, counts, every, rng)
    linear = _rules(cells, counts, rng) if kind == "general" else ()
    noisy = {cells.finest, *(m for m in every if m not in invariants and rng.random() < 0.4)}
    noisy -= set(invariants) - {cells.finest}
    measured = tuple(sorted(noisy, key=str))
    constraints = Constraints(cells, measured, invariants, zeros=zeros, bounds=bounds, linear=linear)
    width = float(10 ** rng.uniform(-1, np.log10(1 + counts.max(initial=0)) + 0.5))
    laws = [_law(width * 10 ** rng.uniform(-1, 1), rng) for _ in measured]
    headers = (
        *(Measured("noisy", m, law) for m, law in zip(measured, laws, strict=True)),
        *(Measured("invariant", m, Exact()) for m in invariants),
    )
    parts = [cells.sum(counts, h.margin) + h.law.sample(cells.size(h.margin), rng.bytes) for h in headers]
    problem = Problem(kind, constraints, headers, np.concatenate(parts).astype(np.int64), counts)
    return _spoilt(problem, rng) if rng.random() < 0.1 else problem


def _cells(kind: str, n: int, rng: np.random.Generator) -> Cells:
    attributes = _attributes(kind, n, rng)
    places = max(1, n // int(np.prod([a.size for a in attributes], dtype=int)))
    depth = 1 if kind == "margins" else int(rng.integers(1 if attributes else 2, 5))
    sizes = np.unique(np.round(places ** (np.arange(1, depth) / max(depth - 1, 1))).astype(int))
    columns: list[dict] = [{}]
    below = np.arange(places)
    levels = [below]
    for size in sizes[:-1][::-1]:
        cuts = np.sort(rng.choice(np.arange(1, places), size - 1, replace=False)) if size > 1 else np.zeros(0)
        levels.insert(0, np.searchsorted(cuts, below, "right"))
    names = ["top", *(f"level{i}" for i in range(len(levels)))]
    if depth == 1 or places == 1:
        return Cells(Tree.from_columns(["top"], [{}]), attributes)
    columns += [{f"level{i}": place.astype(str)} for i, place in enumerate(levels)]
    return Cells(Tree.from_columns(names, columns), attributes)


def _attributes(kind: str, n: int, rng: np.random.Generator) -> tuple[Attribute, ...]:
    few = {"tree": (0, 1), "margins": (2, 3), "histogram": (1, 3), "general": (1, 2)}[kind]
    number, left, found = (
        int(rng.integers(few[0], few[1] + 1)),
        n if kind == "margins" else max(n // 2, 4),
        [],
    )
    for i in range(number):
        most = max(2, int(left ** (1 / (number - i))))
        size = most if kind == "margins" else int(rng.integers(2, min(most, 8) + 1))
        left = max(left // size, 1)
        values = tuple(f"{'abc'[i]}{v}" for v in range(size))
        groups = np.sort(rng.integers(0, 2, size))
        recodes = ()
        if kind == "histogram" and 0 < groups.sum() < size and size > 2:
            recodes = (Recode(f"half{i}", (f"low{i}", f"high{i}"), tuple(groups.tolist())),)
        found.append(Attribute(f"attribute{i}", values, recodes=recodes))
    return tuple(found)


def _counts(cells: Cells, rng: np.random.Generator) -> NDArray[np.int64]:
    top = float(rng.choice(SCALES))
    counts = np.floor(top ** rng.uniform(0, 1, cells.n)).astype(np.int64)
    return np.where(rng.random(cells.n) < rng.uniform(0, 0.8), 0, counts)


def _margins(cells: Cells) -> list[Margin]:
    views = [[v.name for v in a.views] for a in cells.attributes]
    found = [()]
    for names in views:
        found = [(*kept, *more) for kept in found for more in [(), *((name,) for name in names)]]
    return [Margin(level, kept) for level in cells.tree.levels for kept in found]


def _zeros(cells: Cells, rng: np.random.Generator) -> tuple[dict[str, str], ...]:
    if not cells.attributes or rng.random() < 0.6:
        return ()
    chosen = rng.permutation(len(cells.attributes))[: int(rng.integers(1, 3))]
    parts = [cells.attributes[i] for i in chosen]
    if len(parts) == 1 and len(cells.attributes) == 1:
        parts = parts[:1]
    return ({a.name: str(rng.choice(a.values)) for a in parts},)


def _nested(one: Margin, other: Margin, order: list[Margin]) -> bool:
    finer, coarser = (one, other) if order.index(one) > order.index(other) else (other, one)
    return set(coarser.attributes) <= set(finer.attributes)


def _invariants(every: list[Margin], rng: np.random.Generator) -> tuple[Margin, ...]:
    if rng.random() < 0.35:
        return ()
    found: list[Margin] = []
    crossing = rng.random() < 0.3
    for margin in (every[i] for i in rng.permutation(len(every) - 1)[: int(rng.integers(1, 4))]):
        if crossing or all(_nested(margin, other, every) for other in found):
            found.append(margin)
    return tuple(found)


def _bounds(
    cells: Cells, counts: NDArray, every: list[Margin], rng: np.random.Generator
) -> tuple[Bound, ...]:
    found = []
    for margin in (every[i] for i in rng.permutation(len(every))[: int(rng.choice([0, 0, 1, 2]))]):
        table = cells.sum(counts, margin)
        share = 1.0 if rng.random() < 0.3 else rng.uniform(0, 1, table.size)
        lower = np.floor(table * share * (rng.random(table.size) < 0.7))
        upper = np.ceil(table * rng.uniform(1, 2, table.size)) if rng.random() < 0.15 else None
        found.append(Bound(margin, lower=lower, upper=upper))
    return tuple(found)


def _rules(cells: Cells, counts: NDArray, rng: np.random.Generator) -> tuple[LinearRule, ...]:
    level = str(rng.choice(cells.tree.levels))
    attribute = cells.attributes[int(rng.integers(len(cells.attributes)))]
    one, two = rng.choice(attribute.values, 2, replace=False)
    table = {
        v: cells.sum((cells.where({attribute.name: v}) * counts.reshape(cells.shape)).ravel(), Margin(level))
        for v in (one, two)
    }
    factor = int(rng.integers(1, 4))
    slack = int(max(0, (table[one] - factor * table[two]).max()))
    return (LinearRule(parse_linear(f"{one} <= {slack} + {factor} * {two}"), level),)


def _law(width: float, rng: np.random.Generator):
    width = min(max(width, 0.3), 1e8)
    if rng.random() < 0.5:
        return DiscreteLaplace(Fraction(1 / width).limit_denominator(10**7) or Fraction(1, 10**7))
    return DiscreteGaussian(Fraction(width**2).limit_denominator(100))


def _spoilt(problem: Problem, rng: np.random.Generator) -> Problem:
    exact = [i for i, h in enumerate(problem.headers) if h.exact]
    if not exact:
        return problem
    sizes = [problem.constraints.cells.size(h.margin) for h in problem.headers]
    at = int(rng.choice(exact))
    values = problem.values.copy()
    values[sum(sizes[:at]) + int(rng.integers(sizes[at]))] += int(rng.choice([-1, 1, 1000]))
    return replace(problem, values=values, truth=None)


@dataclass(frozen=True)
class Rows:
    """`equal x = sums`, `lower <= ranged x <= upper`, `x >= least`, and the measured sums with their variances."""

    equal: scipy.sparse.csr_array
    sums: NDArray
    ranged: scipy.sparse.csr_array
    lower: NDArray
    upper: NDArray
    fit: scipy.sparse.csr_array
    measured: NDArray
    variances: NDArray
    least: NDArray

    @classmethod
    def of(cls, problem: Problem) -> Rows:
        c, cells = problem.constraints, problem.constraints.cells
        sizes = [cells.size(h.margin) for h in problem.headers]
        parts = np.split(problem.values, np.cumsum(sizes)[:-1])
        none = scipy.sparse.csr_array((0, cells.n))
        held = _zero_rows(c)
        exact = [
            (sums_of(cells, h.margin), p) for h, p in zip(problem.headers, parts, strict=True) if h.exact
        ]
        noisy = [(h, p) for h, p in zip(problem.headers, parts, strict=True) if not h.exact]
        limits = [_limits(cells, b) for b in c.bounds] + [_rule(cells, r) for r in c.linear]
        return cls(
            scipy.sparse.csr_array(scipy.sparse.vstack([none, held, *(m for m, _ in exact)])),
            np.concatenate([np.zeros(held.shape[0]), *(p for _, p in exact)]),
            scipy.sparse.csr_array(scipy.sparse.vstack([none, *(m for m, _, _ in limits)])),
            np.concatenate([np.zeros(0), *(low for _, low, _ in limits)]),
            np.concatenate([np.zeros(0), *(high for _, _, high in limits)]),
            scipy.sparse.csr_array(scipy.sparse.vstack([sums_of(cells, h.margin) for h, _ in noisy])),
            np.concatenate([p for _, p in noisy]).astype(float),
            np.concatenate([np.full(p.size, float(h.law.variance)) for h, p in noisy]),
            np.full(cells.n, 0.0 if c.nonnegative else -np.inf),
        )

    def around(self, origin: NDArray) -> Rows:
        """The same of the change of whole counts (n,): solvers have few digits left for noise beside billions."""
        held = self.ranged @ origin
        return replace(
            self,
            sums=self.sums - self.equal @ origin,
            lower=self.lower - held,
            upper=self.upper - held,
            measured=self.measured - self.fit @ origin,
            least=self.least - origin,
        )

    def broken(self, x: NDArray, *, signed: bool = True) -> float:
        """Largest violation (counts) of a point; infinite if it is not finite. Unsigned, of a method that may go below 0."""
        if not np.isfinite(x).all():
            return np.inf
        gaps = [
            np.abs(self.equal @ x - self.sums),
            self.lower - self.ranged @ x,
            self.ranged @ x - self.upper,
        ]
        return max(
            0.0,
            *(float(g.max(initial=0.0)) for g in gaps),
            float((self.least - x).max()) if signed else 0.0,
        )

    def exist(self, seconds: float = 20.0) -> bool | None:
        """Whether HiGHS finds whole counts that obey all rows; None if it cannot tell."""
        answer = self._milp(np.zeros(self.equal.shape[1]), self._constraints(0), seconds, self.equal.shape[1])
        return {0: True, 2: False}.get(answer.status)

    def least_absolute(self, weights: NDArray, origin: NDArray, seconds: float) -> float | None:
        """The least weighted absolute deviations of whole counts that HiGHS finds in time; None if it finds none."""
        here = self.around(origin)
        n, q = self.equal.shape[1], self.measured.size
        one = scipy.sparse.eye_array(q)
        split = scipy.sparse.hstack([self.fit, -one, one])
        rows = [
            *here._constraints(2 * q),
            scipy.optimize.LinearConstraint(split, here.measured, here.measured),
        ]
        change = here._whole(np.concatenate([np.zeros(n), weights, weights]), rows, seconds)
        return None if change is None else float(weights @ abs(self.fit @ change - here.measured))

    def least_whole(self, centre: NDArray, weights: NDArray, seconds: float, reach: int = 6) -> float | None:
        """The least weighted squares around a centre's sums of the whole counts that HiGHS finds in time, by unit
        columns `reach` to either side; None if it finds none."""
        origin = np.floor(centre)
        here, wanted = self.around(origin), self.fit @ (centre - origin)
        n, q = self.equal.shape[1], wanted.size
        base = np.floor(wanted) - reach
        steps = base[:, None] + np.arange(2 * reach + 2)
        costs = np.diff(weights[:, None] * (steps - wanted[:, None]) ** 2, axis=1)
        units = scipy.sparse.kron(scipy.sparse.eye_array(q), np.ones((1, costs.shape[1])))
        rows = [
            *here._constraints(costs.size),
            scipy.optimize.LinearConstraint(scipy.sparse.hstack([self.fit, -units]), base, base),
        ]
        cost = np.concatenate([np.zeros(n), costs.ravel()])
        high = np.concatenate([np.full(n, np.inf), np.ones(costs.size)])
        change = here._whole(cost, rows, seconds, high)
        return None if change is None else float(weights @ (self.fit @ change - wanted) ** 2)

    def least_squares(self, origin: NDArray | None = None) -> NDArray | None:
        """The continuous least-squares point, by Clarabel, each time around the whole counts nearest to the last, at first
        around `origin`; None if it never says that it solved. Of those that break no rule the nearest counts."""
        found, origin = [], np.zeros(self.equal.shape[1]) if origin is None else origin
        for _ in range(4):
            change = self.around(origin)._least_change()
            if change is None or not np.isfinite(change).all():
                break
            x = np.maximum(origin + change, self.least)
            found.append((self.broken(x) > 1e-6 + 1e-9 * np.abs(x).sum(), self.squares(x), x))
            origin = np.rint(x)
        return min(found, key=lambda f: f[:2])[2] if found else None

    def _least_change(self) -> NDArray | None:
        n, q = self.equal.shape[1], self.measured.size
        unit = max(1.0, float(np.abs(self.measured).max(initial=0)), float(np.abs(self.sums).max(initial=0)))
        weight = self.variances.min(initial=np.inf) / self.variances
        upper, lower, least = np.isfinite(self.upper), np.isfinite(self.lower), np.isfinite(self.least)
        rows = scipy.sparse.block_array(
            [
                [self.equal, None],
                [self.fit, -scipy.sparse.eye_array(q)],
                [self.ranged[upper], scipy.sparse.csr_array((upper.sum(), q))],
                [-self.ranged[lower], scipy.sparse.csr_array((lower.sum(), q))],
                [
                    -scipy.sparse.csr_array(scipy.sparse.eye_array(n))[least],
                    scipy.sparse.csr_array((least.sum(), q)),
                ],
            ],
            format="csc",
        )
        sides = [self.sums, self.measured, self.upper[upper], -self.lower[lower], -self.least[least]]
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_threads = False, 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
        cost = scipy.sparse.csc_matrix(scipy.sparse.diags_array(np.concatenate([np.zeros(n), weight])))
        equalities = self.sums.size + q
        cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(rows.shape[0] - equalities)]
        answer = clarabel.DefaultSolver(
            cost,
            np.zeros(n + q),
            scipy.sparse.csc_matrix(rows),
            np.concatenate(sides) / unit,
            cones,
            settings,
        ).solve()
        return np.asarray(answer.x)[:n] * unit if answer.status == clarabel.SolverStatus.Solved else None

    def squares(self, x: NDArray) -> float:
        """Sum of squared deviations over their variances."""
        return float((((self.fit @ x - self.measured) ** 2) / self.variances).sum())

    def _constraints(self, more: int) -> list:
        def padded(matrix):
            return scipy.sparse.hstack([matrix, scipy.sparse.csr_array((matrix.shape[0], more))])

        pairs = [(self.equal, self.sums, self.sums), (self.ranged, self.lower, self.upper)]
        return [scipy.optimize.LinearConstraint(padded(m), a, b) for m, a, b in pairs if m.shape[0]]

    def _whole(self, cost, rows, seconds: float, high=np.inf) -> NDArray | None:
        """The whole counts (n,) that HiGHS finds in time, if they obey all rows."""
        n = self.equal.shape[1]
        found = self._milp(cost, rows, seconds, n, high).x
        change = None if found is None else np.rint(found[:n])
        return change if change is not None and self.broken(change) == 0 else None

    def _milp(self, cost, rows, seconds, whole, high=np.inf):
        low = np.concatenate([self.least, np.zeros(cost.size - whole)])
        integrality = np.concatenate([np.ones(whole), np.zeros(cost.size - whole)])
        return scipy.optimize.milp(
            cost,
            constraints=rows,
            bounds=scipy.optimize.Bounds(low, high),
            integrality=integrality,
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )


def sums_of(cells: Cells, margin: Margin) -> scipy.sparse.csr_array:
    """The 0/1 matrix of a margin, from the place and the codes of every cell."""
    place, *codes = np.unravel_index(np.arange(cells.n), cells.shape)
    level = cells.tree.level(margin.level)
    group = cells.tree.ancestors(len(cells.tree.levels) - 1, level)[place]
    for code, attribute in zip(codes, cells.attributes, strict=True):
        view = next((v for v in attribute.views if v.name in margin.attributes), attribute.summed)
        group = group * view.size + np.array(view.groups)[code]
    shape = (cells.size(margin), cells.n)
    return scipy.sparse.csr_array((np.ones(cells.n), (group, np.arange(cells.n))), shape=shape)


def _zero_rows(constraints: Constraints) -> scipy.sparse.csr_array:
    cells = constraints.cells
    _, *codes = np.unravel_index(np.arange(cells.n), cells.shape)
    held = np.zeros(cells.n, bool)
    for zero in constraints.zeros:
        mine = np.ones(cells.n, bool)
        for code, attribute in zip(codes, cells.attributes, strict=True):
            for view in attribute.views:
                if view.name in zero:
                    mine &= np.array(view.groups)[code] == view.values.index(zero[view.name])
        held |= mine
    return scipy.sparse.csr_array(scipy.sparse.csr_array(scipy.sparse.eye_array(cells.n))[held])


def _limits(cells: Cells, bound: Bound):
    size = cells.size(bound.margin)
    low = np.full(size, -np.inf) if bound.lower is None else np.broadcast_to(bound.lower, size)
    high = np.full(size, np.inf) if bound.upper is None else np.broadcast_to(bound.upper, size)
    return sums_of(cells, bound.margin), low, high


def _rule(cells: Cells, rule: LinearRule):
    """Rules name single values of one attribute here."""
    _, *codes = np.unravel_index(np.arange(cells.n), cells.shape)
    weight = np.zeros(cells.n)
    for name, coefficient in rule.linear.coefficients.items():
        for code, attribute in zip(codes, cells.attributes, strict=True):
            if name in attribute.values:
                weight += float(coefficient) * (code == attribute.values.index(name))
    matrix = scipy.sparse.csr_array(sums_of(cells, Margin(rule.level)).multiply(weight[None]))
    return matrix, np.full(matrix.shape[0], -np.inf), np.full(matrix.shape[0], float(rule.linear.bound))
