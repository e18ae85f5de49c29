"""Posteriors of counts under linear inequalities or with known sums, given noisy ones."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trueup.arrays.exact import (
    Matrix,
    check_draws,
    check_generator,
    limits_of,
    matrix_rows,
    real_vector,
    whole_vector,
)
from trueup.arrays.laws import Laws, each_law
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring.inequality_problem import kind_and_scale
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, draw_inequalities
from trueup.kernel.linear.feasible import Region, feasible_point
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import Linear, Sense
from trueup.model.tree import Tree
from trueup.noise.law import Integers, Reals

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
            remedy="use posterior_keeping, whose chains reach discrete counts where many inequalities bind",
        )
    return found[0].astype(np.int64) if whole else found[0]


@dataclass(frozen=True, eq=False)
class SumsPosterior:
    """Draws of counts whose sums are known.

    Attributes
    ----------
    draws
        (draws, n) counts.
    independent
        True if all tables were listed, or the law of the sum is known; else they are of Markov chains that passed their
        diagnostics.
    connected
        True if the draws are independent, or the moves of the chains are proved to reach every table.
    """

    draws: Integers
    independent: bool
    connected: bool


def posterior_keeping(
    y: ArrayLike,
    A: Matrix,
    laws: Laws,
    *,
    sums: ArrayLike | None = None,
    R: Matrix | None = None,
    least: ArrayLike = (),
    lower: ArrayLike = 0.0,
    upper: ArrayLike = inf,
    draws: int = 2000,
    rng: np.random.Generator,
) -> SumsPosterior:
    """Draw whole counts with `A x` known, and `R x >= least` inside bounds, given noisy ones, under a flat prior.

    Where few tables are possible all are weighed, and draws are exact; else Markov chains walk them, as in `trueup infer`.
    After `noise_keeping` with the L1 norm at an epsilon the law is `discrete_laplace(epsilon)`: given the sums, the law of its
    noise is a product over cells. The L2 norm's is none.

    Parameters
    ----------
    y
        (n,) noisy counts.
    A, sums
        (m, n) and (m,): what is known of the true counts; by default the sums of the noisy ones, as noise keeps them.
    laws
        Discrete noise of all counts, or of each.
    R, least
        (k, n) and (k,) inequalities.
    lower, upper
        Bounds of the counts, (n,) or one.
    draws, rng
        How many, and where they come from.

    Raises
    ------
    InfeasibleError
        No counts have these sums.
    ConvergenceError
        The chains do not agree.
    SpecError
        Shapes do not fit, nothing bounds some count, or a law is continuous or no product over cells.

    Examples
    --------
    >>> from trueup.arrays import discrete_laplace, noise_keeping
    >>> both = np.vstack([np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))])  # margins of a 2 x 3 table
    >>> noisy = noise_keeping([3, 1, 4, 1, 5, 9], both, epsilon=1)
    >>> found = posterior_keeping(noisy.values, both, discrete_laplace(1), rng=np.random.default_rng(1))
    >>> found.draws.shape, bool((found.draws @ both.T == both @ noisy.values).all()), found.independent
    ((2000, 6), True, True)
    """
    z = whole_vector(y, "the noisy counts")
    check_draws(draws, each=z.size)
    check_generator(rng)
    problem, headers, order = _ruled_cells(z.size, laws, (lower, upper), _rules(z, A, sums, R, least))
    method = LatticeMoves()
    if why := method.refuses(problem, headers):
        raise SpecError(why, needed="discrete noise of each count")
    found = method.apply(method.prepare(problem, headers), z[order], draws, rng, lambda done, of: None)
    if found.refused:
        raise ConvergenceError(found.refused)
    counts = found.draws.reshape(-1, z.size)[:draws].astype(np.int64)
    return SumsPosterior(counts, found.independent, found.independent or found.connected)


def _rules(
    z: Integers, A: Matrix, sums: ArrayLike | None, R: Matrix | None, least: ArrayLike
) -> list[LinearRule]:
    """Return known sums and inequalities as linear rules on cells that are called by their numbers."""
    kept, rows = (
        matrix_rows(A, z.size, "A"),
        matrix_rows(np.zeros((0, z.size)) if R is None else R, z.size, "R"),
    )
    known = kept @ z if sums is None else real_vector(sums, "sums", kept.shape[0])
    limits = real_vector(least, "least", rows.shape[0])
    senses: tuple[tuple[str, Sense, Any, Reals], ...] = (("A", "==", kept, known), ("R", ">=", rows, limits))
    found = []
    for name, sense, matrix, sides in senses:
        for i, side in enumerate(sides.tolist()):
            at = slice(matrix.indptr[i], matrix.indptr[i + 1])
            terms = dict(zip(map(str, matrix.indices[at].tolist()), map(Fraction, matrix.data[at].tolist())))
            found.append(LinearRule(Linear(f"row {i} of {name}", terms, sense, Fraction(side)), "all"))
    return found


def _ruled_cells(
    n: int, laws: Laws, box: tuple[ArrayLike, ArrayLike], rules: list[LinearRule]
) -> tuple[Constraints, tuple[Measured, ...], Integers]:
    """Return the constraints of n cells, their headers, and the cells in the order of the headers."""
    cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("cell", tuple(map(str, range(n)))),))
    each = each_law(laws, n)
    if any(law is None or not law.discrete or law.exact for law in each):
        raise SpecError(
            "a count has no discrete noise", needed="a law such as discrete_laplace(1) for each count"
        )
    low, high = np.ceil(limits_of(box[0], "lower", n)), np.floor(limits_of(box[1], "upper", n))
    bound = Bound(cells.finest, low, high)
    constraints = Constraints(
        cells, (cells.finest,), nonnegative=bool((low >= 0).all()), bounds=(bound,), linear=tuple(rules)
    )
    by_law = {law: np.array([i for i in range(n) if each[i] == law]) for law in dict.fromkeys(each)}
    headers = tuple(Measured(f"law {k}", cells.finest, law, at) for k, (law, at) in enumerate(by_law.items()))  # pyright: ignore[reportArgumentType]
    return constraints, headers, np.concatenate([*by_law.values()])
