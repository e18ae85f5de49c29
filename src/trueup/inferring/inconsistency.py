"""How far published parts miss their published totals, and how much of that their laws explain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.model.cells import Cells, Margin
from trueup.model.nested import canonical
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior

DRAWS = 200
"""Draws of the true counts over which the laws' variances are averaged."""


class Inconsistency(NamedTuple):
    """Of one published margin and a finer one.

    Attributes
    ----------
    total, parts
        The margins.
    compared
        Totals all of whose parts are published as numbers.
    missed
        Share of them that the parts do not sum to.
    mean_square
        Mean squared difference (counts squared).
    by_law
        What the laws make of it, given the true counts of the posterior, were all changes independent.
    """

    total: Margin
    parts: Margin
    compared: int
    missed: float
    mean_square: float
    by_law: float

    @property
    def explained(self) -> float:
        """What the laws explain, as a share of what is seen; above 1 where they would make more of it."""
        return self.by_law / self.mean_square if self.mean_square else float("nan")


def inconsistencies(measured: Measurements, posterior: Posterior) -> list[Inconsistency]:
    """Compare every published margin with every finer one.

    Parameters
    ----------
    measured
        Published tables.
    posterior
        Of their true counts.

    Examples
    --------
    See `docs/perturbed.md`.
    """
    shown = _numbers(measured)
    return list(_compared(measured.cells, shown, posterior))


class _Numbers(NamedTuple):
    """Numbers `(groups,)` of a margin, NaN where none is published, and the law of each."""

    values: NDArray[np.float64]
    laws: list[tuple[Any, NDArray[np.int64]]]


def _numbers(measured: Measurements) -> dict[Margin, _Numbers]:
    found: dict[Margin, _Numbers] = {}
    cells = measured.cells
    for header, values in zip(measured.headers, measured.values):
        margin = canonical(cells, header.margin)
        if margin.where or not header.law.numeric:
            continue
        held = found.setdefault(margin, _Numbers(np.full(cells.size(margin), np.nan), []))
        groups = np.arange(cells.size(margin)) if header.groups is None else header.groups
        new = np.isnan(held.values[groups])
        held.values[groups[new]] = values[new]
        held.laws.append((header.law, groups[new]))
    return found


def _compared(cells: Cells, shown: dict[Margin, _Numbers], posterior: Posterior) -> Iterator[Inconsistency]:
    draws = posterior.draws.reshape(-1, cells.n)[:DRAWS]
    for total, coarse in shown.items():
        for parts, fine in shown.items():
            if parts == total or not cells.contains(total, parts):
                continue
            group, size = cells.groups(parts, total), cells.size(total)
            differ = np.bincount(group, fine.values, size) - coarse.values
            use = np.isfinite(differ)
            if not use.any():
                continue
            by_law = _expected(cells, total, coarse, draws) + np.bincount(
                group, _expected(cells, parts, fine, draws), size
            )
            yield Inconsistency(
                total,
                parts,
                int(use.sum()),
                float((differ[use] != 0).mean()),
                float((differ[use] ** 2).mean()),
                float(by_law[use].mean()),
            )


def _expected(cells: Cells, margin: Margin, numbers: _Numbers, draws: NDArray) -> NDArray[np.float64]:
    """Mean variance of each published number over draws of the true counts."""
    true = cells.sum(draws, margin)
    found = np.zeros(cells.size(margin))
    for law, groups in numbers.laws:
        found[groups] = law.variance_at(true[:, groups]).mean(axis=0)
    return found
