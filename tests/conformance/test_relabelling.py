"""Names and order mean nothing: relabelled input gives relabelled output.

A continuous solution is unique, so it must turn round exactly. A whole one may settle ties otherwise: where it
rounds a continuous one it moves by two counts at most, and where it minimises, its loss stays the same.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.conformance.methods import STEADY
from tests.conformance.relabelled import relabelled, turned_values
from tests.conformance.structures import STRUCTURES
from tests.parameters import one_in
from trueup.model.header import split
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.tree_topdown import TreeTopDown

BATCH = 4
EXACT_OPTIMA = ("general-projection",)
"""Whole optima of an objective need not be unique, nor near each other; their objectives are equal."""


def _continuous(method):
    """The method's continuous form, if it has one."""
    if not method.integer:
        return method
    return dataclasses.replace(method, rounding="none") if hasattr(method, "rounding") else None


def _both(method, structure, rng):
    return _turn(method, structure, structure.noisy_values(structure.true_counts(rng), rng, BATCH))


def _turn(method, structure, values):
    """Solve as given, and turned round; both in the order as given."""
    twin = relabelled(structure)
    one, two = (
        method.apply(method.prepare(s.constraints, s.headers), v, np.random.default_rng(0)).values
        for s, v in ((structure, values), (twin, turned_values(structure, values)))
    )
    return one, two[:, ::-1]


TURNED = [
    p
    for p in STEADY
    if p.values[1].constraints.joined is None and not p.values[1].constraints.cells.is_family
]
"""The first of two tables is that of the persons: their order means something. Cells of a family stand table by table."""
CONTINUOUS = [p for p in TURNED if _continuous(p.values[0])]
OPTIMA = [p for p in TURNED if p.values[0].integer and p.values[0].name in EXACT_OPTIMA]
ROUNDED = [p for p in TURNED if p.values[0].integer and p.values[0].name not in EXACT_OPTIMA]


@pytest.mark.parametrize(("method", "structure"), one_in(2, CONTINUOUS))
def test_a_continuous_solution_turns_round(method, structure, rng):
    one, two = _both(_continuous(method), structure, rng)
    np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize(("method", "structure"), one_in(4, ROUNDED))
def test_a_whole_solution_turns_round_but_for_ties(method, structure, rng):
    one, two = _both(method, structure, rng)
    assert np.abs(one - two).max() <= 2


@pytest.mark.parametrize(("method", "structure"), one_in(4, OPTIMA))
def test_a_whole_optimum_turns_round_to_one_as_good(method, structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng, BATCH)
    target = _projected(structure, values)
    one, two = _turn(method, structure, values)
    np.testing.assert_allclose(
        _loss(structure, one, target), _loss(structure, two, target), rtol=1e-3, atol=1e-6
    )


def _projected(structure, values):
    """The continuous solution, to which `general-projection` stays as close as whole counts can."""
    method = GeneralProjection(rounding="none")
    state = method.prepare(structure.constraints, structure.headers)
    solved = method.apply(state, values, np.random.default_rng(0)).values
    return np.stack([structure.exact_values(row) for row in solved])


def _loss(structure, rows, target):
    """Weighted squares of what was measured with noise, for each row."""
    tables = np.stack([structure.exact_values(row) for row in rows])
    cells = structure.constraints.cells
    parts = (split(t, structure.headers, cells) for t in (tables, target))
    pairs = ((h, a, b) for h, a, b in zip(structure.headers, *parts) if not h.exact)
    return sum(((a - b) ** 2).sum(axis=-1) / h.law.variance for h, a, b in pairs)


@dataclasses.dataclass(frozen=True)
class Favouring(TreeTopDown):
    """A wrong method: the first cell takes a quarter of a count from the last."""

    rounding: str = "none"

    def apply(self, state, values, rng):
        solution = super().apply(state, values, rng)
        shift = np.zeros(solution.values.shape[-1])
        shift[0], shift[-1] = 0.25, -0.25
        return dataclasses.replace(solution, values=solution.values + shift)


def test_a_method_that_favours_a_position_is_found(rng):
    structure = next(s for s in STRUCTURES if s.name == "tree")
    one, two = _both(Favouring(), structure, rng)
    assert not np.allclose(one, two, atol=1e-5)
