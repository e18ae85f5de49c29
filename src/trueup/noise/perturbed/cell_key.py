"""Cell-key perturbation, in which the keys of a cell's records determine the change of its count.

**Rows of largest entropy**, on a few whole numbers, with mean zero and a given variance.
The distribution is p_j proportional to exp(a j + b j^2), where (a, b) minimises the convex function
log sum_j exp(a j + b j^2) - b V. Newton's method finds it; where V is the least or the largest variance that mean zero
allows on the support, it has two atoms (or one) and is written down.

One file: the rows of largest entropy are rows of this law.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.noise.law import Reals
from trueup.noise.perturbed import ByChange, whole_number

MAX_NEWTON_STEPS = 200
AT_THE_END = 1e-9
"""Relative distance from the least or largest variance within which the distribution is that of the end."""


def maximum_entropy(support: NDArray[np.int64], variance: float) -> tuple[Reals, bool]:
    """Return maximum-entropy probabilities on a support, and True if they have the required variance.

    Where mean zero does not allow it on the support, they have the nearest variance that it does; where it allows
    none (the support lies on one side of zero), all mass is at the number nearest to zero.

    Examples
    --------
    >>> p, met = maximum_entropy(np.array([-1, 2]), 1.0)
    >>> p.round(4).tolist(), met
    ([0.6667, 0.3333], False)
    >>> p, met = maximum_entropy(np.arange(-3, 4), 1.5)
    >>> bool(abs(p @ np.arange(-3, 4)) < 1e-14), bool(abs(p @ np.arange(-3, 4) ** 2 - 1.5) < 1e-14), met
    (True, True, True)
    """
    j = support.astype(np.float64)
    if 0 in support and (j.min() == 0 or j.max() == 0):
        return (j == 0).astype(np.float64), False
    if j.min() > 0 or j.max() < 0:
        return (np.abs(j) == np.abs(j).min()).astype(np.float64), False
    ends = (0.0, 0.0) if 0 in support else (j[j < 0].max(), j[j > 0].min())
    least, largest = -ends[0] * ends[1], -j.min() * j.max()
    if variance >= largest * (1 - AT_THE_END):
        return _two(j, j.min(), j.max()), bool(abs(variance - largest) <= 1e-12 * largest)
    if variance <= least * (1 + AT_THE_END):
        return _two(j, *ends), bool(abs(variance - least) <= 1e-12 * least)
    top = (j * j).max()
    return _newton(np.stack([j, j * j / top]), np.array([0.0, variance / top])), True


def rising_entropy(support: NDArray[np.int64], variance: float) -> tuple[Reals, bool]:
    """Return rising maximum-entropy probabilities up to zero change, and True if the variance is met.

    These are the conditions of the R package ptable unless told otherwise. The probabilities exp(a j + b j^2), b <= 0, rise
    and then fall; so the condition binds at the last ones up to zero alone, and those are equal.

    Examples
    --------
    >>> p, met = rising_entropy(np.array([-1, 0, 1, 2]), 1.0)
    >>> p.round(4).tolist(), met
    ([0.3665, 0.3665, 0.1676, 0.0995], False)
    """
    j = support.astype(np.float64)
    exact, met = maximum_entropy(support, variance)
    if (
        j.min() >= 0 or j.max() <= 0 or (exact @ j**2 > variance and not met)
    ):  # nothing has so small a variance
        return exact, met
    last = int(np.searchsorted(support, 0)) + 1 if 0 in support else 0
    p = _pooled(j, variance, slice(0, 0))
    for first in range(last - 2, -1, -1):  # of the last ones up to zero, so many are equal
        if (np.diff(p[:last]) >= -1e-12).all():
            break
        p = _pooled(j, variance, slice(first, last))
    return p, bool(abs(p @ j**2 - variance) <= 1e-12 * variance)


def _pooled(j: Reals, variance: float, pool: slice) -> Reals:
    """Return maximum-entropy probabilities with mean zero that are equal on a range of changes."""
    features = np.stack([j, j * j])
    if pool.stop > pool.start:
        features[:, pool] = features[:, pool].mean(axis=1, keepdims=True)
    p = _newton(features[:1], np.zeros(1))
    if p @ j**2 <= variance:
        return p
    return _newton(features / np.array([[1.0], [(j * j).max()]]), np.array([0.0, variance / (j * j).max()]))


def _two(j: Reals, low: float, high: float) -> Reals:
    """Return the probabilities of the changes `low` and `high` that have mean zero."""
    p = np.zeros(len(j))
    p[j == low] += high / (high - low)
    p[j == high] -= low / (high - low)
    return p


def _newton(features: Reals, target: Reals) -> Reals:
    """Return the exponentially tilted probabilities whose feature means equal the target, by Newton's method."""
    theta = np.zeros(len(target))
    value, p = _dual(theta, features, target)
    for _ in range(MAX_NEWTON_STEPS):
        mean = features @ p
        gap = features - mean[:, None]
        step = np.linalg.solve((gap * p) @ gap.T, target - mean)
        size = 1.0
        found = _dual(theta + step, features, target)
        while found[0] > value + 1e-14 * abs(value) and size > 1e-9:
            size /= 2
            found = _dual(theta + size * step, features, target)
        theta, (value, p) = theta + size * step, found
        if np.abs(size * step).max() < 1e-15 * max(1.0, np.abs(theta).max()):
            break
        if np.abs(features @ p - target).max() < 1e-16:
            break
    return p


