"""Synthetic data: totals as stated, skew as of real places, the same seed the same bytes, labelled, releasable."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas
import pytest

from tests.parameters import one_in
from trueup.errors import BundleError, DataError, SpecError, TrueupError
from trueup.io.microdata.tabulate import read_counts
from trueup.io.microdata.truncate import Limit
from trueup.model.build import build_constraints
from trueup.model.constraints import violations
from trueup.model.geography import read_tree
from trueup.model.problem import public_cells
from trueup.model.spec import load_spec
from trueup.releasing.pipeline import release
from trueup.synth import synthesize
from trueup.synth.people import KNOWN_SHARES, SHARE_IN_QUARTERS
from trueup.synth.places import EMPTY_SHARE, grow, level_sizes
from trueup.synth.totals import sized, stated_regions
from trueup.synth.write import UNITS, split_by_units

EXAMPLES = Path(__file__).parents[2] / "examples"
PL94 = EXAMPLES / "pl94.toml"
PAGE = EXAMPLES.parent / "docs" / "bad-input.md"


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A small state: 4,000 blocks of the redistricting tables."""
    out = tmp_path_factory.mktemp("synth") / "state"
    synthesize(PL94, out, places=4000, persons=150_000, regions=["Rhode Island"], seed=1)
    return out


def _table(folder: Path, part: str = "records") -> duckdb.DuckDBPyRelation:
    return duckdb.connect().read_parquet(f"{folder}/{part}/*.parquet")


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(tmp_path):
    made = {}
    for name, options in {"a": {"seed": 5}, "b": {"seed": 5, "workers": 2}, "c": {"seed": 6}}.items():
        synthesize(PL94, tmp_path / name, places=300, regions=["Utah", "Idaho"], **options)
        made[name] = _bytes(tmp_path / name)
    assert made["a"] == made["b"]
    assert all(made["a"][name] != made["c"][name] for name in made["a"])


def test_a_state_is_the_same_whichever_others_are_made(tmp_path):
    synthesize(PL94, tmp_path / "one", regions=["Wyoming"], persons=20_000, places=500)
    totals = pandas.DataFrame({"code": ["50", "56"], "name": ["a", "b"], "persons": [20_000, 20_000]})
    synthesize(PL94, tmp_path / "two", totals=totals, persons=40_000, places=1000)
    one, two = _bytes(tmp_path / "one"), _bytes(tmp_path / "two")
    assert one["places/synthetic-56.parquet"] == two["places/synthetic-56.parquet"]
    assert one["records/synthetic-56-0000.parquet"] == two["records/synthetic-56-0000.parquet"]


@pytest.mark.thorough
def test_stated_totals_are_met_exactly(tmp_path):
    made = synthesize(PL94, tmp_path / "out", persons=60_000, places=2000)
    rows = _table(tmp_path / "out").aggregate("left(geocode, 2) AS state, count(*) AS n", "1").fetchall()
    assert dict(rows) == {region.code: region.persons for region in made}
    assert sum(region.persons for region in made) == 60_000
    shares = np.array([r.persons for r in made]) / np.array([r.persons for r in stated_regions()])
    assert (
        np.ptp(shares * sum(r.persons for r in stated_regions())) < 1e6
    )  # each within one person of its share
    assert _table(tmp_path / "out", "places").count("*").fetchall() == [(2000,)]


def test_the_stated_populations_are_the_censuses_own():
    assert sum(r.persons for r in stated_regions()) == 331_449_281
    assert len(stated_regions()) == 51


def test_every_file_says_that_it_is_synthetic(state):
    files = sorted(p.relative_to(state).as_posix() for p in state.rglob("*") if p.is_file())
    assert files == ["README.md", "places/synthetic-44.parquet", "records/synthetic-44-0000.parquet"]
    assert "No person and no place in these files exists" in (state / "README.md").read_text()
    for name in files[1:]:
        rows = duckdb.sql(
            f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{state / name}')"
        ).fetchall()
        assert dict(rows)["synthetic"] == "Synthetic: no person or place in it exists."


def test_codes_nest_and_have_their_widths(state):
    spec = load_spec(PL94)
    tree = read_tree(spec, state / "places")
    assert tree.sizes == (1, 1, 2, 42, 118, 4000)
    assert {len(code) for code in tree.keys[-1]["geocode"]} == {15}
    assert set(tree.keys[1]["state"]) == {"44"}


def test_places_are_as_skewed_as_real_ones(rng):
    """A third empty; the largest tenth of blocks holds several times its share; counties differ by more than tracts."""
    names = ["county", "tract", "block group", "block"]
    most = [999, 999_999, 9, 999]
    branch = grow(level_sizes(names, 60_000, most), most, rng)
    weights = np.sort(branch.weights)
    assert abs((weights == 0).mean() - EMPTY_SHARE) < 6 * np.sqrt(EMPTY_SHARE * (1 - EMPTY_SHARE) / 60_000)
    assert 0.35 < weights[-6000:].sum() / weights.sum() < 0.75
    assert all(
        np.bincount(p).max() <= limit and np.bincount(p).min() >= 1 for p, limit in zip(branch.parents, most)
    )
    tract = branch.parents[2][branch.parents[3]]
    county = branch.parents[1][tract]
    spread = [np.std(np.log(np.bincount(level, branch.weights))) for level in (county, tract)]
    assert spread[0] > 1.1 * spread[1]


