"""Tree noise with weights at inner nodes, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from trueup.kernel.lattice.trees import draw_tree

from tests.reference.lattice import law_of, p_value, points

# Root, two groups, two leaves each.
PTR = np.array([1, 3, 5, 7, 7, 7, 7, 7])
SUM4 = np.ones((1, 4), np.int64)


def weight(inner, leaf):
    return lambda v: -leaf * np.abs(v).sum(axis=1) - 2 * inner * np.abs(v[:, 0] + v[:, 1])


@pytest.mark.parametrize(("inner", "leaf"), [(0.7, 1.0), (2.0, 0.8), (0.0, 1.0)])
def test_two_by_two_tree(inner, leaf, rng):
    drawn = draw_tree(PTR, [0, inner, inner, *[leaf] * 4], 200_000, rng)
    leaves = drawn.nodes[:, 3:]
    assert drawn.dropped < 1e-9
    assert np.array_equal(leaves[:, :2].sum(axis=1), drawn.nodes[:, 1])
    assert not leaves.sum(axis=1).any()
    vectors = points(SUM4, [3], 14)
    assert p_value(leaves, vectors, law_of(vectors, weight(inner, leaf))) > 1e-6
    assert p_value(leaves, vectors, law_of(vectors, weight(inner + 0.1, leaf))) < 1e-6
