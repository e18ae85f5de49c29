"""The items of Dharangutte et al.: noise and chains agree, wrong versions differ."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from papers.dharangutte import exact
from papers.dharangutte import examples as dharangutte_examples
from papers.dharangutte import figure_1 as dharangutte_figure_1
from papers.dharangutte import figure_2 as dharangutte_figure_2
from papers.dharangutte import figure_10 as dharangutte_figure_10
from papers.dharangutte import tables as dharangutte_tables
from papers.dharangutte.examples import children, keeps, records, unbiased
from papers.dharangutte.figure_1 import Run
from papers.dharangutte.figure_10 import KEPT, REAL, WHOLE
from papers.item import Setting
from trueup.noise import DiscreteLaplace

pytestmark = pytest.mark.thorough

QUICK = Setting(quick=True)


def verdicts(rows) -> dict[str, str]:
    return {row.label: row.verdict for row in rows}


# --- noise that keeps invariants --------------------------------------------------------------


def test_every_region_of_the_records_holds_two():
    columns, sizes = np.unique(records().invariants, axis=1, return_counts=True)
    assert columns.shape == (3, 7)
    assert (sizes == 2).all()


@pytest.mark.parametrize("example", [records(), children()], ids=["records", "children"])
@pytest.mark.parametrize("norm", [1, 2])
def test_noise_keeps_and_is_unbiased_and_other_noise_is_told_apart(example, norm, rng):
    noise = example.noise(norm, 1000, rng)
    assert keeps(example, noise, "").verdict == unbiased(noise, "").verdict == "agrees"
    one = np.arange(len(example.cells)) == 0
    assert keeps(example, noise + one, "").verdict == "differs"
    assert unbiased(noise + 2 * noise.std() * one / 9, "").verdict == "differs"


def test_plain_noise_changes_an_invariant(rng):
    plain = DiscreteLaplace(Fraction(1, 4)).sample(16, rng.bytes).reshape(1, -1)
    assert keeps(children(), plain, "").verdict == "differs"


def test_the_wrong_total_of_gamma_is_found_in_the_printed_cells(monkeypatch):
    assert verdicts(dharangutte_tables.margins())["Total of Gamma"] == "cannot match"
    cells = dharangutte_examples.CHILDREN.copy()
    cells[2, 0] += 10  # as the printed total would need it
    monkeypatch.setattr(dharangutte_tables, "CHILDREN", cells)
    found = verdicts(dharangutte_tables.margins())
    assert {found["Total of Gamma"], found["Total of Low"], found["Grand total"]} == {"differs"}


def enumerated(invariants: np.ndarray, free: list[int], reach: int, factor) -> np.ndarray:
    """Second moments of all cells given the invariants, where `free` cells up to `reach` settle the others."""
    kept = np.setdiff1d(np.arange(invariants.shape[1]), free)
    values = np.array(list(product(range(-reach, reach + 1), repeat=len(free))))
    others = np.rint(-values @ invariants[:, free].T @ np.linalg.pinv(invariants[:, kept]).T).astype(int)
    v = np.zeros((len(values), invariants.shape[1]), int)
    v[:, free], v[:, kept] = values, others
    v = v[~(v @ invariants.T).any(axis=1)]
    mass = factor(v)
    return mass @ v**2 / mass.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "free", "epsilon"),
    [
        (records(), [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13], 6.0),
        (children(), [0, 1, 2, 4, 5, 6, 8, 9, 10], 3.0),
    ],
    ids=["records", "children"],
)
def test_moments_given_the_invariants_are_those_of_an_enumeration(example, free, epsilon):
    """Where epsilon is so large that one cell's noise is seldom beyond 1."""
    right = enumerated(example.invariants, free, 1, lambda v: np.exp(-epsilon * np.abs(v).sum(axis=1)))
    assert exact.moments(example, 1, epsilon).square == pytest.approx(right, rel=3e-3)


def test_moments_of_the_l2_norm_are_those_of_an_enumeration():
    sums = np.ones((1, 3), np.int64)
    right = enumerated(sums, [0, 1], 250, lambda v: np.exp(-0.1 * np.linalg.norm(v, axis=1)))
    assert exact._of_l2(sums, 0.1).square == pytest.approx(right, rel=1e-4)


# --- the chain --------------------------------------------------------------------------------


def table(norm: int = 1) -> Run:
    return dharangutte_figure_1.runs()[norm - 1]


def convergence(run: Run, rng) -> dict[str, str]:
    times = {lag: run.meetings(lag, 40, rng) for lag in run.lags}
    rows = dharangutte_figure_1.convergence(run, times, rng, 40)
    return {row.label.partition(": ")[2].partition(",")[0].partition(" of ")[0]: row.verdict for row in rows}


@pytest.mark.slow
def test_the_chain_meets_is_stable_and_arrives(rng):
    assert list(convergence(table(), rng).values()) == ["agrees"] * 5


