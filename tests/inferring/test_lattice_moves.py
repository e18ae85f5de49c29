"""Tables with margins and rules: chains and enumeration against brute force, wrong moves, calibration, refusals."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

from tests.inferring.calibration import pit_of_draws, uniform_p
from tests.inferring.crossing import EXACT, LAWS, PRIORS, brute_force, crossing, measured, table
from tests.inferring.problems import star
from tests.parameters import one_in
from tests.reference.lattice import p_value
from trueup.errors import ConvergenceError, InfeasibleError, SpecError
from trueup.inferring import choose_inference, infer, without_chains
from trueup.inferring import walk as walk_module
from trueup.inferring.chains import ChainLimit
from trueup.inferring.components import with_vectors
from trueup.inferring.connect import Joined
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.walk import Walk
from trueup.io.bundle.posterior import margins
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.lattice.structure import Lattice
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Margin
from trueup.model.constraints import Bound, Constraints, LinearRule
from trueup.model.header import Measured
from trueup.model.linear import parse_linear
from trueup.model.prior import read_prior
from trueup.model.records.measurements import Measurements
from trueup.noise import law_named
from trueup.run import Deadline

FALSE_ALARM = 1e-6
LENGTHS = [1000, pytest.param(10_000, marks=pytest.mark.slow)]
"""Draws of each of four chains."""


def walk(constraints, record, prior="flat", count=1000, thin=25, seed=0):
    """Draws far apart from four chains, and the chains."""
    state = LinearProblem(constraints, record.headers)
    problem = RowProblem.of(state, record.flat, read_prior(prior))
    chains = Walk.of(state, record.flat, problem, np.random.default_rng(seed).spawn(4))
    chains.warm_up()
    return chains.run(count, thin).reshape(-1, constraints.cells.n), chains


@pytest.mark.thorough
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("law", one_in(2, LAWS))
def test_chains_have_the_posterior_of_every_law(law, count, rng):
    cells = table(2, 2)
    record = measured(cells, np.array([0, 3, 2, 6]), crossing(cells, LAWS[law]), rng)
    constraints = Constraints(cells, tuple(h.margin for h in record.headers))
    tables, masses = brute_force(constraints, record, "flat", 22)
    assert p_value(walk(constraints, record, count=count, seed=rng)[0], tables, masses) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("prior", one_in(2, PRIORS))
def test_chains_have_the_posterior_of_every_prior(prior, count, rng):
    cells = table(2, 2)
    record = measured(cells, np.array([0, 3, 2, 3]), crossing(cells, LAWS["discrete-laplace"]), rng)
    constraints = Constraints(cells, tuple(h.margin for h in record.headers))
    tables, masses = brute_force(constraints, record, PRIORS[prior], 20)
    drawn = walk(constraints, record, PRIORS[prior], count, seed=rng)[0]
    assert p_value(drawn, tables, masses) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize("method", [LatticeMoves(), LatticeMoves(enumerate=0), HistogramGibbs()], ids=repr)
def test_every_measured_table_and_the_totals_are_reported_whatever_method_answers(method, rng):
    cells = table(2, 2, places=2)
    laws = dict.fromkeys((Margin("place", ("a0",)), Margin("place", ("a1",))), LAWS["discrete-laplace"])
    record = measured(cells, rng.poisson(5, cells.n), laws, rng)
    constraints = Constraints(cells, (cells.finest, *laws))
    found = infer(record, method, spec=constraints, draws=100)
    assert margins(found) == [Margin("all"), Margin("place"), *laws, cells.finest]


RULES = {
    "one sum": ({"invariants": (Margin("all"),)}, lambda x: True),
    "both margins": ({"invariants": (Margin("all", ("a0",)), Margin("all", ("a1",)))}, lambda x: True),
    "bound on a margin": (
        {"bounds": (Bound(Margin("all", ("a0",)), lower=2, upper=7),)},
        lambda x: (x[:3].sum(0) >= 2) & (x[:3].sum(0) <= 7) & (x[3:].sum(0) >= 2) & (x[3:].sum(0) <= 7),
    ),
    "zero": (
        {"zeros": ({"a0": "a0v0", "a1": "a1v1"},), "invariants": (Margin("all"),)},
        lambda x: x[1] == 0,
    ),
    "inequality": (
        {"linear": (LinearRule(parse_linear("2 * a0v0 <= a0v1 + 3"), "all"),)},
        lambda x: 2 * x[:3].sum(0) <= x[3:].sum(0) + 3,
    ),
    "equality": (
        {"linear": (LinearRule(parse_linear("'a0=a0v0, a1=a1v0' == 2 * 'a0=a0v1, a1=a1v0'"), "all"),)},
        lambda x: x[0] == 2 * x[3],
    ),
}


def ruled(name, rng):
    cells = table(2, 3)
    counts = np.array([2, 0, 1, 1, 2, 3])
    rules = RULES[name][0]
    laws = {
        cells.finest: law_named("discrete-laplace")("3/2"),
        Margin("all", ("a1",)): LAWS["discrete-gaussian"],
    }
    record = measured(cells, counts, laws, rng, rules.get("invariants", ()))
    return Constraints(cells, tuple(laws), **rules), record


@pytest.mark.thorough
@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("name", RULES)
def test_chains_keep_every_rule_and_have_the_posterior(name, count, rng):
    constraints, record = ruled(name, rng)
    prior = {"name": "bounded", "upper": 5}
    tables, masses = brute_force(constraints, record, prior, 5, RULES[name][1])
    drawn, _ = walk(constraints, record, prior, count, seed=rng)
    assert p_value(drawn, tables, masses) > FALSE_ALARM


@pytest.mark.parametrize("name", RULES)
def test_few_tables_are_enumerated(name, rng):
    constraints, record = ruled(name, rng)
    prior = {"name": "bounded", "upper": 3}
    record = measured(
        constraints.cells, np.array([2, 0, 1, 1, 3, 2]), {h.margin: h.law for h in record.headers if not h.exact},
        rng, constraints.invariants,
    )  # fmt: skip
    tables, masses = brute_force(constraints, record, prior, 3, RULES[name][1])
    posterior = infer(record, LatticeMoves(prior=prior), spec=constraints, draws=20_000)
    assert posterior.drawn.independent
    assert posterior.drawn.stats["tables"] == len(tables)
    assert p_value(posterior.draws[0], tables, masses) > FALSE_ALARM
    for margin in {h.margin for h in record.headers} | {constraints.cells.finest}:
        counts, exact = constraints.cells.sum(tables, margin), posterior.drawn.marginals[margin]
        for group, column in enumerate(counts.T):
            below = [masses[column <= count].sum() for count in range(20)]
            assert [exact.cdf(count)[group] for count in range(20)] == pytest.approx(below, abs=1e-12)
    table = posterior.summary(level=0.8)
    assert table["mean"] == pytest.approx(masses @ tables)
    assert not table["mcse"].any()


def test_few_tables_far_apart_have_draws_but_no_windows(rng, monkeypatch):
    constraints, record = ruled("equality", rng)
    monkeypatch.setattr(without_chains, "MOST_MASSES", 9)
    posterior = infer(record, LatticeMoves(prior={"name": "bounded", "upper": 3}), spec=constraints)
    assert posterior.drawn.independent
    assert not posterior.drawn.marginals.get(constraints.cells.finest)
    assert posterior.summary()["mcse"].any()


def slow_walk(tables, masses, rng, count, mistake=""):
    """The window step on a line of counts 0 .. k in Python, with named mistakes."""
    weight = dict(zip(tables.ravel().tolist(), masses))
    x, out = int(tables[0, 0]), []
    for i in range(count):
        jump = 1 + int(rng.random() * (1 + x if mistake == "jump by the current count" else 3))
        here = 0 if mistake == "window always upwards" and rng.random() < 0.5 else int(rng.random() * 8)
        window = x + (np.arange(8) - here) * jump
        chance = np.array([weight.get(int(v), 0.0) for v in window])
        if mistake == "uniform in the window":
            chance = (chance > 0) * 1.0
        x = int(window[slow_pick(chance, here, rng, mistake)])
        out += [x] * (i % 5 == 0)
    return np.array(out)[:, None]


def slow_pick(chance, here, rng, mistake):
    """A draw from the window: afresh, or the reflection of a uniform point of the current table's interval."""
    ends, fresh = np.cumsum(chance), rng.random() < 0.25
    point = rng.random() * ends[-1]
    if not fresh:
        within = 1.0 if mistake == "reflection of the interval's start" else rng.random()
        point = ends[-1] - ends[here] + within * chance[here]
    if not fresh and mistake == "reflection of places":
        inside = np.flatnonzero(chance)
        return inside[0] + inside[-1] - here
    if not fresh and mistake == "half of the rest":
        point = ends[here] + rng.random() * (ends[-1] - ends[here])
    return min(int(np.searchsorted(ends, point, side="right")), np.flatnonzero(chance)[-1])


