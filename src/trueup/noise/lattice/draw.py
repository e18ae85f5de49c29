"""Choice of the samplers of lattice noise, and the samplers that use floating-point numbers.

There are no fallbacks: what is chosen is what draws.

L1 noise on a lattice of few dimensions is drawn by its coordinates in a short basis. Vectors are `v = sum_j k_j b_j`. Rates
`l_j` with `sum_i |v_i| >= sum_j l_j |k_j|` for all k make independent `k_j` of laws `exp(-epsilon l_j |k_j|)` a proposal with no
lighter tails: it is accepted with `exp(-epsilon (|v|_1 - sum_j l_j |k_j|))`.

The rates are proved. For the signs s of k and any y with `|y_i| <= 1`, `|v|_1 >= y . v = sum_j |k_j| s_j (y . b_j)`, so
`l_j` may be the least of `s_j (y_s . b_j)` over all signs, whatever y_s is. Linear programs choose y_s, doubles that are then
rounded to fractions of 2^20; the rates follow from these in whole numbers.

One file: the samplers, and the choice among them by what each costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from trueup.errors import PrivacyError, SpecError
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.lattice.choice import (
    CELL,
    LARGEST_SUM,
    NOISE_REACH_NATS,
    STEP,
    BoundSampler,
    Choice,
    laplace_factor,
    log_mass,
    nothing_drawn,
    too_long,
    tries_for,
)
from trueup.noise.lattice.integer import composition, free, integer_table
from trueup.noise.law import Words

MAX_WALK_DIMENSIONS = 2000
"""Most dimensions of Klein's walk: its matrices then take some hundred megabytes."""
MOST_KINDS = 500
"""Kinds of cells, each with invariants of its own, up to which a piece's basis is reduced."""


def klein_walk(piece: Piece, sigma: float) -> Choice:
    """Return Klein's walk as the choice of sampler for a piece of a lattice."""
    from trueup.kernel.lattice_samplers import klein, run

    n, d = piece.cells.size, piece.dimension
    if piece.kind == "sum":
        ranks = np.arange(1.0, n)
        tries = _tries(np.sqrt((ranks + 1) / ranks), sigma)
        path = lambda count, words: run(klein.draw_sum_gaussians, (sigma,), (count, n), words, _nothing_open)  # noqa: E731
        return Choice("path", "double", tries, tries * n * STEP, path)
    if beyond := unwalkable([piece]):
        return Choice("klein", "double", math.inf, math.inf, nothing_drawn, beyond=beyond)
    steps = klein.KleinWalk.of(piece.basis)
    tries = _tries(steps.norms, sigma)
    draw = lambda count, words: run(klein.draw_gaussians, (steps, sigma), (count, n), words, _nothing_open)  # noqa: E731
    return Choice("klein", "double", tries, tries * d * (d * CELL / 8 + STEP), draw)


def whole_noise(law: Any, lattice: Lattice, weights: Any) -> BoundSampler:
    """Return the sampler of L2-norm Laplace noise, which walks on a basis of the whole lattice."""
    from trueup.kernel.lattice_samplers import klein, run

    if weights is not None:
        raise SpecError(
            "weights of cells are given for the noise 'lattice-l2-laplace', which treats all cells alike",
            remedy="use 'lattice-laplace' or 'lattice-gaussian', which take weights",
        )
    if beyond := unwalkable(lattice.pieces):
        raise SpecError(
            f"noise 'lattice-l2-laplace' on {lattice.n} cells would need {beyond}",
            needed="a smaller table, or fewer invariants",
            remedy="use 'lattice-laplace'",
        )
    cells = np.concatenate([piece.cells.ravel() for piece in lattice.pieces])
    blocks: Any = block_diag(*(piece.basis for piece in lattice.pieces))
    steps = klein.KleinWalk.of(blocks.astype(np.int64))
    epsilon, d = float(law.epsilon), len(blocks)
    mixture = klein.Mixture.of(steps.norms, epsilon)

    def draw(count: int, words: Words):
        arguments = (steps, epsilon, mixture)
        return run(klein.draw_l2_laplaces, arguments, (count, len(cells)), words, _nothing_open)

    seconds = mixture.tries * d * (d * CELL / 8 + STEP)
    rounding = rounding_of(steps, epsilon, mixture.tries)
    return BoundSampler(
        lattice, ((cells, Choice("mixture", "double", mixture.tries, seconds, draw, rounding=rounding)),)
    )


