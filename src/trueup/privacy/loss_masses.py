"""Masses of a privacy loss, and the delta that they imply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.noise.law import Reals
from trueup.noise.losses import Losses

Composed = Sequence[tuple[Losses, int]]
"""Losses of steps, and how many there are of each."""

MAX_LOG_SCALE = 500.0
"""Largest logarithm of a scale: what underflows, below 1e-308, is then below 1e-90."""


@dataclass(frozen=True, eq=False)
class LossMasses:
    """Masses `p exp(log_scale - tilt loss)` at losses, ascending; `error` bounds the Euclidean error of p."""

    loss: Reals
    p: Reals
    log_scale: float = 0.0
    tilt: float = 0.0
    error: float = 0.0
    above: float = 0.0

    def delta(self, epsilon: float) -> float:
        """Return the right side of (1) in `trueup.privacy.composition`, rounded up."""
        if (log_scale := self.log_scale - self.tilt * epsilon) > MAX_LOG_SCALE:
            return 1.0  # far below what is looked for
        first = int(np.searchsorted(self.loss, epsilon, "right"))
        beyond = self.loss[first:] - epsilon
        weight = np.exp(-self.tilt * beyond) * -np.expm1(-beyond)
        rounding = self.error * float(np.sqrt(weight @ weight))
        return rounded_up(exp(log_scale) * (float(np.sum(self.p[first:] * weight)) + rounding)) + self.above


def rounded_up(amount: float) -> float:
    """Return an amount above its unrounded value, for pairwise sums and a few operations."""
    return amount * (1 + 1e-12)


def power(base: NDArray[Any], number: int, times: Callable[..., NDArray[Any]]) -> NDArray[Any]:
    """Return `base` to a power of at least one, by squaring."""
    whole = None
    while True:
        if number & 1:
            whole = base if whole is None else times(whole, base)
        number >>= 1
        if not number:
            return whole if whole is not None else base
        base = times(base, base)
