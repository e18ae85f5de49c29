"""`trueup change`."""

from __future__ import annotations

import json

import duckdb
import pytest

from tests.areas import TABLE, write_areas
from tests.command import run


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    folder = tmp_path_factory.mktemp("years")
    spec, table = write_areas(folder)
    assert run("release", spec, "--data", table, "--out", folder / "one").returncode == 0
    table.write_text(TABLE.replace("02,001,30", "02,001,9000"))
    assert run("release", spec, "--data", table, "--out", folder / "two").returncode == 0
    return folder


@pytest.mark.thorough
def test_changes_are_printed_and_written(years, tmp_path):
    done = run("change", years / "one", years / "two", "--out", tmp_path / "change.csv", "--show", 1)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[4]
    assert "02/001" in first
    assert "more" in first
    assert "and 2 smaller changes" in done.stdout
    rows = duckdb.sql(f"SELECT county, direction, low, high FROM '{tmp_path}/change.csv'").fetchall()
    assert len(rows) == 3
    assert ("02/001", "more") in [row[:2] for row in rows]
    found = json.loads(run("change", years / "one", years / "two", "--table", "state", "--json").stdout)
    assert found["state"] == ["01", "02"]
    assert found["direction"][1] == "more"


@pytest.mark.thorough
def test_posteriors_are_compared_too(years):
    for year in ("one", "two"):
        done = run("infer", years / year, "--draws", 50, "--out", years / f"posterior-{year}")
        assert done.returncode == 0, done.stderr
    done = run("change", years / "posterior-one", years / "posterior-two", "--json")
    found = json.loads(done.stdout)
    assert found["probability of growth"][2] == 1
    assert len(set(found["sources"])) == 2


@pytest.mark.thorough
def test_mistakes_are_told(years, tmp_path):
    (tmp_path / "there.csv").write_text("")
    for arguments, said in {
        ("one",): "same measurements",
        ("nowhere",): "not a bundle",
        ("two", "--table", "tract"): "no level 'tract'",
        ("two", "--out", "x.txt"): "unknown file extension",
        ("two", "--out", tmp_path / "there.csv"): "exists",
    }.items():
        done = run("change", years / "one", years / arguments[0], *arguments[1:])
        assert done.returncode == 2, arguments
        assert said in done.stderr
