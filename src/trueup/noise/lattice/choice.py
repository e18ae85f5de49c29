"""Choice of a sampler for each piece of a lattice, with the expected number of proposals (tries).

A proposal drawn from independent factors is accepted with probability `Z_target / Z_proposal`, and the
lattice's normaliser is `Z_L = prod_i Z_i P(A v = 0)` for independent cells v. By the local limit theorem

    P(A v = 0)  ~  (2 pi)^(-m/2) det(A S A')^(-1/2) [Z^m : A Z^n] exp(sum_i k_i h_i^2 / 8),

S = diag(variances), k_i the excess kurtosis of cell i and h_i its leverage (first Edgeworth term at zero).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from trueup.errors import PrivacyError
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.structure import Lattice
from trueup.noise.law import Words

CELL, ROW, STEP = 1e-8, 4e-8, 1e-7
"""Rough seconds for one cell of a rejection, one cell of a composition, one step of Klein's walk."""
LARGEST_TABLE = 2**18
"""Entries of a sampler's largest table: some seconds and some hundred megabytes to prove it."""
LARGEST_COMPOSITION = 2**31
"""Places that a composition takes: its uniforms are below 2^32."""
LARGEST_SUM = 2**62
"""Limit of sums of noise, below which they fit 64-bit integers."""
NOISE_REACH_NATS = 64
"""Cells with `exp(-epsilon |v|)` below `exp(-64) < 2^-92` are out of the question; see `noise_reach`."""


def noise_reach(parameter: Fraction, laplace: bool) -> float:
    """Return the count that the noise of a cell exceeds with a probability below `2^-92`."""
    return (
        NOISE_REACH_NATS / float(parameter) if laplace else math.sqrt(2 * NOISE_REACH_NATS * float(parameter))
    )


def half_norm(n: int, epsilon: Fraction) -> tuple[float, float]:
    """Return the largest K and the number of entries in the table of K for one sum of n cells."""
    x = math.exp(-2 * float(epsilon))
    gap = -math.expm1(-2 * float(epsilon))
    spread = math.sqrt((2 * n - 1) * x / gap**2 + n / 8)
    beyond = 10 * spread + NOISE_REACH_NATS / float(epsilon)
    return (2 * n - 1) * x / gap + n / 2 + beyond, 20 * spread + NOISE_REACH_NATS / float(epsilon) + 4


def too_long(entries: float) -> str:
    """Return words for a table with more than `LARGEST_TABLE` entries, or an empty text."""
    return f"a table of {entries:.3g} entries, at most {LARGEST_TABLE:,}" if entries > LARGEST_TABLE else ""


def laplace_factor(epsilon: Fraction) -> tuple[float, float, float]:
    """Return the log normaliser, variance and excess kurtosis of one cell's Laplace noise."""
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    return math.log((1 + a) / gap), 2 * a / gap**2, (1 + 4 * a + a * a) / max(2 * a, 1e-300)


def gaussian_factor(sigma2: Fraction) -> tuple[float, float, float]:
    return 0.5 * math.log(2 * math.pi * float(sigma2)), float(sigma2), 0.0


def aggregate_gain(epsilon: Fraction, m: int) -> float:
    """Return the log factor by which drawing m cells together raises the probability of acceptance.

    With `a = exp(-epsilon)` the chance is `(1 - a) / (1 + a)^(2m-1) sum_j C(m-1, j)^2 a^(2j)`.
    """
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    series = sum(math.comb(m - 1, j) ** 2 * a ** (2 * j) for j in range(m))
    return (2 * m - 1) * math.log(1 + a) - math.log(gap) - math.log(series)


def log_mass(matrix, cells, index: int | None = None) -> float:
    """Return an estimate of the log probability that independent cells have all sums of `matrix` zero.

    It is at least 0: the zero vector has mass 1.
    """
    masses, variances, kurtoses = (np.array(part) for part in zip(*cells))
    if not len(matrix):
        return float(masses.sum())
    variances = np.maximum(variances, 1e-200)  # noise that vanishes is refused later, by its query's name
    gram = (matrix * variances) @ matrix.T
    leverages = variances * (matrix * np.linalg.solve(gram, matrix)).sum(axis=0)
    size = len(matrix) * math.log(2 * math.pi) + np.linalg.slogdet(gram)[1]
    found = masses.sum() - size / 2 + math.log(index or algebra.index(matrix)) + kurtoses @ leverages**2 / 8
    return float(max(found, 0.0))


