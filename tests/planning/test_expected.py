"""Errors as functions of precisions, against dense least squares and the standard errors of the method itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.reference import planning as dense
from tests.reference.sums import matrix
from trueup.errors import SpecError
from trueup.layouts.histogram import histogram_problem, histogram_standard_errors
from trueup.model.cells import Attribute, Cells, Margin, Recode
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.places_asked import AreaTable
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian
from trueup.planning import Target
from trueup.planning.expected import Expected

AGES = Recode("adult", ("minor", "major"), (0, 1, 1))
ATTRIBUTES = (Attribute("sex", ("f", "m")), Attribute("age", ("y", "o", "w"), recodes=(AGES,)))
MARGINS = [
    Margin("all"),
    Margin("state", ("sex",)),
    Margin("state", ("adult",)),
    Margin("state", ("sex", "adult")),
    Margin("county", ("age",)),
    Margin("county", ("adult",)),
    Margin("county", ("sex", "age")),
]


def cells_of(counts):
    """Counties by state: as many as `counts` says."""
    states = [f"s{i}" for i, n in enumerate(counts) for _ in range(n)]
    counties = [f"{s}c{i}" for i, s in enumerate(states)]
    tree = Tree.from_columns(
        ["all", "state", "county"], [{}, {"state": states}, {"state": states, "county": counties}]
    )
    return Cells(tree, ATTRIBUTES)


@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2, 3)], ids=["uniform", "ragged"])
@pytest.mark.parametrize("exact", [None, 0, 1])
def test_errors_and_slopes_are_those_of_dense_least_squares(counts, exact, rng):
    cells = cells_of(counts)
    expected = Expected.of(cells, MARGINS)
    p = rng.uniform(0.1, 2, len(MARGINS))
    if exact is not None:
        p[exact] = np.inf
    asked = [m for i, m in enumerate(MARGINS) if i != exact and not (exact == 1 and i == 0)]
    mean, largest = expected.errors(p, asked)
    for margin, average, most in zip(asked, mean, largest):
        known = dense.errors(cells, MARGINS, p, margin)
        assert average == pytest.approx(known.mean(), rel=1e-5)
        assert most == pytest.approx(known.max(), rel=1e-5)
    targets = [Target(m, 1.0) for m in asked] + [Target(m, 1.0, mean=True) for m in asked]
    shares, slopes = expected.largest(p, targets, np.ones(len(targets)))
    finite = np.isfinite(p)
    np.testing.assert_allclose(slopes[:, finite] @ p[finite], shares, rtol=1e-4)
    for at in np.flatnonzero(finite):
        step = np.where(np.arange(len(p)) == at, 1e-4, 0.0)
        up, down = (expected.largest(p + s, targets, np.ones(len(targets)))[0] for s in (step, -step))
        np.testing.assert_allclose(slopes[:, at], (down - up) / 2e-4, rtol=1e-4, atol=1e-6)


def test_errors_are_those_of_the_method(rng):
    cells = cells_of((1, 3, 2))
    laws = [DiscreteGaussian(Fraction(int(v))) for v in rng.integers(10, 60, len(MARGINS))]
    headers = [Measured(str(m), m, law) for m, law in zip(MARGINS, laws)]
    known = histogram_standard_errors(histogram_problem(Constraints(cells, tuple(MARGINS)), headers))
    precisions = np.array([1 / law.variance for law in laws])
    for margin, average, most in zip(MARGINS, *Expected.of(cells, MARGINS).errors(precisions, MARGINS)):
        assert average == pytest.approx((known[margin] ** 2).mean(), rel=1e-9)
        assert most == pytest.approx((known[margin] ** 2).max(), rel=1e-9)


def test_tables_that_are_not_measured_have_errors_too():
    cells, wanted = cells_of((1, 3)), Margin("state", ("sex", "age"))
    p = np.linspace(0.5, 1.5, len(MARGINS))
    expected = Expected.of(cells, MARGINS, [wanted])
    assert expected.errors(p, [wanted])[1][0] == pytest.approx(dense.errors(cells, MARGINS, p, wanted).max())


def test_counts_that_nothing_determines_are_refused():
    with pytest.raises(SpecError, match="do not determine"):
        Expected.of(cells_of((1, 2)), MARGINS[:-1])


def test_what_determines_the_cells_is_found():
    assert Expected.of(cells_of((1, 2)), MARGINS).needed.tolist() == [False] * 6 + [True]


@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2, 3)], ids=["uniform", "ragged"])
@pytest.mark.parametrize("exact", [None, 0])
def test_errors_of_areas_and_their_slopes_are_those_of_dense_least_squares(counts, exact, rng):
    cells = cells_of(counts)
    sizes = np.array(cells.tree.sizes)
    members = [np.sort(rng.choice(sizes[-1], n, replace=False)) for n in (1, 2, 4, sizes[-1] - 1)]
    table = AreaTable(
        "area",
        tuple(f"area {i}" for i in range(len(members))),
        np.repeat(np.arange(len(members)), [len(m) for m in members]),
        np.concatenate(members),
    )
    asked = [Margin("area"), Margin("area", ("adult",)), Margin("area", ("sex", "age"))]
    expected = Expected.of(cells, MARGINS, asked, table)
    p = rng.uniform(0.1, 2, len(MARGINS))
    if exact is not None:
        p[exact] = np.inf
    targets = [Target(m, 1.0) for m in asked] + [Target(m, 1.0, mean=True) for m in asked]
    values, slopes = expected.largest(p, targets, np.ones(len(targets)))
    reached, places = expected.reached(p, targets)
    np.testing.assert_allclose(values, reached)
    for j, target in enumerate(targets):
        known = _of_areas(cells, p, members, target.margin)
        assert values[j] == pytest.approx(known.mean() if target.mean else known.max(), rel=1e-5)
        assert places[j] == ("" if target.mean else table.names[known.max(axis=1).argmax()])
    finite = np.flatnonzero(np.isfinite(p))
    assert slopes[:, finite] @ p[finite] == pytest.approx(values, rel=1e-4)
    for k in finite:
        step = np.where(np.arange(len(p)) == k, 1e-5 * p, 0.0)
        more, less = (expected.largest(q, targets, np.ones(len(targets)))[0] for q in (p + step, p - step))
        assert -(more - less) / (2 * step[k]) == pytest.approx(slopes[:, k], rel=1e-4, abs=1e-7)


def _of_areas(cells, precisions, members, margin):
    """Error variances (areas, groups) by dense algebra."""
    covariance = dense.covariance(cells, MARGINS, precisions)
    rows = matrix(cells, Margin("county", margin.attributes)).reshape(cells.tree.sizes[-1], -1, cells.n)
    sums = np.stack([rows[places].sum(axis=0) for places in members])
    return np.einsum("agi,ij,agj->ag", sums, covariance, sums)


@pytest.mark.parametrize("counts", [(2, 2, 2), (1, 3, 2, 3)], ids=["uniform", "ragged"])
def test_structural_zeros_are_held_as_in_dense_least_squares(counts, rng):
    cells, zeros = cells_of(counts), [{"sex": "m", "age": "y"}, {"sex": "f", "age": "w"}]
    expected = Expected.of(cells, MARGINS, zeros=zeros)
    p = rng.uniform(0.1, 2, len(MARGINS))
    never = np.any([np.broadcast_to(cells.where(zero), cells.shape).ravel() for zero in zeros], axis=0)
    information = sum(q * matrix(cells, m).T @ matrix(cells, m) for q, m in zip(p, MARGINS))
    covariance = np.zeros((cells.n, cells.n))
    covariance[np.ix_(~never, ~never)] = np.linalg.inv(information[np.ix_(~never, ~never)])
    mean, largest = expected.errors(p, MARGINS)
    for margin, average, most in zip(MARGINS, mean, largest):
        rows = matrix(cells, margin)
        known = np.einsum("ij,jk,ik->i", rows, covariance, rows)[rows @ ~never > 0]
        assert average == pytest.approx(known.mean(), rel=1e-6)
        assert most == pytest.approx(known.max(), rel=1e-6)
    without = Expected.of(cells, MARGINS).errors(p, MARGINS)[1]
    assert (largest <= without * (1 + 1e-9)).all()
    assert (largest < 0.99 * without).any()
