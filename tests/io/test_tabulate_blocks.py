"""Tabulation by blocks counts and refuses what the ordinary reading of a table does."""

from __future__ import annotations

import datetime
import gzip

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parameters import one_in
from trueup.errors import BundleError, DataError, SpecError, TrueupError
from trueup.files import Encoded
from trueup.io.microdata.by_parts import SparseCounts, tabulate_by_parts
from trueup.io.microdata.tabulate import read_counts
from trueup.io.microdata.truncate import Limit
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec

COUNTS = """
format = 2
title = "Blocks"
table = { name = "blocks", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "state", column = "code", prefix = 1 }, { name = "block", column = "code", prefix = 2 }]
attribute = [{ name = "sex", values = ["f", "it's", "True"] }, { name = "age", column = "years", values = ["1", "2"] }]
query = [{ name = "total", epsilon = { block = "1/2" } }]
"""
RECORDS = COUNTS.replace('kind = "counts"', 'kind = "records"').replace(', count = "n"', "")
DAYS_HEAD = """
format = 2
title = "Days"
privacy = { unit = "person", neighbours = "add-remove" }
"""
DAYS = (
    DAYS_HEAD
    + """
table = { name = "days", kind = "counts", counts = "person", count = "n" }
level = [{ name = "all" }, { name = "day", column = "day" }]
query = [{ name = "total", epsilon = { all = "1/2" } }]
"""
)
PLACES = pandas.DataFrame({"code": ["11", "12", "21", "22", "30"]})
PARTS = np.array([1, 0, 2, 2, 0])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([*PLACES["code"], "12z"]),  # a longer code of the place 12
        st.sampled_from(["f", "it's", "True"]),
        st.sampled_from(["1", "2"]),
        st.integers(0, 3) | st.integers(0, 2**61),
    ),
    max_size=12,
)
FAULTS = {
    "code": ["99", "", None, "1", " 12 ", "11.0", "\u3000"],
    "sex": ["F", " f", "\u3000f\xa0", " ", "", None],
    "years": ["01", "1.0", "1.00\t", "1.1", "1.", None],
    "n": [
        "-1",
        "1.5",
        "1e2",
        "",
        None,
        str(2**62 + 1),
        "9" * 30,
        " 7 ",
        "\xa07",
        "7.0",
        "7.",
        "-0.0",
        "x",
        "٣",
        "-0",
    ],
}