MISTAKES = (
    "jump by the current count",
    "window always upwards",
    "uniform in the window",
    "reflection of the interval's start",
    "reflection of places",
    "half of the rest",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake", ["", MISTAKES[0], *(pytest.param(m, marks=pytest.mark.thorough) for m in MISTAKES[1:])]
)
def test_a_wrong_step_is_rejected(mistake, rng):
    counts = np.arange(40)
    masses = np.exp(-0.25 * np.abs(counts - 6.0))
    masses /= masses.sum()
    drawn = slow_walk(counts[:, None], masses, rng, 50_000, mistake)
    assert (p_value(drawn, counts[:, None], masses) > FALSE_ALARM) == (not mistake)


@pytest.mark.thorough
def test_moves_that_do_not_connect_are_refused(rng, monkeypatch):
    """Both margins fixed in a table of wide noise: without squares and lattice vectors chains stay where they start."""
    cells = table(6, 6)
    law = law_named("discrete-laplace")("1/10")
    invariants = (Margin("all", ("a0",)), Margin("all", ("a1",)))
    record = measured(cells, np.full(36, 20), {cells.finest: law}, rng, invariants)
    constraints = Constraints(cells, (cells.finest,), invariants=invariants)
    assert infer(record, spec=constraints, draws=200).drawn.stats["moves_known_to_connect"]

    def lame(moves, vectors):
        """One exchange in one corner of the table."""
        corner = (np.array([0, 1, 6, 7]), np.array([1, -1, -1, 1]))
        alone = moves._replace(**{name: getattr(moves, name)[:0] for name in ("kinds", "places", "axes")})
        return with_vectors(alone, [corner])

    monkeypatch.setattr(walk_module, "with_vectors", lame)
    monkeypatch.setattr(walk_module, "join", lambda *given: Joined([], [], True, []))
    with pytest.raises(ConvergenceError, match="R-hat"):
        infer(record, LatticeMoves(sweeps=4000), spec=constraints, draws=200)


