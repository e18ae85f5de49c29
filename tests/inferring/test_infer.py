"""The verb: what users get, and what bad input says."""

from __future__ import annotations

from functools import reduce
from itertools import islice

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.inferring.problems import (
    draw,
    family_constraints,
    family_measurements,
    laplace_tree,
    noisy,
    star,
    states,
    tree_constraints,
)
from tests.kernel.test_splits import log_w
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring import inequalities, infer, inference_method
from trueup.inferring.inequalities import LinearInequalities, kind_and_scale
from trueup.inferring.method import in_blocks
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.inequalities.tilted import DISCRETE_GAUSSIAN, GAUSSIAN, LAPLACE, TWO_SIDED_GEOMETRIC
from trueup.model.cells import Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.prior import Bounded, Hierarchical
from trueup.model.records.measurements import Measurements
from trueup.noise import DiscreteLaplace, law_named
from trueup.run import Deadline


@pytest.fixture
def counties(rng):
    cells = states([3, 2, 4])
    truth = rng.poisson(20, cells.n)
    return cells, truth, noisy(cells, truth, laplace_tree(cells, "1/2"), rng)


@pytest.fixture
def posterior(counties):
    cells, _, measured = counties
    return infer(measured, spec=tree_constraints(cells), draws=4000)


@pytest.mark.thorough
def test_equal_measurements_give_equal_draws(counties, posterior):
    cells, _, measured = counties
    again = infer(measured, spec=tree_constraints(cells), draws=4000)
    assert np.array_equal(posterior.draws, again.draws)


def test_draws_agree_with_exact_marginals_at_every_level(posterior):
    for margin, exact in posterior.drawn.marginals.items():
        table = posterior.sums(margin)[0]
        z = (table.mean(axis=0) - exact.mean) / (exact.sd / np.sqrt(len(table)))
        assert np.abs(z).max() < 5.5


def test_the_summary_says_what_it_is(posterior):
    exact = posterior.summary(Margin("state"))
    assert exact["label"].tolist() == ["s0", "s1", "s2"]
    assert (exact["mass"] >= 0.9).all()
    assert (exact["mcse"] == 0).all()
    assert np.isnan(exact["r_hat"]).all()
    wider = posterior.summary(Margin("state"), level=0.99)
    assert (wider["high"] - wider["low"] >= exact["high"] - exact["low"]).all()


def test_quantities_of_any_area(posterior):
    flat = posterior.draws[0]
    area = posterior.quantity("'s0/c1' + 's2/c3' - 2 * s1")
    assert np.array_equal(area.draws[0], flat[:, 1] + flat[:, 8] - 2 * flat[:, 3:5].sum(axis=1))
    assert posterior.ratio("s0", "nation").mean == pytest.approx(np.mean(flat[:, :3].sum(1) / flat.sum(1)))
    assert posterior.probability("'s0/c0' >= 's0/c1' + 1") == np.mean(flat[:, 0] > flat[:, 1])
    assert posterior.quantity("s0").probability(below=50) == np.mean(flat[:, :3].sum(1) < 50)
    rank = posterior.rank("s0", "state")
    assert set(np.unique(rank.draws)) <= {1, 2, 3}
    for name in ("'s0'", '"s0"', "state=s0", "'state=s0'"):
        assert np.array_equal(posterior.rank(name, "state").draws, rank.draws)
    counties = posterior.rank("'s0/c1'", "county")
    assert np.array_equal(counties.draws[0], 1 + (flat > flat[:, [1]]).sum(axis=1))
    low, high, mass = area.interval(0.8)
    assert mass >= 0.8
    assert low <= area.median <= high


def test_unknown_labels_are_named(posterior):
    with pytest.raises(SpecError, match="no place of these draws is called 'sO'"):
        posterior.quantity("sO + s1")
    with pytest.raises(SpecError, match="level 'state' of these draws has no place 's9'"):
        posterior.rank("s9", "state")
    for name in ("nation=nation", "'s0/c1'", "'s0' + 's1'", "'s0", "'", ""):
        with pytest.raises(SpecError):
            posterior.rank(name, "state")
    with pytest.raises(SpecError, match="not a probability"):
        posterior.quantity("s0").interval(90)


