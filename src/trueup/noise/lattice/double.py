"""The samplers that are exact up to the rounding of doubles: Klein's walk and the Gaussian mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from trueup.errors import PrivacyError, SpecError
from trueup.kernel.lattice.structure import Lattice, Piece
from trueup.noise.lattice.choice import BoundSampler, Choice
from trueup.noise.lattice.cost import CELL, STEP
from trueup.noise.law import Words

LARGEST_WALK = 2000
"""Dimensions of Klein's walk: its matrices take some hundred megabytes."""
MOST_KINDS = 500
"""Kinds of cells, each with invariants of its own, up to which a piece's basis is reduced."""


def klein_walk(piece: Piece, sigma: float) -> Choice:
    """Klein's walk: on the path basis for one sum, else on the reduced basis."""
    from trueup.kernel.lattice_samplers import klein
    from trueup.kernel.lattice_samplers.tape import run

    n, d = piece.cells.size, piece.dimension
    if piece.kind == "sum":
        ranks = np.arange(1.0, n)
        tries = _tries(np.sqrt((ranks + 1) / ranks), sigma)
        path = lambda count, words: run(klein.draw_sum_gaussians, (sigma,), (count, n), words, _nothing_open)  # noqa: E731
        return Choice("path", "double", tries, tries * n * STEP, path)
    if beyond := unwalkable([piece]):
        return Choice("klein", "double", math.inf, math.inf, _nothing_drawn, beyond=beyond)
    steps = klein.KleinWalk.of(piece.basis)
    tries = _tries(steps.norms, sigma)
    draw = lambda count, words: run(klein.draw_gaussians, (steps, sigma), (count, n), words, _nothing_open)  # noqa: E731
    return Choice("klein", "double", tries, tries * d * (d * CELL / 8 + STEP), draw)


def whole_noise(law: Any, lattice: Lattice, weights: Any) -> BoundSampler:
    """Draw L2-norm Laplace noise: the norm makes all pieces dependent, so one walk on the whole basis."""
    from trueup.kernel.lattice_samplers import klein
    from trueup.kernel.lattice_samplers.tape import run

    if weights is not None:
        raise SpecError("weights with the L2 norm", remedy="use 'lattice-laplace' or 'lattice-gaussian'")
    if beyond := unwalkable(lattice.pieces):
        given = f"the L2 norm on {lattice.n} cells would need {beyond}"
        raise SpecError(given, needed="a smaller table", remedy="use 'lattice-laplace'")
    cells = np.concatenate([piece.cells.ravel() for piece in lattice.pieces])
    blocks: Any = block_diag(*(piece.basis for piece in lattice.pieces))
    steps = klein.KleinWalk.of(blocks.astype(np.int64))
    epsilon, d = float(law.epsilon), len(blocks)
    mixture = klein.Mixture.of(steps.norms, epsilon)

    def draw(count: int, words: Words):
        arguments = (steps, epsilon, mixture)
        return run(klein.draw_l2_laplaces, arguments, (count, len(cells)), words, _nothing_open)

    seconds = mixture.tries * d * (d * CELL / 8 + STEP)
    return BoundSampler(lattice, ((cells, Choice("mixture", "double", mixture.tries, seconds, draw)),))


def unwalkable(pieces: Sequence[Piece]) -> str:
    """Say what of a walk on all the pieces together is beyond a limit; nothing if all is within."""
    dimension = sum(piece.dimension for piece in pieces)
    if dimension > LARGEST_WALK:
        return f"a walk in {dimension:,} dimensions, at most {LARGEST_WALK:,}"
    kinds = max((int(p.aggregates.max()) + 1 for p in pieces if p.kind == "general"), default=0)
    return (
        f"a reduced basis of {kinds:,} kinds of cells, at most {MOST_KINDS:,}" if kinds > MOST_KINDS else ""
    )


def _nothing_drawn(*_) -> Any:
    raise PrivacyError("a sampler that was refused is asked to draw", remedy="report this")


def _nothing_open(*_) -> int:
    raise PrivacyError("a sampler in doubles left a decision open", remedy="report this")


def _tries(norms: np.ndarray, sigma: float) -> float:
    """Bound the tries of Klein's walk by `prod rho(s_i, 0) / (s_i sqrt(2 pi))`."""
    spreads = sigma / norms
    narrow = spreads[spreads < 2]
    z = np.arange(-40, 41)[:, None]
    sums = np.exp(-(z**2) / (2 * narrow**2)).sum(axis=0) / (narrow * math.sqrt(2 * math.pi))
    return float(np.exp(min(np.log(sums).sum(), 700)))
