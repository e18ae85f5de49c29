"""Wang and Reiter's multinomial mode and Wang's draws, which split counts from the top down.

Fields that both have are those of `Multinomial`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from trueup.kernel.multinomial.mode import multinomial_draw_tree, multinomial_mode_tree
from trueup.layouts.tree import refuse_unmeasured, tree_problem
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.prior import COUNT_PRIORS, FLAT, EachPrior, settle_priors
from trueup.reconciling.estimates import EstimateLayout, Estimator, layout
from trueup.reconciling.method import Method, Solution


@dataclass(frozen=True)
class Multinomial(Method):
    """Base of the methods that split each total among its parts, from the top down.

    Attributes
    ----------
    total
        The values from which a count is estimated: its own noisy versions (`independent`), or these and the
        sum of its parts' noisy counts (`summed`).
    monte_carlo
        0 for the exact law of the summed noise, or the number of draws that approximate it
        (10,000 in the paper).
    empty
        The rule where a total is left to split among parts that are all zero: refuse with
        `error`, or split it evenly with `uniform`.
    prior, prior_total
        Priors on the finest cells and on the grand total.
    """

    total: Literal["independent", "summed"] = "independent"
    monte_carlo: int = 0
    empty: Literal["error", "uniform"] = "uniform"
    prior: EachPrior = FLAT
    prior_total: EachPrior = FLAT

    structures: ClassVar[frozenset[str]] = frozenset({"sum", "tree"})

    def __post_init__(self) -> None:
        settle_priors(self, COUNT_PRIORS)

    def refuses(self, constraints: Constraints) -> str | None:
        """Return why the method cannot keep bounds or negative counts, or None if it can."""
        if constraints.bounds:
            return "it supports invariants and structural zeros, but no other bounds"
        return None if constraints.nonnegative else "its counts are never negative"

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> EstimateLayout:
        """Return the layout of the tree with its measurements and priors."""
        problem = tree_problem(constraints, headers)
        refuse_unmeasured(problem)
        return layout(problem, self.total, self.prior, self.prior_total, self.monte_carlo)

    def apply(self, state: EstimateLayout, values: NDArray, rng: np.random.Generator) -> Solution:
        """Split totals from the top down into counts of all cells."""
        estimator = Estimator(state, rng)
        rows = np.atleast_2d(values).astype(np.int64)
        nodes = np.stack([self._split(estimator, row) for row in rows])
        return Solution(state.problem.finest(nodes).reshape(*values.shape[:-1], -1))

    def _rules(self, plan: EstimateLayout, weights: NDArray) -> dict[str, Any]:
        """Return the named arguments of the split: exact counts, rule for empty parts, and labels."""
        exact = np.where(plan.settled(), weights, -1)
        return {"exact": exact, "empty": self.empty, "label": plan.problem.nested.label}

    @abstractmethod
    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        """Split a total down the tree, given one row of measured values; return the counts of all nodes."""


@dataclass(frozen=True)
class MultinomialMode(Multinomial):
    """Splits of each total among its parts by a mode of the multinomial distribution.

    Trials are the posterior mode of the total, probabilities proportional to the posterior modes
    of the parts: with flat priors the noisy counts themselves, negative ones taken as zero.

    Attributes
    ----------
    ties
        The order in which parts that tie get a unit: `first` as published (the order of the parts decides, and
        favours some of them), or `shuffled` (a random order for each parent).

    References
    ----------
    Wang and Reiter (2021), sections 3.1 and 3.2.
    """

    ties: Literal["first", "shuffled"] = "first"

    name: ClassVar[str] = "multinomial-mode"
    title: ClassVar[str] = "each total split by a multinomial mode (Wang and Reiter 2021)"

    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        plan, weights = estimator.plan, estimator.modes(row)
        return multinomial_mode_tree(
            plan.problem.child_ptr,
            weights,
            int(weights[0]),
            order=self._order(plan, estimator.rng),
            **self._rules(plan, weights),
        )

    def _order(self, plan: EstimateLayout, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """Return a random order of the nodes that keeps siblings together, or None for the tree's order."""
        if self.ties == "first":
            return None
        child_ptr = plan.problem.child_ptr
        parent = np.concatenate([[-1], np.repeat(np.arange(child_ptr.size - 1), np.diff(child_ptr))])
        return np.lexsort((rng.random(parent.size), parent))


@dataclass(frozen=True)
class MultinomialSample(Multinomial):
    """Splits of each total among its parts by a draw from the multinomial distribution.

    Noisier than `multinomial-mode`: a draw adds the multinomial's own variance. Offered because
    tables have been published with it.

    Attributes
    ----------
    algorithm
        1: total and weights are draws from the posteriors of the counts. 2: total and weights are
        their modes (with flat priors the noisy counts, negative ones taken as zero).

    References
    ----------
    Wang (2020), section 3.1.1, Algorithms 1 and 2.
    """

    algorithm: Literal[1, 2] = 2

    name: ClassVar[str] = "multinomial-sample"
    title: ClassVar[str] = "each total split by a multinomial draw (Wang 2020, Algorithms 1 and 2)"
    random: ClassVar[bool] = True

    def _split(self, estimator: Estimator, row: NDArray) -> NDArray[np.int64]:
        plan, draw = estimator.plan, self.algorithm == 1
        weights = estimator.draws(row) if draw else estimator.modes(row)
        return multinomial_draw_tree(
            plan.problem.child_ptr,
            weights,
            int(weights[0]),
            estimator.rng,
            **self._rules(plan, weights),
        )