def test_it_agrees_with_the_exact_tree(rng):
    cells = star(6)
    laws = {Margin("all"): law_named("discrete-gaussian")("1"), Margin("part"): LAWS["discrete-laplace"]}
    record = measured(cells, rng.poisson(4, 6), laws, rng)
    constraints = Constraints(cells, tuple(laws))
    exact = infer(record, TreeExact(prior="flat"), spec=constraints).summary()
    chains = infer(record, LatticeMoves(), spec=constraints, draws=4000).summary()
    assert np.all(np.abs(chains["mean"] - exact["mean"]) < 5.5 * chains["mcse"])
    assert np.all(np.abs(chains["sd"] / exact["sd"] - 1) < 0.25)


def test_relabelled_cells_have_the_same_posterior(rng):
    cells = table(2, 3)
    laws = crossing(cells, LAWS["discrete-laplace"])
    record = measured(cells, rng.poisson(5, 6), laws, rng)
    turned_cells = table(3, 2)
    order = np.arange(6).reshape(2, 3).T.ravel()
    names = {("a0", "a1"): ("a0", "a1"), ("a0",): ("a1",), ("a1",): ("a0",), (): ()}
    headers, values = [], []
    for header, part in zip(record.headers, record.values):
        headers.append(Measured("q", Margin("all", names[header.margin.attributes]), header.law))
        values.append(part[order] if len(part) == 6 else part)
    turned = Measurements(turned_cells, tuple(headers), tuple(values), PUBLISHED, simulation=True)
    one = infer(record, spec=Constraints(cells, tuple(laws)), draws=4000).summary()
    other = infer(
        turned, spec=Constraints(turned_cells, tuple(h.margin for h in headers)), draws=4000
    ).summary()
    assert np.all(
        np.abs(one["mean"][order] - other["mean"]) < 5.5 * np.hypot(one["mcse"][order], other["mcse"])
    )


