"""`trueup infer` from a bundle and from published files."""

from __future__ import annotations

import json

import duckdb
import pytest
from tests.areas import write_areas
from tests.cli.test_commands import run


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("areas")
    spec, table = write_areas(folder)
    assert run("release", spec, "--data", table, "--out", folder / "bundle").returncode == 0
    return folder / "bundle"


def test_it_prints_every_level_and_writes_a_folder(bundle, tmp_path):
    done = run("infer", bundle, "--draws", 50, "--out", tmp_path / "posterior")
    assert done.returncode == 0, done.stderr
    assert "50 independent draws by method 'tree-exact'" in done.stdout
    assert "What the true counts may be" in (tmp_path / "posterior" / "report.html").read_text()
    manifest = json.loads((tmp_path / "posterior" / "manifest.json").read_text())
    assert manifest["kind"] == "posterior"
    assert manifest["stats"]["dropped_mass"] <= 1e-9
    draws = duckdb.sql(f"SELECT count(*), min(count) FROM '{tmp_path}/posterior/draws.parquet'").fetchall()[0]
    assert draws[0] == 50 * 3
    assert draws[1] >= 0


def test_chosen_counts_are_named_by_their_labels(bundle, tmp_path):
    chosen = ("--chosen", "01/003", "--out", tmp_path / "posterior")
    assert run("infer", bundle, "--draws", 5, *chosen).returncode == 0
    done = run("infer", bundle, "--draws", 5, "--chosen", "nowhere", "--out", tmp_path / "other")
    assert done.returncode == 2
    assert "no count is called 'nowhere'" in " ".join(done.stderr.split())
    assert not (tmp_path / "other").exists()


def test_json_holds_the_summary(bundle):
    done = run("infer", bundle, "--draws", 20, "--json")
    summary = json.loads(done.stdout)["summary"]
    assert summary["county"]["label"] == ["01/001", "01/003", "02/001"]


def test_an_occupied_folder_and_missing_files_are_refused(bundle, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    assert run("infer", bundle, "--draws", 5, "--out", tmp_path / "full").returncode == 2
    spec, _ = write_areas(tmp_path)
    done = run("infer", spec)
    assert done.returncode == 2
    assert "a spec is given without measurements" in " ".join(done.stderr.split())
