"""A cut tree: the same posterior as the whole one, whoever works on the parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from tests.inferring.problems import (
    families,
    family_constraints,
    laplace_tree,
    noisy,
    star,
    states,
    tree_constraints,
)
from tests.kernel.message_trees import LAWS, build, leaves_of, logs, p_value
from tests.reference.posterior import enumerate_tree
from trueup.errors import ConvergenceError, SpecError
from trueup.inferring import infer, tree_exact, tree_search
from trueup.inferring import tree_parts as tree_parts
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_parts import CutTree
from trueup.inferring.tree_search import SolutionSearch
from trueup.inferring.tree_work import AllowedWork, TooCostly
from trueup.kernel.messages.partition import Partition, partition_tree
from trueup.kernel.messages.solve import marginals, solve
from trueup.model.prior import Flat, Hierarchical, NegativeBinomial
from trueup.run import Deadline
from trueup.run.local import LocalPool

FLAT = TreeExact(prior=Flat())
DEEP = np.array([1, 3, 5, 7, 7, 7, 7, 7])
"""A root, two parts, four leaves."""


def uneven(rng, depth=200.0):
    """Four levels; one state without counties, one county alone in its state."""
    families = [[3], [4, 0, 1], [2, 5, 1, 3, 1]]
    levels = np.cumsum([0, 1, 3, 5, 12])
    counts = np.concatenate([*families, np.zeros(12, int)])
    child_ptr = np.concatenate([[1], 1 + np.cumsum(counts)])
    truth = rng.integers(0, 9, len(counts))
    for v in reversed(range(levels[-2])):
        if counts[v]:
            truth[v] = truth[child_ptr[v] : child_ptr[v + 1]].sum()
    law = LAWS["discrete-laplace"]
    measured = {v: [(law, int(truth[v] + rng.integers(-3, 4)))] for v in range(len(counts)) if v % 4 != 3}
    return child_ptr, levels, build(child_ptr, measured, prior=NegativeBinomial(5, 0.5), depth=depth)


def cuts(child_ptr, levels):
    """Every cut at every inner level, into parts of 1, 2 or all roots."""
    for level in range(1, len(levels) - 2):
        for step in (1, 2, 99):
            first, last = levels[level : level + 2]
            edges = np.append(np.arange(first, last, step), last)
            below = edges
            while child_ptr[below[0]] < child_ptr[below[-1]]:
                below = child_ptr[below]
            yield Partition(int(last), edges, below)


def by_parts(child_ptr, cut, factors, draws=3, seed=0, workers=None):
    parts = CutTree(child_ptr, cut, factors, 1e-9, workers or LocalPool())
    top = parts.up(parts.look())
    tops, rng = [(1.0, top.solved, draws)], np.random.default_rng(seed)
    return top, *parts.down(top, tops, rng, lambda done, of: None)[:2]


def same(child_ptr, levels, factors):
    """Whether every cut gives the whole tree's marginals, up to what both may have dropped."""
    whole = solve(child_ptr, factors)
    start, offset, masses = marginals(whole)
    assert whole.dropped <= 1e-9
    agree = []
    for cut in cuts(child_ptr, levels):
        top, (begin, first, own), _ = by_parts(child_ptr, cut, factors)
        apart = [
            np.abs(dense(begin, first, own, v) - dense(start, offset, masses, v)).max()
            for v in range(len(offset))
        ]
        agree.append(top.dropped <= 1e-9 and max(apart) < 1e-9)
    return agree


def dense(start, offset, masses, v):
    """Masses of one node at the counts from 0 on."""
    out = np.zeros(10_000)
    out[offset[v] : offset[v] + start[v + 1] - start[v]] = masses[start[v] : start[v + 1]]
    return out


def test_any_cut_gives_the_marginals_of_the_whole(rng):
    agree = same(*uneven(rng))
    assert len(agree) == 6
    assert all(agree)


def test_truncation_stays_within_the_tolerance_however_it_is_cut(rng):
    child_ptr, levels, factors = uneven(rng)
    for cut in cuts(child_ptr, levels):
        assert 0 < by_parts(child_ptr, cut, factors)[0].dropped <= 1e-9


def mutant_root_dropped(item):
    """The root's message from above is left out."""
    part, known = item
    return tree_parts.draw_part((part, known._replace(weights=[np.ones_like(w) for w in known.weights])))


def mutant_up_dropped(part):
    """The message to the top is left out: every count on its window is as likely."""
    (roots,), *rest = tree_parts.send_part(part)
    return [roots._replace(masses=[np.full(len(m), 1 / len(m)) for m in roots.masses])], *rest


def mutant_loss_dropped(part):
    """What a part left out is not reported."""
    (roots,), *rest = tree_parts.send_part(part)
    return [roots._replace(lost=np.full_like(roots.lost, -np.inf))], *rest


class Wrong(LocalPool):
    """Carries out another task than the one it is given."""

    def __init__(self, task, mutant):
        super().__init__()
        self.task, self.mutant = task, mutant

    def map(self, task, items):
        return super().map(self.mutant if task is self.task else task, items)


