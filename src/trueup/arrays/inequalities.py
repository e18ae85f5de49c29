"""The posterior of counts under linear inequalities, given noisy ones."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import Matrix, check_draws, check_generator, limits_of, matrix_rows, real_vector
from trueup.arrays.laws import Laws, each_law
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring.inequality_problem import kind_and_scale
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, draw_inequalities
from trueup.kernel.linear.feasible import Region, feasible_point

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
MIN_ACCEPTED_SHARE = 1e-5
"""Share of proposals below which draws under inequalities are refused."""


def posterior_within(
    y: ArrayLike,
    R: Matrix,
    least: ArrayLike,
    laws: Laws,
    *,
    lower: ArrayLike = 0.0,
    upper: ArrayLike = inf,
    draws: int = 2000,
    rng: np.random.Generator,
) -> NDArray:
    """Return independent exact draws of counts with `R x >= least` inside bounds, given noisy ones, under a flat prior.

    Parameters
    ----------
    y
        (n,) noisy counts.
    R, least
        (m, n) and (m,) inequalities. Ratios are rows: at least two persons a family is `[1, -2]` with 0.
    laws
        Noise of all counts, or of each: all discrete or all continuous.
    lower, upper
        Bounds of the counts, (n,) or one; equal ones fix a count.
    draws, rng
        How many, and where they come from.

    Returns
    -------
    (draws, n) counts; int64 under discrete laws. What is asked of them (ratios, sums) is computed draw by draw.

    Raises
    ------
    InfeasibleError
        No counts obey the inequalities.
    ConvergenceError
        Fewer than one proposal in 100,000 is accepted.
    SpecError
        Shapes do not fit, or a law is of no form that can be drawn.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private measurements of constrained
    parameters", equation (6).

    Examples
    --------
    >>> from trueup.arrays import discrete_gaussian
    >>> found = posterior_within([40, 25], [[1, -2]], [0], discrete_gaussian(sigma2=100), rng=np.random.default_rng(0))
    >>> found.shape, bool((found[:, 0] >= 2 * found[:, 1]).all())
    ((2000, 2), True)
    """
    z = real_vector(y, "the noisy counts")
    check_draws(draws, each=z.size)
    check_generator(rng)
    n = z.size
    forms = [kind_and_scale(law) if law is not None else None for law in each_law(laws, n)]
    known = [form for form in forms if form is not None]
    if len(known) < n or len({kind >= DISCRETE_GAUSSIAN for kind, _ in known}) > 1:
        raise SpecError(
            "these laws cannot be drawn together under inequalities",
            needed="discrete Laplace or Gaussian noise of every count, or their continuous versions",
        )
    kinds, scales = np.array([k for k, _ in known]), np.array([s for _, s in known])
    rows = matrix_rows(R, n, "R").toarray()
    limits = real_vector(least, "least", len(rows))
    low, high = limits_of(lower, "lower", n).copy(), limits_of(upper, "upper", n).copy()
    whole = bool((kinds >= DISCRETE_GAUSSIAN).any())
    if whole:
        low, high = np.ceil(low), np.floor(high)
    if feasible_point(Region(rows, limits, low, high, whole))[0] is None:
        raise InfeasibleError(
            "no counts obey the inequalities and bounds", remedy="drop or correct one of them"
        )
    found, accepted = draw_inequalities(
        kinds, z[None], scales[None], rows, limits, low[None], high[None], draws, MIN_ACCEPTED_SHARE, rng
    )
    if accepted[0] == 0:
        raise ConvergenceError(
            "fewer than one proposal in 100,000 is accepted",
            needed="inequalities nearer to what was measured",
            remedy="use `trueup infer`, which runs chains where many inequalities bind",
        )
    return found[0].astype(np.int64) if whole else found[0]
