"""Priors on the finest counts, estimated from published values as a smooth mixture for each class of cells.

The counts of a class (one combination of attribute values) are taken as independent draws of one law, a mixture of a
mass at zero and of negative binomials of one shape with means on a geometric grid. A negative binomial of size 2 has a
standard deviation of .7 of its mean or more, so the law is smooth, as a law of many places is: no spikes where a rounding
leaves counts undetermined.

The weights first maximise the likelihood of the published finest values alone, `sum_v log sum_x p(v | x) p(x)`, which is
concave in them (the expectation-maximisation steps converge to the maximum). Where rounding makes many counts look alike,
those values do not tell how many of them are zero; the published sums do. So, where values close every window,
expectation-maximisation goes on with the posterior of the finest counts given all values of the tree, which raises the
likelihood of all of them with every step. Where tables cross, that is done with those of them that nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import SpecError
from trueup.inferring.closed_tree import ClosedTree
from trueup.layouts.factors import FittedMasses
from trueup.layouts.tree import TreeProblem, tree_problem
from trueup.model.cells import Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured, split
from trueup.model.nested import canonical, nesting
from trueup.noise.law import NO_LIMIT, Law

Reals = NDArray[np.float64]
GAMMA_SHAPE = 2.0
SMALLEST_MEAN, RATIO = 0.02, 1.4
MAX_EM_STEPS, EM_TOLERANCE = 400, 1e-7
LARGEST_COUNT = 1 << 20
"""Largest count of a table of masses."""
COUNT_FACTOR = 10
"""Largest hidden count, as a multiple of the largest count that values allow or of the average that sums ask for."""
MAX_REFITS = 5
"""Most refits of the prior to the posterior under the last fit."""


class FittedMixture(NamedTuple):
    """A mixture prior for each class of finest cells: weights `(classes, k)` of components `(k, x)`."""

    weights: Reals
    components: Reals
    kind: NDArray[np.int64]

    @property
    def masses(self) -> FittedMasses:
        """Return the fitted prior as log masses `(classes, x)`, with the class of each finest cell."""
        with np.errstate(divide="ignore"):
            return FittedMasses(np.log(self.weights @ self.components), self.kind)

    def refitted(self, expected: Reals) -> FittedMixture:
        """Fit the mixture again, to expected numbers `(classes, x)` of finest cells with each count."""
        weights = [
            _maximised(weights, self.components.T[some], number[some])
            for weights, number in zip(self.weights, expected)
            for some in [np.flatnonzero(number)]
        ]
        return self._replace(weights=np.stack(weights))


def estimated_prior(problem: TreeProblem, values: NDArray) -> FittedMasses:
    """Return the prior estimated from all values `(q,)` of a tree."""
    mixture = fitted_mixture(problem.nested.cells, problem.headers, problem.parts(values))
    closed = ClosedTree.of(problem, values, mixture.masses)
    for _ in range(MAX_REFITS):
        if closed is None or (expected := closed.histogram(*mixture.masses.log.shape)) is None:
            break
        mixture = mixture.refitted(expected)
        closed.prior = mixture.masses
    return mixture.masses


def estimated_where_tables_cross(
    constraints: Constraints, headers: Sequence[Measured], values: NDArray
) -> FittedMasses:
    """Return the prior estimated from the finest published values and the sums nested with them.

    Their likelihood is that of a part of what is published, and all of it is in the posterior.
    """
    cells = constraints.cells
    margins = nesting(cells, (header.margin for header in headers))
    used = [canonical(cells, header.margin) in margins for header in headers]
    parts = [part for part, use in zip(split(values, headers, cells), used) if use]
    nested = Constraints(cells, margins, zeros=constraints.zeros)
    problem = tree_problem(nested, [header for header, use in zip(headers, used) if use])
    return estimated_prior(problem, np.concatenate(parts))


def fitted_mixture(cells: Cells, headers: Sequence[Measured], parts: Sequence[NDArray]) -> FittedMixture:
    """Return a mixture fitted to each class of finest cells, from the published values of these cells alone.

    Parameters
    ----------
    cells, headers, parts
        The finest cells, and the measured values of each header.
    """
    each = cells.n // cells.shape[0]
    seen = _finest_measurements(cells, headers, parts)
    if not seen:
        raise SpecError(
            "prior 'estimated' cannot be estimated: no count of a finest cell is published",
            needed="published counts of the finest cells",
            remedy='use another prior, such as "flat"',
        )
    top = _largest(cells, headers, parts, seen)
    if top > LARGEST_COUNT:
        raise SpecError(
            f"prior 'estimated' is requested for counts up to {top:,}",
            needed=f"counts of at most {LARGEST_COUNT:,}",
            remedy='use another prior, such as "flat"',
        )
    components = _components(np.arange(top + 1))
    weights = np.stack([_fit(kind, each, seen, components) for kind in range(each)])
    return FittedMixture(weights, components, np.arange(cells.n) % each)


def _finest_measurements(
    cells: Cells, headers: Sequence[Measured], parts: Sequence[NDArray]
) -> list[tuple[Any, NDArray, NDArray]]:
    """Return law, cells and values of each query that measures the finest cells."""
    found = []
    for header, part in zip(headers, parts):
        if canonical(cells, header.margin) != cells.finest:
            continue
        if not np.isfinite(header.law.variance):  # of an open interval nothing is known above
            continue
        at = np.arange(cells.n) if header.groups is None else header.groups
        found.append((header.law, at, part))
    return found


def _largest(
    cells: Cells, headers: Sequence[Measured], parts: Sequence[NDArray], seen: Sequence[tuple]
) -> int:
    """Return the largest count for which the prior needs a mass.

    A cell whose own value does not bound it may be `COUNT_FACTOR` times as large as any that is bounded, or as what a sum leaves
    for each such cell in it, as far as the sum allows.
    """
    least, most = np.zeros(cells.n, np.int64), np.full(cells.n, -1)
    for law, at, part in seen:
        least[at], most[at] = _window(law, part)
    hidden, top = most < 0, int(most.max())
    if not hidden.any():
        return top
    most[hidden], found, bounded = 0, top, ~hidden
    for header, part in zip(headers, parts):
        if header.margin.where:
            continue
        group, size = cells.groups(cells.finest, canonical(cells, header.margin)), cells.size(header.margin)
        low, high = np.zeros(size, np.int64), np.full(size, NO_LIMIT)
        at = slice(None) if header.groups is None else header.groups
        low[at], high[at] = _window(header.law, part)
        bounded |= (high < NO_LIMIT)[group]
        many = np.bincount(group, hidden, size)
        each = (low - np.bincount(group, most, size)) / np.maximum(many, 1)
        room = np.minimum(high - np.bincount(group, least, size), COUNT_FACTOR * np.maximum(each, top))
        asked = (many > 0) & ((high < NO_LIMIT) | (low > 0))
        found = max(found, int(room[asked].max(initial=0)))
    return max(top, min(found if bounded.all() else max(found, COUNT_FACTOR * top), LARGEST_COUNT))


def _components(counts: NDArray[np.int64]) -> Reals:
    """Return the masses `(k, x)` of the mixture's components, each normalised to sum to 1."""
    from scipy.special import gammaln

    top = max(float(counts[-1]), 1.0)
    means = SMALLEST_MEAN * RATIO ** np.arange(int(np.log(top / SMALLEST_MEAN) / np.log(RATIO)) + 2)
    p = means[:, None] / (means[:, None] + GAMMA_SHAPE)
    log = (
        gammaln(counts + GAMMA_SHAPE)
        - gammaln(counts + 1.0)
        + counts * np.log(p)
        + GAMMA_SHAPE * np.log1p(-p)
    )
    mass = np.vstack([counts == 0, np.exp(log)])
    return mass / mass.sum(axis=1, keepdims=True)


