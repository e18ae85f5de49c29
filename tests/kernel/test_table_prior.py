"""Steps of the prior of histograms: tables of a restaurant, sizes of places and densities, against their laws written out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import beta, binom, binomtest, chisquare, gamma, kstest, norm

from trueup.kernel.compiled import njit
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.kernel.table_walks.compositions import (
    CELL,
    log_cell_concentration,
    log_common_factor,
    slice_sample,
)
from trueup.kernel.table_walks.gibbs_steps import (
    EVEN,
    MEAN,
    STRENGTH,
    draw_factors,
    draw_rates,
    left_after,
    occupied,
)
from trueup.kernel.table_walks.rates import draw_size
from trueup.kernel.table_walks.weights import log_totals
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.tree import Tree
from trueup.noise import law_named

CHANCE = 1e-6
"""Probability below which a test fails; wrong versions are far below it."""


@njit(cache=False)
def seated(rng, guests, alpha, tables):
    for i in range(tables.size):
        tables[i] = occupied(rng, guests, alpha)


@njit(cache=False)
def left_over(rng, count, share, left):
    for i in range(left.size):
        left[i] = left_after(rng, count, share)


@njit(cache=False)
def steps(rng, held, kappa, power, around, sizes):
    for i in range(sizes.size):
        sizes[i] = draw_size(rng, held, kappa, power, around, sizes[i])


@njit(cache=False)
def rates_drawn(rng, places, state):
    draw_rates(rng, places, state)


@njit(cache=False)
def factors_drawn(rng, places, state, alike, room, hyper):
    draw_factors(rng, places, state, alike, room, hyper, 1)


@njit(cache=False)
def log_cell(places, state, room, level, j, kappa):
    return log_cell_concentration(places, state, room, level, j, kappa)


@njit(cache=False)
def log_scale(places, state, room, factor):
    return log_common_factor(places, state, room, factor)


@njit(cache=False)
def sliced(rng, places, state, room, hyper, level, j, value):
    return slice_sample(rng, places, state, room, hyper, CELL, level, j, value)


@njit(cache=False)
def log_of_totals(places, state, level, a):
    return log_totals(places, state, level, a)


def tables_law(guests, alpha):
    """Masses of 1, 2, ... tables, guest by guest."""
    masses = np.zeros(guests)
    masses[0] = 1.0
    for i in range(1, guests):
        fresh = alpha / (alpha + i)
        masses = masses * (1.0 - fresh) + np.append(0.0, masses[:-1]) * fresh
    return masses


def fits(tables, masses):
    """Probability of numbers of tables as unlikely as these, values of few draws together."""
    expected, seen = masses * tables.size, np.bincount(tables - 1, minlength=len(masses))
    rare = expected < 20
    if rare.any():
        seen, expected = (np.append(each[~rare], each[rare].sum()) for each in (seen, expected))
    return chisquare(seen, expected * seen.sum() / expected.sum()).pvalue


@pytest.mark.parametrize(
    ("guests", "alpha"), [(2, 0.5), (12, 0.3), (13, 0.01), (60, 0.2), (300, 1.5), (80, 30.0)]
)
def test_tables_of_a_restaurant(guests, alpha, rng):
    tables = np.empty(400_000, np.int64)
    seated(rng, guests, alpha, tables)
    assert fits(tables, tables_law(guests, alpha)) > CHANCE
    assert fits(tables, tables_law(guests, 1.1 * alpha)) < CHANCE  # a concentration a tenth larger is another


@pytest.mark.parametrize(("guests", "alpha"), [(1200, 12.0), (3000, 200.0), (1500, 1e4)])
def test_tables_of_many_guests_are_nearly_normal(guests, alpha, rng):
    tables = np.empty(100_000, np.int64)
    seated(rng, guests, alpha, tables)
    assert fits(tables, tables_law(guests, alpha)) > CHANCE
    assert fits(tables, tables_law(guests, 1.03 * alpha)) < CHANCE


@pytest.mark.parametrize(("count", "share"), [(1, 0.3), (40, 0.02), (5000, 1e-4), (30, 0.9)])
def test_what_is_left_is_binomial(count, share, rng):
    left = np.empty(200_000, np.int64)
    left_over(rng, count, share, left)
    assert fits(left + 1, binom.pmf(np.arange(count + 1), count, 1 - share)) > CHANCE
    assert fits(left + 1, binom.pmf(np.arange(count + 1), count, 1 - 0.8 * share)) < CHANCE


@pytest.mark.parametrize("total", [0, 3, 40, 2000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.5])
def test_a_step_of_a_size_keeps_its_law_and_moves(total, spread, rng):
    kappa = np.exp(rng.normal(1.0, spread, 8))
    b = kappa * rng.dirichlet(np.full(8, 0.5))
    held = b + rng.multinomial(total, rng.dirichlet(np.ones(8))) + np.eye(8)[np.argmax(b)]
    cumulated, grid = size_law(held, kappa, total + 1.0)
    before = np.exp(np.interp(rng.random(40_000), cumulated, grid))
    after = before.copy()
    steps(rng, held, kappa, total + 1.0, b.sum(), after)
    assert (after != before).mean() > 0.5
    assert kstest(np.interp(np.log(after), grid, cumulated), "uniform").pvalue > CHANCE
    wrong, grid = size_law(held, kappa, total + 1.0 + 0.1 * np.sqrt(total + 1.0))
    assert kstest(np.interp(np.log(after), grid, wrong), "uniform").pvalue < CHANCE


@pytest.mark.parametrize("shape", [0.02, 2e-3, 1e-4])
def test_sizes_beyond_the_largest_number_are_drawn(shape, rng):
    """Where all shares are next to nothing most sizes are so large; they were refused, and the smaller ones drawn too often."""
    kappa, b = np.full(2, 3.0), np.full(2, shape / 2)
    sizes = np.ones(40_000)
    for _ in range(3):
        steps(rng, b + np.array([1.0, 0.0]), kappa, 1.0, shape, sizes)
    assert np.isfinite(sizes).all()
    for limit in (1e10, 1e100, 1e299):
        beyond = (limit / 3.0) ** -shape
        assert binomtest(int((sizes > limit).sum()), sizes.size, beyond).pvalue > CHANCE


def size_law(held, kappa, power):
    """Cumulated masses of the log of a size on a grid: `power y - sum_j h_j log(kappa_j + exp y)`."""
    grid = np.linspace(-40.0, 60.0, 400_001)
    logs = power * grid - (held[:, None] * np.logaddexp(np.log(kappa)[:, None], grid)).sum(axis=0)
    masses = np.exp(logs - logs.max())
    cumulated = np.cumsum(masses) / masses.sum()
    inside = (cumulated > 1e-13) & (cumulated < 1.0 - 1e-13)
    return cumulated[inside], grid[inside]


FAMILIES = "AAABBCDDDDEEEEEE"


@pytest.mark.slow
@pytest.mark.parametrize("attempts", [True, False])
def test_rates_of_uninhabited_places_keep_their_law(attempts, rng):
    """Given places that they drew, the same law comes out; not where one place of a family is inhabited for sure."""
    places, state, _ = random_state(rng, 1.0, FAMILIES)
    found = []
    for _ in range(4000):
        mean, strength = rng.beta(*MEAN), rng.gamma(STRENGTH[0], 1 / STRENGTH[1])
        state.rates_law[:] = min(max(mean, 1e-12), 1 - 1e-12), strength
        state.rate[:] = np.clip(rng.beta(*shapes(*state.rates_law), len(state.rate)), 1e-12, 1 - 1e-12)
        family = places.parent[places.level_ptr[2] :] - 1
        state.inhabited[:] = lived(rng, state.rate, family, attempts)
        rates_drawn(rng, places, state)
        found.append([state.rates_law[0] ** 0.5, gamma.cdf(STRENGTH[1] * state.rates_law[1], STRENGTH[0])])
        rate = state.rate[:2]
        below = beta.cdf(rate, *shapes(*state.rates_law))
        # of numbers beyond the least, or the largest, as much as is beyond them
        spread = np.select(
            [rate <= 1e-12, rate >= 1 - 1e-12],
            [below * rng.random(2), 1 - (1 - below) * rng.random(2)],
            below,
        )
        found[-1] += list(spread)
    smallest = min(kstest(each, "uniform").pvalue for each in np.array(found).T)
    assert smallest > CHANCE if attempts else smallest < CHANCE


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1.0, 1.3])
def test_factors_and_their_spreads_keep_their_law(times, rng):
    """Given guests that they drew, the same law comes out; not where their compositions were larger than they say."""
    attributes = (Attribute("race", ("r0", "r1", "r2")), Attribute("sex", ("f", "m")))
    keys = [{}, {"district": list("ABC")}, {"area": ["a"] * 3}]
    cells = Cells(Tree.from_columns(["all", "district", "area"], keys), attributes)
    headers = (Measured("all", cells.finest, law_named("discrete-laplace")(1)),)
    problem = ColumnProblem(Constraints(cells, (cells.finest,)), headers, (np.zeros(18),))
    state, race, sex = problem.state(np.zeros((3, 6), np.int32), 1.0, 1.0), *np.divmod(np.arange(6), 2)
    members, found = np.stack([*(race == k for k in range(3)), *(sex == k for k in range(2))]), []
    state.theta[0] = rng.gamma(1.0, size=6)
    hyper = HYPERPRIOR._replace(factor_spread=0.4)  # guests fit whole numbers
    for _ in range(4000):
        normal, rate = rng.normal(size=5), np.exp(rng.normal(2.0, 1.0, (3, 6)))
        state.kappa[1] = np.exp(rng.normal(2.0, 1.0, 6))
        state.spread[1], state.score[1:] = of_normal(normal, hyper), rng.normal(size=(3, 5))
        state.factor[1:] = np.exp((state.spread[1] * state.score[1:]) @ members)
        theta = rng.gamma(state.kappa[1] * state.theta[0] + EVEN, times * state.factor[1:] / state.kappa[1])
        room = np.zeros((2, 4, 6))
        room[:, 1:] = rng.poisson(rate * theta), rate
        factors_drawn(rng, problem.places, state, problem.alike, room, hyper)
        assert state.factor[1:] == pytest.approx(np.exp((state.spread[1] * state.score[1:]) @ members))
        found.append(
            [*(np.log(state.spread[1] / hyper.factor) / hyper.factor_spread), *state.score[1:].ravel()]
        )
    smallest = min(kstest(each, norm.cdf).pvalue for each in np.array(found).T)
    assert smallest > CHANCE if times == 1.0 else smallest < CHANCE


def test_columns_are_alike_in_a_value_of_one_of_several_attributes():
    race, sex, one = (
        Attribute(*pair) for pair in (("race", ("r0", "r1", "r2")), ("sex", ("f", "m")), ("one", ("a",)))
    )
    assert alike_of((race, sex, one), {"race": "r1", "sex": "f"}) == [[0, 1], [3], [4, 5], [0, 4], [1, 3, 5]]
    assert alike_of((race, one)) == []


def alike_of(attributes, zero=None):
    """Columns of each value of each attribute; of closed ones none."""
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": list("ab")}]), attributes)
    header = Measured("all", cells.finest, law_named("discrete-laplace")(1))
    zeros = (zero,) if zero else ()
    constraints = Constraints(cells, (cells.finest,), zeros=zeros)
    ptr, columns = ColumnProblem(constraints, (header,), (np.zeros(cells.n),)).alike
    return [columns[first:stop].tolist() for first, stop in pairwise(ptr)]


def of_normal(normal, hyper):
    return hyper.factor * np.exp(hyper.factor_spread * normal)


def shapes(mean, strength):
    return mean * strength, (1 - mean) * strength


def lived(rng, rate, family, attempts):
    """Which places are inhabited: drawn again while a family has none, or the first place of each for sure."""
    out = rng.random(len(family)) >= rate[family]
    for each in np.unique(family):
        of = np.flatnonzero(family == each)
        if not attempts:
            out[of[0]] = True
        elif not out[of].any():  # at which the first one comes, given that one does
            first = rate[each] ** np.arange(len(of))
            start = rng.choice(len(of), p=first / first.sum())
            out[of[start:]] = np.append(True, rng.random(len(of) - start - 1) >= rate[each])
    return out


def random_state(rng, scale, districts="AAABBC"):
    """Areas of districts, four columns, in a random state."""
    keys = [{}, {"district": list(districts)}, {"area": [str(k) for k in range(len(districts))]}]
    cells = Cells(Tree.from_columns(["all", "district", "area"], keys), (Attribute("kind", tuple("uvwx")),))
    headers = (Measured("all", cells.finest, law_named("discrete-laplace")(1)),)
    problem = ColumnProblem(Constraints(cells, (cells.finest,)), headers, (np.zeros(4 * len(districts)),))
    state = problem.state(rng.poisson(rng.gamma(0.5, scale, (len(districts), 4))), 1.7, 2.3)
    state.size[:], state.spare[:] = (
        rng.gamma(0.5, 10.0 * scale, len(districts)),
        rng.integers(0, 4, len(districts)),
    )
    state.theta[:], state.factor[:] = rng.gamma(0.3, size=(2, *state.theta.shape))
    state.kappa[:] = np.exp(rng.normal(0.0, 3.0, state.kappa.shape))
    room = np.stack([rng.poisson(scale, state.theta.shape), rng.gamma(1.0, scale, state.theta.shape)]).astype(
        float
    )
    return problem.places, state, room


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [0.5, 10.0, 300.0])
def test_log_densities_are_those_written_out(scale, rng):
    for _ in range(20):
        places, state, room = random_state(rng, scale)
        first, parent, kappa = places.level_ptr[2], places.parent, float(np.exp(rng.normal(0.0, 4.0)))
        seats = state.x + (np.arange(4) == state.spare[:, None])
        for level, j in ((1, 2), (2, 1)):
            v = np.arange(places.level_ptr[level], places.level_ptr[level + 1])
            n = room[0, v, j] if level == 1 else seats[v - first, j]
            s = room[1, v, j] * state.factor[v, j] if level == 1 else state.size[v - first]
            b = np.maximum(kappa * state.theta[parent[v], j], 1e-100) + 0.02 * (level == 1)
            terms = b * np.log(kappa) + gammaln(n + b) - gammaln(b) - (b + n) * np.log(kappa + s)
            assert log_cell(places, state, room, level, j, kappa) == pytest.approx(
                terms.sum(), rel=1e-9, abs=1e-9
            )
        above = np.arange(places.level_ptr[1], first)
        b = np.maximum(kappa * state.kappa[2] * state.theta[parent[first:]], 1e-100)
        terms = (gammaln(seats + b) - gammaln(b)).sum() - kappa * (state.theta[above] * room[1, above]).sum()
        assert log_scale(places, state, room, kappa) == pytest.approx(terms, rel=1e-9, abs=1e-9)
        totals, whole = state.total[first:], state.total[above]
        parts = np.diff(places.child_ptr)[above]
        assert state.inhabited.all()
        terms = (gammaln(totals + kappa) - gammaln(kappa)).sum()
        terms -= (gammaln(whole + parts * kappa) - gammaln(parts * kappa)).sum()
        assert log_of_totals(places, state, 2, kappa) == pytest.approx(terms, rel=1e-9, abs=1e-8)


@pytest.mark.thorough
def test_densities_are_known_where_sizes_have_no_end(rng):
    """Shares near zero have sizes beyond 1e100: with a density of zero at every concentration a slice had no end either."""
    places, state, room = random_state(rng, 10.0)
    first, parent, kappa = places.level_ptr[2], places.parent, 3.0
    state.size[:] = 1e250
    n = state.x[:, 1] + (state.spare == 1)
    b = np.maximum(kappa * state.theta[parent[first:], 1], 1e-100)
    terms = b * np.log(kappa) + gammaln(n + b) - gammaln(b) - (b + n) * np.log(kappa + state.size)
    assert log_cell(places, state, room, 2, 1, kappa) == pytest.approx(terms.sum(), rel=1e-9)
    assert sliced(rng, places, state, room, HYPERPRIOR, 2, 1, kappa) != kappa
    state.theta[:] = np.nan
    assert sliced(rng, places, state, room, HYPERPRIOR, 2, 1, kappa) == kappa
