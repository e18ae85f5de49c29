"""Results of inference methods, and contradictions found in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError
from trueup.model.cells import Margin
from trueup.model.records.marginals import Marginals, Reals


@dataclass(frozen=True, eq=False)
class Drawn:
    """The result of an inference method.

    Attributes
    ----------
    draws
        `(chains, draws, n)` counts of the finest cells; of large trees in 32 bits, where all their sums and the square of
        each fit.
    independent
        Whether draws are exact and independent (one chain); otherwise they are Markov chains.
    connected
        Of Markov chains: whether their moves are proved to reach every possible table.
    marginals
        Exact marginals of margins, where the method has them.
    mode
        `(n,)` a most probable vector of counts, where the method has one.
    r_hat, ess
        `(n,)` diagnostics of chains; None for independent draws.
    refused
        Why the draws are no answer; empty where they passed every test.
    stats
        Dropped mass, acceptance rates, chains: what a reader must know of how it was computed.
    tables
        Margins to report besides those with exact marginals and the finest.
    approximate
        What the draws approximate, and how far they were checked; empty where they are those of the posterior.
    """

    draws: NDArray
    independent: bool
    marginals: Mapping[Margin, Marginals] = field(default_factory=dict)
    mode: NDArray | None = None
    r_hat: Reals | None = None
    ess: Reals | None = None
    refused: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    connected: bool = False
    tables: tuple[Margin, ...] = ()
    approximate: str = ""

    def accepted(self, method: str) -> Drawn:
        """Return the draws marked as accepted if they passed every test."""
        if self.refused:
            raise ConvergenceError(f"method '{method}' did not converge: {self.refused}")
        return self

    @property
    def kind(self) -> str:
        """Return in words what the draws are; convergence is claimed only if moves are known to reach every table.

        Examples
        --------
        >>> Drawn(np.zeros((4, 9, 1)), independent=False).kind
        'draws of Markov chains that agree; that they reach every possible table is not known'
        """
        if self.approximate and self.independent:
            return "independent draws of an approximation"
        if self.approximate:
            return "approximate draws of Markov chains of a fixed length"
        if self.independent:
            return "independent draws"
        known, unknown = "converged", "agree; that they reach every possible table is not known"
        return f"draws of Markov chains that {known if self.connected else unknown}"


class Conflict(NamedTuple):
    """A query whose noisy counts are further from the posterior than chance explains.

    Attributes
    ----------
    margin, query
        What was measured.
    residual
        Root mean square of its residuals from the posterior means, in standard deviations of the noise.
    log_probability
        Upper bound on the log probability of residuals as large as these, if the truth follows the prior.
    """

    margin: str
    query: str
    residual: float
    log_probability: float

    def __str__(self) -> str:
        tenth = int(np.ceil(self.log_probability / np.log(10)))
        return (
            f"'{self.query}' of '{self.margin}' (residuals of {self.residual:.1f} standard deviations of the noise; "
            f"probability below 1e{tenth} if the truth follows the prior)"
        )
