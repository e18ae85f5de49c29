"""Two linked tables settled at posterior means under splits whose concentrations are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trueup.reconciling.joined_tree import JoinedTree


@dataclass(frozen=True)
class JoinedPosterior(JoinedTree):
    """Reconcile persons and the households that they live in at the posterior means of each parent's children.

    As `joined-tree`, with households settled as by `histogram-posterior`, and persons likewise given the numbers that the
    settled households hold.

    Attributes
    ----------
    rounding
        `controlled` for whole numbers, `none` for the continuous solution.
    """

    name: ClassVar[str] = "joined-posterior"
    title: ClassVar[str] = (
        "two linked tables: posterior means under estimated splits, households settled first"
    )
    shrinks: ClassVar[bool] = True
    posterior: ClassVar[bool] = True
