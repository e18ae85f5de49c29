"""Sums, over replicates, of the errors of one method on one margin, in total and by classes of counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.kernel.statistics.streaming import Moments, Scatter, histogram, histogram_quantiles
from trueup.model.cells import Cells, Margin

SIBLINGS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Lower ends of the classes of the number of places under one parent."""
LEVEL, SIZE, SIBLING = "level", "size", "siblings"


@dataclass(frozen=True, eq=False)
class Classing:
    """A division of a margin's groups into classes, such as ranges of the true count.

    Attributes
    ----------
    by
        `level` (all together), `size`, `siblings` or the name of an attribute or recode.
    labels
        Names of the classes that hold anything.
    at
        `(groups,)` the class of every group.
    lowest
        Lower end of every class of counts; empty for classes of another kind.
    """

    by: str
    labels: tuple[str, ...]
    at: NDArray[np.int64]
    lowest: tuple[int, ...] = ()

    @property
    def units(self) -> NDArray[np.int64]:
        """Return the number of groups in each class."""
        return np.bincount(self.at, minlength=len(self.labels))


def by_range(by: str, numbers: NDArray, lower_ends: Sequence[int]) -> Classing:
    """Return the ranges into which whole numbers fall, without empty ranges.

    Examples
    --------
    >>> by_range("size", np.array([0, 3, 9, 1200]), (1, 10, 1000)).labels
    ('0', '1-9', '1,000 and more')
    """
    ends = [0, *lower_ends]
    found, at = np.unique(np.searchsorted(ends, numbers, side="right") - 1, return_inverse=True)
    labels = [_range_label(ends, int(k)) for k in found]
    return Classing(by, tuple(labels), at, tuple(ends[k] for k in found))


def _range_label(ends: Sequence[int], k: int) -> str:
    if k == len(ends) - 1:
        return f"{ends[k]:,} and more"
    low, high = ends[k], ends[k + 1] - 1
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


@dataclass(frozen=True, eq=False)
class Strata:
    """The divisions of a margin's groups into classes, by size and by other traits.

    Attributes
    ----------
    margin
        The margin.
    truth
        `(groups,)` true counts.
    classings
        All together first, then by size.
    """

    margin: Margin
    truth: NDArray[np.int64]
    classings: tuple[Classing, ...]

    @cached_property
    def means(self):
        """Return the sparse matrix `(classes, groups)` that averages values of groups within each class."""
        return scipy.sparse.vstack([_means(c) for c in self.classings], format="csr")

    def average(self, values: NDArray) -> NDArray:
        """Return averages `(b, classes)` of values `(b, groups)` over the groups of each class, ignoring NaN."""
        there = ~np.isnan(values[0])
        if there.all():
            return (self.means @ values.T.astype(np.float64)).T
        share = self.means @ there.astype(np.float64)
        found = (self.means @ np.where(there, values, 0.0).T).T
        return np.divide(found, share, out=np.full_like(found, np.nan), where=share > 0)

    @property
    def size(self) -> Classing:
        """Return the division of the groups into classes by the true count."""
        return self.classings[1]


def _means(classing: Classing):
    """Return the sparse `(classes, groups)` matrix that averages groups within each class."""
    groups = np.arange(len(classing.at))
    weights = 1 / classing.units[classing.at]
    return scipy.sparse.csr_array((weights, (classing.at, groups)), shape=(len(classing.labels), len(groups)))


def stratify(cells: Cells, counts: NDArray[np.int64], margin: Margin, sizes: Sequence[int]) -> Strata:
    """Return the divisions of a margin's groups into classes, given all true counts `(n,)`."""
    truth = cells.sum(counts, margin)
    every = Classing(LEVEL, ("all",), np.zeros(truth.size, np.int64))
    return Strata(margin, truth, (every, by_range(SIZE, truth, sizes), *_fairness_classings(cells, margin)))


def _fairness_classings(cells: Cells, margin: Margin) -> Iterator[Classing]:
    """Yield divisions into classes for judging fairness: by number of siblings, and by attribute."""
    places, *values = np.unravel_index(np.arange(cells.size(margin)), cells.margin_shape(margin))
    level = cells.tree.level(margin.level)
    if level:
        children = np.diff(cells.tree.child_ptr)
        nodes = cells.tree.level_ptr[level] + np.arange(cells.tree.sizes[level])
        yield by_range(SIBLING, children[cells.tree.parents[nodes]][places], SIBLINGS)
    for recode, value in zip(cells.kept(margin), values):
        yield Classing(recode.name, recode.values, value)


