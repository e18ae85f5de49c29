"""Posteriors of true counts given arrays: on a tree, under inequalities, and behind released counts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import Matrix, real_vector, rows_of, whole_vector
from trueup.arrays.trees import level_order
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring.inequality_problem import kind_and_scale
from trueup.inferring.released.pair import two_parts
from trueup.inferring.released.posterior import ModePosterior, draw_posterior
from trueup.inferring.released.zero import ZeroPosterior
from trueup.inferring.tree_state import DEPTHS, ROUGHLY
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, draw_inequalities
from trueup.kernel.linear.feasible import Region, feasible_point
from trueup.kernel.messages.kinds import with_divisors
from trueup.kernel.messages.pmf import OPEN, reach_all
from trueup.kernel.messages.solve import Solved, joint_draws, marginals, solve, too_short
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable
from trueup.layouts.released import ReleasedSum
from trueup.noise.law import Law

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Laws: TypeAlias = "Law | Sequence[Law | None]"
LEAST = 1e-5
"""Share of proposals below which draws under inequalities are refused."""


def _each(laws: Laws, n: int) -> list[Law | None]:
    """One law for all counts, or one each."""
    each: list[Law | None] = [*laws] if isinstance(laws, Sequence) else [laws] * n
    if len(each) != n:
        raise SpecError(f"{len(each)} laws for {n} counts", needed="one law, or one for each count")
    return each


@dataclass(frozen=True, eq=False)
class TreePosterior:
    """The exact posterior of the counts of a tree under a flat prior.

    Attributes
    ----------
    dropped
        Bound on the posterior mass that tables left out.
    """

    _solved: Solved
    _place: Integers
    dropped: float

    def marginal(self, node: int) -> tuple[Integers, Reals]:
        """Counts of a node, in order, and their probabilities."""
        start, offset, masses = marginals(self._solved)
        at = int(self._place[node])
        mass = masses[start[at] : start[at + 1]]
        return offset[at] + np.arange(mass.size), mass / mass.sum()

    def mean(self) -> Reals:
        """Posterior mean of every node, (n,)."""
        start, offset, masses = marginals(self._solved)
        places = np.repeat(np.arange(offset.size), np.diff(start))
        counts = offset[places] + np.arange(masses.size) - start[places]
        return (np.bincount(places, masses * counts) / np.bincount(places, masses))[self._place]

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw `(draws, n)` independent vectors of whole counts that add up."""
        return joint_draws(self._solved, draws, rng)[:, self._place]


def posterior_of_tree(
    values: ArrayLike, parents: ArrayLike, laws: Laws, *, nonnegative: bool = True, tolerance: float = 1e-9
) -> TreePosterior:
    """The exact posterior of counts that add up on a tree, given noisy ones, under a flat prior.

    Parameters
    ----------
    values
        (n,) noisy counts; whatever where not measured.
    parents
        (n,) parent of each node, -1 of the root, in any order.
    laws
        Noise of all nodes, or of each: None where a node is not measured, `trueup.noise.Exact()` where its value is exact.
    nonnegative
        Whether counts are known not to be negative.
    tolerance
        Largest posterior mass that tables may leave out.

    Raises
    ------
    SpecError
        Nothing bounds some count, or shapes do not fit.
    InfeasibleError
        Exact values exclude each other.
    ConvergenceError
        Tables that would be deep enough do not fit.

    References
    ----------
    Wang and Reiter (2021), section 4, gives the posterior for one sum; trees as in `trueup infer`.

    Examples
    --------
    >>> from trueup.arrays import discrete_laplace
    >>> found = posterior_of_tree([10, 4, 5], [-1, 0, 0], discrete_laplace(1))
    >>> found.mean().round(2), found.draw(2, np.random.default_rng(1)).shape
    (array([9.67, 4.33, 5.33]), (2, 3))
    """
    order, child_ptr = level_order(parents)
    each = _each(laws, order.size)
    known = np.array([law is not None for law in each])
    y = real_vector(np.where(known, np.asarray(values, float), 0.0), "the values", order.size)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    low = np.full(order.size, 0 if nonnegative else -OPEN)
    high = np.full(order.size, OPEN)
    groups: dict[Law, list[int]] = {}
    for node, law in enumerate(each):
        if law is not None and law.exact:
            low[place[node]] = high[place[node]] = int(y[node])
        elif law is not None:
            groups.setdefault(law, []).append(node)
    at = {law: (place[nodes], y[nodes]) for law, nodes in groups.items()}
    solved = _deepened(child_ptr, low, high, at, tolerance)
    return TreePosterior(solved, place, solved.dropped)


