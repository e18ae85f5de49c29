"""Starting tables for Markov chains, which satisfy all hard rules and lie far apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its parts load when first used
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, InfeasibleError
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.run import Deadline

START_SDS = 3
"""Distance of chains' starts from the centre of a rough posterior, in its standard deviations."""
START_SECONDS, MIN_START_SECONDS = 60.0, 1.0
"""Seconds in which a table to start from is sought, and those that are left to it past a deadline."""


def starts_apart(
    state, values, problem: RowProblem, centre, wide, rngs, deadline: Deadline
) -> list[NDArray[np.int64]]:
    """Return starting tables that lie far apart, each pair at opposite ends."""
    starts, away = [], np.zeros(len(centre))
    for chain, rng in enumerate(rngs):
        away = (
            -away
            if chain % 2
            else START_SDS * rng.normal(size=len(centre)) * np.minimum(wide, 1 + np.abs(centre))
        )
        starts.append(start_near(state, values, problem, centre + away, deadline))
    return starts


def start_near(state, values, problem: RowProblem, target: NDArray, deadline: Deadline) -> NDArray[np.int64]:
    """Return a table near a target that satisfies all hard rules, searched for in a limited time."""
    seconds = min(START_SECONDS, max(deadline.left(), MIN_START_SECONDS))
    low, high = problem.box
    target = np.clip(np.rint(target), low, high)
    matrix, least, most = problem.limits
    if not matrix.shape[0]:
        return target.astype(np.int64)
    n, one = len(target), scipy.sparse.eye_array(len(target), format="csr")
    # |x - target| lies below a variable of its own, which is minimised.
    rows = scipy.sparse.block_array([[matrix, None], [one, -one], [one, one]], format="csr")
    ends = (
        np.concatenate([least, np.full(n, -np.inf), target]),
        np.concatenate([most, target, np.full(n, np.inf)]),
    )
    found: Any = scipy.optimize.milp(
        np.concatenate([np.zeros(n), np.ones(n)]),
        constraints=scipy.optimize.LinearConstraint(rows, *ends),
        integrality=np.concatenate([np.ones(n), np.zeros(n)]),
        bounds=scipy.optimize.Bounds(
            np.concatenate([low, np.zeros(n)]), np.concatenate([high, np.full(n, np.inf)])
        ),
        options={"time_limit": seconds, "mip_rel_gap": 0.2},
    )
    if found.x is None:
        if found.status == 2:
            raise no_counts(state, values)
        raise ConvergenceError(
            f"no table of {n:,} counts that satisfies all rules was found in {seconds:.0f} s",
            needed="fewer counts: some thousands at most where rules cross",
            remedy="infer one place or one table, or relax a rule; `trueup release` states standard errors for tables of any "
            "size",
        )
    return np.clip(np.rint(found.x[:n]), low, high).astype(np.int64)


def no_counts(state: LinearProblem, values: NDArray) -> InfeasibleError:
    """Return the error that no table agrees with the exact values, naming contradictory rows if found."""
    error = state.conflict(values, integer=True)
    return error or InfeasibleError(
        "no table of whole numbers satisfies the constraints within the bounds of the noise",
        remedy="check that the laws, values and constraints belong to the same tables",
    )
