"""Nonnegative whole counts with exact invariants from noise that keeps them: the default, and the posterior."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas
import pytest

from tests.conformance.structures import STRUCTURES
from tests.reference.lattice import law_of, p_value
from trueup import reconcile, simulate
from trueup.errors import DataError, SpecError
from trueup.kernel.lattice.structure import Lattice
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.problem import Problem
from trueup.model.spec import parse_spec
from trueup.noise.lattice.laws import LatticeGaussian, LatticeLaplace
from trueup.noise.laws.exact import Exact
from trueup.reconciling import build, choose, misfit, refuse_misfit
from trueup.reconciling.lattice_posterior import LatticePosterior

HEAD = """
format = 2
title = 'Demo'
table = { name = 'demo', kind = 'counts', counts = 'person', count = 'n', keys = 'public' }
privacy = { unit = 'person', neighbours = 'replace' }
"""
TREE = HEAD + (
    "level = [{ name = 'all' }, { name = 'state', column = 's' }, { name = 'county', column = 'c' }]\n"
    "query = [{ name = 'q', noise = 'lattice-laplace', epsilon = { county = '1/5' } }]\n"
    "constraints = { invariants = [{ level = 'state' }] }\n"
)
TABLE = HEAD + (
    "level = [{ name = 'all' }, { name = 'county', column = 'c' }]\n"
    "attribute = [{ name = 'edu', values = ['low', 'medium', 'high'] }]\n"
    "query = [{ name = 'q', attributes = ['edu'], noise = 'lattice-laplace', epsilon = { county = '1/2' } }]\n"
    "constraints = { invariants = [{ level = 'county' }, { level = 'all', attributes = ['edu'] }] }\n"
)
SPARSE = pandas.DataFrame(
    {"s": list("AAAAABBBBC"), "c": [str(i) for i in range(10)], "n": [0, 0, 1, 40, 0, 2, 0, 0, 3, 7]}
)
GRID = pandas.DataFrame(
    [{"c": c, "edu": e, "n": n} for c, row in zip("xyz", [[0, 1, 3], [9, 0, 2], [0, 0, 12]])
     for e, n in zip(["low", "medium", "high"], row)]
)  # fmt: skip
CASES = {"partition": (TREE, SPARSE), "both margins": (TABLE, GRID)}
BY = {name: build("lattice-posterior", {"estimate": name}) for name in ("mean", "mode", "draw")}


def noisy(case, rng):
    text, frame = CASES[case]
    spec = parse_spec(text)
    return spec, simulate(Problem.of(spec, data=frame), np.array(frame["n"]), rng)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("estimate", ["default", *BY])
def test_counts_are_whole_nonnegative_and_keep_the_invariants(case, estimate, rng):
    """From noise that makes many counts negative; what `reconcile` checked is checked again here."""
    below = 0
    for _ in range(5):
        spec, measured = noisy(case, rng)
        released = reconcile(measured, BY.get(estimate), spec=spec)
        counts, cells = released.counts, measured.cells
        below += int((measured.values[0] < 0).sum())
        assert counts.dtype.kind == "i"
        assert counts.min() >= 0
        for header, values in zip(measured.headers, measured.values):
            if header.exact:
                assert cells.sum(counts, header.margin).tolist() == values.tolist()
    assert below > 0


@pytest.mark.thorough
def test_the_draw_has_the_law_of_the_posterior(rng):
    """Against enumeration; the posterior for noise half as wide fails the same test."""
    structure = next(s for s in STRUCTURES if s.name == "tree with noise that keeps invariants")
    constraints = Constraints(structure.constraints.cells, structure.constraints.margins,
                              structure.constraints.invariants[:1])  # fmt: skip
    n = constraints.cells.n
    law = LatticeLaplace(Fraction(1)).on(Lattice.of(n, np.ones((1, n), np.int64)))
    headers = (
        Measured("q", constraints.cells.finest, law),
        Measured("i", constraints.invariants[0], Exact()),
    )
    z = np.array([2, 0, -1, 0, 0, 1, 0, 0, 0])
    values = np.tile(np.append(z, z.sum()), (1_000, 1))
    method = LatticePosterior("draw", draws=40)
    drawn = method.apply(method.prepare(constraints, headers), values, rng).values
    x = np.array([a + b for a in np.eye(n, dtype=int) for b in np.eye(n, dtype=int)])
    x = np.unique(x, axis=0)
    right = law_of(z - x, lambda v: -np.abs(v).sum(axis=1))
    narrow = law_of(z - x, lambda v: -2.0 * np.abs(v).sum(axis=1))
    assert p_value(drawn, x, right) > 1e-6
    assert p_value(drawn, x, narrow) < 1e-6


def test_the_mean_is_nearer_to_the_truth_than_the_noisy_counts(rng):
    raw, mean = [], []
    for _ in range(20):
        spec, measured = noisy("partition", rng)
        truth = SPARSE["n"].to_numpy()
        raw.append(((measured.values[0] - truth) ** 2).sum())
        mean.append(((reconcile(measured, BY["mean"], spec=spec).counts - truth) ** 2).sum())
    assert np.mean(mean) < 0.7 * np.mean(raw)


def test_what_the_draws_rest_on_is_reported(rng):
    spec, measured = noisy("partition", rng)
    stats = reconcile(measured, BY["mean"], spec=spec).stats
    assert stats["moves known to connect"]
    assert stats["largest R-hat"] < 1.2
    assert 0 < stats["largest Monte Carlo error (counts)"] < 5
    assert stats["largest rounding (counts)"] < 1


def test_what_it_does_not_handle_is_said():
    structure = {s.name: s for s in STRUCTURES}["tree with noise that keeps invariants"]
    constraints, headers = structure.constraints, structure.headers
    plain = {s.name: s for s in STRUCTURES}["tree with invariants"]
    assert "noise 'lattice-laplace'" in str(misfit(LatticePosterior(), plain.constraints, plain.headers))
    gaussian = (Measured("q", constraints.cells.finest, LatticeGaussian(Fraction(2))), *headers[1:])
    assert misfit(LatticePosterior(), constraints, gaussian) is None
    assert "least squares" in str(misfit(LatticePosterior("mode"), constraints, gaussian))
    free = Constraints(constraints.cells, constraints.margins, constraints.invariants, nonnegative=False)
    assert "may be negative" in str(misfit(LatticePosterior(), free, headers))
    few = choose({"method": "lattice-posterior", "draws": 5}, constraints)
    with pytest.raises(SpecError, match="40 or more"):
        refuse_misfit(few, constraints, headers)


def test_altered_counts_are_refused(rng):
    spec, measured = noisy("partition", rng)
    measured.values[0][0] += 1
    with pytest.raises(DataError, match="do not sum to the invariants"):
        reconcile(measured, BY["draw"], spec=spec)
