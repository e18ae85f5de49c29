"""Blocks of rows of one kind, and priors written as such blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.layouts.factors import FittedMasses
from trueup.model.prior import Bounded, Flat, FlatTotal, Masses, NegativeBinomial, Poisson, Prior

Reals = NDArray[np.float64]
FIRST_TABLE = 0.5
"""What `TABLED` holds for a table whose first entry is of the count 0 and stands first."""


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Rows of one kind: a sparse matrix `(r, n)` and, for each column of `Rows`, a number or `(r,)` values."""

    matrix: Any
    centre: Any = 0.0
    slope: Any = 0.0
    curve: Any = 0.0
    reach: Any = np.inf
    low: Any = -np.inf
    high: Any = np.inf
    gamma: tuple[Any, Any, Any, Any] = (0.0, 0.0, 0.0, 0.0)
    tabled: Any = 0.0

    def column(self, name: str) -> NDArray:
        """Return one of the columns in full."""
        return np.broadcast_to(np.asarray(getattr(self, name), float), self.matrix.shape[:1])

    @property
    def factors(self) -> Reals:
        """Return all columns `(r, 11)` in the order of `Rows.factors`."""
        first = (self.column(name) for name in ("centre", "slope", "curve", "reach", "low", "high"))
        gamma = (np.broadcast_to(part, self.matrix.shape[:1]) for part in self.gamma)
        return np.column_stack([*first, *gamma, self.column("tabled")]).astype(float)


def prior_blocks(prior: Prior | FittedMasses, box: Reals) -> tuple[tuple[FactorBlock, ...], Reals, Reals]:
    """Return a prior on cells `(n,)` as blocks of rows, its table of log masses, and the box `(2, n)` of its support."""
    n, none, box = box.shape[1], np.zeros(0), box.copy()
    each, whole = scipy.sparse.eye_array(n, format="csr"), scipy.sparse.csr_array(np.ones((1, n)))
    if not isinstance(prior, Flat):
        box[0] = np.maximum(box[0], 0)
    match prior:
        case Bounded():
            box[1] = np.minimum(box[1], prior.upper)
        case Flat():
            pass
        case Masses():
            possible = np.flatnonzero(prior.masses)
            box = np.stack([np.maximum(box[0], possible[0]), np.minimum(box[1], possible[-1])])
            return (FactorBlock(each, tabled=FIRST_TABLE),), prior.logpmf(np.arange(len(prior.masses))), box
        case FittedMasses():
            counts = prior.log.shape[1]
            box[1] = np.minimum(box[1], counts - 1)
            return (FactorBlock(each, tabled=FIRST_TABLE + counts * prior.kind),), prior.log.ravel(), box
        case Poisson():
            prior.refuse_other_than(n)
            return (FactorBlock(each, gamma=(-1, 0, 0, np.log(prior.mean))),), none, box
        case NegativeBinomial():
            prior.refuse_other_than(n)
            mean, size = np.asarray(prior.mean, float), np.asarray(prior.size, float)
            return (FactorBlock(each, gamma=(-1, 1, size, np.log(mean / (mean + size)))),), none, box
        case FlatTotal():
            return (*_flat_total(prior, each, whole, box),), none, box
        case _:
            table = prior.tabled()
            box[1] = np.minimum(box[1], len(table) - 1)
            return (FactorBlock(each, tabled=FIRST_TABLE),), table, box
    return (), none, box


def _flat_total(prior: FlatTotal, each: Any, whole: Any, box: Reals):
    """Yield the factor that makes the total's own prior flat (see `FlatTotal.log_total`)."""
    cells = max(int((box[1] > 0).sum()), 1)
    if prior.split == "uniform":
        yield FactorBlock(whole, high=prior.upper, gamma=(1, -1, cells, 0))
        return
    with np.errstate(divide="ignore"):
        shares = np.log(prior.shares(len(box[1])))
    box[1, np.isinf(shares)] = np.minimum(box[1, np.isinf(shares)], 0)
    yield FactorBlock(whole, high=prior.upper, gamma=(1, 0, 0, 0))
    yield FactorBlock(each, gamma=(-1, 0, 0, np.where(np.isinf(shares), 0, shares)))
