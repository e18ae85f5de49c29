"""`trueup synth` and `trueup areas`, as a new user runs them."""

from __future__ import annotations

import json

import polars

from tests.areas import SPEC
from tests.command import run

RECORDS = SPEC.replace('kind = "counts"', 'kind = "records"').replace(', count = "n", keys = "public"', "")


def test_a_made_up_country_is_released_and_summed_over_areas(tmp_path):
    (tmp_path / "areas.toml").write_text(RECORDS)
    made = run(
        "synth", tmp_path / "areas.toml", "--state", "Utah", "--state", "Idaho", "--persons", 900, "--blocks", 7,
        "--out", tmp_path / "made", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout)
    assert {k: said[k] for k in ("table", "units", "places", "regions")} == {
        "table": "records",
        "units": 900,
        "places": 7,
        "regions": 2,
    }
    data, places = tmp_path / "made" / "records", tmp_path / "made" / "places"
    done = run(
        "release", tmp_path / "areas.toml", "--data", data, "--geography", places, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    listed = polars.read_parquet(places / "*.parquet").with_columns(area=polars.lit("everything"))
    listed.write_csv(tmp_path / "map.csv")
    summed = run(
        "areas", tmp_path / "out", "--areas", tmp_path / "map.csv", "--by", "", "--out", tmp_path / "sum.csv"
    )
    assert summed.returncode == 0, summed.stderr
    assert "for one area:" in summed.stdout
    counts = polars.read_parquet(tmp_path / "out" / "public" / "counts" / "all.parquet")["count"].to_list()
    assert polars.read_csv(tmp_path / "sum.csv").rows()[0][:2] == ("everything", counts[0])


def test_what_is_refused_is_said_in_one_message(tmp_path):
    (tmp_path / "areas.toml").write_text(SPEC)
    done = run("synth", tmp_path / "areas.toml", "--state", "Utha", "--out", tmp_path / "made")
    assert done.returncode == 2
    assert "did you mean 'Utah'?" in " ".join(done.stderr.split())
    assert not (tmp_path / "made").exists()
    done = run("areas", tmp_path, "--areas", tmp_path / "areas.toml", "--out", tmp_path / "sum.csv")
    assert done.returncode == 2
    assert "is not a bundle" in " ".join(done.stderr.split())
