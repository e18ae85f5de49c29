"""Wang's multinomial draws (the 2020 draft's Algorithms 1 and 2), applied to every parent from the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.multinomial.mode import multinomial_draw_tree
from trueup.model.prior import FLAT, EachPrior
from trueup.reconciling.estimates import Estimator, Multinomial


@dataclass(frozen=True)
class MultinomialSample(Multinomial):
    """Split each total among its parts by a draw from the multinomial distribution.

    Noisier than `multinomial-mode`: a draw adds the multinomial's own variance. Offered because
    tables have been published with it.

    Attributes
    ----------
    algorithm
        1: total and weights are draws from the posteriors of the counts. 2: total and weights are
        their modes (with flat priors the noisy counts, negative ones taken as zero).
    total, monte_carlo, empty, prior, prior_total
        As in `multinomial-mode`.

    References
    ----------
    Wang (2020), section 3.1.1, Algorithms 1 and 2.
    """

    algorithm: Literal[1, 2] = 2
    total: Literal["independent", "summed"] = "independent"
    monte_carlo: int = 0
    empty: Literal["error", "uniform"] = "uniform"
    prior: EachPrior = FLAT
    prior_total: EachPrior = FLAT

    name: ClassVar[str] = "multinomial-sample"
    title: ClassVar[str] = "each total split by a multinomial draw (Wang 2020, Algorithms 1 and 2)"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})
    random: ClassVar[bool] = True

    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        plan, draw = estimator.plan, self.algorithm == 1
        weights = estimator.draws(row) if draw else estimator.modes(row)
        exact = np.where(plan.settled(), weights, -1)
        return multinomial_draw_tree(
            plan.problem.child_ptr,
            weights,
            int(weights[0]),
            estimator.rng,
            exact=exact,
            empty=self.empty,
            label=plan.problem.nested.label,
        )
