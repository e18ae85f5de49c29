"""Histograms under the hierarchical prior: chains against all tables listed."""

from __future__ import annotations

import re
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from tests.inferring.histograms import (
    FALSE_ALARM,
    GAUSSIAN,
    chain,
    largest_z,
    listed,
    mixed,
    places,
    record,
    walked,
)
from tests.inferring.problems import noisy
from trueup import run as deadline_of_run
from trueup.errors import BundleError, ConvergenceError, SpecError, TrueupError
from trueup.inferring import chain_driver, chains, histogram_gibbs, histogram_walk, infer
from trueup.inferring.chains import Checkpoint
from trueup.inferring.histogram_gibbs import HistogramGibbs
from trueup.inferring.histogram_walk import HistogramWalk
from trueup.inferring.questions import infer_areas
from trueup.io.bundle.posterior import margins
from trueup.kernel.settling.split_draws import HYPERPRIOR
from trueup.layouts.columns import ColumnProblem
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Bound, Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import interval_of_draws
from trueup.model.tree import Tree
from trueup.noise import law_named
from trueup.run import Deadline


@pytest.mark.slow
@pytest.mark.parametrize("middles", [pytest.param((), marks=pytest.mark.slow), (1, 2)])
def test_chains_agree_with_all_tables_listed(middles, rng):
    cells = places(middles)
    a, kappa = 0.7, 3.0
    most = 16 if not middles else 5
    truth = rng.integers(0, 2 if middles else 4, cells.n)
    measured = record(cells, truth, rng)
    rate = 0.3
    draws = chain(cells, measured, 20_000, rng, (a, kappa, rate))
    inside = draws[(draws <= most).all(axis=1)]
    assert len(inside) > 0.98 * len(draws)

    def distance(a, kappa, rate):
        levels = 2 if middles else 1
        return largest_z(
            cells, inside, *listed(cells, measured, middles, levels * (a,), levels * (kappa,), most, rate)
        )

    assert distance(a, kappa, rate) < FALSE_ALARM
    wrong = (
        (a * 10, kappa, rate),
        (a, kappa * 10, rate),
        (a, kappa / 10, rate),
        (a, kappa, 0.0),
        (a, kappa, 0.8),
    )
    for others in wrong:
        assert distance(*others) > FALSE_ALARM


@pytest.mark.slow
def test_concentrations_are_integrated_over(rng):
    cells = places(())
    measured = record(cells, rng.integers(0, 3, cells.n), rng)
    x, mass = mixed(cells, measured, 7)
    draws = chain(cells, measured, 30_000, rng)
    inside = draws[(draws <= 7).all(axis=1)]
    assert largest_z(cells, inside, x, mass) < FALSE_ALARM
    assert largest_z(cells, inside, *listed(cells, measured, (), (HYPERPRIOR.a,), (2.0,), 7)) > FALSE_ALARM


