"""Laws of what others publish: moments, bounds, tables of maximum entropy, and the keys that choose."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chisquare

from tests.parameters import one_in
from trueup.errors import PrivacyError, SpecError
from trueup.noise import law_named
from trueup.noise.law import Sensitivity
from trueup.noise.perturbed import (
    PERTURBATIONS,
    READ,
    CellKey,
    CountInterval,
    RandomRounding,
    Rounded,
    Suppressed,
)
from trueup.noise.perturbed.cell_key import maximum_entropy, rising_entropy

LAWS = (
    RandomRounding(3),
    RandomRounding(10),
    RandomRounding(3, below=3),
    RandomRounding(5, below=10),
    CellKey(2, "1"),
    CellKey(5, "3", 3),
    CellKey(5, "3", 3, monotone=True),
    CellKey(transitions=[{0: 1}, {-1: 0.25, 0: 0.5, 1: 0.25}, {-2: 0.5, 2: 0.5}], repeat=2),
    Rounded(3),
    Rounded(4, "even"),
    Rounded(10, "either"),
    Suppressed(10),
    Suppressed(3, 0),
)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_masses_sum_to_one_and_bounds_are_where_mass_is(law):
    x, y = np.arange(40), np.arange(-1, 80)
    mass = np.exp(law.log_mass(y[:, None], x))
    assert np.abs(mass.sum(axis=0) - 1).max() < 1e-14
    low, high = law.bounds(y)
    for value, row, first, last in zip(y, mass, low, high):
        held = np.flatnonzero(row)
        if value <= 25 and held.size:
            assert (held[0], held[-1]) == (first, last)
        assert held.size or first > last or value > 25


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_values_of_one_kind_have_the_same_table_shifted(law):
    kinds = law.kinds(np.arange(80))
    for value, kind in enumerate(kinds.tolist()):
        like = int(np.argmax(kinds == kind))
        low, table = law.table(like)
        assert (low + value - like, table.tolist()) == (law.table(value)[0], law.table(value)[1].tolist())
    assert len(set(kinds)) < 80 or isinstance(law, Suppressed)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_keys_choose_as_the_law_says_and_a_law_with_shifted_keys_is_rejected(law, rng):
    x, n = 7, 40_000
    values = np.arange(-1, 30)
    expected = np.exp(law.log_mass(values, x)) * n
    use = expected > 0

    def p_value(keys):
        seen = law.publish(np.full(n, x), keys)
        counts = np.array([(seen == v).sum() for v in values])
        if counts[~use].any():
            return 0.0
        return chisquare(counts[use], expected[use]).pvalue if use.sum() > 1 else 1.0

    keys = rng.random(n)
    assert p_value(keys) > 1e-6
    if use.sum() > 1:
        assert p_value(keys**1.1) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("maximum", one_in(4, range(1, 16)))
def test_tables_of_maximum_entropy_are_unbiased_and_have_their_variance(maximum):
    for variance in ("1/10", "1/2", "1", "1.08", "2", "3", "5", "8", "20"):
        for smallest in range(1, min(maximum + 1, 5) + 1):
            if Fraction(variance) > maximum**2:
                continue
            law = CellKey(maximum, variance, smallest)
            x = np.arange(len(law.rows) + 3)
            assert np.abs(law.mean(x) - x).max() < 1e-12
            met = [k for k in x[1:] if k not in law.other_variances]
            assert np.abs(law.variance_at(met) - float(Fraction(variance))).max(initial=0) < 1e-12
            assert all(abs(law.variance_at(k) - v) < 1e-12 for k, v in law.other_variances.items())
            below = law.log_mass(np.arange(1, smallest)[:, None], x)
            assert np.isneginf(below).all()


def test_the_entropy_is_that_of_a_solver_of_another_kind():
    for support, variance in (
        (np.arange(-3, 4), 1.5),
        (np.array([-2, 0, 1, 2]), 1.0),
        (np.array([-3, -1, 1, 2]), 2.0),
    ):
        p, met = maximum_entropy(support, variance)
        assert met
        rows = np.stack([np.ones(len(support)), support, support**2])
        found = minimize(
            lambda q: float(np.sum(q * np.log(q))),
            np.full(len(support), 1 / len(support)),
            bounds=[(1e-12, 1)] * len(support),
            constraints={"type": "eq", "fun": lambda q, rows=rows, v=variance: rows @ q - [1, 0, v]},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.abs(found.x - p).max() < 1e-5


def test_tables_that_fall_nowhere_below_zero_are_those_that_ptable_prints():
    """The vignette of ptable 1.0.0 (CRAN, 2023), `create_cnt_ptable(D = 2, V = 1)`: four digits, variances three.

    Maximum variance 3 at D = 2 does not bind: `round(Pmatrix(D = 2, js = 0), 2)` of olangsrud/experimentalRpackage.
    """
    law = CellKey(2, "1", monotone=True)
    assert law.rows[1].round(4).tolist() == [0, 0.3665, 0.3665, 0.1676, 0.0995]
    assert law.rows[2][0].round(4) == 0.0638
    assert law.variance_at([0, 1, 2]).round(3).tolist() == [0, 0.932, 1]
    assert [round(law.rows[x][2], 3) for x in range(3)] == [1, 0.366, 0.383]
    assert np.cumsum(CellKey(2, "3", monotone=True).rows[1:], axis=1).round(2).tolist() == [
        [0, 0.37, 0.73, 0.9, 1],
        [0.2, 0.4, 0.6, 0.8, 1],
    ]
    assert CellKey(2, "1").rows[1].round(4).tolist() != law.rows[1].round(4).tolist()


@pytest.mark.parametrize(
    ("support", "variance"),
    [
        (np.arange(-1, 4), 2.0),
        (np.arange(-2, 6), 3.0),
        (np.array([-3, 0, 1, 2, 3]), 1.5),
        (np.array([-1, 2, 3]), 4.0),
    ],
)
def test_the_entropy_of_tables_that_fall_nowhere_is_that_of_a_solver_of_another_kind(support, variance):
    p, _ = rising_entropy(support, variance)
    left = np.flatnonzero(support <= 0) if 0 in support else np.zeros(0, int)
    rising = [{"type": "ineq", "fun": lambda q, k=k: q[k + 1] - q[k]} for k in left[:-1]]
    found = minimize(
        lambda q: float(np.sum(q * np.log(q))),
        np.full(len(support), 1 / len(support)),
        bounds=[(1e-12, 1)] * len(support),
        constraints=[
            {"type": "eq", "fun": lambda q: np.array([q.sum() - 1, q @ support])},
            {"type": "ineq", "fun": lambda q: variance - q @ support**2},
            *rising,
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    assert np.abs(found.x - p).max() < 1e-5
    assert abs(p @ support) < 1e-12


def test_closed_forms():
    """Worked by hand: two atoms, the symmetric case with D = 1, and the ends of what mean zero allows."""
    assert CellKey(1, "1/3").rows[-1] == pytest.approx([1 / 6, 2 / 3, 1 / 6], abs=1e-15)
    assert CellKey(2, "2").rows[-1] == pytest.approx(np.full(5, 0.2), abs=1e-15)
    assert CellKey(2, "1", 3).rows[1] == pytest.approx([0, 2 / 3, 0, 0, 1 / 3], abs=1e-15)
    assert CellKey(2, "4").rows[-1] == pytest.approx([0.5, 0, 0, 0, 0.5], abs=1e-15)
    v = np.exp(
        np.array([-4, -1, 0, -1, -4]) * 0.25
    )  # b = 1/4 in exp(-b j^2) is the table of its own variance
    variance = v @ np.arange(-2, 3) ** 2 / v.sum()
    assert maximum_entropy(np.arange(-2, 3), variance)[0] == pytest.approx(v / v.sum(), abs=1e-13)


def test_what_the_support_forbids_is_listed():
    assert CellKey(2, "1", 3).other_variances == {1: 2.0, 2: 2.0, 3: 0.0}
    assert CellKey(2, "2").rows[-1] == pytest.approx(np.full(5, 0.2))  # uniform, as ptable's tables round to
    assert CellKey(5, "3", 3).other_variances == {}


def test_rounding_is_that_of_division():
    x = np.arange(60)
    assert RandomRounding(5).mean(x) == pytest.approx(x)
    assert RandomRounding(5).variance_at(x) == pytest.approx((x % 5) * (5 - x % 5))
    assert (Rounded(4).publish(x, 0.0) == 4 * ((x + 2) // 4)).all()
    assert (Rounded(4, "even").publish(x, 0.0) == 4 * np.rint(x / 4)).all()
    assert (Rounded(7).publish(x, 0.0) == 7 * ((x + 3) // 7)).all()


@pytest.mark.parametrize("law", [*LAWS, CountInterval(1, 9), CountInterval(10)], ids=str)
def test_laws_are_read_back_and_cost_nothing_that_could_be_stated(law):
    assert law_named(law.name).from_parameters(law.parameters()) == law
    for refused in (
        lambda: law.cost(Sensitivity.of(1, 1)),
        lambda: law.sample(1, lambda k: b"0" * k),
        lambda: type(law).budgeted(Fraction(1), Sensitivity.of(1, 1), {}),
    ):
        with pytest.raises(PrivacyError, match="limits no privacy loss"):
            refused()
    assert "No formal guarantee" in law.sentence()


def test_every_law_is_listed_and_bad_parameters_are_named():
    assert {type(law) for law in LAWS} == {law for law in PERTURBATIONS if law.name not in READ}
    for make in (
        lambda: RandomRounding(1),
        lambda: Rounded(4, "sideways"),
        lambda: Suppressed(3, 3),
        lambda: CellKey(2, "5"),
        lambda: CellKey(1, "1/2", 3),
        lambda: CellKey(),
        lambda: CountInterval(5, 4),
    ):
        with pytest.raises(SpecError):
            make()


@pytest.mark.parametrize("most", [1, 2, 4])
def test_even_noise_cut_at_zero_is_a_table_of_transitions(most):
    changes = range(-most, most + 1)
    share = 1 / len(changes)
    rows = [
        {change: share * (1 if change > -x else most - x + 1) for change in range(-x, most + 1)}
        for x in range(most + 1)
    ]
    law = CellKey(transitions=rows)
    for x in (*range(2 * most + 2), 500):
        drawn = [max(x + change, 0) for change in changes]
        y = np.arange(max(x - 2 * most, 0), x + 2 * most + 1)
        mass = np.exp(law.log_mass(y, np.array([x])))
        assert mass == pytest.approx([drawn.count(value) * share for value in y.tolist()], abs=1e-12)
    if most == 2:
        page = (Path(__file__).parents[2] / "docs" / "perturbed.md").read_text()
        told = tomllib.loads("transitions = [" + page.split("`transitions = [", 1)[1].split("`")[0])[
            "transitions"
        ]
        for said, row in zip(told, rows, strict=True):
            assert {int(change): p for change, p in said.items()} == pytest.approx(row)