def histogram(rng, places=6):
    cells = table(2, 3, places=places)
    law = LAWS["discrete-laplace"]
    laws = {Margin("all", ("a1",)): law, Margin("place"): law, cells.finest: law}
    return cells, laws, measured(cells, rng.poisson(rng.gamma(1, 5, cells.n)), laws, rng)


def test_the_record_says_how_it_mixed_and_draws_come_from_the_digest(rng):
    cells, laws, record = histogram(rng)
    constraints = Constraints(cells, tuple(laws))
    told = []
    posterior = infer(
        record,
        LatticeMoves(),
        spec=constraints,
        draws=1000,
        progress=lambda done, of: told.append((done, of)),
    )
    stats = posterior.drawn.stats
    assert posterior.method["method"] == "lattice-moves"
    assert stats["moves_known_to_connect"]
    assert stats["largest_r_hat"] <= stats["r_hat_allowed"]
    assert stats["smallest_ess"] >= 400
    assert told[-1] == (1000, 1000)
    assert np.array_equal(posterior.draws, infer(record, LatticeMoves(), spec=constraints, draws=1000).draws)
    assert posterior.draws.shape == (4, 250, cells.n)


def test_what_has_not_converged_is_refused(rng, monkeypatch):
    cells, laws, record = histogram(rng)
    monkeypatch.setattr(walk_module, "MIN_EFFECTIVE_SIZE", 1e6)
    with pytest.raises(ConvergenceError, match="allow more sweeps"):
        infer(record, LatticeMoves(sweeps=250), spec=Constraints(cells, tuple(laws)))


@pytest.mark.parametrize("apart", [1.5, 2.5])
def test_chains_that_time_ends_are_rough_where_they_nearly_agree(apart, rng, monkeypatch):
    cells, laws, record = histogram(rng)
    found = walk_module.Walk.diagnosed

    def short(self, run):
        return found(self, run) | {"passed": False, "largest_r_hat": apart}

    monkeypatch.setattr(walk_module.Walk, "diagnosed", short)
    monkeypatch.setattr(ChainLimit, "allows", lambda self, seconds, chains: False)
    if apart > 2:
        with pytest.raises(ConvergenceError, match=r"R-hat is 2.500 .*; allow more minutes"):
            infer(record, LatticeMoves(), spec=Constraints(cells, tuple(laws)))
        return
    posterior = infer(record, LatticeMoves(), spec=Constraints(cells, tuple(laws)))
    assert posterior.drawn.stats["tier"] == "approximate"
    assert "have not converged (largest R-hat 1.50" in posterior.drawn.approximate
    assert "have not converged" in posterior.promise


def test_an_interruption_ends_all_chains(rng):
    cells, laws, record = histogram(rng)

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        infer(record, LatticeMoves(), spec=Constraints(cells, tuple(laws)), progress=stop)
    assert threading.active_count() < 10


def test_a_deadline_that_has_passed_ends_chains_with_figures(rng):
    cells, laws, record = histogram(rng)
    method, passed = LatticeMoves(), replace(Deadline.of(1), ends=time.monotonic() - 1)
    state = method.prepare(Constraints(cells, tuple(laws)), record.headers)
    with pytest.raises(ConvergenceError, match=r"R-hat|had 1 minutes, which were spent after"):
        method.apply(state, record.flat, 1000, rng, lambda done, of: None, deadline=passed)


