"""Columns of the public list of places that the hierarchical prior names: shares and covariates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.nested import NestedTree

Reals = NDArray[np.float64]


def column_name(given: str | tuple[float, ...]) -> str:
    """Return the name of a prior's input: a column, or numbers."""
    return f"column '{given}'" if isinstance(given, str) else "numbers that were given"


def public_column(given: str | tuple[float, ...], nested: NestedTree) -> Reals:
    """Return a public number for each of the finest cells."""
    cells = nested.cells
    if not isinstance(given, str):
        if len(given) != cells.n:
            raise SpecError(f"the prior has {len(given)} numbers", needed=f"one for each of {cells.n} cells")
        return np.asarray(given, float)
    held = cells.tree.limits[-1] if cells.tree.limits else {}
    if given not in held:
        raise SpecError(
            f"the prior names the column '{given}', which the public list of places was read without",
            needed="places that were read for this spec, with that column",
        )
    missing = np.isnan(held[given]) if held[given].dtype.kind == "f" else held[given] < 0
    if missing.any():
        raise SpecError(
            f"the prior's column '{given}' is empty for some places", needed="a number for every place"
        )
    return np.repeat(held[given].astype(float), cells.n // len(held[given]))


def public_shares(given: str | tuple[float, ...], nested: NestedTree) -> Reals:
    """Return the shares of the finest cells, up to a constant; refuse all zeros."""
    values = public_column(given, nested)
    if not np.isfinite(values).all() or (values < 0).any():
        raise SpecError(
            f"the prior's shares, {column_name(given)}, hold a negative or missing number", needed="0 or more"
        )
    if not values.any():
        raise SpecError(f"the prior's shares, {column_name(given)}, are all 0", needed="some number above 0")
    return values


def standardised(values: Reals, given: str | tuple[float, ...]) -> Reals:
    """Return a covariate less its mean, over its standard deviation."""
    spread = float(np.std(values))
    if not np.isfinite(values).all() or spread == 0:
        raise SpecError(
            f"the covariate, {column_name(given)}, is the same everywhere or not finite",
            needed="numbers that vary",
        )
    return (values - values.mean()) / spread
