"""Two kinds of parts in the hierarchical prior: odds and parameter of the second, from the hyperparameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