def rounding_of(steps: Any, epsilon: float, tries: float) -> float:
    """Return a bound on the total variation between L2-norm Laplace noise and its floating-point draws.

    Let u = 2^-53, d the dimension, n the cells, g_i the Gram-Schmidt norms, mu the largest slope, kappa the basis' condition
    number, and s_i = sqrt(t) / g_i the spread of coefficient i. Each decision is coupled with that in real numbers on the same
    uniform, of which a double differs by u at most. In one try they fall out otherwise with probability at most

    - t: `split U^2` and Gamma variates have a relative error e with E[min(1, e)] <= 2^6 u, since E[min(1, u / U)] <= 38 u;
      a relative error e of t moves d Gaussians by at most d e, and the Gamma's own acceptance by 2^6 d u: 2^8 d u in all;
    - a coefficient of spread s >= 1.5: two geometric variates, each with at most 37 s + 1 values, whose limits move by 2 u
      each, and by 3 u s for the rounding of the logarithm, hence by 160 (s + 1) u; with the decision to accept, 16 u, and
      given acceptance after fewer than 4 tries, times 8: 2^11 (s + 1) u. By inversion 64 subtractions of numbers below 4,
      each with 4 u: less;
    - its centre: a sum of d products, off by at most 2 d u mu sum |z_j| <= 2 d^1.5 u mu |v| / (least singular value). A shift
      by c moves a Gaussian of spread s by c / s, and by c 2 d where s is small: there z is zero, and the centre exact, but
      with probability 2 d exp(-1 / (2 s^2)). With |v| about sqrt(d t), all d together: 4 d^3 mu kappa u;
    - the acceptance of the whole: 2 d logarithms below 2^6 with their sum, 2^7 d^2 u.

    A try comes out as v with mass a(v), sum A = 1 / tries; if tries differ with probability eta, then what is accepted differs by
    at most 1.5 eta / A. Last, slopes and norms are those of a basis B + E with |E| <= 8 n d^0.5 u |B| by columns (Householder;
    Higham, "Accuracy and Stability of Numerical Algorithms", theorem 19.4), so that norms of v are off by the factor 1 +- x,
    x <= 8 n d u kappa, and the law by E[epsilon |v|] x, about (d + 1) x. Of s_i the mean is below sqrt(d + 1) / (epsilon g_i),
    for t is Gamma((d + 1) / 2, epsilon^2 / 2). All is doubled, for the quantities in it are doubles, too.
    """
    basis = steps.basis.astype(np.float64)
    d, n = basis.shape
    singular = np.linalg.svd(basis, compute_uv=False)
    kappa, slope = float(singular[0] / singular[-1]), max(1.0, float(np.abs(steps.slopes).max()))
    spreads = float((math.sqrt(d + 1) / (epsilon * steps.norms) + 1).sum())
    a_try = 2**8 * d + 2**11 * spreads + 4 * d**3 * slope * kappa + 2**7 * d**2
    return 2 * 2.0**-53 * (1.5 * tries * a_try + 2 * (d + 1) * 8 * n * d * kappa)


def unwalkable(pieces: Sequence[Piece]) -> str:
    """Return words for the limit that a walk on all pieces together exceeds, or an empty text."""
    dimension = sum(piece.dimension for piece in pieces)
    if dimension > MAX_WALK_DIMENSIONS:
        return f"a walk in {dimension:,} dimensions, at most {MAX_WALK_DIMENSIONS:,}"
    kinds = max((int(p.aggregates.max()) + 1 for p in pieces if p.kind in ("general", "grid")), default=0)
    return (
        f"a reduced basis of {kinds:,} kinds of cells, at most {MOST_KINDS:,}" if kinds > MOST_KINDS else ""
    )


def _nothing_open(*_) -> int:
    raise PrivacyError(
        "a draw could not be decided by floating-point arithmetic", remedy="report this as an error in trueup"
    )


def _tries(norms: np.ndarray, sigma: float) -> float:
    """Return a bound on the expected tries of Klein's walk, `prod rho(s_i, 0) / (s_i sqrt(2 pi))`."""
    spreads = sigma / norms
    narrow = spreads[spreads < 2]
    z = np.arange(-40, 41)[:, None]
    sums = np.exp(-(z**2) / (2 * narrow**2)).sum(axis=0) / (narrow * math.sqrt(2 * math.pi))
    return float(np.exp(min(np.log(sums).sum(), 700)))


