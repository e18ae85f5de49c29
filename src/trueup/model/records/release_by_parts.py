"""The record of a release by blocks: what was released and how, without its millions of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trueup.model.cells import Margin
from trueup.model.guarantee import Guarantee
from trueup.model.header import Measured


@dataclass(frozen=True)
class Miss:
    """How far released counts are from the noisy ones of a query at a level.

    Attributes
    ----------
    query, level
        The query and its level.
    counts
        How many noisy counts there are.
    rms
        Root mean square of released minus noisy count (counts).
    """

    query: str
    level: str
    counts: int
    rms: float


@dataclass(frozen=True)
class ReleaseByBlocks:
    """What is public of a release by blocks, beside its tables.

    Attributes
    ----------
    folder
        The bundle that holds the tables.
    digest
        SHA-256 over the digests of all parts of the measurements; it seeded everything after them.
    headers
        Every measurement.
    guarantee
        What is protected, at what cost.
    sizes
        Number of places of every level, from the root.
    cells
        Cells of each place's histogram.
    published
        The released tables: the histogram of every level.
    method, checks, stats
        As in `Release`.
    misses
        Released against noisy counts, for every noisy query and level.
    """

    folder: str
    digest: str
    headers: tuple[Measured, ...]
    guarantee: Guarantee
    sizes: Mapping[str, int]
    cells: int
    published: tuple[Margin, ...]
    method: Mapping[str, Any]
    checks: Mapping[str, bool]
    stats: Mapping[str, Any]
    misses: tuple[Miss, ...]
