"""Released counts of a tree of several sums: against enumeration, calibrated from releases, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.inferring.problems import laplace_tree, noisy, states, tree_constraints
from tests.inferring.released import HALF, ONE, alpha, p_value, ranks_within, uniform_p_value
from tests.reference.released import (
    draw_release,
    enumerate_tree,
    evenly,
    mode_release,
    redrawn,
    shuffled_release,
)
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring import infer
from trueup.inferring.released.tree import ReleasedTree, ReleasedTreeChain, draw_tree
from trueup.inferring.released_multinomial import ReleasedMultinomial, own_decide
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.released.tree import DRAWN, FIRST, SHUFFLED
from trueup.layouts.tree import tree_problem
from trueup.model.cells import Margin
from trueup.model.header import Measured
from trueup.model.prior import FLAT, Bounded, Poisson, Prior
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.noise import Exact, TruncatedGeometric
from trueup.reconciling import describe, reconcile
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample
from trueup.run import Deadline

KINDS = {
    "mode": (FIRST, 2, evenly(mode_release()), None),
    "shuffled": (SHUFFLED, 2, evenly(shuffled_release), None),
    "draw": (DRAWN, 2, evenly(draw_release), None),
    "algorithm 1": (DRAWN, 1, evenly(draw_release), redrawn),
}
METHODS = {
    "mode": MultinomialMode(),
    "shuffled": MultinomialMode(ties="shuffled"),
    "draw": MultinomialSample(),
    "algorithm 1": MultinomialSample(algorithm=1),
}
SAMPLES = {"draw", "algorithm 1"}


def headers_of(cells, **laws):
    known = {Margin(level): law for level, law in laws.items()}
    return tuple(Measured("q", margin, law) for margin, law in (laplace_tree(cells) | known).items())


def tree_of(k, kind, prior: Prior = FLAT, sizes=(2, 2), **laws):
    """A tree of two states whose counties were released as k."""
    cells = states(sizes)
    problem = tree_problem(tree_constraints(cells), headers_of(cells, **laws))
    counts = np.concatenate([cells.sum(np.array(k), margin) for margin in problem.nested.margins])
    return ReleasedTree(problem, counts, prior, KINDS[kind][0], True, KINDS[kind][1])


def draws_of(tree, rng, kept, thin):
    chain, out = ReleasedTreeChain(tree, rng), []
    for step in range(-100, kept * thin):
        counts = chain.step()
        if step >= 0 and step % thin == 0:
            out.append(counts[tree.problem.nested.nodes[-1]])
    return np.array(out)


CASES = [("draw", ((1, 2), (2, 0)), 1200)]
SLOW = [
    ("mode", ((1, 2), (2, 0)), 1200),
    ("mode", ((0, 1), (0, 0)), 4000),
    ("shuffled", ((1, 1), (2, 1)), 4000),
    ("algorithm 1", ((1, 2), (2, 0)), 4000),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "k", "kept"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_chains_follow_the_enumerated_posterior(rng, kind, k, kept):
    """Wrong versions are rejected: other noise, the other release, sums without the split above them."""
    _, _, release, law = KINDS[kind]
    counts = 12 if law is None else 16
    draws = draws_of(tree_of(sum(k, ()), kind), rng, kept, 5)
    inside = draws[(draws < counts).all(axis=1)]
    assert len(inside) > 0.97 * len(draws)
    masses = enumerate_tree(k, alpha(ONE), counts, release, law)
    assert p_value(inside, masses) > 1e-6
    other = KINDS["draw" if kind not in SAMPLES else "mode"]
    for mutant in (
        enumerate_tree(k, alpha(ONE) ** 1.25, counts, release, law),
        enumerate_tree(k, alpha(ONE), counts, other[2], other[3]),
        enumerate_tree(
            k, alpha(ONE), counts, lambda a, j: 1.0 if j == tuple(map(sum, k)) else release(a, j), law
        ),
    ):
        assert p_value(inside, mutant) < 1e-6


@pytest.mark.slow
def test_priors_multiply_the_flat_posterior(rng):
    k, prior = ((1, 2), (2, 0)), Poisson(2.0)
    flat = enumerate_tree(k, alpha(ONE), 12, KINDS["mode"][2])
    each = np.exp(prior.logpmf(np.arange(12)))
    masses = flat * np.multiply.outer(np.outer(each, each), np.outer(each, each))
    draws = draws_of(tree_of((1, 2, 2, 0), "mode", prior), rng, 1000, 5)
    assert p_value(draws, masses / masses.sum()) > 1e-6
    assert p_value(draws, flat) < 1e-6


# --- from the release itself ------------------------------------------------------------------


def released(true, cells, headers, method, rng):
    constraints = tree_constraints(cells)
    noisy = [cells.sum(true, h.margin) + h.law.sample(cells.size(h.margin), rng.bytes) for h in headers]
    noisy = [cells.sum(true, h.margin) if h.exact else part for h, part in zip(headers, noisy)]
    return method.apply(method.prepare(constraints, headers), np.concatenate(noisy), rng).values


def calibrated(kind, rng, replicates, believed=None):
    """p value of the ranks of one of five small counts: zeros, ties and empty splits are common."""
    cells, ranks = states((2, 3)), []
    for _ in range(replicates):
        true = rng.poisson(1.5, 5)
        k = released(true, cells, headers_of(cells), METHODS[kind], rng)
        tree = tree_of(k, believed or kind, Poisson(1.5), (2, 3))
        ranks.append(ranks_within(draws_of(tree, rng, 31, 10), true, rng)[rng.integers(5)])
    return uniform_p_value(ranks)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_releases_are_calibrated(kind, rng):
    assert calibrated(kind, rng, 1500) > 1e-6


def posterior_of(k, method, by, sizes=(2, 2), draws=400, **laws):
    """A data user's posterior: released counts, laws, and no measured value."""
    cells = states(sizes)
    headers = headers_of(cells, **laws)
    zeros = tuple(np.zeros(cells.size(h.margin), np.int64) for h in headers)
    measured = Measurements(cells, headers, zeros, PUBLISHED)
    release = Release(measured, np.array(k), describe(by), {}, {})
    return infer(release, method, spec=tree_constraints(cells), draws=draws)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mode", "draw"])