Key = tuple[str, str]
"""A statistic and what it is about: an interval rule, a threshold, the method it is compared with."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ERROR, SQUARE, ABSOLUTE = ("error", ""), ("square", ""), ("absolute", "")
COVERAGE, LENGTH, SIDE, RANK = "coverage", "length", "wrong side", "wrong rank"
MISSED = "missed by parts"
RATIO = " of the ratio"
"""Ends the names of statistics of the ratio of two linked tables."""
MAX_RANKED_COUNTS = 5000
"""Ranks are compared in tables of at most so many counts."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over replicates of one method's errors on one margin. Two tallies are added with `+`.

    Attributes
    ----------
    cells
        Moments of every statistic of every group; those of the error to the fourth order.
    classes
        Mean and covariance over replicates of every statistic's class means.
    blocks
        The same over blocks of replicates, for what one replicate cannot tell: variances and quantiles.
    counts
        `(size classes, bins)` histogram of errors.
    kept
        Errors `(b, groups)` of the first replicates, for quantiles of single groups.
    """

    cells: Mapping[Key, Moments]
    classes: Mapping[Key, Scatter]
    blocks: Mapping[Key, Scatter]
    counts: NDArray[np.int64]
    kept: tuple[NDArray, ...]

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            _sum_by_key(self.cells, other.cells),
            _sum_by_key(self.classes, other.classes),
            _sum_by_key(self.blocks, other.blocks),
            self.counts + other.counts,
            self.kept + other.kept,
        )

    @property
    def replicates(self) -> int:
        """Return the number of replicates in the sums."""
        return self.cells[ERROR].count


def _sum_by_key(one: Mapping, other: Mapping) -> dict:
    return {key: one[key] + other[key] for key in one}


def tally(
    strata: Strata,
    counts: NDArray,
    bounds: Mapping[str, tuple[NDArray, NDArray]],
    thresholds: Mapping[str, float],
    *,
    keep: bool,
    more: Mapping[Key, NDArray] = MappingProxyType({}),
) -> tuple[Tally, dict[Key, NDArray]]:
    """Return the sums of the errors of estimated counts `(b, groups)` of a margin over replicates.

    Returns
    -------
    tally, means
        The sums, and each statistic's class means `(b, classes)`, to be compared between methods.
    """
    errors = counts - strata.truth
    values = {ERROR: errors, SQUARE: np.square(errors, dtype=np.float64), ABSOLUTE: np.abs(errors)}
    values.update(_claims(strata.truth, counts, bounds, thresholds))
    values.update(more)
    cells = {ERROR: Moments.of(errors, 4)}
    cells |= {key: Moments.of(value) for key, value in values.items() if key[0] not in _OF_ERRORS}
    means = {key: strata.average(value) for key, value in values.items()}
    whole = histogram(errors, strata.size.at, len(strata.size.labels))
    blocks = {
        ("variance", ""): strata.average(cells[ERROR].variance[None]),
        ("quantiles", ""): _quantiles(whole).reshape(1, -1),
    }
    return Tally(
        cells,
        {key: Scatter.of(mean) for key, mean in means.items()},
        {key: Scatter.of(value) for key, value in blocks.items()},
        whole,
        (errors.astype(np.float32),) if keep else (),
    ), means


_OF_ERRORS = {"error", "square", "absolute"}


def _claims(
    truth: NDArray, counts: NDArray, bounds: Mapping, thresholds: Mapping[str, float]
) -> Iterator[tuple[Key, NDArray]]:
    """Yield statistics `(b, groups)` of claims: coverage, length, wrong side of a threshold, wrong rank."""
    for rule, (low, high) in bounds.items():
        yield (COVERAGE, rule), (low <= truth) & (truth <= high)
        yield (LENGTH, rule), np.subtract(high, low)
    for name, limit in thresholds.items():
        yield (SIDE, name), (counts >= limit) != (truth >= limit)
    if 1 < truth.size <= MAX_RANKED_COUNTS:
        yield (RANK, ""), _ranks(counts) != _ranks(truth[None])


def _ranks(counts: NDArray) -> NDArray[np.int64]:
    """Return the rank of every count within its row, as the number of larger counts."""
    smaller = [np.searchsorted(np.sort(row), row, side="right") for row in counts]
    return counts.shape[1] - np.array(smaller)


def _quantiles(counts: NDArray[np.int64]) -> NDArray:
    """Return quantiles `(1 + size classes, q)` of the errors of all groups, and of each size class."""
    every = np.concatenate([counts.sum(axis=0, keepdims=True), counts])
    return histogram_quantiles(every, np.array(QUANTILES))


def quantiles(whole: Tally) -> tuple[NDArray, NDArray]:
    """Return quantiles of the errors of all groups and of each size class, with Monte Carlo errors."""
    values = _quantiles(whole.counts)
    return values, whole.blocks["quantiles", ""].error.reshape(values.shape)
