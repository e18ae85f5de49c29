"""Slow obvious twin of `trueup.kernel.settling.nearest`: one parent's covariances as dense matrices, plain dual gradient."""

from __future__ import annotations

import numpy as np


def covariances(domain, variances, rows):
    """Dense covariance (rows, n, n) of tables whose components have the given ones."""
    basis = domain.forward(np.eye(domain.cells))
    total = np.zeros((rows, domain.cells, domain.cells))
    for component, v in zip(domain.components, variances, strict=True):
        view = component.view(basis)  # (n, dense, columns)
        total += np.einsum("adc,rde,bec->rab", view, np.broadcast_to(v, (rows, *v.shape[1:])), view)
    return total


def nearest_nonnegative(dense, tables, held, tied=True, steps=20_000, most=np.inf):
    """Children (m, n) of one parent: min sum (x - t)' V^-1 (x - t), same sums, most >= x >= 0 and 0 where held."""
    m, n = tables.shape
    whole = np.zeros((m * n, m * n))
    for i, v in enumerate(dense):
        whole[i * n : (i + 1) * n, i * n : (i + 1) * n] = v
    if tied:
        sums = np.tile(np.eye(n), m)
        through = whole @ sums.T
        whole = whole - through @ np.linalg.pinv(sums @ through, hermitian=True, rcond=1e-11) @ through.T
    step, free = 1 / np.linalg.eigvalsh(whole)[-1], held.ravel()
    multipliers, most = np.zeros(m * n), np.broadcast_to(most, tables.shape).ravel()
    for _ in range(steps):
        multipliers -= step * (tables.ravel() + whole @ multipliers)
        inside = np.maximum(multipliers, 0.0) + np.minimum(multipliers + step * most, 0.0)
        multipliers = np.where(free, multipliers, inside)
    return (tables.ravel() + whole @ multipliers).reshape(m, n)
