"""Headers of measurements: a query at a margin under a law, without the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.noise.law import Law, Words
from trueup.noise.laws.undrawn import Exact

VANISHING_VARIANCE = 1e-100
"""Variance (counts squared) below which noise is none: one draw in 10^100 would differ from 0, and weights
1 / variance, of which methods form sums and products, would leave double precision."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured margin without its values: the measured groups and the law of their noise.

    Attributes
    ----------
    query
        The query's name in the spec; `invariant` for enumerated values.
    margin
        The marginal table.
    law
        The law of the noise; `exact` for an invariant.
    groups
        Positions of the measured groups of the margin; None for all of them, in order.

    Raises
    ------
    SpecError
        If the noise vanishes; it names the query.
    """

    query: str
    margin: Margin
    law: Law
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        # A manifest holds no lattice, without which this law has no variance; it was looked at when it was planned.
        law: Any = self.law
        unbound = not law.factors and law.lattice is None
        if not self.exact and not unbound and not self.law.variance >= VANISHING_VARIANCE:
            raise SpecError(
                f"the budget of query '{self.query}' is so large that its noise vanishes",
                remedy="lower the budget, or declare the counts an invariant",
            )

    @classmethod
    def enumerated(cls, cells: Cells, margin: Margin) -> Measured:
        """Return the header of a margin that is published exactly, for the groups that meet its condition.

        Examples
        --------
        >>> from trueup.model.tree import Tree
        >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
        >>> Measured.enumerated(cells, Margin("area", where=((("area", "b"),),))).groups
        array([1])
        """
        return cls("invariant", margin, Exact()).at(cells)

    def at(self, cells: Cells) -> Measured:
        """Return the header restricted to the groups that its margin's condition leaves."""
        if not self.margin.where:
            return self
        held = cells.held(self.margin)
        return replace(self, groups=held if len(held) < cells.size(self.margin) else None)

    @property
    def exact(self) -> bool:
        """Return True if the values carry no noise."""
        return self.law.exact

    def sums(self, cells: Cells, counts: NDArray) -> NDArray:
        """Return the sums of cell counts `(n,)` that the header measures, one for each measured group."""
        table = cells.sum(counts, self.margin)
        return table if self.groups is None else table[self.groups]


def split(values: NDArray, headers: Sequence[Measured], cells: Cells) -> list[NDArray]:
    """Split a vector `(..., q)` of measured values into one array for each header.

    Examples
    --------
    >>> from trueup.model.tree import Tree
    >>> cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    >>> headers = [Measured("total", Margin(level), Exact()) for level in ("all", "area")]
    >>> split(np.array([7, 3, 4]), headers, cells)
    [array([7]), array([3, 4])]
    """
    sizes = [cells.size(h.margin) if h.groups is None else len(h.groups) for h in headers]
    return np.split(values, np.cumsum(sizes)[:-1], axis=-1)


def simulate_many(
    cells: Cells,
    counts: NDArray[np.int64],
    headers: Sequence[Measured],
    rng: np.random.Generator,
    replicates: int,
) -> NDArray[np.int64]:
    """Simulate `b` measurements with seeded noise: all `q` values of each replicate, `(b, q)`."""
    true = [header.sums(cells, counts) for header in headers]
    noise = draw_noise(headers, true, replicates, rng.bytes)
    return np.concatenate([t + v for t, v in zip(true, noise)], axis=1)


def draw_noise(
    headers: Sequence[Measured], true: Sequence[NDArray[np.int64]], count: int, words: Words
) -> list[NDArray[np.int64]]:
    """Draw the noise of every header's true counts `count` times, `(count, size)` each.

    Levels of a query whose noise adds up are drawn together. Noise within a set alone depends on the counts.
    """
    together: dict[str, NDArray[np.int64]] = {}
    drawn = []
    for header, own in zip(headers, true):
        law: Any = header.law
        size = own.size
        if header.exact:
            noise = np.zeros((count, size), np.int64)
        elif law.joint and law.bound is not None and law.bound.n != size:  # a level of several that add up
            if header.query not in together:
                together[header.query] = law.bound.draw(count, words).vectors
            noise = together[header.query][:, law.first : law.first + size]
        elif law.joint:  # drawn as whole vectors
            noise = law.around(own, count, words)
        else:
            noise = law.sample(count * size, words).reshape(count, size)
        drawn.append(noise)
    return drawn
