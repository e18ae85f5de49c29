"""A tree node's contribution: a normal state, its measurements, and its exact ones (see `least_squares`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when first used

from trueup.errors import SpecError
from trueup.kernel.histogram import Marginal
from trueup.kernel.histogram.anova import Component, Domain

Measured = tuple[Marginal, float]
"""A marginal that every node of a level answers, and the variance of each answer (counts squared)."""

RANK = 1e-11  # eigenvalues below this share of the largest count as zero
ROUNDING = 1e-13  # what double precision leaves of a variance that should be zero, as a share of the largest


def product(v: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return (..., D, D) times (..., D, c), by plain multiplication if D is 1."""
    return v * x if v.shape[-1] == v.shape[-2] == 1 else v @ x


def pseudo_inverse(v: np.ndarray) -> np.ndarray:
    """Return the Moore-Penrose inverse of symmetric positive semidefinite (..., D, D)."""
    if v.shape[-1] == 1:
        return np.divide(1.0, v, out=np.zeros_like(v), where=v > 0)
    return np.linalg.pinv(v, rcond=RANK, hermitian=True)


def condition(v: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gain (..., D, m) and covariance (..., D, D) once `rows @ x` (m, D) is known exactly.

    Part of `rows @ x` may be known already: its computed covariance is then not zero but the rounding of v, and its
    inverse would be noise of any size. So a variance counts only if it is above that rounding, which is relative to
    v and not to what is left of it. Values known before have no gain, and those that become known have no variance.

    Examples
    --------
    >>> sum_known, total = np.array([[[2.0, -2.0], [-2.0, 2.0 + 1e-15]]]), np.ones((1, 2))
    >>> [part.tolist() for part in condition(sum_known, total)] == [[[[0.0], [0.0]]], sum_known.tolist()]
    True
    """
    rounding = ROUNDING * _size(v)
    variance, axes = np.linalg.eigh(rows @ v @ rows.T)
    open_ = variance > rounding * np.linalg.norm(rows, 2) ** 2
    inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=open_)
    gain = v @ rows.T @ (axes * inverse[..., None, :]) @ axes.swapaxes(-1, -2)
    left = np.eye(v.shape[-1]) - gain @ rows
    narrowed = left @ v @ left.swapaxes(-1, -2)
    return gain, np.where(_size(narrowed)[..., None] > rounding[..., None], narrowed, 0.0)


def _size(v: np.ndarray) -> np.ndarray:
    """Return the largest entry of every (D, D) matrix, as (..., 1)."""
    return np.abs(v).max(axis=(-2, -1), initial=0.0)[..., None]


@dataclass(frozen=True)
class Filter:
    """One component's pass at one level; the first axis is nodes, or 1 if all nodes are alike."""

    precision: np.ndarray  # (D, D) information of the level's own noisy measurements
    rows: np.ndarray  # (m, D) exact measurements
    updated: np.ndarray  # V1
    gain: np.ndarray  # K (nodes, D, m)
    variance: np.ndarray  # V
    below: np.ndarray  # U^+ of the inner nodes

    def tiled(self, copies: int) -> Filter:
        """Return the filter for several copies of the level's nodes."""
        parts = (self.updated, self.gain, self.variance, self.below)
        return Filter(
            self.precision, self.rows, *(p if len(p) == 1 else np.tile(p, (copies, 1, 1)) for p in parts)
        )

    def update(self, s: np.ndarray, h: np.ndarray, e: np.ndarray) -> np.ndarray:
        """Estimate from the subtree: children's sum `s`, information `h`, exact answers `e`."""
        z = s + product(self.updated, h - product(self.precision, s))
        return z + self.gain @ (e - self.rows @ z) if self.rows.size else z


def leaf_filter(precision: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return covariance and gain of a node that only its own measurements determine."""
    free = scipy.linalg.null_space(rows) if rows.size else np.eye(precision.shape[0])
    reduced = free.T @ precision @ free
    if free.size and np.linalg.eigvalsh(reduced)[0] <= RANK * max(np.trace(precision), 1e-300):
        raise SpecError(
            "a lowest level whose measurements do not determine every cell",
            needed="the detailed histogram (or marginals that determine it) measured on every lowest level",
            remedy="measure the detailed histogram there, however noisily",
        )
    v = free @ np.linalg.inv(reduced) @ free.T if free.size else np.zeros_like(precision)
    return v, (np.eye(v.shape[0]) - v @ precision) @ np.linalg.pinv(rows)


def information(domain: Domain, component: Component, measured: Sequence[Measured]) -> np.ndarray:
    """Return the precision (D, D) that a level's noisy measurements give a component."""
    total = np.zeros((component.dense, component.dense))
    for marginal, variance in measured:
        if 0 < variance < np.inf and domain.informs(marginal, component):
            matrix = domain.matrix(marginal, component)
            total += matrix.T @ matrix / variance
    return total


def exact_rows(domain: Domain, component: Component, measured: Sequence[Measured]) -> np.ndarray:
    """Return rows (m, D) of a level's exact measurements on a component."""
    rows = [domain.matrix(m, component) for m, v in measured if v == 0 and domain.informs(m, component)]
    return np.vstack([np.zeros((0, component.dense)), *rows])


def determines(domain: Domain, measured: Sequence[Measured]) -> bool:
    """Return True if measurements determine every cell of a histogram.

    Examples
    --------
    >>> from trueup.kernel.histogram import identity, summed
    >>> total, detailed = (summed(2),), (identity(2),)
    >>> domain = Domain.of([total, detailed])
    >>> determines(domain, [(total, 1.0)]), determines(domain, [(detailed, 1.0)])
    (False, True)
    """
    try:
        for component in domain.components:
            leaf_filter(information(domain, component, measured), exact_rows(domain, component, measured))
    except SpecError:
        return False
    return True
