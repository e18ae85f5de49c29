"""Choose, and state in advance, how noise on a lattice is drawn: which sampler, in what arithmetic, at what cost.

Expected tries follow from normalisers: a proposal drawn from independent factors is accepted with
probability `Z_target / Z_proposal`, and the lattice's normaliser is
`Z_L = prod_i Z_i P(A v = 0)` for independent cells v, where by the local limit theorem

    P(A v = 0)  ~  (2 pi)^(-m/2) det(A S A')^(-1/2) [Z^m : A Z^n] exp(sum_i k_i h_i^2 / 8),

S = diag(variances), k_i the excess kurtosis of cell i and h_i its leverage (first Edgeworth term at zero).
They are estimates for the user, not part of any law. Nothing falls back: a sampler is chosen
before the first word is drawn, and it is the one that draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from trueup.errors import PrivacyError, SpecError
from trueup.kernel.lattice import algebra
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.law import Words

Arithmetic = Literal["integer", "double"]
SLOWEST = 60.0
"""Expected seconds for one vector beyond which a sampler is refused, unless the caller allows more."""
WIDEST_TABLE = 2**20
"""Largest sigma squared (counts squared) whose law is tabulated."""
_CELL, _ROW, _STEP = 1e-8, 4e-8, 1e-7


@dataclass(frozen=True)
class Choice:
    """How one piece of the lattice is drawn.

    Attributes
    ----------
    sampler
        `composition`, `rows`, `free`, `klein`, `path` or `mixture`.
    arithmetic
        `integer`: decisions on proven integer thresholds. `double`: exact but for the rounding of doubles.
    tries
        Expected proposals for one vector.
    seconds
        Rough expected time for one vector.
    draw
        `draw(count, words) -> Drawn`, vectors over the piece's cells in flat order.
    """

    sampler: str
    arithmetic: Arithmetic
    tries: float
    seconds: float
    draw: Callable[[int, Words], Any]

    def sentence(self) -> str:
        """Say it in words."""
        how = (
            "integer arithmetic only"
            if self.arithmetic == "integer"
            else "exact up to the rounding of doubles"
        )
        return (
            f"sampler '{self.sampler}' ({how}), about {self.tries:.3g} tries, {self.seconds:.2g} s a vector"
        )


@dataclass(frozen=True)
class BoundSampler:
    """A law bound to a lattice: one choice for each piece.

    Attributes
    ----------
    lattice
        The lattice.
    pieces
        `(cells, choice)` for each.
    """

    lattice: Lattice
    pieces: tuple[tuple[np.ndarray, Choice], ...]

    @property
    def n(self) -> int:
        """Number of cells."""
        return self.lattice.n

    @property
    def dimension(self) -> int:
        """Dimension of the lattice."""
        return self.lattice.dimension

    @cached_property
    def exact_in_integers(self) -> bool:
        """Whether no decision rests on floating point."""
        return all(choice.arithmetic == "integer" for _, choice in self.pieces)

    def draw(self, count: int, words: Words):
        """Draw `count` noise vectors `(count, n)`; pinned cells get zero."""
        from trueup.kernel.lattice.tape import Drawn

        vectors, tries = np.zeros((count, self.n), np.int64), 0
        for cells, choice in self.pieces:
            drawn = choice.draw(count, words)
            vectors[:, cells] = drawn.vectors
            tries += drawn.tries
        return Drawn(vectors, tries)

    def explain(self) -> list[str]:
        """Say, for each kind of piece, how many there are and how they are drawn."""
        alike: dict[tuple[str, str], list[Choice]] = {}
        for _, choice in self.pieces:
            alike.setdefault((choice.sampler, choice.arithmetic), []).append(choice)
        return [f"{len(found)} x {max(found, key=_seconds).sentence()}" for found in alike.values()]


def _seconds(choice: Choice) -> float:
    return choice.seconds


def choose(
    law,
    lattice: Lattice,
    *,
    weights: Sequence[Fraction] | None = None,
    sampler: str = "auto",
    slowest: float = SLOWEST,
) -> BoundSampler:
    """Choose the sampler of each piece of a lattice for a law.

    Parameters
    ----------
    law
        `LatticeLaplace`, `LatticeGaussian` or `LatticeL2Laplace`.
    lattice
        Where the noise lives.
    weights
        Precision of each cell relative to the law's: cell i has `epsilon * weights[i]`, or
        `sigma2 / weights[i]`. All 1 if None.
    sampler
        `auto`, or the name of the one to use.
    slowest
        Expected seconds for one vector beyond which a sampler is refused.

    Raises
    ------
    SpecError
        No exact sampler is fast enough, or the one named does not fit; the message gives what each would cost.
    """
    if law.name == "lattice-l2-laplace":
        return _whole(law, lattice, weights)
    scales = [Fraction(1)] * lattice.n if weights is None else [Fraction(weight) for weight in weights]
    if len(scales) != lattice.n or min(scales) <= 0:
        raise SpecError("weights do not fit the lattice", needed=f"{lattice.n} positive rational numbers")
    return BoundSampler(
        lattice, tuple(_choose_piece(law, piece, scales, sampler, slowest) for piece in lattice.pieces)
    )


def _choose_piece(law, piece: Piece, scales, sampler: str, slowest: float):
    cells = piece.cells.ravel()
    factors = tuple(_factor(law, scales[cell]) for cell in cells)
    options = []
    for name, build in _options(law, piece, factors):
        if sampler in ("auto", name):
            options.append(build())
            if options[-1].seconds <= slowest:
                return cells, options[-1]
    raise _too_slow(piece, options, sampler, slowest)


def _factor(law, scale: Fraction) -> Fraction:
    """Return the cell's own parameter: epsilon, or sigma squared."""
    return law.epsilon * scale if law.name == "lattice-laplace" else law.sigma2 / scale


