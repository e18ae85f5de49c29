"""Laws p(y | x) of a published value given the true count, for perturbations other than added noise.

Noise that is added is the case p(y | x) = q(y - x). Here the change y - x may depend on x: a matrix in the place of a
shift. Row `x` of the matrix holds the probabilities of the changes -reach, .., reach; rows go on beyond the last one
with a period, so that a rounding has as many rows as its base and a cell key's table one row for all large counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.errors import PrivacyError, SpecError
from trueup.noise.law import Form, Integers, Law, Reals, Sensitivity, Tail, Words
from trueup.registry import Registry

MAX_PARAMETER = 10_000
"""Largest base, threshold or change (counts)."""


def whole_number(value: object, what: str, least: int, most: int = MAX_PARAMETER) -> int:
    """Return a whole number that is given as a number or as text, after checking its range.

    Examples
    --------
    >>> whole_number("3", "the base", 2)
    3
    """
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 20:
        text = int(text)
    if isinstance(text, bool) or not isinstance(text, int) or not least <= text <= most:
        shown = (
            repr(value)
            if isinstance(value, int | float | str) and len(str(value)) < 30
            else type(value).__name__
        )
        raise SpecError(f"{what} is {shown}", needed=f"a whole number from {least:,} to {most:,}")
    return int(text)


class Perturbation(Law):
    """A law p(y | x) of a published value y given the true count x, without a privacy guarantee.

    A law is a frozen dataclass; its fields are its parameters.
    """

    discrete: ClassVar[bool] = True
    additive: ClassVar[bool] = False

    @property
    def open_ended(self) -> bool:
        """Return False, because a table holds all possible true counts."""
        return False

    def kinds(self, published: ArrayLike) -> Reals:
        """Return the published values themselves, because only equal values have equal likelihoods."""
        return np.asarray(published, np.float64)

    def numeral(self, published: ArrayLike) -> NDArray[np.bool_]:
        """Return a mask of the published values that are numbers rather than codes."""
        return np.full(np.shape(published), self.numeric)

    def numbers(self, published: ArrayLike) -> NDArray:
        """Return the published values as numbers that can be added up."""
        return np.asarray(published)

    def mean(self, true: ArrayLike) -> Reals:
        """Return the mean of the published value given the true count."""
        raise NotImplementedError

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count (counts squared)."""
        raise NotImplementedError

    @property
    def variance(self) -> float:
        """Return the mean squared error (counts squared) of a published value over large true counts."""
        raise NotImplementedError

    @property
    def shift(self) -> float:
        """Return the mean difference between published value and true count, over large true counts."""
        return 0.0

    @property
    def form(self) -> Form:
        """Return the form of the normal law that has the variance of the perturbation."""
        return Form(0.0, 1 / (2 * self.variance), np.inf)

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the published values of true counts, given the cells' keys in [0, 1)."""
        raise NotImplementedError

    @property
    def reach(self) -> int:
        """Return the largest distance of a published number from the true count (counts)."""
        raise NotImplementedError

    def tail(self, probability: float) -> Tail:
        """Return the largest distance of a published number from the true count, whatever the probability."""
        return Tail(self.reach, exact=False)

    def table(self, published: float, depth: float = np.inf) -> tuple[int, Reals]:
        """Return a published value's likelihood of true counts: the first count, and all log masses."""
        low, high = (int(end) for end in self.bounds(published))
        return low, np.asarray(self.log_mass(published, np.arange(low, high + 1)), np.float64)

    @classmethod
    def for_budget(cls, amount: Fraction, sensitivity: Sensitivity) -> Self:
        """Raise an error, because the law has no finite privacy loss."""
        cls._refuse()

    @classmethod
    def budgeted(cls, amount: Fraction, sensitivity: Sensitivity, options: Mapping[str, Any]) -> Self:
        """Raise an error, because the law has no finite privacy loss."""
        cls._refuse()

    def cost(self, sensitivity: Sensitivity) -> NoReturn:
        """Raise an error, because the law has no finite privacy loss."""
        self._refuse()

    def sample(self, size: int, words: Words) -> NoReturn:
        """Raise an error, because the law does not add noise."""
        self._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise PrivacyError(
            f"law '{cls.name}' limits no privacy loss, because some published values exclude some true counts with "
            "certainty",
            needed="a law that adds noise, such as 'discrete-laplace' or 'discrete-gaussian'",
            remedy=f"choose another noise to measure with; '{cls.name}' is for reading tables that others published (`trueup "
            "infer --perturbed`) and for `trueup assess`",
        )


