"""Wang and Reiter's multinomial mode, and Wang's draws (the 2020 draft's Algorithms 1 and 2), from the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.multinomial.mode import multinomial_draw_tree, multinomial_mode_tree
from trueup.model.prior import FLAT, EachPrior
from trueup.reconciling.estimates import EstimateLayout, Estimator, Multinomial


@dataclass(frozen=True)
class MultinomialMode(Multinomial):
    """Split each total among its parts by a mode of the multinomial distribution.

    Trials are the posterior mode of the total, probabilities proportional to the posterior modes
    of the parts: with flat priors the noisy counts themselves, negative ones taken as zero.

    Attributes
    ----------
    total
        What a count is estimated from: its own noisy versions (`independent`), or these and the
        sum of its parts' noisy counts (`summed`).
    monte_carlo
        0 for the exact law of the summed noise, or the number of draws that approximate it
        (10,000 in the paper).
    empty
        What to do where a total is left to split among parts that are all zero: refuse with
        `error`, or split it evenly with `uniform`.
    ties
        Where parts tie for a unit: `first` as published (the order of the parts decides, and
        favours some of them), or `shuffled` (a random order for each parent).
    prior, prior_total
        Priors on the finest cells and on the grand total.

    References
    ----------
    Wang and Reiter (2021), sections 3.1 and 3.2.
    """

    total: Literal["independent", "summed"] = "independent"
    monte_carlo: int = 0
    empty: Literal["error", "uniform"] = "uniform"
    ties: Literal["first", "shuffled"] = "first"
    prior: EachPrior = FLAT
    prior_total: EachPrior = FLAT

    name: ClassVar[str] = "multinomial-mode"
    title: ClassVar[str] = "each total split by a multinomial mode (Wang and Reiter 2021)"
    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        plan, weights = estimator.plan, estimator.modes(row)
        exact = np.where(plan.settled(), weights, -1)
        return multinomial_mode_tree(
            plan.problem.child_ptr,
            weights,
            int(weights[0]),
            exact=exact,
            empty=self.empty,
            order=self._order(plan, estimator.rng),
            label=plan.problem.nested.label,
        )

    def _order(self, plan: EstimateLayout, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """Return a random order of the nodes that keeps siblings together, or None."""
        if self.ties == "first":
            return None
        child_ptr = plan.problem.child_ptr
        parent = np.concatenate([[-1], np.repeat(np.arange(child_ptr.size - 1), np.diff(child_ptr))])
        return np.lexsort((rng.random(parent.size), parent))


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
