"""Changes between two releases: intervals hold true changes, places are matched, and unlike records are refused.

Power: intervals that forget the noise of one of the two releases hold about three quarters, and are rejected.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import trueup
from trueup.errors import DataError, SpecError
from trueup.model.cells import Cells
from trueup.model.problem import Problem
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree
from trueup.releasing.changing import changes

SPEC = parse_spec(
    """
format = 2
title = "Towns"
table = { name = "towns", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town" }]
query = [{ name = "total", epsilon = { all = "1/5", county = "2/5", town = "2/5" } }]
"""
)


def towns(counties: int = 4, each: int = 10) -> pd.DataFrame:
    county = np.repeat([f"c{i}" for i in range(counties)], each)
    return pd.DataFrame({"county": county, "town": [f"{i:02d}" for i in range(counties * each)], "n": 1})


def measured(table: pd.DataFrame, rng: np.random.Generator):
    return trueup.simulate(Problem.of(SPEC, data=table), table["n"].to_numpy(), rng)


def series(rng: np.random.Generator, years: int) -> list[pd.DataFrame]:
    """Towns of 5 to 2,000 persons that grow or shrink by up to a tenth a year."""
    table = towns()
    n = np.exp(rng.uniform(np.log(5), np.log(2000), len(table)))
    return [
        table.assign(n=(n * rng.uniform(0.9, 1.1, (len(table))) ** year).astype(int)) for year in range(years)
    ]


def _held(found, truth) -> np.ndarray:
    return (found.figures["low"] <= truth) & (truth <= found.figures["high"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["release", "posterior"])
def test_intervals_hold_true_changes(rng, kind):
    """At least 87 % of 90 % intervals; standard error below a point."""
    make = trueup.reconcile if kind == "release" else lambda noisy: trueup.infer(noisy, draws=300)
    held, narrow = [], []
    for _ in range(8 if kind == "release" else 3):
        tables = series(rng, 3)
        made = [make(measured(table, rng)) for table in tables]
        for i in range(2):
            truth = (tables[i + 1]["n"] - tables[i]["n"]).to_numpy()
            found = changes(made[i], made[i + 1])
            held.append(_held(found, truth))
            middle, reach = found.figures["change"], (found.figures["high"] - found.figures["low"]) / 2
            narrow.append(np.abs(truth - middle) <= reach / np.sqrt(2))
            whole = changes(made[i], made[i + 1], "county")
            held.append(_held(whole, truth.reshape(4, 10).sum(1)))
    assert np.concatenate(held).mean() >= 0.87
    assert np.concatenate(narrow).mean() < 0.87  # the wrong version


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(5)
    later = pd.DataFrame({"county": list("aabb"), "town": list("1234"), "n": [500, 80, 40, 900]})
    before = later.assign(n=[100, 90, 45, 500])
    merged = pd.DataFrame({"county": list("abb"), "town": list("134"), "n": [600, 40, 900]})
    return tuple(trueup.reconcile(measured(table, rng)) for table in (before, later, merged))


def test_places_that_merged_or_split_are_compared_as_one(two):
    before, later, merged = two
    crosswalk = pd.DataFrame({"before": ["1", "2"], "after": ["1", "1"]})
    found = changes(before, merged, crosswalk=crosswalk)
    assert found.labels["town"].tolist() == ["a/1", "b/3", "b/4"]
    parts = before.sums("town")
    assert found.figures["before"].tolist() == [parts[:2].sum(), *parts[2:]]
    back = changes(merged, later, crosswalk=crosswalk.rename(columns={"before": "after", "after": "before"}))
    assert back.labels["town"].tolist() == ["a/1 + a/2", "b/3", "b/4"]
    assert back.figures["after"].tolist() == [later.sums("town")[:2].sum(), *later.sums("town")[2:]]
    reach = np.sqrt(
        np.square(before.margin_of_error("town")[:2]).sum() + merged.margin_of_error("town")[0] ** 2
    )
    assert found.figures["high"][0] - found.figures["change"][0] == np.ceil(reach - 1e-9)


def test_directions_follow_intervals(two):
    found = changes(two[0], two[1])
    assert found.direction.tolist() == ["more", "not known", "not known", "more"]
    assert "more: 2; fewer: 0; not known, as the interval holds 0: 2" in repr(found)


def test_directions_say_what_is_asked_in_words_that_fit_it():
    draws = np.array([[[40, 10, 0], [45, 12, 0], [50, 11, 0], [48, 13, 0]]])
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": list("abc")}]))
    old, new = (
        Posterior(cells, Drawn(draws[..., order], True), {"method": "demo"}, name)
        for order, name in (([0, 1, 2], "1"), ([1, 0, 2], "2"))
    )
    ranks = changes(old, new, question="rank(area)")
    assert ranks.direction.tolist() == ["larger", "smaller", "no change"]
    assert "larger: 1; smaller: 1; no change: 1; not known, as the interval holds 0: 0" in repr(ranks)
    assert changes(old, new, "area").direction.tolist() == ["fewer", "more", "no change"]
    undefined = changes(old, new, question="area / c")  # of which the denominator is 0 in every draw
    assert undefined.direction.tolist() == ["not defined"] * 3


def test_what_cannot_be_compared_is_refused(two, tmp_path):
    before, later, merged = two
    with pytest.raises(DataError, match=r"'a/2' of level 'town' occurs only in the first release.*crosswalk"):
        changes(before, merged)
    with pytest.raises(DataError, match="did you mean"):
        changes(before, merged, crosswalk=pd.DataFrame({"before": ["a/11", "2"], "after": ["1", "1"]}))
    with pytest.raises(SpecError, match="same measurements"):
        changes(before, before)
    with pytest.raises(SpecError, match="two posteriors"):
        changes(before, trueup.infer(later.measurements, draws=20))
    with pytest.raises(SpecError, match="no level 'tract'"):
        changes(before, later, "tract")
    with pytest.raises(SpecError, match="kept at the probability"):
        changes(before, later, level="77%")


REAL = parse_spec(
    """
format = 2
title = "Rhode Island"
table = { name = "blocks", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
query = [{ name = "total", epsilon = { state = "1/10", county = "1/5", tract = "1/5", block = "1/2" } }]
level = [
  { name = "state" },
  { name = "county", column = "GEOID", prefix = 5 },
  { name = "tract", column = "GEOID", prefix = 11 },
  { name = "block", column = "GEOID" },
]
"""
)


@pytest.mark.thorough
def test_intervals_hold_made_up_changes_of_rhode_islands_blocks(rng, data_dir):
    """244 tracts and 25,181 blocks: at least 87 % of 90 % intervals; standard errors 1.9 and .2 points."""
    blocks = pd.read_csv(data_dir / "ri_blocks_2010.csv.gz", dtype={"GEOID": str})
    table = pd.DataFrame({"GEOID": blocks["GEOID"], "n": blocks["pop"]}).sort_values("GEOID")
    n = table["n"].to_numpy()
    later = rng.binomial(n, 0.94) + rng.poisson(0.07 * n)  # some leave, and others come
    problem = Problem.of(REAL, data=table)
    before, after = (trueup.reconcile(trueup.simulate(problem, counts, rng)) for counts in (n, later))
    tract = np.unique(table["GEOID"].str[:11], return_inverse=True)[1]
    for level, moved in {"block": later - n, "tract": np.bincount(tract, later - n)}.items():
        found = changes(before, after, level)
        held = _held(found, moved).mean()
        print(f"{level}: {held:.3f} of 90 % intervals hold")
        assert held >= 0.87
        half = (found.figures["high"] - found.figures["low"]) / 2
        assert (np.abs(moved - found.figures["change"]) <= half / 2).mean() < 0.87  # intervals half as wide


VISITS = """
format = 2
title = "Visits"
table = { name = "visits", kind = "records", counts = "visit" }
privacy = { unit = "patient", neighbours = "add-remove", id = "patient", contribution = { records = 2 } }
level = [{ name = "all" }, { name = "clinic", column = "clinic" }]
attribute = [{ name = "month", column = "day", date = "month", values = ["YEAR-01", "YEAR-02"], missing = "unknown" }]
query = [{ name = "month", attributes = ["month"], epsilon = { clinic = "4" } }]
left_out = { epsilon = "4", most = 6 }
"""


def visits(year: int, of_each: int):
    rows = [
        (c, f"{c}{p}", f"{year}-0{1 + p % 2}-11") for c in "ab" for p in range(30) for _ in range(of_each)
    ]
    frame = pd.DataFrame(rows, columns=["clinic", "patient", "day"])
    spec = parse_spec(VISITS.replace("YEAR", str(year)))
    return trueup.reconcile(trueup.measure(spec, frame, geography=pd.DataFrame({"clinic": ["a", "b"]})))


def test_records_that_a_limit_leaves_out_are_part_of_the_answer():
    """3 and 5 visits of each of 60 patients, of which 2 are kept: 60 and 180 are left out, and the counts do not change."""
    found = changes(visits(2025, 3), visits(2025, 5), "all")
    assert abs(found.figures["change"][0]) < 30
    assert (
        "Every count is of at most 2 of each patient alone: what is beyond that is in none." in found.promise
    )
    said = re.search(
        r"Left out were about (\d+) before and (\d+) after, a change of \+(\d+) \(±(\d+)\)", found.promise
    )
    before, after, moved, reach = map(int, said.groups())
    assert (abs(before - 60) < 60, abs(after - 180) < 60, moved) == (True, True, after - before)
    assert reach < 30


def test_months_are_compared_with_those_of_the_year_before():
    old, new = visits(2025, 1), visits(2027, 2)
    found = changes(old, new, "clinic x month")
    assert "Each 'month' is compared with the one 2 years before." in found.promise
    assert found.labels["month"].tolist() == ["2027-01", "2027-02", "unknown"] * 2
    assert np.abs(found.figures["change"] - [15, 15, 0] * 2).max() < 15
    with pytest.raises(SpecError, match="'month' has different values in the two releases"):
        changes(new, old, "clinic x month")


@pytest.mark.thorough
def test_a_share_is_compared_draw_by_draw(rng):
    tables = series(rng, 2)
    old, new = (trueup.infer(measured(table, rng), draws=200) for table in tables)
    found = changes(old, new, question="county / all")
    shares = []
    for record in (old, new):
        counties = record.sums("county").reshape(-1, 4)
        shares.append(counties / counties.sum(axis=1, keepdims=True))
    moved = shares[1][:200] - shares[0][:200]
    assert found.labels["county"].tolist() == ["c0", "c1", "c2", "c3"]
    np.testing.assert_allclose(found.figures["change"], moved.mean(axis=0))
    assert (
        (found.figures["low"] <= found.figures["change"]) & (found.figures["change"] <= found.figures["high"])
    ).all()
    np.testing.assert_allclose(found.figures["probability of growth"], (moved > 0).mean(axis=0))
    one = changes(old, new, question="'county=c0' / all")
    np.testing.assert_allclose(one.figures["change"], moved[:, :1].mean(axis=0))
    assert one.labels["question"].tolist() == ["'county=c0' / all"]
    assert repr(found).startswith("Change of 'county / all' between two releases, 4 numbers")
    with pytest.raises(SpecError, match="is a comparison"):
        changes(old, new, question="'county=c0' > 'county=c1'")
    with pytest.raises(SpecError, match="a question and a table cannot be given"):
        changes(old, new, "county", question="county / all")
    releases = [trueup.reconcile(measured(table, rng)) for table in tables]
    with pytest.raises(SpecError, match=r"questions about releases.*two posteriors"):
        changes(*releases, question="county / all")