@pytest.mark.parametrize(
    ("task", "mutant"),
    [(tree_parts.draw_part, mutant_root_dropped), (tree_parts.send_part, mutant_up_dropped)],
)
def test_messages_left_out_are_seen(rng, monkeypatch, task, mutant):
    problem = uneven(rng)
    monkeypatch.setitem(by_parts.__globals__, "LocalPool", lambda: Wrong(task, mutant))
    assert not any(same(*problem))


def test_losses_left_out_are_seen(rng):
    child_ptr, levels, factors = uneven(rng, depth=20.0)
    whole = solve(child_ptr, factors).dropped
    cut = next(cuts(child_ptr, levels))
    top = by_parts(child_ptr, cut, factors, workers=Wrong(tree_parts.send_part, mutant_loss_dropped))[0]
    assert top.dropped < 0.9 * whole


@pytest.mark.parametrize("law", ["discrete-laplace", "truncated-geometric"])
def test_joint_draws_are_those_of_enumeration(law, rng):
    sharp = {"discrete-laplace": 2, "truncated-geometric": 1}[law]
    measured = {v: [(LAWS[law], y)] * sharp for v, y in enumerate([6, 4, 0, 1, 2, 0, 1])}
    upper = np.full(7, 5)
    factors = build(DEEP, measured, upper=np.append([20, 10, 10], upper[3:]))
    nodes, mass = enumerate_tree(DEEP, logs(measured), [range(6)] * 4)
    for cut in cuts(DEEP, np.array([0, 1, 3, 7])):
        _, _, draws = by_parts(DEEP, cut, factors, 40_000, rng.integers(99))
        assert p_value(draws, nodes[:, leaves_of(DEEP)], mass) > 1e-7


def test_draws_that_forget_the_root_are_seen(rng):
    measured = {v: [(LAWS["discrete-laplace"], y)] for v, y in enumerate([6, 4, 0, 1, 2, 0, 1])}
    factors = build(DEEP, measured, upper=np.array([20, 10, 10, 5, 5, 5, 5]))
    nodes, mass = enumerate_tree(DEEP, logs(measured), [range(6)] * 4)

    def shuffled(item):
        part, known = item
        return tree_parts.draw_part((part, known._replace(counts=known.counts[:, ::-1].copy())))

    cut, seed = (
        next(cuts(DEEP, np.array([0, 1, 3, 7]))),
        rng.integers(99),
    )  # each part's draws against other draws of the other part
    kept = by_parts(DEEP, cut, factors, 40_000, seed)[2]

    class Half(Wrong):
        def map(self, task, items):
            first, *rest = items
            yield from super().map(task, [first])
            for at, answer in LocalPool().map(task, rest):
                yield at + 1, answer

    wrong = by_parts(DEEP, cut, factors, 40_000, seed, Half(tree_parts.draw_part, shuffled))[2]
    assert not np.array_equal(kept, wrong)
    assert p_value(wrong, nodes[:, leaves_of(DEEP)], mass) < 1e-7


class Backwards(LocalPool):
    """Answers in another order, and carries out every task twice."""

    def map(self, task, items):
        for at in reversed(range(len(items))):
            task(items[at])
            yield at, task(items[at])


@pytest.fixture
def large(monkeypatch, rng):
    """Measurements of three levels, of a size that counts as large."""
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 20)
    monkeypatch.setattr(tree_exact, "MAX_PART_NODES", 8)
    cells = states([3, 2, 4, 6, 1, 5, 4])
    return cells, noisy(cells, rng.poisson(9, cells.n), laplace_tree(cells, "1/2"), rng)


@pytest.mark.thorough
def test_results_do_not_depend_on_the_workers(large):
    cells, measured = large
    one = infer(measured, spec=tree_constraints(cells), draws=50)
    two = infer(measured, spec=tree_constraints(cells), draws=50, workers=2)
    given = infer(measured, spec=tree_constraints(cells), draws=50, workers=Backwards())
    for other in (two, given):
        assert np.array_equal(one.draws, other.draws)
        for margin, exact in one.drawn.marginals.items():
            assert np.array_equal(exact.masses, other.drawn.marginals[margin].masses)


def test_draws_agree_with_the_marginals_of_the_whole(large, monkeypatch):
    cells, measured = large
    cut = infer(measured, FLAT, spec=tree_constraints(cells), draws=4000)
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 1 << 14)
    whole = infer(measured, FLAT, spec=tree_constraints(cells), draws=1)
    for margin, exact in whole.drawn.marginals.items():
        assert np.allclose(cut.drawn.marginals[margin].mean, exact.mean, rtol=1e-9)
        table = cut.sums(margin)[0]
        assert np.abs((table.mean(axis=0) - exact.mean) / (exact.sd / np.sqrt(len(table)))).max() < 6


