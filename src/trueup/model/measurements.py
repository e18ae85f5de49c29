"""The record of `measure`: noisy counts with the laws of their noise."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound
from trueup.model.guarantee import Guarantee
from trueup.noise.exact import Exact
from trueup.noise.lattice import LatticeL2Laplace
from trueup.noise.law import Law

VANISHING = 1e-100
"""Variance (counts squared) below which noise is none: one draw in 10^100 would differ from 0, and weights
1 / variance, of which methods form sums and products, would leave double precision."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of one measured margin before any value: which groups, under which law.

    Attributes
    ----------
    query
        The query's name in the spec; `invariant` for enumerated values.
    margin
        The marginal table.
    law
        The law of the noise; `exact` for an invariant.
    groups
        Which groups of the margin were measured; None for all of them, in order.

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
        # Read from a file, the joint law has no lattice and no variance; it was looked at when it was planned.
        joint = isinstance(self.law, LatticeL2Laplace) and self.law.bound is None
        if not self.exact and not joint and not self.law.variance >= VANISHING:
            raise SpecError(
                f"query '{self.query}' has so large a budget that its noise vanishes",
                remedy="lower it, or declare the counts an invariant, which is what they would be",
            )

    @property
    def exact(self) -> bool:
        """Whether the values carry no noise."""
        return self.law.name == Exact.name


@dataclass(frozen=True, eq=False)
class Measurements:
    """Noisy counts, drawn once; everything after them is post-processing.

    Attributes
    ----------
    cells
        The public cells they speak of.
    headers
        One header per measured margin.
    values
        The measured integers of each header, in the order of its groups.
    guarantee
        What is protected, at what cost.
    bounds
        Public limits on margins that were published with the values, for every group.
    simulation
        True if the noise came from a seeded generator; such a record is never released.
    """

    cells: Cells
    headers: tuple[Measured, ...]
    values: tuple[NDArray[np.int64], ...]
    guarantee: Guarantee
    bounds: tuple[Bound, ...] = field(default=(), kw_only=True)
    simulation: bool = field(default=False, kw_only=True)

    @cached_property
    def flat(self) -> NDArray[np.int64]:
        """All `q` measured values in one vector."""
        return np.concatenate(self.values) if self.values else np.zeros(0, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the public content: laws, margins and values. Seeds post-processing."""
        whole = hashlib.sha256()
        for header, values in zip(self.headers, self.values):
            law = ", ".join(f"{k}={v}" for k, v in sorted(header.law.parameters().items()))
            whole.update(f"{header.query}|{header.margin}|{header.law.name}|{law}\n".encode())
            if header.groups is not None:
                whole.update(np.ascontiguousarray(header.groups, dtype="<i8").tobytes())
            whole.update(np.ascontiguousarray(values, dtype="<i8").tobytes())
        for bound in self.bounds:
            whole.update(f"{bound.margin}|{bound.lower}|{bound.upper}|{bound.where}\n".encode())
        return whole.hexdigest()

    def rng(self) -> np.random.Generator:
        """Return the generator of post-processing, seeded from the public digest."""
        return np.random.default_rng(int(self.digest, 16))


def split(values: NDArray, headers: Sequence[Measured], cells: Cells) -> list[NDArray]:
    """Cut a vector `(..., q)` into the values of each header.

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
