"""Few draws, ratios without a denominator, impossible counts, bounded priors, values with fractions, independent parts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from tests.inferring.crossing import LAWS, PRIORS, brute_force, crossing, measured, table
from tests.inferring.problems import (
    family_constraints,
    family_measurements,
    laplace_tree,
    noisy,
    star,
    states,
    tree_constraints,
)
from tests.reference.lattice import p_value
from trueup.errors import InfeasibleError
from trueup.inferring import infer
from trueup.inferring.conflict import mean_noise
from trueup.inferring.inequalities import LinearInequalities
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.sdhc import PUBLISHED
from trueup.kernel.messages import tilting, upward
from trueup.model.cells import Attribute, Cells, Margin
from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.model.records.drawn import Drawn
from trueup.model.records.measurements import Measurements
from trueup.model.records.posterior import Posterior
from trueup.model.records.quantity import Ratio
from trueup.model.tree import Tree
from trueup.noise import DiscreteLaplace, law_named

FALSE_ALARM = 1e-6
EXACT = law_named("exact")()


@pytest.mark.parametrize("draws", [1, 4, 9])
def test_few_draws_are_too_few_to_judge(draws, rng):
    cells = table(2, 2)
    record = measured(cells, np.array([0, 3, 2, 6]), crossing(cells, LAWS["discrete-laplace"]), rng)
    known = Constraints(cells, tuple(h.margin for h in record.headers))
    posterior = infer(record, LatticeMoves(enumerate=0), spec=known, draws=draws)
    summary = posterior.summary()
    assert posterior.drawn.stats["smallest_ess"] >= 400  # of the run that they were taken from
    assert posterior.draws.shape[:2] == (4, -(-draws // 4))
    varies = np.ptp(posterior.draws, axis=(0, 1)) > 0
    assert np.isnan(summary["ess"][varies]).all()
    assert np.isnan(summary["r_hat"][varies]).all()
    assert np.isfinite(summary["mean"]).all()


@pytest.mark.parametrize("draws", [4, 9])
def test_few_draws_of_a_place_by_chain(draws, rng):
    cells, record = family_measurements(1, rng, law_named("gaussian")("400"))
    found = infer(record, LinearInequalities(least=2.0), spec=family_constraints(cells), draws=draws)
    assert found.drawn.stats["smallest_ess"] >= 400
    assert "converged" in found.drawn.kind
    assert found.draws.shape[:2] == (4, -(-draws // 4))


def counts_and_families(draws, independent):
    """Persons and families at two places, the second of which often has no family."""
    from trueup.model.cells import Attribute

    kinds = Attribute("count", ("persons", "families"), partition=False)
    cells = Cells(Tree.from_columns(["all", "place"], [{}, {"place": ["a", "b"]}]), (kinds,))
    return Posterior(
        cells,
        Drawn(draws, independent),
        {"method": "demo"},
        "",
        ratios=(Ratio("size", "persons", "families"),),
    )


def test_a_ratio_without_a_denominator_says_how_often(rng):
    persons, some, perhaps = (
        np.full((1, 4000), 6),
        rng.integers(1, 4, (1, 4000)),
        rng.integers(0, 4, (1, 4000)),
    )
    draws = np.stack([persons, some, persons, perhaps], axis=-1)
    columns = counts_and_families(draws, True).ratio_summary()
    zero = draws[0, :, 3] == 0
    assert columns["denominator_zero"].tolist() == [0.0, pytest.approx(zero.mean())]
    assert columns["mean"][1] == pytest.approx((6 / draws[0, ~zero, 3]).mean())
    assert columns["ess"][1] == (~zero).sum()
    assert np.isfinite([columns[name] for name in ("mean", "sd", "median", "low", "high", "mass")]).all()
    for rows in range(4):
        first = counts_and_families(draws, True).ratio_summary(rows=rows)
        assert all(
            np.array_equal(first[name], column[:rows], equal_nan=column.dtype.kind == "f")
            for name, column in columns.items()
        )
    chained = counts_and_families(draws.reshape(4, 1000, 4), False).ratio_summary()
    assert np.isfinite([chained[name] for name in ("mean", "ess", "r_hat")]).all()
    none = counts_and_families(draws * [1, 1, 1, 0], True)
    assert none.ratio_summary()["denominator_zero"][1] == 1
    assert np.isnan(none.ratio_summary()["mean"][1])
    quantity = none.ratio("'b, count=persons'", "'b, count=families'")
    assert quantity.undefined == 1
    assert np.isnan(
        [quantity.mean, quantity.sd, quantity.median, *quantity.interval(), quantity.probability(below=3)]
    ).all()


@pytest.mark.parametrize("prior", ["bounded", "masses"])
def test_bounded_priors_need_no_invariants(prior, rng):
    cells = table(2, 2)
    record = measured(cells, np.array([0, 3, 2, 3]), {cells.finest: LAWS["discrete-laplace"]}, rng)
    constraints = Constraints(cells, (cells.finest,))
    posterior = infer(record, LatticeMoves(prior=PRIORS[prior]), spec=constraints, draws=20_000)
    tables, masses = brute_force(constraints, record, PRIORS[prior], 4)
    assert posterior.drawn.stats["independent_parts"] == 4
    assert p_value(posterior.draws[0], tables, masses) > FALSE_ALARM
    total = posterior.drawn.marginals.get(Margin("all"))
    assert posterior.summary()["mean"] == pytest.approx(masses @ tables)
    assert total is None or total.mean == pytest.approx(masses @ tables.sum(axis=1))


def test_marginals_of_sums_of_independent_parts_are_exact(rng):
    """A total that is measured only with the parts: pieces are joined by convolution."""
    cells = table(3, places=4)
    invariants = (Margin("place"),)
    record = measured(
        cells, rng.poisson(2, cells.n), {cells.finest: LAWS["discrete-laplace"]}, rng, invariants
    )
    constraints = Constraints(cells, (cells.finest,), invariants=invariants)
    posterior = infer(record, LatticeMoves(), spec=constraints, draws=50_000)
    assert posterior.drawn.stats["independent_parts"] == 4
    by_value = posterior.sums(Margin("all", ("a0",)))[0]
    place = posterior.drawn.marginals[Margin("place")]
    assert place.mean == pytest.approx(record.values[1])
    assert place.sd == pytest.approx(np.zeros(4), abs=1e-9)
    exact = posterior.drawn.marginals[cells.finest].mean
    means, error = by_value.mean(axis=0), by_value.std(axis=0) / np.sqrt(50_000)
    assert np.all(np.abs(means - cells.sum(exact, Margin("all", ("a0",)))) <= 5.5 * error + 1e-12)


IMPOSSIBLE = {
    "bounded": ({"name": "bounded", "upper": 2}, np.array([0, 0, 0]), "1", 12),
    "masses": ({"name": "masses", "masses": [1, 1]}, np.array([0, 0, 0]), "1", 12),
    "flat-total": ({"name": "flat-total", "upper": 3}, np.array([0, 0, 0]), "1", 12),
    "noise below zero": ("flat", np.array([-5, 0, 0]), None, None),
    "noise and total": ("flat", np.array([0, 0, 0]), None, 9),
    "noise and prior": ({"name": "masses", "masses": [0, 0, 1]}, np.array([9, 0, 0]), None, None),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
@pytest.mark.parametrize("method", [TreeExact, LatticeMoves])
def test_what_cannot_be_is_infeasible_by_every_method(case, method):
    prior, values, epsilon, total = IMPOSSIBLE[case]
    cells = star(3)
    law = law_named("discrete-laplace")(epsilon) if epsilon else law_named("truncated-geometric")("1", 1)
    headers, parts = [Measured("q", Margin("part"), law)], [values]
    invariants = ()
    if total is not None:
        headers, parts = [*headers, Measured("i", Margin("all"), EXACT)], [*parts, np.array([total])]
        invariants = (Margin("all"),)
    record = Measurements(cells, tuple(headers), tuple(parts), PUBLISHED)
    with pytest.raises(InfeasibleError):
        infer(record, method(prior=prior), spec=Constraints(cells, (Margin("part"),), invariants=invariants))


def test_counts_that_are_all_fixed_have_one_table(rng):
    cells = star(3)
    record = measured(cells, np.array([1, 2, 3]), {}, rng, (Margin("part"),))
    posterior = infer(
        record, LatticeMoves(), spec=Constraints(cells, (), invariants=(Margin("part"),)), draws=5
    )
    assert (posterior.draws == [1, 2, 3]).all()


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_values_between_whole_counts_are_read_where_they_are(name, rng):
    cells = star(2)
    law = LAWS[name]
    record = noisy(cells, np.array([3, 6]), {Margin("all"): law, Margin("part"): law}, rng)
    tables, masses = brute_force(tree_constraints(cells), record, "flat", 60)
    exact = infer(record, TreeExact(prior="flat"), spec=tree_constraints(cells)).summary()
    assert exact["mean"] == pytest.approx(masses @ tables, abs=1e-6)
    truncated = Measurements(cells, record.headers, tuple(np.trunc(v) for v in record.values), PUBLISHED)
    cut = infer(truncated, TreeExact(prior="flat"), spec=tree_constraints(cells)).summary()
    assert np.abs(cut["mean"] - masses @ tables).max() > 1e-3


def test_the_sentence_names_the_prior(rng):
    cells = star(3)
    record = noisy(cells, np.array([3, 4, 5]), laplace_tree(cells), rng)
    for prior, says in (
        ("flat", "the prior 'flat', the"),
        ({"name": "bounded", "upper": 50}, "'bounded' (upper = 50), the"),
    ):
        assert says in infer(record, TreeExact(prior=prior), spec=tree_constraints(cells)).promise


@pytest.mark.thorough
def test_compiled_code_returns_to_python_between_pieces(rng, monkeypatch):
    """An interruption is heard between pieces: here the third one raises it."""
    cells = states([50] * 4)
    record = noisy(cells, rng.poisson(3, cells.n), laplace_tree(cells, "1/2"), rng)
    whole = infer(record, TreeExact(), spec=tree_constraints(cells), draws=10)
    monkeypatch.setattr(tilting, "ENTRIES_A_CALL", 1 << 12)
    monkeypatch.setattr(upward, "NODES_A_CALL", 16)
    pieces = infer(record, TreeExact(), spec=tree_constraints(cells), draws=10)
    assert np.array_equal(whole.draws, pieces.draws)
    evaluate, calls = tilting._leaves, []

    def interrupted(*given):
        calls.append(given[-2:])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(*given)

    monkeypatch.setattr(tilting, "_leaves", interrupted)
    with pytest.raises(KeyboardInterrupt):
        infer(record, TreeExact(), spec=tree_constraints(cells), draws=10)
    assert len(calls) == 3


def test_sums_between_the_holes_of_a_prior_are_refused_and_no_others(rng):
    """Three parts under two places under a total: by enumeration of all counts that the prior allows."""
    cells = states([2, 3])
    laws = {**laplace_tree(cells, "1/2"), Margin("nation"): EXACT}
    refused = 0
    for _ in range(60):
        allowed = np.flatnonzero(rng.random(9) < 0.3)
        allowed = allowed if allowed.size else np.array([4])
        truth = np.maximum(rng.choice(allowed, cells.n) + rng.integers(-1, 2) * (np.arange(cells.n) == 0), 0)
        record = noisy(cells, truth, laws, rng)
        possible = truth.sum() in {sum(c) for c in combinations_with_replacement(allowed.tolist(), cells.n)}
        prior = {"name": "masses", "masses": np.isin(np.arange(9), allowed).astype(float).tolist()}
        if possible:
            infer(record, TreeExact(prior=prior), spec=tree_constraints(cells), draws=5)
            continue
        refused += 1
        with pytest.raises(InfeasibleError, match=r"contradict each other|'masses' allows no counts"):
            infer(record, TreeExact(prior=prior), spec=tree_constraints(cells), draws=5)
    assert 3 < refused < 57


@pytest.mark.parametrize("law", ["lattice-laplace", "discrete-laplace"])
def test_noise_on_a_lattice_is_not_held_against_the_law_of_one_count(law, rng):
    """What is drawn is that law given that no invariant changes: nothing is said of how far it may be from the prior."""
    cells = star(40)
    record = noisy(
        cells, np.full(40, 3), {Margin("part"): LAWS["discrete-laplace"], Margin("all"): EXACT}, rng
    )
    headers = tuple(h if h.exact else replace(h, law=LAWS[law]) for h in record.headers)
    measured_again = Measurements(cells, headers, record.values, PUBLISHED)
    given = {"name": "poisson", "mean": 300}
    posterior = infer(measured_again, TreeExact(prior=given), spec=tree_constraints(cells), draws=20)
    assert (posterior.conflicts is None) == (law == "lattice-laplace")
    assert ("could not be checked" in posterior.promise) == (law == "lattice-laplace")


@pytest.mark.parametrize(("name", "parameter"), [("discrete-laplace", "1/3"), ("discrete-gaussian", "9")])
@pytest.mark.parametrize("ranges", [((-np.inf, 4.0),), ((2.0, 5.0),), ((-3.0, -1.0), (4.0, 6.0))])
def test_mean_noise_of_hidden_values_is_the_sum_over_all_noise(name, parameter, ranges):
    law, noise, counts = law_named(name)(parameter), np.arange(-400, 401), np.array([0, 3, 8, 20])
    mass = np.exp(law.logpmf(noise))
    seen = counts[:, None] + noise
    inside = np.any([(low <= seen) & (seen <= high) for low, high in ranges], axis=0) * mass
    assert mean_noise(law, ranges, counts) == pytest.approx((inside * noise).sum(axis=1) / inside.sum(axis=1))


@pytest.mark.parametrize(
    ("values", "prior", "said"), [(6, "flat", True), (2, "flat", False), (6, "poisson", False)]
)
def test_sums_of_many_counts_under_a_flat_prior_come_with_a_doubt(values, prior, said):
    names = tuple(map(str, range(values)))
    cells = Cells(Tree.from_columns(["all"], [{}]), (Attribute("a", names), Attribute("b", names)))
    margins = (Margin("all", ("a", "b")), Margin("all", ("a",)))
    headers = [Measured(str(m), m, DiscreteLaplace(Fraction(1, 2))) for m in margins]
    given = {"name": prior, "mean": 3} if prior == "poisson" else prior
    doubt = LatticeMoves(prior=given).doubt(Constraints(cells, margins), headers)
    assert (doubt is not None and "sums of many small counts too large" in doubt) == said
