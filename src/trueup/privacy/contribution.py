"""How far apart two neighbouring databases can be in one query.

A unit of privacy (person, household, establishment) contributes to at most `cells` counts of a
query, between zero and `each` to every one of them. What "neighbouring" means turns that bound
into a sensitivity:

============  ==================================================  ====================
relation      the two databases differ by                         counts that change
============  ==================================================  ====================
`add-remove`  a unit that only one of them holds                  `cells`
`replace`     a unit that is another one                          `2 cells`
`move`        a unit that sits elsewhere; invariants are kept     `2 cells`
`swap`        two units with places exchanged; invariants kept    `4 cells`
============  ==================================================  ====================

In each of these a count loses at most one unit's contribution and gains at most one, both between
zero and `each`, so it changes by `each` at most. Hence `replace` at most doubles both the L1 and
the squared L2 distance of `add-remove`; composing an addition and a removal would quadruple the
latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal

from trueup.errors import PrivacyError, SpecError
from trueup.noise.cost import Sensitivity

Relation = Literal["add-remove", "replace", "move", "swap"]
_FACTORS: dict[str, int] = {"add-remove": 1, "replace": 2, "move": 2, "swap": 4}


@dataclass(frozen=True)
class Contribution:
    """What one unit of privacy can contribute to one query.

    Attributes
    ----------
    cells
        To at most this many counts.
    each
        At most this much to each of them (counts).
    exact
        Whether every unit contributes exactly one to exactly one count, as where the cells
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
        _positive(self.cells, "the number of counts a unit can touch")
        _positive(self.each, "the amount a unit can add to a count")
        if self.exact and (self.cells, self.each) != (1, 1):
            raise SpecError("a partition is stated with bounds", needed="one count, changed by one")

    @classmethod
    def partition(cls) -> Contribution:
        """Derive the bound where the cells partition the units: one count, by one."""
        return cls(1, 1, exact=True)

    def sensitivity(self, relation: Relation, *, cells: int, fixed: bool = False) -> Sensitivity:
        """Bound the distance between neighbours in a query of `cells` counts.

        Parameters
        ----------
        relation
            Which databases are neighbours.
        cells
            How many counts the query has.
        fixed
            Whether neighbours agree on the whole query by definition, as those that share exact
            state totals agree on the nation's.

        Raises
        ------
        SpecError
            If the relation is unknown or `cells` is no whole number above zero.
        PrivacyError
            If a fixed query meets `add-remove`: no two neighbours would share it.

        Examples
        --------
        >>> person = Contribution.partition()
        >>> person.sensitivity("replace", cells=51)
        Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1))
        >>> person.sensitivity("replace", cells=1)
        Sensitivity(l1=Fraction(0, 1), l2_squared=Fraction(0, 1))
        """
        factor = _factor(relation)
        _positive(cells, "the number of counts of a query")
        if fixed and relation == "add-remove":
            raise PrivacyError(
                "a query is held exact under the neighbour relation 'add-remove', and no neighbours share it",
                needed="a relation that keeps the invariant: 'move' or 'swap'",
            )
        shared = fixed or (self.exact and cells == 1 and relation != "add-remove")
        return Sensitivity.of(cells=0 if shared else min(factor * self.cells, cells), each=self.each)


def relation_within(neighbours: Relation, *, invariants: bool) -> Relation:
    """Return the relation a guarantee is stated for once some counts are published exactly.

    Databases that share the invariants are compared by single moves: adding, removing or
    replacing a unit would change an invariant for some pair of them.

    Examples
    --------
    >>> relation_within("add-remove", invariants=True)
    'move'
    """
    _factor(neighbours)
    return "move" if invariants and neighbours in ("add-remove", "replace") else neighbours


def compose_moves(sensitivity: Sensitivity, moves: int) -> Sensitivity:
    """Bound the distance between databases that are `moves` neighbours apart (group privacy).

    Examples
    --------
    >>> compose_moves(Sensitivity.of(cells=2, each=1), moves=2).l1
    Fraction(4, 1)
    """
    _positive(moves, "the number of moves")
    return Sensitivity(sensitivity.l1 * moves, sensitivity.l2_squared * Fraction(moves) ** 2)


def _factor(relation: object) -> int:
    if isinstance(relation, str) and relation in _FACTORS:
        return _FACTORS[relation]
    close = get_close_matches(relation, _FACTORS, 1) if isinstance(relation, str) else []
    given = (
        f"the neighbour relation '{relation}'"
        if isinstance(relation, str)
        else "a neighbour relation of another type"
    )
    raise SpecError(
        given, needed=f"one of {', '.join(_FACTORS)}", remedy=f"did you mean '{close[0]}'?" if close else ""
    )


def _positive(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise SpecError(f"{what} is of type {type(value).__name__}", needed="a whole number above zero")
    if value < 1:
        raise SpecError(
            f"{what} is {'zero' if value == 0 else 'negative'}", needed="a whole number above zero"
        )
