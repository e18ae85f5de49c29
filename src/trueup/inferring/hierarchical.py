"""Hyperparameters of the hierarchical prior: their mode by exact evidence and gradient, and which are uncertain.

Everything rests on the published noisy values. The log evidence is what messages up the tree come to; its gradient
costs one pass down (Fisher's identity, `trueup.kernel.messages.splits`). The search is BFGS in the logs of the
concentrations; each pass starts from the tilts of the last.

Parameters that few parts inform are uncertain. How much that matters is measured: each is moved by a third of its
posterior standard deviation, and the posterior means of all counts are compared with those at the mode. To first order a
parameter of standard deviation s that moves a mean by `d` per s adds `d^2` to the variance of that count. Where the
largest d, in standard deviations of the count, is above `NOTICED / sqrt(k)` for k parameters, the parameter is
integrated over (`trueup.inferring.prior_mixture`). All others stay at the mode, as if they were known: together they
would widen no interval by more than `NOTICED^2 / 2` of its width, .5 %, which is .17 points of the coverage of a 90 %
interval. Those that more than `FEW` parts inform are not tried. The record says which were integrated over, how far each
moves counts, and whatever makes that doubtful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.layouts.splits import Splits
from trueup.model.prior import Hierarchical

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Objective = Callable[[Reals], tuple[float, Reals, Reals]]
"""Log posterior density of hyperparameters (up to a constant), its gradient, and under them the posterior means and standard
deviations `(2, n)` of all counts."""

NOTICED = 0.1
"""Standard deviations of a count by which the uncertainty of all parameters that are held at the mode may move it."""
FEW = 2000
"""Parts that inform a hyperparameter, up to which its curvature is worked out."""
STEPS = 30
SETTLED = 0.05
"""Standard deviations by which the mode may be off."""
MOST = 2.0
"""Longest step in the log of a concentration."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Where the log density of `k` hyperparameters is largest, and its curvature there.

    Attributes
    ----------
    theta
        (k,) the mode.
    covariance
        (k, k) inverse of the negative curvature.
    shift
        (k,) by how many of its standard deviations a count's mean moves at most where the parameter does by one of its own;
        NaN of those that more than `FEW` parts inform.
    steps
        Evaluations of evidence and gradient.
    settled
        Whether the search ended where the gradient is next to nothing.
    """

    theta: Reals
    covariance: Reals
    shift: Reals
    steps: int
    settled: bool = True

    @property
    def sd(self) -> Reals:
        """Posterior standard deviations (k,), by the curvature at the mode."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def matters(self) -> NDArray[np.bool_]:
        """Whether the uncertainty of each (k,) may widen some interval."""
        return self.shift > NOTICED / np.sqrt(len(self.theta))


def start_of(splits: Splits) -> tuple[Reals, Reals, Integers]:
    """Return hyperparameters to start from, a guess of their variances, and those that few parts inform.

    The guess is two over the parts that inform each; few are up to `FEW`.
    """
    informed = np.concatenate(
        [splits.families(), np.full(splits.covariates.shape[1], splits.free.sum()), splits.held()]
    )
    return np.zeros(len(informed)), 2.0 / (informed + 0.5), np.flatnonzero(informed <= FEW)


def climb(objective: Objective, theta: Reals, variances: Reals, few: Integers) -> Estimate:
    """Find the mode by BFGS with backtracking, then the curvature of the hyperparameters `few` by differences of gradients.

    For the others, which many parts inform, the curvature is the one that BFGS has learnt; they move counts next to nothing.
    """
    inverse = np.diag(variances)
    value, gradient, counts = objective(theta)
    evaluations, settled = 1, False
    for _ in range(STEPS):
        step = inverse @ gradient
        if settled := bool(gradient @ step < SETTLED**2):
            break
        step *= min(1.0, MOST / np.abs(step).max())
        size = 1.0
        while True:
            fresh, slope, moved = _or_nothing(objective, theta + size * step)
            evaluations += 1
            if fresh >= value + 1e-4 * size * (gradient @ step) or size < 1e-3:
                break
            size *= 0.3
        if not fresh > value:
            break
        inverse = _updated(inverse, size * step, gradient - slope)
        theta, value, gradient, counts = theta + size * step, fresh, slope, moved
    covariance = np.diag(np.diag(inverse))
    here = gradient, *counts
    covariance[np.ix_(few, few)], slopes = _curvature(objective, theta, here, few, np.sqrt(np.diag(inverse)))
    shift = np.full(len(theta), np.nan)
    shift[few] = slopes * np.sqrt(np.diag(covariance))[few]
    return Estimate(theta, covariance, shift, evaluations + len(few), settled)


def _or_nothing(objective: Objective, theta: Reals) -> tuple[float, Reals, Reals]:
    """Return minus infinity where a prior is so far from the measurements that no window of counts holds its posterior."""
    try:
        return objective(theta)
    except ConvergenceError:
        return -np.inf, np.zeros(len(theta)), np.zeros((2, 0))


def _updated(inverse: Reals, moved: Reals, bent: Reals) -> Reals:
    """Return the BFGS update of an inverse curvature, unless the function is not concave along the step."""
    product = moved @ bent
    if product <= 1e-10:
        return inverse
    left = np.eye(len(moved)) - np.outer(moved, bent) / product
    return left @ inverse @ left.T + np.outer(moved, moved) / product


def _curvature(
    objective: Objective, theta: Reals, here: tuple[Reals, Reals, Reals], few: Integers, scale: Reals
) -> tuple[Reals, Reals]:
    """Invert the negative second derivatives, found by a step of a third of a standard deviation in each direction.

    `here` holds the gradient, the means and the standard deviations of counts at `theta`.

    Returns
    -------
    covariance, slopes
        And by how many of its standard deviations a count's mean moves at most for each unit of the parameter.
    """
    gradient, mean, spread = here
    second, slopes = np.empty((len(few), len(few))), np.empty(len(few))
    uncertain = spread > 1e-6
    for row, i in enumerate(few):
        width = np.clip(scale[i] / 3, 1e-3, 0.3)
        _, slope, (moved, _) = objective(theta + width * np.eye(len(theta))[i])
        second[row] = (gradient - slope)[few] / width
        slopes[row] = (np.abs(moved - mean)[uncertain] / spread[uncertain]).max(initial=0.0) / width
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    return (vectors / np.maximum(values, 0.05)) @ vectors.T, slopes


def given(prior: Hierarchical, splits: Splits) -> Reals:
    """Return hyperparameters for concentrations that were given; all values of an attribute are as likely."""
    if len(prior.concentrations) != splits.concentrations:
        raise SpecError(
            f"prior 'hierarchical' has {len(prior.concentrations)} concentrations",
            needed=f"{splits.concentrations}, one for each margin below the root",
        )
    theta = np.zeros(len(splits.names))
    theta[: splits.concentrations] = np.log(prior.concentrations)
    return theta
