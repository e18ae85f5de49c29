"""Posterior draws of family-size counts under linear inequalities, 510 problems of three counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.special import log_ndtr, ndtri_exp

from benchmarks.harness import Case, Harness, Run, available
from trueup.kernel.inequalities.tilted import (
    DISCRETE_GAUSSIAN,
    GAUSSIAN,
    LAPLACE,
    TWO_SIDED_GEOMETRIC,
    draw_inequalities,
)

PLACES, DRAWS = 510, 10_000
ROWS = np.array([[1.0, 1.0, -2.0], [-1.0, -1.0, 10.0]])
BOUNDS = np.zeros(2)
LOW = np.array([0.0, 0.0, 1.0])
SD, SCALE = 200 / 1.645, 86.86
LAWS = {"Gaussian": GAUSSIAN, "Laplace": LAPLACE, "discrete Gaussian": DISCRETE_GAUSSIAN,
        "two-sided geometric": TWO_SIDED_GEOMETRIC}  # fmt: skip
SOME = 10
"""Peers run on this many problems, and their time is scaled up to all of them."""


def cases(harness: Harness) -> Iterator[Case]:
    """Ours is exact and independent: one draw is one effective draw. Peers are charged per effective draw."""
    for size in ("states", "small counts"):
        truth = truths(size)
        for name, kind in LAWS.items():
            z, scale = noisy(truth, kind)
            peers: dict[str, Run | str] = {}
            if kind == GAUSSIAN:
                peers = {
                    "minimax tilting, NumPy": lambda z=z: [minimax_tilting(row, DRAWS) for row in z[:SOME]],
                    "hopsy, per effective draw": available(
                        "hopsy", lambda z=z: [by_hopsy(row) for row in z[:SOME]]
                    ),
                }
            for case in harness.compare(
                f"{size}, {name}", draw(kind, z, scale), peers, difference=gap(z), memory=False
            ):
                yield scaled(case)


def scaled(case: Case) -> Case:
    """Scale a peer's time on some problems up to all."""
    if case["peer_s"] is not None and case["ours_s"]:
        case["peer_s"] *= PLACES / SOME
        case["ratio"] = case["peer_s"] / case["ours_s"]
    return case


def draw(kind: int, z: NDArray[np.float64], scale: NDArray[np.float64]) -> Run:
    low, high = np.tile(LOW, (PLACES, 1)), np.full((PLACES, 3), np.inf)
    kinds = np.full(3, kind)
    return lambda: draw_inequalities(
        kinds, z, scale, ROWS, BOUNDS, low, high, DRAWS, 1e-3, np.random.default_rng(0)
    )[0]


def gap(z: NDArray[np.float64]):
    """Largest difference of posterior means between ours and a peer, in noise standard deviations."""
    return lambda ours, peer: max(np.abs(o.mean(0) - p.mean(0)).max() / SD for o, p in zip(ours, peer))


def truths(size: str) -> NDArray[np.float64]:
    """Counts like those of states by race, from a handful to millions, or all small."""
    rng = np.random.default_rng(3)
    families = (
        np.exp(rng.normal(9, 2.5, PLACES)) + 1 if size == "states" else rng.integers(5, 60, PLACES) + 0.0
    )
    parts = [families * rng.uniform(0.8, 1.3, PLACES), families * rng.uniform(2.0, 2.6, PLACES), families]
    return np.column_stack(parts).round()


