"""Columns on disk: text stays text, and one connection writes many files."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from trueup.files.columns import write_parquet
from trueup.files.source import connect

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