def test_group_quarters_stand_in_few_blocks(state):
    counted = "geocode, count(*) AS n, count(*) FILTER (hhgq <> 'household') AS inside"
    blocks = _table(state).aggregate(counted, "1").df()
    some = blocks[blocks.inside > 0]
    assert (
        0.01 < some.inside.sum() / 150_000 < 0.05
    )  # stated: 0.025, less those whom structural zeros keep at home
    assert len(some) / len(blocks) < 0.03
    assert some.inside.sum() / some.n.sum() > 0.7 * SHARE_IN_QUARTERS


def test_shares_drift_with_place(state):
    """Variance of a tract's share of one race is many times that of sampling, and the nation's share is near."""
    held = _table(state).aggregate(
        "left(geocode, 11) AS tract, avg((cenrace = 'white')::INT) AS w, count(*) AS n", "1"
    )
    shares = held.df()
    sampling = (shares.w * (1 - shares.w) / shares.n).mean()
    assert shares.w.var() > 10 * sampling
    assert abs(np.average(shares.w, weights=shares.n) - KNOWN_SHARES["cenrace"][0]) < 0.25


def test_a_person_at_a_time_counts_what_counts_count(tmp_path):
    """The same country as records and as counts, and no forbidden combination in it."""
    as_counts = tmp_path / "counts.toml"
    as_counts.write_text(PL94.read_text().replace('kind = "records"', 'kind = "counts"\ncount = "n"'))
    for path in (PL94, as_counts):
        synthesize(path, tmp_path / path.stem, places=400, regions=["Ohio"])
    spec = load_spec(PL94)
    cells = public_cells(spec, geography=tmp_path / "pl94" / "places")
    records = read_counts(spec, cells, tmp_path / "pl94" / "records")
    assert np.array_equal(records, read_counts(load_spec(as_counts), cells, tmp_path / "counts" / "counts"))
    assert records.sum() == 16_000
    assert not violations(build_constraints(spec, cells), records)


@pytest.mark.thorough
@pytest.mark.parametrize("name", one_in(2, ["us-counties", "blocks-race-age", "pl94-small"]))
def test_any_spec_can_be_released_on_synthetic_data(name, tmp_path):
    spec = EXAMPLES / f"{name}.toml"
    synthesize(spec, tmp_path / "made", places=60, persons=3000)
    made = tmp_path / "made"
    released = release(spec, made / "counts", tmp_path / "out", geography=made / "places")
    assert all(released.checks.values())


LEVELS = {
    "columns": '[{ name = "all" }, { name = "region", column = "region", label = "title" }, { name = "area", column = "area" }]',
    "a prefix below a column": (
        '[{ name = "all" }, { name = "state", column = "st" }, { name = "county", column = "code", prefix = 4 },'
        ' { name = "block", column = "code" }]'
    ),
    "a root alone": '[{ name = "all" }]',
    "states alone": '[{ name = "nation" }, { name = "state", column = "state" }]',
}
SMALL = """
format = 2
title = "Small"
table = {{ name = "small", kind = "{kind}", counts = "person"{count} }}
privacy = {{ unit = "person", neighbours = "add-remove" }}
level = {levels}
attribute = [{{ name = "sex", values = ["f", "m"] }}, {{ name = "age", column = "years", values = ["0", "1", "it's"] }}]
query = [{{ name = "total", epsilon = {{ {last} = "1/2" }} }}]
{more}
"""


def _small(folder: Path, levels: str, kind: str = "records", more: str = "") -> Path:
    last = levels.split('name = "')[-1].split('"')[0]
    count = ', count = "n"' if kind == "counts" else ""
    path = folder / "small.toml"
    path.write_text(SMALL.format(levels=levels, kind=kind, count=count, last=last, more=more))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["records", "counts"])
@pytest.mark.parametrize("levels", LEVELS)
def test_levels_of_every_kind_are_coded(levels, kind, tmp_path):
    path = _small(tmp_path, LEVELS[levels], kind)
    made = tmp_path / "made"
    regions = synthesize(path, made, persons=5000, places=60)
    spec = load_spec(path)
    places = made / "places" if any((made / "places").iterdir()) else None
    cells = public_cells(spec, geography=places)
    assert cells.shape[0] == sum(region.places for region in regions)
    assert read_counts(spec, cells, made / kind).sum() == 5000


def test_parent_pointers_are_written_with_their_root(tmp_path):
    levels = '[{ name = "all" }, { name = "state" }, { name = "county" }]'
    path = _small(tmp_path, levels, more='parents = { id = "id", parent = "up" }')
    synthesize(path, tmp_path / "made", persons=5000, places=80, regions=["Utah", "Idaho", "Ohio"])
    spec = load_spec(path)
    cells = public_cells(spec, geography=tmp_path / "made" / "places")
    assert cells.tree.sizes == (1, 3, 80)
    assert read_counts(spec, cells, tmp_path / "made" / "records").sum() == 5000


