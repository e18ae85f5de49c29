"""Intervals whose coverage is assessed: rules that turn one replicate's published counts into bounds.

A rule is a class with a name; what is listed in `RULES` can be asked for by that name, and any other
object with the same interface can be given to `assess` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured, split
from trueup.model.nested import canonical
from trueup.model.records.expected_errors import ExpectedErrors

Bounds = tuple[NDArray, NDArray]


@dataclass(frozen=True, eq=False)
class Published:
    """The public data of a batch of `b` replicates, all that a rule may use.

    Attributes
    ----------
    cells, headers
        The cells and what was measured.
    values
        `(b, q)` noisy values.
    errors
        Standard errors (counts) that the method states, by margin.
    simulate
        Simulates the errors to expect from the first replicate, as a release does from its own values.
    """

    cells: Cells
    headers: Sequence[Measured]
    values: NDArray
    errors: Mapping[Margin, NDArray]
    simulate: Callable[[], ExpectedErrors] | None = None

    @cached_property
    def expected(self) -> ExpectedErrors | None:
        """Return the expected errors by size of the released count."""
        return self.simulate() if self.simulate else None

    def measured(self, margin: Margin) -> tuple[Measured, NDArray] | None:
        """Return header and values `(b, groups)` of the first query that measured all of a margin; None if none did."""
        for header, values in zip(self.headers, split(self.values, self.headers, self.cells)):
            whole = header.groups is None and not header.exact
            if whole and canonical(self.cells, header.margin) == margin:
                return header, values
        return None


class IntervalRule(ABC):
    """A rule that states an interval for every count of a margin.

    Attributes
    ----------
    name
        Its name.
    level
        The probability with which it claims to hold the true count.
    """

    name: ClassVar[str]
    level: float

    @abstractmethod
    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return lower and upper ends `(b, groups)` for reconciled counts `(b, groups)`; None if it has none."""


@dataclass(frozen=True)
class LeastSquares(IntervalRule):
    """Reconciled count plus and minus normal quantiles of the least-squares standard error.

    It ignores nonnegativity, rounding and the shape of the noise distribution.
    """

    level: float = 0.9
    name: ClassVar[str] = "least-squares"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends if the method states standard errors."""
        from scipy.special import ndtri

        if (errors := published.errors.get(margin)) is None:
            return None
        reach = float(ndtri(0.5 + self.level / 2)) * errors
        return counts - reach, counts + reach


@dataclass(frozen=True)
class NoiseMargin(IntervalRule):
    """Noisy count plus and minus its own noise's margin: coverage of the noise distribution, whatever the method."""

    level: float = 0.9
    name: ClassVar[str] = "noise"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends if the margin was measured."""
        if (found := published.measured(margin)) is None:
            return None
        header, values = found
        reach = float(np.max(header.law.quantile(0.5 + self.level / 2)))
        return values - reach, values + reach


@dataclass(frozen=True)
class BySize(IntervalRule):
    """Reconciled count plus and minus the simulated margin of error for counts released at its size.

    The margin of tables and reports. Replicates of a block share the simulation of the block's first.
    """

    level: float = 0.9
    name: ClassVar[str] = "by-size"

    def bounds(self, published: Published, margin: Margin, counts: NDArray) -> Bounds | None:
        """Return the ends if errors could be simulated."""
        found = published.expected and published.expected.margin_of_error(margin, counts, self.level)
        return None if found is None else (counts - found, counts + found)


RULES: tuple[type[Any], ...] = (LeastSquares, NoiseMargin, BySize)
"""Every rule that has a name."""
