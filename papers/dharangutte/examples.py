"""What the items of Dharangutte, Gao, Gong & Yu share: their examples, laws and noise.

The paper's epsilons are not stated in words. For the first two examples 1/4 fits both noise tables that it prints
(see `dharangutte-tables`); for counties 0.192 is what the Census Bureau gave that level, taken from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from papers.row import Row, claim, furthest
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.lattice import LatticeL2Laplace, LatticeLaplace
from trueup.reporting.drawing.pictures import Figure, strips

Integers = NDArray[np.int64]

PAPER = "Dharangutte, Gao, Gong & Yu (2023)"
EPSILON, EPSILON_COUNTIES = Fraction(1, 4), Fraction("0.192")
RUNS, DRAWS = 1000, 40_000
"""Realisations behind the paper's box plots, and ours of the two small examples."""

COUNTIES, EDUCATION = ("Alpha", "Beta", "Gamma", "Delta"), ("Low", "Medium", "High", "Very High")
CHILDREN = np.array([[15, 1, 3, 1], [20, 10, 10, 15], [3, 10, 10, 2], [12, 14, 7, 2]])
"""Delinquent children by county and education of the household head (fictitious), Table 2."""


@dataclass(frozen=True, eq=False)
class Example:
    """Cells with invariants `(m, n)`, and what the cells are called."""

    title: str
    invariants: Integers
    cells: tuple[str, ...]

    def noise(self, norm: int, count: int, rng: np.random.Generator) -> Integers:
        """Exact draws `(count, n)` from the generalized Laplace mechanism with the L1 or the L2 norm."""
        law = {1: LatticeLaplace, 2: LatticeL2Laplace}[norm](EPSILON)
        lattice = Lattice.of(len(self.cells), self.invariants)
        return law.on(lattice).bound.draw(count, rng.bytes).vectors


def records() -> Example:
    """The 14 records: three sets, and two records in each of the seven regions where they cross.

    Examples
    --------
    >>> records().invariants.sum(axis=1)
    array([8, 8, 8])
    """
    regions = [sets for sets in product((1, 0), repeat=3) if any(sets)]
    names = ["".join(name for name, inside in zip("ABC", sets) if inside) for sets in regions]
    cells = tuple(f"{name} {copy}" for name in names for copy in (1, 2))
    return Example("14 records", np.repeat(np.array(regions).T, 2, axis=1), cells)


def children() -> Example:
    """The 4 x 4 table with both margins kept."""
    rows, columns = np.kron(np.eye(4), np.ones(4)), np.tile(np.eye(4), 4)
    names = tuple(f"{county}, {level}" for county in COUNTIES for level in EDUCATION)
    return Example("4 x 4 table", np.vstack([rows, columns]).astype(np.int64), names)


def keeps(example: Example, noise: Integers, label: str) -> Row:
    """Claim that noise changes no invariant."""
    largest = int(np.abs(noise @ example.invariants.T).max())
    draws = f"{len(noise):,} draws" if len(noise) > 1 else "one draw"
    return claim(f"{label}: largest change of an invariant in {draws}", "0", str(largest), largest == 0)


def unbiased(errors: NDArray, label: str) -> Row:
    """Claim that no cell's average error is further from zero than chance explains."""
    spread = errors.std(axis=0) / np.sqrt(len(errors))
    return furthest(f"{label}: average errors of cells", errors.mean(axis=0), 0.0, np.maximum(spread, 1e-12))


def boxes(errors: NDArray, names: tuple[str, ...], message: str) -> Figure:
    """Draw every cell's errors."""
    quantiles = np.quantile(errors, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0).T
    values = dict(zip(names, quantiles.tolist()))
    return strips(values, "error (counts)", message, f"Errors over {len(errors):,} draws. {message}")
