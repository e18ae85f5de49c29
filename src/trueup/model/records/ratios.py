"""Ratios of sums of cells at every place: their coefficients, and estimates from noisy values alone."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from trueup.model.cells import Cells
from trueup.model.constraints import name_mask
from trueup.model.linear import parse_sum
from trueup.model.records.marginals import Columns, Reals
from trueup.model.records.quantity import Ratio

Weights = tuple[Reals, Reals, float]
"""Coefficients above and below, and what is added below."""


def ratio_weights(cells: Cells, ratio: Ratio) -> Weights:
    """Return the coefficients `(attribute combinations,)` above and below, and the constant below: 1 without a denominator."""
    above = _weights(cells, parse_sum(ratio.numerator))
    below = _weights(cells, parse_sum(ratio.denominator)) if ratio.denominator else np.zeros(len(above))
    return above, below, float(not ratio.denominator)


def _weights(cells: Cells, terms: Mapping[str, Fraction]) -> Reals:
    return np.sum([float(c) * name_mask(cells, name).ravel() for name, c in terms.items()], axis=0)


def noisy_ratio(
    cells: Cells, noisy: tuple[Reals, Reals], weights: Weights, name: str, level: float
) -> Columns:
    """Return the ratio of noisy values and its Fieller set at every place of the last level; None above it.

    Parameters
    ----------
    noisy
        Each cell's noisy value and its variance, `(n,)`.
    """
    from scipy.special import ndtri

    from trueup.kernel.statistics.fieller import fieller

    if name != cells.tree.levels[-1]:
        places = cells.tree.sizes[cells.tree.level(name)]
        none = np.full(places, np.nan)
        return {"noisy": none, "fieller": np.full(places, ""), "fieller_low": none, "fieller_high": none}
    above, below, whole = weights
    values, variances = (v.reshape(cells.shape[0], -1) for v in noisy)
    num, den = values @ above, values @ below + whole
    spread = variances @ above**2, variances @ below**2
    kind, low, high = fieller(num, den, spread, float(ndtri(0.5 + level / 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"noisy": num / den, "fieller": kind, "fieller_low": low, "fieller_high": high}