def blocks(rng, places=12):
    """Two tracts of small blocks by race and sex, every margin measured."""
    attributes = (Attribute("race", ("r0", "r1", "r2")), Attribute("sex", ("f", "m")))
    columns = [{}, {"tract": ["t0", "t1"] * (places // 2)}, {"block": [f"{k:02d}" for k in range(places)]}]
    cells = Cells(Tree.from_columns(["all", "tract", "block"], columns), attributes)
    kinds = ((), ("sex",), ("race",), ("race", "sex"))
    laws = {Margin(level, kind): GAUSSIAN("4") for level in cells.tree.levels for kind in kinds}
    return cells, laws, noisy(cells, rng.poisson(rng.gamma(0.7, 4, cells.n)), laws, rng)


def constraints_of(cells, laws, **more):
    return Constraints(cells, tuple(laws), **more)


@pytest.mark.parametrize(
    ("narrow", "pairs"),
    [((), 2), (("total",), 6), (("cells",), 2), (("cells", "total"), 2), (("unmeasured",), 6)],
)
def test_pairs_are_fewer_where_no_sum_of_cells_is_known_better_than_these(narrow, pairs, rng):
    cells, laws, _ = blocks(rng)
    for name, margin in (("total", Margin("block")), ("cells", cells.finest)):
        laws |= {margin: GAUSSIAN("1")} if name in narrow else {}
    if "unmeasured" in narrow:
        del laws[cells.finest]
    record = noisy(cells, np.ones(cells.n, np.int64), laws, rng)
    problem = ColumnProblem(constraints_of(cells, laws), record.headers, record.values)
    assert problem.moves([np.full((2, 50), 1)]).turns[0] == pairs


@pytest.mark.thorough
def test_full_chains_say_what_ran_and_repeat(rng):
    cells, laws, record = blocks(rng)
    told = []

    class Listener:
        def __call__(self, done, of):
            told.append((done, of))

        def stage(self, text):
            told.append(text)

    posterior = infer(record, spec=constraints_of(cells, laws), draws=1000, progress=Listener())
    assert posterior.method["method"] == "histogram-gibbs"
    stats = posterior.drawn.stats
    assert stats["tier"] == "chains"
    assert stats["passed"]
    assert stats["counts_that_fall_short"] <= 0.05 * stats["watched"]
    assert stats["moves_known_to_connect"]
    assert any(re.search("seconds? and .*GB predicted", text) for text in told if isinstance(text, str))
    assert (1000, 1000) in told
    assert "the prior 'hierarchical'" in posterior.promise
    assert "at least 90 %" in posterior.promise
    again = infer(record, spec=constraints_of(cells, laws), draws=1000)
    assert np.array_equal(posterior.draws, again.draws)
    assert margins(posterior)[-1] == cells.finest
    assert len(margins(posterior)) == len(laws)
    assert posterior.conflicts == ()


@pytest.mark.thorough
def test_an_approximate_posterior_says_so_and_is_held_against_chains_of_single_places(rng):
    cells, laws, record = blocks(rng)
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=constraints_of(cells, laws), draws=600)
    assert posterior.drawn.stats["tier"] == "approximate"
    assert "approximate" in posterior.drawn.kind
    assert "approximate" in posterior.promise
    assert "at least 90 %" not in posterior.promise
    assert "separate chains on 1 random places" in posterior.promise
    check = posterior.drawn.stats["check"]
    assert check["places"] == 1
    assert check["rms_difference_of_totals_in_sds"] < 0.6


@pytest.mark.thorough
@pytest.mark.parametrize(("each", "refused"), [(0, False), (1_000_000, True)])
def test_chains_in_which_rounding_leaves_out_steps_are_refused(each, refused, rng, monkeypatch):
    """Most steps that were left out."""
    cells, laws, record = blocks(rng)
    sweeps = histogram_walk.histogram_sweeps
    monkeypatch.setattr(histogram_walk, "histogram_sweeps", lambda *given: sweeps(*given) + each)
    chains_ = HistogramGibbs(tier="approximate")
    with pytest.raises(ConvergenceError, match="rounding errors prevented") if refused else nullcontext():
        infer(record, chains_, spec=constraints_of(cells, laws), draws=200)


@pytest.mark.thorough
def test_chains_that_do_not_pass_in_time_are_approximate_unless_full_ones_were_asked_for(rng, monkeypatch):
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(chain_driver, "MIN_EFFECTIVE_SIZE", 1e6)
    monkeypatch.setattr(histogram_gibbs, "MOST_THIN", 1)
    posterior = infer(record, spec=constraints_of(cells, laws), draws=400)
    assert posterior.drawn.stats["tier"] == "approximate"
    assert "4 Markov chains" in posterior.promise
    assert posterior.draws.reshape(-1, cells.n).shape == (400, cells.n)
    with pytest.raises(ConvergenceError, match="effective size"):
        infer(record, HistogramGibbs(tier="chains"), spec=constraints_of(cells, laws), draws=400)


class Clock:
    """A clock that a machine spends on others: every call of the chains' kernel takes so many seconds of it, from one on."""

    def __init__(self, monkeypatch, seconds, first=0):
        self.now, self.calls, moved = time.monotonic(), 0, histogram_walk.histogram_sweeps

        def slow(*args):
            self.calls += 1
            self.now += seconds * (self.calls > first)
            if self.now - self.began > 50:  # let whoever looks at the time see it
                time.sleep(0.005)
            return moved(*args)

        self.began = self.now
        monkeypatch.setattr(chains, "SECONDS_BETWEEN_INTERRUPT_CHECKS", 0.001)
        monkeypatch.setattr(histogram_walk, "histogram_sweeps", slow)
        for module in (deadline_of_run, histogram_walk):
            monkeypatch.setattr(
                module, "time", SimpleNamespace(**vars(time) | {"monotonic": lambda: self.now})
            )


@pytest.mark.thorough
@pytest.mark.parametrize("tier", ["auto", "approximate", "chains"])
@pytest.mark.parametrize("first", [0, 60])
def test_chains_that_time_cuts_short_are_a_weak_answer_unless_full_ones_were_asked_for(
    tier, first, rng, monkeypatch
):
    # Every call slow: the whole run is predicted not to fit. Late ones alone: time ends it on the way.
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(histogram_walk, "CELLS_AT_ONCE", cells.n)  # a sweep a call
    monkeypatch.setattr(histogram_walk, "MIN_TIMED_SECONDS", 0.0)
    clock = Clock(monkeypatch, 0.05 if first == 0 else 0.2, first)
    asked = {"spec": constraints_of(cells, laws), "draws": 1000, "minutes": 1}
    if tier == "chains":
        with pytest.raises(TrueupError, match="1 minutes"):
            infer(record, HistogramGibbs(tier="chains"), **asked)
        return
    posterior = infer(record, HistogramGibbs(tier=tier), **asked)
    made = posterior.draws.shape[0] * posterior.draws.shape[1]
    assert histogram_gibbs.FEWEST_DRAWS * 2 <= made < 1000
    assert posterior.drawn.stats["interrupted"]
    assert "Time ended them" in posterior.promise
    assert clock.now - clock.began < 66


def test_a_machine_too_slow_for_any_chains_is_refused_with_figures(rng, monkeypatch):
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(histogram_walk, "CELLS_AT_ONCE", cells.n)
    Clock(monkeypatch, 2.0)
    with pytest.raises(TrueupError, match=r"1 minutes"):
        infer(record, spec=constraints_of(cells, laws), minutes=1)


@pytest.mark.thorough
def test_a_processor_that_compiles_does_not_spend_the_time_of_chains(rng, monkeypatch):
    # Kernels are made ready by the first sweeps, which cost most of a minute where none are kept from before.
    cells, laws, record = blocks(rng)
    ready = HistogramWalk.run

    def slow(walk, count, thin, *rest, **more):
        drawn = ready(walk, count, thin, *rest, **more)
        if walk.sweeps == 1:
            begun = time.process_time()
            while time.process_time() - begun < 1.5:
                pass
        return drawn

    monkeypatch.setattr(HistogramWalk, "run", slow)
    monkeypatch.setattr(histogram_gibbs, "MAX_LENGTHENING_SECONDS", 1.0)
    posterior = infer(record, spec=constraints_of(cells, laws), draws=400)
    assert posterior.draws.reshape(-1, cells.n).shape == (400, cells.n)


def test_a_place_alone_conditions_on_what_was_measured_in_it(rng):
    cells, laws, record = blocks(rng)
    posterior = infer(record, spec=constraints_of(cells, laws), within="tract=t1", draws=400)
    assert posterior.cells.tree.sizes == (1, 6)
    assert posterior.method["within"] == "tract=t1"
    header = next(h for h in record.headers if h.margin == Margin("tract"))
    value = record.values[record.headers.index(header)][1]
    assert abs(posterior.summary("tract")["mean"][0] - value) < 12
    with pytest.raises(SpecError, match="no place 't9'"):
        infer(record, spec=constraints_of(cells, laws), within="tract=t9")
    with pytest.raises(SpecError, match="is not a place with others below it"):
        infer(record, spec=constraints_of(cells, laws), within="block=00")


def test_two_chains_take_at_most_100_bytes_a_cell():
    keys = [
        {},
        {"tract": [f"{k // 30:03d}" for k in range(3000)]},
        {"block": [f"{k:04d}" for k in range(3000)]},
    ]
    attributes = (Attribute("race", tuple("abcdefgh")), Attribute("sex", ("f", "m")))
    cells = Cells(Tree.from_columns(["all", "tract", "block"], keys), attributes)
    kinds = ((), ("race",), ("sex",), ("race", "sex"))
    headers = tuple(
        Measured("table", Margin(level, kind), GAUSSIAN("4")) for level in cells.tree.levels for kind in kinds
    )
    values = tuple(np.zeros(cells.size(h.margin), np.int64) for h in headers)
    problem = ColumnProblem(Constraints(cells, tuple(h.margin for h in headers)), headers, values)
    arrays = (*problem.state(np.zeros((3000, 16), np.int64), 1.0, 1.0), *problem.work())
    taken = 2 * sum(part.nbytes for part in arrays) + sum(v.nbytes for v in values)
    assert taken <= 100 * cells.n


def test_what_takes_too_long_is_refused_with_what_would_fit(rng, monkeypatch):
    cells, laws, record = blocks(rng)
    method, passed = HistogramGibbs(tier="chains"), replace(Deadline.of(1), ends=time.monotonic() - 1)
    state = method.prepare(constraints_of(cells, laws), record.headers)
    with pytest.raises(TrueupError, match=r"1 minutes.*(--within 'tract=t0'|infer one place)"):
        method.apply(state, record.flat, 1000, rng, lambda done, of: None, deadline=passed)
    monkeypatch.setattr(chain_driver, "available", lambda: 1e6)
    with pytest.raises(SpecError, match="GB are free"):
        infer(record, spec=constraints_of(cells, laws))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "exact", [Margin("all"), Margin("tract", ("race",)), Margin("block"), Margin("block", ("sex",))]
)
def test_invariants_hold_in_every_draw(exact, rng):
    cells, laws, _ = blocks(rng)
    truth = rng.poisson(rng.gamma(0.7, 4, cells.n))
    record = noisy(cells, truth, {**laws, exact: law_named("exact")()}, rng)
    rules = constraints_of(cells, [m for m in laws if m != exact], invariants=(exact,))
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=rules, draws=300)
    assert (cells.sum(posterior.draws, exact) == cells.sum(truth, exact)).all()
    assert len(np.unique(posterior.draws.reshape(-1, cells.n), axis=0)) > 200


