"""`trueup ask`, and what `trueup infer` prints first."""

from __future__ import annotations

import json

import pytest

from tests.areas import TABLE, write_areas
from tests.command import run


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A bundle, areas of one's own, and the posterior that is kept of it."""
    folder = tmp_path_factory.mktemp("kept")
    spec, table = write_areas(folder, table=TABLE.replace("01,003,7", "01,003,700"))
    assert run("release", spec, "--data", table, "--out", folder / "bundle").returncode == 0
    places = json.loads((folder / "bundle" / "public" / "manifest.json").read_text())["levels"]
    (folder / "districts.csv").write_text("district,state,county\nnear,01,001\nnear,01,003\nfar,02,001\n")
    assert places[-1]["places"] == 3
    done = run(
        *("infer", folder / "bundle", "--draws", 50, "--out", folder / "posterior"),
        *("--areas", f"district={folder / 'districts.csv'}"),
    )
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.mark.thorough
def test_areas_that_were_asked_for_are_printed_first_and_alone(kept):
    lines = [line.strip() for line in kept[1].stdout.splitlines() if line.strip()]
    assert lines[0] == "district"
    assert "far" in lines[3]
    assert "near" in lines[4]
    assert lines[5].startswith("50 independent draws")


def test_a_kept_posterior_is_asked_again(kept):
    folder, _ = kept
    done = run(
        *("ask", folder / "posterior", "district / all", "'district=near' > 0"),
        *("--areas", f"district={folder / 'districts.csv'}", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    manifest = json.loads((folder / "bundle" / "public" / "manifest.json").read_text())
    assert found["source"] == manifest["measurements"]
    shares, event = found["answers"]
    assert shares["district"] == ["far", "near"]
    assert sum(shares["mean"]) == pytest.approx(1)
    assert event["probability"][0] > 0.5
    printed = run("ask", folder / "posterior", "county", "--show", 1).stdout
    assert "and 2 more" in printed
    assert "Figures and intervals are from" in printed
    assert "nothing was drawn anew" in printed


def test_mistakes_are_told(kept):
    folder, _ = kept
    for arguments, said in {
        ("posterior", "'stat=01'"): "did you mean 'state'",
        ("bundle", "all"): "trueup infer",
        ("nowhere", "all"): "check the path",
        ("posterior", "all", "--areas", "x=nowhere.csv"): "check the path",
        ("posterior", "all", "--level", "2"): "probability",
    }.items():
        done = run("ask", folder / arguments[0], *arguments[1:])
        assert done.returncode == 2
        assert said in done.stderr


def test_answers_to_good_questions_are_printed_before_a_bad_one_is_refused(kept):
    asked = ("ask", kept[0] / "posterior", "all", "'stat=01'", "'01/001'")
    done = run(*asked)
    assert done.returncode == 2
    assert done.stdout.startswith("all ")
    assert "'01/001'" in done.stdout
    assert "did you mean 'state'" in done.stderr
    found = json.loads(run(*asked, "--json").stdout)
    assert [one["question"] for one in found["answers"]] == ["all", "'01/001'"]
    assert found["error"]["exit_code"] == 2
