"""Families of a large tree that differ in their odds of small parts: against enumeration, and where the values ask for it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from tests.inferring.problems import laplace_tree, noisy, states, tree_constraints
from tests.kernel.message_trees import p_value
from tests.kernel.test_splits import log_w
from tests.reference.kinds import part, sum_of_parts
from trueup.errors import ConvergenceError
from trueup.inferring import infer, tree_estimate, tree_exact, tree_parts
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_search import SolutionSearch
from trueup.layouts.splits import splits_of
from trueup.model.cells import Margin
from trueup.model.prior import Bounded, Hierarchical
from trueup.run.local import LocalPool

UPPER = 6
SIZES = [2, 3]
FEW = states(SIZES)
THETA = np.log([1.5, 0.8])
SHARE, RATIO, GROWTH = -0.4, -1.5, 0.7
STEPS, WEIGHTS = np.array([-2.0, 0.0, 2.0]), np.log([0.2, 0.5, 0.3])
NAME = "spread of the log odds of small parts of county between families"


def mixture(measured):
    """A search on a small tree, solved for a mixture of three odds, and where it is cut."""
    method = TreeExact(prior=Hierarchical(total=Bounded(UPPER)))
    state = method.prepare(tree_constraints(FEW), measured.headers)
    cut = state.cut_below(1, 1)
    splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1]).of_two_kinds(4.0)
    theta = np.concatenate([THETA, [GROWTH, SHARE, RATIO]])
    search = SolutionSearch(
        state, np.concatenate(measured.values), LocalPool(), splits=splits.parameters(theta)
    )
    search.mixture = [splits.parameters(theta, step) for step in STEPS], WEIGHTS
    return search, cut, splits.parameters(theta)


def enumerated(measured, split):
    """All tables of up to `UPPER` units with their posterior masses; what the values say of each is a Laplace law."""
    alpha, total, second, odds, _ = split
    log = {}
    for table in product(range(UPPER + 1), repeat=sum(SIZES)):
        parents = [sum(table[:2]), sum(table[2:])]
        if sum(parents) > UPPER:
            continue
        value = sum(
            -0.5 * np.abs(np.array(counts) - noisy_values).sum()
            for counts, noisy_values in zip(([sum(parents)], parents, table), measured.values)
        )
        value += sum(log_w(t, alpha[1]) for t in parents) - log_w(sum(parents), total[0])
        for t, at, node in zip(parents, (slice(0, 2), slice(2, 5)), (1, 2)):
            own = alpha[3], second[3], np.exp(odds[node] + STEPS)
            each = [_of_family(np.array(table[at]), t, own[0], own[1], q) for q in own[2]]
            value += np.log(np.exp(WEIGHTS) @ each)
        log[table] = value
    tables, logs = np.array(list(log)), np.array(list(log.values()))
    mass = np.exp(logs - logs.max())
    return tables, mass / mass.sum(), logs.max() + np.log(np.exp(logs - logs.max()).sum())


def _of_family(parts, t, a, b, q):
    return np.prod(part(parts, a, b, q)) / sum_of_parts(len(parts), a, b, q, UPPER)[t]


@pytest.fixture
def small(rng):
    measured = noisy(FEW, rng.integers(0, 2, FEW.n), laplace_tree(FEW, "1/2"), rng)
    search, cut, split = mixture(measured)
    return measured, search, cut, split


def down(search, cut, top, draws, rng):
    return top.tree.down(top, [(1.0, top.solved, draws)], rng, lambda done, of: None)


@pytest.mark.thorough
def test_marginals_are_those_of_enumeration(small, rng):
    measured, search, cut, split = small
    top = search.by_parts(cut, 1e-9)
    tables, mass, _ = enumerated(measured, split)
    (start, offset, masses), _, _ = down(search, cut, top, 1, rng)
    nodes = np.column_stack(
        [tables.sum(axis=1), tables[:, :2].sum(axis=1), tables[:, 2:].sum(axis=1), tables]
    )
    for v, counts in enumerate(nodes.T):
        wanted = np.bincount(counts, mass, minlength=UPPER + 1)
        found = np.zeros(UPPER + 1)
        found[offset[v] : offset[v] + start[v + 1] - start[v]] = masses[start[v] : start[v + 1]]
        np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert top.dropped <= 1e-9


@pytest.mark.thorough
def test_so_are_joint_draws_and_those_of_one_odds_are_not(small, rng):
    measured, search, cut, split = small
    tables, mass, _ = enumerated(measured, split)
    _, draws, _ = down(search, cut, search.by_parts(cut, 1e-9), 200_000, rng)
    assert p_value(draws, tables, mass) > 1e-7
    search.mixture = None
    _, alike, _ = down(search, cut, search.by_parts(cut, 1e-9), 200_000, rng)
    assert p_value(alike, tables, mass) < 1e-7


def test_other_weights_need_the_top_alone(small):
    _, search, cut, _ = small
    first = search.by_parts(cut, 1e-9)
    other = np.log([0.6, 0.3, 0.1])
    search.mixture = search.mixture[0], other
    afresh = search.by_parts(cut, 1e-9)
    weighed = tree_parts.weighed(first, other)
    assert weighed.evidence == pytest.approx(afresh.evidence, rel=1e-12)
    assert abs(weighed.evidence - first.evidence) > 1e-3
    assert all(np.array_equal(part.log_weights, other) for part in weighed.parts)


def test_the_log_evidence_is_that_of_enumeration_up_to_a_constant(small, rng):
    """Of two sets of values: what the tables of laws leave out of the constant is the same."""
    gaps = []
    for _ in range(2):
        measured = noisy(FEW, rng.integers(0, 2, FEW.n), laplace_tree(FEW, "1/2"), rng)
        search, cut, split = mixture(measured)
        gaps.append(search.by_parts(cut, 1e-9).evidence - enumerated(measured, split)[2])
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9)


MANY = states([12] * 40)


def differing(rng, sd=2.5):
    """Forty states: in some nearly all counties are empty, in others none."""
    share = np.repeat(expit(rng.normal(0, sd, 40)), 12)
    return rng.negative_binomial(3.0, 0.1, MANY.n) * (rng.random(MANY.n) > share)


def alike(rng):
    return rng.negative_binomial(3.0, 0.1, MANY.n) * (rng.random(MANY.n) > 0.5)


@pytest.fixture
def large(monkeypatch):
    """Trees of five hundred nodes count as large."""
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 100)
    monkeypatch.setattr(tree_exact, "MAX_PART_NODES", 100)


def posterior_of(truth, rng):
    measured = noisy(MANY, truth, laplace_tree(MANY, "1/2"), rng)
    return infer(measured, TreeExact(), spec=tree_constraints(MANY), draws=200)


def estimates(posterior):
    return posterior.drawn.stats["prior"]["estimates"]


@pytest.mark.slow
def test_where_families_differ_it_is_found_and_intervals_of_sums_hold(large, rng, monkeypatch):
    held, mass, errors = [], [], np.zeros(2)
    for _ in range(4):
        truth = differing(rng)
        sums, seed = MANY.sum(truth, Margin("state")), rng.integers(1 << 30)
        posterior = posterior_of(truth, np.random.default_rng(seed))
        assert 1.0 < estimates(posterior)[NAME]["mode"] < 6.0
        table = posterior.summary(Margin("state"), 0.9)
        held.append((table["low"] <= sums) & (sums <= table["high"]))
        mass.append(table["mass"])
        with monkeypatch.context() as patched:
            patched.setattr(tree_estimate, "ODDS_ASKED", np.inf)
            one = posterior_of(truth, np.random.default_rng(seed))
        assert NAME not in estimates(one)
        errors += [((each.draws[0].mean(axis=0) - truth) ** 2).sum() for each in (posterior, one)]
    held, mass = np.concatenate(held), np.concatenate(mass)
    assert abs(held.mean() - mass.mean()) < 5 * np.sqrt(mass.mean() * (1 - mass.mean()) / len(held))
    assert errors[0] < 0.99 * errors[1]


@pytest.mark.slow
def test_where_they_are_alike_it_is_rarely_asked_for(large, rng):
    """A spread near nothing adds no log evidence: more than one of four would be seen once in a thousand runs."""
    assert sum(NAME in estimates(posterior_of(alike(rng), rng)) for _ in range(4)) <= 2


@pytest.mark.thorough
def test_families_of_which_no_window_holds_the_posterior_are_taken_as_alike(large, rng, monkeypatch):
    by_parts = SolutionSearch.by_parts

    def failing(self, cut, tolerance, *more):
        if self.mixture is not None:
            raise ConvergenceError("no window holds it", remedy="none")
        return by_parts(self, cut, tolerance, *more)

    monkeypatch.setattr(SolutionSearch, "by_parts", failing)
    found = estimates(posterior_of(differing(rng), rng))
    assert NAME not in found
    assert any(name.startswith("logit of the share of small parts") for name in found)
