"""Cell-key perturbation: each count has a row of changes, from which the records' keys choose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from trueup.digits import rational
from trueup.errors import SpecError
from trueup.noise.law import Reals
from trueup.noise.perturbed import ByChange, whole_number
from trueup.noise.perturbed.entropy import maximum_entropy, rising_entropy

LARGEST_CHANGE = 100
WORDS = {"None": None, "True": True, "False": False}
"""What parameters are written as in manifests."""
SUM_SLACK = 1e-6
"""By how much the printed probabilities of a row may miss 1; they are then divided by their sum."""


@dataclass(frozen=True)
class CellKey(ByChange):
    """A count changed by what a table of transition probabilities holds for the cell's key, the sum of its records' keys.

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
        Whether probabilities may not fall towards no change from below, and the variance may be less than V for it: the
        tables that the R package ptable makes unless told otherwise.
    transitions
        In the place of these four, for the counts 0, 1, ... a row `{change: probability}`; a JSON text of such a list.
    repeat
        How many of the last rows repeat for ever.

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
                f"law '{self.name}' is given {'both' if declared else 'neither'} a table of transitions and "
                f"{'' if declared else 'nor '}a largest change with its variance",
                needed="`transitions`, or `maximum` and `change_variance`",
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
        """Return how many of the last rows repeat for ever."""
        return self.repeat

    @cached_property
    def rows(self) -> Reals:
        """Return `(rows, 2 D + 1)` probabilities of the changes of the counts 0, 1, ..."""
        if self.transitions is not None:
            return _rows_of(json.loads(self.transitions))
        assert self.maximum is not None
        last = self.maximum + (self.smallest - 1) + (self.smallest > 1)
        return np.stack([self._row_of(x)[0] for x in range(last + 1)])

    @cached_property
    def other_variances(self) -> dict[int, float]:
        """Return the counts whose change cannot have the declared variance, with the variance it has instead."""
        if self.transitions is not None:
            return {}
        return {x: float(self.variance_at(x)) for x in range(1, len(self.rows)) if not self._row_of(x)[1]}

    def _row_of(self, x: int) -> tuple[Reals, bool]:
        """Return the probabilities of the changes of one count, and whether they have the declared variance."""
        assert self.maximum is not None
        changes = np.arange(-self.maximum, self.maximum + 1)
        allowed = (x + changes == 0) | (x + changes >= self.smallest) if x else changes == 0
        row = np.zeros(len(changes))
        row[allowed], met = (rising_entropy if self.monotone else maximum_entropy)(
            changes[allowed], float(self.change_variance)
        )
        return row, met

    def sentence(self) -> str:
        """Return the law in one plain sentence."""
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
    """Check a table of transitions; return it as JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise SpecError(
                "the transitions are not JSON", needed="a list of rows {change: probability}"
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
                f"the transition probabilities of the count {x} sum to {sum(row.values()):.6g}", needed="1"
            )
        if below := [change for change, p in row.items() if p > 0 and x + change < 0]:
            raise SpecError(
                f"the transitions of the count {x} lead to {x + below[0]}", needed="counts from 0"
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
