"""What the lattice benchmarks share: the paper's chain, run until coupled chains certify it, and float twins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.special import gammaln

from benchmarks.harness import Case, Harness
from papers import markov_chain as chain
from trueup.kernel.lattice.structure import Lattice
from trueup.measuring.entropy import words

PAIRS = 400
"""Coupled pairs: enough that 3 / PAIRS is below the total variation asked for."""
CERTIFIED = 0.01


def margins(*shape: int) -> np.ndarray:
    """Sums over each place of each axis in flat order."""
    cells = np.indices(shape).reshape(len(shape), -1)
    return np.array([cells[axis] == k for axis in range(len(shape)) for k in range(shape[axis])]).astype(int)


def crossing(each: int = 2) -> np.ndarray:
    """The 14 records of the paper: three sets with every intersection present, `each` records in each region."""
    return np.array([[region >> k & 1 for region in range(1, 8) for _ in range(each)] for k in range(3)])


def bind(law, matrix: np.ndarray, **options):
    """Bind a law to the lattice of dense invariants."""
    return law.on(Lattice.of(matrix.shape[1], matrix), **options).bound


@dataclass(frozen=True)
class Tuned:
    """The paper's kernel for one example: its jumps, where it starts, how far ahead the first chain is.

    `longest` is when a pair is given up; if any pair is, the chain is timed at a lag less:
    there its bound is not yet the one asked for, and the ratio is a lower bound.
    """

    target: chain.ChainTarget
    scale: float
    spread: float
    lag: int
    longest: int

    @classmethod
    def of(cls, matrix, norm: int, rate: float, scale: float, spread: float, lag: int, longest: int) -> Tuned:
        """Tune it on the Smith-form basis of the invariants."""
        return cls(chain.ChainTarget(chain.smith_basis(matrix), norm, rate), scale, spread, lag, longest)

    def times(self, rng: np.random.Generator, pairs: int = PAIRS) -> np.ndarray:
        """Meeting times from a dispersed start."""
        return chain.meeting_times(rng, self.target, self.scale, self.spread, self.lag, pairs, self.longest)

    def ends(self, rng: np.random.Generator, steps: int, count: int) -> np.ndarray:
        """States of `count` chains after `steps`, each from a dispersed start."""
        d = len(self.target.basis)
        starts = (chain._start(rng, d, self.spread) for _ in range(count))
        return np.vstack(
            [chain.run_lattice_chain(rng, self.target, self.scale, s, steps, steps)[0] for s in starts]
        )


def against_chain(
    harness: Harness, case: str, bound, tuned: Tuned, count: int, variance: float | None = None, more=None
) -> Iterator[Case]:
    """Time `count` exact draws against `count` chains run to the certified distance, in the same run.

    The difference is that of the mean variance of our cells from the exact one, or from the chain's.
    """
    rng = np.random.default_rng(5)
    met = tuned.times(rng, PAIRS if harness.full else PAIRS // 2 if tuned.longest > 50_000 else PAIRS)
    if (met < 0).any():
        # A pair that has not met at `longest` adds at least 1 to the bound's mean a lag before.
        steps, least = tuned.longest - tuned.lag, (met < 0).mean()
        how = f"{steps:,} steps, bound still {least:.2g} or more, not {CERTIFIED}: ratio is a LOWER BOUND"
    else:
        steps = chain.steps_for(met, tuned.lag, CERTIFIED)
        how = f"{steps:,} steps to a certified bound of {CERTIFIED}"
    yield from harness.compare(
        f"{case}: {count} draws, {'; '.join(bound.explain())}",
        lambda: bound.draw(count, words).vectors,
        {f"paper's chain, {how}": lambda: tuned.ends(rng, steps, count), **(more or {})},
        difference=lambda ours, peer: abs(ours.var() - (peer.var() if variance is None else variance)),
        memory=False,
    )


class FloatSums:
    """The float twin of the composition sampler: K from a table of doubles, NumPy's generator."""

    def __init__(self, n: int, epsilon: float) -> None:
        mode, spread = (n - 1) / np.expm1(epsilon), np.sqrt(n) / epsilon
        self.n, self.low = n, max(0, int(mode - 12 * spread))
        k = np.arange(self.low, int(mode + 12 * spread + 40 / epsilon), dtype=np.float64)
        log = 2 * (gammaln(n + k) - gammaln(k + 1)) - 2 * epsilon * k
        self.cumulative = np.cumsum(np.exp(log - log.max()))
        self.cumulative /= self.cumulative[-1]

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw `(count, n)`."""
        return _float_sums(rng, self.low, self.cumulative, self.n, count)


@njit(cache=True)
def _float_sums(rng, low, cumulative, n, count):
    out = np.zeros((count, n), np.int64)
    marks = np.zeros(low + len(cumulative) + n, np.uint8)
    for draw in range(count):
        k = low + np.searchsorted(cumulative, rng.random(), side="right")
        for sign in (1, -1):
            places = k + n - 1
            for j in range(places - n + 1, places):
                t = int(rng.random() * (j + 1))
                marks[j if marks[t] else t] = 1
            cell = 0
            for place in range(places):
                if marks[place]:
                    cell += 1
                    marks[place] = 0
                else:
                    out[draw, cell] += sign
    return out


@njit(cache=True)
def float_free(rng, plan, epsilon, count):
    """The float twin of rejection on free cells, one epsilon, no aggregates: `plan` from `noise.lattice_integer.plan`."""
    out = np.zeros((count, plan.free.size + plan.kinds.size), np.int64)
    draw = 0
    while draw < count:
        v = out[draw]
        for cell in plan.free:
            first = np.floor(-np.log(1 - rng.random()) / epsilon)
            v[cell] = np.int64(first - np.floor(-np.log(1 - rng.random()) / epsilon))
        norm = 0
        whole = True
        for i in range(plan.kinds.size):
            total = 0
            for f in range(plan.free.size):
                total += plan.matrix[i, f] * v[plan.free[f]]
            whole = whole and total % plan.divisor == 0
            v[plan.cells[i]] = total // plan.divisor
            norm += abs(v[plan.cells[i]])
        if whole and rng.random() < np.exp(-epsilon * norm):
            draw += 1
    return out
