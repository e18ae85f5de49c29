"""Input from every kind of table, and every refusal; no message holds a count."""

from __future__ import annotations

import gzip
from pathlib import Path

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pytest

from tests.areas import SPEC, TABLE, TRUTH, write_areas
from trueup.errors import BundleError, DataError, PrivacyError, SpecError, TrueupError
from trueup.files import Encoded
from trueup.files.source import open_table
from trueup.files.values import whole_counts
from trueup.io.microdata.tabulate import read_counts
from trueup.ledger.questions import questions
from trueup.measuring import simulate
from trueup.model.geography import read_tree
from trueup.model.problem import Problem, public_cells
from trueup.model.spec import Spec, parse_spec

FRAME = {"state": ["02", "01", "01"], "county": ["001", "003", "001"], "n": [30, 7, 0]}


def _parquet(folder):
    path = folder / "areas.parquet"
    polars.DataFrame(FRAME).write_parquet(path)
    return path


def _gzip(folder):
    path = folder / "areas.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    return path


SOURCES = {
    "csv": lambda folder: write_areas(folder)[1],
    "csv.gz": _gzip,
    "parquet": _parquet,
    "pandas": lambda _: pandas.DataFrame(FRAME),
    "polars": lambda _: polars.DataFrame(FRAME),
    "polars lazy": lambda _: polars.LazyFrame(FRAME),
    "arrow": lambda _: pyarrow.table(FRAME),
    "duckdb": lambda _: duckdb.connect().from_arrow(pyarrow.table(FRAME)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_table_gives_the_same_counts(kind, tmp_path):
    spec = parse_spec(SPEC)
    source = SOURCES[kind](tmp_path)
    cells = public_cells(spec, source)
    assert cells.tree.sizes == (1, 2, 3)
    assert cells.label(0) == "01/001"
    assert read_counts(spec, cells, source).tolist() == list(TRUTH)


BAD_TABLES = [
    ("state,county,n\n01,001,5\n,003,7\n", "key column 'state' is missing a value in row 2"),
    ("state,county,n\n01,001,5\n01,001,7\n", "more than once"),
    ("state,county\n01,001\n", "has no column 'n'"),
    ("state,cuonty,n\n01,001,5\n", "has no column 'county'"),
    ("state,county,n\n01,001,-5\n", "column 'n' in row 1 of .* holds a negative number"),
    ("state,county,n\n01,001,5.5\n", r"row 1 of .*\(line 2\) holds text that is not a whole number"),
    ("state,county,n\n01,001,true\n", "not a whole number"),
    ("state,county,n\n01,001,NaN\n", "not a whole number"),
    ("state,county,n\n01,001,\n", "row 1 of .* holds no value"),
    ("state,county,n\n01,001,4611686018427387905\n", "beyond 2\\^62"),
    ("state,county,n\n01,001,99999999999999999999999999999\n", "not a whole number"),
    ("state,county,n\n", "a header but no rows"),
    ("", "'areas.csv' is empty"),
    ("state,county,n\n01,001,5\n02,00", "cannot be read"),
    ("state,county,n\n01,001,5,7\n", "cannot be read"),
    ("state,state,n\n01,001,5\n", "a name twice"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TABLES, ids=[m for _, m in BAD_TABLES])
def test_bad_tables_are_refused_by_name(text, message, tmp_path):
    spec = parse_spec(SPEC)
    _, path = write_areas(tmp_path, table=text)
    with pytest.raises(DataError, match=message) as caught:
        read_counts(spec, public_cells(spec, path), path)
    said = str(caught.value).replace(str(tmp_path), "")
    assert not any(count in said for count in ("5.5", "-5", "99999", "4611686018427387905"))


def test_blanks_around_keys_make_no_other_place(tmp_path):
    """One place in three rows is refused, and one that the geography and the counts write differently is one place."""
    spec = parse_spec(SPEC)
    one = "state,county,n\n01,001,5\n01, 001,7\n01,001\u00a0,7\n"
    _, path = write_areas(tmp_path, table=one)
    with pytest.raises(DataError, match=r"lists county '01/001' more than once, in row 1 .* and row 2"):
        public_cells(spec, path)
    _, path = write_areas(tmp_path, table="state,county,n\n 01,001 ,5\n01,002,7\n")
    cells = public_cells(spec, pandas.DataFrame({"state": ["01 ", "01"], "county": ["\t002", "001"]}))
    assert [cells.label(0), cells.label(1)] == ["01/001", "01/002"]
    assert read_counts(spec, cells, path).tolist() == [5, 7]


def test_places_written_as_floating_point_numbers_are_whole_numbers(tmp_path):
    spec = parse_spec(SPEC)
    table = "state,county,n\n1.0,1.0,5.0\n1.0,2.0,7.0\n"
    _, path = write_areas(tmp_path, table=table)
    cells = public_cells(spec, path)
    assert [cells.label(0), cells.label(1)] == ["1/1", "1/2"]
    assert read_counts(spec, cells, path).tolist() == [5, 7]
    assert read_counts(spec, cells, pandas.read_csv(path)).tolist() == [5, 7]


def test_codes_of_which_some_end_in_a_fraction_of_0_stay_codes(tmp_path):
    spec = parse_spec(SPEC)
    _, path = write_areas(tmp_path, table="state,county,n\n1,1.0,5\n1,1.1,7\n")
    cells = public_cells(spec, path)
    assert [cells.label(0), cells.label(1)] == ["1/1.0", "1/1.1"]
    assert read_counts(spec, cells, path).tolist() == [5, 7]


def test_two_places_that_differ_by_a_fraction_of_0_are_refused(tmp_path):
    spec = parse_spec(SPEC)
    _, path = write_areas(tmp_path, table="state,county,n\n1,1.0,5\n1,1,7\n1,1.1,7\n")
    cells = public_cells(spec, path)
    with pytest.raises(DataError, match=r"two places of level 'county' differ only by an ending '\.0'"):
        read_counts(spec, cells, path)


def test_values_that_differ_in_blanks_alone_are_one(tmp_path):
    with pytest.raises(SpecError, match="value of 'sex' 'f' is declared twice"):
        parse_spec(SPEC + '[[attribute]]\nname = "sex"\nvalues = ["f", " f"]\n')


MANY = [
    ("code", "x", "row 2 .*, row 3 .*, row 4 .*, row 5 .*, row 6 .* and 115 more name no place"),
    ("sex", "m", "outside the domain of 'sex' in row 2 .*, row 6 .* and 115 more"),
    ("sex", "", "has no value in row 2 .*, row 6 .* and 115 more"),
    ("n", "-1", "column 'n' in row 2 .*, row 6 .* and 115 more holds a negative number"),
]


@pytest.mark.parametrize(("column", "value", "said"), MANY)
def test_where_many_rows_fail_the_first_five_are_named_and_how_many_more(column, value, said, tmp_path):
    spec = parse_spec(
        SPEC.replace('keys = "public"', 'keys = "confidential"')
        + '[[attribute]]\nname = "sex"\nvalues = ["f"]\n'
    )
    codes = [f"{k:03}" for k in range(121)]
    cells = public_cells(spec, geography=pandas.DataFrame({"state": "01", "county": codes}))
    rows = pandas.DataFrame({"state": "01", "county": codes, "sex": "f", "n": "7"})
    rows.loc[1:, {"code": "county"}.get(column, column)] = value
    rows.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(DataError, match=said) as caught:
        read_counts(spec, cells, tmp_path / "rows.csv")
    assert "row 7 " not in str(caught.value)


def test_counts_at_fault_for_several_reasons_are_said_to_be():
    with pytest.raises(
        DataError,
        match="in row 1 and row 2 holds values that are not counts, the first of which is a fraction",
    ):
        whole_counts(np.array([0.5, -1.0]), "n")


BAD_COLUMNS = [
    ([1.0, 2.5], "a fraction"),
    ([1.0, np.nan], "no value"),
    ([1.0, np.inf], "an infinite number"),
    ([1.0, 2.0**53 + 2], "too large for a floating-point column"),
    ([1, pandas.NA], "no value"),
    ([True, False], "a boolean"),
    ([1, -3], "a negative number"),
    ([1, 2**62 + 1], "beyond 2\\^62"),
    (np.array([1, 2**63 + 5], dtype=np.uint64), "beyond 2\\^62"),
    ([None, 3], "no value"),
    ([b"3", 3], "a bytes"),
]


@pytest.mark.parametrize(("values", "message"), BAD_COLUMNS, ids=[m for _, m in BAD_COLUMNS])
def test_bad_counts_are_refused_by_kind(values, message):
    column = (
        values
        if isinstance(values, np.ndarray)
        else np.array(values, dtype=None if _plain(values) else object)
    )
    with pytest.raises(DataError, match=message):
        whole_counts(column, "n")


def _plain(values):
    return all(isinstance(v, float) for v in values) or all(isinstance(v, bool) for v in values)


BAD_FILES = {
    "truncated.csv.gz": gzip.compress(TABLE.encode() * 500)[:60],
    "not-gzip.csv.gz": b"state,county,n\n01,001,77\n",
    "not-parquet.parquet": b"state,county,n\n01,001,77\n",
    "latin.csv": "state,county,n\nÅ,001,77\n".encode("latin-1"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_not_what_their_name_says(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BAD_FILES[name])
    with pytest.raises(DataError, match="cannot be read") as caught:
        public_cells(parse_spec(SPEC), path)
    assert "77" not in str(caught.value)


def test_a_truncated_parquet_file_is_refused(tmp_path):
    path = _parquet(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        open_table(path).columns()


def test_a_missing_file_and_an_unknown_ending(tmp_path):
    with pytest.raises(DataError, match="no file"):
        open_table(tmp_path / "none.csv")
    (tmp_path / "areas.xls").write_text("x")
    with pytest.raises(DataError, match="unknown file extension"):
        open_table(tmp_path / "areas.xls")
    with pytest.raises(DataError, match="'list' is not a type of table"):
        open_table([1, 2])


RECORDS = SPEC.replace(
    'kind = "counts", counts = "person", count = "n", keys = "public"', 'kind = "records", counts = "person"'
)
SEX = '[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n'


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_records_are_tabulated_over_the_public_places(frame):
    spec = parse_spec(RECORDS + SEX)
    people = frame({"state": ["01"] * 4, "county": ["003"] * 4, "sex": ["f", "m", "f", "f"]})
    places = pandas.DataFrame({"state": ["01", "01"], "county": ["001", "003"]})
    cells = public_cells(spec, people, places)
    assert read_counts(spec, cells, people).tolist() == [0, 0, 3, 1]


def test_records_in_a_file_are_tabulated(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("state,county,sex\n" + "01,003,f\n" * 3 + "01,001,m\n")
    spec = parse_spec(RECORDS + SEX)
    cells = public_cells(spec, path, pandas.DataFrame({"state": ["01", "01"], "county": ["001", "003"]}))
    assert read_counts(spec, cells, path).tolist() == [0, 1, 3, 0]


def test_records_need_a_geography():
    with pytest.raises(DataError, match="no public geography"):
        public_cells(parse_spec(RECORDS), pandas.DataFrame({"state": ["01"], "county": ["001"]}))


def test_places_and_values_outside_the_public_domain_are_named():
    spec = parse_spec(RECORDS + SEX)
    places = pandas.DataFrame({"state": ["01"], "county": ["001"]})
    cells = public_cells(spec, geography=places)
    stray = pandas.DataFrame({"state": ["01"], "county": ["009"], "sex": ["f"]})
    with pytest.raises(DataError, match="row 1 of the DataFrame names no place of level 'county'"):
        read_counts(spec, cells, stray)
    other = pandas.DataFrame({"state": ["01"], "county": ["001"], "sex": ["x"]})
    with pytest.raises(DataError, match="outside the domain of 'sex'"):
        read_counts(spec, cells, other)


WIDE = """
format = 2
title = "Wide"
table = { name = "wide", kind = "counts", counts = "person", keys = "public", cell = [
  { count = "vap", where = { age = "adult" } }, { count = "pop - vap", where = { age = "child" } } ] }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "age", values = ["child", "adult"] }]
query = [{ name = "by age", attributes = ["age"], levels = ["area"], epsilon = 1 }]
"""


def test_a_wide_table_is_read_by_sums_of_columns():
    spec = parse_spec(WIDE)
    table = pandas.DataFrame({"area": ["b", "a"], "pop": [10, 5], "vap": [4, 5]})
    assert read_counts(spec, public_cells(spec, table), table).tolist() == [0, 5, 6, 4]


PIVOT = """
format = 2
title = "Homes"
table = { name = "homes", kind = "counts", counts = "home", cell = [
  { count = "Owner", where = { Tenure = "own" } }, { count = "Private rent + Social rent", where = { Tenure = "rent" } } ] }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [
  { name = "Tenure", values = ["own", "rent"] }, { name = "kind", column = "Type", values = ["flat", "house"], fold = true } ]
query = [{ name = "both", attributes = ["Tenure", "kind"], levels = ["area"], epsilon = 1 }]
"""


def test_a_pivot_table_has_one_attribute_in_columns_and_another_in_rows():
    spec = parse_spec(PIVOT.replace("Private rent + Social rent", "'Private rent' + 'Social rent'"))
    table = pandas.DataFrame(
        [["b", "House", 1, 2, 3], ["a", "FLAT", 4, 5, 6], ["b", "flat", 7, 8, 9]],
        columns=["area", "Type", "Owner", "Private rent", "Social rent"],
    )
    cells = public_cells(spec, geography=pandas.DataFrame({"area": ["a", "b"]}))
    counts = read_counts(spec, cells, table).reshape(2, 2, 2)  # by area, tenure, kind
    assert counts.tolist() == [[[4, 0], [11, 0]], [[7, 1], [17, 5]]]
    with pytest.raises(DataError, match="about the same cell"):
        read_counts(spec, cells, pandas.concat([table, table[:1]]))
    with pytest.raises(
        DataError, match=r"outside the domain of 'kind'.*leave out rows of sums such as Total"
    ):
        read_counts(spec, cells, table.assign(Type=["House", "Total", "flat"]))
    asked = [question.text for question in questions(spec, cells)]
    assert any("column 'Type' is there" in text for text in asked)
    assert not any("column 'Tenure'" in text for text in asked)


def test_a_wide_difference_below_zero_or_a_fraction_is_refused():
    table = pandas.DataFrame({"area": ["a"], "pop": [3], "vap": [4]})
    spec = parse_spec(WIDE)
    with pytest.raises(DataError, match=r"column 'pop - vap' in row 1 of .* holds a negative number"):
        read_counts(spec, public_cells(spec, table), table)
    half = parse_spec(WIDE.replace('"pop - vap"', '"pop - vap / 2"'))
    with pytest.raises(SpecError, match="holds a fraction"):
        read_counts(half, public_cells(half, table), table)


def test_every_combination_of_a_wide_table_must_be_listed():
    with pytest.raises(SpecError, match="lists 1 of 2 combinations"):
        parse_spec(WIDE.replace(', { count = "pop - vap", where = { age = "child" } }', ""))


def test_codes_by_prefix():
    levels = '[{ name = "state" }, { name = "county", column = "GEOID", prefix = 5 }, { name = "block", column = "GEOID" }]'
    spec = parse_spec(
        SPEC.replace(SPEC.splitlines()[5], f"level = {levels}").replace(
            '{ all = "1/4", state = "1/4", county = "1/2" }',
            '{ state = "1/4", county = "1/4", block = "1/2" }',
        )
    )
    tree = read_tree(spec, pandas.DataFrame({"GEOID": ["010011", "010012", "010031"], "n": [1, 2, 3]}))
    assert tree.sizes == (1, 2, 3)
    assert tree.label("county", 0) == "01001"
    with pytest.raises(DataError, match="shorter than the 5 characters"):
        read_tree(spec, pandas.DataFrame({"GEOID": ["1001"], "n": [1]}))


def test_a_place_that_is_listed_twice_is_named_with_its_rows(tmp_path):
    spec = parse_spec(SPEC)
    path = tmp_path / "places.csv"
    path.write_text("state,county,n\n02,001,1\n01,001,2\n02,003,3\n02,001,4\n")
    with pytest.raises(
        DataError, match=r"county '02/001' more than once, in row 1 of 'places\.csv' \(line 2\) and row 4"
    ):
        read_tree(spec, path)


@pytest.mark.parametrize("row", ["01,001", "01,001,2,5", '01,"001,2', "01,\udcff,2"])
def test_a_malformed_row_is_named_by_its_line_and_never_quoted(tmp_path, row):
    path = tmp_path / "places.csv"
    path.write_bytes(f"state,county,n\n02,001,1\n{row}\n02,003,3\n".encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"line 3 of 'places\.csv' cannot be read") as refused:
        open_table(path).select(["state", "county", "n"])
    assert not {"001", "003", "udcff"} & set(str(refused.value).replace("'", " ").split())


def test_csv_packed_by_zstd_that_ends_too_early_is_refused_wherever_it_does(tmp_path):
    """DuckDB reads what there is, and would release the first half of a nation's records as all of them."""
    whole, cut = tmp_path / "people.csv.zst", tmp_path / "cut.csv.zst"
    duckdb.sql(f"COPY (SELECT hash(range) AS n FROM range(30000)) TO '{whole}' (HEADER, COMPRESSION zstd)")
    packed = whole.read_bytes()
    assert len(open_table(whole).select(["n"])["n"]) == 30_000
    for size in range(1, len(packed), len(packed) // 20):
        cut.write_bytes(packed[:size])
        with pytest.raises(DataError, match="truncated"):
            open_table(cut)
    cut.write_bytes(packed + packed)  # as `cat` joins them
    assert len(open_table(cut).select(["n"])["n"]) == 60_001


def test_csv_packed_by_zstd(tmp_path):
    import duckdb

    path = tmp_path / "places.csv.zst"
    rows = "SELECT * FROM (VALUES ('01', '001', 3), ('02', '001', 4)) t(state, county, n)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT csv, HEADER, COMPRESSION zstd)")
    held = open_table(path).select(["state", "n"])
    assert [column.tolist() for column in held.values()] == [["01", "02"], ["3", "4"]]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="cannot be read"):
        open_table(path).select(["state"])


def test_parent_pointers_of_a_file():
    spec = parse_spec(
        SPEC.replace(', keys = "public"', "").replace(
            SPEC.splitlines()[5], 'level = [{ name = "all" }, { name = "state" }, { name = "county" }]'
        )
        + 'parents = { id = "id", parent = "up" }\n'
    )
    places = pandas.DataFrame({"id": ["us", "01", "02", "01a", "01b"], "up": [None, "us", "us", "01", "01"]})
    cells = public_cells(spec, geography=places)
    assert cells.tree.sizes == (1, 2, 3)
    counts = pandas.DataFrame({"id": ["02", "01b"], "n": [5, 6]})
    assert read_counts(spec, cells, counts).tolist() == [0, 6, 5]
    with pytest.raises(DataError, match="row 1 of the DataFrame names no place of level 'county'"):
        read_counts(spec, cells, pandas.DataFrame({"id": ["01"], "n": [6]}))


def test_a_missing_key_of_a_pandas_text_column_is_named():
    states = pandas.array(["01", None], dtype="string")
    frame = pandas.DataFrame({"state": states, "county": ["001", "003"], "n": [3, 4]})
    with pytest.raises(DataError, match="'state' is missing a value in row 2"):
        read_tree(parse_spec(SPEC), frame)


def test_the_last_key_is_found_below_a_whole_code():
    """A county number within a state code that is itself below a region: two key columns, not three."""
    levels = """level = [{ name = "all" }, { name = "region", column = "region" },
      { name = "state", column = "GEOID", prefix = 2 }, { name = "county", column = "county" }]"""
    text = SPEC.replace(SPEC[SPEC.index("level = [") : SPEC.index("query")], levels + "\n")
    spec = parse_spec(text)
    frame = pandas.DataFrame(
        {"region": ["w", "e"], "GEOID": ["02x", "01x"], "county": ["001", "001"], "n": [30, 7]}
    )
    cells = public_cells(spec, frame)
    assert dict(zip(map(cells.label, range(2)), read_counts(spec, cells, frame))) == {
        "02/001": 30,
        "01/001": 7,
    }


@pytest.mark.parametrize("kept", [True, False], ids=["to an empty folder", "to nothing"])
def test_a_link_is_refused_as_a_target_before_anything_is_done(kept, tmp_path):
    from trueup.files.writing import staged

    if kept:
        (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "folder")
    with pytest.raises(BundleError, match="is a symbolic link"), staged(tmp_path / "out"):
        pytest.fail("the run began")


def test_a_table_that_the_disk_refuses_is_an_error_of_the_bundle(tmp_path):
    from trueup.files.writing import write_parquet

    with pytest.raises(BundleError, match=r"cannot write 'counts\.parquet'"):
        write_parquet(tmp_path / "no such folder" / "counts.parquet", {"count": np.array([3])})


def test_simulated_measurements_are_never_written(tmp_path, rng):
    from trueup.io.bundle.write import write_measurements

    spec, frame = parse_spec(SPEC), pandas.DataFrame(FRAME)
    problem = Problem.of(spec, data=frame)
    simulated = simulate(problem, read_counts(spec, problem.cells, frame), rng)
    with pytest.raises(PrivacyError, match="simulated"):
        write_measurements(tmp_path, SPEC, simulated)
    assert not list(tmp_path.iterdir())


def test_a_list_of_places_at_an_address_is_refused_as_what_it_is():
    with pytest.raises(DataError, match=r"'s3:/places\.csv' is the address of a remote file"):
        open_table(Path("s3://places.csv"))


@pytest.mark.parametrize("address", ["s3a://census/people", "table:census.people", "file:///people"])
def test_an_address_is_for_a_cluster(address):
    with pytest.raises(DataError, match=r"is at a remote address.*--engine spark"):
        open_table(address)


def test_rows_that_do_not_fit_in_memory_are_not_spilled_where_anybody_reads_them(tmp_path, monkeypatch):
    """DuckDB's own choice is `.tmp` in the current folder, with the rows in it for everybody."""
    from trueup.files.database import connect, quiet_duckdb

    monkeypatch.chdir(tmp_path)
    rows = "CREATE TABLE t AS SELECT hash(range)::VARCHAR || 'a confidential row' AS a FROM range(1000000)"
    with (
        connect(memory_limit="20MB", threads=1) as connection,
        pytest.raises(TrueupError, match="needs more memory"),
        quiet_duckdb("'people.csv'"),
    ):
        connection.execute(rows)
    assert not list(tmp_path.iterdir())
    with connect(memory_limit="20MB", threads=1, temp_directory=str(tmp_path / "own")) as connection:
        connection.execute(rows)
        assert list((tmp_path / "own").iterdir())  # else the test has no power


def test_folders_above_what_a_path_names_are_no_columns(tmp_path):
    """DuckDB would put `state=99` in the place of the column of that name."""
    folder = tmp_path / "state=99"
    (folder / "people").mkdir(parents=True)
    frame = polars.DataFrame(FRAME)
    frame.write_parquet(folder / "people" / "areas.parquet")
    frame.write_csv(folder / "areas.csv")
    for path in ("people/areas.parquet", "people", "people/*.parquet", "areas.csv"):
        table = open_table(folder / path)
        assert table.columns() == ["state", "county", "n"]
        assert table.select(["state"])["state"].tolist() == FRAME["state"]


def test_folders_below_what_a_path_names_are_columns_of_text(tmp_path):
    for state, rows in polars.DataFrame(FRAME).group_by("state"):
        folder = tmp_path / "people" / f"state={state[0]}"
        folder.mkdir(parents=True)
        rows.drop("state").write_parquet(folder / "areas.parquet")
    for path in ("people", "people/*/areas.parquet", "people/state=*/*.parquet"):
        assert sorted(open_table(tmp_path / path).select(["state"])["state"]) == ["01", "01", "02"]
    assert "state" not in open_table(tmp_path / "people" / "state=01").columns()


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "latin-1"])
@pytest.mark.parametrize("many", [1, 7])
def test_records_of_one_place_without_attributes_are_counted(kind, many, tmp_path):
    spec = Spec.of(pandas.DataFrame({"note": ["x"]}))
    rows = pandas.DataFrame({"note": ["x"] * many})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.to_parquet(tmp_path / "rows.parquet")
    sources = {
        "csv": tmp_path / "rows.csv",
        "parquet": tmp_path / "rows.parquet",
        "pandas": rows,
        "polars": polars.from_pandas(rows),
        "latin-1": Encoded(str(tmp_path / "rows.csv"), "latin-1"),
    }
    assert read_counts(spec, public_cells(spec), sources[kind]).tolist() == [many]
