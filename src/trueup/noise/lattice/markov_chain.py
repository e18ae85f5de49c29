"""The paper's Markov chain as a sampler of a spec: approximate, only where it is asked for by name.

Before any word is drawn, coupled chains from a dispersed start say after how many steps every pair has met, and as
many fresh pairs certify what that leaves (never less than 3 / N); the release then runs one chain for so many steps.
Tuning and coupling depend on the lattice and the law alone, so they use a fixed seed and are public.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from trueup.errors import ConvergenceError
from trueup.kernel.lattice.structure import Piece
from trueup.noise.lattice.choice import Choice
from trueup.noise.law import Words

PAIRS = 200
LONGEST = 400_000
"""Steps after which a pair of coupled chains is given up."""
_TRIAL = 2000


def markov_chain(law: Any, piece: Piece, parameter: Fraction) -> Choice:
    """Tune the chain for one piece and certify it.

    Raises
    ------
    ConvergenceError
        Some coupled chains had not met: nothing is certified, and nothing is drawn.
    """
    laplace = law.factor[1] == 1
    rate = float(parameter) if laplace else float(1 / (2 * parameter))
    scale, steps, distance = _certified(piece.invariants.tobytes(), len(piece.invariants), laplace, rate)

    def draw(count: int, words: Words):
        from trueup.kernel.lattice_samplers import markov_chain as chain
        from trueup.kernel.lattice_samplers.tape import TapeDraws

        target = _target(piece.invariants, laplace, rate)
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(words(32), "little")))
        states = [_run(chain, rng, target, scale, steps) for _ in range(count)]
        return TapeDraws(np.vstack(states), steps * count)

    seconds = steps * (piece.dimension + 1) * 1e-7
    return Choice("markov-chain", "approximate", steps, seconds, draw, distance)


def _run(chain: Any, rng: np.random.Generator, target: Any, scale: float, steps: int):
    start = chain._start(rng, len(target.basis), _spread(target.rate))
    return chain.run_lattice_chain(rng, target, scale, start, steps, steps)[0]


@lru_cache(maxsize=32)
def _certified(content: bytes, rows: int, laplace: bool, rate: float) -> tuple[float, int, float]:
    """Return the jumps' scale, the steps to run, and the certified distance."""
    from trueup.kernel.lattice_samplers import markov_chain as chain

    target = _target(np.frombuffer(content, np.int64).reshape(rows, -1), laplace, rate)
    rng = np.random.default_rng(0)
    scale = _tuned(chain, rng, target)
    spread = _spread(rate)
    trial = chain.meeting_times(rng, target, scale, spread, 100, 20, LONGEST)
    _refuse_unmet(trial)
    lag = max(100, int(np.median(trial)) // 2)
    # The number of steps is chosen on pairs of its own: the pairs that certify it must not have chosen it.
    steps = chain.steps_for(
        _refuse_unmet(chain.meeting_times(rng, target, scale, spread, lag, PAIRS, LONGEST)), lag, 0.0
    )
    fresh = _refuse_unmet(chain.meeting_times(rng, target, scale, spread, lag, PAIRS, LONGEST))
    return scale, steps, chain.certify(fresh, lag, steps, 0.0).eta_upper


def _refuse_unmet(times: np.ndarray) -> np.ndarray:
    if (times < 0).any():
        raise ConvergenceError(
            f"coupled chains had not met after {LONGEST:,} steps",
            needed="all of them to meet; until then no delta is known",
            remedy="use an exact sampler, or keep the invariants by reconciliation",
        )
    return times


def _target(invariants: np.ndarray, laplace: bool, rate: float):
    from trueup.kernel.lattice import algebra
    from trueup.kernel.lattice_samplers import markov_chain as chain

    return chain.ChainTarget(algebra.smith_basis(invariants), chain.L1 if laplace else chain.SQUARED, rate)


def _tuned(chain: Any, rng: np.random.Generator, target: Any) -> float:
    """Choose jumps that are accepted about a quarter of the time."""
    start = np.zeros(len(target.basis), np.int64)
    scales = [0.2 * 1.5**i for i in range(14)]
    rates = [chain.run_lattice_chain(rng, target, scale, start, _TRIAL, _TRIAL)[1] for scale in scales]
    return min(zip(scales, rates), key=lambda pair: abs(math.log((pair[1] + 1e-3) / 0.25)))[0]


def _spread(rate: float) -> float:
    """Scale of the coefficients that chains start from: wider than the target's."""
    return 3 / min(rate, 1.0)