def _dual(theta: Reals, features: Reals, target: Reals) -> tuple[float, Reals]:
    log = theta @ features
    top = log.max()
    weights = np.exp(log - top)
    total = weights.sum()
    return float(top + np.log(total) - theta @ target), weights / total


LARGEST_CHANGE = 100
WORDS = {"None": None, "True": True, "False": False}
"""Values of the words for parameters in manifests."""
SUM_SLACK = 1e-6
"""By how much the printed probabilities of a row may miss 1; they are then divided by their sum."""


@dataclass(frozen=True)
class CellKey(ByChange):
    """Cell-key law: a transition table gives the change of a count by the key of the cell.

    Cells with the same records have the same key and are published with the same value. The table is given, or it is
    the one of maximum entropy among those that are unbiased and have a declared variance at every count.

    Parameters
    ----------
    maximum
        Largest change D.
    change_variance
        Variance V of the change, exact; where the support does not allow it, the nearest that it does.
    smallest
        Smallest count above zero that may be published: 3 where 1 and 2 may not.
    monotone
        True if probabilities may not fall towards no change from below, and the variance may be less than V for it: the
        tables that the R package ptable makes unless told otherwise.
    transitions
        In the place of these four, for the counts 0, 1, ... a row `{change: probability}`; a JSON text of such a list.
    repeat
        Number of last rows that are used in turn for all larger counts.

    References
    ----------
    Giessing (2016), "Computational issues in the design of transition probabilities and disclosure risk estimation for
    additive noise", section 3: maximum entropy under unbiasedness and constant variance.

    Examples
    --------
    >>> law = CellKey(2, "2")
    >>> law.rows[-1].round(6).tolist()
    [0.2, 0.2, 0.2, 0.2, 0.2]
    >>> CellKey(2, "1", 3).other_variances
    {1: 2.0, 2: 2.0, 3: 0.0}
    >>> CellKey(transitions=[{0: 1}, {-1: 0.5, 1: 0.5}]).bounds([2])
    (array([1]), array([3]))
    """

    name: ClassVar[str] = "cell-key"
    title: ClassVar[str] = "Cell key perturbation"
    same_records: ClassVar[bool] = True
    maximum: int | None = None
    change_variance: Any = None
    smallest: int = 1
    monotone: bool = False
    transitions: Any = None
    repeat: int = 1

    def __post_init__(self) -> None:
        given = {name: WORDS.get(str(value), value) for name, value in vars(self).items()}
        if not isinstance(given["monotone"], bool):
            raise SpecError(f"`monotone` is {str(self.monotone)[:30]!r}", needed="true or false")
        declared = given["maximum"] is not None and given["change_variance"] is not None
        if declared == (given["transitions"] is not None):
            raise SpecError(
                f"law '{self.name}' is given {('both' if declared else 'neither')} a table of transitions "
                f"{'and' if declared else 'nor'} a largest change with its variance",
                needed="either `transitions`, or `maximum` with `change_variance`",
            )
        if declared:
            given["maximum"] = whole_number(given["maximum"], "the largest change", 1, LARGEST_CHANGE)
            given["change_variance"] = rational(given["change_variance"], "the variance of the change")
            # 1 must be able to rise to the smallest count published, and the count below that one to fall to 0.
            most = given["maximum"] + 1
            given["smallest"] = whole_number(given["smallest"], "the smallest count published", 1, most)
            if given["change_variance"] > given["maximum"] ** 2:
                raise SpecError(
                    f"changes of at most {given['maximum']} cannot have the variance {given['change_variance']}",
                    needed=f"a variance of at most {given['maximum'] ** 2}",
                )
        else:
            given["transitions"] = _read_transitions(given["transitions"])
            given["smallest"], given["monotone"] = 1, False
        for name, value in given.items():
            object.__setattr__(self, name, value)
        count = len(self.rows)
        object.__setattr__(self, "repeat", whole_number(self.repeat, "how many rows repeat", 1, count))

    @property
    def period(self) -> int:
        """Return the number of last rows of the table that repeat for all larger counts."""
        return self.repeat

    @cached_property
    def rows(self) -> Reals:
        """Return the probabilities `(rows, 2 D + 1)` of the changes -D, .., D, in one row for each count."""
        if self.transitions is not None:
            return _rows_of(json.loads(self.transitions))
        assert self.maximum is not None
        last = self.maximum + (self.smallest - 1) + (self.smallest > 1)
        return np.stack([self._row_of(x)[0] for x in range(last + 1)])

    @cached_property
    def other_variances(self) -> dict[int, float]:
        """Return the variances of the changes of those counts that miss the declared variance."""
        if self.transitions is not None:
            return {}
        return {x: float(self.variance_at(x)) for x in range(1, len(self.rows)) if not self._row_of(x)[1]}

    def _row_of(self, x: int) -> tuple[Reals, bool]:
        """Return the probabilities of one count's changes, and True if they have the declared variance."""
        assert self.maximum is not None
        changes = np.arange(-self.maximum, self.maximum + 1)
        allowed = (x + changes == 0) | (x + changes >= self.smallest) if x else changes == 0
        row = np.zeros(len(changes))
        row[allowed], met = (rising_entropy if self.monotone else maximum_entropy)(
            changes[allowed], float(self.change_variance)
        )
        return row, met

    def sentence(self) -> str:
        """Return a sentence on the law for reports."""
        how = (
            "by a given table of transition probabilities"
            if self.transitions is not None
            else f"by at most {self.maximum}, without bias and with variance {self.change_variance}"
        )
        return (
            f"Each count was changed {how}, as the sum of its records' keys chooses; a total whose "
            "parts are published as zero but one, with its value, is counted once. Changes of other cells are taken to be "
            "independent, which keys that add up make an approximation. No formal guarantee is known."
        )


