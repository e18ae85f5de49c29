"""Noise so narrow that it is just not refused: every method stays feasible beside wide noise, or says why not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.conformance.structures import STRUCTURES
from tests.conformance.test_methods import METHODS, assert_feasible
from tests.infer.test_conformance import KINDS
from tests.model.test_measurements import NARROWEST

from trueup.errors import TrueupError
from trueup.infer import misfit as cannot_infer
from trueup.infer.lattice_moves import LatticeMoves
from trueup.io.sdhc import PUBLISHED
from trueup.model.constraints import violations
from trueup.model.measurements import Measurements, split
from trueup.reconcile import misfit

CLOSED = ("tree-topdown", "tree-equality", "tree-nonnegative", "tree-integer", "topdown-raw")
"""Exact at any ratio of variances; iterations and rank tests in double precision span some sixteen decimals."""


def _narrow(structure, every):
    """The structure with every other margin, or every one, nearly without noise."""
    headers = tuple(
        dataclasses.replace(h, law=NARROWEST) if not h.exact and i % every == 0 else h
        for i, h in enumerate(structure.headers)
    )
    return dataclasses.replace(structure, headers=headers)


NARROW = [
    pytest.param(_narrow(s, every), id=f"{s.name}-{every}")
    for s in STRUCTURES
    for every in (1, 2)
    if not any(h.law.name.startswith("lattice") for h in s.headers)
]


@pytest.mark.parametrize("structure", NARROW)
def test_counts_are_reconciled(structure, rng):
    values = structure.noisy_values(structure.true_counts(rng), rng)
    for method in (kind() for kind in METHODS):
        if misfit(method, structure.constraints, structure.headers) is None:
            try:
                state = method.prepare(structure.constraints, structure.headers)
                solution = method.apply(state, values, np.random.default_rng(0))
            except TrueupError:
                assert method.name not in CLOSED
                continue
            if method.name in CLOSED or solution.status == "solved":
                assert_feasible(method, structure, solution.values[0], values[0])


@pytest.mark.parametrize("structure", NARROW)
def test_counts_are_inferred(structure, rng):
    """From values that such noise leaves as they are, which contradict nothing."""
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
