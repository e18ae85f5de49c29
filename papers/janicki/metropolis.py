"""The paper's own sampler: Metropolis-Hastings with normal proposals around the noisy counts, cut to what the rules allow.

For Laplace noise of scale b the proposals' variance is `pi b^2 / 2`, which minimises the Kullback-Leibler divergence of the
normal law from the Laplace law; for normal noise they have the noise's own variance, and all that obey the rules are accepted.
Where the noisy counts are far from the rules few proposals obey them, so every other step is a random walk. All places move
at once.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

BURN_IN, WALK = 500, 0.7
"""Steps that are left out; standard deviation of the random walk, in that of the proposals."""


def sample(
    noisy: Reals, spread: float, normal: bool, largest: float, steps: int, rng: np.random.Generator
) -> Reals:
    """Draws `(steps / 2, places, 3)` of persons under 18, over 18, and families, given their noisy counts `(places, 3)`.

    Parameters
    ----------
    noisy
        Noisy counts.
    spread
        Standard deviation of normal noise, scale of Laplace noise (counts).
    normal
        Whether the noise is normal.
    largest
        Most members of a family.
    steps
        Steps after those that are left out; every second is kept.
    rng
        Generator.
    """
    width = spread if normal else spread * sqrt(pi / 2)

    def target(counts: Reals) -> Reals:
        apart = (counts - noisy) / spread
        return (-0.5 * apart**2 if normal else -np.abs(apart)).sum(axis=1)

    def proposal(counts: Reals) -> Reals:
        return (-0.5 * ((counts - noisy) / width) ** 2).sum(axis=1)

    now, kept = start(noisy, largest), np.empty((steps // 2, *noisy.shape))
    level, weight = target(now), proposal(now)
    for step in range(BURN_IN + steps):
        walk = step % 2 == 1
        jump = width * rng.standard_normal(noisy.shape)
        new = now + WALK * jump if walk else noisy + jump
        new_level, new_weight = target(new), proposal(new)
        gain = new_level - level - (0.0 if walk else new_weight - weight)
        moved = obeys(new, largest) & (np.log(1 - rng.random(len(new))) < gain)
        now = np.where(moved[:, None], new, now)
        level, weight = np.where(moved, new_level, level), np.where(moved, new_weight, weight)
        if walk and step >= BURN_IN:
            kept[(step - BURN_IN) // 2] = now
    return kept


def obeys(counts: Reals, largest: float) -> NDArray[np.bool_]:
    """Whether counts obey the rules: none negative, at least one family, families of 2 to `largest`."""
    members, families = counts[:, 0] + counts[:, 1], counts[:, 2]
    inside = (members >= 2 * families) & (members <= largest * families)
    return inside & (families >= 1) & (counts[:, 0] >= 0) & (counts[:, 1] >= 0)


def start(noisy: Reals, largest: float) -> Reals:
    """Counts near the noisy ones that obey the rules.

    Examples
    --------
    >>> obeys(start(np.array([[-50.0, 9.0, -30.0], [900.0, 900.0, 1.0]]), 10.0), 10.0)
    array([ True,  True])
    """
    young, old = np.maximum(noisy[:, :2], 0.0).T
    families = np.maximum(np.maximum(noisy[:, 2], 1.0), (young + old) / largest * 1.001)
    old = old + np.maximum(2.001 * families - young - old, 0.0)
    return np.column_stack([young, old, families])
