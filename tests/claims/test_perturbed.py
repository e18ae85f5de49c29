"""What is said of perturbed tables, broken on purpose: a wrong law, a total counted twice, a misprint, a table that is biased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.inferring.perturbed_problems import crossing_places, published_tables
from tests.inferring.problems import star, states
from trueup.errors import InfeasibleError, PrivacyError
from trueup.inferring import METHODS, infer, inference_misfit
from trueup.inferring.conflict import inconsistencies
from trueup.inferring.contradictions import contradicting_values
from trueup.inferring.method import VALUES_A_CLASS
from trueup.inferring.tree_exact import TreeExact
from trueup.model.cells import Margin
from trueup.model.constraints import Constraints
from trueup.model.guarantee import NO_GUARANTEE
from trueup.model.header import Measured
from trueup.model.prior import FLAT, Estimated
from trueup.model.records.measurements import Measurements
from trueup.noise.perturbed import CellKey, RandomRounding, Rounded

KEY = CellKey(4, "2")


def relabelled(measured, law):
    """The same values, said to be of another law."""
    return replace(measured, headers=tuple(replace(h, law=law) for h in measured.headers))


def held(posterior, cells, counts, margin, among=slice(None)):
    """How many 90 % intervals hold the truth, less what they claim, in standard errors."""
    exact, truth = posterior.drawn.marginals[margin], cells.sum(counts, margin)
    low, high = exact.quantile(0.05), exact.quantile(0.95)
    claim = (exact.cdf(high) - exact.cdf(low - 1))[among]
    hit = ((low <= truth) & (truth <= high))[among]
    return (hit.sum() - claim.sum()) / np.sqrt((claim * (1 - claim)).sum())


def skewed(rng, cells):
    """Counts as places have them: many zeros, some large ones."""
    return rng.poisson(rng.gamma(0.5, 12, cells.n))


@pytest.mark.thorough
def test_intervals_hold_what_they_claim_and_of_another_law_they_do_not(rng):
    cells = star(2000)
    counts = skewed(rng, cells)
    measured, constraints = published_tables(cells, counts, RandomRounding(5), rng)
    right = infer(measured, spec=constraints, draws=1)
    assert abs(held(right, cells, counts, cells.finest)) < 5
    wrong = infer(relabelled(measured, Rounded(5)), TreeExact(prior=Estimated()), spec=constraints, draws=1)
    assert held(wrong, cells, counts, cells.finest) < -20


@pytest.mark.slow
def test_a_total_counted_twice_is_held_less_often_than_it_says(rng, monkeypatch):
    """Of places with one part that is not empty, whose totals have the part's key."""
    cells = states((4,) * 1500)
    counts = np.zeros((1500, 4), np.int64)
    counts[np.arange(1500), rng.integers(0, 4, 1500)] = rng.poisson(8, 1500)
    counts = counts.ravel()
    measured, constraints = published_tables(cells, counts, KEY, rng)
    state = Margin(cells.tree.levels[1])
    once = infer(measured, spec=constraints, draws=1)
    assert once.drawn.stats["repeated_values"] > 1200
    assert held(once, cells, counts, state) > -5
    monkeypatch.setattr("trueup.inferring.measured_once", lambda m: (m, 0))
    twice = infer(measured, spec=constraints, draws=1)
    assert held(twice, cells, counts, state) < -10


def test_a_misprint_contradicts_and_any_value_of_the_named_set_less_does_not():
    cells = states((2, 2))
    margins = [Margin(level) for level in cells.tree.levels]
    values = [[30], [9, 21], [3, 6, 9, 12]]
    law = RandomRounding(3)

    def record(some):
        headers = tuple(Measured("t", m, law) for m in margins)
        return Measurements(cells, headers, tuple(np.array(v) for v in some), NO_GUARANTEE)

    constraints = Constraints(cells, tuple(margins))
    assert contradicting_values(record(values), constraints) is None
    values[1][0] = 90
    error = contradicting_values(record(values), constraints)
    assert isinstance(error, InfeasibleError)
    assert "these 2 published values" in str(error)
    values[1][0] = 9
    assert contradicting_values(record(values), constraints) is None


