"""`trueup infer` on a histogram on a hierarchy: one place, tiers, areas off the hierarchy."""

from __future__ import annotations

import json

import duckdb
import pytest

from tests.command import run

SPEC = """
format = 2
title = "Persons by sex"
table = { name = "persons", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "state" }, { name = "tract", column = "tract" }, { name = "block", column = "block" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", noise = "discrete-gaussian", rho = { state = "1", tract = "1", block = "1" } },
         { name = "sex", attributes = ["sex"], noise = "discrete-gaussian", rho = { state = "1", tract = "1", block = "1" } }]
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("histogram")
    (folder / "spec.toml").write_text(SPEC)
    rows = [f"t{k // 3},b{k},{sex},{3 * k + (sex == 'f')}" for k in range(6) for sex in "fm"]
    (folder / "data.csv").write_text("\n".join(["tract,block,sex,n", *rows]))
    made = run("release", folder / "spec.toml", "--data", folder / "data.csv", "--out", folder / "bundle")
    assert made.returncode == 0, made.stderr
    return folder / "bundle"


def answer(*arguments):
    done = run("infer", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.thorough
def test_one_place_with_all_below_it(bundle):
    found, _ = answer(bundle, "--within", "tract=t1", "--tier", "approximate", "--draws", 200)
    assert found["summary"]["block"]["label"] == ["t1/b3", "t1/b4", "t1/b5"]
    assert 20 < found["summary"]["tract"]["mean"][0] < 130
    refused = run("infer", bundle, "--within", "tract=t9")
    assert refused.returncode == 2
    assert "no place 't9'" in " ".join(refused.stderr.split())


@pytest.mark.thorough
def test_tiers_are_named_and_predicted(bundle):
    _, told = answer(bundle, "--tier", "approximate", "--draws", 200)
    assert "tier 'approximate': 4 Markov chains of about" in told
    assert "GB predicted" in told
    refused = run("infer", bundle, "--tier", "quick")
    assert refused.returncode == 2
    assert "approximate" in refused.stderr


@pytest.mark.thorough
def test_areas_off_the_hierarchy(bundle, tmp_path):
    (tmp_path / "schools.csv").write_text("tract,block,school\nt0,b0,north\nt1,b5,north\nt1,b4,south\n")
    areas = ("--areas", f"school={tmp_path / 'schools.csv'}", "--by", "sex")
    found, _ = answer(
        bundle, *areas, "--tier", "approximate", "--draws", 200, "--out", tmp_path / "posterior"
    )
    assert found["areas"]["sex"] == ["f", "m"] * 2
    assert found["areas"]["school"] == ["north"] * 2 + ["south"] * 2
    assert all(low <= mean for low, mean in zip(found["areas"]["low"], found["areas"]["mean"]))
    written = next((tmp_path / "posterior").glob("areas.*"))
    assert duckdb.sql(f"SELECT count(*) FROM '{written}'").fetchall() == [(4,)]