def test_xarray_has_chain_draw_cell(posterior):
    data = posterior.to_xarray()
    assert data["count"].dims == ("chain", "draw", "cell")
    assert float(data["count"].sel(cell="s1/c0").mean()) == pytest.approx(posterior.quantity("'s1/c0'").mean)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_takes_the_draws(posterior):
    assert posterior.to_arviz().posterior["count"].shape == posterior.draws.shape


def test_several_measurements_of_a_node_and_invariants(rng):
    cells = star(3)
    law = law_named("discrete-gaussian")("4")
    exact = law_named("exact")()
    headers = (
        Measured("invariant", Margin("all"), exact),
        Measured("first", Margin("part"), law),
        Measured("second", Margin("part"), law, np.array([0, 2])),
    )
    truth = np.array([4, 9, 1])
    values = (np.array([14]), truth + draw(law, 3, rng), truth[[0, 2]] + draw(law, 2, rng))
    posterior = infer(Measurements(cells, headers, values, PUBLISHED), spec=tree_constraints(cells))
    assert (posterior.draws.sum(axis=-1) == 14).all()
    sd = posterior.summary()["sd"]
    assert sd[0] < sd[1]


def test_the_mode_adds_up(counties):
    cells, _, measured = counties
    posterior = infer(measured, TreeExact(mode=True), spec=tree_constraints(cells))
    assert posterior.drawn.mode is not None
    assert posterior.drawn.mode.shape == (cells.n,)
    assert (posterior.drawn.mode >= 0).all()


def test_improper_posteriors_are_named():
    cells = star(3)
    header = Measured("total", Margin("part"), law_named("discrete-laplace")("1"), np.array([0, 1]))
    measured = Measurements(cells, (header,), (np.array([3, 4]),), PUBLISHED)
    with pytest.raises(SpecError, match="nothing limits the count of 'p0002'"):
        infer(measured, spec=tree_constraints(cells))
    bounded = infer(measured, TreeExact(prior={"name": "bounded", "upper": 9}), spec=tree_constraints(cells))
    assert bounded.draws[..., 2].max() == 9


def test_contradicting_invariants_and_bounds_are_named(rng):
    cells = star(2)
    headers = (Measured("invariant", Margin("all"), law_named("exact")()),)
    measured = Measurements(cells, headers, (np.array([5]),), PUBLISHED)
    bound = Bound(Margin("part"), lower=4)
    with pytest.raises(InfeasibleError, match="at 'all' and its parts contradict each other"):
        infer(measured, spec=tree_constraints(cells, bounds=(bound,)))


def of_total_and_parts(total):
    """A total and two parts of 5, all with the Laplace law of epsilon 2."""
    law = law_named("discrete-laplace")("2")
    headers = (Measured("total", Margin("all"), law), Measured("total", Margin("part"), law))
    return Measurements(star(2), headers, (np.array([total]), np.array([5, 5])), PUBLISHED)


@pytest.mark.slow
@pytest.mark.parametrize("total", [40, 300, 600, 3000])
def test_measurements_far_apart_are_widened_until_windows_hold_the_posterior(total):
    """It is spread from the parts' sum to the total, hundreds of nats below the peak of either: windows once left it out."""
    measured = of_total_and_parts(total)
    posterior = infer(
        measured, TreeExact(prior="flat", tier="exact"), spec=tree_constraints(star(2)), draws=8
    )
    parts = np.arange(2 * total)
    both = parts[:, None] + parts
    log = -2.0 * (abs(both - total) + abs(parts[:, None] - 5) + abs(parts - 5))
    weight = np.exp(log - log.max())
    mean = posterior.summary(Margin("all"), 0.9)["mean"][0]
    assert mean == pytest.approx((weight * both).sum() / weight.sum(), rel=1e-7)
    assert posterior.drawn.stats["table_depth"] > 60
    assert posterior.drawn.stats["dropped_mass"] <= 1e-9


