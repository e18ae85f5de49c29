"""Trees on grids: against exact messages, and where exact messages have no end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.inferring.problems import laplace_tree, noisy, star, states, tree_constraints
from trueup.errors import ConvergenceError
from trueup.inferring import infer, tree_approximate, tree_work
from trueup.inferring.given import read_given
from trueup.inferring.hierarchical import given, noisy_start
from trueup.inferring.tree_approximate import refined_solution
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_grid import TreeGrid
from trueup.inferring.tree_work import in_turn
from trueup.kernel.grids.points import zoom
from trueup.kernel.messages import plan_pairs
from trueup.kernel.messages.pmf import no_splits
from trueup.layouts.splits import splits_of
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.prior import Bounded, Flat, Hierarchical, Poisson
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.run import Deadline

MEANS, INTERVALS = 0.02, 0.005
"""How far marginals may be from exact ones: means, in standard deviations and a tenth of a count; masses of intervals."""


def shape(rng):
    return states([int(k) for k in rng.integers(2, 9, rng.integers(2, 12))])


def counts_of(cells, rng, parts=None):
    parts = rng.choice([0.2, 1.0, 5.0]) if parts is None else parts
    return rng.negative_binomial(parts, 1 / rng.choice([3.0, 30.0, 300.0]), cells.n)


def solved(method, cells, measured, step):
    _, constraints, _ = read_given(measured, tree_constraints(cells))
    state = method.prepare(constraints, measured.headers)
    grid = TreeGrid(state, measured.flat, Deadline.of(), step)
    split = no_splits(grid.nodes)
    if isinstance(method.prior, Hierarchical):
        splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1])
        split = splits.parameters(given(method.prior, splits))
    return state, grid, grid.settle(split)[1]


def worst(state, grid, known, exact):
    """Largest difference of a mean, and of the mass of an exact interval."""
    ptr, x, (mean, _) = grid.grids.ptr, grid.grids.x, grid.moments(known.p)
    means = masses = 0.0
    for margin, nodes in zip(state.problem.nested.margins, state.problem.nested.nodes, strict=True):
        own = exact[margin]
        means = max(means, float((np.abs(mean[nodes] - own.mean) / (own.sd + 0.1)).max()))
        low, high = own.quantile(0.05), own.quantile(0.95)
        for v, least, most, mass in zip(nodes, low, high, own.mass(low, high), strict=True):
            here = slice(ptr[v], ptr[v + 1])
            masses = max(masses, abs(mass_between(x[here], known.p[here], least, most) - mass))
    return means, masses


def mass_between(x, p, least, most):
    """Mass of whole numbers from `least` to `most` of a density that is linear between points."""
    weight = np.ones(len(x))
    weight[1:] += (np.diff(x) - 1) / 2
    weight[:-1] += (np.diff(x) - 1) / 2
    every = np.arange(x[0], x[-1] + 1)
    density = np.exp(np.interp(every, x, np.log(np.maximum(p / weight, 1e-300))))
    return density[(every >= least) & (every <= most)].sum() / density.sum()


@pytest.mark.parametrize("epsilon", ["1", "1/5", pytest.param("1/20", marks=pytest.mark.slow)])
def test_marginals_are_those_of_exact_messages(rng, epsilon):
    compared = 0
    for _ in range(5):
        cells = shape(rng)
        measured = noisy(cells, counts_of(cells, rng), laplace_tree(cells, epsilon), rng)
        method = TreeExact(prior=Hierarchical(concentrations=(1.0, 0.5)), tier="exact")
        try:
            exact = infer(measured, method, spec=tree_constraints(cells), draws=1).drawn.marginals
        except ConvergenceError:  # the prior given is far from some of these counts
            continue
        means, masses = worst(*solved(method, cells, measured, 0.2), exact)
        assert means < MEANS
        assert masses < INTERVALS
        compared += 1
    assert compared >= 3


LARGE_TREES_DRAWN = 3
"""Trees drawn at most for one that exact messages solve under its prior."""


def large_tree(rng):
    """50 to 2,000 places, laws of either kind at any epsilon, their noisy values, and concentrations that such counts have."""
    leaves = int(np.exp(rng.uniform(np.log(50), np.log(2000))))
    groups = max(2, int(leaves ** rng.choice([0.3, 0.5, 0.7])))
    sizes = np.bincount(rng.integers(0, groups, leaves), minlength=groups)
    cells = states([int(k) for k in sizes if k])
    epsilon = np.exp(rng.uniform(np.log(0.02), np.log(2)))
    if rng.random() < 0.5:
        laws = laplace_tree(cells, str(round(epsilon, 3)))
    else:
        variance = str(int(2 / epsilon**2) + 1)
        laws = {Margin(level): law_named("discrete-gaussian")(variance) for level in cells.tree.levels}
    parts = float(rng.choice([0.2, 1.0, 5.0]))
    prior = Hierarchical(concentrations=(parts * leaves / groups, parts))
    return cells, noisy(cells, counts_of(cells, rng, parts), laws, rng), TreeExact(prior=prior, tier="exact")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_a_hundred_large_trees_are_within_what_is_stated(number, rng):
    for _ in range(LARGE_TREES_DRAWN):  # the prior given may be far from such counts
        cells, measured, every = large_tree(rng)
        try:
            exact = infer(measured, every, spec=tree_constraints(cells), draws=1).drawn.marginals
        except ConvergenceError:
            continue
        break
    else:
        pytest.fail("exact messages solve none of these trees")
    state, grid, _ = solved(every, cells, measured, 0.4)
    splits = splits_of(every.prior, state.problem.nested, state.problem.bounds()[1])
    _, moved = refined_solution(grid, splits.parameters(given(every.prior, splits)))
    _, known = grid.settle(splits.parameters(given(every.prior, splits)))
    means, masses = worst(state, grid, known, exact)
    assert means < MEANS
    assert masses < INTERVALS
    assert means <= moved


def test_gaps_are_halved_until_means_move_little(rng, monkeypatch):
    cells = states([5] * 12)
    counts = rng.negative_binomial(0.2, 1 / 150, cells.n)
    measured = noisy(cells, counts, laplace_tree(cells, "1/20"), rng)
    method = TreeExact(prior=Hierarchical(concentrations=(1.0, 0.2)), tier="exact")

    def refined(most):
        monkeypatch.setattr(tree_approximate, "LARGEST_MOVE", most)
        state, grid, _ = solved(method, cells, measured, 0.4)
        splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1])
        return grid, refined_solution(grid, splits.parameters(given(method.prior, splits)))[1]

    _, usual = refined(np.inf)
    grid, moved = refined(usual / 2)
    assert moved <= usual / 2
    assert grid.step == tree_approximate.DRAWING / 2


def test_coarse_grids_are_seen_to_err(rng):
    """The comparison rejects grids with gaps of one and a half standard deviations."""
    cells = shape(rng)
    measured = noisy(cells, counts_of(cells, rng), laplace_tree(cells, "1/20"), rng)
    method = TreeExact(prior=Hierarchical(concentrations=(1.0, 0.5)), tier="exact")
    exact = infer(measured, method, spec=tree_constraints(cells), draws=1).drawn.marginals
    state, grid, _ = solved(method, cells, measured, 0.2)
    splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1])
    split = splits.parameters(given(method.prior, splits))
    grid.step = 1.5
    grid.move(grid.settle(split)[1])
    coarse = grid.solve(split)
    from trueup.kernel.grids.sweeps import grid_downward

    means, masses = worst(state, grid, grid_downward(grid.grids, coarse.factor, coarse.up), exact)
    assert means > MEANS or masses > INTERVALS


def test_coarse_grids_know_the_evidence_of_small_parts_beside_wide_noise(rng):
    """Their prior is a power of the count near 0, where quantiles of the posterior leave wide gaps."""
    cells = states([300])
    laws = laplace_tree(cells, "1/80") | {Margin("nation"): law_named("discrete-laplace")("1")}
    measured = noisy(cells, rng.negative_binomial(0.05, 1 / 4000, cells.n), laws, rng)
    method = TreeExact(prior=Hierarchical(concentrations=(1.0, 0.05)), tier="exact")
    found = []
    for step in (0.4, 0.1):
        state, grid, _ = solved(method, cells, measured, step)
        splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1])
        found.append(grid.solve(splits.parameters(given(method.prior, splits))).evidence)
    assert abs(found[0] - found[1]) < 1.0


@pytest.mark.parametrize("prior", [Flat(), Bounded(400), Poisson(20.0)])
def test_priors_on_single_counts_are_factors(rng, prior):
    cells = states([3, 4])
    measured = noisy(cells, rng.poisson(20, cells.n), laplace_tree(cells, "1/5"), rng)
    method = TreeExact(prior=prior, tier="exact")
    exact = infer(measured, method, spec=tree_constraints(cells), draws=1).drawn.marginals
    means, masses = worst(*solved(method, cells, measured, 0.2), exact)
    assert means < MEANS
    assert masses < INTERVALS


def test_draws_follow_the_marginals_and_add_up(rng):
    cells = states([3, 6, 4])
    measured = noisy(cells, rng.poisson(50, cells.n), laplace_tree(cells, "1/10"), rng)
    prior = Hierarchical(concentrations=(1.0, 0.5))
    exact = infer(measured, TreeExact(prior=prior, tier="exact"), spec=tree_constraints(cells), draws=1)
    drawn = infer(
        measured, TreeExact(prior=prior, tier="approximate"), spec=tree_constraints(cells), draws=4000
    )
    assert (drawn.draws >= 0).all()
    for margin in cells.tree.levels:
        own = exact.drawn.marginals[Margin(margin)]
        sums = cells.sum(drawn.draws[0], Margin(margin)).astype(float)
        z = (sums.mean(axis=0) - own.mean) / (own.sd / np.sqrt(len(sums)) + MEANS * own.sd)
        assert np.abs(z).max() < 4.5
        assert np.abs(sums.std(axis=0) / own.sd - 1).max() < 0.08


@pytest.mark.thorough
def test_wide_noise_is_answered_on_grids(rng):
    cells = states([30, 40, 50])
    measured = noisy(cells, rng.negative_binomial(0.3, 0.01, cells.n), laplace_tree(cells, "1/200"), rng)
    posterior = infer(measured, spec=tree_constraints(cells), draws=200)
    assert posterior.drawn.stats["tier"] == "approximate"
    assert posterior.drawn.stats["grids"]["moved_by_coarser_grids"] < 0.2
    assert "approximate" in posterior.drawn.approximate
    low, high = (posterior.summary(Margin("nation"))[name][0] for name in ("low", "high"))
    assert 0 <= low < high


@pytest.fixture
def no_grids(monkeypatch):
    def settle(grid, split):
        raise ConvergenceError("no grids hold the posterior")

    monkeypatch.setattr(TreeGrid, "settle", settle)


@pytest.mark.thorough
def test_trees_that_no_grids_hold_are_drawn_by_chains(rng, no_grids):
    cells = states([8, 5, 9])
    truth = rng.poisson(40, cells.n)
    measured = noisy(cells, truth, laplace_tree(cells, "1/20"), rng)
    posterior = infer(measured, TreeExact(tier="approximate"), spec=tree_constraints(cells), draws=200)
    assert posterior.drawn.stats["chains_of"] == "histogram-gibbs"
    assert "under whose prior" in posterior.promise
    weak = posterior.drawn.stats["largest_r_hat"] > tree_approximate.WEAK_R_HAT
    assert ("These chains agree poorly" in posterior.promise) == weak
    low, high = (posterior.summary(Margin("nation"))[name][0] for name in ("low", "high"))
    assert low - 200 < truth.sum() < high + 200


def test_chains_that_disagree_are_called_weak(rng, no_grids, monkeypatch):
    monkeypatch.setattr(tree_approximate, "WEAK_R_HAT", np.nan)  # as is an R-hat that is not known
    cells = states([3, 4])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells, "1/20"), rng)
    posterior = infer(measured, TreeExact(tier="approximate"), spec=tree_constraints(cells), draws=20)
    assert "These chains agree poorly" in posterior.promise


def test_a_tree_that_neither_grids_nor_chains_take_is_refused(rng, no_grids):
    cells = states([3, 4])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells, "1/20"), rng)
    method = TreeExact(prior=Hierarchical(concentrations=(1.0, 0.5)), tier="approximate")
    with pytest.raises(ConvergenceError, match="no grids hold"):
        infer(measured, method, spec=tree_constraints(cells), draws=20)


def test_counts_of_a_hundred_trillion_are_answered(rng):
    cells = states([2, 3])
    truth = rng.integers(10**13, 10**14, cells.n)
    posterior = infer(noisy(cells, truth, laplace_tree(cells), rng), spec=tree_constraints(cells), draws=100)
    assert np.abs(posterior.draws[0] - truth).max() < 100


def test_equal_sources_give_equal_draws(rng):
    cells = states([3, 6])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells, "1/50"), rng)
    one, other = (
        infer(measured, TreeExact(tier="approximate"), spec=tree_constraints(cells), draws=50)
        for _ in range(2)
    )
    assert (one.draws == other.draws).all()


def test_values_with_normal_noise_are_answered(rng):
    cells = states([3, 6])
    laws = {Margin(level): law_named("discrete-gaussian")("20000") for level in cells.tree.levels}
    measured = noisy(cells, rng.poisson(40, cells.n), laws, rng)
    assert infer(measured, spec=tree_constraints(cells), draws=50).draws.shape == (1, 50, 9)


def test_exact_messages_that_take_too_long_are_left_to_grids(rng, monkeypatch):
    cells = states([3, 6])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells), rng)
    assert "tier" not in infer(measured, spec=tree_constraints(cells), draws=50).drawn.stats
    monkeypatch.setattr(tree_work, "BASE_SECONDS", 1e-4)
    posterior = infer(measured, spec=tree_constraints(cells), draws=50)
    assert posterior.drawn.stats["tier"] == "approximate"


@pytest.mark.parametrize("tier", ["auto", "exact", "approximate"])
def test_a_tree_that_has_no_time_is_refused_with_what_would_help(tier, rng, monkeypatch):
    cells = states([3, 6])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells), rng)
    monkeypatch.setattr(Deadline, "left", lambda deadline, share=1.0: -1.0)
    with pytest.raises(ConvergenceError, match=r"allow.* more .?minutes"):
        infer(measured, TreeExact(tier=tier), spec=tree_constraints(cells), draws=50)


def test_draws_in_blocks_are_those_of_the_same_law(rng, monkeypatch):
    monkeypatch.setattr(tree_approximate, "COUNTS_DRAWN_AT_ONCE", 300)
    cells = states([3, 6])
    measured = noisy(cells, rng.poisson(40, cells.n), laplace_tree(cells), rng)
    posterior = infer(measured, TreeExact(tier="approximate"), spec=tree_constraints(cells), draws=101)
    assert posterior.draws.shape == (1, 101, 9)
    assert abs(posterior.draws.sum(axis=2).mean() - posterior.summary(Margin("nation"))["mean"][0]) < 1e-9


def test_a_count_that_others_determine_is_told_from_one_whose_window_ends():
    """Points of a node whose window is one count: both neighbours are looked at."""
    plan = plan_pairs(np.array([1, 3, 3, 3]))
    ptr, x = np.arange(4), np.array([9, 4, 5])
    low, high = np.array([0, 0, 0]), np.array([9, 40, 5])
    ptr, x = zoom(plan, ptr, x, np.ones(3), np.full(3, np.inf), low, high, 0.4)
    assert x[ptr[1] : ptr[2]].tolist() == [3, 4, 5]
    assert x[ptr[2] :].tolist() == [4, 5]


def test_a_prior_that_no_grid_can_follow_is_refused_in_words(rng):
    """Forty parts of a mean of 300 under an exact total of 120."""
    laws = {Margin("part"): law_named("discrete-laplace")("1"), Margin("all"): law_named("exact")()}
    measured = noisy(star(40), np.full(40, 3), laws, rng)
    with pytest.raises(ConvergenceError, match="could not be approximated"):
        infer(
            measured,
            TreeExact(prior=Poisson(300.0), tier="approximate"),
            spec=tree_constraints(star(40)),
            draws=1,
        )


class Heard:
    """A listener to progress that keeps the names of stages."""

    def __init__(self):
        self.texts = []
        self.stage = self.texts.append

    def __call__(self, done, of):
        pass


def test_points_predict_the_time_of_the_whole_command(monkeypatch):
    now = [50.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    heard, deadline = Heard(), Deadline.of(2)
    for _ in in_turn(np.zeros((4, 1)), deadline, heard, 6):
        now[0] += 5.0
    assert "in all" not in heard.texts[0]
    assert [text.partition(", about ")[2] for text in heard.texts[1:]] == ["50 seconds in all"] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tier", "parts"),
    [
        ("exact", 10),
        ("approximate", 10),
        ("approximate", 2100),
        pytest.param("exact", 2100, marks=pytest.mark.thorough),
    ],
)
def test_every_tree_says_how_long_it_takes(rng, tier, parts):
    cells, heard = star(parts), Heard()
    measured = noisy(cells, counts_of(cells, rng, 1.0), laplace_tree(cells, "5"), rng)
    infer(measured, TreeExact(tier=tier), spec=tree_constraints(cells), draws=2, progress=heard)
    assert any(" in all" in text for text in heard.texts)


@pytest.mark.thorough
@pytest.mark.parametrize("concentration", [0.0, 3.0, 6.0])
def test_log_weights_start_near_and_their_curvature_is_about_known(rng, concentration):
    """Differences of the gradient at the start, over what is said of the curvature: 30 places of 100,000 by 6 values."""
    place = Tree.from_columns(["all", "place"], [{}, {"place": [f"p{i}" for i in range(30)]}])
    cells, share = Cells(place, (Attribute("a", tuple("uvwxyz")),)), rng.dirichlet(np.full(6, 5.0))
    sizes = rng.poisson(1e5 * np.exp(rng.normal(size=30)))
    each = rng.dirichlet(6 * np.exp(concentration) * share, 30)
    margins = (Margin("all"), Margin("place"), Margin("place", ("a",)))
    laws = dict.fromkeys(margins, law_named("discrete-gaussian")("2500"))
    measured = noisy(cells, rng.multinomial(sizes, each).ravel(), laws, rng)
    method = TreeExact()
    _, constraints, _ = read_given(measured, tree_constraints(cells))
    state = method.prepare(constraints, measured.headers)
    splits = splits_of(method.prior, state.problem.nested, state.problem.bounds()[1])
    values = state.problem.values(measured.flat.astype(float))
    start = noisy_start(np.zeros(8), splits, values, state.problem.variance)
    start[1] = concentration
    assert np.abs(start[2:] - (log := np.log(share)) + log.mean()).max() < 3 * np.exp(-concentration / 2)
    density = TreeGrid(state, measured.flat, Deadline.of(), 0.2).objective(splits, lambda done, of: None)
    known = np.diag(density(start).information)[2:]
    steps = np.eye(8)[2:] * (0.3 / np.sqrt(known))[:, None]
    falls = [density(start - e).gradient - density(start + e).gradient for e in steps]
    curvatures = [fall[k + 2] / (2 * steps[k, k + 2]) for k, fall in enumerate(falls)]
    assert 0.6 < np.median(curvatures / known) < 1.6
    assert (curvatures / known).max() < 4


@pytest.mark.thorough
def test_windows_of_sums_move_with_those_of_their_parts(rng, monkeypatch):
    """A giant among 600 parts below wide noise, as parts become unlike each other: ten moves where sums hold it back in turn."""
    cells, moves, move = star(600), [], TreeGrid.move
    counts = rng.negative_binomial(0.05, 1 / 30, 600)
    counts[7] = 40_000
    measured = noisy(cells, counts, laplace_tree(cells, "1/200"), rng)
    _, constraints, _ = read_given(measured, tree_constraints(cells))
    state = TreeExact().prepare(constraints, measured.headers)
    splits = splits_of(TreeExact().prior, state.problem.nested, state.problem.bounds()[1])
    density = TreeGrid(state, measured.flat, Deadline.of()).objective(splits, lambda done, of: None)
    monkeypatch.setattr(TreeGrid, "move", lambda grid, found: moves.append(grid) or move(grid, found))
    for concentration in (0.0, -3.0):
        moves.clear()
        density(np.array([concentration]))
        assert len(moves) <= 5
