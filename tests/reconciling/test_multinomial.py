"""Multinomial methods: estimates against enumeration, trees from the top, priors, policies."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from math import factorial

import numpy as np
import pytest
from scipy.stats import chi2

from tests.reference.finucan import finucan
from trueup.errors import InfeasibleError, SpecError
from trueup.kernel.multinomial.mode import multinomial_draw_tree
from trueup.layouts.tree import tree_problem
from trueup.model.cells import Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured
from trueup.model.prior import Bounded, Flat, Masses, NegativeBinomial, Poisson
from trueup.model.tree import Tree
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Exact
from trueup.noise.sums import convolved, simulated
from trueup.reconciling.estimates import Estimator, layout
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample

AREAS = Cells(Tree.from_columns(["all", "area"], [{}, {"area": list("abcd")}]))
STATES = Cells(
    Tree.from_columns(
        ["us", "state", "county"],
        [{}, {"state": ["1", "1", "1", "2", "2"]}, {"county": ["a", "b", "c", "a", "b"]}],
    )
)
ONE, SHARP, BLUNT = (DiscreteLaplace(Fraction(e)) for e in ("1", "3", "1/4"))


def headers(margins: dict[str, list]) -> list[Measured]:
    return [Measured("q", Margin(level), law) for level, laws in margins.items() for law in laws]


def constraints(cells: Cells, measured: list[Measured], **rest) -> Constraints:
    margins = tuple(h.margin for h in measured if not h.exact)
    exact = tuple(h.margin for h in measured if h.exact)
    return Constraints(cells, margins, invariants=exact, **rest)


def release(method, cells, measured, values, rng, **rest):
    state = method.prepare(constraints(cells, measured, **rest), measured)
    return method.apply(state, np.asarray(values), rng).values


def estimates(measured, values, rng, total="independent", prior=None, prior_total=None):
    problem = tree_problem(constraints(AREAS, measured), measured)
    plan = layout(problem, total, prior or Flat(), prior_total or Flat(), 0)
    return Estimator(plan, rng).modes(np.asarray(values))


def posterior_by_enumeration(readings, prior, parts=None, reach=60):
    """Posterior masses of one count as a dict; `parts` are lists of readings of what adds up to it."""
    masses = {}
    below = None
    if parts is not None:
        below = {0: 1.0}
        for part in parts:
            wider = defaultdict(float)
            for count in range(-reach, 2 * reach):
                mass = np.exp(sum(float(law.logpmf(value - count)) for law, value in part))
                for other, known in below.items():
                    wider[count + other] += mass * known
            below = wider
    for count in range(2 * reach):
        log = float(prior.logpmf(count)) + sum(float(law.logpmf(value - count)) for law, value in readings)
        masses[count] = np.exp(log) * (1.0 if below is None else below.get(count, 0.0))
    total = sum(masses.values())
    return {count: mass / total for count, mass in masses.items()}


LAWS = [(ONE, ONE), (BLUNT, SHARP), (SHARP, BLUNT), (DiscreteGaussian(Fraction(9)), ONE)]


@pytest.mark.parametrize("laws", LAWS)
@pytest.mark.parametrize("total", ["independent", "summed"])
def test_the_total_is_a_posterior_mode(rng, laws, total):
    of_total, of_parts = laws
    measured = headers({"all": [of_total], "area": [of_parts]})
    for prior in (Flat(), Poisson(18.0)):
        for _ in range(3):
            values = [int(rng.integers(10, 30)), *rng.integers(-3, 9, 4).tolist()]
            parts = [[(of_parts, v)] for v in values[1:]] if total == "summed" else None
            masses = posterior_by_enumeration([(of_total, values[0])], prior, parts)
            found = estimates(measured, values, rng, total, prior_total=prior)
            assert masses[int(found[0])] >= max(masses.values()) * (1 - 1e-8)
            assert found[1:].tolist() == [max(v, 0) for v in values[1:]]


PRIORS = [
    Flat(),
    Poisson(6.0),
    NegativeBinomial(6.0, 0.5),
    Masses((0.0, 3.0, 1.0, 2.0, 0.0, 5.0)),
    Bounded(4),
    Poisson((1.0, 9.0, 25.0, 3.0)),
    NegativeBinomial(6.0, (0.5, 9.0, 2.0, 40.0)),
]


@pytest.mark.parametrize("prior", PRIORS)
def test_several_versions_and_priors_of_one_count(rng, prior):
    measured = headers({"all": [ONE], "area": [ONE, BLUNT]})
    values = np.array([20, *rng.integers(-4, 12, 8)])
    found = estimates(measured, values, rng, prior=prior)
    for part in range(4):
        masses = posterior_by_enumeration(
            [(ONE, values[1 + part]), (BLUNT, values[5 + part])], prior.at(part)
        )
        assert masses[int(found[1 + part])] >= max(masses.values()) * (1 - 1e-8)


def test_two_equal_versions_meet_in_the_lower_middle(rng):
    measured = headers({"all": [ONE], "area": [ONE, ONE]})
    assert estimates(measured, [9, 4, 0, 0, 2, 7, 0, 0, 2], rng)[1] == 5


def test_summed_stays_at_the_noisy_total_where_parts_are_no_sharper(rng):
    """With alpha of the total at most that of every part, the summed rule has mode n itself."""
    measured = headers({"all": [ONE], "area": [ONE]})
    for _ in range(20):
        values = [int(rng.integers(0, 60)), *rng.integers(-3, 30, 4).tolist()]
        assert estimates(measured, values, rng, "summed")[0] == values[0]


def test_summed_follows_sharper_parts(rng):
    measured = headers({"all": [DiscreteLaplace(Fraction(1, 10))], "area": [DiscreteLaplace(Fraction(5))]})
    assert estimates(measured, [400, 3, 30, 60, 100], rng, "summed")[0] == 193


def test_convolution_has_the_tails_of_the_sum():
    shape = {((ONE, 0),): 3, ((BLUNT, 0),): 2}
    table = convolved(shape, 300)
    t = 0.2
    log_mgf = sum(
        count * np.log(np.sum(law.pmf(k) * np.exp(t * k)))
        for ((law, _),), count in shape.items()
        for k in [np.arange(-2000, 2001)]
    )
    k = np.arange(-600, 601)
    ours = np.log(np.sum(np.exp(table.at(k) + t * k)))
    assert ours == pytest.approx(log_mgf, abs=1e-4)
    assert table.at(np.array([0]))[0] == pytest.approx(
        _log_mass_by_characteristic_function(shape, 0), abs=1e-9
    )
    assert table.at(np.array([5]))[0] == pytest.approx(
        _log_mass_by_characteristic_function(shape, 5), abs=1e-9
    )


def _log_mass_by_characteristic_function(shapes, k):
    u = (np.arange(20000) + 0.5) / 20000 * np.pi
    product = np.ones_like(u)
    for ((law, _),), count in shapes.items():
        q = np.exp(-float(law.epsilon))
        product *= ((1 - q) ** 2 / (1 - 2 * q * np.cos(u) + q * q)) ** count
    return np.log(np.mean(product * np.cos(k * u)))


def test_general_convolution_agrees_with_the_filter():
    class Plain:
        """The same law without its shortcut."""

        rate = form = None
        variance, logpmf, reach = ONE.variance, staticmethod(ONE.logpmf), staticmethod(ONE.reach)

    k = np.arange(-25, 26)
    fast, slow = (convolved({((law, 0),): 5}, 20).at(k) for law in (ONE, Plain()))
    assert np.exp(fast) == pytest.approx(np.exp(slow), rel=1e-9)


@pytest.mark.parametrize("sigma2", [16, 90])
def test_wide_gaussians_add_up_to_one_as_by_convolution(sigma2):
    """Readings of one law and of two, 7 and 2 of them, beside a geometric: relative errors far out; narrow ones are convolved."""
    wide = DiscreteGaussian(Fraction(sigma2))

    class Plain:
        """The same law without its shortcut."""

        rate = form = None
        variance, logpmf, reach = wide.variance, staticmethod(wide.logpmf), staticmethod(wide.reach)

    def table(law):
        return convolved({((law, 0),): 7, ((law, 0), (law, 3)): 2, ((ONE, 0),): 1}, 300)

    k = np.arange(-300, 301)
    np.testing.assert_allclose(
        table(wide).at(k), table(Plain()).at(k), rtol=0, atol=2e-6
    )  # windows leave 1e-18 out


def test_gaussians_far_too_wide_to_convolve_are_added_at_once():
    table = convolved({((DiscreteGaussian(Fraction(10**8)), 0),): 7}, 10**5)
    drop = table.at(np.array([0]))[0] - table.at(np.array([10**5]))[0]
    assert drop == pytest.approx(10**10 / (2 * 7 * 10**8), rel=1e-12)


def test_monte_carlo_sums_follow_the_exact_law(rng):
    def p_value(simulated_parts, parts):
        counts = np.arange(-6, 7)
        table = simulated({((ONE, 0),): simulated_parts}, 10_000, rng)
        seen = np.exp(table.at(counts)) * 10_000
        expected = np.exp(convolved({((ONE, 0),): parts}, 64).at(counts)) * 10_000
        seen, expected = np.append(seen, 10_000 - seen.sum()), np.append(expected, 10_000 - expected.sum())
        return chi2.sf(((seen - expected) ** 2 / expected).sum(), counts.size)

    assert p_value(6, 6) > 1e-6
    assert p_value(5, 6) < 1e-6


def test_monte_carlo_is_an_option_of_the_method(rng):
    measured = headers({"all": [BLUNT], "area": [SHARP]})
    exact, simulated_sum = (
        release(MultinomialMode(total="summed", monte_carlo=n), AREAS, measured, [90, 3, 4, 5, 6], rng)
        for n in (0, 10_000)
    )
    assert abs(exact.sum() - simulated_sum.sum()) <= 2


def test_a_tree_is_split_from_the_top(rng):
    measured = headers({"us": [ONE], "state": [ONE], "county": [ONE]})
    values = rng.integers(1, 20, 8)
    counts = release(MultinomialMode(), STATES, measured, values, rng)
    states = finucan(values[1:3], values[0])
    assert counts.tolist() == [*finucan(values[3:6], states[0]), *finucan(values[6:], states[1])]


def test_batches_equal_single_rows(rng):
    measured = headers({"us": [ONE], "state": [ONE], "county": [ONE]})
    values = rng.integers(1, 20, (5, 8))
    for method in (MultinomialMode(), MultinomialMode(total="summed", prior=Poisson(4.0))):
        whole = release(method, STATES, measured, values, rng)
        rows = [release(method, STATES, measured, row, rng) for row in values]
        assert np.array_equal(whole, rows)


def test_levels_without_a_measurement_come_from_below(rng):
    measured = headers({"county": [ONE]})
    values = [3, 4, 0, 6, 1]
    assert release(MultinomialMode(), STATES, measured, values, rng).tolist() == values


@pytest.mark.parametrize("method", [MultinomialMode(), MultinomialSample(), MultinomialSample(algorithm=1)])
def test_invariants_are_exact_and_counts_whole(rng, method):
    measured = headers({"us": [ONE], "county": [ONE]})
    measured.insert(1, Measured("invariant", Margin("state"), Exact()))
    for _ in range(20):
        values = [int(rng.integers(10, 90)), 30, 12, *rng.integers(-3, 15, 5)]
        counts = release(method, STATES, measured, values, rng)
        assert counts.min() >= 0
        assert counts[:3].sum() == 30
        assert counts[3:].sum() == 12


def test_a_total_over_nothing_is_split_evenly_or_refused(rng):
    measured = headers({"all": [ONE], "area": [ONE]})
    values = [8, 0, -1, 0, -4]
    assert release(MultinomialMode(), AREAS, measured, values, rng).tolist() == [2, 2, 2, 2]
    for kind in (MultinomialMode, MultinomialSample):
        with pytest.raises(InfeasibleError, match="uniform"):
            release(kind(empty="error"), AREAS, measured, values, rng)


def test_contradictions_are_named_by_label(rng):
    measured = [
        Measured("invariant", Margin("state"), Exact()),
        Measured("invariant", Margin("county"), Exact()),
    ]
    for method in (MultinomialMode(), MultinomialSample()):
        with pytest.raises(InfeasibleError, match="1 cannot be the sum"):
            release(method, STATES, measured, [9, 9, 1, 2, 3, 4, 5], rng)


def test_other_bounds_and_impossible_priors_are_refused(rng):
    bound = (Bound(Margin("area"), upper=5),)
    for method in (MultinomialMode(), MultinomialSample()):
        assert "bounds" in str(method.refuses(Constraints(AREAS, (), bounds=bound)))
    with pytest.raises(SpecError):
        Masses((0.0, 0.0))
    measured = headers({"all": [ONE], "area": [ONE]})
    with pytest.raises(SpecError, match="has 3 values of 'mean'"):
        estimates(measured, [9, 1, 2, 3, 4], rng, prior=Poisson((1.0, 2.0, 3.0)))
    with pytest.raises(SpecError, match="parameter for each cell"):
        estimates(measured, [9, 1, 2, 3, 4], rng, prior_total=Poisson((1.0, 2.0, 3.0, 4.0)))


def test_a_draw_cannot_keep_an_exact_count_below_it():
    exact = [-1, -1, -1, 3, -1]
    with pytest.raises(SpecError, match="multinomial-mode"):
        multinomial_draw_tree([1, 3, 5, 5, 5, 5], [0, 1, 9, 4, 4], 11, np.random.default_rng(0), exact=exact)


@pytest.mark.thorough
def test_draws_follow_the_multinomial(rng):
    """Chi-square on all outcomes; weights shifted by one are told apart."""

    def p_value(drawn, stated, draws=20_000):
        seen = np.zeros((4, 4))
        for _ in range(draws):
            _, a, b, _ = multinomial_draw_tree([1, 4, 4, 4, 4], [0, *drawn], 3, rng)
            seen[a, b] += 1
        p = np.array(stated) / sum(stated)
        statistic, cells = 0.0, 0
        for a in range(4):
            for b in range(4 - a):
                c = 3 - a - b
                expected = (
                    draws
                    * 6
                    / (factorial(a) * factorial(b) * factorial(c))
                    * p[0] ** a
                    * p[1] ** b
                    * p[2] ** c
                )
                statistic, cells = statistic + (seen[a, b] - expected) ** 2 / expected, cells + 1
        return chi2.sf(statistic, cells - 1)

    assert p_value([2, 3, 5], [2, 3, 5]) > 1e-6
    assert p_value([3, 3, 5], [2, 3, 5]) < 1e-6


def test_algorithm_1_draws_weights_from_their_posteriors(rng):
    """Means over draws agree with enumeration of the truncated posterior; untruncated is told apart."""
    measured = headers({"all": [ONE], "area": [ONE]})
    problem = tree_problem(constraints(AREAS, measured), measured)
    estimator = Estimator(layout(problem, "independent", Flat(), Flat(), 0), rng)
    values = np.array([20, 1, -2, 0, 5])
    drawn = np.array([estimator.draws(values) for _ in range(4000)])
    for node, value in enumerate(values):
        masses = posterior_by_enumeration([(ONE, value)], Flat())
        mean = sum(k * p for k, p in masses.items())
        sd = sum((k - mean) ** 2 * p for k, p in masses.items()) ** 0.5
        assert abs(drawn[:, node].mean() - mean) < 5.5 * sd / 4000**0.5
        assert drawn[:, node].min() >= 0
    assert abs(drawn[:, 2].mean() - values[2]) > 50 * 1.4 / 4000**0.5


def test_parts_stay_ordered_as_their_noisy_counts(rng):
    measured = headers({"all": [ONE], "area": [ONE]})
    for _ in range(200):
        values = np.sort(rng.integers(0, 40, 4))
        counts = release(MultinomialMode(), AREAS, measured, [int(rng.integers(0, 150)), *values], rng)
        assert all(a <= b for (a, b), (x, y) in zip(pairwise(counts), pairwise(values)) if x < y)