MAX_TRIES_WITHOUT_BASIS = 8
"""Tries of free cells up to which no basis is looked for."""
MAX_SECONDS = 60.0
"""Expected seconds for one vector beyond which a sampler is refused, unless the caller allows more."""


def choose_sampler(
    law,
    lattice: Lattice,
    *,
    weights: Sequence[Fraction] | None = None,
    sampler: str = "auto",
    slowest: float = MAX_SECONDS,
) -> BoundSampler:
    """Return the samplers of a law on a lattice, one chosen for each piece.

    Parameters
    ----------
    law
        `LatticeLaplace`, `LatticeGaussian` or `LatticeL2Laplace`.
    lattice
        The lattice on which the noise lies.
    weights
        Precision of each cell relative to the law's: cell i has `epsilon * weights[i]`, or
        `sigma2 / weights[i]`. All 1 if None.
    sampler
        `auto`, or the name of the one to use.
    slowest
        Expected seconds for one vector beyond which a sampler is refused.
    """
    if not law.factors:
        if sampler not in ("auto", "mixture"):
            raise SpecError(
                f"the sampler '{sampler}' is given for the noise 'lattice-l2-laplace'",
                needed="the sampler 'mixture', the only one for this noise",
            )
        bound = whole_noise(law, lattice, weights)
        if not (choice := bound.pieces[0][1]).seconds <= slowest:
            raise SpecError(
                f"drawing noise '{law.name}' for this table would take more than {slowest:g} s: {choice.sentence()}",
                needed="a smaller epsilon, fewer cells, or a larger `slowest` (seconds)",
                remedy="use 'lattice-laplace'",
            )
        return bound
    factors = [law.of_cell(Fraction(1))] * lattice.n if weights is None else _weighed(law, lattice.n, weights)
    return BoundSampler(
        lattice, tuple(_choose_piece(law, piece, factors, sampler, slowest) for piece in lattice.pieces)
    )


def _weighed(law, n: int, weights: Sequence[Fraction]) -> list[Fraction]:
    scales = [Fraction(weight) for weight in weights]
    if len(scales) != n or min(scales) <= 0:
        raise SpecError(
            f"{len(scales)} weights are given for {n} cells"
            if len(scales) != n
            else "a weight is not above 0",
            needed=f"{n} positive rational numbers, one for each cell",
        )
    return [law.of_cell(scale) for scale in scales]


def _choose_piece(law, piece: Piece, all_factors: Sequence[Fraction], sampler: str, slowest: float):
    cells = piece.cells.ravel()
    factors = tuple(all_factors[cell] for cell in cells.tolist())
    options = []
    for name, build in _options(law, piece, factors):
        if sampler in ("auto", name):
            options.append(build())
            if options[-1].seconds <= slowest and not options[-1].beyond:
                return cells, options[-1]
    raise _too_slow(piece, options, sampler, slowest)


def _too_slow(piece: Piece, options: list[Choice], sampler: str, slowest: float) -> SpecError:
    shape = " x ".join(map(str, piece.cells.shape))
    costs = "; ".join(option.sentence() for option in options) or f"none is called '{sampler}'"
    return SpecError(
        f"no exact sampler can draw noise for {shape} cells of kind '{piece.kind}' within {slowest:g} s: {costs}",
        needed="fewer cells, a larger `slowest` (seconds), or another law",
        remedy="use 'lattice-gaussian', or use plain noise and let reconciliation keep the invariants",
    )


def _options(law, piece: Piece, factors: tuple[Fraction, ...]):
    """Yield pairs `(sampler, build)` for the samplers that suit a piece, beginning with the best."""
    alike, only = len(set(factors)) == 1, factors[0]
    laplace = law.factor[1] == 1
    if laplace and alike and piece.kind == "sum":
        yield "composition", lambda: composition(len(factors), only)
    if laplace and alike and piece.kind in ("table", "grid"):
        yield (
            ("composition" if min(piece.cells.shape) == 2 == piece.cells.ndim else "rows"),
            lambda: integer_table(piece, only),
        )
    by_cells = free(piece, factors, "laplace" if laplace else "gaussian")
    if laplace and alike and piece.kind == "general" and by_cells.tries > MAX_TRIES_WITHOUT_BASIS:
        by_basis = in_basis(piece, only)
        if by_basis is not None and by_basis.seconds < by_cells.seconds:
            yield "basis", lambda: by_basis
    yield "free", lambda: by_cells
    if not laplace and alike and piece.kind != "free":
        yield ("path" if piece.kind == "sum" else "klein"), lambda: klein_walk(piece, float(only) ** 0.5)


