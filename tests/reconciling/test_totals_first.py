"""Totals and measured tables of one place are settled before cells: no bias, no more error than least squares.

One place, or four places below one that is not measured, with many more empty cells than counts. A mean error is compared
with 5.3 of its Monte Carlo errors (false alarms: 1e-7); tables that are projected cell by cell must fail the same test.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trueup.kernel.histogram import identity, marginalise, summed
from trueup.kernel.histogram.anova import Domain
from trueup.kernel.settling.nearest import Metric, nearest_nonnegative
from trueup.kernel.settling.refine import settle_marginals
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured, simulate_many
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace
from trueup.reconciling import default
from trueup.reconciling.general_projection import GeneralProjection
from trueup.reconciling.histogram_tree import HistogramTree
from trueup.reconciling.margins_projection import MarginsProjection

LIMIT, REPLICATES = 5.3, 60
SHAPE = (3, 8, 4)
NAMES = ("a", "b", "c")
TABLES = ((), ("a",), ("c",), NAMES)
"""What is measured, but for the total; `a` and `c` cross each other."""


def problem(
    places: int, nonnegative: bool = True, bounds: tuple[Bound, ...] = ()
) -> tuple[Constraints, list[Measured]]:
    attributes = tuple(
        Attribute(name, tuple(f"{name}{i}" for i in range(n))) for name, n in zip(NAMES, SHAPE, strict=True)
    )
    columns = [{}] if places == 1 else [{}, {"place": np.arange(places)}]
    levels = ["all", "place"][: len(columns)]
    cells = Cells(Tree.from_columns(levels, columns), attributes)
    law = DiscreteLaplace(Fraction(1, 8))
    headers = [Measured("q", Margin(levels[-1], names), law) for names in TABLES[1:]]
    margins = tuple(h.margin for h in headers)
    return Constraints(cells, margins, nonnegative=nonnegative, bounds=bounds), headers


def errors_of(
    method,
    places: int,
    rng: np.random.Generator,
    *,
    nonnegative: bool = True,
    bounds: tuple[Bound, ...] = (),
) -> dict:
    """Errors of every table over all places, replicate after replicate."""
    constraints, headers = problem(places, nonnegative, bounds)
    truth = np.zeros(constraints.cells.n, np.int64)
    truth[:: SHAPE[1] * SHAPE[2] // 2] = 100
    values = simulate_many(constraints.cells, truth, headers, rng, REPLICATES)
    found = method.apply(method.prepare(constraints, headers), values, rng).values
    return {names: constraints.cells.sum(found - truth, Margin("all", names)) for names in TABLES}


def score(errors) -> float:
    total = errors.sum(axis=1)
    return total.mean() / (total.std(ddof=1) / np.sqrt(len(total)))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "places"), [(MarginsProjection(), 1), (HistogramTree(estimates="least-squares"), 4)]
)
def test_totals_and_measured_tables_err_no_more_than_least_squares(method, places, rng):
    seed = rng.integers(2**31)
    ours = errors_of(method, places, np.random.default_rng(seed))
    free = errors_of(method, places, np.random.default_rng(seed), nonnegative=False)
    assert abs(score(ours[()])) < LIMIT
    for names in TABLES:
        assert np.square(ours[names]).mean() < 1.01**2 * np.square(free[names]).mean()


def test_a_table_that_no_integer_program_finds_in_time_is_settled_from_the_top(rng):
    constraints, headers = problem(1)
    truth = rng.poisson(3, constraints.cells.n)
    values = simulate_many(constraints.cells, truth, headers, rng, 3)
    method = MarginsProjection(seconds=1e-6)
    hurried = method.apply(method.prepare(constraints, headers), values, rng)
    assert hurried.status == "solved"
    assert hurried.stats["tables solved by a general program"] == 3
    assert (hurried.values >= 0).all()


BOUNDED = (Bound(Margin("all", ("a",)), lower=0, upper=400),)
"""Far from the true 200 of each."""


@pytest.mark.thorough
def test_bounds_at_one_place_leave_its_total_unbiased(rng):
    """The general program, which took such tables, projects cell by cell."""
    method = default(problem(1, bounds=BOUNDED)[0])
    assert isinstance(method, HistogramTree)
    seed = rng.integers(2**31)
    ours = errors_of(method, 1, np.random.default_rng(seed), bounds=BOUNDED)
    free = errors_of(MarginsProjection(), 1, np.random.default_rng(seed))
    assert abs(score(ours[()])) < LIMIT
    assert np.square(ours[()]).mean() < 1.01**2 * np.square(free[()]).mean()
    general = errors_of(GeneralProjection(rounding="none"), 1, np.random.default_rng(seed), bounds=BOUNDED)
    assert score(general[()]) > LIMIT


def test_cells_first_would_bias_the_total(rng):
    assert score(errors_of(MarginsProjection(rounding="none"), 1, rng)[()]) > LIMIT


def test_marginals_that_cross_agree_on_what_they_share(rng):
    domain = Domain.of([tuple(identity(n) for n in SHAPE)])
    variances = tuple(np.full((1, 1, 1), rng.uniform(0.5, 5)) for _ in domain.components)
    metric = Metric(domain, variances, np.arange(20), 20, tied=False)
    tables = rng.normal(1.0, 3.0, (20, domain.cells))
    pair, other, total = (
        (identity(3), identity(8), summed(4)),
        (summed(3), identity(8), identity(4)),
        tuple(summed(n) for n in SHAPE),
    )
    x, residual, _ = settle_marginals(metric, tables, [other, pair, total])
    assert residual.max() < 1e-5
    assert x.min() >= 0
    np.testing.assert_allclose(x.sum(axis=1), np.maximum(tables.sum(axis=1), 0), atol=1e-4)
    first, _, _ = settle_marginals(metric, tables, [pair, total])  # settled before what is as large
    np.testing.assert_allclose(marginalise(x, pair), marginalise(first, pair), atol=1e-4)


def test_without_marginals_it_is_the_nearest_table(rng):
    domain = Domain.of([(identity(5),)])
    metric = Metric(domain, tuple(np.ones((1, 1, 1)) for _ in domain.components), np.arange(3), 3, tied=False)
    tables = rng.normal(0.0, 2.0, (3, 5))
    x, _, _ = settle_marginals(metric, tables, [])
    np.testing.assert_allclose(x, nearest_nonnegative(metric, tables)[0], atol=1e-9)