def _csv(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def _gzip(frame, folder):
    (folder / "rows.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    return folder / "rows.csv.gz"


def _utf_16(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False, encoding="utf-16")
    return Encoded(str(folder / "rows.csv"), "utf-16")


def _parquet(frame, folder):
    frame.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def _folder(frame, folder):
    (folder / "rows" / "deep").mkdir(parents=True)
    frame[::2].to_parquet(folder / "rows" / "a.parquet")
    frame[1::2].to_parquet(folder / "rows" / "deep" / "b.parquet")
    (folder / "rows" / "_SUCCESS").touch()
    return folder / "rows"


SOURCES = {
    "csv": _csv,
    "csv.gz": _gzip,
    "utf-16": _utf_16,
    "parquet": _parquet,
    "folder": _folder,
    "pattern": lambda frame, folder: _folder(frame, folder) / "**" / "*.parquet",
    "duckdb": lambda frame, folder: duckdb.connect().from_df(frame),
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: polars.from_pandas(frame),
    "arrow": lambda frame, folder: pyarrow.Table.from_pandas(frame),
}


def _frame(rows):
    return pandas.DataFrame(rows, columns=["code", "sex", "years", "n"]).astype({"n": "int64"})


def _dense(counts: SparseCounts, cells) -> np.ndarray:
    """Scatter every part, and hold its layout to what it promises."""
    dense = np.zeros((cells.shape[0], cells.n // cells.shape[0]), np.int64)
    for part in range(counts.parts):
        place, cell, count = counts.read(part)
        assert (PARTS[place] == part).all()
        assert (count > 0).all()
        assert (np.diff(place * dense.shape[1] + cell) > 0).all()
        assert (place.dtype, cell.dtype, count.dtype) == (np.int64, np.int32, np.int64)
        dense[place, cell] = count
    return dense.ravel()


def _outcome(run):
    """The counts, or the message that refuses them."""
    try:
        return run().tolist()
    except DataError as error:
        return str(error)


@pytest.mark.thorough
@pytest.mark.parametrize("text", [COUNTS, RECORDS], ids=["counts", "records"])
@pytest.mark.parametrize("kind", one_in(2, SOURCES))
def test_every_source_gives_the_counts_of_the_ordinary_reading(kind, text, tmp_path_factory):
    spec = parse_spec(text)
    cells = public_cells(spec, geography=PLACES)

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(ROWS)
    def agree(rows):
        folder = tmp_path_factory.mktemp("random")
        source = SOURCES[kind](_frame(rows), folder)
        ours = _outcome(lambda: _dense(tabulate_by_parts(spec, cells, source, folder / "out", PARTS), cells))
        assert ours == _outcome(lambda: read_counts(spec, cells, source))
        assert (folder / "out").exists() == isinstance(ours, list)

    agree()


@pytest.mark.parametrize(
    ("column", "value"), one_in(2, ((c, v) for c in FAULTS for v in FAULTS[c])), ids=lambda v: repr(v)
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_refused_and_how_is_the_same(column, value, kind, tmp_path):
    spec = parse_spec(COUNTS)
    cells = public_cells(spec, geography=PLACES)
    frame = pandas.DataFrame({"code": ["11", "12"], "sex": ["f", "f"], "years": ["1", "2"], "n": ["3", "4"]})
    frame.loc[1, column] = value
    source = SOURCES[kind](frame, tmp_path)
    ours = _outcome(lambda: _dense(tabulate_by_parts(spec, cells, source, tmp_path / "out", PARTS), cells))
    assert ours == _outcome(lambda: read_counts(spec, cells, source))


TOWNS = pandas.DataFrame({"county": ["1", "1", "2", "2", "2"], "town": ["a", "b", "c", "d", "e"]})
TOLD = """
format = 2
title = "Towns"
table = { name = "towns", kind = "records", counts = "person", place = ["town"] }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town" }]
query = [{ name = "total", epsilon = { town = "1/2" } }]
"""


@pytest.mark.parametrize("other", [{}, {"county": "9"}])
@pytest.mark.parametrize("rows", [["b", "e", "e", "a"], ["b", "x"], ["b", ""]])
def test_rows_that_name_the_town_alone_are_counted_where_the_public_list_has_it(rows, other, tmp_path):
    """In memory and by parts alike; a county that the table holds, too, is not looked at."""
    spec = parse_spec(TOLD)
    cells = public_cells(spec, geography=TOWNS)
    source = _csv(pandas.DataFrame({"town": rows, **other}), tmp_path)
    ours = _outcome(lambda: _dense(tabulate_by_parts(spec, cells, source, tmp_path / "out", PARTS), cells))
    assert ours == _outcome(lambda: read_counts(spec, cells, source))
    assert ours == [1, 1, 0, 0, 2] if len(rows) == 4 else "'town'" in ours


def test_what_tells_the_place_is_named_where_columns_of_larger_ones_are_wanting(tmp_path):
    cells = public_cells(spec := parse_spec(TOLD.replace(', place = ["town"]', "")), geography=TOWNS)
    with pytest.raises(DataError, match=r"no column 'county'.*write place = \[\"town\"\] in \[table\]"):
        read_counts(spec, cells, pandas.DataFrame({"town": ["a"]}))
    with pytest.raises(DataError, match=r"no column 'county'.*write place = \[\"town\"\] in \[table\]"):
        tabulate_by_parts(
            spec, cells, _csv(pandas.DataFrame({"town": ["a"]}), tmp_path), tmp_path / "out", PARTS
        )


def test_a_name_that_several_places_share_tells_no_place():
    spec = parse_spec(TOLD.replace('place = ["town"]', 'place = ["county"]'))
    with pytest.raises(
        SpecError, match="'county', in which several places of level 'town' have the same key"
    ):
        read_counts(spec, public_cells(spec, geography=TOWNS), pandas.DataFrame({"county": ["1"]}))
    with pytest.raises(SpecError, match="unknown column of a level 'village'"):
        parse_spec(TOLD.replace('place = ["town"]', 'place = ["village"]'))


def _cells(text=COUNTS):
    spec = parse_spec(text)
    return spec, public_cells(spec, geography=PLACES)


@pytest.mark.thorough
def test_more_rows_than_memory_holds_are_counted(tmp_path, rng):
    """Half a million distinct cells in 100 MB: most of them are spilled to the output's disk."""
    spec = parse_spec(RECORDS.replace("prefix = 2", "prefix = 7").replace("prefix = 1", "prefix = 2"))
    codes = np.char.zfill(np.arange(200_000).astype(str), 7)
    cells = public_cells(spec, geography=pandas.DataFrame({"code": codes}))
    rows = rng.integers(0, cells.n, 1_000_000)
    place, cell = np.divmod(rows, 6)
    people = {
        "code": codes[place],
        "sex": np.array(["f", "it's", "True"])[cell // 2],
        "years": np.array(["1", "2"])[cell % 2],
    }
    pyarrow.parquet.write_table(pyarrow.table(people), tmp_path / "people.parquet")
    parts = np.arange(200_000) // 50_000
    out = tmp_path / "out"
    counts = tabulate_by_parts(spec, cells, tmp_path / "people.parquet", out, parts, memory="100MB")
    dense = np.zeros((200_000, 6), np.int64)
    for place, cell, count in map(counts.read, range(4)):
        dense[place, cell] = count
    assert np.array_equal(dense.ravel(), np.bincount(rows, minlength=cells.n))


def test_only_the_owner_can_read_the_counts_and_nothing_else_is_left(tmp_path):
    spec, cells = _cells()
    tabulate_by_parts(spec, cells, _frame([("11", "f", "1", 5)]), tmp_path / "out", PARTS)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "out",
        *(f"part-{b:06d}.parquet" for b in range(3)),
    ]


def test_a_lost_or_truncated_part_is_refused(tmp_path):
    spec, cells = _cells()
    counts = tabulate_by_parts(spec, cells, _frame([("11", "f", "1", 5)]), tmp_path / "out", PARTS)
    counts.part(0).unlink()
    counts.part(1).write_bytes(counts.part(1).read_bytes()[:-9])
    with pytest.raises(DataError, match="the file of part 0 is missing"):
        counts.read(0)
    with pytest.raises(DataError, match="cannot be read"):
        counts.read(1)


def test_a_wide_table_is_taken_cell_by_cell(tmp_path):
    cell = ", ".join(
        f'{{ count = "c{i}", where = {{ sex = "{sex}", age = "{age}" }} }}'
        for i, (sex, age) in enumerate((s, a) for s in ("f", "it's", "True") for a in "12")
    )
    spec, cells = _cells(COUNTS.replace('count = "n"', f"cell = [{cell}]"))
    table = PLACES.assign(**{f"c{i}": np.arange(5) * (i % 3) for i in range(6)})
    _parquet(table, tmp_path)
    counts = tabulate_by_parts(spec, cells, tmp_path / "rows.parquet", tmp_path / "out", PARTS)
    assert np.array_equal(_dense(counts, cells), read_counts(spec, cells, table))


def test_a_country_without_levels_below_is_one_place(tmp_path):
    level = COUNTS[COUNTS.index("level =") : COUNTS.index("attribute")]
    text = RECORDS.replace(level, 'level = [{ name = "all" }]\n').replace("block =", "all =")
    spec = parse_spec(text)
    cells = public_cells(spec)
    _parquet(_frame([("", "f", "2", 0)] * 3), tmp_path)
    counts = tabulate_by_parts(spec, cells, tmp_path / "rows.parquet", tmp_path / "out", np.array([0]))
    assert [column.tolist() for column in counts.read(0)] == [[0], [1], [3]]


@pytest.mark.parametrize("text", [COUNTS, RECORDS], ids=["counts", "records"])
@pytest.mark.parametrize("expected", [None, 0, 2, 3])
@pytest.mark.parametrize("rows", [0, 2])
def test_an_empty_table_and_another_number_of_rows_are_refused(text, expected, rows, tmp_path):
    """In memory and by parts alike; the number that was found is not said."""
    spec = parse_spec(text)
    cells = public_cells(spec, geography=pandas.DataFrame(PLACES))
    people = _frame([("11", "f", "1", 5), ("11", "it's", "1", 5)]).head(rows).astype(str)
    people.to_csv(tmp_path / "rows.csv", index=False)
    for read in (
        lambda source: read_counts(spec, cells, source, rows=expected),
        lambda source: tabulate_by_parts(spec, cells, source, tmp_path / "out", PARTS, expected=expected),
    ):
        if rows == expected or (expected is None and rows):
            read(tmp_path / "rows.csv")
            continue
        with pytest.raises(
            DataError, match="no rows" if expected is None else f"not have {expected} rows"
        ) as said:
            read(tmp_path / "rows.csv")
        assert expected == rows or f" {rows} " not in str(said.value)


def test_sums_that_would_wrap_around_are_refused(tmp_path):
    spec, cells = _cells()
    rows = _frame([(code, "f", "1", 2**62) for code in PLACES["code"]])
    with pytest.raises(DataError, match=r"sum of all counts is beyond 2\^62"):
        tabulate_by_parts(spec, cells, _parquet(rows, tmp_path), tmp_path / "out", PARTS)


def test_types_that_are_neither_text_nor_whole_are_refused(tmp_path):
    spec, cells = _cells()
    rows = _frame([("11", "f", "1", 5)]).assign(years=datetime.time(9))
    with pytest.raises(DataError, match=r"'years' of 'rows\.parquet' is of the type TIME"):
        tabulate_by_parts(spec, cells, _parquet(rows, tmp_path), tmp_path / "out", PARTS)


@pytest.mark.parametrize("given", ["datetime64[ns]", "datetime64[s]", "object"])
def test_dates_at_midnight_are_places_by_their_day(given, tmp_path):
    """A column of a type of dates names the places that a list writes as text, and the other way round."""
    spec = parse_spec(DAYS)
    times = pandas.Series(pandas.to_datetime(["2025-03-01", "2025-03-02"])).astype(given)
    rows = pandas.DataFrame({"day": times, "n": [5, 7]})
    later = pandas.DataFrame({"day": pandas.to_datetime(["2025-03-01 10:30"]), "n": [3]})
    listed = pandas.DataFrame({"day": ["2025-03-01", "2025-03-02", "2025-03-01 10:30:00"]})
    cells = public_cells(spec, geography=listed)
    sorted_days = ["2025-03-01", "2025-03-01 10:30:00", "2025-03-02"]
    assert cells.tree.keys[-1]["day"].tolist() == sorted_days
    assert public_cells(spec, geography=pandas.concat([rows, later])).tree.labels("day") == sorted_days
    for number, (table, expected) in enumerate([(rows, [5, 0, 7]), (later, [0, 3, 0])]):
        assert read_counts(spec, cells, table).tolist() == expected
        counted = tabulate_by_parts(
            spec, cells, _parquet(table, tmp_path), tmp_path / f"out{number}", PARTS[:3]
        )
        assert _dense(counted, cells).tolist() == expected


def test_places_may_be_whole_floating_point_numbers_and_not_fractions():
    spec = parse_spec(DAYS.replace('"day"', '"area"'))
    keys = public_cells(spec, geography=pandas.DataFrame({"area": [3.0, 10.0]})).tree.keys[-1]["area"]
    assert keys.tolist() == ["10", "3"]
    with pytest.raises(DataError, match="'area' holds numbers with a fraction"):
        public_cells(spec, geography=pandas.DataFrame({"area": [3.5, 10.0]}))
    with pytest.raises(DataError, match="has a header but no rows"):
        public_cells(spec, geography=pandas.DataFrame({"area": np.array([], float)}))


AGES = (
    DAYS_HEAD
    + """
table = { name = "ages", kind = "records", counts = "person" }
level = [{ name = "all" }]
attribute = [{ name = "age", bins = [0, 18] }]
query = [{ name = "age", attributes = ["age"], epsilon = { all = "1/2" } }]
"""
)


def test_other_is_advised_for_what_it_reads_and_alike_for_every_value():
    """A remedy that fits the value would tell of a confidential row what kind of value it holds."""
    spec = parse_spec(AGES)
    said = set()
    for age in ("-3", "20.5", "forty"):
        with pytest.raises(
            DataError, match='count whole numbers below 0 together: `other = "other"`'
        ) as refused:
            read_counts(spec, public_cells(spec), pandas.DataFrame({"age": ["20", age]}))
        said.add(str(refused.value))
    assert len(said) == 1
    spec = parse_spec(AGES.replace("[0, 18]", '[0, 18], other = "other"'))
    assert read_counts(spec, public_cells(spec), pandas.DataFrame({"age": ["20", "-3"]})).tolist() == [
        0,
        1,
        1,
    ]


@pytest.mark.parametrize("write", [_csv, _parquet])
def test_whole_numbers_with_a_fraction_of_0_are_read_as_whole(write, tmp_path):
    """As pandas makes of integers with a gap anywhere in the column."""
    spec, cells = _cells()
    rows = _frame([("11", "f", "1", 5), ("30", "it's", "2", 7)])
    floats = rows.astype({"code": float, "years": float, "n": float})
    source = write(floats, tmp_path)
    expected = read_counts(spec, cells, rows).tolist()
    assert sum(expected) == 12
    assert read_counts(spec, cells, source).tolist() == expected
    assert read_counts(spec, cells, floats).tolist() == expected
    counted = tabulate_by_parts(spec, cells, source, tmp_path / "out", PARTS)
    assert _dense(counted, cells).tolist() == expected


@pytest.mark.parametrize("gap", [np.nan, 1.5])
def test_gaps_and_fractions_among_floats_are_named(gap, tmp_path):
    spec, cells = _cells()
    rows = _frame([("11", "f", "1", 5), ("30", "f", "2", 7)])
    rows["years"] = [1.0, gap]
    said = "no value in row 2" if np.isnan(gap) else "outside the domain of 'age' in row 2"
    with pytest.raises(DataError, match=said):
        read_counts(spec, cells, rows)
    with pytest.raises(DataError, match=said):
        tabulate_by_parts(spec, cells, _parquet(rows, tmp_path), tmp_path / "out", PARTS)


def test_a_unit_is_one_unit_with_blanks_and_without(tmp_path):
    spec = parse_spec(
        RECORDS.replace('"add-remove" }', '"add-remove", id = "who", contribution = { records = 1 } }')
    )
    cells = public_cells(spec, geography=PLACES)
    rows = _frame([("11", "f", "1", 5)] * 4).drop(columns="n").assign(who=["7", " 7", "7.0", "8"])
    limit = Limit("who", 1, "00")
    assert read_counts(spec, cells, rows, limit).sum() == 2
    counted = tabulate_by_parts(
        spec, cells, _csv(rows, tmp_path), tmp_path / "out", PARTS, limit=Limit("who", 1, "00")
    )
    assert _dense(counted, cells).sum() == 2


def test_columns_that_the_spec_does_not_name_may_be_called_as_those_that_are_added(tmp_path):
    """A table of places and parts stands beside the rows while they are counted."""
    spec, cells = _cells()
    rows = _frame([("11", "f", "1", 5), ("30", "it's", "2", 7)])
    more = rows.assign(part="x", place="y", k0="z", cell=1, count=2, rows=3, bad=4, unit="u")
    counted = tabulate_by_parts(spec, cells, _csv(more, tmp_path), tmp_path / "out", PARTS)
    assert _dense(counted, cells).tolist() == read_counts(spec, cells, rows).tolist()


def test_a_folder_without_tables_an_occupied_target_and_misplaced_parts(tmp_path):
    spec, cells = _cells()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Parquet file in the folder"):
        tabulate_by_parts(spec, cells, tmp_path / "empty", tmp_path / "out", PARTS)
    with pytest.raises(DataError, match="4 places are assigned to parts"):
        tabulate_by_parts(spec, cells, _frame([]), tmp_path / "out", PARTS[:4])
    with pytest.raises(BundleError, match="is not empty"):
        tabulate_by_parts(spec, cells, _frame([]), tmp_path, PARTS)
    with pytest.raises(TrueupError, match="needs more memory"):
        tabulate_by_parts(spec, cells, _frame([("11", "f", "1", 5)]), tmp_path / "out", PARTS, memory="100KB")
    with pytest.raises(SpecError, match="'lots' is not a size"):
        tabulate_by_parts(spec, cells, _frame([]), tmp_path / "out", PARTS, memory="lots")
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]
