"""Convergence of a Markov chain on noise that keeps `A x`, judged by coupled pairs of chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from trueup.arrays.exact import Matrix, Number, check_generator, exact_number, matrix_rows, real_vector
from trueup.arrays.lattice import column_count
from trueup.errors import SpecError
from trueup.kernel.lattice.algebra import index
from trueup.kernel.lattice.structure import Lattice
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.noise.law import Integers, Reals

CHAINS, KEPT = 4, 1000
"""Chains from dispersed starts, and the states that are kept of the second half of each."""
MAX_JUMP_SCALE = 10**6
"""Scale of jumps and starts, and size of moves, up to which sums stay in 64 bits."""


@dataclass(frozen=True, eq=False)
class JudgedChain:
    """The judgement of a Markov chain, from pairs of coupled chains and chains with dispersed starts.

    Attributes
    ----------
    meeting
        Steps `(pairs,)` until the two chains of a pair met, or -1 if they did not.
    lag
        Number of steps by which the first chain of a pair is ahead.
    r_hat, effective
        (n,) R-hat and effective size of each cell over the second half of four chains; NaN of a cell that A leaves free and that
        never changed in them.
    accepted
        Share of jumps that were accepted.
    steps
        Steps that were run.
    """

    meeting: Integers
    lag: int
    r_hat: Reals
    effective: Reals
    accepted: float
    steps: int

    @property
    def met(self) -> int:
        """Return the number of pairs of chains that have met. The distance bound holds only if all have."""
        return int((self.meeting >= 0).sum())

    def distance(self, steps: ArrayLike) -> Reals:
        """Return an upper bound on the total variation distance from the limit after given steps.

        It is the mean over pairs of `max(0, ceil((meeting - lag - t) / lag))`, and 1 unless all pairs met. N pairs certify
        nothing below about 3 / N, and a simulated bound is no delta of differential privacy.
        """
        at = np.asarray(steps)
        if self.met < self.meeting.size:
            return np.ones(at.shape)
        late = np.ceil((self.meeting - self.lag - at[..., None]) / self.lag)
        return np.minimum(np.maximum(late, 0).mean(axis=-1), 1.0)

    def _repr_svg_(self) -> str:
        """Return an SVG picture of the distance bound against the number of steps."""
        at = np.linspace(0, self.steps, 201)
        points = " ".join(f"{40 + 1.7 * k:.1f},{170 - 150 * d:.1f}" for k, d in enumerate(self.distance(at)))
        text = 'font-family="sans-serif" font-size="11"'
        ticks = "".join(
            f'<text x="34" y="{174 - 150 * y}" text-anchor="end" {text}>{y:g}</text>' for y in (0, 0.5, 1)
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="215" role="img">'
            f"<title>Bound of the distance of the chain from its law over {self.steps:,} steps</title>"
            f'<path d="M40 20V170H380" fill="none" stroke="currentColor"/>{ticks}'
            f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/>'
            f'<text x="380" y="186" text-anchor="end" {text}>{self.steps:,}</text>'
            f'<text x="210" y="206" text-anchor="middle" {text}>steps (distance at most; {self.met} of '
            f"{self.meeting.size} pairs met)</text></svg>"
        )


def judge_chain(
    A: Matrix,
    *,
    epsilon: Number,
    norm: Literal["l1", "l2"] = "l1",
    jump: float = 1.2,
    spread: float = 10.0,
    lag: int = 1000,
    pairs: int = 200,
    steps: int = 20_000,
    moves: Matrix | None = None,
    rng: np.random.Generator,
) -> JudgedChain:
    """Judge the Gibbs-within-Metropolis chain of noise with mass proportional to `exp(-epsilon |v|)` and `A v = 0`.

    Parameters
    ----------
    A
        (m, n) whole numbers.
    epsilon, norm
        The law that the chain should come to.
    jump
        Scale of the double geometric coefficients of a jump, on every move.
    spread
        Scale of those that chains start from. At 0, or near it, all start at the mode, and pairs meet before they have left it.
    lag
        Number of steps by which the first chain of a pair is ahead; a bound that changes with it needs a longer one.
    pairs, steps
        Coupled pairs, and the steps after which they, and the chains, are stopped.
    moves
        (d, n) whole vectors along which the chain jumps: a basis of all whole v with `A v = 0`; by default a short one.
    rng
        Random generator of the simulation.

    Raises
    ------
    SpecError
        A number is out of range, or the moves are no basis: a chain that cannot reach every table would look converged.
    PrivacyError
        A determines every cell.

    References
    ----------
    Dharangutte, Gao, Gong and Yu, algorithms 1 to 3; Biswas, Jacob and Vanetti (2019), "Estimating convergence of Markov chains
    with L-lag couplings".

    Examples
    --------
    >>> judged = judge_chain([[1, 1, 1]], epsilon=1, lag=50, steps=500, rng=np.random.default_rng(1))
    >>> judged.met, judged.distance([0, 200]).round(2).tolist(), bool(judged.r_hat.max() < 1.05)
    (200, [1.0, 0.0], True)
    """
    check_generator(rng)
    scales = real_vector([jump, spread], "jump and spread", 2)
    whole = all(isinstance(k, int | np.integer) and not isinstance(k, bool) for k in (lag, pairs, steps))
    if not whole or norm not in ("l1", "l2") or not (min(lag, pairs) >= 1 and steps > lag):
        raise SpecError(
            f"norm = {norm!r}, lag = {lag!r}, pairs = {pairs!r} and steps = {steps!r} are given",
            needed="norm 'l1' or 'l2'; whole numbers above zero for lag, pairs and steps; more steps than the lag",
        )
    if not (scales[0] > 0 and scales[1] >= 0 and scales.max() <= MAX_JUMP_SCALE):
        raise SpecError(
            f"jump = {scales[0]:g} and spread = {scales[1]:g} are given",
            needed=f"a jump above 0, a spread of 0 or more, and neither above {MAX_JUMP_SCALE:,}",
        )
    chain = _Chain(_moves(A, moves), float(exact_number(epsilon, "epsilon")), norm, jump, rng)
    meeting = chain.meetings(pairs, spread, lag, steps)
    states, accepted = chain.states(spread, steps)
    stuck = chain.moves.any(axis=0) & (states == states[:1, :1]).all(axis=(0, 1))
    r_hat, effective = (np.where(stuck, np.nan, found) for found in diagnose(states))
    return JudgedChain(meeting, lag, r_hat, effective, accepted, steps)


def _moves(A: Matrix, moves: Matrix | None) -> Integers:
    """Return the given moves of a chain, or else a basis of the integer vectors v with `A v = 0`."""
    n = column_count(A)
    lattice = Lattice.of(n, A)
    if moves is None:
        found, first = np.zeros((lattice.dimension, n), np.int64), 0
        for piece in lattice.pieces:
            found[first : first + piece.dimension, piece.cells.ravel()] = piece.basis
            first += piece.dimension
        return found
    given = matrix_rows(moves, n, "moves").toarray()
    changed = (matrix_rows(A, n, "A") @ given.T != 0).any() or (given != np.rint(given)).any()
    if changed or len(given) != lattice.dimension or (np.abs(given) >= MAX_JUMP_SCALE).any():
        raise SpecError(
            "the rows of `moves` are not a basis of the whole-number vectors v with A v = 0",
            needed=f"{lattice.dimension} linearly independent rows v of whole numbers with A v = 0",
            remedy="leave out `moves`: a basis is then computed",
        )
    if index(whole := given.astype(np.int64)) != 1:
        raise SpecError(
            "sums of the rows of `moves` do not reach every whole-number vector v with A v = 0",
            needed="a basis of all these vectors",
            remedy="leave out `moves`: a basis is then computed",
        )
    return whole


@dataclass(frozen=True, eq=False)
class _Chain:
    """Parallel Markov chains, each with a row of integer coefficients of the moves."""

    moves: Integers
    rate: float
    norm: str
    jump: float
    rng: np.random.Generator

    def meetings(self, pairs: int, spread: float, lag: int, steps: int) -> Integers:
        """Return the step `(pairs,)` at which each pair of chains met, or -1 for pairs that did not meet."""
        first, second = self._start(pairs, spread), self._start(pairs, spread)
        for _ in range(lag):
            self._move(first, self._jumps(first.shape, self.jump))
        found, apart = np.full(pairs, -1), np.arange(pairs)
        for step in range(lag + 1, steps + 1):
            jumps = self._jumps(first.shape, self.jump)
            coupled = self._coupled(jumps, first - second)
            uniform = np.log1p(-self.rng.random(apart.size))
            self._move(first, jumps, uniform)
            self._move(second, coupled, uniform)
            if (together := (first == second).all(axis=1)).any():
                found[apart[together]] = step
                first, second, apart = first[~together], second[~together], apart[~together]
                if not apart.size:
                    break
        return found

    def states(self, spread: float, steps: int) -> tuple[Integers, float]:
        """Return states `(chains, kept, n)` of chains with dispersed starts, and the accepted share."""
        at, accepted, kept = self._start(CHAINS, spread), 0, []
        thin = max(steps // (2 * KEPT), 1)
        for step in range(steps):
            accepted += self._move(at, self._jumps(at.shape, self.jump))
            if step >= steps // 2 and step % thin == 0:
                kept.append(at @ self.moves)
        return np.stack(kept, axis=1), accepted / (CHAINS * steps)

    def _start(self, chains: int, spread: float) -> Integers:
        return (
            self._jumps((chains, len(self.moves)), spread)
            if spread
            else np.zeros((chains, len(self.moves)), np.int64)
        )

    def _jumps(self, shape: tuple[int, ...], scale: float) -> Integers:
        """Draw proposed jumps: differences of two independent geometric numbers."""
        drawn = np.floor(scale * self.rng.standard_exponential((2, *shape)))
        return (drawn[0] - drawn[1]).astype(np.int64)

    def _coupled(self, jumps: Integers, apart: Integers) -> Integers:
        """Draw jumps for the second chain of each pair, so that it often lands where the first one does."""
        log = -self.rng.standard_exponential(jumps.shape)
        together = jumps + apart
        out = np.where(log <= (np.abs(jumps) - np.abs(together)) / self.jump, together, 0)
        left = np.flatnonzero((log > (np.abs(jumps) - np.abs(together)) / self.jump).ravel())
        while left.size:
            other, gap = self._jumps((left.size,), self.jump), apart.ravel()[left]
            kept = (
                -self.rng.standard_exponential(left.size) > (np.abs(other) - np.abs(other - gap)) / self.jump
            )
            out.ravel()[left[kept]] = other[kept]
            left = left[~kept]
        return out

    def _move(self, at: Integers, jumps: Integers, uniform: Reals | None = None) -> int:
        """Accept or reject a proposed jump of every chain, in place. Return the number of accepted jumps."""
        log = -self.rng.standard_exponential(len(at)) if uniform is None else uniform
        accepted = log < self.rate * (self._size(at) - self._size(at + jumps))
        at[accepted] += jumps[accepted]
        return int(accepted.sum())

    def _size(self, at: Integers) -> Reals:
        v = at @ self.moves
        return np.abs(v).sum(axis=1).astype(float) if self.norm == "l1" else np.sqrt((v**2).sum(axis=1))
