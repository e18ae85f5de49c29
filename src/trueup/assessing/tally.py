"""Sums over the replicates of one method on one margin, never the replicates themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from trueup.assessing.strata import Strata
from trueup.kernel.statistics.streaming import Moments, Scatter, histogram, histogram_quantiles

Key = tuple[str, str]
"""A statistic and what it is about: an interval rule, a threshold, the method it is compared with."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ERROR, SQUARE, ABSOLUTE = ("error", ""), ("square", ""), ("absolute", "")
COVERAGE, LENGTH, SIDE, RANK = "coverage", "length", "wrong side", "wrong rank"
MISSED = "missed by parts"
RATIO = " of the ratio"
"""Ends the names of statistics of the ratio of two linked tables."""
RANKED = 5000
"""Ranks are compared in tables of at most so many counts."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums over replicates; two of them are added with `+`.

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
            _added(self.cells, other.cells),
            _added(self.classes, other.classes),
            _added(self.blocks, other.blocks),
            self.counts + other.counts,
            self.kept + other.kept,
        )

    @property
    def replicates(self) -> int:
        """Return how many replicates it sums up."""
        return self.cells[ERROR].count


def _added(one: Mapping, other: Mapping) -> dict:
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
    """Sum up a batch of estimated counts `(b, groups)` of one margin, and `more` statistics of them.

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
    """Yield if intervals hold each count's truth, and if its side of a threshold or its rank is wrong."""
    for rule, (low, high) in bounds.items():
        yield (COVERAGE, rule), (low <= truth) & (truth <= high)
        yield (LENGTH, rule), np.subtract(high, low)
    for name, limit in thresholds.items():
        yield (SIDE, name), (counts >= limit) != (truth >= limit)
    if 1 < truth.size <= RANKED:
        yield (RANK, ""), _ranks(counts) != _ranks(truth[None])


def _ranks(counts: NDArray) -> NDArray[np.int64]:
    """Return how many counts of each row are larger: 0 is the largest, and ties share the best rank."""
    smaller = [np.searchsorted(np.sort(row), row, side="right") for row in counts]
    return counts.shape[1] - np.array(smaller)


def _quantiles(counts: NDArray[np.int64]) -> NDArray:
    """Return quantiles `(1 + size classes, q)` of the errors of all groups, then of each size class."""
    every = np.concatenate([counts.sum(axis=0, keepdims=True), counts])
    return histogram_quantiles(every, np.array(QUANTILES))


def quantiles(whole: Tally) -> tuple[NDArray, NDArray]:
    """Return quantiles of errors of all groups and of each size class, and their Monte Carlo errors."""
    values = _quantiles(whole.counts)
    return values, whole.blocks["quantiles", ""].error.reshape(values.shape)
