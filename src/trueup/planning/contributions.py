"""Limits on the records of one unit, compared by records left out and by noise needed.

Noise is scaled to the bound, so a low one makes counts precise and too low, a high one complete and noisy. How many records
units have is confidential; here it is stated by whoever chooses, from an earlier year, another place, or a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trueup.errors import SpecError
from trueup.model.problem import Problem
from trueup.model.spec_table import RecordsPart

_PART = re.compile(r"\s*(\d{1,9})\s*=\s*(\d{1,9}(?:\.\d{1,9})?)\s*%?\s*", re.ASCII)


@dataclass(frozen=True)
class RecordsOfUnits:
    """A stated distribution of the number of records of a unit.

    Attributes
    ----------
    shares
        Share of units by number of records; they sum to 1.
    """

    shares: Mapping[int, float]

    @classmethod
    def read(cls, text: str) -> RecordsOfUnits:
        """Read the shares of units by their number of records. The shares are scaled to sum to 1.

        Raises
        ------
        SpecError
            If it cannot be read, a number stands twice, or no unit has a record.

        Examples
        --------
        >>> RecordsOfUnits.read("1=60, 2=25, 20=15").mean
        4.1
        """
        found = [_PART.fullmatch(part) for part in text.split(",")]
        pairs = [(int(part[1]), float(part[2])) for part in found if part]
        held = {many: share for many, share in pairs if many and share}
        if not all(found) or len({many for many, _ in pairs}) < len(pairs) or not held:
            raise SpecError(
                f"'{text[:60]}' does not say how many records units have",
                needed="shares of units by their number of records, such as '1=60, 2=25, 20=15'",
            )
        total = sum(held.values())
        return cls({many: share / total for many, share in sorted(held.items())})

    @property
    def mean(self) -> float:
        """Return the mean number of records of a unit."""
        return round(sum(many * share for many, share in self.shares.items()), 12)

    def left_out(self, bound: int) -> float:
        """Return the share of all records that is left out by a limit on each unit's records.

        Examples
        --------
        >>> round(RecordsOfUnits.read("1=60, 2=25, 20=15").left_out(5), 4)
        0.5488
        """
        return sum(max(many - bound, 0) * share for many, share in self.shares.items()) / self.mean

    def bounds(self, own: int) -> list[int]:
        """Return limits to compare: the present one, the most records of a unit, and round numbers.

        Examples
        --------
        >>> RecordsOfUnits.read("1=60, 2=25, 34=15").bounds(7)
        [1, 2, 5, 7, 10, 20, 34]
        """
        most = max(self.shares)
        round_ones = (digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5))
        return sorted({own, most, *(bound for bound in round_ones if bound < most)})

    def dropped(self, bound: int, units: int) -> int:
        """Return the expected number of records beyond a limit, among a given number of units."""
        return round(self.left_out(bound) * self.mean * units)


@dataclass(frozen=True)
class WeighedBound:
    """The effects of a limit on each unit's records: records left out, and noise in each table.

    Attributes
    ----------
    records
        The bound.
    share
        The share of all records that are left out.
    left_out, noise
        Records that a count misses on average, and standard deviation of its noise (counts), by table.
    """

    records: int
    share: float
    left_out: Mapping[str, float]
    noise: Mapping[str, float]

    def typical(self, table: str) -> float:
        """Return the root mean squared error (counts) of a count that is an average share of all records."""
        return float(np.hypot(self.left_out[table], self.noise[table]))


def weigh_bounds(problem: Problem, stated: RecordsOfUnits, units: int) -> tuple[WeighedBound, ...]:
    """Compare limits on each unit's records, by the records left out and the noise needed.

    Parameters
    ----------
    problem
        The problem, whose spec limits the records of a unit.
    stated
        Distribution of the number of records of a unit.
    units
        Approximate number of units.

    Examples
    --------
    >>> import pandas
    >>> from trueup.model.spec import Spec
    >>> visits = pandas.DataFrame({"who": ["a", "a", "b"]})
    >>> spec = Spec.of(visits, id="who", records=5, unit="patient", counts="visit", epsilon=1)
    >>> weighed = weigh_bounds(Problem.of(spec), RecordsOfUnits.read("1=60, 2=25, 20=15"), units=1000)
    >>> [(each.records, round(each.left_out["all"]), round(each.noise["all"])) for each in weighed]
    [(1, 3100, 1), (2, 2700, 3), (5, 2250, 7), (10, 1500, 14), (20, 0, 28)]
    >>> least_typical(weighed, "all").records
    20
    """
    if problem.spec.privacy.contribution is None or problem.spec.table.join is not None:
        raise SpecError(
            "shares of units by their number of records are given, but the spec sets no limit on the records of one "
            "unit",
            remedy="write contribution = { records = ... } under [privacy], or leave the shares out",
        )
    own = problem.spec.privacy.contribution.records
    return tuple(_weighed(problem, stated, units, bound) for bound in stated.bounds(own))


def _weighed(problem: Problem, stated: RecordsOfUnits, units: int, bound: int) -> WeighedBound:
    share, cells = stated.left_out(bound), problem.cells
    privacy = problem.spec.privacy.model_copy(update={"contribution": RecordsPart(records=bound)})
    bounded = problem.spec.model_copy(update={"privacy": privacy})
    noise = dict(_table_noise(Problem(bounded, cells)))
    missed = {table: units * stated.mean * share / cells.size(table) for table in noise}
    return WeighedBound(bound, share, missed, noise)


def _table_noise(problem: Problem) -> Iterator[tuple[str, float]]:
    """Yield name and noise deviation of measured tables: those of totals if there are any, else all."""
    noisy = [header for header in problem.headers if not header.exact]
    totals = [header for header in noisy if not header.margin.attributes] or noisy
    return ((str(header.margin), float(np.sqrt(header.law.variance))) for header in totals)


def least_typical(weighed: tuple[WeighedBound, ...], table: str) -> WeighedBound:
    """Return the limit on each unit's records with the smallest typical error in a table."""
    return min(weighed, key=lambda each: each.typical(table))
