"""Random histograms on a tree and their marginals."""

from __future__ import annotations

import numpy as np

from trueup.kernel.histogram import identity, marginalise, shape, summed
from trueup.kernel.histogram.spine import Spine

SPINE = Spine(np.array([1, 4, 7, 7, 9, 9, 9, 9, 9, 9]))  # a root, three children, the second of them a leaf


SIZES = (4, 2, 3)


UNEQUAL = np.array([0, 0, 1, 2])


def marginals() -> dict:
    """Products, groupings of unequal size on two axes, the detailed histogram."""
    a, b, c = SIZES
    return {
        "total": (summed(a), summed(b), summed(c)),
        "groups": (UNEQUAL, summed(b), summed(c)),
        "second": (summed(a), identity(b), summed(c)),
        "groups-second": (UNEQUAL, identity(b), summed(c)),
        "third": (summed(a), summed(b), identity(c)),
        "first-third-groups": (identity(a), summed(b), np.array([0, 1, 1])),
        "detailed": (identity(a), identity(b), identity(c)),
    }


def case(rng, chosen, exact=()):
    """Truth per level, a plan with its own variances on every level, and noisy answers."""
    plan = [[(m, float(rng.uniform(0.5, 3))) for m in chosen.values()] for _ in range(SPINE.depth)]
    names = list(chosen)
    for level, name in exact:
        plan[level][names.index(name)] = (chosen[name], 0.0)
    truth = [np.zeros((0, 24))] * SPINE.depth
    leaves = rng.poisson(5, (SPINE.child_ptr.size - 1, 24)).astype(float)
    for level in range(SPINE.depth - 1, -1, -1):
        truth[level] = leaves[SPINE.levels[level]]
        if level + 1 < SPINE.depth:
            truth[level][SPINE.inner[level]] = SPINE.sum_children(level, truth[level + 1])
    answers = [
        [
            marginalise(truth[level], m) + rng.normal(0, np.sqrt(v), (SPINE.size(level), np.prod(shape(m))))
            for m, v in p
        ]
        for level, p in enumerate(plan)
    ]
    return truth, plan, answers
