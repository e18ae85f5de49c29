"""reconcile takes what infer takes: measurements, several of the same counts, a release, and the constraints alone."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from trueup import Problem, reconcile, simulate
from trueup.demo import AREAS
from trueup.errors import SpecError, TrueupError

PROBLEM = Problem.of(AREAS, pandas.DataFrame({"area": ["a", "b"]}))


def noisy(seed):
    return simulate(PROBLEM, np.array([300, 400]), np.random.default_rng(seed))


def test_a_release_is_reconciled_from_its_measurements():
    first = reconcile(noisy(1))
    assert np.array_equal(reconcile(first).counts, first.counts)
    assert np.array_equal(reconcile(noisy(1), spec=PROBLEM.constraints).counts, first.counts)


def test_several_measurements_are_nearer_than_one(rng):
    one, four = [], []
    for _ in range(40):
        several = [noisy(int(seed)) for seed in rng.integers(0, 2**31, 4)]
        one.append(reconcile(several[0]).counts - [300, 400])
        four.append(reconcile(several, "tree-equality").counts - [300, 400])
    assert np.square(four).mean() < 0.6 * np.square(one).mean()


def test_the_same_measurements_twice_and_other_things_are_refused():
    with pytest.raises(SpecError, match="given twice"):
        reconcile([noisy(1), noisy(1)])
    with pytest.raises(TrueupError, match="was given a dict"):
        reconcile({})  # pyright: ignore[reportArgumentType]