def _deepened(
    child_ptr: Integers,
    low: Integers,
    high: Integers,
    at: dict[Law, tuple[Integers, Reals]],
    tolerance: float,
) -> Solved:
    """Solve with tables as deep as each node needs."""
    depth = np.full(low.size, ROUGHLY)
    while True:
        table = FactorTable(low, high)
        for law, (nodes, values) in at.items():
            table.add_law(law, nodes, values, DEPTHS[depth][nodes])
        factors = table.build()
        least, most = bounds(child_ptr, *reach_all(factors))
        if (least > most).any():
            if (bounds(child_ptr, low, high)[0] > bounds(child_ptr, low, high)[1]).any():
                raise InfeasibleError(
                    "exact values of the tree exclude each other", remedy="correct one of them"
                )
            short = np.ones(low.size, bool)
        elif (least <= -OPEN).any() or (most >= OPEN).any():
            raise SpecError(
                "nothing bounds some count",
                needed="a law of it, or of a sum that holds it, and counts above zero",
            )
        else:
            solved = solve(child_ptr, with_divisors(factors, least, most), tolerance)
            short = too_short(child_ptr, solved, tolerance)
            if solved.dropped <= tolerance:
                return solved
        if not short.any() or depth[short].max() + 1 >= DEPTHS.size:
            raise ConvergenceError(
                "the values are so far from adding up that no tables hold their posterior",
                remedy="look for a value that is wrong",
            )
        depth[short] += 1


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
    """Independent exact draws of counts with `R x >= least` inside bounds, given noisy ones, under a flat prior.

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
    n = z.size
    forms = [kind_and_scale(law) if law is not None else None for law in _each(laws, n)]
    known = [form for form in forms if form is not None]
    if len(known) < n or len({kind >= DISCRETE_GAUSSIAN for kind, _ in known}) > 1:
        raise SpecError(
            "a law cannot be drawn under inequalities, or discrete and continuous ones are mixed",
            needed="discrete Laplace or Gaussian noise of every count, or their continuous versions",
        )
    kinds, scales = np.array([k for k, _ in known]), np.array([s for _, s in known])
    rows = rows_of(R, n, "R").toarray()
    limits = real_vector(least, "least", len(rows))
    low, high = (np.array(np.broadcast_to(np.asarray(end, float), (n,))) for end in (lower, upper))
    whole = bool((kinds >= DISCRETE_GAUSSIAN).any())
    if whole:
        low, high = np.ceil(low), np.floor(high)
    if feasible_point(Region(rows, limits, low, high, whole))[0] is None:
        raise InfeasibleError(
            "no counts obey the inequalities and bounds", remedy="drop or correct one of them"
        )
    found, accepted = draw_inequalities(
        kinds, z[None], scales[None], rows, limits, low[None], high[None], draws, LEAST, rng
    )
    if accepted[0] == 0:
        raise ConvergenceError(
            "fewer than one proposal in 100,000 is accepted",
            needed="inequalities nearer to what was measured",
            remedy="use `trueup infer`, which runs chains where many inequalities bind",
        )
    return found[0].astype(np.int64) if whole else found[0]


@dataclass(frozen=True, eq=False)
class ReleasedPosterior:
    """The posterior of the true parts of a sum, given released parts alone."""

    _problem: ReleasedSum
    _drawn: bool

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw `(draws, n)` true parts: independent behind a mode; four chains, nearly independent, behind a draw."""
        if self._problem.trials == 0:
            return ZeroPosterior.of(self._problem).draw(draws, rng)
        if not self._drawn:
            return ModePosterior.of(self._problem).draw(draws, rng)[0]
        chains = draw_posterior(self._problem, 4, -(-draws // 4), rng)
        return chains.reshape(-1, chains.shape[-1])[:draws]

    def table(self) -> tuple[Integers, Integers, Reals]:
        """Exact masses of two parts: counts of the first, of the second, and `(k, l)` probabilities."""
        return two_parts(self._problem, drawn=self._drawn)


def posterior_of_released(
    parts: ArrayLike,
    law: Laws,
    total_law: Law | None,
    *,
    release: Literal["mode", "sample"] = "mode",
    total: Literal["independent", "summed"] = "independent",
    algorithm: Literal[1, 2] = 2,
) -> ReleasedPosterior:
    """What released parts of a sum say of the true ones, where a multinomial mode or draw made them add up.

    Parameters
    ----------
    parts
        (n,) released whole parts; the released total is their sum.
    law, total_law
        Noise of each part and of the total before the release; None where the total was not measured.
    release
        `mode` (Wang and Reiter; Wang's Algorithm 3) or `sample`, a multinomial draw.
    total
        How the release estimated the total: from its own noisy count, or from the sum of the parts as well.
    algorithm
        Of a draw: 1 redraws weights from posteriors, 2 takes noisy counts.

    Raises
    ------
    DataError
        Parts that are not whole.
    SpecError
        Parts below zero, or noise that cannot be tabulated.

    References
    ----------
    Wang and Reiter (2021), section 4; Wang (2020), sections 3.1.1 and 3.2.

    Examples
    --------
    >>> from trueup.arrays import discrete_laplace
    >>> first, second, mass = posterior_of_released([250, 357], discrete_laplace(1), discrete_laplace(1)).table()
    >>> round(float(mass[first == 250, second == 357][0]), 4)
    0.2136
    """
    counts = whole_vector(parts, "the released parts")
    laws = _each(law, counts.size)
    if release not in ("mode", "sample") or any(one is None for one in laws):
        raise SpecError(
            "the release is not described", needed="release 'mode' or 'sample', and a law for each part"
        )
    how = algorithm if release == "sample" else 2
    return ReleasedPosterior(ReleasedSum(counts, laws, total_law, total, algorithm=how), release == "sample")
