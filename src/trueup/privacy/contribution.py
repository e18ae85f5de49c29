"""Contributions of one unit of privacy to the counts of a query, and the resulting sensitivities.

A unit of privacy (person, household, establishment) contributes to at most `cells` counts of a
query, between zero and `each` to every one of them. What "neighbouring" means turns that bound
into a sensitivity:

============  ==================================================  ====================
relation      the two databases differ by                         counts that change
============  ==================================================  ====================
`add-remove`  a unit that only one of them holds                  `cells`
`replace`     a unit that is another one                          `2 cells`
============  ==================================================  ====================

A table of records may bound the records of a unit instead (`Records`): at most `records` of them, each in one count of
every query.

In both a count loses at most one unit's contribution and gains at most one, both between zero and `each`, so it
changes by `each` at most. Hence `replace` at most doubles both the L1 and the squared L2 distance of `add-remove`;
composing an addition and a removal would quadruple the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from trueup.errors import SpecError, did_you_mean
from trueup.noise.law import Sensitivity

Relation = Literal["add-remove", "replace"]
RELATIONS: tuple[Relation, ...] = ("add-remove", "replace")
_FACTORS: dict[str, int] = {"add-remove": 1, "replace": 2}


@dataclass(frozen=True)
class Contribution:
    """The contribution of one unit of privacy to the counts of one query.

    Attributes
    ----------
    cells
        Largest number of counts to which the unit contributes.
    each
        At most this much to each of them (counts).
    exact
        True if every unit contributes exactly one to exactly one count, as where the cells
        partition the units: only then do all databases of one size share a single total.

    Raises
    ------
    SpecError
        If a bound is no whole number above zero.

    Examples
    --------
    >>> Contribution(cells=3, each=10).sensitivity("add-remove", cells=100).l1
    Fraction(30, 1)
    """

    cells: int
    each: int
    exact: bool = False

    def __post_init__(self) -> None:
        _whole(self.cells, "the number of counts a unit can touch")
        _whole(self.each, "the amount a unit can add to a count")
        if self.exact and (self.cells, self.each) != (1, 1):
            raise SpecError(
                "a partition is given together with other bounds on the contribution",
                needed="no other bounds: one unit changes one count of a partition by one",
            )

    @classmethod
    def partition(cls) -> Contribution:
        """Return the contribution to cells of a partition: one unit changes one count by one."""
        return cls(1, 1, exact=True)

    def sensitivity(self, relation: Relation, *, cells: int) -> Sensitivity:
        """Return the sensitivity of a query of `cells` counts between neighbouring databases.

        Parameters
        ----------
        relation
            Relation that says which databases are neighbours.
        cells
            Number of counts of the query that neighbours need not share; if they share all, nothing changes.

        Raises
        ------
        SpecError
            If the relation is unknown or `cells` is no whole number, zero or more.

        Examples
        --------
        >>> person = Contribution.partition()
        >>> person.sensitivity("replace", cells=51)
        Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1))
        >>> person.sensitivity("replace", cells=1)
        Sensitivity(l1=Fraction(0, 1), l2_squared=Fraction(0, 1))
        """
        return Sensitivity.of(*self.moves(relation, cells=cells))

    def moves(self, relation: Relation, *, cells: int) -> tuple[int, int]:
        """Return how many counts of a query change between neighbouring databases, and by how much at most.

        Examples
        --------
        >>> Contribution(cells=3, each=10).moves("replace", cells=100)
        (6, 10)
        """
        factor = _factor(relation)
        _whole(cells, "the number of counts of a query", 0)
        shared = self.exact and cells == 1 and relation == "replace"
        return 0 if shared else min(factor * self.cells, cells), self.each


@dataclass(frozen=True)
class Records:
    """The contribution of a unit with at most `records` records, each of which counts in one cell.

    Let `v` and `w` be the counts of the records that a unit keeps in two neighbouring databases, where other units keep
    what they kept: `trueup.io.microdata.truncate` uses no other unit's records. Both are vectors of whole numbers from zero whose
    sum is at most `records` =: R. Under `add-remove` one is zero: the L1 norm of the other is at most R, and its squared
    L2 norm, which is no larger than its squared L1 norm, at most R^2; all R records in one count attain both. Under
    `replace` the distance of `v` and `w` is convex in each, so its maximum is at extreme points, 0 and R e_i: the L1
    distance is at most 2 R and the squared L2 distance at most 2 R^2, attained by R records here and R there; where
    there is one count, they are R and R^2, since a unit may hold no record at all.

    Attributes
    ----------
    records
        Largest number of records of a unit.

    Raises
    ------
    SpecError
        If it is no whole number above zero.

    Examples
    --------
    >>> Records(10).sensitivity("replace", cells=100)
    Sensitivity(l1=Fraction(20, 1), l2_squared=Fraction(200, 1))
    """

    records: int
    exact: ClassVar[bool] = False
    """Units may hold fewer records, so databases of one size need not share a total."""

    def __post_init__(self) -> None:
        _whole(self.records, "the number of records of a unit")

    def sensitivity(self, relation: Relation, *, cells: int) -> Sensitivity:
        """Return the sensitivity of a query of `cells` counts between neighbouring databases."""
        factor = _factor(relation)
        _whole(cells, "the number of counts of a query", 0)
        return Sensitivity(
            Fraction(min(factor, cells) * self.records), Fraction(min(factor, cells) * self.records**2)
        )

    def moves(self, relation: Relation, *, cells: int) -> tuple[int, int] | None:
        """Return how many counts change and by how much, or None if that depends on the records.

        Examples
        --------
        >>> Records(1).moves("replace", cells=100), Records(10).moves("replace", cells=1), Records(10).moves("replace", cells=2)
        ((2, 1), (1, 10), None)
        """
        if cells > 1 and self.records > 1:
            return None
        return min(_factor(relation), cells), self.records


def records_left_out(most: int) -> Records:
    """Return a bound on the contribution of one unit to the number of records that a limit leaves out.

    Let m be the number of records that a unit has and R how many it keeps. It adds f(m) = min(max(m - R, 0), most), a whole
    number from 0 to `most` that depends on its own records alone, and the number is the sum of f over all units. Under
    `add-remove` one term appears or vanishes: the number changes by `most` at most, and does by as much for a unit of
    R + most records. Under `replace` one term f(m) becomes f(m'): both lie between 0 and `most`, so it changes by `most` at
    most, and does from R + most records to R. That is what `Records` says of a query of one count. Without `most` there is
    no bound: nothing limits how many records a unit may have beyond those that it keeps.

    Examples
    --------
    >>> [records_left_out(20).sensitivity(relation, cells=1).l1 for relation in RELATIONS]
    [Fraction(20, 1), Fraction(20, 1)]
    """
    return Records(most)


Reach = Contribution | Records
"""Either way to bound what a unit contributes."""


def _factor(relation: object) -> int:
    if isinstance(relation, str) and relation in _FACTORS:
        return _FACTORS[relation]
    text = isinstance(relation, str)
    remedy = did_you_mean(relation, _FACTORS) if text else ""
    given = f"there is no neighbour relation '{relation}'" if text else "a neighbour relation of another type"
    raise SpecError(given, needed=f"one of {', '.join(_FACTORS)}", remedy=remedy)


def _whole(value: object, what: str, least: int = 1) -> None:
    needed = "a whole number above zero" if least else "a whole number, zero or more"
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpecError(f"{what} is of type {type(value).__name__}", needed=needed)
    if value < least:
        raise SpecError(f"{what} is {'zero' if value == 0 else 'negative'}", needed=needed)
