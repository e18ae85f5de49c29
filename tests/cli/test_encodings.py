"""`--encoding` is of the files that need one: a file in UTF-8 beside them is read as it is."""

from __future__ import annotations

import pytest

from trueup.cli.options import with_encoding
from trueup.files import Encoded
from trueup.files.csv_files import is_utf8
from trueup.files.source import open_table

TEXT = "area,n\nÅbo,3\nMalmö,4\n"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "iso2022_jp_2", "cp500"])
def test_each_file_is_read_in_its_own_encoding(encoding, tmp_path):
    text = TEXT if encoding != "iso2022_jp_2" else TEXT.replace("ö", "大").replace("Å", "A")
    (tmp_path / "one.csv").write_text(text, encoding=encoding)
    (tmp_path / "two.csv").write_text(text, encoding="utf-8")
    (tmp_path / "plain.csv").write_text("area,n\nLund,3\n")
    one, two, plain = (with_encoding(tmp_path / f"{name}.csv", encoding) for name in ("one", "two", "plain"))
    assert isinstance(one, Encoded)
    assert not isinstance(two, Encoded)
    assert (
        open_table(one).select(["area"])["area"].tolist() == open_table(two).select(["area"])["area"].tolist()
    )
    assert open_table(plain).select(["area"])["area"].tolist() == ["Lund"]


def test_a_letter_across_two_blocks_is_one_letter(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a" * ((1 << 20) - 1) + "é\n", encoding="utf-8")
    assert is_utf8(path)
    path.write_bytes(path.read_bytes()[:-2])
    assert not is_utf8(path)


def test_a_file_that_is_not_there_is_left_to_whoever_opens_it(tmp_path):
    assert isinstance(with_encoding(tmp_path / "none.csv", "latin-1"), Encoded)
    assert with_encoding(tmp_path / "none.parquet", "latin-1") == tmp_path / "none.parquet"
    assert with_encoding(None, "latin-1") is None
