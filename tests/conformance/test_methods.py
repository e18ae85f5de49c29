"""Every reconciliation method against every structure.

A method that does not handle a structure must say so by name; none is passed over in silence.
"""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest

from tests.conformance.methods import FITTING, OTHERS, STEADY, WHOLE, assert_feasible
from tests.conformance.structures import Structure
from tests.parameters import one_in
from trueup.errors import SpecError
from trueup.reconciling import METHODS, build, describe, refuse_misfit
from trueup.reconciling.method import Method

BATCH = 4


def _apply(method: Method, structure: Structure, values, seed: int = 0):
    state = method.prepare(structure.constraints, structure.headers)
    return method.apply(state, values, np.random.default_rng(seed))


@pytest.mark.parametrize(("method", "structure"), OTHERS)
def test_says_what_it_does_not_handle(method, structure):
    with pytest.raises(SpecError, match=method.name):
        refuse_misfit(method, structure.constraints, structure.headers)


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
def test_handles_at_least_one_structure(kind):
    assert any(type(p.values[0]) is kind for p in FITTING), f"{kind.name} fits no structure of the suite"


@pytest.mark.parametrize(("method", "structure"), FITTING)
def test_result_is_feasible_and_keeps_its_claims(method, structure, rng):
    counts = structure.true_counts(rng)
    values = structure.noisy_values(counts, rng, BATCH)
    solution = _apply(method, structure, values)
    assert solution.status == "solved"
    assert solution.values.shape == (BATCH, structure.constraints.cells.n)
    for row, measured in zip(solution.values, values):
        assert_feasible(method, structure, row, measured)


@pytest.mark.parametrize(("method", "structure"), STEADY)
def test_exact_input_is_unchanged(method, structure, rng):
    counts = structure.true_counts(rng)
    solution = _apply(method, structure, structure.exact_values(counts)[None, :])
    np.testing.assert_allclose(solution.values[0], counts, atol=0 if method.integer else 1e-6)


@pytest.mark.parametrize(("method", "structure"), one_in(2, WHOLE))
def test_reconciling_again_changes_nothing(method, structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng)
    once = _apply(method, structure, values).values
    again = _apply(method, structure, structure.exact_values(once[0])[None, :]).values
    np.testing.assert_array_equal(again, once)


@pytest.mark.parametrize(("method", "structure"), one_in(2, FITTING))
def test_one_row_equals_a_batch_of_one(method, structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng)
    single = _apply(method, structure, values[0]).values
    batch = _apply(method, structure, values).values
    assert single.shape == (structure.constraints.cells.n,)
    np.testing.assert_allclose(single, batch[0], atol=1e-9)


@pytest.mark.parametrize(("method", "structure"), one_in(6, FITTING))
def test_inputs_and_global_randomness_are_left_alone(method, structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng, BATCH)
    before, legacy, standard = values.copy(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = _apply(method, structure, values, seed=7).values
    second = _apply(method, structure, values, seed=7).values
    np.testing.assert_array_equal(values, before)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002
    assert random.getstate() == standard


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
def test_parameters_survive_json(kind):
    entry = json.loads(json.dumps(describe(kind())))
    assert build(entry.pop("method"), entry) == kind()


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.name)
def test_is_frozen_and_described(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.title
    assert kind.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().name = "other"  # pyright: ignore[reportAttributeAccessIssue]
