"""What is protected, and what it cost, in words and in exact numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from trueup.noise.cost import Currency
from trueup.privacy.accountant import Kind


@dataclass(frozen=True)
class Charge:
    """The privacy loss of one query at one level."""

    query: str
    margin: str
    law: str
    currency: Currency
    amount: Fraction
    delta: Fraction = Fraction(0)


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee of a whole release.

    Attributes
    ----------
    kind
        `dp`: neighbours are all pairs of databases of the stated relation. `invariant`: only pairs
        that share the published invariants are compared, a different and weaker guarantee.
    unit, neighbours
        Who is protected, and which databases count as neighbours.
    currency, amount, delta
        Total loss: pure epsilon (with delta) or zCDP rho, exact.
    charges
        Its parts.
    sentences
        The guarantee in plain words, for certificates and reports.
    """

    kind: Kind
    unit: str
    neighbours: str
    currency: Currency
    amount: Fraction
    delta: Fraction
    charges: tuple[Charge, ...]
    sentences: tuple[str, ...]
