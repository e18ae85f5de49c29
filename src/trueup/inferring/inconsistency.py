"""Inconsistency of published parts and totals, and how much of it their laws explain.

Let c = y - x be the change of each published value y of true count x, with mean m over the values of a margin and mean square
v at each of them. Were the changes of n parts and of their total independent of each other and of where the values stand, their
difference would have the mean square

    sum (v - m^2)  +  (v' - m'^2)  +  (n m - m')^2,

a prime for the total. The moments are those of the law given the true count, which the posterior's draws stand for: a rounding to
the nearest multiple leaves nothing to chance once the true count is known, and its change, over counts that are not, is what
it explains.
"""

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
    """The inconsistency of one published margin with a finer one.

    Attributes
    ----------
    total, parts
        The margins.
    compared
        Totals all of whose parts are published as numbers.
    left_out
        Totals of which some part is not shown.
    missed
        Share of them that the parts do not sum to.
    mean_square
        Mean squared difference (counts squared).
    by_law
        What the laws make of it, were all changes independent.
    """

    total: Margin
    parts: Margin
    compared: int
    left_out: int
    missed: float
    mean_square: float
    by_law: float

    @property
    def explained(self) -> float | None:
        """Return the explained share of the observed inconsistency (above 1 if laws imply more); None if there is none."""
        return self.by_law / self.mean_square if self.mean_square else None


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
    shown = _published_numbers(measured)
    return list(_compared(measured.cells, shown, posterior))


class _Numbers(NamedTuple):
    """Numbers `(groups,)` of a margin, NaN where none is published, and the law of each."""

    values: NDArray[np.float64]
    laws: list[tuple[Any, NDArray[np.int64]]]


def _published_numbers(measured: Measurements) -> dict[Margin, _Numbers]:
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
    moments = {margin: _change_moments(cells, margin, numbers, draws) for margin, numbers in shown.items()}
    for total, coarse in shown.items():
        for parts, fine in shown.items():
            if parts == total or not cells.contains(total, parts):
                continue
            group, size = cells.groups(parts, total), cells.size(total)
            differ = np.bincount(group, fine.values, size) - coarse.values
            use = np.isfinite(differ)
            if not use.any():
                continue
            one, other = moments[total], moments[parts]
            shift = np.bincount(group, minlength=size) * other.mean - one.mean
            spread = one.squares - one.mean**2 + np.bincount(group, other.squares - other.mean**2, size)
            published = np.isfinite(coarse.values)
            yield Inconsistency(
                total,
                parts,
                int(use.sum()),
                int((published & ~use).sum()),
                float((differ[use] != 0).mean()),
                float((differ[use] ** 2).mean()),
                float((spread + shift**2)[use].mean()),
            )


class _Change(NamedTuple):
    """Mean change of a margin's published values, and the mean square `(groups,)` of each."""

    mean: float
    squares: NDArray[np.float64]


def _change_moments(cells: Cells, margin: Margin, numbers: _Numbers, draws: NDArray) -> _Change:
    """Return the moments of the changes of published numbers over draws of the true counts."""
    true = cells.sum(draws, margin)
    mean, squares = np.zeros(cells.size(margin)), np.zeros(cells.size(margin))
    for law, groups in numbers.laws:
        x = true[:, groups]
        away = np.zeros(x.shape) if law.additive else law.mean(x) - x
        mean[groups] = away.mean(axis=0)
        squares[groups] = (law.variance_at(x) + away**2).mean(axis=0)
    known = np.isfinite(numbers.values)
    return _Change(float(mean[known].mean()), squares)
