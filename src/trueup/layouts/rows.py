"""The posterior density of tables of whole counts, as factors on linear combinations of cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.table_walks.moves import HIGH, LOW, Rows
from trueup.layouts import improper
from trueup.layouts.factors import FittedMasses
from trueup.layouts.linear import LinearProblem
from trueup.model.header import split
from trueup.model.prior import Bounded, Flat, FlatTotal, Masses, NegativeBinomial, Poisson, Prior
from trueup.noise.law import NO_LIMIT

FIRST_TABLE = 0.5
"""Value of `TABLED` for the first table, if its first entry is of the count 0."""


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Factors of one kind, each a function of a linear combination of cells given by a row."""

    matrix: Any
    centre: Any = 0.0
    slope: Any = 0.0
    curve: Any = 0.0
    reach: Any = np.inf
    low: Any = -np.inf
    high: Any = np.inf
    gamma: tuple[Any, Any, Any, Any] = (0.0, 0.0, 0.0, 0.0)
    tabled: Any = 0.0

    def column(self, name: str) -> NDArray:
        """Return one parameter of the factors in full, with a value `(r,)` for each row."""
        return np.broadcast_to(np.asarray(getattr(self, name), float), self.matrix.shape[:1])

    @property
    def factors(self) -> Reals:
        """Return all parameters `(r, 11)` of the factors in the order of `Rows.factors`."""
        first = (self.column(name) for name in ("centre", "slope", "curve", "reach", "low", "high"))
        gamma = (np.broadcast_to(part, self.matrix.shape[:1]) for part in self.gamma)
        return np.column_stack([*first, *gamma, self.column("tabled")]).astype(float)


def prior_blocks(prior: Prior | FittedMasses, box: Reals) -> tuple[tuple[FactorBlock, ...], Reals, Reals]:
    """Return a prior on cells `(n,)` as factor blocks, log masses for its tables, and bounds `(2, n)`."""
    n, none, box = box.shape[1], np.zeros(0), box.copy()
    each, whole = scipy.sparse.eye_array(n, format="csr"), scipy.sparse.csr_array(np.ones((1, n)))
    if not isinstance(prior, Flat):
        box[0] = np.maximum(box[0], 0)
    match prior:
        case Bounded():
            box[1] = np.minimum(box[1], prior.upper)
        case Flat():
            pass
        case Masses():
            possible = np.flatnonzero(prior.masses)
            box = np.stack([np.maximum(box[0], possible[0]), np.minimum(box[1], possible[-1])])
            return (FactorBlock(each, tabled=FIRST_TABLE),), prior.logpmf(np.arange(len(prior.masses))), box
        case FittedMasses():
            counts = prior.log.shape[1]
            box[1] = np.minimum(box[1], counts - 1)
            return (FactorBlock(each, tabled=FIRST_TABLE + counts * prior.kind),), prior.log.ravel(), box
        case Poisson():
            prior.refuse_other_than(n)
            return (FactorBlock(each, gamma=(-1, 0, 0, np.log(prior.mean))),), none, box
        case NegativeBinomial():
            prior.refuse_other_than(n)
            mean, size = np.asarray(prior.mean, float), np.asarray(prior.size, float)
            return (FactorBlock(each, gamma=(-1, 1, size, np.log(mean / (mean + size)))),), none, box
        case FlatTotal():
            return (*_flat_total(prior, each, whole, box),), none, box
        case _:
            table = prior.tabled()
            box[1] = np.minimum(box[1], len(table) - 1)
            return (FactorBlock(each, tabled=FIRST_TABLE),), table, box
    return (), none, box


def _flat_total(prior: FlatTotal, each: Any, whole: Any, box: Reals):
    """Yield the factor blocks of a prior under which the total is flat."""
    cells = max(int((box[1] > 0).sum()), 1)
    if prior.split == "uniform":
        yield FactorBlock(whole, high=prior.upper, gamma=(1, -1, cells, 0))
        return
    with np.errstate(divide="ignore"):
        shares = np.log(prior.shares(len(box[1])))
    box[1, np.isinf(shares)] = np.minimum(box[1, np.isinf(shares)], 0)
    yield FactorBlock(whole, high=prior.upper, gamma=(1, 0, 0, 0))
    yield FactorBlock(each, gamma=(-1, 0, 0, np.where(np.isinf(shares), 0, shares)))


Reals = NDArray[np.float64]
ROW_TOLERANCE_COUNTS = 1e-6
"""Counts by which a row may miss its bound: rules with fractions are sums of rounded terms."""