def test_a_chain_with_the_other_norm_s_target_does_not_arrive(rng, monkeypatch):
    right = Run.target.fget  # type: ignore[union-attr]
    monkeypatch.setattr(Run, "target", property(lambda self: right(replace(self, norm=3 - self.norm))))
    assert convergence(table(), rng)["mean norm"] == "differs"


def test_a_chain_that_stays_where_it_starts_does_not_arrive(rng):
    assert {row.verdict for row in dharangutte_figure_1._arrived(table(), 5, 40, rng)} == {"differs"}


def test_meeting_times_that_grow_with_the_lag_are_not_stable(rng):
    times = {lag: table().meetings(lag, 100, rng) for lag in (1000, 4000)}
    assert dharangutte_figure_1._stable("", {k: t - k for k, t in times.items()}).verdict == "agrees"
    assert dharangutte_figure_1._stable("", times).verdict == "differs"


def test_pairs_that_never_meet_are_said(rng, monkeypatch):
    monkeypatch.setattr(dharangutte_figure_1, "LONGEST", 1500)
    assert convergence(table(), rng) == {"pairs that met": "differs"}


def test_chains_in_different_places_have_not_mixed(rng):
    states = rng.normal(size=(4, 500, 3))
    assert dharangutte_figure_1._mixed("", states).verdict == "agrees"
    assert dharangutte_figure_1._mixed("", states + np.arange(4)[:, None, None]).verdict == "differs"


# --- counties ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_the_variance_given_the_sum_is_that_of_an_enumeration(epsilon):
    reach = np.arange(-60, 61)
    mass = {v: np.exp(-epsilon * (abs(v[0]) + abs(v[1]) + abs(sum(v)))) for v in product(reach, repeat=2)}
    exact = sum(m * v[0] ** 2 for v, m in mass.items()) / sum(mass.values())
    assert dharangutte_figure_2.variance(3, epsilon) == pytest.approx(exact, rel=1e-8)


def test_counties_agree_and_wrong_noise_differs(rng):
    errors = dharangutte_figure_2.county_noise(102, 1000, rng)
    assert set(verdicts(dharangutte_figure_2._of_illinois(errors)).values()) == {"agrees"}
    plain = DiscreteLaplace(Fraction("0.192")).sample(errors.size, rng.bytes).reshape(errors.shape)
    assert "differs" in verdicts(dharangutte_figure_2._of_illinois(plain)).values()
    wider = (errors * 1.05).round()
    wider -= wider.mean(axis=1, keepdims=True)
    assert (
        verdicts(dharangutte_figure_2._of_illinois(wider))["Illinois: variance of a county's error"]
        == "differs"
    )


def test_a_county_below_zero_is_counted(rng):
    errors = dharangutte_figure_2.county_noise(5, 200, rng)
    for factor, verdict in ((1, "agrees"), (5, "differs")):
        rows = dharangutte_figure_2._of_all({"Here": np.full(5, 60)}, {"Here": factor * errors})
        assert rows[-1].verdict == verdict


# --- projected noise --------------------------------------------------------------------------


def test_projection_in_reals_spreads_the_gap_evenly(rng):
    """On one sum the least squares among the nearest points in L1 are the noise less its mean."""
    found = dharangutte_figure_10.counties({KEPT: 3, REAL: 3, WHOLE: 3}, rng)
    assert np.abs(found[REAL].sum(axis=1)).max() < 1e-6
    assert (found[WHOLE].sum(axis=1) == 0).all()
    assert np.abs(found[WHOLE] - found[REAL]).max() < 1  # a person more or less than an even share


def test_odd_persons_borne_by_place_differ(rng):
    """The package's choice of who bears them, beside the choice of whom the list begins with."""
    found = dharangutte_figure_10.counties({KEPT: 3, REAL: 60, WHOLE: 60}, rng)
    assert dharangutte_figure_10._by_order(found).verdict == "agrees"
    by_place = found[REAL] + np.sort(found[WHOLE] - found[REAL], axis=1)
    assert dharangutte_figure_10._by_order({REAL: found[REAL], WHOLE: by_place}).verdict == "differs"


def test_an_uneven_optimum_differs(rng):
    """As near in L1, with the whole gap on one county: a vertex that a solver may return."""
    law = DiscreteLaplace(Fraction("0.192"))
    noise = law.sample(102 * 400, rng.bytes).reshape(400, -1).astype(float)
    even = noise - noise.mean(axis=1, keepdims=True)
    vertex = noise.copy()
    vertex[:, 0] -= noise.sum(axis=1)
    kept = dharangutte_figure_2.county_noise(102, 400, rng)
    right, wrong = ({KEPT: kept, REAL: reals, WHOLE: even} for reals in (even, vertex))
    rows = [
        [*dharangutte_figure_10._widths(errors), dharangutte_figure_10._overlap(errors)]
        for errors in (right, wrong)
    ]
    assert set(verdicts(rows[0]).values()) == {"agrees"}
    assert list(verdicts(rows[1]).values())[1:3] == ["differs", "differs"]
