"""What `infer` says of its draws, broken on purpose: a part missing, a stuck chain, a truncated value, a wrong prior."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.inferring.crossing import measured, table
from tests.inferring.problems import laplace_tree, noisy, star, states, tree_constraints
from tests.reference.lattice import p_value
from trueup.errors import ConvergenceError, DataError
from trueup.inferring import conflict, infer
from trueup.inferring import walk as walk_module
from trueup.inferring.components import components
from trueup.inferring.connect import Joined
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.without_chains import weigh
from trueup.io.bundle.posterior import write_posterior
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.statistics.diagnostics import diagnose
from trueup.layouts.linear import LinearProblem
from trueup.layouts.rows import RowProblem
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.prior import FLAT
from trueup.model.records.measurements import Measurements
from trueup.noise import law_named
from trueup.reporting.pages.posterior import posterior_facts, reading_section

FALSE_ALARM = 1e-6
TWO_WAY = (("a0", "a1"), ("a0", "a2"), ("a1", "a2"))


def two_places(seed, places=2, mean=1.0):
    """Tables of 3 x 3 x 3 at two places; all two-way margins of each are fixed, each cell has wide noise."""
    cells = table(3, 3, 3, places=places)
    level = cells.tree.levels[-1]
    invariants = tuple(Margin(level, pair) for pair in TWO_WAY)
    rng = np.random.default_rng(seed)
    law = law_named("discrete-laplace")("1/4")
    record = measured(cells, rng.poisson(mean, cells.n), {cells.finest: law}, rng, invariants)
    return Constraints(cells, (cells.finest,), invariants=invariants), record


def enumerated(constraints, record):
    """All tables of each place with their masses."""
    problem = RowProblem.of(LinearProblem(constraints, record.headers), record.flat, FLAT)
    parts = components(problem)
    weighed = [weigh(part, 20_000) for part in parts]
    assert len(parts) == constraints.cells.shape[0]
    return [one for one in weighed if one is not None]


@pytest.mark.parametrize("seed", range(14))
def test_no_part_of_the_posterior_is_missing_where_draws_are_exact(seed):
    """Each place is listed on its own, though the product of both has too many tables."""
    constraints, record = two_places(seed)
    posterior = infer(record, spec=constraints, draws=4000)
    weighed = enumerated(constraints, record)
    assert posterior.drawn.kind == "independent draws"
    for one in weighed:
        drawn = posterior.draws[0][:, one.cells]
        assert p_value(drawn, one.tables, one.masses) > FALSE_ALARM


def chains_alone(seed):
    """Chains on one place, though its tables could be listed; and all its tables with their masses."""
    constraints, record = two_places(seed, places=1, mean=0.7)
    return infer(record, LatticeMoves(enumerate=0), spec=constraints, draws=1000), enumerated(
        constraints, record
    )[0]


def leave_a_cell_alone(monkeypatch, seed, *, claimed):
    """Moves that never touch one cell, from one start: the posterior's part with other counts there is out of reach."""
    (tables,) = enumerated(*two_places(seed, places=1, mean=0.7))
    cell = int(np.argmax(tables.masses @ tables.tables**2 - (tables.masses @ tables.tables) ** 2))
    honest_join, honest_starts = walk_module.join, walk_module.starts_apart

    def joined(*given):
        kept = [
            (cells, change)
            for cells, change in honest_join(*given).vectors
            if tables.cells[cell] not in cells
        ]
        return Joined(kept, [], claimed, [])

    def one_start(*given):
        return [honest_starts(*given)[0].copy() for _ in given[-2]]

    monkeypatch.setattr(walk_module, "join", joined)
    monkeypatch.setattr(walk_module, "starts_apart", one_start)
    return cell


def missing(posterior, weighed, cell):
    """Posterior mass of the tables whose count in a cell no draw has."""
    seen = np.unique(posterior.draws[..., weighed.cells[cell]])
    return float(weighed.masses[~np.isin(weighed.tables[:, cell], seen)].sum())


SOME = [1, 6]
SEEDS = [pytest.param(s, marks=() if s in SOME else pytest.mark.slow) for s in range(14)]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_chains_without_proof_never_say_that_they_converged(seed, monkeypatch, tmp_path):
    leave_a_cell_alone(monkeypatch, seed, claimed=False)
    try:
        posterior, _ = chains_alone(seed)
    except ConvergenceError:  # refused: nothing is said; the seeds in SOME are not
        assert seed not in SOME
        return
    assert "converged" not in posterior.drawn.kind + posterior.promise
    assert "if the Markov chains reached every possible table" in posterior.promise
    write_posterior(tmp_path / "out", posterior, draws=False)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "not known" in manifest["draws"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SOME)
def test_a_false_proof_is_a_false_statement(seed, monkeypatch):
    """Diagnostics see nothing of a missing part: with a false proof, chains that lack one are said to have converged."""
    cell = leave_a_cell_alone(monkeypatch, seed, claimed=True)
    posterior, weighed = chains_alone(seed)
    assert "converged" in posterior.drawn.kind
    assert missing(posterior, weighed, cell) > 0.1


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
def test_chains_with_proof_miss_nothing(seed):
    posterior, weighed = chains_alone(seed)
    # One table alone: chains that never move are not said to have converged.
    assert ("converged" in posterior.drawn.kind) == (len(weighed.tables) > 1)
    table = posterior.summary()
    exact = np.zeros(posterior.cells.n)
    exact[weighed.cells] = weighed.masses @ weighed.tables
    moving = weighed.cells
    assert np.all(np.abs(table["mean"] - exact)[moving] <= 5.5 * table["mcse"][moving] + 0.02)