@pytest.mark.parametrize("law", ["discrete-gaussian", "discrete-laplace"])
def test_a_sum_whose_parts_nobody_knows_has_its_own_law(law, rng):
    """Against all sums weighed one by one, of which each has C(t + 5, 5) tables; a flat law of the sum is another."""
    cells = table(2, 3)
    noise = law_named(law)("9" if law == "discrete-gaussian" else "1/3")
    headers = (Measured("q", Margin("all"), noise),)
    record = Measurements(cells, headers, (np.array([6]),), PUBLISHED)
    drawn = infer(record, LatticeMoves(), spec=Constraints(cells, (Margin("all"),)), draws=20_000)
    assert drawn.drawn.stats["tier"] == "exact"
    t = np.arange(200)
    log = noise.logpmf(t - 6.0)
    for logs, same in ((log + gammaln(t + 6) - gammaln(t + 1), True), (log, False)):
        masses = np.exp(logs - logs.max())
        masses /= masses.sum()
        mean = (masses * t).sum()
        sd = np.sqrt((masses * t**2).sum() - mean**2)
        assert (abs(drawn.sums("all").mean() - mean) < 5.5 * sd / np.sqrt(20_000)) == same
    flat = drawn.draws.reshape(-1, 6)
    assert np.abs(flat.mean(axis=0) - flat.mean()).max() < 5.5 * flat.std() / np.sqrt(20_000)
    given = flat[flat.sum(axis=1) == 3]  # 56 tables, all as probable as each other
    counts = np.unique(given, axis=0, return_counts=True)[1]
    assert len(counts) <= 56
    if len(given) > 560:
        assert abs((counts**2).sum() * 56 / len(given) - len(given) - 55) < 5.5 * np.sqrt(2 * 55) + 1


def test_bad_problems_are_named(rng):
    cells = table(2, 3)
    law = LAWS["discrete-laplace"]
    header = Measured("q", Margin("all", ("a0",)), law, np.array([0]))
    record = Measurements(cells, (header,), (np.array([4]),), PUBLISHED)
    with pytest.raises(SpecError, match="nothing limits the count of 'all, a0=a0v1, a1=a1v0'"):
        infer(record, LatticeMoves(), spec=Constraints(cells, (Margin("all", ("a0",)),)))
    rules = tuple(LinearRule(parse_linear(text), "all") for text in ("a0v0 >= a0v1 + 1", "a0v1 >= a0v0"))
    record = measured(cells, np.ones(6, int), {cells.finest: law}, rng)
    with pytest.raises(InfeasibleError, match="cannot all hold"):
        infer(record, LatticeMoves(), spec=Constraints(cells, (cells.finest,), linear=rules))
    wide = law_named("lattice-l2-laplace")("1")
    joint = Measurements(cells, (Measured("q", cells.finest, wide),), record.values, PUBLISHED)
    with pytest.raises(SpecError, match="depends on other counts"):
        infer(joint, LatticeMoves(enumerate=0), spec=Constraints(cells, (cells.finest,)))
    with pytest.raises(SpecError, match="nothing limits the count"):
        infer(joint, LatticeMoves(), spec=Constraints(cells, (cells.finest,)))
    with pytest.raises(SpecError, match="two or more"):
        infer(record, LatticeMoves(chains=1), spec=Constraints(cells, (cells.finest,)))
    narrow = law_named("truncated-geometric")("1", 1)
    invariant = Measured("invariant", Margin("all"), EXACT)
    headers = (Measured("q", cells.finest, narrow), invariant)
    clash = Measurements(cells, headers, (np.zeros(6, int), np.array([9])), PUBLISHED)
    with pytest.raises(InfeasibleError, match="bounds of the noise"):
        infer(clash, LatticeMoves(), spec=Constraints(cells, (cells.finest,), invariants=(Margin("all"),)))


