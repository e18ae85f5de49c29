"""A total that repeats the value of its only part under a cell key is measured once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.inferring.problems import star, states
from trueup.inferring import infer
from trueup.inferring.given import measured_once
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.noise.perturbed import CellKey, RandomRounding

KEY = CellKey(2, "1")


def published(cells, values, law=KEY, groups=None):
    """Values of every level under one law."""
    margins = [Margin(level) for level in cells.tree.levels]
    headers = [Measured("t", margin, law) for margin in margins]
    if groups is not None:
        headers[-1] = Measured("t", margins[-1], law, np.array(groups))
    arrays = tuple(np.array(v, np.int64) for v in values)
    return Measurements(cells, tuple(headers), arrays, NO_GUARANTEE), Constraints(cells, tuple(margins))


@pytest.mark.parametrize(
    ("values", "law", "groups", "left_out"),
    [
        ([[5], [5, 0, 0]], KEY, None, 1),
        ([[6], [5, 0, 0]], KEY, None, 0),
        ([[5], [4, 1, 0]], KEY, None, 0),
        ([[0], [0, 0, 0]], KEY, None, 0),
        ([[5], [5, 0]], KEY, [0, 1], 0),  # the third part is not published
        ([[6], [6, 0, 0]], RandomRounding(3), None, 0),  # no keys: perturbed apart
    ],
)
def test_only_totals_with_one_part_and_its_value_are_left_out(values, law, groups, left_out):
    measured, constraints = published(star(3), values, law, groups)
    once, number = measured_once(measured)
    assert number == left_out
    assert [len(v) for v in once.values] == [1, len(values[1])][left_out:]
    stats = infer(measured, spec=constraints, draws=2).drawn.stats
    assert stats.get("repeated_values", 0) == left_out


def test_a_part_whose_own_parts_are_shown_stays_where_it_has_several():
    measured, _ = published(states((2, 2)), [[7], [7, 0], [4, 3, 0, 0]])
    once, number = measured_once(measured)
    assert number == 1  # the whole repeats the first state, which is itself the sum of two
    assert [v.tolist() for v in once.values] == [[7, 0], [4, 3, 0, 0]]


def test_the_posterior_is_that_of_the_part_alone_and_counted_twice_it_would_not_be():
    cells = star(1)
    measured, constraints = published(cells, [[5], [5]])
    mean = infer(measured, spec=constraints, draws=2).drawn.marginals[cells.finest]
    x = np.arange(3, 8)
    alone = np.exp(KEY.log_mass(5, x))
    assert mean.cdf(5)[0] - mean.cdf(4)[0] == pytest.approx(alone[2] / alone.sum(), abs=1e-12)
    assert (alone[2] ** 2 / (alone**2).sum()) != pytest.approx(alone[2] / alone.sum(), abs=0.05)
