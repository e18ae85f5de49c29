"""Columns on disk: text stays text, and one connection writes many files."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from trueup.files.database import connect
from trueup.files.source import open_table
from trueup.files.writing import write_parquet

TEXTS = [[], ["01", "02"], ["nan", "None", "", "é", "a'b"]]


@pytest.mark.parametrize("text", TEXTS, ids=len)
def test_text_stays_text(tmp_path, text):
    """A column that DuckDB took by its values would lose its type where it has none."""
    path = tmp_path / "texts.parquet"
    write_parquet(path, {"text": np.array(text, dtype="U4"), "row": np.arange(len(text))})
    read = duckdb.connect().read_parquet(str(path))
    assert [str(kind) for kind in read.types] == ["VARCHAR", "BIGINT"]
    assert read.fetchall() == [(value, row) for row, value in enumerate(text)]


def test_a_shared_connection_writes_the_same_bytes(tmp_path):
    first, second = {"a": np.array(["x", "y"])}, {"b": np.arange(3)}
    with connect(folders=[tmp_path]) as connection:
        write_parquet(tmp_path / "1", first, connection)
        write_parquet(tmp_path / "2", second, connection)
    write_parquet(tmp_path / "3", first)
    write_parquet(tmp_path / "4", second)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "3").read_bytes()
    assert (tmp_path / "2").read_bytes() == (tmp_path / "4").read_bytes()


@pytest.mark.parametrize("in_files", [False, True])
def test_long_columns_of_text_are_written_chunk_by_chunk(tmp_path, monkeypatch, in_files):
    from trueup.files import writing

    monkeypatch.setattr(writing, "CHUNK", 3)
    monkeypatch.setattr(writing, "HELD", 6 if in_files else 7)
    held = {
        "key": np.array(list("abcdefg")),
        "count": np.arange(7),
        "flag": np.ma.masked_less(np.arange(7), 2),
    }
    for _ in range(2):
        write_parquet(tmp_path / "long.parquet", held)
        found = open_table(tmp_path / "long.parquet").select(list(held))
        assert found["key"].tolist() == list("abcdefg")
        assert found["count"].tolist() == list(range(7))
        assert found["flag"].tolist() == [None, None, 2, 3, 4, 5, 6]
        assert [path.name for path in tmp_path.iterdir()] == ["long.parquet"]
