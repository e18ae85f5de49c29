"""Posteriors of counts with known sums and linear inequalities, given noisy counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import ArrayLike

from trueup.arrays.exact import (
    Matrix,
    check_draws,
    check_generator,
    matrix_rows,
    real_vector,
    whole_vector,
)
from trueup.arrays.lattice import LatticeLaw, kept_sums
from trueup.arrays.laws import Laws, each_law
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring.inequalities import LinearInequalities
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import Linear, Sense
from trueup.model.tree import Tree
from trueup.noise.lattice import OnLattice
from trueup.noise.law import Integers, Law, Reals

MIN_ACCEPTED_SHARE = 1e-5
"""Share of proposals below which draws under inequalities are those of chains."""


@dataclass(frozen=True)
class CountsPosterior:
    """Draws from the posterior of counts under bounds, known sums and linear inequalities.

    Attributes
    ----------
    draws
        (draws, n) counts; int64 under discrete laws.
    independent
        True if draws are exact and independent; else they are of Markov chains that passed their diagnostics.
    connected
        True if the draws are independent, or the moves of the chains are proved to reach all counts.
    """

    draws: Integers | Reals
    independent: bool
    connected: bool


def posterior_of_counts(
    y: ArrayLike,
    laws: Laws | LatticeLaw,
    *,
    A: Matrix | None = None,
    sums: ArrayLike | None = None,
    R: Matrix | None = None,
    least: ArrayLike = (),
    lower: ArrayLike = 0.0,
    upper: ArrayLike = inf,
    draws: int = 2000,
    rng: np.random.Generator,
) -> CountsPosterior:
    """Draw from the posterior of counts under linear constraints, given noisy counts and a flat prior.

    Draws are exact under inequalities that the noise often obeys, and with known sums where the law of a sum is known or few
    tables are possible, which are weighed. Else Markov chains walk them, as in `trueup infer`.

    Parameters
    ----------
    y
        (n,) noisy counts.
    laws
        Noise of all counts, or of each, discrete where sums are known; or the noise of `noise_keeping`, which says the sums
        itself: of the L2 norm where few tables have them.
    A, sums
        (m, n) and (m,): what is known of the true counts; by default the sums of the noisy ones.
    R, least
        (k, n) and (k,) inequalities. Ratios are rows: at least two persons a family is `[1, -2]` with 0.
    lower, upper
        Bounds of the counts, (n,) or one; equal ones fix a count.
    draws, rng
        Number of draws, and their random generator.

    Raises
    ------
    InfeasibleError
        No counts obey the rules.
    ConvergenceError
        The chains do not agree.
    SpecError
        Shapes do not fit, nothing bounds some count, or a law is of no form that can be drawn.

    References
    ----------
    Janicki et al., "Bayesian methods to improve the accuracy of differentially private measurements of constrained
    parameters", equation (6); of known sums, Dharangutte, Gao, Gong and Yu, "Integer Subspace Differential Privacy".

    Examples
    --------
    >>> from trueup.arrays import discrete_gaussian, noise_keeping
    >>> rng, law = np.random.default_rng(0), discrete_gaussian(sigma2=100)
    >>> found = posterior_of_counts([40, 25], law, R=[[1, -2]], least=[0], rng=rng)
    >>> found.draws.shape, bool((found.draws[:, 0] >= 2 * found.draws[:, 1]).all())
    ((2000, 2), True)
    >>> both = np.vstack([np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))])  # margins of a 2 x 3 table
    >>> noisy = noise_keeping([3, 1, 4, 1, 5, 9], both, epsilon=1)
    >>> found = posterior_of_counts(noisy.values, noisy.noise, rng=rng)
    >>> found.draws.shape, bool((found.draws @ both.T == both @ noisy.values).all()), found.independent
    ((2000, 6), True, True)
    """
    z = real_vector(y, "the noisy counts")
    if not z.size:
        raise SpecError("no noisy count is given", needed="at least one noisy count")
    check_draws(draws, each=z.size)
    check_generator(rng)
    if isinstance(laws, OnLattice):
        each, A = [laws], _with_its_sums(laws, A, z.size)
    else:
        each = [law for law in each_law(laws, z.size) if law is not None and not law.exact]
        if len(each) < z.size:
            raise SpecError(
                "a count that may vary has no noise",
                needed="a law of noise for each count; a count with equal bounds is fixed and needs none",
            )
    whole = all(law.discrete for law in each)
    z = whole_vector(z, "the noisy counts") if whole else z
    low, high = (
        real_vector(lower, "lower", z.size, infinite=True),
        real_vector(upper, "upper", z.size, infinite=True),
    )
    box = (np.ceil(low), np.floor(high)) if whole else (low, high)
    constraints = _constraints(box, _rules(z, A, sums, R, least))
    headers, order = _headers(constraints, each)
    methods = [LinearInequalities(MIN_ACCEPTED_SHARE), *([LatticeMoves()] if whole else [])]
    refusals = [method.refuses(constraints, headers) for method in methods]
    if all(refusals):
        raise SpecError(
            f"no method can draw these counts: {refusals[-1]}",
            needed="a discrete law for each count, such as discrete_laplace(1)",
        )
    method = methods[refusals.index(None)]
    found = method.apply(method.prepare(constraints, headers), z[order], draws, rng, lambda done, of: None)
    if found.refused:
        raise ConvergenceError(found.refused)
    counts = found.draws.reshape(-1, z.size)[:draws]
    return CountsPosterior(counts, found.independent, found.independent or found.connected)


def _with_its_sums(law: LatticeLaw, A: Matrix | None, n: int) -> Matrix:
    """Return the rows of the sums that a noise law keeps, followed by the rows of A."""
    if law.lattice is None or law.lattice.n != n:
        raise SpecError(
            f"the law does not keep sums of {n} counts",
            needed="a law such as law_keeping(A, ...), with one column of A for each count",
        )
    rows = kept_sums(law.lattice)
    return rows if A is None else scipy.sparse.vstack([rows, matrix_rows(A, n, "A")])


def _headers(constraints: Constraints, each: Sequence[Law]) -> tuple[list[Measured], Integers]:
    """Return a measured header for each distinct noise law, and the order in which they list the cells."""
    finest, n = constraints.cells.finest, constraints.cells.n
    at: dict[Law, list[int]] = {}
    for i in range(n):
        at.setdefault(each[i % len(each)], []).append(i)
    if len(at) == 1:
        return [Measured("law 0", finest, each[0])], np.arange(n)
    headers = [Measured(f"law {k}", finest, law, np.array(of)) for k, (law, of) in enumerate(at.items())]
    return headers, np.concatenate([*at.values()])


def _rules(
    z: Integers | Reals, A: Matrix | None, sums: ArrayLike | None, R: Matrix | None, least: ArrayLike
) -> list[LinearRule]:
    """Return known sums and inequalities as linear rules that name each cell by its number."""
    none = np.zeros((0, z.size))
    kept, rows = (
        matrix_rows(none if A is None else A, z.size, "A"),
        matrix_rows(none if R is None else R, z.size, "R"),
    )
    known = kept @ z if sums is None else real_vector(sums, "sums", kept.shape[0])
    limits = real_vector(least, "least", rows.shape[0])
    found = []
    for name, matrix, sides in (("A", kept, known), ("R", rows, limits)):
        sense: Sense = "==" if name == "A" else ">="
        for i, side in enumerate(sides.tolist()):
            at = slice(matrix.indptr[i], matrix.indptr[i + 1])
            numbers = [Fraction(str(number)) for number in matrix.data[at].tolist()]  # 0.1 is one tenth
            terms = dict(zip(map(str, matrix.indices[at].tolist()), numbers))
            found.append(LinearRule(Linear(f"row {i} of {name}", terms, sense, Fraction(str(side))), "all"))
    return found


def _constraints(box: tuple[Reals, Reals], rules: list[LinearRule]) -> Constraints:
    """Return the constraints on the cells of a single place."""
    low, high = box
    attribute = Attribute("cell", tuple(map(str, range(low.size))))
    cells = Cells(Tree.from_columns(["all"], [{}]), (attribute,))
    bound, nonnegative = Bound(cells.finest, low, high), bool((low >= 0).all())
    return Constraints(cells, (cells.finest,), nonnegative=nonnegative, bounds=(bound,), linear=tuple(rules))