def tries_for(log_acceptance: float) -> float:
    return math.exp(min(max(-log_acceptance, 0.0), 700.0))


Arithmetic = Literal["integer", "bounded", "double"]
_HOW = {
    "integer": "integer arithmetic only",
    "bounded": "doubles with proven bounds, and integers where these do not decide",
    "double": "exact up to the rounding of doubles",
}


@dataclass(frozen=True)
class Choice:
    """The sampler chosen for one piece of a lattice, with its expected time and a bound on its rounding.

    Attributes
    ----------
    sampler
        `composition`, `rows`, `basis`, `free`, `klein`, `path` or `mixture`.
    arithmetic
        `integer`: decisions on proven integer thresholds. `bounded`: on proven bounds of doubles, too, and exact like these.
        `double`: exact but for the rounding of doubles.
    tries
        Expected proposals for one vector.
    seconds
        Rough expected time for one vector.
    draw
        `draw(count, words) -> Drawn`, vectors over the piece's cells in flat order.
    rounding
        Upper limit of the total variation between what is drawn in doubles and the law; 0 where it is not derived, or nothing
        rounds.
    beyond
        The part of the sampler's set-up that exceeds a limit, with the limit; empty if there is none.
    """

    sampler: str
    arithmetic: Arithmetic
    tries: float
    seconds: float
    draw: Callable[[int, Words], Any]
    rounding: float = 0.0
    beyond: str = ""

    def sentence(self) -> str:
        """Return a sentence on the choice of the sampler."""
        if self.beyond:
            return f"sampler '{self.sampler}' would need {self.beyond}"
        about = f"about {self.tries:.3g} tries, {self.seconds:.2g} s a vector"
        told = f"sampler '{self.sampler}' ({_HOW[self.arithmetic]}), {about}"
        return f"{told}, within total variation {self.rounding:.3g} of the law" if self.rounding else told


@dataclass(frozen=True)
class BoundSampler:
    """The samplers of a law on a lattice, one for each piece.

    Attributes
    ----------
    lattice
        The lattice.
    pieces
        `(cells, choice)` for each.
    """

    lattice: Lattice
    pieces: tuple[tuple[np.ndarray, Choice], ...]

    @property
    def n(self) -> int:
        """Return the number of cells."""
        return self.lattice.n

    @property
    def dimension(self) -> int:
        """Return the dimension of the lattice."""
        return self.lattice.dimension

    @cached_property
    def exact_in_integers(self) -> bool:
        """Return True if no decision of the samplers depends on rounding."""
        return all(choice.arithmetic != "double" for _, choice in self.pieces)

    @property
    def rounding(self) -> float:
        """Return an upper bound on the total variation distance between the draws and the law."""
        return sum(choice.rounding for _, choice in self.pieces)

    def draw(self, count: int, words: Words):
        """Return `count` noise vectors `(count, n)`, with zero at cells that the invariants determine."""
        from trueup.kernel.lattice_samplers import TapeDraws

        vectors, tries = np.zeros((count, self.n), np.int64), 0
        for cells, choice in self.pieces:
            drawn = choice.draw(count, words)
            vectors[:, cells] = drawn.vectors
            tries += drawn.tries
        return TapeDraws(vectors, tries)

    def explain(self) -> list[str]:
        """Return one line for each sampler: the number of pieces that it draws, and a description."""
        alike: dict[tuple[str, str], list[Choice]] = {}
        for _, choice in self.pieces:
            alike.setdefault((choice.sampler, choice.arithmetic), []).append(choice)
        return [
            f"{len(found)} x {max(found, key=lambda choice: choice.seconds).sentence()}"
            for found in alike.values()
        ]


def nothing_drawn(*_) -> Any:
    """Raise an error, because the chosen sampler was refused and may not draw."""
    raise PrivacyError(
        "a sampler that was refused is asked to draw", remedy="report this as an error in trueup"
    )
