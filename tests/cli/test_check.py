"""`trueup check` judges a release by what it declares: whole or continuous, with a sign or without."""

from __future__ import annotations

import json
import shutil

import polars
import pytest

from tests.areas import SPEC, write_areas
from tests.command import run
from trueup.io.bundle.manifest import digest

RULES = """
format = 2
title = "Rules"
table = { name = "rules", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "age", values = ["young", "old", "oldest"] }]
query = [{ name = "ages", attributes = ["age"], levels = ["area"], epsilon = "1/20" }]
constraints = { linear = ["2 * young + old == 3 * oldest"], invariants = [{ level = "all" }] }
reconcile = { method = "general-projection" }
"""
RULES_TABLE = "area,age,n\n" + "".join(
    f"{area},{age},{n}\n" for area in "abcd" for age, n in (("young", 3), ("old", 6), ("oldest", 4))
)


def _forge(folder, table: str, change):
    """Alter a released table and give it a right digest."""
    path = folder / "public" / "counts" / f"{table}.parquet"
    change(polars.read_parquet(path)).write_parquet(path)
    manifest_path = folder / "public" / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    manifest["files"][f"counts/{table}.parquet"] = digest(path)
    manifest_path.write_text(json.dumps(manifest))


@pytest.fixture
def unbiased(tmp_path):
    """Return a continuous release without a sign: at this budget some of thirty empty areas fall below zero."""
    rows = "".join(f"01,{i:03d},0\n" for i in range(30))
    spec, table = write_areas(tmp_path, spec=SPEC, table="state,county,n\n" + rows)
    method = '[reconcile]\nmethod = "tree-equality"\n'
    spec.write_text(SPEC + method)
    assert run("release", spec, "--data", table, "--out", tmp_path / "out").returncode == 0
    return tmp_path / "out"


def test_counts_of_a_method_without_a_sign_pass_and_the_check_says_what_they_need_not_be(unbiased):
    assert polars.read_parquet(unbiased / "public" / "counts" / "county.parquet")["count"].min() < 0
    done = run("check", unbiased)
    assert done.returncode == 0, done.stdout
    assert "ok   the counts are those of 'tree-equality': they need not be whole" in done.stdout
    assert "ok   every constraint holds, but that 'tree-equality' lets counts fall below zero" in done.stdout


def test_continuous_counts_that_do_not_add_up_fail(unbiased):
    _forge(unbiased, "state", lambda table: table.with_columns(polars.col("count") + 0.01))
    done = run("check", unbiased)
    assert done.returncode == 6
    assert "FAIL 'state' is the sum of its cells: 01" in done.stdout


def test_fractions_under_a_method_of_whole_numbers_fail(tmp_path):
    spec, table = write_areas(tmp_path)
    assert run("release", spec, "--data", table, "--out", tmp_path / "out").returncode == 0
    _forge(tmp_path / "out", "county", lambda t: t.with_columns(polars.col("count").cast(polars.Float64)))
    done = run("check", tmp_path / "out")
    assert done.returncode == 6
    assert "FAIL all counts are whole numbers: county" in done.stdout


@pytest.mark.thorough
def test_a_continuous_release_keeps_rules_and_invariants_to_within_its_accuracy(tmp_path):
    spec, table = write_areas(tmp_path, spec=RULES, table=RULES_TABLE)
    done = run("release", spec, "--data", table, "--out", tmp_path / "out", "--json")
    assert all(json.loads(done.stdout)["checks"][rule] for rule in ("every constraint", "invariants exact"))
    done = run("check", tmp_path / "out")
    assert done.returncode == 0, done.stdout
    shutil.copytree(tmp_path / "out", tmp_path / "forged")
    _forge(tmp_path / "forged", "area-age", lambda t: t.with_columns(polars.col("count") + 0.01))
    done = run("check", tmp_path / "forged")
    assert done.returncode == 6
    for rule in ("'all' is the sum of its cells", "the invariant 'all' is as enumerated"):
        assert f"FAIL {rule}" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m.update(method=3),
        lambda m: m.update(method={}),
        lambda m: m["headers"][0].pop("parameters"),
        lambda m: m.update(headers=[3]),
        lambda m: m.pop("headers"),
    ],
    ids=[
        "a method that is a number",
        "a method without a name",
        "a lost law",
        "a number for a table",
        "no table",
    ],
)
@pytest.mark.parametrize("command", ["check", "report"])
def test_a_manifest_with_a_damaged_part_is_damaged(unbiased, damage, command, tmp_path):
    path = unbiased / "public" / "manifest.json"
    manifest = json.loads(path.read_text())
    damage(manifest)
    path.write_text(json.dumps(manifest))
    done = run(command, unbiased, *(["--out", tmp_path / "page.html"] if command == "report" else []))
    assert done.returncode == 2
    assert "is damaged" in done.stderr