def noisy(truth: NDArray[np.float64], kind: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(4)
    gaussian = kind in (GAUSSIAN, DISCRETE_GAUSSIAN)
    noise = rng.normal(0, SD, truth.shape) if gaussian else rng.laplace(0, SCALE, truth.shape)
    z = truth + noise
    return (z if kind in (GAUSSIAN, LAPLACE) else z.round()), np.full(truth.shape, SD if gaussian else SCALE)


def inequalities() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All inequalities as `matrix @ theta >= bound`."""
    return np.vstack([np.eye(3), ROWS]), np.concatenate([LOW, BOUNDS])


def by_hopsy(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """hopsy's Gaussian hit-and-run in units of the noise, thinned to about DRAWS effective draws."""
    import hopsy as package

    from trueup.kernel.statistics.diagnostics import diagnose

    hopsy: Any = package
    matrix, bound = inequalities()
    model = hopsy.Gaussian(mean=np.zeros(3), covariance=np.eye(3))
    problem = hopsy.Problem(-matrix * SD, matrix @ z - bound, model, starting_point=(_inside(z) - z) / SD)
    chains = [hopsy.MarkovChain(problem, proposal=hopsy.GaussianHitAndRunProposal) for _ in range(4)]
    rngs = [hopsy.RandomNumberGenerator(seed=k) for k in range(4)]
    pilot = hopsy.sample(chains, rngs, n_samples=500, thinning=5)[1]
    thinning = max(1, round(5 * 2000 / max(diagnose(pilot)[1].min(), 20)))
    draws = hopsy.sample(chains, rngs, n_samples=DRAWS // 4, thinning=thinning)[1]
    return z + SD * draws.reshape(-1, 3)


def _inside(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """A point inside the region: `z` itself, or else one near it."""
    matrix, bound = inequalities()
    families = max(z[2], z[:2].sum() / 9, 5.0)
    candidates = (z, np.array([1.5 * families, 2.0 * families, families]))
    return next(c for c in candidates if (matrix @ c > bound + 1e-6).all())


def minimax_tilting(z: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Botev (2017): exact draws of a normal under `matrix @ theta >= bound` by minimax exponential tilting.

    The five inequalities are two more than coordinates, so three are sampled by tilting in sequence
    after an LQ factorisation and the other two by rejection; written plainly in NumPy.
    """
    rng = np.random.default_rng(5)
    matrix, bound = inequalities()
    slack = (matrix @ z - bound) / (SD * np.linalg.norm(matrix, axis=1))
    first = _independent(matrix, np.argsort(slack))
    lower = np.linalg.qr((matrix[first] * SD).T)
    factor, rotation = lower[1].T, lower[0].T
    signs = np.sign(np.diag(factor))
    factor, rotation = factor * signs, rotation * signs[:, None]
    limit = (bound - matrix @ z)[first]
    scaled_factor, limit = factor / np.diag(factor)[:, None], limit / np.diag(factor)
    tilt, top = _saddle(scaled_factor - np.eye(3), limit)
    kept: list[NDArray[np.float64]] = []
    have = 0
    while have < count:
        x, log_ratio = _propose(scaled_factor - np.eye(3), limit, tilt, 2 * count, rng)
        good = -rng.standard_exponential(len(x)) <= log_ratio - top
        theta = z + SD * (x[good] @ rotation)
        theta = theta[(theta @ matrix.T >= bound - 1e-9).all(axis=1)]
        kept.append(theta)
        have += len(theta)
    return np.concatenate(kept)[:count]


def _independent(matrix: NDArray[np.float64], order: NDArray[np.int64]) -> list[int]:
    """Three independent rows, the most violated first."""
    chosen: list[int] = []
    for row in order:
        if np.linalg.matrix_rank(matrix[[*chosen, int(row)]]) > len(chosen):
            chosen.append(int(row))
    return chosen[:3]


def _psi(x, tilt, strict, limit):
    """Log ratio of the target to the tilted proposal, for one point or many."""
    edge = limit - x @ strict.T - tilt
    return (0.5 * tilt**2 - x * tilt + log_ndtr(-edge)).sum(axis=-1)


def _saddle(strict: NDArray[np.float64], limit: NDArray[np.float64]):
    """Solve for the saddle point of psi over the first coordinates of x and tilt; the last tilt is 0."""
    n = len(limit)

    def gradient(v):
        x, tilt = np.append(v[: n - 1], 0.0), np.append(v[n - 1 :], 0.0)
        edge = limit - strict @ x - tilt
        hazard = np.exp(-0.5 * edge**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(-edge))
        by_x = -tilt + strict.T @ hazard
        by_tilt = tilt - x + hazard
        return np.concatenate([by_x[: n - 1], by_tilt[: n - 1]])

    found = root(gradient, np.zeros(2 * (n - 1)))
    x, tilt = np.append(found.x[: n - 1], 0.0), np.append(found.x[n - 1 :], 0.0)
    return tilt, _psi(x, tilt, strict, limit)


def _propose(strict, limit, tilt, count, rng):
    """Draw coordinates in sequence from tilted normals above their limits."""
    x = np.zeros((count, len(limit)))
    for k in range(len(limit)):
        edge = limit[k] - x @ strict[k] - tilt[k]
        x[:, k] = tilt[k] - ndtri_exp(np.log(rng.random(count)) + log_ndtr(-edge))
    return x, _psi(x, tilt, strict, limit)
