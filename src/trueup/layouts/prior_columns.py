"""Inputs of the hierarchical prior: a second kind of parts, and columns of the public list of places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.model.nested import NestedTree

Reals = NDArray[np.float64]


class Kinds(NamedTuple):
    """The second kind of parts (see `trueup.kernel.messages.kinds`), as a function of the hyperparameters.

    Attributes
    ----------
    b, log_odds
        Its parameter, and the log of `q`.
    slopes
        (3, 2) derivatives of `log_odds` and of `log b` by the log of `a`, the logit of the share, and that of the ratio.
    """

    b: float
    log_odds: float
    slopes: Reals

    @classmethod
    def of(cls, log_a: float, share: float, ratio: float, mean: float) -> Kinds:
        """Return kinds whose parts are negative binomial at one rate and together have a `mean`.

        With rho the share of the second kind, given by its logit, and `c = b / a` the ratio, given by its own,

            q = rho / (1 - rho) (1 + s)^(a - b),        s = mean / (a (1 - rho + rho c)).
        """
        a, (rho, c) = np.exp(log_a), 1 / (1 + np.exp([-share, -ratio]))
        weight = 1 - rho + rho * c
        s = mean / (a * weight)
        log, less = np.log1p(s), s / (1 + s)
        slopes = np.array(
            [
                [a * (1 - c) * (log - less), 1.0],
                [1 + a * (1 - c) ** 2 * less / weight * rho * (1 - rho), 0.0],
                [-a * c * (log + (1 - c) * rho * less / weight) * (1 - c), 1 - c],
            ]
        )
        return cls(float(a * c), float(share + a * (1 - c) * log), slopes)


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