@pytest.mark.thorough
def test_structural_zeros_and_lower_bounds_hold(rng):
    cells, laws, _ = blocks(rng)
    truth = rng.poisson(3.0, cells.shape)
    truth[:, 1, 0] = 0
    record = noisy(cells, truth.ravel(), laws, rng)
    least = Bound(Margin("block"), tuple(np.minimum(truth.sum(axis=(1, 2)), 9).tolist()))
    rules = constraints_of(cells, laws, zeros=({"race": "r1", "sex": "f"},), bounds=(least,))
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=rules, draws=300)
    assert (posterior.draws.reshape(-1, *cells.shape)[:, :, 1, 0] == 0).all()
    assert (cells.sum(posterior.draws, Margin("block")) >= np.array(least.lower)).all()


def test_chains_start_where_the_finest_cells_were_not_measured(rng):
    cells = places((1, 2))
    laws = {Margin("all", ("sex",)): GAUSSIAN("4"), Margin("block"): GAUSSIAN("4")}
    truth = rng.poisson(100.0, cells.n)
    measured = noisy(cells, truth, laws, rng)
    rules = Constraints(cells, tuple(laws))
    posterior = infer(measured, HistogramGibbs(tier="approximate"), spec=rules, draws=100)
    for margin in laws:
        means = cells.sum(posterior.draws, margin).mean(axis=(0, 1))
        assert np.abs(means - cells.sum(truth, margin)).max() < 15