def test_a_bounded_total_far_from_what_the_prior_says_of_its_parts_is_solved():
    """Tilts of empty states are so steep that what numbers are too small for might be all; it is no more than the sum itself."""
    cells, law = states([3, 6, 4, 5]), law_named("discrete-laplace")("1/4")
    values = [183], [1, -1, -2, 184], [1, -4, 6, -4, -2, 2, -8, 5, 4, -1, 4, 0, -1, 44, 37, 45, 37, 34]
    headers = tuple(Measured("total", Margin(level), law) for level in cells.tree.levels)
    measured = Measurements(cells, headers, tuple(map(np.array, values)), PUBLISHED)
    prior = Hierarchical(total=Bounded(300), concentrations=(0.07, 18.0))
    posterior = infer(measured, TreeExact(prior=prior), spec=tree_constraints(cells), draws=8)
    log = nation_in_logs(*values, 0.07, 18.0)
    weight = np.exp(log - log.max())
    mean = posterior.summary(Margin("nation"), 0.9)["mean"][0]
    assert mean == pytest.approx(weight @ np.arange(301) / weight.sum(), rel=1e-9)


def nation_in_logs(nation, of_states, counties, a, b):
    """Log posterior masses of 0 to 300, all convolved in logs."""
    x, rest = np.arange(301), iter(counties)

    def noise(values):
        return -0.25 * abs(x - np.array(values)[:, None])

    def summed(parts):
        return reduce(lambda p, q: np.array([logsumexp(p[: t + 1] + q[t::-1]) for t in x]), parts)

    below = []
    for k, own in zip([3, 6, 4, 5], noise(of_states)):
        below.append(summed(noise(list(islice(rest, k))) + log_w(x, b)) + own + log_w(x, a) - log_w(x, k * b))
    return summed(below) + noise(nation)[0] - log_w(x, 4 * a)


def test_measurements_so_far_apart_that_no_window_holds_the_posterior_are_refused():
    with pytest.raises(ConvergenceError, match="contradict each other"):
        infer(of_total_and_parts(10_000), TreeExact(prior="flat"), spec=tree_constraints(star(2)), draws=8)


def test_where_chains_take_such_measurements_they_are_weak_and_the_conflict_is_reported():
    rules = tree_constraints(star(2))
    posterior = infer(of_total_and_parts(10_000), TreeExact(prior="hierarchical"), spec=rules, draws=8)
    assert "These chains agree poorly" in posterior.drawn.approximate
    assert all(conflict.log_probability < np.log(1e-6) for conflict in posterior.conflicts)
    assert len(posterior.conflicts) == 2


def test_methods_and_priors_that_do_not_exist(counties):
    cells, _, measured = counties
    with pytest.raises(SpecError, match="inference method 'gibbs' is unknown"):
        inference_method("gibbs", {})
    with pytest.raises(SpecError, match="no parameter 'priors'"):
        inference_method("tree-exact", {"priors": "flat"})
    with pytest.raises(SpecError, match="there is no prior"):
        infer(measured, TreeExact(prior="jeffreys"), spec=tree_constraints(cells))
    with pytest.raises(SpecError, match="parameter 'mean' of prior 'poisson' is out of range"):
        infer(measured, TreeExact(prior={"name": "poisson", "mean": -1}), spec=tree_constraints(cells))
    with pytest.raises(SpecError, match="does not fit: it handles general"):
        infer(measured, LinearInequalities(), spec=tree_constraints(cells))


def test_every_draw_satisfies_the_rules(rng):
    cells, measured = family_measurements(40, rng, law_named("discrete-gaussian")("400"))
    draws = infer(measured, spec=family_constraints(cells)).draws.reshape(-1, 3)
    assert (draws[:, 2] >= 1).all()
    assert (draws[:, 0] + draws[:, 1] >= 2 * draws[:, 2]).all()
    assert (draws[:, 0] + draws[:, 1] <= 10 * draws[:, 2]).all()


def test_infeasible_rules_come_with_a_certificate(rng):
    cells, measured = family_measurements(2, rng, law_named("discrete-gaussian")("400"))
    rules = ("families >= 1", "under18 + over18 >= 3 * families", "under18 + over18 <= 2 * families")
    with pytest.raises(InfeasibleError) as caught:
        infer(measured, spec=family_constraints(cells, rules))
    for rule in rules:
        assert f"'{rule}'" in str(caught.value)
    assert "lower bound" not in str(caught.value)


