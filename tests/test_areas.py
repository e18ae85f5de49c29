"""Geography as it is, end to end: areas off the spine; ragged, empty and single-child places; invariants here and there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest

from tests.parameters import one_in
from trueup.checking.bundle import check as check_bundle
from trueup.errors import BundleError, DataError, SpecError
from trueup.io.bundle.areas import write_areas
from trueup.model.records.places_asked import AreaTable
from trueup.releasing import pipeline
from trueup.releasing.pipeline import release
from trueup.run.local import LocalPool

PAGE = Path(__file__).parents[1] / "docs" / "bad-input.md"
SPEC = """
format = 2
title = "Blocks"
table = { name = "blocks", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [
  { name = "all" },
  { name = "county", column = "code", prefix = 1 },
  { name = "tract", column = "code", prefix = 2 },
  { name = "block", column = "code" },
]
constraints = { invariants = [{ level = "county" }], zeros = [{ age = "child", school = "no" }] }
reconcile = { method = "histogram-tree" }

[[attribute]]
name = "age"
values = ["child", "adult", "old"]

[[attribute.recode]]
name = "grown"

[attribute.recode.groups]
under18 = ["child"]
over18 = ["adult", "old"]

[[attribute]]
name = "school"
values = ["yes", "no"]

[[query]]
name = "detailed"
attributes = ["age", "school"]
levels = ["all", "county", "tract", "block"]
epsilon = "1/2"
"""
CODES = [*(f"1{t}{b}" for t in "12" for b in "abc"), "21a", "31a", "31b"]
PLACES = pandas.DataFrame({"code": CODES})  # county 2 is a chain of single children, county 3 is empty
AREAS = pandas.DataFrame(
    {
        "area": ["lake", "lake", "lake", "north", "north", "empty", "alone"],
        "code": ["11a", "12c", "21a", "11a", "11b", "31a", "12b"],
    }
)
ATTRIBUTES = [("child", "yes"), ("adult", "yes"), ("adult", "no"), ("old", "yes"), ("old", "no")]


def _counts(rng) -> pandas.DataFrame:
    rows = [(c, a, s, int(rng.integers(0, 40))) for c in CODES if c[0] != "3" for a, s in ATTRIBUTES]
    return pandas.DataFrame(rows, columns=["code", "age", "school", "n"])


@pytest.fixture(scope="module", params=["whole", "by blocks"])
def released(request, tmp_path_factory):
    """The bundle and its finest counts, from either engine."""
    folder = tmp_path_factory.mktemp("areas")
    (folder / "blocks.toml").write_text(SPEC)
    data = _counts(np.random.default_rng(1))
    data.to_parquet(folder / "rows.parquet")
    given = folder / "blocks.toml", folder / "rows.parquet", folder / "out"
    if request.param == "whole":
        release(*given, geography=PLACES)
    else:
        with LocalPool(1) as pool:
            pipeline.release(*given, geography=PLACES, executor=pool, places=5)
    assert all(c.holds for c in check_bundle(folder / "out"))
    return folder / "out", data


def _finest(folder: Path) -> pandas.DataFrame:
    files = [
        p
        for p in (folder / "public" / "counts").rglob("*.parquet")
        if "block" in p.relative_to(folder).as_posix()
    ]
    tables = [polars.read_parquet(p).to_pandas() for p in files]
    return pandas.concat([t for t in tables if {"code", "age", "school"} <= set(t.columns)])


def _expected(folder: Path, by: list[str]) -> dict:
    cells = _finest(folder).merge(AREAS, on="code")
    cells["grown"] = np.where(cells.age == "child", "under18", "over18")
    return cells.groupby(["area", *by])["count"].sum().to_dict()


@pytest.mark.thorough
@pytest.mark.parametrize("by", [None, [], ["grown"], ["school", "grown"], ["age"]], ids=str)
@pytest.mark.parametrize("ending", one_in(2, ["parquet", "csv"]))
def test_an_area_has_the_sum_of_its_blocks(by, ending, released, tmp_path):
    folder, _ = released
    out = tmp_path / f"areas.{ending}"
    assert write_areas(folder, AREAS, out, attributes=by) == 4
    table = (polars.read_parquet(out) if ending == "parquet" else polars.read_csv(out)).to_pandas()
    kept = ["age", "school"] if by is None else sorted(by, key=["age", "grown", "school"].index)
    assert list(table.columns) == ["area", *kept, "count", "margin_of_error"]
    sizes = {"age": 3, "grown": 2, "school": 2}
    assert len(table) == 4 * np.prod([sizes[name] for name in kept], dtype=int)
    expected = _expected(folder, kept)
    index = table.set_index(["area", *kept] if kept else "area")["count"].to_dict()
    assert index == {key: expected.get(key, 0) for key in index}
    assert set(expected) <= set(index)
    assert table["count"].dtype == np.int64
    assert table[table.area == "empty"]["count"].sum() == 0  # its county's invariant says so


def test_areas_of_all_blocks_of_a_county_are_its_invariant(released, tmp_path):
    folder, data = released
    counties = PLACES.assign(area=PLACES.code.str[0])
    write_areas(folder, counties, tmp_path / "counties.csv", attributes=[])
    read = pandas.read_csv(tmp_path / "counties.csv", dtype={"area": str}).set_index("area")["count"]
    true = data.groupby(data.code.str[0]).n.sum()
    assert read.to_dict() == {"1": true["1"], "2": true["2"], "3": 0}


def test_invariants_zeros_and_chains_of_single_children_hold(released):
    folder, _ = released
    cells = _finest(folder)
    tracts = [
        polars.read_parquet(p).to_pandas()
        for p in (folder / "public" / "counts").rglob("*.parquet")
        if p.relative_to(folder / "public" / "counts").parts[0].startswith("tract")
    ]
    tract = pandas.concat([t for t in tracts if {"age", "school"} <= set(t.columns)])
    one = tract[tract.tract == "21"].groupby(["age", "school"])["count"].sum()
    chain = cells[cells.code == "21a"].groupby(["age", "school"])["count"].sum()
    assert one[one > 0].to_dict() == chain[chain > 0].to_dict()
    assert cells[(cells.age == "child") & (cells.school == "no")]["count"].sum() == 0
    assert cells[cells.code.str[0] == "3"]["count"].sum() == 0


MAPS = {
    "a csv": lambda folder: AREAS.to_csv(folder / "map.csv", index=False) or folder / "map.csv",
    "a frame of polars": lambda folder: polars.from_pandas(AREAS),
    "a parquet file": lambda folder: AREAS.to_parquet(folder / "map.parquet") or folder / "map.parquet",
}


@pytest.mark.parametrize("kind", MAPS)
def test_maps_of_every_kind(kind, released, tmp_path):
    folder, _ = released
    assert write_areas(folder, MAPS[kind](tmp_path), tmp_path / "out.csv", attributes=[]) == 4
    read = pandas.read_csv(tmp_path / "out.csv").set_index("area")["count"].to_dict()
    assert read == {"empty": 0} | {k: read[k] for k in ("alone", "lake", "north")}
    assert {k: v for k, v in read.items() if v} == {k: v for k, v in _expected(folder, []).items() if v}


def test_a_map_may_name_its_column(released, tmp_path):
    folder, _ = released
    renamed = AREAS.rename(columns={"area": "district"})
    assert write_areas(folder, renamed, tmp_path / "out.csv", column="district") == 4
    assert pandas.read_csv(tmp_path / "out.csv").columns[0] == "district"


BAD = {
    "a block that is none": (
        AREAS.assign(code=["9z", *AREAS.code[1:]]),
        {},
        DataError,
        "'lake' lists '9z', which is not a place of level 'block'",
    ),
    "a tract for a block": (
        AREAS.assign(code=["11", *AREAS.code[1:]]),
        {},
        DataError,
        "which is not a place",
    ),
    "a block twice": (pandas.concat([AREAS, AREAS[:1]]), {}, DataError, "'lake' lists the place '11a' twice"),
    "no area": (
        AREAS.assign(area=[None, *AREAS.area[1:]]),
        {},
        DataError,
        "a row without an area or a place",
    ),
    "an empty code": (
        AREAS.assign(code=["", *AREAS.code[1:]]),
        {},
        DataError,
        "a row without an area or a place",
    ),
    "no row": (AREAS[:0].astype(str), {}, DataError, "is empty"),
    "no column": (AREAS[["area"]], {}, DataError, "no column 'code'"),
    "an unknown attribute": (AREAS, {"attributes": ["sex"]}, SpecError, "'sex' is not declared"),
    "an attribute twice": (AREAS, {"attributes": ["age", "grown"]}, SpecError, "are the same attribute"),
    "a taken column": (
        AREAS.rename(columns={"area": "age"}),
        {"column": "age"},
        DataError,
        "the areas are named 'age'",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_maps_are_refused_and_leave_nothing(what, released, tmp_path):
    mapping, options, kind, message = BAD[what]
    with pytest.raises(kind, match=message) as caught:
        write_areas(released[0], mapping, tmp_path / "out.csv", **options)
    assert f"| {what} | {kind.__name__} | {caught.value} |" in PAGE.read_text()
    assert not list(tmp_path.iterdir())


def test_bad_targets_and_bundles(released, tmp_path):
    folder, _ = released
    (tmp_path / "held.csv").touch()
    with pytest.raises(BundleError, match="exists"):
        write_areas(folder, AREAS, tmp_path / "held.csv")
    with pytest.raises(BundleError, match="unknown file extension"):
        write_areas(folder, AREAS, tmp_path / "out.xlsx")
    with pytest.raises(BundleError, match="does not exist"):
        write_areas(folder, AREAS, tmp_path / "none" / "out.csv")
    with pytest.raises(BundleError, match="is not a bundle"):
        write_areas(tmp_path, AREAS, tmp_path / "out.csv")


def test_an_altered_table_is_refused(released, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(released[0], folder)
    for path in (folder / "public" / "counts").rglob("*.parquet"):
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(BundleError, match="is not the file that was written"):
        write_areas(folder, AREAS, tmp_path / "out.csv")


RAGGED = """
format = 2
title = "Ragged"
table = { name = "ragged", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "nation" }, { name = "state" }, { name = "county" }, { name = "tract" }]
parents = { id = "id", parent = "up" }
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "by sex", attributes = ["sex"], levels = ["nation", "state", "county", "tract"], epsilon = "1/4" }]
constraints = { invariants = [{ level = "state" }] }
"""


def test_a_ragged_hierarchy_releases_and_its_shallow_places_may_be_mapped(tmp_path):
    (tmp_path / "ragged.toml").write_text(RAGGED)
    places = pandas.DataFrame(
        {
            "id": ["us", "dc", "md", "md1", "md2", "md1a", "md1b"],
            "up": ["", "us", "us", "md", "md", "md1", "md1"],
        }
    )
    rows = pandas.DataFrame(
        {"id": ["dc", "md2", "md1a", "md1b"], "sex": ["f", "m", "f", "m"], "n": [90, 50, 70, 20]}
    )
    made = release(tmp_path / "ragged.toml", rows, tmp_path / "out", geography=places)
    assert all(made.checks.values())
    assert all(c.holds for c in check_bundle(tmp_path / "out"))
    beltway = pandas.DataFrame({"area": ["beltway", "beltway", "rest"], "id": ["dc", "md1a", "md2"]})
    write_areas(tmp_path / "out", beltway, tmp_path / "areas.csv", attributes=[])
    read = pandas.read_csv(tmp_path / "areas.csv").set_index("area")["count"]
    leaves = dict(zip(made.cells.tree.keys[-1]["id"], made.counts.reshape(-1, 2).sum(axis=1)))
    assert leaves["dc"] == 90  # a state that stands for itself: an invariant
    assert read.to_dict() == {"beltway": leaves["dc"] + leaves["md1a"], "rest": leaves["md2"]}


def test_areas_have_the_margins_of_their_places_added_by_squares(tmp_path):
    data = PLACES.assign(age="adult", school="yes", n=[300, 20, 0, 41, 900, 7, 150, 60, 4])
    spec = (
        SPEC.replace('levels = ["all"', 'levels = ["all"')
        + '[[query]]\nname = "total"\nepsilon = { block = "1/2" }\n'
    )
    (tmp_path / "spec.toml").write_text(spec)
    made = release(tmp_path / "spec.toml", data, tmp_path / "out", geography=PLACES)
    mapping = pandas.DataFrame({"area": ["x", "x", "y"], "code": [CODES[0], CODES[2], CODES[4]]})
    write_areas(tmp_path / "out", mapping, tmp_path / "areas.csv", attributes=[])
    found = pandas.read_csv(tmp_path / "areas.csv", index_col="area")["margin_of_error"]
    each = np.square(made.margin_of_error("block"))
    assert found["x"] == np.ceil(np.sqrt(each[0] + each[2]) - 1e-9)
    assert found["y"] == np.ceil(np.sqrt(each[4]) - 1e-9)
    write_areas(tmp_path / "out", mapping, tmp_path / "grown.csv", attributes=["grown"])
    assert (
        pandas.read_csv(tmp_path / "grown.csv")["margin_of_error"].isna().all()
    )  # no table of blocks is by it


def test_areas_of_a_release_of_several_tables_have_totals_by_default(tmp_path):
    several = "".join(
        f'[[query]]\nname = "q{by}"\nattributes = {[by] if by else []}\nepsilon = {{ block = "4" }}\n'
        for by in ("", "age", "school")
    )
    spec = SPEC[: SPEC.index("[[query]]")].replace(', zeros = [{ age = "child", school = "no" }]', "")
    (tmp_path / "spec.toml").write_text(
        spec.replace('reconcile = { method = "histogram-tree" }', "") + several
    )
    codes = [f"0{i}" for i in range(1, 5)]
    data = pandas.DataFrame({"code": codes, "age": "adult", "school": "yes", "n": [30, 20, 5, 41]})
    made = release(tmp_path / "spec.toml", data, tmp_path / "out", geography=data[["code"]])
    mapping = pandas.DataFrame({"area": ["x", "x", "y"], "code": codes[:3]})
    write_areas(tmp_path / "out", mapping, tmp_path / "areas.csv")
    table = pandas.read_csv(tmp_path / "areas.csv", index_col="area")
    assert list(table.columns) == ["count", "margin_of_error"]
    assert table["count"]["y"] == made.table("block")["released"][2]
    with pytest.raises(DataError, match=r"read column 'code' as text.*lost their leading zeros"):
        write_areas(tmp_path / "out", mapping.assign(code=[1, 2, 3]), tmp_path / "lost.csv")
    with pytest.raises(DataError, match="read column 'code' as text"):
        AreaTable.read(mapping.assign(code=[1, 2, 3]), "area", made.cells)


def test_a_map_needs_no_more_keys_than_tell_places_apart(tmp_path):
    spec = """
