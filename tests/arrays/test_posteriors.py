"""Posteriors of arrays beside sums over every vector of counts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from trueup.arrays import (
    NoiseWithin,
    continuous_gaussian,
    continuous_laplace,
    discrete_gaussian,
    discrete_laplace,
    law_keeping,
    posterior_of_counts,
    posterior_of_released,
    posterior_of_tree,
    sample,
    truncated_geometric,
)
from trueup.errors import DataError, InfeasibleError, SpecError
from trueup.noise import Exact

SHAPES = ([-1, 0, 0], [-1, 0, 0, 0], [-1, 0, 0, 1, 1], [3, 3, 3, -1, 2, 2])
"""Trees of two and of three levels, one of them in no order."""
FALSE_ALARM = 1e-6
KEPT = law_keeping([[1, 1]], epsilon=1, norm="l2")


def every_tree(parents, most):
    """All additive vectors with leaves from 0 to `most`."""
    n = len(parents)
    leaves = [v for v in range(n) if v not in parents]
    table = np.zeros(((most + 1) ** len(leaves), n), np.int64)
    table[:, leaves] = list(product(range(most + 1), repeat=len(leaves)))
    for leaf in leaves:
        v = parents[leaf]
        while v >= 0:
            table[:, v] += table[:, leaf]
            v = parents[v]
    return table


def some_law(rng):
    epsilon = f"{rng.integers(4, 10)}/4"
    return [discrete_laplace(epsilon), discrete_gaussian(sigma2=1), truncated_geometric(epsilon, 9)][
        rng.integers(3)
    ]


@pytest.mark.parametrize("shape", range(4))
def test_25_posteriors_of_trees_each_are_those_of_enumeration(rng, shape):
    parents = SHAPES[shape]
    most = {2: 40, 3: 24}[len([v for v in range(len(parents)) if v not in parents])] if shape < 2 else 24
    if shape == 3:
        most = 12
    every = every_tree(parents, most)
    for i in range(25):
        laws = [some_law(rng) for _ in parents]
        laws[int(rng.integers(len(parents)))] = None if i % 2 else some_law(rng)
        leaf = next(v for v in range(len(parents)) if v not in parents)
        laws[leaf] = laws[leaf] or discrete_laplace(2)
        truth = every[np.flatnonzero(every.max(axis=1) <= 6)]
        values = truth[rng.integers(len(truth))] + rng.integers(-1, 2, len(parents))
        if i % 5 == 0:
            laws[0], values[0] = Exact(), max(values[0], 1)
        log = sum(
            law.logpmf(values[v] - every[:, v])
            if not law.exact
            else np.where(every[:, v] == values[v], 0, -np.inf)
            for v, law in enumerate(laws)
            if law is not None
        )
        weight = np.exp(log - log.max())
        weight /= weight.sum()
        found = posterior_of_tree(values, parents, laws)
        np.testing.assert_allclose(found.marginals.mean, weight @ every, atol=1e-4 if shape == 3 else 1e-8)
        counts, mass = found.marginals.pmf(leaf)
        expected = np.bincount(every[:, leaf], weight, most + 1)
        inside = counts <= most
        np.testing.assert_allclose(mass[inside], expected[counts[inside]], atol=1e-4 if shape == 3 else 1e-9)


def test_intervals_of_a_tree_leave_out_half_the_rest_on_each_side_or_all_of_it_above():
    found, from_least = posterior_of_tree([10, 4, 5, 7], [3, 3, 3, -1], discrete_laplace(1)), set()
    for level in (0.5, 0.9, "95%"):
        low, high = found.marginals.interval(level)
        rest = 1 - (0.95 if level == "95%" else level)
        for node in range(4):
            counts, mass = found.marginals.pmf(node)
            below, above = mass[counts < low[node]].sum(), mass[counts > high[node]].sum()
            tail = rest / 2 if below or above <= rest / 2 else rest
            from_least.add(tail == rest)
            assert max(below, above) <= tail + 1e-12
            assert below + mass[counts == low[node]].sum() >= tail - 1e-12 or low[node] == counts[0]
            assert above + mass[counts == high[node]].sum() >= tail - 1e-12
    assert from_least == {False, True}
    laplace = discrete_laplace(1)
    for shown in map(repr, (found, posterior_of_released([250, 357], laplace, laplace))):
        assert shown.count("\n") == 2
        assert "array" not in shown


def test_draws_of_a_tree_add_up_and_have_the_posterior(rng):
    parents, values = [-1, 0, 0], [5, 1, 3]
    found = posterior_of_tree(values, parents, discrete_laplace(1))
    drawn = found.draw(100_000, rng)
    assert (drawn[:, 0] == drawn[:, 1] + drawn[:, 2]).all()
    for node in range(3):
        counts, mass = found.marginals.pmf(node)
        assert p_value(np.bincount(drawn[:, node], minlength=counts[-1] + 1)[counts], mass) > FALSE_ALARM
        assert p_value(np.bincount(drawn[:, node], minlength=counts[-1] + 2)[counts + 1], mass) < FALSE_ALARM


def p_value(observed, mass):
    expected = observed.sum() * mass / mass.sum()
    common = expected >= 20
    return chi2.sf(((observed - expected)[common] ** 2 / expected[common]).sum(), common.sum())


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_draws_under_inequalities_have_the_posterior(rng, kind):
    law = discrete_laplace("1/2") if kind == "laplace" else discrete_gaussian(sigma2=9)
    y, rows, least = np.array([4, 6]), np.array([[1.0, -2.0], [-1.0, 4.0]]), np.array([0.0, 1.0])
    every = np.array(list(product(range(60), repeat=2)))
    inside = (every @ rows.T >= least).all(axis=1)
    every = every[inside]
    log = law.logpmf(y[0] - every[:, 0]) + law.logpmf(y[1] - every[:, 1])
    mass = np.exp(log) / np.exp(log).sum()
    drawn = posterior_of_counts(y, law, R=rows, least=least, draws=50_000, rng=rng).draws
    assert drawn.dtype == np.int64
    place = {tuple(v): k for k, v in enumerate(every.tolist())}
    observed = np.bincount([place[tuple(v)] for v in drawn.tolist()], minlength=len(every))
    assert p_value(observed, mass) > FALSE_ALARM
    uninformed = np.exp(0.9 * log) / np.exp(0.9 * log).sum()
    assert p_value(observed, uninformed) < FALSE_ALARM


def test_continuous_noise_has_the_mean_of_a_truncated_law(rng):
    drawn = posterior_of_counts([0.0], continuous_gaussian(4), draws=100_000, rng=rng).draws[:, 0]
    assert drawn.mean() == pytest.approx(2 * np.sqrt(2 / np.pi), abs=6 * drawn.std() / 316)
    drawn = posterior_of_counts([0.0], continuous_laplace(3), draws=100_000, rng=rng).draws[:, 0]
    assert drawn.mean() == pytest.approx(3, abs=6 * drawn.std() / 316)


@pytest.mark.thorough
def test_chains_take_over_where_hardly_a_proposal_is_accepted(rng):
    """Twelve counts that fall, known to rise: all but equal, about their mean."""
    rising = (np.eye(12, k=1) - np.eye(12))[:-1]
    y = 9.0 * np.arange(12)[::-1]
    found = posterior_of_counts(y, continuous_laplace(1), R=rising, least=np.zeros(11), rng=rng)
    assert (found.independent, found.connected) == (False, True)
    assert (np.diff(found.draws, axis=1) >= -1e-9).all()
    assert found.draws.mean() == pytest.approx(y.mean(), abs=1)


def test_rows_of_fractions_and_laws_that_end_are_taken(rng):
    """Rows of thirds have no small whole multiple; truncated noise is no tilted proposal, and is listed or walked."""
    thirds = posterior_of_counts([4.5, 9.0], continuous_gaussian(1), R=[[1, -1 / 3]], least=[0.1], rng=rng)
    assert (thirds.draws @ [1, -1 / 3] >= 0.1 - 1e-9).all()
    law = truncated_geometric("1/2", bound=3)
    every = np.array(
        [c for c in product(range(12), repeat=2) if c[0] >= c[1] and abs(c[0] - 4) <= 3 >= abs(c[1] - 5)]
    )
    mass = law.pmf(4 - every[:, 0]) * law.pmf(5 - every[:, 1])
    drawn = posterior_of_counts([4, 5], law, R=[[1, -1]], least=[0], draws=20_000, rng=rng)
    at = {tuple(v): k for k, v in enumerate(every.tolist())}
    observed = np.bincount([at[tuple(v)] for v in drawn.draws.tolist()], minlength=len(every))
    assert drawn.independent
    assert p_value(observed, mass) > FALSE_ALARM
    assert p_value(observed, np.sqrt(mass)) < FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize("release", ["mode", "sample"])
def test_draws_behind_released_parts_have_the_exact_table(rng, release):
    found = posterior_of_released([3, 6], discrete_laplace(1), discrete_laplace(1), release=release)
    first, second, mass = found.table()
    drawn = found.draw(20_000, rng)
    counts = np.bincount(drawn[:, 0], minlength=first[-1] + 1)[first]
    if release == "mode":  # chains behind a draw are not independent: their means are compared
        assert p_value(counts, mass.sum(axis=1)) > FALSE_ALARM
    means = np.array([mass.sum(axis=1) @ first, mass.sum(axis=0) @ second])
    np.testing.assert_allclose(drawn.mean(axis=0), means, atol=0.12)
    wrong = posterior_of_released(
        [3, 6], discrete_laplace("1/2"), discrete_laplace(1), release=release
    ).table()
    shown = np.bincount(drawn[:, 0], minlength=wrong[0][-1] + 1)[wrong[0]]
    assert p_value(shown, wrong[2].sum(axis=1)) < FALSE_ALARM


def test_fifty_released_parts_and_a_released_total_of_zero_are_drawn(rng):
    law = discrete_laplace(1)
    parts = rng.integers(0, 40, 50)
    drawn = posterior_of_released(parts, law, law).draw(400, rng)
    assert np.abs(drawn.mean(axis=0) - parts).max() < 3
    assert posterior_of_released([0, 0], law, law).draw(50, rng).shape == (50, 2)


def test_what_cannot_be_is_refused(rng):
    law = discrete_laplace(1)
    with pytest.raises(SpecError, match="not form a tree"):
        posterior_of_tree([1, 2, 3], [-1, 2, 1], law)
    with pytest.raises(DataError, match="not a whole number"):
        posterior_of_tree([1, 2.5], [-1, 0], law)
    with pytest.raises(SpecError, match="lower have shape"):
        posterior_of_counts([1, 2], law, R=[[1, -1]], least=[0], lower=[0, 0, 0], rng=rng)
    with pytest.raises(SpecError, match="laws for 3"):
        posterior_of_tree([1, 2, 3], [-1, 0, 0], [law, law])
    with pytest.raises(SpecError, match="nothing limits"):
        posterior_of_tree([1, 2, 3], [-1, 0, 0], [None, law, None])
    with pytest.raises(InfeasibleError, match="contradict"):
        posterior_of_tree([1, 2, 3], [-1, 0, 0], Exact())
    with pytest.raises(InfeasibleError, match="row 0 of R"):
        posterior_of_counts([1, 2], law, R=[[-1, -1]], least=[1], rng=rng)
    with pytest.raises(SpecError, match="others continuous"):
        posterior_of_counts([1, 2], [law, continuous_laplace(1)], R=[[1, -1]], least=[0], rng=rng)
    with pytest.raises(DataError, match="whole"):
        posterior_of_released([1.5, 2], law, law)
    with pytest.raises(SpecError, match="range"):
        posterior_of_released([-1, 2], law, law)


@pytest.mark.parametrize("draws", [0, -1, 1.5, True, None])
def test_a_number_of_draws_that_is_none_is_refused(rng, draws):
    law = discrete_laplace(1)
    with pytest.raises(SpecError, match="draws is"):
        posterior_of_counts([4, 2], law, R=[[1, -1]], least=[0], draws=draws, rng=rng)
    with pytest.raises(SpecError, match="draws is"):
        posterior_of_tree([4, 2, 2], [-1, 0, 0], law).draw(draws, rng)
    with pytest.raises(SpecError, match="draws is"):
        posterior_of_released([4, 2], law, law).draw(draws, rng)


@pytest.mark.parametrize("draws", [10**18, 10**400])
def test_more_draws_than_memory_holds_are_refused(rng, draws):
    law = discrete_laplace(1)
    for drawn in (
        lambda: sample(law, draws),
        lambda: sample(law_keeping([[1, 1]], epsilon=1), (2, draws), rng),
        lambda: posterior_of_counts([4, 2], law, R=[[1, -1]], least=[0], draws=draws, rng=rng),
        lambda: posterior_of_tree([4, 2, 2], [-1, 0, 0], law).draw(draws, rng),
        lambda: posterior_of_released([4, 2], law, law).draw(draws, rng),
    ):
        with pytest.raises(SpecError, match="more memory"):
            drawn()
    with pytest.raises(SpecError, match="no released part is given"):
        posterior_of_released([], law, law)


def test_a_seed_in_place_of_a_generator_is_refused():
    with pytest.raises(SpecError, match="rng is of type int"):
        posterior_of_counts([4, 2], discrete_laplace(1), R=[[1, -1]], least=[0], rng=3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("node", [-1, 3, 1.5, True])
def test_a_node_that_is_none_has_no_marginal(node):
    with pytest.raises(SpecError, match="no count"):
        posterior_of_tree([4, 2, 2], [-1, 0, 0], discrete_laplace(1)).marginals.pmf(node)


@pytest.mark.parametrize("wrong", [{"total": "x"}, {"algorithm": 3, "release": "sample"}])
def test_a_release_that_is_not_described_is_refused(wrong):
    law = discrete_laplace(1)
    with pytest.raises(SpecError, match="algorithm 1 or 2"):
        posterior_of_released(**({"parts": [4, 2], "law": law, "total_law": law} | wrong))


@pytest.mark.parametrize(
    "call",
    [
        lambda law: posterior_of_released([3, 4], "ab", law),
        lambda law: posterior_of_released([3, 4], law, 0.5),
        lambda law: posterior_of_released([3, 4], [1, law], law),
        lambda law: sample(law, -1),
        lambda law: sample(law, (2, 1.5)),
        lambda law: posterior_of_counts([10**17, 0], KEPT, rng=np.random.default_rng(1)),
        lambda law: posterior_of_counts([10**14, 0], KEPT, rng=np.random.default_rng(1)),  # as many tables
    ],
)
def test_what_is_no_law_size_or_limit_is_refused(call):
    with pytest.raises(SpecError):
        call(discrete_laplace(1))


def test_sets_too_large_to_list_take_no_memory():
    near = NoiseWithin.of(np.array([10**13, 10**13]), epsilon=1, A=[[1, 1]], lower=0)
    assert near.rates.tolist() == [0.5, 0.5]
