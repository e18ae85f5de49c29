"""Posterior draws of nonnegative counts that keep the invariants, from counts released with lattice noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import DataError, SpecError
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.kernel.table_walks import fibre

PILOT, THIN = 2000, 10
SLOWEST = 1e-3
"""Expected seconds for one noise vector beyond which rejection is not tried."""


@dataclass(frozen=True)
class Nonnegative:
    """Draws of nonnegative counts with the invariants of the release, under a flat prior.

    Attributes
    ----------
    draws
        `(d, n)` integers.
    exact
        Share of the pieces drawn independently and exactly, by rejection.
    acceptance
        Smallest share of proposals accepted by rejection, 1 if no piece needed it.
    r_hat, ess
        Largest R-hat and smallest bulk effective sample size over cells drawn by chains; 1 and d without chains.
    connected
        Whether every chain's moves are known to reach every point.
    """

    draws: NDArray[np.int64]
    exact: float
    acceptance: float
    r_hat: float
    ess: float
    connected: bool

    @property
    def mean(self) -> NDArray[np.float64]:
        """Posterior mean of each cell (counts); it keeps the invariants, not integrality."""
        return self.draws.mean(axis=0)


def nonnegative_tables(
    law: Any, noisy: NDArray[np.int64], count: int, rng: np.random.Generator
) -> Nonnegative:
    """Draw nonnegative counts given counts that were released with a lattice law.

    Parameters
    ----------
    law
        `LatticeLaplace` or `LatticeGaussian`, bound to its lattice, without weights.
    noisy
        The released counts `(n,)`.
    count
        Number of draws `d`.
    rng
        A generator seeded from public measurements; no secret randomness is used.

    Raises
    ------
    SpecError
        The law is not bound, or is no product over cells.
    DataError
        The counts have another length, or a pinned or invariant count is negative.

    Examples
    --------
    >>> from trueup.kernel.lattice.structure import Lattice
    >>> from trueup.noise.lattice.laws import LatticeLaplace
    >>> law = LatticeLaplace("1/2").on(Lattice.of(3, [[1, 1, 1]]))
    >>> found = nonnegative_tables(law, np.array([-1, 4, 2]), 200, np.random.default_rng(0))
    >>> found.exact, int(found.draws.min()), set(found.draws.sum(axis=1).tolist())
    (1.0, 0, {5})
    """
    rate, power = _kernel(law)
    bound, noisy = law.bound, np.asarray(noisy, dtype=np.int64)
    if noisy.shape != (bound.n,):
        raise DataError(f"{noisy.size} counts", needed=f"{bound.n}, one per cell of the lattice")
    if (noisy[bound.lattice.pinned] < 0).any():
        raise DataError("a count that the invariants determine is negative", remedy="check the release")
    draws = np.tile(noisy, (count, 1))
    acceptances, diagnoses, connected = [1.0], [], True
    for (cells, choice), piece in zip(bound.pieces, bound.lattice.pieces):
        found, share = _reject(choice, noisy[cells], count, rng)
        if found is None:
            walked = fibre.fibre_walk(piece, noisy[cells], rate, power, -(-count // 4), THIN, rng)
            diagnoses.append(_diagnose(walked.draws))
            found, connected = walked.draws.reshape(-1, len(cells))[:count], connected and walked.connected
        else:
            acceptances.append(share)
        draws[:, cells] = found
    r_hat = max((float(np.max(r, initial=1.0)) for r, _ in diagnoses), default=1.0)
    ess = min((float(np.min(e, initial=count)) for _, e in diagnoses), default=float(count))
    exact = 1 - len(diagnoses) / len(bound.pieces)
    return Nonnegative(draws, exact, min(acceptances), r_hat, ess, connected)


def _diagnose(draws: NDArray[np.int64]):
    """R-hat and effective sizes of the cells that move; a fibre of one point has nothing to converge."""
    moving = np.ptp(draws, axis=(0, 1)) > 0
    return (
        diagnose(draws[:, :, moving]) if moving.any() else (np.ones(1), np.full(1, np.prod(draws.shape[:2])))
    )


def _kernel(law: Any) -> tuple[float, int]:
    if law.bound is None or not hasattr(law, "factor"):
        raise SpecError(
            f"law '{law.name}' is not bound to a lattice, or is no product over cells",
            needed="'lattice-laplace' or 'lattice-gaussian', bound",
        )
    return law.factor


def _reject(choice: Any, noisy: NDArray[np.int64], count: int, rng: np.random.Generator):
    """Draw `noisy - v >= 0` by rejection; None where a pilot accepts fewer than one in a hundred."""
    if choice.seconds > SLOWEST or choice.distance:
        return None, 0.0
    kept = [_keep(choice, noisy, PILOT, rng)]
    share = len(kept[0]) / PILOT
    if share < 0.01:
        return None, share
    while sum(map(len, kept)) < count:
        kept.append(_keep(choice, noisy, max(PILOT, int(1.1 * count / share / 4)), rng))
    return np.concatenate(kept)[:count], share


def _keep(choice: Any, noisy: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    proposed = noisy - choice.draw(size, rng.bytes).vectors
    return proposed[(proposed >= 0).all(axis=1)]
