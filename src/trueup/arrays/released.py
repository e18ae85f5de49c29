"""The posterior of the parts of a sum, given released parts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import check_draws, check_generator, whole_vector
from trueup.arrays.laws import Laws, each_law
from trueup.errors import SpecError
from trueup.inferring.released.posterior import ModePosterior, draw_posterior
from trueup.inferring.released.sums import two_parts
from trueup.inferring.released.zero import ZeroPosterior
from trueup.layouts.released import ReleasedSum
from trueup.model.three_lines import ThreeLines
from trueup.noise.law import Law

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedPosterior(ThreeLines):
    """The posterior of the true parts of a sum, given released parts alone."""

    _problem: ReleasedSum
    _drawn: bool

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw `(draws, n)` true parts: independent for a mode; four nearly independent chains for a draw."""
        check_draws(draws, each=self._problem.counts.size)
        check_generator(rng)
        if self._problem.trials == 0:
            return ZeroPosterior.of(self._problem).draw(draws, rng)
        if not self._drawn:
            return ModePosterior.of(self._problem).draw(draws, rng)[0]
        chains = draw_posterior(self._problem, 4, -(-draws // 4), rng)
        return chains.reshape(-1, chains.shape[-1])[:draws]

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"ReleasedPosterior: {self._problem.counts.size:,} parts of a sum",
            f"given parts released by a multinomial {'draw' if self._drawn else 'mode'} alone",
            ".draw(draws, rng) of all parts; .table() of two",
        )

    def table(self) -> tuple[Integers, Integers, Reals]:
        """Return exact masses of two parts: counts of the first, of the second, and `(k, l)` probabilities."""
        return two_parts(self._problem, drawn=self._drawn)


def posterior_of_released(
    parts: ArrayLike,
    law: Laws,
    total_law: Law | None,
    *,
    release: Literal["mode", "sample"] = "mode",
    total: Literal["independent", "summed"] = "independent",
    algorithm: Literal[1, 2] = 2,
) -> ReleasedPosterior:
    """Return the posterior of the true parts of a sum that a multinomial mode or draw made add up.

    Parameters
    ----------
    parts
        (n,) released whole parts; the released total is their sum.
    law, total_law
        Noise of each part and of the total before the release; None where the total was not measured.
    release
        `mode` (Wang and Reiter; Wang's Algorithm 3) or `sample`, a multinomial draw.
    total
        How the release estimated the total: from its own noisy count, or from the sum of the parts as well.
    algorithm
        Of a draw: 1 redraws weights from posteriors, 2 takes noisy counts.

    Raises
    ------
    DataError
        Parts that are not whole.
    SpecError
        Parts below zero, or noise that cannot be tabulated.

    References
    ----------
    Wang and Reiter (2021), section 4; Wang (2020), sections 3.1.1 and 3.2.

    Examples
    --------
    >>> from trueup.arrays import discrete_laplace
    >>> first, second, mass = posterior_of_released([250, 357], discrete_laplace(1), discrete_laplace(1)).table()
    >>> round(float(mass[first == 250, second == 357][0]), 4)
    0.2136
    """
    counts = whole_vector(parts, "the released parts")
    laws, (of_total,) = each_law(law, counts.size), each_law([total_law], 1)
    if not counts.size:
        raise SpecError("there are no released parts", needed="a count for each part")
    if total not in ("independent", "summed") or algorithm not in (1, 2):
        raise SpecError(
            "the release is not described", needed="total 'independent' or 'summed', algorithm 1 or 2"
        )
    if release not in ("mode", "sample") or any(one is None for one in laws):
        raise SpecError(
            "the release is not described", needed="release 'mode' or 'sample', and a law for each part"
        )
    how = algorithm if release == "sample" else 2
    return ReleasedPosterior(ReleasedSum(counts, laws, of_total, total, algorithm=how), release == "sample")