def test_the_verb_gives_draws_that_add_up_and_have_mixed(kind):
    method = ReleasedMultinomial(release="sample" if kind in SAMPLES else "mode")
    posterior = posterior_of([30, 12, 0, 7], method, METHODS[kind])
    assert posterior.draws.shape == (4, 100, 4)
    assert posterior.draws.min() >= 0
    assert posterior.drawn.stats["smallest_ess"] >= 400
    assert abs(posterior.draws.sum(axis=-1).mean() - 49) < 3


@pytest.mark.thorough
def test_invariants_are_kept():
    posterior = posterior_of([30, 12, 0, 7], ReleasedMultinomial(), METHODS["mode"], state=Exact())
    assert (posterior.draws[..., :2].sum(axis=-1) == 42).all()
    assert (posterior.draws[..., 2:].sum(axis=-1) == 7).all()
    assert posterior.draws[..., 0].std() > 0.5


@pytest.mark.thorough
def test_counts_far_from_the_prior_and_totals_of_one_part_have_posteriors(rng):
    tree = tree_of((1000, 3, 2, 2), "mode", Poisson((600.0, 3.0, 3.0, 3.0)), (1, 3))
    draws = draws_of(tree, rng, 200, 1)
    assert 970 < draws[:, 0].mean() < 1003
    assert draws[:, 1:].mean() < 8


def test_noise_beyond_its_tables_is_refused(rng):
    """A prior that pulls harder than the noise holds would pile draws up at the edge of the table."""
    with pytest.raises(InfeasibleError, match="near the released ones"):
        draws_of(tree_of((400, 3, 2, 2), "mode", Poisson(3.0)), rng, 100, 1)