def _read_transitions(given: Any) -> str:
    """Return a table of transitions as JSON text, after checking its probabilities."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise SpecError(
                "the text of the transitions is not JSON",
                needed="a JSON list of rows, each {change: probability}",
            ) from None
    if (
        not isinstance(given, Sequence)
        or not given
        or not all(isinstance(row, Mapping) and row for row in given)
    ):
        raise SpecError(
            "the transitions are not a list of rows", needed='rows such as {"-1": 0.25, "0": 0.5, "1": 0.25}'
        )
    rows = [
        {_read_change(change, x): _probability(p, x) for change, p in row.items()}
        for x, row in enumerate(given)
    ]
    for x, row in enumerate(rows):
        if abs(sum(row.values()) - 1) > SUM_SLACK:
            raise SpecError(
                f"the transition probabilities of the count {x} sum to {sum(row.values()):.6g}",
                needed="probabilities that sum to 1",
            )
        if below := [change for change, p in row.items() if p > 0 and x + change < 0]:
            raise SpecError(
                f"the transitions of the count {x} lead to the negative count {x + below[0]}",
                needed="transitions to counts of 0 or more",
            )
    return json.dumps([{str(change): row[change] for change in sorted(row)} for row in rows])


def _read_change(change: object, x: int) -> int:
    return whole_number(change, f"a change of the count {x}", -LARGEST_CHANGE, LARGEST_CHANGE)


def _probability(p: object, x: int) -> float:
    try:
        value = float(p)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        value = np.nan
    if not (isfinite(value) and 0 <= value <= 1 + SUM_SLACK):
        raise SpecError(
            f"a transition probability of the count {x} is {str(p)[:20]}", needed="a number from 0 to 1"
        )
    return value


def _rows_of(table: Sequence[Mapping[str, float]]) -> Reals:
    reach = max(1, *(abs(int(change)) for row in table for change in row))
    rows = np.zeros((len(table), 2 * reach + 1))
    for x, row in enumerate(table):
        for change, p in row.items():
            rows[x, reach + int(change)] = p
    return rows / rows.sum(axis=1, keepdims=True)
