"""The benchmark of segments: it runs, and segments give the integers of the whole tree."""

import numpy as np

from benchmarks._pl94 import synthetic
from benchmarks.histogram_segments import Sweeps


def test_segments_of_a_small_state_give_the_integers_of_the_whole_tree():
    state = synthetic(12, 4)
    np.testing.assert_array_equal(Sweeps(state).sweep(), Sweeps(state, whole=True).sweep())