@pytest.mark.thorough
@pytest.mark.parametrize("exact", [(), (Margin("tract", ("race",)),)])
def test_upper_bounds_hold_and_bind(exact, rng):
    """Places hold 9 at most where noise says more, whatever is exact above them."""
    cells, laws, _ = blocks(rng)
    truth = np.zeros(cells.shape, int)
    truth[:, 0, 0] = 9
    noises = laws | {margin: law_named("exact")() for margin in exact}
    record = noisy(cells, truth.ravel(), noises, rng)
    rules = constraints_of(
        cells,
        [m for m in laws if m not in exact],
        invariants=exact,
        bounds=(Bound(Margin("block"), None, 9),),
    )
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=rules, draws=300)
    totals = cells.sum(posterior.draws, Margin("block"))
    assert totals.max() == 9
    assert posterior.drawn.stats.get("doubt") is None
    assert all((cells.sum(posterior.draws, m) == cells.sum(truth.ravel(), m)).all() for m in exact)
    free = infer(record, HistogramGibbs(tier="approximate"), spec=replace(rules, bounds=()), draws=300)
    assert cells.sum(free.draws, Margin("block")).max() > 9


@pytest.mark.thorough
def test_an_interruption_ends_all_chains(rng):
    cells, laws, record = blocks(rng)

    def stop(done, of):
        raise KeyboardInterrupt

    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        infer(record, spec=constraints_of(cells, laws), draws=2000, progress=stop)
    assert time.perf_counter() - began < 60
    assert threading.active_count() < 10


