"""A smaller (epsilon, delta) for the same noise, by privacy-loss distributions (extra `pld`).

dp-accounting composes the distributions of the privacy loss themselves (Koskela et al., 2020;
Doroshenko et al., 2022) and rounds them towards the pessimistic side of a grid, in floating point. So the
figure is an upper bound up to rounding errors of doubles, and is shown beside the exact accounting,
never charged to a ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trueup.errors import SpecError
from trueup.noise.law import Law


@dataclass(frozen=True)
class LossPart:
    """Noise of one law on a vector of which one unit of privacy changes `cells` counts by `each`."""

    law: Law
    cells: int
    each: int = 1


def tighter_epsilon(parts: Iterable[LossPart], delta: float, *, grid: float = 1e-4) -> float:
    """Bound epsilon at `delta` for a composition of discrete Laplace and discrete Gaussian noise.

    Parameters
    ----------
    parts
        The composed vectors of noise.
    delta
        Between zero and one.
    grid
        Spacing of the privacy losses; the result is pessimistic by at most about one spacing per cell.

    Returns
    -------
    float
        Epsilon, to be read with its floating-point caveat.

    Raises
    ------
    SpecError
        If dp-accounting is not installed, a law has no such distribution, `delta` is out of range,
        or there is no part.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from trueup.noise import law_named
    >>> noise = law_named("discrete-gaussian")(Fraction(50))
    >>> 0 < tighter_epsilon([LossPart(noise, cells=1)] * 5, 1e-6) < 2
    True
    """
    if not 0 < delta < 1:
        raise SpecError("delta is not between zero and one")
    total = None
    for one in (_distribution(part, grid).self_compose(part.cells) for part in parts):
        total = one if total is None else total.compose(one)
    if total is None:
        raise SpecError("nothing is composed", needed="at least one part")
    return float(total.get_epsilon_for_delta(delta))


def _distribution(part: LossPart, grid: float) -> Any:
    """Distribution of the privacy loss of one count."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise SpecError(
            "tighter composition needs dp-accounting", remedy="pip install 'trueup[pld]'"
        ) from None
    return part.law.loss_distribution(pld, part.each, grid)
