"""Narrow noise, to the narrowest that is just not refused: every method solves it, alone and beside wide noise.

Where widths differ too far for a method, it says so before any noise is drawn.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from tests.conformance.methods import METHODS_TRIED, assert_feasible
from tests.conformance.structures import NARROWEST, STRUCTURES
from tests.inferring.problems import KINDS
from tests.parameters import one_in
from trueup.errors import ConvergenceError, SpecError, TrueupError
from trueup.inferring import inference_misfit as cannot_infer
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.constraints import violations
from trueup.model.header import split
from trueup.model.records.measurements import Measurements
from trueup.noise import DiscreteLaplace
from trueup.reconciling import misfit

CLOSED = ("tree-topdown", "tree-equality")
"""Exact at any ratio of variances; iterations and rank tests in double precision span some sixteen decimals."""
WITHIN = DiscreteLaplace(Fraction(12))
"""A variance 640,000 times below that of the structures' noise, which is within the span that all methods resolve."""


def _narrow(structure, every, law=NARROWEST):
    """The structure with every other margin, or every one, nearly without noise."""
    headers = tuple(
        dataclasses.replace(h, law=law) if not h.exact and i % every == 0 else h
        for i, h in enumerate(structure.headers)
    )
    return dataclasses.replace(structure, headers=headers)


LAID = [s for s in STRUCTURES if not any(h.law.name.startswith("lattice") for h in s.headers)]
NARROW = [pytest.param(_narrow(s, every), id=f"{s.name}-{every}") for s in LAID for every in (1, 2)]
FAR_APART = [
    pytest.param(_narrow(s, 2, DiscreteLaplace(Fraction(20))), id=s.name)
    for s in LAID
    if s.constraints.structure() == "histogram"
]
RESOLVED = [pytest.param(_narrow(s, 2, WITHIN), id=s.name) for s in LAID]


def _fitting(structure):
    """Every method that fits a structure, with its state where it resolves the span of its noise."""
    for method in METHODS_TRIED.values():
        if misfit(method, structure.constraints, structure.headers) is None:
            try:
                yield method, method.prepare(structure.constraints, structure.headers)
            except SpecError as error:
                yield method, error


def _assert_solved(structure, method, state, values):
    solution = method.apply(state, values, np.random.default_rng(0))
    assert solution.status == "solved", method.name
    assert_feasible(method, structure, solution.values[0], values[0])


@pytest.mark.parametrize("structure", NARROW)
def test_counts_are_reconciled(structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng)
    mixed = len({h.law for h in structure.headers if not h.exact}) > 1
    for method, state in _fitting(structure):
        if isinstance(state, SpecError):
            assert mixed
            assert method.name not in CLOSED
            assert "times the variance of that of query" in str(state)
        else:
            _assert_solved(structure, method, state, values)


def _drawn(structure, rng):
    """Values with noise of every header's own law."""
    cells, counts = structure.constraints.cells, structure.true_counts(rng)
    tables = [h.sums(cells, counts) for h in structure.headers]
    noisy = (t if h.exact else t + h.law.sample(t.size, rng.bytes) for h, t in zip(structure.headers, tables))
    return np.concatenate(list(noisy))[None]


@pytest.mark.parametrize("structure", FAR_APART)
def test_histograms_are_reconciled_at_any_ratio_that_is_not_refused(structure, rng):
    values = _drawn(structure, rng)
    for method, state in _fitting(structure):
        if method.name == "histogram-tree":
            assert not isinstance(state, SpecError)
            _assert_solved(structure, method, state, values)


@pytest.mark.slow
@pytest.mark.parametrize("structure", one_in(6, RESOLVED))
def test_counts_beside_much_wider_noise_are_reconciled(structure, rng):
    for _ in range(5):
        values = _drawn(structure, rng)
        for method, state in _fitting(structure):
            assert not isinstance(state, SpecError), method.name
            _assert_solved(structure, method, state, values)


@pytest.mark.parametrize(
    "structure", [s for s in LAID if s.name in ("overlapping sums", "three-way table", "tree")]
)
def test_values_that_add_up_come_back_from_the_narrowest_noise(structure, rng):
    """So that no method may call solved what it has not weighed."""
    narrow = _narrow(structure, 1)
    counts = narrow.true_counts(rng)
    values = narrow.exact_values(counts)[None]
    for method, state in _fitting(narrow):
        if not method.random:
            assert not isinstance(state, SpecError), method.name
            solution = method.apply(state, values, np.random.default_rng(0))
            np.testing.assert_allclose(solution.values[0], counts, atol=1e-6, err_msg=method.name)


@pytest.mark.thorough
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("structure", LAID)
def test_counts_are_inferred(structure, every, rng):
    """From values that such noise leaves as they are, which contradict nothing."""
    structure = _narrow(structure, every)
    cells, headers = structure.constraints.cells, structure.headers
    values = structure.exact_values(structure.true_counts(rng))
    record = Measurements(cells, headers, tuple(split(values, headers, cells)), PUBLISHED, simulation=True)
    for kind in KINDS:
        method = kind(sweeps=2000) if kind is LatticeMoves else kind()
        if cannot_infer(method, structure.constraints, record) is None:
            try:
                state = method.prepare(structure.constraints, structure.headers)
                drawn = method.apply(state, record.flat, 10, rng, lambda done, of: None)
            except TrueupError:  # a chain that cannot move
                continue
            for row in drawn.draws.reshape(-1, structure.constraints.cells.n)[:10]:
                assert violations(structure.constraints, row.astype(np.int64)) == []


@pytest.mark.parametrize(
    "epsilon", [10, pytest.param(40, marks=pytest.mark.slow), pytest.param(230, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("structure", LAID)
def test_values_that_contradict_each_other_have_a_posterior_or_an_error(structure, epsilon, rng):
    """Noise a thousand times wider than its law says."""
    narrow = _narrow(structure, 1, DiscreteLaplace(Fraction(epsilon)))
    cells, method = narrow.constraints.cells, TreeExact(tier="exact")
    values = narrow.noisy_values(narrow.true_counts(rng), rng)[0]
    record = Measurements(
        cells, narrow.headers, tuple(split(values, narrow.headers, cells)), PUBLISHED, simulation=True
    )
    if cannot_infer(method, narrow.constraints, record) is None:
        state = method.prepare(narrow.constraints, narrow.headers)
        try:
            drawn = method.apply(state, values, 10, rng, lambda done, of: None)
        except ConvergenceError:
            return
        assert drawn.stats["dropped_mass"] <= method.tolerance
        assert violations(narrow.constraints, drawn.draws[0, 0]) == []
