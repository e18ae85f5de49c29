"""The posterior that both papers show: two parts released as 250 and 357, noise of epsilon 1 on parts and total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from papers.row import Row, claim, compare
from trueup.inferring.released import two_parts
from trueup.layouts.released import ReleasedSum
from trueup.noise import DiscreteLaplace

RELEASED = (250, 357)
WINDOW, NEGLIGIBLE = 30, 1e-10
"""The papers let true counts be at most this far from the released ones; what they cut off of the noise is below e^-30."""
Pair = tuple[int, int]

HIGHEST: dict[Pair, str] = {
    (250, 357): "0.21",
    (251, 356): "0.13",
    (251, 357): "0.08",
    (250, 356): "0.08",
    (249, 358): "0.07",
    (250, 358): "0.05",
    (249, 357): "0.05",
    (251, 358): "0.03",
    (249, 356): "0.03",
    (252, 355): "0.03",
}
"""The ten true counts of highest probability behind the mode, as both papers print them."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Masses `(k, l)` of the true counts `first` `(k,)` and `second` `(l,)`."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    mass: NDArray[np.float64]

    def of(self, pair: Pair) -> float:
        """Mass of one pair of true counts."""
        return float(self.mass[self.first == pair[0], self.second == pair[1]][0])

    def highest(self, number: int) -> list[Pair]:
        """Pairs of highest mass, the highest first."""
        order = np.argsort(-self.mass, axis=None, kind="stable")[:number]
        i, j = np.unravel_index(order, self.mass.shape)
        return list(zip(self.first[i].tolist(), self.second[j].tolist()))

    def within(self, radius: int) -> Posterior:
        """The posterior of true counts at most `radius` from the released ones."""
        rows, columns = (np.abs(n - k) <= radius for n, k in zip((self.first, self.second), RELEASED))
        mass = self.mass[np.ix_(rows, columns)]
        return Posterior(self.first[rows], self.second[columns], mass / mass.sum())

    def weighted(self, weight: NDArray[np.float64]) -> Posterior:
        """The posterior times a further weight `(k, l)`."""
        mass = self.mass * weight
        return Posterior(self.first, self.second, mass / mass.sum())


def posterior(*, drawn: bool = False) -> Posterior:
    """Exact posterior behind a multinomial mode, or behind a draw (Algorithm 2)."""
    law = DiscreteLaplace(Fraction(1))
    return Posterior(*two_parts(ReleasedSum(np.array(RELEASED), (law, law), law), drawn=drawn))


def enumerated() -> Posterior:
    """The papers' own procedure (section 4): every noisy pair up to 30 from every true pair up to 30 from the released one.

    A noisy pair has weight 1 if the printed algorithm, in whole numbers, makes the released pair of it, and 0 if not.
    """
    true = [released + np.arange(-WINDOW, WINDOW + 1) for released in RELEASED]
    noisy = [released + np.arange(-2 * WINDOW, 2 * WINDOW + 1) for released in RELEASED]
    made = np.array(
        [[finucan((a, b), sum(RELEASED)) == RELEASED for b in noisy[1].tolist()] for a in noisy[0].tolist()]
    )
    given = [likelihoods(n[:, None] - k[None, :]) for n, k in zip(true, noisy)]
    total = likelihoods(true[0][:, None] + true[1][None, :] - sum(RELEASED), sum(RELEASED))
    mass = given[0] @ made @ given[1].T * total
    return Posterior(true[0], true[1], mass / mass.sum())


def likelihoods(noise: NDArray[np.int64], farthest: int = WINDOW) -> NDArray[np.float64]:
    """Masses of two-sided geometric noise of epsilon 1, up to a constant, and zero beyond `farthest`."""
    return np.where(np.abs(noise) <= farthest, np.exp(-np.abs(noise, dtype=float)), 0.0)


def finucan(weights: Pair, trials: int) -> Pair:
    """Section 2.2 for two parts, in whole numbers: `f T` in place of f, quotients compared across; equal ones, the first.

    Examples
    --------
    >>> finucan((1, 9), 11)
    (1, 10)
    """
    total = sum(weights)
    k = [(trials + 1) * w // total for w in weights]
    f = [(trials + 1) * w % total for w in weights]
    while sum(k) < trials:
        chosen = 0 if (total - f[0]) * (k[1] + 1) <= (total - f[1]) * (k[0] + 1) else 1
        k[chosen], f[chosen] = k[chosen] + 1, f[chosen] - total
    while sum(k) > trials:
        chosen = 0 if f[0] * k[1] <= f[1] * k[0] else 1
        k[chosen], f[chosen] = k[chosen] - 1, f[chosen] + total
    return k[0], k[1]


def as_enumerated(found: Posterior) -> Row:
    """Hold every probability up to 30 from the released counts to the papers' enumeration."""
    gap = float(np.abs(found.within(WINDOW).mass - enumerated().mass).max())
    label = f"All {(2 * WINDOW + 1) ** 2:,} pairs, by the paper's enumeration: largest difference"
    return claim(label, "", f"{gap:.1g}", gap < NEGLIGIBLE)


def ten_highest(found: Posterior, printed: dict[Pair, str] = HIGHEST) -> list[Row]:
    """Printed probabilities beside ours, and whether these are the ten highest."""
    rows = [compare(_name(pair), figure, found.of(pair)) for pair, figure in printed.items()]
    return [*rows, same_pairs(found, list(printed))]


def same_pairs(found: Posterior, printed: Sequence[Pair]) -> Row:
    """Claim that the printed pairs are the ten highest, in the printed order up to equal masses."""
    masses = np.array([found.of(pair) for pair in printed])
    holds = set(found.highest(len(printed))) == set(printed) and np.all(np.diff(masses) < 1e-4)
    ours = "the same" if holds else ", ".join(map(_name, found.highest(len(printed))))
    return claim("The ten pairs of highest probability, in order", "as listed", ours, bool(holds))


def _name(pair: Pair) -> str:
    return f"P({pair[0]}, {pair[1]})"