def _too_slow(piece: Piece, options: list[Choice], sampler: str, slowest: float) -> SpecError:
    shape = " x ".join(map(str, piece.cells.shape))
    costs = "; ".join(option.sentence() for option in options) or f"none is called '{sampler}'"
    return SpecError(
        f"no exact sampler draws a piece of kind '{piece.kind}' with {shape} cells within {slowest:g} s: {costs}",
        needed="a smaller piece, more time, or another law",
        remedy="use 'lattice-gaussian', or plain noise and keep the invariants by reconciliation; "
        "`kernel.lattice.chain` draws approximately, with the delta that it costs",
    )


def _options(law, piece: Piece, factors: tuple[Fraction, ...]):
    """Yield `(sampler, build)` for a piece, the best first; none is built before it is asked for."""
    alike, only = len(set(factors)) == 1, factors[0]
    laplace = law.name == "lattice-laplace"
    if laplace and alike and piece.kind == "sum":
        yield "composition", lambda: _composition(len(factors), only)
    if laplace and alike and piece.kind == "table":
        yield ("composition" if min(piece.cells.shape) == 2 else "rows"), lambda: _table(piece, only)
    yield "free", lambda: _free(piece, factors, "laplace" if laplace else "gaussian")
    if not laplace and alike and piece.kind != "free":
        yield ("path" if piece.kind == "sum" else "klein"), lambda: _klein(piece, float(only) ** 0.5)


@lru_cache(maxsize=1024)
def _composition(n: int, epsilon: Fraction) -> Choice:
    """One fixed sum."""

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import Decisions, sizes

        decisions = Decisions()
        return decisions, sizes(decisions, n, epsilon)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.sums import draw_sums
        from trueup.kernel.lattice.tape import run

        decisions, law = tables()
        return run(draw_sums, (law, _scratch(law, n)), (count, n), words, decisions.settle)

    return Choice("composition", "integer", 1.0, _ROW * n, draw)


def _table(piece: Piece, epsilon: Fraction) -> Choice:
    """A two-way table: exact outright with two rows, else by rejection on its last two rows."""
    rows, columns = piece.cells.shape
    if min(rows, columns) == 2:
        return _mirrored(rows, columns, epsilon)
    options = [_rows(piece, rows, columns, epsilon, False), _rows(piece, columns, rows, epsilon, True)]
    return min(options, key=lambda option: option.seconds)


def _mirrored(rows: int, columns: int, epsilon: Fraction) -> Choice:
    """Two rows: the second is minus the first, so the first is one fixed sum at twice epsilon."""
    single = _composition(max(rows, columns), 2 * epsilon)

    def draw(count: int, words: Words):
        drawn = single.draw(count, words)
        both = np.stack([drawn.vectors, -drawn.vectors], axis=1)
        return drawn._replace(vectors=(both if rows == 2 else both.transpose(0, 2, 1)).reshape(count, -1))

    return Choice("composition", "integer", 1.0, single.seconds, draw)