MOST_DIMENSIONS = 8
"""Dimensions beyond which no rates are looked for: there are as many linear programs as signs."""
RATE_DENOMINATOR = 8
"""Rates are whole numbers of this part of one."""
_DENOMINATOR = 2**20


class BasisPlan(NamedTuple):
    """A lattice basis with a proposal rate for each coordinate.

    Attributes
    ----------
    basis
        `(d, n)` integers.
    rates
        `(d,)` rates, in parts of one.
    parts
        Denominator of the rates: one is this number of parts.
    laws
        Row of each coordinate in the table of laws, `(d,)`.
    """

    basis: NDArray[np.int64]
    rates: NDArray[np.int64]
    parts: int
    laws: NDArray[np.int64]


def proved_rates(basis: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return proved proposal rates `(d,)` for the coordinates in a basis `(d, n)`, or 0 if not found.

    Examples
    --------
    >>> rates = proved_rates(np.array([[1, -1, 0], [0, 1, -1]]))  # 8 or less: a linear program rounds
    >>> bool((rates >= 7).all()), proved_rates(np.array([[5, -3]])).tolist()
    (True, [64])
    """
    from scipy.optimize import linprog

    d, n = basis.shape
    norms = np.abs(basis).sum(axis=1)
    least = RATE_DENOMINATOR * norms
    for rest in product((1, -1), repeat=d - 1):
        signed = np.array([1, *rest])[:, None] * basis
        found = linprog(
            np.append(np.zeros(n), -1.0),
            A_ub=np.hstack([-signed, norms[:, None]]),
            b_ub=np.zeros(d),
            bounds=[(-1, 1)] * n + [(0, None)],
        )
        if found.x is None:
            return np.zeros(d, np.int64)
        y = np.rint(np.clip(found.x[:n], -1, 1) * _DENOMINATOR).astype(np.int64)
        least = np.minimum(least, RATE_DENOMINATOR * (signed @ y) // _DENOMINATOR)
    return np.maximum(least, 0)


def in_basis(piece: Piece, epsilon: Fraction) -> Choice | None:
    """Return the sampler of a low-dimensional piece by its basis, or None if no rates are proved."""
    if piece.dimension > MOST_DIMENSIONS or not (rates := proved_rates(piece.basis)).all():
        return None
    own = [Fraction(int(rate), RATE_DENOMINATOR) * epsilon for rate in rates]
    mass = log_mass(piece.invariants, [laplace_factor(epsilon)] * piece.cells.size)
    tries = tries_for(mass - sum(laplace_factor(rate)[0] for rate in own))
    reach = RATE_DENOMINATOR * np.abs(piece.basis).sum() * NOISE_REACH_NATS / float(min(own))
    beyond = too_long(NOISE_REACH_NATS * max(RATE_DENOMINATOR / float(epsilon), 2 / float(min(own))))
    if not beyond and reach > LARGEST_SUM:
        beyond = f"sums up to {reach:.3g}, at most 2^62"

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice.tables import Decisions, laplace_steps
        from trueup.noise.samplers import Powers

        decisions, laws = Decisions(), sorted(set(own))
        plan = BasisPlan(
            piece.basis, rates, RATE_DENOMINATOR, np.array([laws.index(rate) for rate in own], np.int64)
        )
        return (
            decisions,
            plan,
            laplace_steps(decisions, laws),
            decisions.coins([Powers(epsilon / RATE_DENOMINATOR)]),
        )

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import run
        from trueup.kernel.lattice_samplers.free import draw_in_basis

        decisions, *arguments = tables()
        return run(draw_in_basis, arguments, (count, piece.cells.size), words, decisions.settle)

    return Choice("basis", "integer", tries, tries * piece.basis.size * CELL, draw, beyond=beyond)