def test_it_is_the_default_where_the_prior_is_flat(rng):
    cells, laws, record = histogram(rng)
    constraints = Constraints(cells, tuple(laws))
    assert isinstance(choose_inference({"prior": "flat"}, constraints, record), LatticeMoves)
    assert isinstance(choose_inference({}, constraints, record), HistogramGibbs)
    one_place = table(2, 3)
    alone = measured(one_place, np.ones(6, int), crossing(one_place, LAWS["discrete-laplace"]), rng)
    margins = tuple(h.margin for h in alone.headers)
    at_one_place = Constraints(one_place, margins)
    assert isinstance(choose_inference({"prior": "flat"}, at_one_place, alone), LatticeMoves)
    assert isinstance(choose_inference({}, at_one_place, alone), HistogramGibbs)
    tree = star(3)
    one = measured(tree, np.ones(3, int), {Margin("all"): LAWS["gaussian"]}, rng)
    assert not isinstance(choose_inference({}, Constraints(tree, (Margin("all"),)), one), LatticeMoves)


def transforms(rng, replicates, shift=0, draws=400):
    """Probability transforms of one cell and of the total, truths from the prior."""
    cells, prior = table(2, 2), {"name": "poisson", "mean": 3}
    laws = crossing(cells, LAWS["discrete-laplace"])
    constraints = Constraints(cells, tuple(laws))
    cell, total = [], []
    for _ in range(replicates):
        truth = rng.poisson(3, 4)
        record = measured(cells, truth, laws, rng)
        record = Measurements(cells, record.headers, tuple(v + shift for v in record.values), PUBLISHED)
        drawn, _ = walk(constraints, record, prior, count=draws // 4, thin=8, seed=rng)
        for found, value, true in ((cell, drawn[:, 0], truth[0]), (total, drawn.sum(axis=1), truth.sum())):
            found.append(pit_of_draws(value, true, rng))
    return cell, total


@pytest.mark.slow
def test_posteriors_are_calibrated(rng):
    assert min(map(uniform_p, transforms(rng, 60))) > FALSE_ALARM


@pytest.mark.slow
def test_calibration_rejects_shifted_noise(rng):
    assert min(map(uniform_p, transforms(rng, 60, shift=2))) < FALSE_ALARM


@pytest.mark.slow
def test_posteriors_are_calibrated_at_length(rng):
    assert min(map(uniform_p, transforms(rng, 2000, draws=1000))) > FALSE_ALARM


def test_noise_in_the_l2_norm_is_weighed_where_tables_are_listed(rng):
    """Two rows with known sums: what couples them is the norm alone."""
    cells, row = table(2, 3), Margin("all", ("a0",))
    rows = Lattice.of(6, np.kron(np.eye(2, dtype=int), [1, 1, 1]))
    law, sums = law_named("lattice-l2-laplace")("1/2").over(rows), np.array([6, 4])
    noisy = np.array([5, -1, 2, 0, 6, -2])
    headers = (Measured("q", cells.finest, law), Measured("invariant", row, EXACT))
    record = Measurements(cells, headers, (noisy, sums), PUBLISHED)
    constraints = Constraints(cells, (cells.finest,), invariants=(row,))
    posterior = infer(record, LatticeMoves(), spec=constraints, draws=50)
    every = np.indices((7,) * 6).reshape(6, -1).T
    every = every[(every[:, :3].sum(axis=1) == 6) & (every[:, 3:].sum(axis=1) == 4)]
    mass = np.exp(-0.5 * np.linalg.norm(every - noisy, axis=1))
    assert np.allclose(posterior.summary()["mean"], mass @ every / mass.sum(), atol=1e-9)
    apart = np.exp(-0.5 * np.linalg.norm(every[:, :3] - noisy[:3], axis=1))
    assert np.abs(apart @ every / apart.sum() - mass @ every / mass.sum()).max() > 0.1
    with pytest.raises(SpecError, match="more than 100 tables"):
        infer(record, LatticeMoves(enumerate=100), spec=constraints, draws=50)