@dataclass(frozen=True, eq=False)
class RowProblem:
    """The posterior given one replicate of measured values, as factors on linear combinations of cells.

    Attributes
    ----------
    noisy
        One block for each noisy measurement.
    perturbed
        One block for each table of perturbed values.
    held
        Rows of two or more cells that must lie between bounds.
    prior
        Blocks of the prior.
    box
        Bounds `(2, n)` of the cells, minus and plus infinity where open.
    table
        Log masses of a prior given by its masses, then of what published values leave of true counts.
    rough
        Rows, numbers and variances of least squares for the perturbed values.
    """

    noisy: tuple[FactorBlock, ...]
    held: FactorBlock
    prior: tuple[FactorBlock, ...]
    box: Reals
    table: Reals
    perturbed: tuple[FactorBlock, ...] = ()
    rough: tuple[tuple[Any, Reals, float], ...] = ()

    @classmethod
    def of(cls, problem: LinearProblem, values: NDArray, prior: Prior | FittedMasses) -> RowProblem:
        """Return the posterior with all measurements, rules and the prior as factors.

        Raises
        ------
        SpecError
            If the prior is for another number of cells.
        """
        held, box = _hard_rows(problem, values)
        blocks, table, box = prior_blocks(prior, box)
        perturbed, table, rough = _perturbed(problem, values, table)
        box = _closed(perturbed, box)
        return cls(_noisy(problem, values), held, blocks, box, table, perturbed, rough)

    @property
    def n(self) -> int:
        """Return the number of cells."""
        return self.box.shape[1]

    @cached_property
    def rows(self) -> Rows:
        """Return all factors in the layout that the compiled kernels read."""
        blocks = (*self.noisy, *self.perturbed, self.held, *self.prior)
        matrix = scipy.sparse.vstack([b.matrix for b in blocks], format="csc")
        factors = np.vstack([b.factors for b in blocks])
        factors[:, LOW] -= ROW_TOLERANCE_COUNTS
        factors[:, HIGH] += ROW_TOLERANCE_COUNTS
        index = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(float))
        return Rows(*index, factors, self.table)

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Return a mask `(rows,)` of the linear combinations that are known exactly."""
        return self.rows.factors[:, HIGH] - self.rows.factors[:, LOW] <= 2 * ROW_TOLERANCE_COUNTS

    @cached_property
    def limits(self) -> tuple[Any, Reals, Reals]:
        """Return the matrix, lower limits and upper limits of all linear combinations with hard bounds."""
        walls = [
            _walls(block)
            for block in self.noisy
            if np.isfinite(np.min(block.column("reach"), initial=np.inf))
        ]
        blocks = (
            self.held,
            *walls,
            *self.perturbed,
            *(b for b in self.prior if np.isfinite(np.min(b.column("high"), initial=np.inf))),
        )
        matrix = scipy.sparse.csr_array(scipy.sparse.vstack([b.matrix for b in blocks], format="csr"))
        low, high = (
            np.concatenate([b.column(name) for b in blocks]).astype(float) for name in ("low", "high")
        )
        return matrix, low, high

    @property
    def has_holes(self) -> bool:
        """Return True if the prior or a published value excludes a count between two possible counts."""
        if self.perturbed:  # tables end in possible counts
            return bool(not np.isfinite(self.table).all())
        possible = np.flatnonzero(np.isfinite(self.table))
        return bool(len(possible) and len(possible) <= possible[-1] - possible[0])

    def estimate(self) -> tuple[Reals, Reals]:
        """Return an approximate centre `(n,)` of the posterior, and standard deviations `(n,)`."""
        spreads = [np.sqrt(1 / (0.5 * b.column("slope") ** 2 + 2 * b.column("curve"))) for b in self.noisy]
        exact = self.held.column("low") == self.held.column("high")
        rough = self.rough
        parts = (*(b.matrix for b in self.noisy), *(rows for rows, _, _ in rough), self.held.matrix[exact])
        matrix = scipy.sparse.vstack(parts, format="csr")
        spreads += [np.full(len(numbers), np.sqrt(variance)) for _, numbers, variance in rough]
        spread = np.concatenate([*spreads, np.full(exact.sum(), 0.1)])
        numbers = (*(b.column("centre") for b in self.noisy), *(numbers for _, numbers, _ in rough))
        target = np.concatenate([*numbers, self.held.column("low")[exact]])
        scaled = scipy.sparse.csr_array(scipy.sparse.diags_array(1 / spread) @ matrix)
        found: Any = scipy.sparse.linalg.lsmr(scaled, target / spread, damp=1e-3, maxiter=300)
        precision = (scaled.power(2)).sum(axis=0) if scaled.shape[0] else np.zeros(self.n)
        wide = 1 / np.sqrt(np.maximum(np.asarray(precision).ravel(), 1e-6))
        return np.clip(found[0], *self.box), wide

    def refuse_improper(self, label: Any) -> None:
        """Refuse a problem in which nothing limits some cell, and name the cell."""
        proper = any(b.matrix.shape[0] == self.n for b in self.prior)
        known: Any = np.isfinite(self.box).all(axis=0) | proper
        matrix, _, high = self.limits
        for rows in (*(b.matrix for b in self.noisy), matrix[np.isfinite(high)]):
            coo, several = rows.tocoo(), np.diff(rows.tocsr().indptr) > 1
            # A sum bounds its cells if each of its terms is bounded below.
            open_ended = (coo.data < 0) | (~np.isfinite(self.box[0])[coo.col] & several[coo.row])
            known[coo.col[~np.isin(coo.row, coo.row[open_ended])]] = True
        if not known.all():
            numbers = np.concatenate(
                [self.held.column("low"), *(b.column("centre") for b in self.noisy), [0.0]]
            )
            most = float(numbers[np.isfinite(numbers)].max())
            raise improper(label(int(np.flatnonzero(~known)[0])), most)


def _walls(block: FactorBlock) -> FactorBlock:
    low, high = block.column("centre") - block.column("reach"), block.column("centre") + block.column("reach")
    return replace(block, low=low, high=high)


def _noisy(problem: LinearProblem, values: NDArray) -> tuple[FactorBlock, ...]:
    blocks = []
    for header, part in zip(problem.headers, split(values, problem.headers, problem.cells)):
        shape = header.law.form
        if not header.exact and shape is not None and header.law.additive:
            slope, curve, reach = shape
            blocks.append(
                FactorBlock(
                    problem.sums(header.margin, header.groups), part.astype(float), slope, curve, reach
                )
            )
    return tuple(blocks)


def _perturbed(
    problem: LinearProblem, values: NDArray, table: Reals
) -> tuple[tuple[FactorBlock, ...], Reals, tuple[tuple[Any, Reals, float], ...]]:
    """Return factor blocks for perturbed values, the extended `table`, and least-squares terms."""
    blocks, tables, rough, size = [], [table], [], len(table)
    for header, part in zip(problem.headers, split(values, problem.headers, problem.cells)):
        law: Any = header.law
        if law.additive:
            continue
        rows, starts = problem.sums(header.margin, header.groups), np.zeros(len(part))
        low, high = (end.astype(float) for end in law.bounds(part))
        for value in np.unique(part[high < NO_LIMIT]):
            first, log = law.table(value.item(), np.inf)
            starts[part == value] = size - first + FIRST_TABLE
            tables.append(log)
            size += len(log)
        blocks.append(FactorBlock(rows, low=low, high=np.where(high < NO_LIMIT, high, np.inf), tabled=starts))
        if np.isfinite(law.variance):
            rough.append((rows, part - law.shift, law.variance))
    return tuple(blocks), np.concatenate(tables), tuple(rough)


def _closed(blocks: tuple[FactorBlock, ...], box: Reals) -> Reals:
    """Return the bounds `(2, n)` on cells, tightened by the published values of single cells."""
    box = box.copy()
    for block in blocks:
        single = np.diff(block.matrix.indptr) == 1
        cell = block.matrix[single].indices
        np.maximum.at(box[0], cell, block.low[single])
        np.minimum.at(box[1], cell, block.high[single])
    return box


def _hard_rows(problem: LinearProblem, values: NDArray) -> tuple[FactorBlock, Reals]:
    """Return the constraints on several cells as a factor block, and the bounds `(2, n)` on single cells."""
    polyhedron = problem.polyhedron(values)
    matrix, (low, high) = polyhedron.matrix, polyhedron.bounds
    box = np.stack(
        [
            np.full(polyhedron.cells, 0.0 if polyhedron.nonnegative else -np.inf),
            np.full(polyhedron.cells, np.inf),
        ]
    )
    single = np.diff(matrix.indptr) == 1
    cell, weight = matrix[single].indices, matrix[single].data
    ends = np.sort(np.stack([low[single], high[single]]) / weight, axis=0)
    np.maximum.at(box[0], cell, np.ceil(ends[0] - ROW_TOLERANCE_COUNTS))
    np.minimum.at(box[1], cell, np.floor(ends[1] + ROW_TOLERANCE_COUNTS))
    return FactorBlock(matrix[~single], low=low[~single], high=high[~single]), box