format = 2
title = "Clinics"
table = { name = "clinics", kind = "counts", counts = "visit", count = "n", keys = "public" }
privacy = { unit = "visit", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "region", column = "region" }, { name = "clinic", column = "clinic" }]
query = [{ name = "total", epsilon = { clinic = "4" } }]
"""
    (tmp_path / "spec.toml").write_text(spec)
    data = pandas.DataFrame({"region": ["N", "N", "S"], "clinic": ["1", "2", "3"], "n": [30, 20, 5]})
    made = release(tmp_path / "spec.toml", data, tmp_path / "out")
    mapping = pandas.DataFrame({"area": ["x", "x"], "clinic": ["1", "3"]})
    write_areas(tmp_path / "out", mapping, tmp_path / "areas.csv")
    assert pandas.read_csv(tmp_path / "areas.csv")["count"].tolist() == [made.counts[[0, 2]].sum()]
    printed = mapping.assign(clinic=["N/1", "S/3"])
    found = [AreaTable.read(each, "area", made.cells).leaf.tolist() for each in (mapping, printed)]
    assert found == [[0, 2]] * 2
    twins = data.assign(clinic=["1", "2", "1"])  # clinic 1 of both regions
    release(tmp_path / "spec.toml", twins, tmp_path / "twins")
    with pytest.raises(DataError, match="no column 'region'"):
        write_areas(tmp_path / "twins", mapping, tmp_path / "none.csv")
