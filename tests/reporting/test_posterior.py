"""The page of a posterior: its ridgelines are the masses, its tables the summary, its sentences true."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reporting.records import CROSSED, PLAIN, posterior
from trueup.inferring import given as given_to_infer
from trueup.inferring import infer
from trueup.inferring.lattice_moves import LatticeMoves
from trueup.io.published.perturbed import read_perturbed
from trueup.model.perturbed import parse_perturbed
from trueup.reporting import report
from trueup.reporting.drawing.pictures import MOST_BINS, steps


@pytest.fixture(scope="module")
def of_release():
    return posterior(PLAIN)


def page(record, spec) -> str:
    return re.sub(r"\s+", " ", report(record, spec))


@given(st.integers(0, 10_000), st.integers(1, 400), st.integers(0, 99))
def test_ridgelines_are_masses_gathered_in_steps_of_equal_width(low, size, seed):
    values = np.arange(low, low + size)
    masses = np.random.default_rng(seed).random(size) + 1e-3
    edges, heights = steps(values, masses / masses.sum(), True)
    width = np.diff(edges)
    assert len(heights) == len(edges) - 1 <= MOST_BINS
    assert (width == width[0]).all()
    assert max(heights) == 1.0
    inside = [masses[(values > a) & (values < b)].sum() for a, b in pairwise(edges)]
    assert heights == pytest.approx(np.array(inside) / max(inside))


def test_draws_that_are_no_whole_numbers_make_ridgelines_too():
    edges, heights = steps(np.linspace(0.0, 1.0, 500), np.ones(500), False)
    assert len(heights) <= MOST_BINS
    assert min(heights) > 0.5
    assert edges[0] < 0.01 < 0.99 < edges[-1]
    assert steps(np.array([2.5]), np.ones(1), False)[1][0] == 1.0


def test_every_count_is_in_a_table_with_what_was_published(of_release):
    record, spec = of_release
    text, table = page(record, spec), record.summary()
    for cell in range(record.cells.n):
        low, high = int(table["low"][cell]), int(table["high"][cell])
        assert f"released count {record.released[cell]}; 90 %: {low} to {high}" in text
    assert "Posterior counts: block group" in text
    assert "Posterior counts: nation" in text


def test_ridgelines_stand_at_their_differences(of_release):
    record, spec = of_release
    curves = re.findall(r'<polygon class="ridge" points="([^"]+)"', report(record, spec))
    assert len(curves) == record.cells.n
    tops = [min(float(p.split(",")[1]) for p in curve.split()) for curve in curves]
    assert tops == [8.0] * len(curves)


def test_chosen_counts_are_drawn_beside_the_extremes():
    record, spec = posterior(PLAIN, of_release=False)
    middle = record.cells.label(int(np.argsort(record.summary()["mean"])[3]))
    assert middle in page(replace(record, chosen=(middle,)), spec)


def test_counts_outside_their_interval_are_counted(of_release):
    record, spec = of_release
    moved = record.released.copy()
    moved[2] += 500
    assert "Every released count lies inside" in page(record, spec)
    assert "1 of 6 released counts lie outside" in page(replace(record, released=moved), spec)


def test_without_released_or_noisy_counts_ridgelines_stand_around_their_medians(of_release):
    record, spec = of_release
    bare = page(replace(record, released=None, noisy=None), spec)
    assert "difference from the median" in bare
    assert "Intervals against" not in bare


def test_markov_chains_are_said_to_be_chains(of_release):
    record, spec = of_release
    chained = replace(record, drawn=replace(record.drawn, independent=False))
    assert "Markov chains" in page(chained, spec)
    assert "Markov chains" not in page(record, spec)


def test_noisy_counts_stand_in_for_released_ones():
    assert "true count − noisy count (persons)" in page(*posterior(CROSSED, of_release=False))


HIDDEN_COUNTS = """
format = 1
title = "Cases by ward"
table = { name = "cases", counts = "case" }
level = [{ name = "all" }, { name = "ward", column = "ward" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
[[published]]
name = "cases"
level = "ward"
count = "n"
attributes = ["sex"]
total = { sex = "all" }
law = { name = "exact" }
codes = { "<5" = "0-4", "*" = "unknown" }
"""


@pytest.fixture(scope="module")
def hidden_counts():
    """Of 8 wards the men are hidden; totals tell 5 of them."""
    rows = []
    for k in range(8):
        women, men = 20 + k, k % 5 if k else 7
        rows += [(f"w{k}", "f", str(women)), (f"w{k}", "m", "<5" if k else "*")]
        rows += [(f"w{k}", "all", "*" if 0 < k < 4 else str(women + men))]
    table = pd.DataFrame(rows, columns=["ward", "sex", "n"])
    return infer(read_perturbed(parse_perturbed(HIDDEN_COUNTS), [table]), draws=200)


def test_hidden_counts_are_drawn_first_and_known_ones_without_a_band(hidden_counts):
    text = page(hidden_counts, None)
    assert "8 of 16 counts are hidden; 5 of these are known to the unit." in text
    ridges = next(
        p.block for p in report(hidden_counts).pictures if p.section == "What the true counts may be"
    )
    assert [row.name for row in ridges.rows[:3]] == [f"w{k}, sex=m" for k in (1, 2, 3)]
    assert [bool(row.heights) for row in ridges.rows] == [True] * 3 + [False] * 7
    assert [len(row.marks) for row in ridges.rows] == [2] * 3 + [1] * 7
    assert all("sex=m" in row.name for row in ridges.rows[:8])
    assert report(hidden_counts).count('class="ridge" points=') == 3


def test_what_others_published_is_not_called_noisy(hidden_counts):
    text = page(hidden_counts, None)
    assert "Published (cases)" in text
    assert "Noisy" not in text
    assert "random number" not in text
    assert "<dt>Published count</dt>" in text
    ours = page(*posterior(PLAIN))
    assert "Noisy (persons)" in ours
    assert "<dt>Noisy count</dt>" in ours
    assert "<dt>Published count</dt>" not in ours


def test_the_promise_says_in_one_plain_sentence_what_was_assumed(hidden_counts):
    assert (
        "Before anything was published, all tables of counts that the rules allow were taken to be equally probable: fewer than "
        "50 values of each combination of attributes are published" in hidden_counts.promise
    )
    assert hidden_counts.promise.startswith(hidden_counts.drawn.stats["prior_instead"])


def test_details_of_the_prior_stand_behind_the_sentence(of_release, monkeypatch):
    record, spec = of_release
    problem = record.problem
    monkeypatch.setattr(given_to_infer, "inference_misfit", lambda *given: "it handles 'general'")
    found = given_to_infer.prior_instead(LatticeMoves(), problem.constraints, problem)
    assert "do not fit these tables." in found["prior_instead"]
    assert "it handles" not in found["prior_instead"]
    told = replace(record, drawn=replace(record.drawn, stats=found))
    assert "it handles" not in told.promise
    assert "<dt>Why no other prior</dt>" in page(told, spec)
