"""Slow obvious twin of the figures of an assessment: hold every replicate of every count, then describe them."""

from __future__ import annotations

import numpy as np


def describe(counts, truth, members):
    """Figures of a class of groups from all its replicates, with their Monte Carlo errors where one pass tells."""
    errors = (counts - truth)[:, members].astype(float)
    of_replicates = {
        "bias": errors.mean(axis=1),
        "mean absolute error": np.abs(errors).mean(axis=1),
        "square": (errors**2).mean(axis=1),
        "wrong rank": np.array([(ranks(row) != ranks(truth))[members].mean() for row in counts]),
    }
    found = {name: (v.mean(), v.std(ddof=1) / np.sqrt(len(v))) for name, v in of_replicates.items()}
    square, error = found.pop("square")
    found["rmse"] = (np.sqrt(square), error / (2 * np.sqrt(square)))
    found["variance"] = (errors.var(axis=0, ddof=1).mean(), None)
    for p in (0.05, 0.25, 0.5, 0.75, 0.95):
        found[f"quantile {p:g} of the error"] = (
            np.quantile(errors, p, method="inverted_cdf"),
            None,
        )
    return found


def ranks(values):
    """One more than how many are larger, one by one."""
    return np.array([1 + sum(other > value for other in values) for value in values])