def _rows(piece: Piece, rows: int, columns: int, epsilon: Fraction, turned: bool) -> Choice:
    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import Decisions, laplace_pairs, sizes

        decisions = Decisions()
        return decisions, sizes(decisions, columns, epsilon), laplace_pairs(decisions, [epsilon])

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.tables import draw_tables
        from trueup.kernel.lattice.tape import run

        decisions, law, pairs = tables()
        arguments = (rows, columns, law, _scratch(law, columns), pairs)
        drawn = run(draw_tables, arguments, (count, rows * columns), words, decisions.settle)
        if turned:
            vectors = drawn.vectors.reshape(count, rows, columns).transpose(0, 2, 1).reshape(count, -1)
            drawn = drawn._replace(vectors=vectors)
        return drawn

    factor = _laplace_factor(epsilon)
    target = _log_mass(piece.invariants, [factor] * (rows * columns))
    row = _log_mass(np.ones((1, columns), np.int64), [factor] * columns)
    tries = _tries(target - (rows - 2) * row - (columns - 1) * _pair_mass(epsilon))
    return Choice("rows", "integer", tries, tries * (rows - 2) * columns * _ROW / 2, draw)


def _scratch(law, n: int) -> np.ndarray:
    return np.zeros((int(law.low[0]) + law.floors.shape[1] + n) // 64 + 1, np.uint64)


def _free(piece: Piece, factors: tuple[Fraction, ...], kind: str) -> Choice:
    """Any piece: independent free cells, dependent ones accepted by their weight."""
    parameters = sorted(set(factors))
    cells = [_laplace_factor(f) if kind == "laplace" else _gaussian_factor(f) for f in factors]
    masses = np.array([mass for mass, _, _ in cells])
    matrix = piece.invariants
    twin = _twins(piece, factors) if kind == "laplace" else np.full(len(factors), -1)
    pair = np.array(
        [2 * masses[i] - _pair_mass(factors[i]) if twin[i] >= 0 else masses[i] for i in range(len(factors))]
    )
    order = np.argsort(-pair, kind="stable")
    dependent = order[algebra.pivots(matrix[:, order])] if len(matrix) else np.zeros(0, np.intp)
    proposed = masses.sum() - pair[dependent].sum()
    tries = _tries(_log_mass(matrix, cells) - proposed)

    @lru_cache(maxsize=1)
    def tables():
        from trueup.noise.lattice_tables import (
            Decisions,
            gaussian_pairs,
            gaussian_steps,
            laplace_pairs,
            laplace_steps,
        )

        decisions = Decisions()
        plan = _plan(matrix, dependent, twin, [parameters.index(f) for f in factors])
        if kind == "laplace":
            return decisions, plan, laplace_steps(decisions, parameters), laplace_pairs(decisions, parameters)
        return decisions, plan, gaussian_steps(decisions, parameters), gaussian_pairs(decisions, parameters)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice.free import draw_free
        from trueup.kernel.lattice.tape import run

        decisions, *arguments = tables()
        return run(draw_free, arguments, (count, len(factors)), words, decisions.settle)

    tabulated = kind == "laplace" or max(factors) <= WIDEST_TABLE
    seconds = tries * len(factors) * _CELL if tabulated else math.inf
    return Choice("free", "integer", tries, seconds, draw)


def _twins(piece: Piece, factors) -> np.ndarray:
    """Return for each cell one with the same invariants and factor, or -1."""
    twin, waiting = np.full(len(factors), -1), {}
    for cell, key in enumerate(zip(piece.lumps.tolist(), factors)):
        if key in waiting:
            twin[cell], twin[waiting[key]] = waiting[key], cell
        else:
            waiting[key] = cell
    return twin


def _plan(matrix, dependent, twin, laws):
    from trueup.kernel.lattice.free import Plan

    mates = twin[dependent]
    others = np.setdiff1d(np.arange(matrix.shape[1]), [*dependent, *mates[mates >= 0]])
    shared, divisor = algebra.dependence(matrix, dependent, others)
    free, cells, mates, shared = (
        np.ascontiguousarray(p, np.int64) for p in (others, dependent, mates, shared)
    )
    return Plan(free, cells, mates, shared, divisor, np.array(laws, dtype=np.int64))


def _klein(piece: Piece, sigma: float) -> Choice:
    """Klein's walk: on the path basis for one sum, else on the reduced basis."""
    n, d = piece.cells.size, piece.dimension
    if piece.kind == "sum":
        norms = np.sqrt((np.arange(n - 1) + 2) / (np.arange(n - 1) + 1))
        seconds, name = n * _STEP, "path"
    else:
        walk = _walk(piece.invariants)
        norms, seconds, name = walk.norms, d * (d * _CELL / 8 + _STEP), "klein"
    tries = _walk_tries(norms, sigma)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice import klein
        from trueup.kernel.lattice.tape import run

        if piece.kind == "sum":
            return run(klein.draw_sum_gaussians, (sigma,), (count, n), words, _nothing_open)
        return run(klein.draw_gaussians, (walk, sigma), (count, n), words, _nothing_open)

    return Choice(name, "double", tries, tries * seconds, draw)


def _whole(law, lattice: Lattice, weights) -> BoundSampler:
    """The L2 norm binds all pieces together: one walk on the whole basis."""
    if weights is not None:
        raise SpecError("weights with the L2 norm", remedy="use 'lattice-laplace' or 'lattice-gaussian'")
    if lattice.n > 2000:
        raise SpecError(
            f"the L2 norm on {lattice.n} cells", needed="at most 2,000", remedy="use 'lattice-laplace'"
        )
    from trueup.kernel.lattice import klein
    from trueup.kernel.lattice.tape import run

    cells = np.concatenate([piece.cells.ravel() for piece in lattice.pieces])
    from scipy.linalg import block_diag

    blocks: Any = block_diag(*(piece.basis for piece in lattice.pieces))
    walk = klein.Walk.of(blocks.astype(np.int64))
    epsilon = float(law.epsilon)
    mixture = klein.Mixture.of(walk.norms, epsilon)
    d = len(walk.norms)

    def draw(count: int, words: Words):
        return run(
            klein.draw_l2_laplaces, (walk, epsilon, mixture), (count, len(cells)), words, _nothing_open
        )

    seconds = mixture.tries * d * (d * _CELL / 8 + _STEP)
    choice = Choice("mixture", "double", mixture.tries, seconds, draw)
    return BoundSampler(lattice, ((cells, choice),))


def _nothing_open(*_) -> int:
    raise PrivacyError("a sampler in doubles left a decision open", remedy="report this")


def _walk(invariants):
    from trueup.kernel.lattice.klein import Walk

    return Walk.of(algebra.basis(invariants))


def _walk_tries(norms, sigma: float) -> float:
    """Bound the tries of Klein's walk by `prod rho(s_i, 0) / (s_i sqrt(2 pi))`."""
    spreads = sigma / norms
    z = np.arange(-40, 41)[:, None]
    narrow = spreads[spreads < 2]
    sums = np.exp(-(z**2) / (2 * narrow**2)).sum(axis=0) / (narrow * math.sqrt(2 * math.pi))
    return float(np.exp(min(np.log(sums).sum(), 700)))


def _laplace_factor(epsilon: Fraction) -> tuple[float, float, float]:
    """Log normaliser, variance and excess kurtosis of one cell."""
    a, gap = math.exp(-float(epsilon)), -math.expm1(-float(epsilon))
    return math.log((1 + a) / gap), 2 * a / gap**2, (1 + 4 * a + a * a) / (2 * a)


def _gaussian_factor(sigma2: Fraction) -> tuple[float, float, float]:
    return 0.5 * math.log(2 * math.pi * float(sigma2)), float(sigma2), 0.0


def _pair_mass(epsilon: Fraction) -> float:
    x = 2 * float(epsilon)
    return math.log((1 + math.exp(-x)) / -math.expm1(-x))


def _log_mass(matrix, cells) -> float:
    """Estimate the log normaliser of independent cells on the lattice of `matrix`."""
    masses, variances, kurtoses = (np.array(part) for part in zip(*cells))
    if not len(matrix):
        return float(masses.sum())
    gram = (matrix * variances) @ matrix.T
    leverages = variances * (matrix * np.linalg.solve(gram, matrix)).sum(axis=0)
    size = len(matrix) * math.log(2 * math.pi) + np.linalg.slogdet(gram)[1]
    return float(masses.sum() - size / 2 + math.log(algebra.index(matrix)) + kurtoses @ leverages**2 / 8)


def _tries(log_acceptance: float) -> float:
    return math.exp(min(max(-log_acceptance, 0.0), 700.0))
