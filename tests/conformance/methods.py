"""Every reconciliation method on every structure: which fit, and what any answer keeps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.structures import STRUCTURES, Structure
from trueup.model.constraints import violations
from trueup.reconciling import METHODS, build, misfit
from trueup.reconciling.method import Method

CHOICES = {
    "histogram-tree, least squares": build("histogram-tree", {"estimates": "least-squares"}),
    "family-tree, least squares": build("family-tree", {"estimates": "least-squares"}),
    "joined-tree, least squares": build("joined-tree", {"estimates": "least-squares"}),
    "margins-projection, continuous": build("margins-projection", {"rounding": "none"}),
    "general-projection, continuous": build("general-projection", {"rounding": "none"}),
    "general-projection, L1 continuous": build("general-projection", {"norm": "l1", "rounding": "none"}),
    "general-projection, L1 whole": build("general-projection", {"norm": "l1", "rounding": "optimal"}),
}
"""Methods with other parameters than their default ones, which take other ways."""
METHODS_TRIED = {kind.name: kind() for kind in METHODS} | CHOICES
CASES = [pytest.param(m, s, id=f"{name}-{s.name}") for name, m in METHODS_TRIED.items() for s in STRUCTURES]
FITTING = [p for p in CASES if misfit(p.values[0], p.values[1].constraints, p.values[1].headers) is None]
STEADY = [p for p in FITTING if not (p.values[0].random or getattr(p.values[0], "posterior", False))]
WHOLE = [p for p in STEADY if p.values[0].integer]
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
