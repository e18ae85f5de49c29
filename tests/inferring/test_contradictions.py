"""Values that no true table explains: the smallest set, by name, against trying every set."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from tests.inferring.perturbed_problems import crossing
from tests.inferring.problems import star, states
from trueup.inferring import contradictions
from trueup.inferring.contradictions import contradicting_values
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.noise.laws.undrawn import Exact
from trueup.noise.perturbed import RandomRounding
from trueup.noise.perturbed.hidden_values import HiddenValues
from trueup.noise.perturbed.ranges import CountInterval


def published(cells, margins, values, base=3):
    """Values of margins rounded to a base."""
    headers = tuple(Measured("t", margin, RandomRounding(base)) for margin in margins)
    arrays = tuple(np.array(v, np.int64) for v in values)
    return Measurements(cells, headers, arrays, NO_GUARANTEE), Constraints(cells, tuple(margins))


def smallest(cells, measured):
    """Size of the smallest set of values that nothing explains, by trying all of them; None if all hold together."""
    law, rows = RandomRounding(3), []
    for header, values in zip(measured.headers, measured.values):
        sums = np.stack([cells.sum(unit, header.margin) for unit in np.eye(cells.n, dtype=np.int64)])
        rows += [(sums[:, g], *(int(end) for end in law.bounds(int(v)))) for g, v in enumerate(values)]
    top = max(high for _, _, high in rows)
    tables = np.array(list(product(range(top + 1), repeat=cells.n)))
    holds = np.array([(low <= tables @ row) & (tables @ row <= high) for row, low, high in rows])
    for size in range(1, len(rows) + 1):
        if any(not holds[list(some)].all(axis=0).any() for some in combinations(range(len(rows)), size)):
            return size
    return None


@pytest.mark.parametrize("seed", range(30))
def test_the_set_is_the_smallest_there_is(seed):
    rng = np.random.default_rng([12, seed])
    kind = seed % 3
    cells = (star(3), states((2, 1)), crossing(2, 2))[kind]
    if kind == 2:
        margins = [cells.finest, Margin("all", ("sex",)), Margin("all", ("age",))]
    else:
        margins = [Margin(level) for level in cells.tree.levels]
    values = [3 * rng.integers(0, 3, cells.size(margin)) for margin in margins]
    measured, constraints = published(cells, margins, values)
    error, size = contradicting_values(measured, constraints), smallest(cells, measured)
    assert (error is None) == (size is None)
    if error is not None:
        assert f"these {size} published values" in str(error)
        assert "the smallest such set" in str(error)


def test_a_code_that_explains_nothing_is_said_to_hide_larger_counts_too():
    cells, margins = star(2), [Margin("all"), Margin("part")]
    laws = (RandomRounding(3), CountInterval(1, 2))
    headers = tuple(Measured("t", margin, law) for margin, law in zip(margins, laws))
    measured = Measurements(cells, headers, (np.array([9]), np.array([1, 1])), NO_GUARANTEE)
    error = contradicting_values(measured, Constraints(cells, tuple(margins)))
    assert 'it says "unknown"' in str(error)
    rounded = contradicting_values(*published(cells, margins, [[30], [0, 0]]))
    assert rounded is not None
    assert "unknown" not in str(rounded)


def test_a_value_that_leaves_one_count_is_not_said_to_be_from_it_to_itself():
    assert Exact().says(5) == "= 5"
    assert RandomRounding(3).says(0) == "published as 0 (from 0 to 2)"
    assert (
        HiddenValues(Exact(), published=[(7, 7)]).says(0) == "published as a code for a value 7 (exactly 7)"
    )


@pytest.mark.thorough
def test_of_many_values_a_set_is_named_that_contradicts_by_itself(monkeypatch):
    monkeypatch.setattr(contradictions, "SECONDS", 8.0)
    cells = star(2500)
    values = [[3 * 2500], np.full(2500, 3)]
    measured, constraints = published(cells, [Margin("all"), Margin("part")], values)
    assert contradicting_values(measured, constraints) is None
    values[0] = [30]  # parts are at least 1 each
    error = contradicting_values(*published(cells, [Margin("all"), Margin("part")], values))
    assert error is not None
    assert "'all' published as 30" in str(error)
    assert "no part of them does" in str(error)


@pytest.mark.parametrize("seed", range(6))
def test_large_values_are_named_too(seed):
    rng = np.random.default_rng([13, seed])
    cells = crossing(2, 2)
    true = rng.integers(10**6, 10**9, cells.n)
    margins = [cells.finest, Margin("all", ("sex",))]
    values = [3 * (cells.sum(true, margin) // 3) for margin in margins]
    values[1][0] += 3 * rng.integers(10**4, 10**5)
    error = contradicting_values(*published(cells, margins, values))
    assert error is not None
    assert "these 3 published values" in str(error)
