"""Planning by dense algebra and a generic convex solver: the slow twin of `trueup.planning`."""

from __future__ import annotations

import numpy as np
import scipy.optimize

from tests.reference.sums import matrix


def covariance(cells, tables: list, precisions: np.ndarray) -> np.ndarray:
    """Covariance (n, n) of weighted least squares; tables of infinite precision are equalities."""
    noisy = [(matrix(cells, m), p) for m, p in zip(tables, precisions) if np.isfinite(p)]
    information = sum(p * m.T @ m for m, p in noisy)
    exact = [matrix(cells, m) for m, p in zip(tables, precisions) if not np.isfinite(p)]
    free = scipy.linalg.null_space(np.vstack(exact)) if exact else np.eye(cells.n)
    return free @ np.linalg.inv(free.T @ information @ free) @ free.T


def errors(cells, tables: list, precisions: np.ndarray, margin) -> np.ndarray:
    """Error variance of every group of a table."""
    rows = matrix(cells, margin)
    return np.einsum("ij,jk,ik->i", rows, covariance(cells, tables, precisions), rows)


def least_cost(cells, tables: list, prices: np.ndarray, limits: dict) -> float:
    """Least cost of precisions at which every group of every table keeps its limit: SLSQP on the convex program."""
    kept = np.isfinite(prices)

    def full(p: np.ndarray) -> np.ndarray:
        every = np.full(len(tables), np.inf)
        every[kept] = p
        return every

    def slack(logs: np.ndarray) -> np.ndarray:
        p = full(np.exp(logs))
        return np.concatenate([np.log(v) - np.log(errors(cells, tables, p, m)) for m, v in limits.items()])

    start = np.zeros(kept.sum())
    start -= min(slack(start).min(), 0.0)
    found = scipy.optimize.minimize(
        lambda logs: np.log(prices[kept] @ np.exp(logs)),
        start,
        constraints={"type": "ineq", "fun": slack},
        bounds=[(-16, 16)] * len(start),
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert slack(found.x).min() > -1e-7
    return float(prices[kept] @ np.exp(found.x))


def least_mechanism(workload: np.ndarray, *, rounds: int = 200) -> float:
    """Least rho (add-remove) of any Gaussian mechanism whose largest variance over rows of a workload is 1.

    A semidefinite program, by its dual: the largest over weights w of the rows and u of the cells of
    `(tr (U W U)^(1/2))^2 / 2`; here by descent on both, so the value is a lower bound that the best weights attain.
    """
    rows, n = workload.shape
    w, u = np.full(rows, 1 / rows), np.full(n, 1 / n)
    best = 0.0
    for _ in range(rounds):
        root = np.sqrt(u)
        values, vectors = np.linalg.eigh(root[:, None] * (workload.T * w @ workload) * root)
        values = np.sqrt(np.maximum(values, 0))
        best = max(best, values.sum() ** 2 / 2)
        inverse = (vectors / np.maximum(values, 1e-9)) @ vectors.T
        w = w * np.einsum("ij,jk,ik->i", workload * root, inverse, workload * root)
        u = u * np.diag((vectors * values) @ vectors.T) / u
        w, u = w / w.sum(), u / u.sum()
    return best
