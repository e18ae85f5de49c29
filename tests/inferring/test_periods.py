"""Several periods inferred together: what is linked, what is refused, and what linking is worth.

Power: with the draws of one period in another order, intervals of change are a quarter longer, and are rejected from a tenth on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trueup
from trueup.errors import SpecError
from trueup.model.problem import Problem
from trueup.model.records.together import link_periods, two_periods
from trueup.model.spec import parse_spec
from trueup.releasing.changing import changes

TEXT = """
format = 2
title = "Towns"
table = { name = "towns", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town" }]
query = [{ name = "total", epsilon = { all = "1/5", county = "1/5", town = "1/10" } }]
"""
TOWNS = pd.DataFrame(
    {"county": np.repeat([f"c{i}" for i in range(4)], 10), "town": [f"{i:02d}" for i in range(40)]}
)


def years(rng: np.random.Generator, count: int = 2, text: str = TEXT) -> tuple[list, list]:
    """Measurements and true counts of towns of very different sizes, which change by about a twentieth."""
    rates, truths = rng.gamma(1, 200, len(TOWNS)), []
    for _ in range(count):
        truths.append(rng.poisson(rates))
        rates = rates * np.exp(0.05 * rng.standard_normal(len(rates)))
    tables = [TOWNS.assign(n=n) for n in truths]
    problem = Problem.of(parse_spec(text), data=tables[0])
    return [trueup.simulate(problem, n, rng) for n in truths], truths


def test_periods_are_laid_out_as_an_attribute(rng):
    """Values of a place stand beside each other, in the order of periods; rules hold in each."""
    (one, two), _ = years(rng)
    measured, constraints = link_periods({"old": one, "new": two})
    assert measured.cells.attributes[-1].values == ("old", "new")
    for header, values, before, after in zip(measured.headers, measured.values, one.values, two.values):
        assert header.margin.attributes[-1] == "period"
        assert (values.reshape(-1, 2) == np.stack([before, after], axis=1)).all()
    assert constraints.structure() == "histogram"


def test_bounds_are_those_of_each_period(rng):
    """Limits that periods were published with follow their values."""
    text = TEXT + 'constraints = { bounds = [{ level = "county", lower = 7 }] }\n'
    (one, two), _ = years(rng, text=text)
    _, constraints = link_periods({"old": one, "new": two})
    (bound,) = constraints.bounds
    assert bound.margin.attributes == ("period",)
    assert np.asarray(bound.lower).tolist() == [7.0] * 8


@pytest.mark.slow
def test_linked_changes_are_better_known(rng):
    """At least 84 % of intervals hold (of 120), and scores are at most .85 of those of unrelated posteriors."""
    held, linked, apart, lengths = [], [], [], ([], [])
    for _ in range(3):
        (one, two), (before, after) = years(rng)
        both = trueup.infer({"old": one, "new": two}, draws=400)
        found = changes(both)
        old, new = two_periods(both)
        shuffled = replace(new, drawn=replace(new.drawn, draws=new.draws[:, ::-1]), source="another")
        for record, scores in (
            (found, linked),
            (changes(trueup.infer(one, draws=400), trueup.infer(two, draws=400)), apart),
        ):
            scores.append(_score(record.figures, after - before))
        for record, own in zip((found, changes(old, shuffled)), lengths):
            own.append(np.mean(record.figures["high"] - record.figures["low"]))
        held.append((found.figures["low"] <= after - before) & (after - before <= found.figures["high"]))
    assert np.mean(held) > 0.84
    assert np.mean(linked) < 0.85 * np.mean(apart)
    assert np.mean(lengths[1]) > 1.1 * np.mean(lengths[0])


def _score(figures: dict, truth: np.ndarray) -> float:
    low, high = figures["low"], figures["high"]
    return float(np.mean(high - low + 20 * np.maximum(low - truth, 0) + 20 * np.maximum(truth - high, 0)))


@pytest.mark.thorough
def test_tables_are_those_of_periods(rng):
    """No table sums over periods: a person may stand in all of them."""
    (one, two), _ = years(rng)
    both = trueup.infer({"old": one, "new": two}, draws=100)
    assert both.drawn.tables
    assert all("period" in margin.attributes for margin in both.drawn.tables)
    old, new = two_periods(both, ("new", "old"))
    assert (
        both.sums("town x period").reshape(*both.draws.shape[:2], -1, 2)[..., 0] == new.sums("town")
    ).all()
    assert old.cells.attributes == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace('town = "1/10"', 'town = "1/20"'), "different noise on a table"),
        (TEXT + '[infer]\nprior = "flat"\n', "names a prior"),
    ],
)
def test_what_cannot_be_linked_is_refused(rng, text, said):
    """Unlike periods, and priors of their own, are named."""
    (one, _), _ = years(rng)
    (first, second), _ = years(rng, text=text)
    given = {"old": first, "new": second} if "prior" in said else {"old": one, "new": second}
    with pytest.raises(SpecError, match=said):
        trueup.infer(given)


@pytest.mark.thorough
def test_one_period_is_not_two(rng):
    """The same measurements twice, one period, and periods of a posterior without any are refused."""
    (one, two), _ = years(rng)
    with pytest.raises(SpecError, match="same measurements"):
        trueup.infer({"old": one, "new": one})
    with pytest.raises(SpecError, match="two or more names"):
        trueup.infer({"old": one})
    with pytest.raises(SpecError, match="without several periods"):
        changes(trueup.infer(one, draws=20))
    with pytest.raises(SpecError, match="two of old, new"):
        two_periods(trueup.infer({"old": one, "new": two}, draws=100), ("old", "older"))