def test_records_have_units_of_several_records_and_keys_that_place_names_alone_are_unique(tmp_path):
    """The command that `synth` prints is followed: the release reads identifiers, and places by `place`."""
    levels = ", ".join(f'{{ name = "{name}", column = "{name}" }}' for name in ("state", "trust", "ward"))
    levels = f'[{{ name = "all" }}, {levels}]'
    path = _small(tmp_path, levels)
    text = path.read_text().replace('counts = "person" }', 'counts = "stay", place = ["ward"] }')
    limit = 'neighbours = "add-remove", id = "patient", contribution = { records = 3 } }'
    path.write_text(text.replace('neighbours = "add-remove" }', limit))
    made = tmp_path / "made"
    synthesize(path, made, persons=900, places=40, regions=["Utah", "Ohio"])
    held = _table(made).aggregate("patient, count(*) AS n, count(DISTINCT ward) AS wards", "patient").df()
    assert held.n.sum() == 900
    assert set(held.n) == {1, 2, 3}
    assert (held.n[held.wards > 1] > 1).all()
    wards = _table(made, "places").project("ward").df().ward
    assert wards.is_unique
    spec = load_spec(path)
    cells = public_cells(spec, geography=made / "places")
    limit = Limit("patient", 3, "00")
    assert read_counts(spec, cells, made / "records", limit).sum() == 900
    assert limit.dropped == 0


def test_a_large_total_is_cut_into_parts():
    from trueup.synth.people import Sparse

    drawn = [Sparse(np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32), np.array([5, 17, 4]))] * 2
    pieces = list(split_by_units(drawn, 10))
    assert [int(p.count.sum()) for p in pieces] == [10, 10, 10, 10, 10, 2]
    leaves = np.concatenate([np.repeat(p.leaf, p.count) for p in pieces])
    assert np.bincount(leaves).tolist() == [10, 34, 8]
    assert UNITS > 0


def test_sizes_that_are_given_or_follow():
    regions = stated_regions()
    assert sum(r.persons for r in sized(regions, None, None)) == 331_449_281
    assert sum(r.places for r in sized(regions, None, 1000)) == 1000
    assert sum(r.persons for r in sized(regions, None, 1000)) == 40_000
    assert sum(r.persons for r in sized(regions, 12_345, 777)) == 12_345


BAD = {
    "a state that is none": ({"regions": ["Rode Island"]}, SpecError, "did you mean 'Rhode Island'"),
    "fewer places than states": ({"places": 50}, SpecError, "at least .* places, and 0 or more persons"),
    "places beyond the codes": (
        {"places": 50_000_000, "persons": 10, "regions": ["Utah"]},
        SpecError,
        "can only distinguish 999",
    ),
    "totals without a column": (
        {"totals": pandas.DataFrame({"name": ["a"]})},
        DataError,
        "no column 'persons'",
    ),
    "totals without a row": (
        {"totals": pandas.DataFrame({"name": [], "persons": []})},
        DataError,
        "is empty",
    ),
    "two totals of one region": (
        {"totals": pandas.DataFrame({"name": ["a", "a"], "persons": [1, 2]})},
        DataError,
        "holds the name 'a' twice",
    ),
    "a code that is no number": (
        {"totals": pandas.DataFrame({"name": ["a"], "persons": [1], "code": ["AL"]})},
        DataError,
        "'AL' cannot be the code of a region",
    ),
    "totals of nobody": (
        {"totals": pandas.DataFrame({"name": ["a"], "persons": [0]})},
        SpecError,
        "all zero",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_refused_and_leave_nothing(what, tmp_path):
    options, kind, message = BAD[what]
    with pytest.raises(kind, match=message) as caught:
        synthesize(PL94, tmp_path / "out", **options)
    assert f"| {what} | {kind.__name__} | {caught.value} |" in PAGE.read_text()
    assert not list(tmp_path.iterdir())


def test_specs_that_drawn_counts_would_break_are_refused(tmp_path):
    levels = LEVELS["columns"]
    bounded = _small(tmp_path, levels, more='constraints = { bounds = [{ level = "area", lower = 1 }] }')
    with pytest.raises(SpecError, match="declares bounds"):
        synthesize(bounded, tmp_path / "out", persons=100)
    with pytest.raises(SpecError, match="no level called 'state'"):
        synthesize(_small(tmp_path, levels), tmp_path / "out")
    shut = _small(tmp_path, levels, more='constraints = { zeros = [{ sex = "f" }, { sex = "m" }] }')
    with pytest.raises(SpecError, match="exclude every combination"):
        synthesize(shut, tmp_path / "out", persons=100)
    with pytest.raises(BundleError, match="is not empty"):
        synthesize(_small(tmp_path, levels), tmp_path, persons=100)
    with pytest.raises(TrueupError, match="cannot read the spec"):
        synthesize(tmp_path / "none.toml", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["small.toml"]