def _fit(kind: int, each: int, seen: list, components: Reals) -> Reals:
    """Return the fitted weights `(k,)` of one class of finest cells."""
    rows, times = [], []
    for law, at, part in seen:
        values, often = np.unique(part[at % each == kind], return_counts=True)
        rows += [_evidence(law, value, components) for value in values.tolist()]
        times += often.tolist()
    even = np.full(len(components), 1 / len(components))
    return _maximised(even, np.array(rows), np.array(times, float)) if rows else even


def _maximised(weights: Reals, likelihood: Reals, times: Reals) -> Reals:
    """Return the mixture weights `(k,)` of largest likelihood, from each component's likelihoods `(r, k)`."""
    if not len(times):
        return weights
    likelihood = likelihood / likelihood.max(axis=1, keepdims=True)
    for _ in range(MAX_EM_STEPS):
        new = weights * ((times / (likelihood @ weights)) @ likelihood) / times.sum()
        moved, weights = np.abs(new - weights).max(), new
        if moved < EM_TOLERANCE:
            break
    return (weights + 1e-9) / (weights + 1e-9).sum()  # nothing that a sum could need is excluded


def _evidence(law: Any, value: float, components: Reals) -> Reals:
    """Return the probability `(k,)` of a published value under each mixture component."""
    low, high = (int(end) for end in _window(law, value))
    counts = np.arange(low, min(high, components.shape[1] - 1) + 1)
    return components[:, counts] @ np.exp(law.log_mass(value, counts)) + 1e-300


def _window(law: Law, values: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and largest true counts within eight standard deviations of the values."""
    low, high = law.bounds(values)
    reach = np.ceil(8 * law.variance**0.5) if law.additive else float(NO_LIMIT)
    near = np.floor(values) - reach, np.ceil(values) + reach
    return np.maximum(low, np.maximum(near[0], 0)).astype(np.int64), np.minimum(high, near[1]).astype(
        np.int64
    )
