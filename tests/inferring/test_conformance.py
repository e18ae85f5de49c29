"""Every inference method against every structure of the suite: it fits and keeps every rule, or says why not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.structures import STRUCTURES
from tests.inferring.problems import KINDS
from tests.parameters import one_in
from trueup.errors import SpecError
from trueup.inferring import inference_misfit
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.io.published.sdhc import PUBLISHED
from trueup.model.constraints import violations
from trueup.model.header import split
from trueup.model.records.measurements import Measurements
from trueup.model.verb import refuse_method

CASES = [
    pytest.param(kind, structure, id=f"{kind.name}-{structure.name}")
    for kind in KINDS
    for structure in STRUCTURES
]


def measurements(structure, rng):
    """Noisy values of a structure's margins."""
    values = structure.noisy_values(structure.true_counts(rng), rng)[0]
    cells, headers = structure.constraints.cells, structure.headers
    return Measurements(cells, headers, tuple(split(values, headers, cells)), PUBLISHED, simulation=True)


@pytest.mark.parametrize(("kind", "structure"), one_in(2, CASES))
def test_draws_keep_every_rule_or_the_method_says_why_not(kind, structure, rng):
    record = measurements(structure, rng)
    method = kind(sweeps=2000) if kind is LatticeMoves else kind()
    if why := inference_misfit(method, structure.constraints, record):
        with pytest.raises(SpecError, match=kind.name):
            refuse_method(method, why)
        return
    state = method.prepare(structure.constraints, structure.headers)
    # A short run need not have converged; what it must keep it keeps at every step.
    drawn = method.apply(state, record.flat, 40, np.random.default_rng(0), lambda done, of: None)
    draws = drawn.draws.reshape(-1, structure.constraints.cells.n)
    for row in draws[:40]:
        assert violations(structure.constraints, row.astype(np.int64)) == []
        for header, values in zip(record.headers, record.values):
            if header.exact:
                assert np.array_equal(structure.constraints.cells.sum(row, header.margin), values)


def test_some_method_takes_every_structure():
    for structure in STRUCTURES:
        record = measurements(structure, np.random.default_rng(0))
        assert any(inference_misfit(kind(), structure.constraints, record) is None for kind in KINDS), (
            structure.name
        )