def test_a_stuck_chain_is_seen(rng):
    chains = rng.normal(size=(4, 500, 1))
    assert diagnose(chains)[0].max() < 1.02
    stuck = chains.copy()
    stuck[2] = stuck[2, 0]
    r_hat, ess = diagnose(stuck)
    assert r_hat.max() > 1.05 or ess.min() < 400
    apart = np.repeat(chains[:, :1], 500, axis=1)
    r_hat, ess = diagnose(apart)
    assert r_hat.max() > 10
    assert ess.min() < 20


def test_chains_that_never_move_have_not_converged(rng, monkeypatch):
    """All at one table: no diagnostic sees it, so what was never seen to move is not said to have converged."""
    cells = table(3, 3)
    invariants = (Margin("all", ("a0",)), Margin("all", ("a1",)))
    record = measured(
        cells, np.full(9, 5), {cells.finest: law_named("discrete-laplace")("1/4")}, rng, invariants
    )
    constraints = Constraints(cells, (cells.finest,), invariants=invariants)
    assert "converged" in infer(record, LatticeMoves(enumerate=0), spec=constraints).drawn.kind

    def still(rng, rows, moves, box, tuning, x, count, thin):
        return np.tile(np.full(9, 5), (count, 1)), np.ones((3, tuning.chances.size))

    monkeypatch.setattr(walk_module, "metropolis_walk", still)
    stuck = infer(record, LatticeMoves(enumerate=0), spec=constraints)
    assert "converged" not in stuck.drawn.kind
    assert not stuck.drawn.stats["moves_known_to_connect"]


@pytest.mark.parametrize("method", [TreeExact(), LatticeMoves()])
def test_a_fraction_is_never_truncated(method, rng):
    cells = star(3)
    record = noisy(cells, np.array([3, 4, 5]), laplace_tree(cells), rng)
    whole = infer(record, method, spec=tree_constraints(cells)).summary()["mean"]
    assert np.isfinite(whole).all()
    values = (record.values[0] + 0.7, record.values[1].astype(float))
    with pytest.raises(DataError, match=r"'all' is not whole.*discrete-laplace"):
        infer(Measurements(cells, record.headers, values, PUBLISHED), method, spec=tree_constraints(cells))


def sparse(seed=0):
    """A nation, 20 regions and 1,000 blocks, half of them empty."""
    rng = np.random.default_rng(seed)
    cells = states([50] * 20)
    truth = rng.poisson(rng.gamma(0.4, 8, cells.n)) * (rng.random(cells.n) < 0.7)
    epsilon = dict(zip(cells.tree.levels, ("1/10", "1/5", "7/10")))
    laws = {Margin(level): law_named("discrete-laplace")(e) for level, e in epsilon.items()}
    return tree_constraints(cells), noisy(cells, truth, laws, rng), truth


def test_a_prior_that_the_measurements_contradict_promises_nothing():
    """Flat on a thousand sparse leaves: intervals of totals that miss the truth, and a page that no longer promises them."""
    constraints, record, truth = sparse()
    posterior = infer(record, TreeExact(prior="flat"), spec=constraints, draws=200)
    nation = posterior.summary(Margin("nation"))
    assert not nation["low"][0] <= truth.sum() <= nation["high"][0]
    assert posterior.conflicts
    assert any(one.margin == "nation" for one in posterior.conflicts)
    assert "not known" in posterior.promise
    assert "at least 90 %" not in posterior.promise
    reading = str(reading_section(posterior, perturbed=False))
    assert "contradict" in reading
    assert "at least 90 %" not in reading + str(posterior_facts(posterior))


@pytest.mark.slow
def test_the_flat_prior_on_sparse_counts_is_contradicted_in_every_run_and_the_default_in_none():
    """Were one run in five not flagged, all 100 would be with probability 2e-10; the default errs in 1 of 1,000 at most where
    it is true, and is here held to none of 100 though it is not.
    """
    for seed in range(100):
        constraints, record, _ = sparse(seed)
        flat = infer(record, TreeExact(prior="flat"), spec=constraints, draws=1)
        assert any(one.margin == "nation" for one in flat.conflicts or ()), seed
        assert infer(record, spec=constraints, draws=1).conflicts == (), seed


def test_a_prior_that_made_the_truth_is_not_contradicted(rng):
    cells = states([5] * 4)
    for _ in range(20):
        record = noisy(cells, rng.poisson(3, cells.n), laplace_tree(cells, "1/2"), rng)
        posterior = infer(
            record, TreeExact(prior={"name": "poisson", "mean": 3}), spec=tree_constraints(cells), draws=20
        )
        assert posterior.conflicts == ()
        assert "Under the prior 'poisson' (mean = 3), the interval" in posterior.promise
        assert "at least 90 %" in posterior.promise


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("discrete-laplace", "1/5"),
        ("discrete-laplace", "1/50"),  # wide laws are tabulated in steps of several counts
        ("discrete-laplace", "1/3001"),
        ("discrete-gaussian", "50"),
        ("discrete-gaussian", "12345"),
        ("laplace", "5"),
        ("gaussian", "50"),
    ],
)
def test_the_bound_on_residuals_is_one_and_no_idle_one(name, parameter, rng):
    """Noise itself is the least favourable residual: bounds hold for it, and within a factor where it is far out."""
    law = law_named(name)(parameter)
    noise = law.quantile(rng.random((20_000, 5)))
    bounds = np.array([list(conflict.log_bounds(law, row).values()) for row in noise[:2000]])
    for level in (0.1, 0.01):
        assert ((bounds < np.log(level)).mean(axis=0) <= level + 5 * np.sqrt(level / len(bounds))).all()
    far = np.array([12 * np.sqrt(law.variance)])
    assert conflict.log_bounds(law, far)["largest"] < -10
