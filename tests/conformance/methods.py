"""Every reconciliation method on every structure: which fit, and what any answer keeps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.structures import STRUCTURES, Structure
from trueup.model.constraints import violations
from trueup.reconciling import METHODS, misfit
from trueup.reconciling.method import Method

CASES = [pytest.param(k, s, id=f"{k.name}-{s.name}") for k in METHODS for s in STRUCTURES]
FITTING = [p for p in CASES if misfit(p.values[0](), p.values[1].constraints, p.values[1].headers) is None]
STEADY = [p for p in FITTING if not (p.values[0].random or p.values[0].shrinks)]
WHOLE = [p for p in STEADY if p.values[0]().integer]
OTHERS = [p for p in CASES if p not in FITTING]


def assert_feasible(method: Method, structure: Structure, row, measured) -> None:
    tolerance = 0 if method.integer else 1e-6
    if method.integer:
        assert row.dtype.kind == "i"
        assert violations(structure.constraints, row) == []
    if method.nonnegative:
        assert row.min() >= -tolerance
    exact = structure.exact_values(row)
    at = 0
    for header in structure.headers:
        size = structure.constraints.cells.size(header.margin)
        if header.exact:
            assert np.abs(exact[at : at + size] - measured[at : at + size]).max() <= tolerance
        at += size
