"""Connections that share a database: files are read as they are, and forked processes end and read as others do."""

import os
import subprocess
import sys

import pytest

from trueup.files import database
from trueup.files.database import connect_to_files

FORKED = """
import os, sys
from trueup.files.source import open_table
open_table(sys.argv[1]).select(["a"])
if not os.fork():
    for path in sys.argv[1:]:
        open_table(path).select(["a"])
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def lines_of(path):
    with connect_to_files([path]) as connection:
        return connection.sql(f"FROM read_csv('{path}')").fetchall()


def test_a_file_that_changed_is_read_as_it_is_now(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    before = path.stat()
    assert lines_of(path) == [(1,)]
    path.write_text("a\n2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert lines_of(path) == [(2,)]


def test_ashared_database_opens_no_other_file_and_keeps_no_table(tmp_path):
    import duckdb

    path, other = tmp_path / "t.csv", tmp_path / "other.csv"
    path.write_text("a\n1\n")
    other.write_text("a\n2\n")
    lines_of(path)
    with connect_to_files([path]) as connection, pytest.raises(duckdb.PermissionException):
        connection.sql(f"FROM read_csv('{other}')")


def test_large_files_are_not_shared(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    database.shared_database.cache_clear()
    monkeypatch.setattr(database, "MAX_SHARED_BYTES", 3)
    assert lines_of(path) == [(1,)]
    assert not database.shared_database.cache_info().currsize


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_reads_files_and_ends(tmp_path):
    """It has no copies of a database's threads: it hung at the fourth file, or crashed at its end."""
    for number in range(7):
        (tmp_path / f"{number}.csv").write_text("a\n1\n")
    paths = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", FORKED, *paths], timeout=120, check=False)
    assert done.returncode == 0