@pytest.mark.thorough
def test_a_tree_whose_parts_cannot_be_solved_is_solved_whole(large, monkeypatch):
    cells, measured = large
    whole = partial(infer, measured, TreeExact(tier="exact"), spec=tree_constraints(cells), draws=5)

    def lost(*_):
        raise ConvergenceError("no windows")

    monkeypatch.setattr(tree_exact.SolutionSearch, "by_parts", lost)
    found = whole()
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 1 << 14)
    assert np.array_equal(found.draws, whole().draws)
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 20)
    monkeypatch.setattr(tree_search, "MOST_WHOLE_NODES", 20)
    with pytest.raises(ConvergenceError, match="no windows"):
        whole()


def test_solutions_that_fail_take_no_more_work_together_than_one_may(large):
    cells, measured = large
    apart = replace(measured, values=(measured.values[0] + 2000, *measured.values[1:]))
    state = FLAT.prepare(tree_constraints(cells), apart.headers)
    seen = []

    class Work(AllowedWork):
        def begin_pass(self, multiplications):
            seen.append(multiplications)

    SolutionSearch(state, apart.flat, LocalPool(), work=Work()).by_parts(state.cut, 1e-9)
    tried = [cost for cost in seen if cost > seen[0] / 2]
    assert len(tried) > 2
    assert np.all(np.diff(np.diff([0, *tried])) >= 0), (
        "each try costs more than the last, and all before it count"
    )


@pytest.mark.thorough
def test_the_mode_is_searched_for_in_the_whole(large):
    cells, measured = large
    posterior = infer(measured, TreeExact(mode=True), spec=tree_constraints(cells), draws=5)
    assert posterior.drawn.mode is not None
    assert posterior.drawn.mode.shape == (cells.n,)


def test_measurements_far_apart_deepen_the_tables(large, monkeypatch):
    cells, measured = large
    apart = replace(measured, values=(measured.values[0] + 2000, *measured.values[1:]))
    cut = infer(apart, FLAT, spec=tree_constraints(cells), draws=1).drawn
    monkeypatch.setattr(tree_exact, "MAX_WHOLE_NODES", 1 << 14)
    whole = infer(apart, FLAT, spec=tree_constraints(cells), draws=1).drawn
    assert cut.stats["table_depth"] == whole.stats["table_depth"] > 60
    for margin, exact in whole.marginals.items():
        assert np.allclose(cut.marginals[margin].mean, exact.mean, rtol=1e-6)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("places", [30, 300, 400])
def test_many_parts_measured_far_below_their_total_need_no_deeper_tables(places, rng):
    """Bounds of what a sum of hundreds of parts leaves out must hold between the bulk of its counts and its far tail as well."""
    cells = star(places)
    law = LAWS["discrete-laplace"]
    parts = law.quantile(rng.random(cells.n)).astype(np.int64)
    parts[0] -= parts.sum() + 24
    measured = noisy(cells, np.zeros(cells.n, int), {cells.coarsest: law, cells.finest: law}, rng)
    far = replace(measured, values=(np.array([16]), parts))
    drawn = infer(
        far,
        TreeExact(prior=Hierarchical(concentrations=(2.1,)), tier="exact"),
        spec=tree_constraints(cells),
        draws=1,
    ).drawn
    assert drawn.stats["dropped_mass"] <= 1e-9
    assert drawn.stats["table_depth"] <= 960


def test_workers_are_refused_where_there_is_one_process(rng):
    cells = families(2)
    measured = noisy(cells, rng.integers(4, 9, cells.n), {cells.finest: LAWS["discrete-laplace"]}, rng)
    with pytest.raises(SpecError, match="runs in one process"):
        infer(measured, spec=family_constraints(cells), workers=2)
    with pytest.raises(SpecError, match="0 workers"):
        infer(measured, spec=family_constraints(cells), workers=0)


def test_the_cut_balances_the_top_and_the_parts():
    sizes = (1, 5, 40, 2000)
    counts = [np.full(a, b // a) for a, b in pairwise(sizes)]
    child_ptr = np.concatenate([[1], 1 + np.cumsum(np.concatenate([*counts, np.zeros(2000, int)]))])
    cut = partition_tree(child_ptr, np.concatenate([[0], np.cumsum(sizes)]), 300)
    assert cut is not None
    assert cut.top == 46
    assert cut.edges[[0, -1]].tolist() == [6, 46]
    assert cut.leaves[[0, -1]].tolist() == [46, 2046]
    assert np.diff(cut.leaves).max() <= 300 + 50


def test_a_star_is_not_cut():
    assert partition_tree(np.array([1, *[101] * 101]), np.array([0, 1, 101]), 8) is None


def test_evaluations_that_end_within_the_time_are_left_to_go_on(monkeypatch):
    """Nine evaluations of the counties of the United States, in seconds: after six, 40 foretold more than the 5.2 s allowed."""
    from trueup.inferring import tree_work

    def after(seconds):
        clock = iter(np.cumsum([0.0, *seconds]))
        monkeypatch.setattr(tree_work.time, "process_time", lambda: next(clock))
        work = AllowedWork.of(3196, Deadline.of())
        for _ in range(len(seconds) + 1):
            work.end_evaluation()

    after([0.06, 0.06, 0.06, 0.25, 0.22, 0.17, 0.16, 0.17])
    with pytest.raises(TooCostly):
        after([0.4] * 8)
