"""Trees in which alike nodes are taken once, against the whole tree."""

from __future__ import annotations

import numpy as np
import pytest

from trueup.kernel.histogram.anova import Domain, identity, summed
from trueup.kernel.histogram.least_squares import HistogramTree
from trueup.kernel.histogram.spine import Spine
from trueup.kernel.histogram.symmetric_tree import alike

TOTAL, FIRST, DETAILED = (summed(3), summed(2)), (identity(3), summed(2)), (identity(3), identity(2))


def random_tree(rng, *most):
    """A tree whose nodes have 1 to `most[level]` children, and now and then none."""
    counts, size = [], 1
    for level, upper in enumerate(most):
        children = rng.integers(1, upper + 1, size) * (rng.random(size) < (0.9 if level else 1.0))
        children[0] = max(1, children[0])
        counts.append(children)
        size = children.sum()
    counts.append(np.zeros(size, int))
    return Spine(1 + np.append(0, np.cumsum(np.concatenate(counts))))


def plan(rng, depth):
    return [[(m, float(rng.uniform(0.5, 3))) for m in (TOTAL, FIRST, DETAILED)] for _ in range(depth)]


@pytest.mark.parametrize("most", [(3,), (4, 3), (3, 4, 3), (5, 2, 2, 4)])
def test_errors_are_those_of_the_whole_tree(most, rng):
    whole = random_tree(rng, *most)
    few = alike(whole)
    assert few.child_ptr.size <= whole.child_ptr.size
    assert [int(of.sum()) for of in few.occurrences] == [whole.size(level) for level in range(whole.depth)]
    domain, measured = Domain.of([TOTAL, FIRST, DETAILED]), plan(rng, whole.depth)
    trees = [HistogramTree.prepare(domain, spine, measured) for spine in (whole, few)]
    for level in range(whole.depth):
        for marginal in (TOTAL, FIRST, DETAILED):
            full, brief = (tree.margin_variances(level, marginal) for tree in trees)
            assert few.mean(level, brief) == pytest.approx(full.mean(), rel=1e-12)
            assert (brief.min(), brief.max()) == pytest.approx((full.min(), full.max()), rel=1e-12)


def test_a_regular_tree_is_a_path():
    counts = np.repeat([4, 3, 2, 0], [1, 4, 12, 24])
    few = alike(Spine(1 + np.append(0, np.cumsum(counts))))
    assert few.times.tolist() == [1, 4, 3, 2]
    assert [of.tolist() for of in few.occurrences] == [[1], [4], [12], [24]]


def test_parents_that_differ_only_in_their_grandchildren_are_kept_apart():
    """Two children with two children each, of which one has a leaf more."""
    few = alike(Spine(1 + np.append(0, np.cumsum([2, 2, 2, 1, 1, 1, 2, *[0] * 5]))))
    assert few.size(1) == 2
    assert few.size(2) == 3