@pytest.mark.thorough
@pytest.mark.parametrize("tier", ["approximate", pytest.param("chains", marks=pytest.mark.thorough)])
def test_a_run_that_is_stopped_goes_on_from_its_checkpoints_as_if_it_had_not_been(
    tier, rng, monkeypatch, tmp_path
):
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(histogram_gibbs, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(histogram_walk, "CELLS_AT_ONCE", 2 * cells.n)
    asked = count()
    monkeypatch.setattr(Checkpoint, "due", lambda self, chain: next(asked) % 10 == 0)
    monkeypatch.setattr(chains, "SECONDS_BETWEEN_INTERRUPT_CHECKS", 0.001)
    run = partial(infer, record, HistogramGibbs(tier=tier), spec=constraints_of(cells, laws))
    whole = run(draws=200)

    def stop(done, of):
        if 0.3 * of < done < of:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(draws=200, progress=stop, checkpoint=tmp_path / "chains")
    left = {path.name for path in (tmp_path / "chains").glob("*.npz")}
    assert len(left) > 4
    posterior = run(draws=200, checkpoint=tmp_path / "chains")
    assert np.array_equal(posterior.draws, whole.draws)
    same = ("sweeps", "smallest_ess", "concentrations", "directions_left_out")
    assert all(posterior.drawn.stats[name] == whole.drawn.stats[name] for name in same)
    with pytest.raises(BundleError, match="draws of another run"):
        run(draws=201, checkpoint=tmp_path / "chains")


@pytest.mark.parametrize("held", ['{"ru', "[]", '{"run": "another"}', None])
def test_a_folder_that_is_not_of_the_run_is_refused_by_name(held, tmp_path):
    name = "run.json" if held else "something"
    (tmp_path / name).write_text(held or "")
    with pytest.raises(BundleError, match="contains the saved draws of another run"):
        Checkpoint.of(tmp_path, "this")


def test_chains_that_are_made_longer_keep_what_they_drew(rng):
    cells, _, record = blocks(rng)
    walk = walked(cells, record, rng, None, ())
    first = walk.run(6, 2, lambda done, of: None)
    learnt = walk.concentrations
    walk.concentrations = learnt[:, 1::2]
    second = walk.run(6, 4, lambda done, of: None, before=first[:, 1::2])
    assert np.array_equal(second[:, :3], first[:, 1::2])
    assert np.array_equal(walk.concentrations[:, :3], learnt[:, 1::2])
    assert (second[:, 3:] != first[:, -1:]).any(axis=2).all()
    assert walk.sweeps == 24


def test_a_sweep_in_parts_is_the_same_sweep(rng, monkeypatch):
    cells, _, record = blocks(rng)
    monkeypatch.setattr(histogram_walk, "CELLS_AT_ONCE", 1)
    found = []
    for steps in (histogram_walk.STEPS_AT_ONCE, 20):
        monkeypatch.setattr(histogram_walk, "STEPS_AT_ONCE", steps)
        walk = walked(cells, record, np.random.default_rng(5), None, ())
        found.append(walk.run(6, 2, lambda done, of: None))
    assert len(walk._parts(0)) > 3
    np.testing.assert_array_equal(*found)


def test_a_sweep_in_two_stages_is_the_same_sweep_with_a_draw_between(rng):
    cells, _, record = blocks(rng)
    found = []
    for stages in (1, 2):
        walk = walked(cells, record, np.random.default_rng(5), None, ())
        walk.stages = stages
        found.append(walk.run(6 * stages, 1, lambda done, of: None))
    whole, halves = found
    np.testing.assert_array_equal(whole, halves[:, 1::2])
    assert (halves[:, ::2] != halves[:, 1::2]).any(axis=2).all()


@pytest.mark.thorough
def test_large_problems_keep_more_draws_a_sweep_and_say_their_sweeps(rng, monkeypatch):
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(histogram_gibbs, "FEW_STEPS", 1)
    steps = walked(cells, record, np.random.default_rng(5), None, ()).steps
    usual = histogram_gibbs.LARGE, histogram_gibbs.MIN_STEPS_WITH_FEWER_CHAINS
    for large, fewer, many, sweeps in (
        (*usual, 4, 250),
        (steps, steps + 1, 4, 175),
        (steps, steps, 2, 250),
        (steps // 2, steps, 2, 200),
    ):
        monkeypatch.setattr(histogram_gibbs, "LARGE", large)
        monkeypatch.setattr(histogram_gibbs, "MIN_STEPS_WITH_FEWER_CHAINS", fewer)
        posterior = infer(record, HistogramGibbs(), spec=constraints_of(cells, laws), draws=600)
        assert posterior.draws.shape == (many, 600 // many, cells.n)
        assert posterior.drawn.stats["sweeps"] == sweeps
        assert f"{sweeps:,} sweeps of all places" in posterior.promise


@pytest.mark.thorough
def test_chains_start_near_least_squares_where_the_default_release_finds_no_table(rng, monkeypatch):
    def found_none(*_):
        raise ConvergenceError("no table was found")

    monkeypatch.setattr(ColumnProblem, "start", found_none)
    cells, laws, record = blocks(rng)
    posterior = infer(record, HistogramGibbs(), spec=constraints_of(cells, laws), draws=200)
    assert posterior.draws.shape[2] == cells.n


@pytest.mark.thorough
def test_areas_off_the_hierarchy_have_intervals(rng):
    cells, laws, record = blocks(rng)
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=constraints_of(cells, laws), draws=200)
    keys = cells.tree.keys[-1]
    rows = [0, 7, 11]
    mapping = {"district": ["d"] * 3} | {name: np.asarray(column)[rows] for name, column in keys.items()}
    found = infer_areas(posterior, pandas.DataFrame(mapping), column="district", by=("sex",))
    draws = posterior.draws.reshape(-1, 12, 3, 2)[:, rows].sum(axis=(1, 2))
    assert found["sex"].tolist() == ["f", "m"]
    assert np.allclose(found["mean"], draws.mean(axis=0))
    assert (found["low"] <= found["mean"]).all()
    assert (found["mass"] >= 0.9).all()


@pytest.mark.thorough
def test_narrow_counts_are_described_as_wide_ones(rng):
    cells, laws, record = blocks(rng)
    posterior = infer(record, HistogramGibbs(tier="approximate"), spec=constraints_of(cells, laws), draws=300)
    assert posterior.draws.dtype == np.int16
    wide = replace(posterior, drawn=replace(posterior.drawn, draws=posterior.draws.astype(np.int64)))
    for margin in margins(posterior):
        one, other = posterior.summary(margin), wide.summary(margin)
        assert all(np.array_equal(one[name], other[name]) for name in one)
        low, high = interval_of_draws(wide.sums(margin).reshape(300, -1), 0.9)
        assert np.array_equal(one["low"], low)
        assert np.array_equal(one["high"], high)


def test_no_step_is_left_out_where_places_are_of_one_size(rng):
    """A large concentration asks of places that they grow and of their sum that it shrink: apart, sums lost all mass."""
    codes = {"area": [f"{k:02d}" for k in range(60)]}
    attributes = Attribute("race", tuple("abcdefgh")), Attribute("sex", ("f", "m"))
    cells = Cells(Tree.from_columns(["all", "area"], [{}, codes]), attributes)
    shares = np.where(rng.random(16) < 0.4, 0.0, rng.dirichlet(np.full(16, 0.5)))
    truth = np.stack([rng.multinomial(rng.poisson(40), shares / shares.sum()) for _ in range(60)])
    kinds = ((), ("race",), ("sex",), ("race", "sex"))
    laws = {
        Margin(level, kind): law_named("discrete-laplace")("1/8")
        for level in ("all", "area")
        for kind in kinds
    }
    walk = walked(cells, noisy(cells, truth.ravel(), laws, rng), rng, None, ())
    walk.run(1, 400, lambda done, of: None)
    assert walk.concentrations[0, 0, 0] > 10.0
    assert walk.left_out == [0]


def test_no_step_is_left_out_where_most_places_are_empty(rng):
    """With a small concentration, empty places seem likely to grow apart from their parent: without a cap steps lose all mass."""
    codes = [{}, {"area": list("abcd") * 12}, {"town": [f"{k:02d}" for k in range(48)]}]
    cells = Cells(Tree.from_columns(["all", "area", "town"], codes), (Attribute("sex", ("f", "m")),))
    truth = np.zeros((48, 2), np.int64)
    truth[:2] = 60, 20
    law = law_named("discrete-laplace")("1/8")
    laws = {Margin(level, kind): law for level in cells.tree.levels for kind in ((), ("sex",))}
    walk = walked(cells, noisy(cells, truth.ravel(), laws, rng), rng, (0.03, 3.0, 0.3), ())
    walk.run(1, 400, lambda done, of: None)
    assert walk.left_out == [0]


@pytest.mark.slow
def test_steps_left_out_after_the_first_run_are_not_held_against_it(rng, monkeypatch):
    """A run that is made longer in vain is given up, and so is its number of steps left out."""
    cells, laws, record = blocks(rng)
    monkeypatch.setattr(chain_driver, "MIN_EFFECTIVE_SIZE", 1e6)
    sweeps, taken = histogram_walk.histogram_sweeps, []

    def failing(*given):
        (_, count, _), (begin, end, _) = given[7:9]
        taken.append(count)
        return sweeps(*given) + 0.4 * (end - begin) * count

    monkeypatch.setattr(histogram_walk, "histogram_sweeps", failing)
    posterior = infer(record, spec=constraints_of(cells, laws), draws=400)
    assert posterior.drawn.stats["tier"] == "approximate"
    assert sum(taken) > 1.5 * posterior.drawn.stats["sweeps"] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("flat", [True, False])
def test_a_total_is_flat_within_the_bounds_of_places(flat, rng, monkeypatch):
    """Of a total measured as 60 +- 10 the posterior is that normal law, whatever most that twelve places hold."""
    cells = places((3, 4, 5))
    headers = (Measured("total", Margin("all"), GAUSSIAN("100")),)
    rules = constraints_of(cells, [Margin("all")], bounds=(Bound(Margin("block"), None, 9),))
    if not flat:
        monkeypatch.setattr(ColumnProblem, "_prior_of_total", (np.zeros(0), np.zeros(0)))
    walk = HistogramWalk.of(ColumnProblem(rules, headers, (np.array([60]),)), rng.spawn(2))
    walk.run(1, 300, lambda done, of: None)
    totals = walk.run(1500, 4, lambda done, of: None).sum(axis=2)
    assert (abs(totals.mean() - 60) < 2.5) == flat
    assert (abs(totals.std() - 10) < 1.5) or not flat
