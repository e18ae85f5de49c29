"""The posterior mode of the hierarchical prior's hyperparameters, with its uncertainty, from exact evidence.

Everything rests on the published noisy values. Messages up the tree give the log evidence; its gradient
costs one pass down (Fisher's identity, `trueup.layouts.splits`). The search is by quasi-Newton steps in the logs of the
concentrations; each pass starts from the tilts of the last. On large trees it rests on a sample of their families
(`trueup.inferring.tree_work`), and begins on a smaller one.

Parameters that few parts inform are uncertain. How much that matters is measured: each is moved by a third of its
posterior standard deviation, and the posterior means of all counts are compared with those at the mode. To first order a
parameter of standard deviation s that moves a mean by `d` per s adds `d^2` to the variance of that count. Where the
largest d, in standard deviations of the count, is above `NOTICED / sqrt(k)` for k parameters, the parameter is
integrated over (`trueup.inferring.prior_mixture`). All others stay at the mode, as if they were known: together they
would widen no interval by more than `NOTICED_SHIFT_SDS^2 / 2` of its width, .5 %, which is .17 points of the coverage of a 90 %
interval. Those that more than `MAX_CURVATURE_PARTS` parts inform are not tried. The record says which were integrated over,
how far each moves counts, and whatever makes that doubtful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, SpecError
from trueup.layouts.splits import Splits
from trueup.model.prior import Hierarchical

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

NOTICED_SHIFT_SDS = 0.1
"""Standard deviations of a count by which the uncertainty of all parameters that are held at the mode may move it."""
MAX_CURVATURE_PARTS = 2000
"""Parts that inform a hyperparameter, up to which its curvature is worked out."""
MAX_ASCENT_STEPS = 30
MODE_TOLERANCE_SDS, NEARLY = 0.05, 0.1
"""Standard deviations by which the mode may be off: of a whole tree, and of a sample of its families, which is off by more."""
JOINT_TOLERANCE_COUNT = 10
"""Hyperparameters of more than which the mode is sought only until their root mean square is that near it."""
MAX_VARIED_HYPERPARAMETERS = 16
"""Hyperparameters up to which the curvature is found by varying each; of more, concentrations alone are varied."""
HYPERPRIOR_CURVATURE = 0.25
"""About the curvature of the log hyperprior."""
VALUE_ERROR = 1e-5
"""Share of a log density by which it may err: .1 to 2 nats of trees of 2,000 to 50,000 counts, seen on grids."""
MAX_LOG_STEP = 2.0
"""Longest step in the log of a concentration."""


class Density(NamedTuple):
    """The log posterior density of `k` hyperparameters at one point, with its gradient.

    Attributes
    ----------
    value, gradient
        Log posterior density (up to a constant) and its gradient (k,).
    counts
        (2, n) posterior means and standard deviations of all counts under them.
    information
        (k, k) scatter of families' scores: about the negative curvature, for hyperparameters that many families inform.
    """

    value: float
    gradient: Reals
    counts: Reals
    information: Reals


Objective = Callable[[Reals], Density]


@dataclass(frozen=True, eq=False)
class Estimate:
    """The posterior mode of `k` hyperparameters, and the curvature of the log density there.

    Attributes
    ----------
    theta
        (k,) the mode.
    covariance
        (k, k) inverse of the negative curvature.
    shift
        (k,) by how many of its standard deviations a count's mean moves at most where the parameter does by one of its own;
        NaN of those that more than `MAX_CURVATURE_PARTS` parts inform.
    steps
        Evaluations of evidence and gradient.
    settled
        True if the search ended at a negligible gradient.
    """

    theta: Reals
    covariance: Reals
    shift: Reals
    steps: int
    settled: bool = True

    @property
    def sd(self) -> Reals:
        """Return the standard deviations (k,) of the hyperparameters, from the curvature at the mode.

        For hyperparameters that more than `MAX_CURVATURE_PARTS` parts inform, they come from the scatter of scores. These are
        too small if the prior describes counts badly, so no record states them.
        """
        return np.sqrt(np.diag(self.covariance))

    @property
    def matters(self) -> NDArray[np.bool_]:
        """Return a mask (k,) of the hyperparameters whose uncertainty may widen some interval of a count."""
        return self.shift > NOTICED_SHIFT_SDS / np.sqrt(len(self.theta))


class Ascent(NamedTuple):
    """The result of a search for the mode: its last point, the density there, and the steps taken."""

    theta: Reals
    here: Density
    inverse: Reals
    evaluations: int
    settled: bool


def start_of(splits: Splits) -> tuple[Reals, Reals, Integers]:
    """Return starting hyperparameters, a guess of their covariance, and those that few parts inform.

    The guess of each variance is two over the parts that inform it; few are up to `MAX_CURVATURE_PARTS`.
    """
    covariates = np.full(splits.covariates.shape[1], splits.free.sum())
    kinds = np.repeat(splits.families()[-1:], splits.of_kinds)
    informed = np.concatenate([splits.families(), covariates, splits.held(), kinds]).astype(np.float64)
    return (
        np.zeros(len(informed)),
        np.diag(2.0 / (informed + 0.5)),
        np.flatnonzero(informed <= MAX_CURVATURE_PARTS),
    )


def noisy_start(theta: Reals, splits: Splits, noisy: Reals, variance: Reals) -> Reals:
    """Return starting hyperparameters whose log weights of values come from sums of noisy counts.

    `noisy` and `variance` are of all nodes (counts, counts squared), the variance infinite where nothing was measured. A search
    from equal weights takes the differences between values for differences between places, and many steps to see that.
    """
    begin, many = splits.concentrations + splits.covariates.shape[1], len(splits.held())
    held = (splits.category >= 0) & np.isfinite(variance)
    of = splits.category[held]
    sums, squares, offered = (
        np.bincount(of, each[held], many) for each in (noisy, variance, np.exp(splits.log_share))
    )
    start, own = theta.copy(), slice(begin, begin + many)
    log = np.log(np.maximum(np.maximum(sums, np.sqrt(squares)), 1.0) / np.maximum(offered, 1e-300))
    for depth in np.unique(splits.depths[own]):
        at = (splits.depths[own] == depth) & (offered > 0)
        start[own][at] = log[at] - log[at].mean() if at.any() else 0.0
    return start


def varied(few: Integers, splits: Splits) -> Integers:
    """Return the hyperparameters for which the curvature is computed, from those that few parts inform."""
    return few if len(few) <= MAX_VARIED_HYPERPARAMETERS else few[few < splits.concentrations]


def with_curvature(objective: Objective, mode: Ascent, guess: Reals, few: Integers) -> Estimate:
    """Return the estimate of the mode, with the curvature there from differences of gradients.

    For hyperparameters that many parts inform, the curvature is the scatter of families' scores (Berndt et al. 1974), corrected
    by the last step; these hyperparameters hardly move any count.
    """
    theta, here, _, evaluations, ended = mode
    inverse = _inverse(here.information, guess, few)
    covariance = inverse.copy()
    covariance[np.ix_(few, few)], shifts = _curvature(objective, theta, here, few, np.sqrt(np.diag(inverse)))
    shift = np.full(len(theta), np.nan)
    shift[few] = shifts
    return Estimate(theta, covariance, shift, evaluations + len(few), ended)


def ascend(
    objective: Objective,
    theta: Reals,
    guess: Reals,
    few: Integers,
    within: float = MODE_TOLERANCE_SDS,
    steps: int = MAX_ASCENT_STEPS,
    late: Callable[[], bool] = lambda: False,
) -> Ascent:
    """Search for the mode until its estimated distance is `within` standard deviations, or `late` returns True.

    With hundreds of hyperparameters, of which the values say little, most steps would be made for the last hundredths of a nat.
    """
    here, evaluations, settled = objective(theta), 1, False
    near = within**2 * max(1.0, len(theta) / JOINT_TOLERANCE_COUNT)
    inverse = _inverse(here.information, guess, few)
    for _ in range(steps):
        step = inverse @ here.gradient
        if (settled := bool(here.gradient @ step < near)) or late():
            break
        step *= min(1.0, MAX_LOG_STEP / np.abs(step).max())
        size = 1.0
        while True:
            fresh = _or_nothing(objective, theta + size * step)
            evaluations += 1
            better = _is_better(fresh, here, size * step)
            if better or size < 1e-3:
                break
            size *= 0.3
        if not better:
            break
        inverse = _updated(
            _inverse(fresh.information, inverse, few), size * step, here.gradient - fresh.gradient
        )
        theta, here = theta + size * step, fresh
    return Ascent(theta, here, inverse, evaluations, settled)


def _is_better(fresh: Density, here: Density, step: Reals) -> bool:
    """Return True if a step improves the density. Where values are too inaccurate, judge by slopes.

    These are the Wolfe condition and the approximate one of Hager and Zhang (2005): slopes are zero more exactly than values are
    largest.
    """
    rise, left = here.gradient @ step, fresh.gradient @ step
    if fresh.value >= here.value + 1e-4 * rise:
        return True
    return bool(fresh.value >= here.value - VALUE_ERROR * abs(here.value) and abs(left) < 0.9 * rise)


def _inverse(information: Reals, known: Reals, few: Integers) -> Reals:
    """Return a guess of the inverse negative curvature, for the `few` hyperparameters and the others."""
    many = np.setdiff1d(np.arange(len(known)), few)
    inverse = np.zeros_like(known)
    inverse[np.ix_(few, few)] = known[np.ix_(few, few)]
    around = information[np.ix_(many, many)] + HYPERPRIOR_CURVATURE * np.eye(len(many))
    inverse[np.ix_(many, many)] = np.linalg.inv(around)
    return inverse


def _or_nothing(objective: Objective, theta: Reals) -> Density:
    """Return the density, or minus infinity if the posterior cannot be computed at these hyperparameters."""
    try:
        return objective(theta)
    except ConvergenceError:
        k = len(theta)
        return Density(-np.inf, np.zeros(k), np.zeros((2, 0)), np.zeros((k, k)))


def _updated(inverse: Reals, moved: Reals, bent: Reals) -> Reals:
    """Return the BFGS update of an inverse curvature, unchanged if the function is not concave along the step."""
    product = moved @ bent
    if product <= 1e-10:
        return inverse
    known = inverse @ bent
    mixed = np.outer(moved, known)
    return inverse + ((1.0 + bent @ known / product) * np.outer(moved, moved) - mixed - mixed.T) / product


def _curvature(
    objective: Objective, theta: Reals, here: Density, few: Integers, scale: Reals
) -> tuple[Reals, Reals]:
    """Return the inverse of the negative second derivatives, from steps of a third of a standard deviation in each direction.

    `here` is what is known at `theta`.

    Returns
    -------
    covariance, shifts
        And by how many of its standard deviations a count's mean moves at most where a parameter does by one of its own,
        and the others as they go with it.
    """
    mean, spread = here.counts
    uncertain = spread > 1e-6
    second, slopes = np.empty((len(few), len(few))), np.empty((len(few), int(uncertain.sum())))
    for row, i in enumerate(few):
        width = np.clip(scale[i] / 3, 1e-3, 0.3)
        moved = _or_nothing(objective, theta + width * np.eye(len(theta))[i])
        if not np.isfinite(moved.value):  # beyond floating-point numbers on this side
            width = -width
            moved = objective(theta + width * np.eye(len(theta))[i])
        second[row] = (here.gradient - moved.gradient)[few] / width
        slopes[row] = (moved.counts[0] - mean)[uncertain] / spread[uncertain] / width
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    covariance = (vectors / np.maximum(values, 0.05)) @ vectors.T
    shifts = np.abs(covariance @ slopes).max(axis=1, initial=0.0) / np.sqrt(np.diag(covariance))
    return covariance, shifts


def given(prior: Hierarchical, splits: Splits) -> Reals:
    """Return hyperparameters with the prior's given concentrations and equally likely attribute values."""
    if len(prior.concentrations) != splits.concentrations:
        raise SpecError(
            f"prior 'hierarchical' has {len(prior.concentrations)} concentrations",
            needed=f"{splits.concentrations} concentrations, one for each margin below the root",
        )
    theta = np.zeros(len(splits.names))
    theta[: splits.concentrations] = np.log(prior.concentrations)
    return theta
