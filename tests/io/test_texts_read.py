"""Keys of places and the places of measurements, read some rows at a time: what is read is what was written."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from trueup.errors import BundleError
from trueup.files import database
from trueup.files.database import connect, parquet, text_columns
from trueup.io.bundle import tables
from trueup.io.bundle.places import read_place_levels, write_places
from trueup.io.bundle.tables import read_values, write_measured
from trueup.model.cells import Cells, Margin
from trueup.model.header import Measured
from trueup.model.tables import place_keys, readable_names
from trueup.model.tree import Tree
from trueup.noise import law_named

LEVELS = ["all", "state", "county"]


@pytest.fixture(params=[1, 2, 3, 1 << 16])
def few(request, monkeypatch):
    """Rows that are read at a time."""
    monkeypatch.setattr(database, "TEXTS_AT_ONCE", request.param)
    monkeypatch.setattr(tables, "TEXTS_AT_ONCE", request.param)


@pytest.fixture
def tree():
    states, counties = list("aabbb"), ["1", "22", "1", "2~/", "3"]
    names = [None, ["Ah", "Ah", None, None, None], ["One", None, "x" * 500, "Two", "3"]]
    return Tree.from_columns(LEVELS, [{}, {"state": states}, {"county": counties}], names=names)


def test_places_are_those_that_were_written(few, tree, tmp_path):
    write_places(tmp_path / "places.parquet", Cells(tree))
    again = read_place_levels(tmp_path / "places.parquet", LEVELS)
    assert again.digest == tree.digest
    assert again.names[0] is None
    for found, wanted in zip(again.names[1:], tree.names[1:]):
        assert np.asarray(found).tolist() == np.asarray(wanted).tolist()


def test_equal_columns_are_one_array_and_others_are_not(few, tmp_path):
    """A file from elsewhere may say at a level what contradicts the level above: equal beginnings do not make columns alike."""
    path = tmp_path / "table.parquet"
    duckdb.sql(
        "COPY (FROM (VALUES ('u', 'u', 'u'), ('v', 'v', 'v'), ('w', 'w', 'x'), ('y', 'y', 'y')) t(a, b, c)) "
        f"TO '{path}' (FORMAT parquet)"
    )
    with connect(files=[path], threads=1) as connection:
        found = text_columns(connection, ["a", "b", "c"], parquet([path]))
    assert found["a"] is found["b"]
    assert found["a"].tolist() == ["u", "v", "w", "y"]
    assert found["c"].tolist() == ["u", "v", "x", "y"]


def test_long_texts_among_short_ones_take_no_room_in_each_row(few, tmp_path):
    path = tmp_path / "table.parquet"
    duckdb.sql(
        f"COPY (SELECT repeat('x', (i ** 5)::BIGINT) AS a FROM range(1, 5) t(i)) TO '{path}' (FORMAT parquet)"
    )
    with connect(files=[path], threads=1) as connection:
        found = text_columns(connection, ["a"], parquet([path]))["a"]
    assert found.dtype == object
    assert list(map(len, found)) == [1, 32, 243, 1024]


def test_values_of_places_out_of_order_are_refused(few, tree, tmp_path):
    cells, law = Cells(tree), law_named("discrete-laplace")("1")
    headers = [Measured(query, Margin("county"), law) for query in ("first", "second")]
    values = [np.arange(5), np.arange(5, 10)]
    path, other = tmp_path / "measured.parquet", tmp_path / "other.parquet"
    write_measured(path, cells, headers, values)
    with connect(files=[path, other], threads=1) as connection:
        found = read_values(connection, parquet([path]), cells, headers)
        assert [one.tolist() for one in found] == [one.tolist() for one in values]
        for swapped in ("'b/1' WHEN place = 'b/1' THEN 'b/3'", "'a/1' WHEN place = 'b/3' THEN 'b/3'"):
            duckdb.sql(
                f"COPY (SELECT * REPLACE (CASE WHEN place = 'b/3' THEN {swapped} ELSE place END AS place) FROM '{path}') "
                f"TO '{other}' (FORMAT parquet)"
            )
            with pytest.raises(BundleError, match="do not list the places of level 'county' in order"):
                read_values(connection, parquet([other]), cells, headers)


def test_keys_and_names_of_some_places_are_those_of_all(tree):
    some = np.array([4, 0, 3])
    for of in (place_keys, readable_names):
        every = of(tree, 2)
        found = of(tree, 2, some)
        assert list(found) == list(every)
        assert all(found[name].tolist() == column[some].tolist() for name, column in every.items())