@pytest.mark.thorough
def test_a_tree_without_anybody_has_a_posterior(rng):
    draws = draws_of(tree_of((0, 0, 0, 0), "mode"), rng, 2000, 1).sum(axis=1)
    q = np.exp(-1.0)
    assert draws.mean() == pytest.approx(4 * q / (1 - q), rel=0.15)


def test_chains_end_at_the_deadline(rng):
    late = Deadline(0.0, 60.0)
    with pytest.raises(
        ConvergenceError, match="had 1 minutes, which were spent after a part of its first run"
    ):
        draw_tree(
            tree_of((30, 12, 0, 7), "mode"), 100, rng, 1000, lambda done, of: None, late, ReleasedTreeChain
        )


@pytest.mark.thorough
def test_what_does_not_fit_is_refused(rng):
    with pytest.raises(InfeasibleError, match="near the released ones"):
        posterior_of([300, 1, 0, 7], ReleasedMultinomial(prior=Bounded(9)), METHODS["mode"])
    with pytest.raises(ConvergenceError, match="allow more sweeps"):
        posterior_of([3, 1, 0, 7], ReleasedMultinomial(sweeps=10, release="sample"), METHODS["draw"], draws=4)
    cells = states((2, 2))
    headers = [h for h in headers_of(cells) if h.margin.level != "state"]
    with_states = tree_constraints(cells)
    assert "'state' has none" in str(ReleasedMultinomial().refuses(with_states, headers))
    assert "'nation' has 2" in str(
        ReleasedMultinomial().refuses(with_states, [*headers_of(cells), headers[0]])
    )
    big = tree_of((0, 1, 2, 3), "mode")
    with pytest.raises(SpecError, match="range"):
        replace(big, counts=big.counts + 2**31)


def summed_differs(cells, laws, rng):
    """How many of 60 releases differ between summed and independent totals."""
    constraints = tree_constraints(cells)
    differ = 0
    for _ in range(60):
        measured = noisy(cells, rng.integers(0, 6, cells.n), laws, rng)
        both = [
            reconcile(measured, MultinomialMode(total=total), spec=constraints).counts
            for total in ("summed", "independent")
        ]
        differ += not np.array_equal(both[0], both[1])
    return differ


@pytest.mark.parametrize(("bound", "decides"), [(50, True), (2, False)])
def test_summed_totals_under_truncated_noise_are_independent_ones_unless_it_is_cut_short(bound, decides, rng):
    cells = states((2, 3))
    laws = {margin: TruncatedGeometric("1", bound) for margin in laplace_tree(cells)}
    headers = [Measured("q", margin, law) for margin, law in laws.items()]
    assert own_decide(tree_problem(tree_constraints(cells), headers)) == decides
    assert (summed_differs(cells, laws, rng) == 0) == decides


@pytest.mark.slow
def test_summed_totals_are_independent_ones_where_their_own_noise_decides(rng):
    cells = states((2, 3))
    laws = laplace_tree(cells) | {Margin("county"): HALF}
    assert summed_differs(cells, laws, rng) == 0
    assert summed_differs(cells, laplace_tree(cells) | {Margin("nation"): HALF}, rng) > 0
    method, by = ReleasedMultinomial(total="summed"), MultinomialMode(total="summed")
    ours = posterior_of([30, 12, 0, 7], method, by, draws=40).draws
    assert np.array_equal(
        ours, posterior_of([30, 12, 0, 7], ReleasedMultinomial(), METHODS["mode"], draws=40).draws
    )
    alone = states((1, 3))  # a state of one county: what decides at equal epsilon is a plateau
    assert not own_decide(tree_problem(tree_constraints(alone), headers_of(alone)))
    assert summed_differs(alone, laplace_tree(alone), rng) > 0