def test_inconsistency_that_the_law_explains_and_that_of_a_wider_one(rng):
    cells = states((5,) * 600)
    counts = rng.poisson(9, cells.n)
    wide, constraints = published_tables(cells, counts, CellKey(6, "9"), rng)
    right = infer(wide, TreeExact(prior=FLAT), spec=constraints, draws=1)
    found = inconsistencies(wide, right)[-1]
    assert found.mean_square == pytest.approx(found.by_law, rel=0.35)
    said = inconsistencies(relabelled(wide, CellKey(6, "2")), right)[-1]
    assert said.mean_square > 3 * said.by_law


def moments(rows):
    """Largest bias, and variances, of a table of transitions."""
    changes = np.arange(rows.shape[1]) - rows.shape[1] // 2
    return np.abs(rows @ changes).max(), rows @ changes**2


@pytest.mark.parametrize(
    "law", [CellKey(5, "3", 3), CellKey(3, "1"), CellKey(4, "2", monotone=True)], ids=str
)
def test_transition_tables_have_their_moments_and_a_table_that_is_off_by_a_billionth_has_not(law):
    bias, variances = moments(law.rows)
    met = [x for x in range(1, len(law.rows)) if x not in law.other_variances]
    target = float(law.change_variance)
    assert bias < 1e-12
    assert np.abs(variances[met] - target).max() < 1e-12
    off = law.rows.copy()
    off[-1, 0] += 1e-9
    off[-1, -2] -= 1e-9
    bias, variances = moments(off)
    assert bias > 1e-12
    assert np.abs(variances[met] - target).max() > 1e-12


def test_the_prior_is_estimated_from_enough_values_and_the_record_says_what_was_done(rng):
    for n, name in ((VALUES_A_CLASS, "estimated"), (VALUES_A_CLASS - 1, "flat")):
        cells = star(n)
        measured, constraints = published_tables(cells, skewed(rng, cells), RandomRounding(3), rng)
        posterior = infer(measured, spec=constraints, draws=1)
        assert dict(posterior.method["prior"])["name"] == name
        assert ("estimated from the published values" in posterior.promise) == (name == "estimated")
        assert ("contained .793" in posterior.promise) == (name == "flat")
    few = infer(measured, TreeExact(prior=Estimated()), spec=constraints, draws=1)
    assert "estimated from few published values" in few.promise
    measured, constraints = published_tables(cells, skewed(rng, cells), CellKey(2, "1"), rng)
    keyed = infer(measured, spec=constraints, draws=1).promise
    assert "flat prior" in keyed
    assert "rounded" not in keyed  # the example is of another law


@pytest.mark.slow
def test_intervals_from_few_values_hold_less_than_they_claim(rng):
    """What the record says of an estimate from few values is so: 1.5 points and more below the claim at ten places."""
    cells, missed, claimed = star(10), [], []
    for _ in range(400):
        counts = rng.poisson(rng.gamma(0.8, 4, 10))
        measured, constraints = published_tables(cells, counts, RandomRounding(5), rng)
        exact = infer(measured, TreeExact(prior=Estimated()), spec=constraints, draws=1).drawn.marginals[
            cells.finest
        ]
        low, high = exact.quantile(0.05), exact.quantile(0.95)
        missed.append(((low > counts) | (counts > high)).mean())
        claimed.append(1 - (exact.cdf(high) - exact.cdf(low - 1)).mean())
    assert np.mean(missed) > np.mean(claimed)


def test_no_guarantee_is_claimed_and_none_can_be_priced(rng):
    cells = star(60)
    measured, constraints = published_tables(cells, skewed(rng, cells), KEY, rng)
    posterior = infer(measured, spec=constraints, draws=1)
    assert measured.guarantee is NO_GUARANTEE
    assert "No formal guarantee" in measured.headers[0].law.sentence()
    assert "differential" not in posterior.promise.lower()
    with pytest.raises(PrivacyError):
        measured.guarantee.price("add-remove")


@pytest.mark.parametrize("law", [KEY, RandomRounding(3), Rounded(5)], ids=str)
def test_no_method_takes_a_perturbation_for_noise_of_its_variance(law, rng):
    """Of crossing tables of several places, for which noisy values have a method of their own, too."""
    cells, margins = crossing_places(60)
    measured, constraints = published_tables(cells, skewed(rng, cells), law, rng, margins)
    taken = [kind.name for kind in METHODS if inference_misfit(kind(), constraints, measured) is None]
    assert taken == ["lattice-moves"]