class ByChange(Perturbation):
    """Base of the laws that change a count by at most `reach`, with tabulated probabilities of each change."""

    @cached_property
    def rows(self) -> Reals:
        """Return probabilities `(rows, 2 reach + 1)` of the changes -reach, .., reach, one row per count."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """Return the number of last rows of the table that repeat for all larger counts."""
        return 1

    @property
    def reach(self) -> int:
        """Return the largest change (counts)."""
        return self.rows.shape[1] // 2

    def _row(self, true: Integers) -> Integers:
        first = len(self.rows) - self.period
        if self.period == 1:
            return np.minimum(true, first)
        return np.where(true < first, true, first + (true - first) % self.period)

    def kinds(self, published: ArrayLike) -> Reals:
        """Return one number per published value; the likelihoods of equal numbers differ only by a shift."""
        values = np.asarray(published, np.float64)
        first = len(self.rows) + self.reach  # from here on all true counts have one of the rows that repeat
        return np.where(values < first, values, first + (values - first) % self.period)

    def log_mass(self, published: ArrayLike, true: ArrayLike) -> Reals:
        """Return the log probability of published values given true counts (broadcast together)."""
        x = np.asarray(true, np.int64)
        change = np.asarray(published, np.int64) - x
        inside = (x >= 0) & (np.abs(change) <= self.reach)
        mass = self.rows[self._row(np.maximum(x, 0)), np.where(inside, change, 0) + self.reach]
        with np.errstate(divide="ignore"):
            return np.log(np.where(inside, mass, 0.0))

    def bounds(self, published: ArrayLike) -> tuple[Integers, Integers]:
        """Return the smallest and largest true count that a published value may stand for."""
        values, back = np.unique(np.asarray(published, np.int64), return_inverse=True)
        true = values[:, None] + np.arange(-self.reach, self.reach + 1)
        may = np.isfinite(self.log_mass(values[:, None], true))
        low = np.where(may.any(axis=1), true[:, 0] + may.argmax(axis=1), values)
        high = np.where(may.any(axis=1), true[:, -1] - may[:, ::-1].argmax(axis=1), values - 1)
        shape = np.shape(published)
        return low[back].reshape(shape), high[back].reshape(shape)

    def mean(self, true: ArrayLike) -> Reals:
        """Return the mean of the published value given the true count."""
        x = np.asarray(true, np.int64)
        return x + (self.rows @ self._changes)[self._row(x)]

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count (counts squared)."""
        first = self.rows @ self._changes
        return (self.rows @ self._changes**2 - first**2)[self._row(np.asarray(true, np.int64))]

    @property
    def variance(self) -> float:
        """Return the variance (counts squared) of a published value's error over large true counts.

        Where large counts are published as they are, it is over the counts that change.
        """
        squares = self.rows @ self._changes**2
        some = squares[squares > 0] if self.keeps_large else squares[-self.period :]
        return float(some.mean()) - self.shift**2 if len(some) else 0.0

    @cached_property
    def keeps_large(self) -> bool:
        """Return True if large counts are published unchanged."""
        return not (self.rows[-self.period :] @ self._changes**2).any()

    @property
    def shift(self) -> float:
        """Return the mean difference between published value and true count, over large true counts."""
        return float((self.rows[-self.period :] @ self._changes).mean())

    @property
    def _changes(self) -> Reals:
        return np.arange(-self.reach, self.reach + 1.0)

    @cached_property
    def _cumulative(self) -> Reals:
        """Return the cumulative probabilities of the changes, which end at 1 despite rounding."""
        total = np.cumsum(self.rows, axis=1)
        last = self.rows.shape[1] - 1 - (self.rows[:, ::-1] > 0).argmax(axis=1)
        total[np.arange(self.rows.shape[1]) >= last[:, None]] = 1.0
        return total

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the published values of true counts, given the cells' keys in [0, 1)."""
        x, u = np.broadcast_arrays(np.asarray(true, np.int64), np.asarray(keys, np.float64))
        row, change = self._row(x), np.full(x.shape, -self.reach)
        for column in range(2 * self.reach):
            change += u >= self._cumulative[row, column]
        return x + change


class OneValue:
    """Base of the laws of a single code, which stands for several possible counts."""

    numeric: ClassVar[bool] = False

    @property
    def centre(self) -> int:
        """Return the whole number that represents the code in sums."""
        raise NotImplementedError

    def mean(self, true: ArrayLike) -> Reals:
        """Return the number that represents the code, for every true count."""
        return np.full(np.shape(true), float(self.centre))

    def variance_at(self, true: ArrayLike) -> Reals:
        """Return the variance of the published value given the true count, which is 0 for a code."""
        return np.zeros(np.shape(true))

    def publish(self, true: ArrayLike, keys: ArrayLike) -> Integers:
        """Return the number that represents the code, for every true count."""
        return np.full(np.broadcast(true, keys).shape, self.centre, np.int64)


PERTURBATIONS: Registry[Perturbation] = Registry(
    "trueup.noise.perturbed",
    {
        "random-rounding": "rounding.RandomRounding",
        "cell-key": "cell_key.CellKey",
        "rounded": "rounding.Rounded",
        "suppressed": "ranges.Suppressed",
        "interval": "ranges.CountInterval",
        "shown-counts": "composed.ShownCounts",
        "hidden-values": "hidden_values.HiddenValues",
        "after-noise": "after_noise.AfterNoise",
    },
)
"""Every law, one line each."""
READ = ("interval", "shown-counts", "hidden-values", "after-noise")
"""Laws of codes, and of values beside codes, which the reader of tables makes; no spec names them, and they publish nothing."""
__getattr__ = PERTURBATIONS.attribute
