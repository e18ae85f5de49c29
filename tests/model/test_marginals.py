"""Means and standard deviations of exact marginals."""

from __future__ import annotations

import numpy as np

from trueup.model.records.drawn import Marginals


def test_moments_of_huge_counts_do_not_hang_on_the_sum_of_masses():
    """Masses whose sum is off by 3e-13 move the mean of counts of 10^15 by 300 where each count is multiplied by its mass."""
    masses = np.array([0.25, 0.5, 0.25]) * (1 + 3e-13)
    found = Marginals(np.array([0, 3]), np.array([10**15]), masses)
    assert abs(found.mean[0] - (10**15 + 1)) < 0.2
    assert abs(found.sd[0] - 0.5**0.5) < 1e-9
