"""Compile the kernels of a command, so that the wait comes before any data is read."""

from __future__ import annotations

import time

import numpy as np


def warm_up() -> float:
    """Run every kernel of the main job once on a tree of three nodes; return the seconds it took."""
    start = time.perf_counter()
    from trueup.kernel.multinomial.mode import multinomial_mode_tree
    from trueup.kernel.tree.least_squares import messages, posterior_variances
    from trueup.kernel.tree.rounding import controlled_rounding
    from trueup.kernel.tree.topdown import topdown

    child_ptr, ones = np.array([1, 3, 3, 3]), np.ones(3)
    x, _ = topdown(child_ptr, ones, np.zeros(3), np.full(3, np.inf), np.array([3.0, 1.0, 1.0]))
    controlled_rounding(child_ptr, ones, x)
    multinomial_mode_tree(child_ptr, np.array([3, 1, 1]), 3)
    posterior_variances(child_ptr, messages(child_ptr, ones)[1])
    return time.perf_counter() - start


def warm_up_posterior() -> float:
    """Run every kernel of exact tree posteriors once on a tree of three nodes; return the seconds it took."""
    start = time.perf_counter()
    from trueup.kernel.messages.pmf import OPEN, Factors, no_splits
    from trueup.kernel.messages.solve import joint_draws, marginals, solve

    each = np.array([0, 1, 2, 3])
    log, same = -np.abs(np.arange(-2.0, 3.0)), np.zeros(3, np.int64)
    bounds = np.zeros(3, np.int64), np.full(3, OPEN)
    factors = Factors(each, same, same, np.array([0, log.size]), log, np.ones(1), *bounds, *no_splits(3))
    solved = solve(np.array([1, 3, 3, 3]), factors, 0.5)
    marginals(solved)
    joint_draws(solved, 2, np.random.default_rng(0))
    return time.perf_counter() - start
