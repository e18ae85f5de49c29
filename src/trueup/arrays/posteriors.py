"""Posteriors of the counts of a tree given noisy counts, and of the parts of a sum given released ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trueup.arrays.exact import check_draws, check_generator, real_vector, whole_vector
from trueup.arrays.laws import Laws, each_law
from trueup.arrays.trees import level_order
from trueup.digits import ThreeLines
from trueup.errors import ConvergenceError, DataError, InfeasibleError, SpecError
from trueup.inferring.released import two_parts
from trueup.inferring.released.posterior import ModePosterior, draw_posterior
from trueup.inferring.released.zero import ZeroPosterior
from trueup.inferring.tree_state import DEPTHS, ROUGHLY
from trueup.kernel.messages.kinds import with_divisors
from trueup.kernel.messages.pmf import OPEN, reach_all
from trueup.kernel.messages.solve import Solved, joint_draws, marginals, solve, too_short
from trueup.kernel.messages.tilting import bounds
from trueup.layouts.factors import FactorTable
from trueup.layouts.released import ReleasedSum
from trueup.model.records.drawn import Marginals
from trueup.noise.law import Integers, Law, Reals


@dataclass(frozen=True, eq=False, repr=False)
class TreePosterior(ThreeLines):
    """The exact posterior of the counts of a tree, given noisy counts, under a flat prior.

    Attributes
    ----------
    dropped
        Bound on the posterior mass that tables left out.
    """

    _solved: Solved
    _place: Integers
    dropped: float

    @cached_property
    def marginals(self) -> Marginals:
        """Return the exact marginal posterior of every node's count."""
        found = Marginals.of_some(marginals(self._solved), self._place)
        whole = np.add.reduceat(found.masses, found.start[:-1])
        return replace(found, masses=found.masses / np.repeat(whole, np.diff(found.start)))

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"TreePosterior: counts of {self._place.size:,} nodes that add up",
            f"exact, under a flat prior; tables left out at most {self.dropped:.2g} of the posterior mass",
            ".marginals: mean, sd, interval(level) of all nodes, pmf(node); .draw(draws, rng)",
        )

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw `(draws, n)` independent vectors of whole counts that add up."""
        check_draws(draws, each=self._place.size)
        check_generator(rng)
        return joint_draws(self._solved, draws, rng)[:, self._place]


def posterior_of_tree(
    values: ArrayLike, parents: ArrayLike, laws: Laws, *, nonnegative: bool = True, tolerance: float = 1e-9
) -> TreePosterior:
    """Return the exact posterior of a tree's counts, given noisy counts and a flat prior.

    Parameters
    ----------
    values
        (n,) noisy counts; whatever where not measured.
    parents
        (n,) parent of each node, -1 of the root, in any order.
    laws
        Noise of all nodes, or of each: None where a node is not measured, `trueup.noise.Exact()` where its value is exact.
    nonnegative
        True if counts are known not to be negative.
    tolerance
        Largest posterior mass that tables may leave out.

    Raises
    ------
    SpecError
        Nothing bounds some count, or shapes do not fit.
    DataError
        A value is not whole under discrete noise.
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
    >>> found.marginals.mean.round(2), found.draw(2, np.random.default_rng(1)).shape
    (array([9.67, 4.33, 5.33]), (2, 3))
    >>> low, high = found.marginals.interval(0.9)
    >>> low.tolist(), high.tolist()
    ([8, 3, 4], [11, 6, 7])
    """
    order, child_ptr = level_order(parents)
    each = each_law(laws, order.size)
    known = np.array([law is not None for law in each])
    y = real_vector(values, "the values", where=known)
    if any(
        law is not None and law.discrete and value != np.rint(value)
        for law, value in zip(each, y, strict=True)
    ):
        raise DataError(
            "a value is not a whole number, although its noise is discrete",
            needed="whole values, or a continuous law for this value",
        )
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
    """Solve a tree with message tables that are extended until they omit only a tolerated mass."""
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
                    "values without noise contradict each other: a total cannot be the sum of its parts",
                    needed="exact totals that are sums of possible parts",
                    remedy="correct one of them, or give a law of its noise",
                )
            short = np.ones(low.size, bool)
        elif (least <= -OPEN).any() or (most >= OPEN).any():
            raise SpecError(
                "nothing limits the range of some count",
                needed="noise for this count or for a sum that contains it, and nonnegative counts",
            )
        else:
            solved = solve(child_ptr, with_divisors(factors, least, most), tolerance)
            short = too_short(child_ptr, solved, tolerance)
            if solved.dropped <= tolerance:
                return solved
        if not short.any() or depth[short].max() + 1 >= DEPTHS.size:
            raise ConvergenceError(
                "the noisy values are so far from adding up that their posterior cannot be computed",
                remedy="correct the value, or give a law with more noise, where a total is far from the sum of its parts",
            )
        depth[short] += 1


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedPosterior(ThreeLines):
    """The posterior of the true parts of a sum, given only the released parts."""

    _problem: ReleasedSum
    _drawn: bool

    def draw(self, draws: int, rng: np.random.Generator) -> Integers:
        """Draw true parts `(draws, n)`, by Markov chains if the release was a multinomial draw."""
        check_draws(draws, each=self._problem.counts.size)
        check_generator(rng)
        if self._problem.trials == 0:
            return ZeroPosterior.of(self._problem).draw(draws, rng)
        if not self._drawn:
            return ModePosterior.of(self._problem).draw(draws, rng)[0]
        chains = draw_posterior(self._problem, 4, -(-draws // 4), rng)
        return chains.reshape(-1, chains.shape[-1])[:draws]

    def _lines(self) -> tuple[str, str, str]:
        return (
            f"ReleasedPosterior: {self._problem.counts.size:,} parts of a sum",
            f"given parts released by a multinomial {'draw' if self._drawn else 'mode'} alone",
            ".draw(draws, rng) of all parts; .table() of two",
        )

    def table(self) -> tuple[Integers, Integers, Reals]:
        """Return the exact posterior of two parts: the counts of each part, and probabilities `(k, l)`."""
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
    """Return the posterior of the true parts of a sum that a multinomial method released.

    Parameters
    ----------
    parts
        (n,) released whole parts; the released total is their sum.
    law, total_law
        Noise of each part and of the total before the release; None where the total was not measured.
    release
        `mode` (Wang and Reiter; Wang's Algorithm 3) or `sample`, a multinomial draw. Noisy parts that are all 0 count as
        split evenly, as by `multinomial_mode` with `empty="uniform"`; its default refuses them.
    total
        The release's estimate of the total: from its own noisy count, or from the sum of the parts as well.
    algorithm
        Algorithm of a multinomial draw: 1 redraws weights from posteriors, 2 takes noisy counts.

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
    laws, (of_total,) = each_law(law, counts.size), each_law([total_law], 1)
    if not counts.size:
        raise SpecError("no released part is given", needed="a released count for each part")
    if total not in ("independent", "summed") or algorithm not in (1, 2):
        raise SpecError(
            f"total = {total!r} and algorithm = {algorithm!r} are given",
            needed="total 'independent' or 'summed', and algorithm 1 or 2",
        )
    if release not in ("mode", "sample"):
        raise SpecError(f"release = {release!r} is given", needed="release 'mode' or 'sample'")
    if any(one is None for one in laws):
        raise SpecError("a part has no law", needed="a law of noise for each part")
    how = algorithm if release == "sample" else 2
    return ReleasedPosterior(ReleasedSum(counts, laws, of_total, total, algorithm=how), release == "sample")
