"""Bias of the default at the root, with power: methods that are biased must fail the very same test.

The statistic is the mean error over replicates in units of its Monte Carlo error; it is compared with 5.3
(false-alarm probability 1.2e-7 for a mean of thousands of errors).
"""

import numpy as np
import pytest

from benchmarks._nonnegative import nonnegative
from tests.reference.trees import aggregate
from trueup.kernel.tree import least_squares
from trueup.kernel.tree.topdown import topdown
from trueup.kernel.tree.whole import controlled_rounding

LIMIT = 5.3
REPLICATES = 4_000
SUCCESS = 0.12  # of the geometric draws: variance 122


@pytest.fixture
def problem(rng):
    """Return a tree of 1 / 4 / 40 / 400 nodes, variances, truth (most leaves 0) and noisy rows."""
    children = [4] + [10] * 44 + [0] * 400
    child_ptr = np.concatenate([[1], 1 + np.cumsum(children)]).astype(np.int64)
    truth = np.zeros(445)
    truth[45:] = np.floor(rng.exponential(12, 400)) * (rng.random(400) > 0.6)
    aggregate(child_ptr, truth)
    shape = (REPLICATES, 445)
    noise = rng.geometric(SUCCESS, shape) - rng.geometric(SUCCESS, shape)
    variance = np.full(445, 2 * (1 - SUCCESS) / SUCCESS**2)
    return child_ptr, variance, truth, truth + noise


def from_the_top(child_ptr, variance, y):
    return topdown(child_ptr, variance, np.zeros(y.shape[1]), np.full(y.shape[1], np.inf), y)[0]


def global_optimum(child_ptr, variance, y):
    return nonnegative(child_ptr, variance, y)[0]


def clipped_input(child_ptr, variance, y):
    return from_the_top(child_ptr, variance, np.maximum(y, 0))


def leaves_first(child_ptr, variance, y):
    return aggregate(child_ptr, np.maximum(least_squares(child_ptr, variance, y), 0))


def one_percent_high(child_ptr, variance, y):
    return 1.01 * from_the_top(child_ptr, variance, y)


def score(errors):
    """Mean error in units of its Monte Carlo error."""
    return errors.mean() / (errors.std(ddof=1) / np.sqrt(len(errors)))


def test_the_default_leaves_the_root_unbiased(problem):
    child_ptr, variance, truth, y = problem
    assert abs(score((from_the_top(child_ptr, variance, y) - truth)[:, 0])) < LIMIT


@pytest.mark.parametrize("wrong", [global_optimum, clipped_input, leaves_first, one_percent_high])
def test_biased_methods_fail_the_same_test(problem, wrong):
    child_ptr, variance, truth, y = problem
    assert abs(score((wrong(child_ptr, variance, y) - truth)[:, 0])) > LIMIT


def test_the_price_is_paid_at_the_leaves(problem):
    """True zeros come out too high, the others too low: nonnegativity has a price in every method."""
    child_ptr, variance, truth, y = problem
    errors = (from_the_top(child_ptr, variance, y) - truth)[:, 45:]
    zero = truth[45:] == 0
    assert score(errors[:, zero].mean(axis=1)) > LIMIT
    assert score(errors[:, ~zero].mean(axis=1)) < -LIMIT


def test_rounding_moves_no_node_by_one_and_the_root_hardly(problem):
    child_ptr, variance, _, y = problem
    x = from_the_top(child_ptr, variance, y)
    rounded = controlled_rounding(child_ptr, 1 / variance, x, np.arange(REPLICATES))
    assert abs(rounded - x).max() < 1
    assert abs((rounded - x)[:, 0].mean()) < 0.1


EQUAL_TREES = {
    "three parts": [1, 4, 4, 4, 4],
    "one part": [1, 2, 2],
    "four levels": [1, 3, 5, 7, 9, 11, 13, 15] + [15] * 8,
}


def settled_by_a_coin(child_ptr, x, rng):
    seeds = rng.integers(2**63, size=len(x), dtype=np.uint64)
    return controlled_rounding(child_ptr, np.ones(x.shape[1]), x, seeds)


def settled_downwards(child_ptr, x, rng):
    """Take the tree of least total where two are as good, as one fixed seed does."""
    return controlled_rounding(child_ptr, np.ones(x.shape[1]), x, 0)


def rounding_of_the_root(child_ptr, settled, rng):
    """Return what rounding adds to the root where integers were measured with one variance everywhere."""
    child_ptr = np.array(child_ptr)
    y = np.rint(rng.normal(1000, 6, (REPLICATES, child_ptr.size - 1)))
    x = least_squares(child_ptr, np.ones(y.shape[1]), y)
    return (settled(child_ptr, x, rng) - x)[:, 0]


@pytest.mark.parametrize("child_ptr", EQUAL_TREES.values(), ids=EQUAL_TREES)
def test_a_tie_of_the_roots_floor_and_ceiling_biases_no_total(child_ptr, rng):
    assert abs(score(rounding_of_the_root(child_ptr, settled_by_a_coin, rng))) < LIMIT


@pytest.mark.parametrize("child_ptr", EQUAL_TREES.values(), ids=EQUAL_TREES)
def test_a_tie_that_is_settled_downwards_fails_that_test(child_ptr, rng):
    assert score(rounding_of_the_root(child_ptr, settled_downwards, rng)) < -LIMIT