def test_rules_that_bind_everywhere_fall_back_to_a_flagged_chain(rng):
    cells, measured = family_measurements(2, rng, law_named("discrete-gaussian")("400"))
    independent = infer(measured, spec=family_constraints(cells), draws=20_000)
    chained = infer(measured, LinearInequalities(least=1.0), spec=family_constraints(cells), draws=20_000)
    assert independent.drawn.independent
    assert not chained.drawn.independent
    assert chained.drawn.stats["places_by_chain"]
    assert chained.drawn.stats["largest_r_hat"] <= 1.01
    one, other = independent.summary(), chained.summary()
    assert (other["r_hat"] <= 1.01).all()
    assert np.all(np.abs(one["mean"] - other["mean"]) < 5.5 * np.hypot(one["mcse"], other["mcse"]))


def test_chains_that_are_too_short_are_not_called_a_posterior(rng, monkeypatch):
    monkeypatch.setattr(inequalities, "MOST_SWEEPS", 0)
    monkeypatch.setattr(inequalities, "MIN_DIAGNOSED_DRAWS", 80)
    cells, measured = family_measurements(1, rng, law_named("discrete-gaussian")("400"))
    with pytest.raises(ConvergenceError, match="R-hat"):
        infer(measured, LinearInequalities(least=1.0), spec=family_constraints(cells), draws=80)


@pytest.mark.parametrize(
    ("rules", "says"),
    [(("families == 3",), "inequalities, but no equalities")],
)
def test_what_it_does_not_handle_is_said(rules, says, rng):
    cells, measured = family_measurements(1, rng, law_named("discrete-gaussian")("4"))
    with pytest.raises(SpecError, match=says):
        infer(measured, LinearInequalities(), spec=family_constraints(cells, rules))


class Foreign(DiscreteLaplace):
    """A law of the same form from outside the package."""


def test_a_law_of_a_known_form_from_outside_is_drawn_from(rng):
    cells, measured = family_measurements(2, rng, Foreign("1/20"))
    draws = infer(measured, LinearInequalities(), spec=family_constraints(cells)).draws.reshape(-1, 3)
    assert (draws[:, 0] + draws[:, 1] >= 2 * draws[:, 2]).all()


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (law_named("gaussian")("4"), (GAUSSIAN, 2.0)),
        (law_named("laplace")("2"), (LAPLACE, 2.0)),
        (law_named("discrete-gaussian")("4"), (DISCRETE_GAUSSIAN, 2.0)),
        (law_named("discrete-laplace")("1/2"), (TWO_SIDED_GEOMETRIC, 2.0)),
        (law_named("truncated-geometric")("1", 50), None),
        (law_named("lattice-laplace")("1/2"), None),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_the_kernel_knows_a_law_by_its_form(law, expected):
    assert kind_and_scale(law) == expected


def test_a_cell_measured_twice_is_refused(rng):
    cells, measured = family_measurements(1, rng, law_named("discrete-gaussian")("4"))
    twice = Measurements(cells, measured.headers * 2, measured.values * 2, PUBLISHED)
    with pytest.raises(SpecError, match="exactly once"):
        infer(twice, LinearInequalities(), spec=family_constraints(cells))


def test_an_interruption_keeps_finished_blocks():
    calls = []

    def draw_block(size):
        calls.append(size)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return np.ones((size, 2))

    told = []
    values, whole = in_blocks(draw_block, 10, 4, lambda done, of: told.append((done, of)))
    assert (values.shape, whole, told) == ((8, 2), False, [(4, 10), (8, 10)])


def test_a_deadline_keeps_finished_blocks():
    values, whole = in_blocks(lambda k: np.ones((k, 2)), 10, 4, lambda done, of: None, Deadline(0.0, 60.0))
    assert (values.shape, whole) == ((4, 2), False)


def test_chains_under_rules_end_at_the_deadline(rng):
    cells, measured = family_measurements(2, rng, law_named("discrete-gaussian")("400"))
    method = LinearInequalities(least=1.0)
    state = method.prepare(family_constraints(cells), measured.headers)
    late = Deadline(0.0, 60.0)
    with pytest.raises(
        ConvergenceError, match="had 1 minutes, which were spent after Markov chains at 0 of 2 places"
    ):
        method.apply(state, measured.flat, 100, rng, lambda done, of: None, late)
