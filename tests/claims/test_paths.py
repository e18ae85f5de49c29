"""Claims: a path that exists is read by the letter, and DuckDB reaches nothing but the files it was given."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import duckdb
import numpy as np
import pytest

from tests.areas import SPEC, TRUTH
from trueup.errors import DataError
from trueup.files import csv_files, database, files_of, source
from trueup.files.database import connect, literal
from trueup.files.source import open_table
from trueup.files.writing import write_parquet
from trueup.io.microdata.by_parts import tabulate_by_parts
from trueup.measuring import read_confidential
from trueup.measuring.fingerprint import fingerprinting
from trueup.model.problem import public_cells
from trueup.model.spec import parse_spec

DECOY, KEY = "decoy", bytes(32)
NAMED = {
    "d[1].csv": "d1.csv",
    "d?.csv": "dx.csv",
    "d*.csv": "dxyz.csv",
    "~.csv": "x.csv",
    "d{1,2}.csv": "d2.csv",
}
"""Files whose names are patterns too, and others that these patterns match."""


def _write(path: Path, word: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        path.write_text(f"word\n{word}\n")
    else:
        write_parquet(path, {"word": np.array([word])})


def _read(path: Path) -> list[str]:
    return open_table(path).select(["word"])["word"].tolist()


def _fingerprint(path: Path) -> dict | None:
    with fingerprinting(path, KEY) as taking:
        pass
    return taking.get()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("name", NAMED)
def test_a_file_that_exists_is_read_alone(tmp_path, name, ending):
    path, decoy = (tmp_path / Path(n).with_suffix(ending) for n in (name, NAMED[name]))
    _write(path, "meant")
    _write(decoy, DECOY)
    assert files_of(path) == [path]
    assert _read(path) == ["meant"]
    before = _fingerprint(path)
    _write(decoy, "another decoy")
    assert _fingerprint(path) == before


def test_a_file_in_a_folder_whose_name_is_a_pattern_is_read_alone(tmp_path):
    for folder, word in (("year[1]", "meant"), ("year1", DECOY)):
        _write(tmp_path / folder / "people.parquet", word)
    assert _read(tmp_path / "year[1]") == _read(tmp_path / "year[1]" / "people.parquet") == ["meant"]


def test_a_path_that_does_not_exist_is_a_pattern(tmp_path):
    for name in ("d1.parquet", "d2.parquet", "e1.parquet"):
        _write(tmp_path / name, name)
    assert sorted(_read(tmp_path / "d[12].parquet")) == ["d1.parquet", "d2.parquet"]


def test_the_claim_is_broken_by_a_path_that_is_handed_on_as_it_is(tmp_path, monkeypatch):
    """What the tests above are there to see: DuckDB takes the name for a pattern."""
    _write(tmp_path / "d[1].parquet", "meant")
    _write(tmp_path / "d1.parquet", DECOY)
    for module in (database, csv_files):
        monkeypatch.setattr(module, "by_letter", lambda path: str(path))
    monkeypatch.setattr(source, "connect_to_files", lambda _: duckdb.connect())
    assert _read(tmp_path / "d[1].parquet") == [DECOY]


@pytest.mark.parametrize("engine", ["memory", "parts"])
def test_a_release_reads_the_file_that_is_named(tmp_path, engine):
    text = "state,county,n\n02,001,30\n01,003,7\n01,001,0\n"
    (tmp_path / "d[1].csv").write_text(text)
    (tmp_path / "d1.csv").write_text(text.replace("30", "31"))
    spec = parse_spec(SPEC)
    cells = public_cells(spec, tmp_path / "d[1].csv")
    if engine == "memory":
        assert tuple(read_confidential(spec, cells, tmp_path / "d[1].csv")) == TRUTH
        return
    counts = tabulate_by_parts(spec, cells, tmp_path / "d[1].csv", tmp_path / "out[1]", np.zeros(3, int))
    assert counts.read(0).count.tolist() == [c for c in TRUTH if c]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b.csv", "**x.csv", "", "nothing-*.csv"])
def test_a_path_that_leads_nowhere_is_an_ordinary_error(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"there is no (Parquet )?file"):
        files_of(Path(name))


def test_a_backslash_beside_a_wildcard_is_refused(tmp_path):
    _write(tmp_path / "a\\[1].csv", "meant")
    with pytest.raises(DataError, match="backslash"):
        open_table(tmp_path / "a\\[1].csv")


@pytest.fixture
def site():
    """A server on this machine that keeps what it is asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, format, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/people.parquet", asked
        server.shutdown()


def test_a_connection_opens_what_it_was_given_and_nothing_else(tmp_path, site):
    given, other, inside = (tmp_path / n for n in ("given.parquet", "other.parquet", "in/side.parquet"))
    for path in (given, other, inside):
        _write(path, path.stem)
    with connect(files=[given], folders=[inside.parent]) as connection:
        for path in (given, inside):
            assert connection.sql(f"FROM read_parquet({literal(str(path))})").fetchall() == [(path.stem,)]
        url, asked = site
        refused = [
            f"FROM read_parquet({literal(str(other))})",
            f"FROM read_text({literal(str(tmp_path / '*'))})",
            f"FROM read_parquet({literal(url)})",
            f"COPY (SELECT 1) TO {literal(str(other))} (FORMAT parquet)",
            f"COPY (SELECT 1) TO {literal(str(tmp_path / 'new.csv'))}",
            f"ATTACH {literal(str(tmp_path / 'new.db'))}",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SET autoinstall_known_extensions = true",
            f"SET allowed_paths = [{literal(str(other))}]",
        ]
        for query in refused:
            with pytest.raises(duckdb.Error):
                connection.execute(query)
        assert not asked
    assert sorted(p.name for p in tmp_path.iterdir()) == ["given.parquet", "in", "other.parquet"]


def test_one_place_makes_every_connection():
    """Whoever connects elsewhere escapes the restrictions above."""
    package = Path(database.__file__).parents[1]
    makers = [p for p in package.rglob("*.py") if "duckdb.connect(" in p.read_text()]
    assert makers == [Path(database.__file__)]
