"""Every verb on tables that somebody else published: reconcile, check, export, areas, report, infer; no guarantee is claimed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

import trueup as tu
from tests.command import run

FOLDER = Path(__file__).parents[2] / "examples" / "perturbed"
GIVEN = (
    "--perturbed",
    FOLDER / "districts.toml",
    "--table",
    FOLDER / "totals.csv",
    "--table",
    FOLDER / "by-sex.csv",
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("published") / "counts"
    done = run("reconcile", *GIVEN, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "none is claimed here" in done.stdout
    return out


def test_the_bundle_holds_what_its_rules_ask_for(bundle):
    done = run("check", bundle)
    assert done.returncode == 0, done.stdout
    assert "no guarantee is claimed, and none is stated" in done.stdout
    manifest = bundle / "public" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"kind": "none"', '"kind": "dp"'))
    assert run("check", bundle).returncode != 0
    manifest.write_text(text)


def test_a_count_that_the_tables_do_not_allow_is_found(bundle, tmp_path):
    import shutil

    wrong = tmp_path / "wrong"
    shutil.copytree(bundle, wrong)
    file = wrong / "public" / "counts" / "district-sex.parquet"
    table = pandas.read_parquet(file)
    table.loc[0, "count"] += 20
    table.to_parquet(file)
    done = run("check", wrong)
    assert done.returncode != 0
    assert "FAIL" in done.stdout


def test_codes_are_empty_in_tables_and_never_a_number(bundle, tmp_path):
    assert run("export", bundle, "--to", "csv", "--out", tmp_path / "csv").returncode == 0
    table = pandas.read_csv(tmp_path / "csv" / "district-sex.csv").set_index(["district", "sex"])
    shown = table["published"]
    assert shown.isna()[("South", "female")]
    assert shown.isna()[("East", "male")]
    assert shown[("North", "female")] == 12
    about = (tmp_path / "csv" / "about.csv").read_text()
    assert "none is claimed" in about
    page = (bundle / "public" / "report.html").read_text()
    assert "No guarantee is claimed." in page
    assert "epsilon" not in page


def test_areas_are_summed_and_inferred_with_intervals(bundle, tmp_path):
    areas = tmp_path / "areas.csv"
    areas.write_text("area,district\nx,North\nx,East\ny,West\n")
    assert run("areas", bundle, "--areas", areas, "--out", tmp_path / "sums.csv", "--by", "").returncode == 0
    sums = pandas.read_csv(tmp_path / "sums.csv").set_index("area")["count"]
    done = run("infer", *GIVEN, "--areas", areas, "--json", "--draws", 200)
    found = json.loads(done.stdout)["areas"]
    for area, low, high in zip(found["area"], found["low"], found["high"]):
        assert low <= sums[area] <= high


def test_the_bundle_is_read_as_it_was_written_and_inferred_from(bundle):
    from trueup.io.bundle.read import read_release

    tables = tu.read_perturbed(FOLDER / "districts.toml", [FOLDER / "totals.csv", FOLDER / "by-sex.csv"])
    assert read_release(bundle).measurements.digest == tables.digest
    done = run("infer", bundle, "--draws", 20)
    assert done.returncode == 0, done.stderr
    again = run("reconcile", bundle, "--out", bundle.parent / "again")
    assert again.returncode != 0
    assert "trueup reconcile --perturbed" in again.stderr


def test_nowhere_does_a_loss_of_nothing_stand_for_no_guarantee():
    tables = tu.read_perturbed(FOLDER / "districts.toml", [FOLDER / "totals.csv", FOLDER / "by-sex.csv"])
    for record in (tables, tu.reconcile(tables)):
        assert "no guarantee is claimed" in str(record)
        assert "= 0" not in str(record)
        page = str(tu.report(record))
        assert "No guarantee is claimed." in page
        assert "epsilon = 0" not in page


def test_fractions_survive_the_bundle(tmp_path):
    (tmp_path / "s.toml").write_text(
        'format = 1\ntitle = "T"\ntable = { name = "t", counts = "case" }\n'
        'level = [{ name = "all" }, { name = "area", column = "area" }]\n'
        '[[published]]\nname = "t"\nlevel = "area"\ncount = "n"\nlaw = { name = "gaussian", sigma2 = "4" }\n'
    )
    (tmp_path / "t.csv").write_text("area,n\na,12.25\nb,7.5\n")
    done = run(
        "reconcile",
        "--perturbed",
        tmp_path / "s.toml",
        "--table",
        tmp_path / "t.csv",
        "--out",
        tmp_path / "o",
    )
    assert done.returncode == 0, done.stderr
    assert run("check", tmp_path / "o").returncode == 0


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--table", "t.csv"], "--table has no effect without --perturbed"),
        ([], "no source is given"),
        (["bundle", *map(str, GIVEN)], "together with 'bundle'"),
    ],
)
def test_what_does_not_go_together_is_refused(given, word, tmp_path):
    done = run("reconcile", *given, "--out", tmp_path / "o")
    assert done.returncode == 2
    assert word in " ".join(done.stderr.split())


def test_exact_tables_that_exclude_each_other_are_named_by_both_verbs(tmp_path):
    entry = '[[published]]\nname = "{0}"\nlevel = "{1}"\ncount = "n"\nlaw = {{ name = "exact" }}\n'
    (tmp_path / "s.toml").write_text(
        'format = 1\ntitle = "T"\ntable = { name = "t", counts = "case" }\n'
        'level = [{ name = "all" }, { name = "area", column = "area" }]\n'
        + entry.format("parts", "area")
        + entry.format("whole", "all")
    )
    (tmp_path / "parts.csv").write_text("area,n\na,4\nb,5\n")
    (tmp_path / "whole.csv").write_text("n\n10\n")
    given = (
        "--perturbed",
        tmp_path / "s.toml",
        "--table",
        tmp_path / "parts.csv",
        "--table",
        tmp_path / "whole.csv",
    )
    for verb in ("infer", "reconcile"):
        done = run(verb, *given, "--out", tmp_path / verb)
        assert done.returncode == 2
        assert "these 3 published values" in " ".join(done.stderr.split())
        assert not (tmp_path / verb).exists()


HIDDEN = {
    "a table": "area,young,old,all\nA,20,30,50\nB,x,x,41\nC,7,9,16\n",
    "levels of a code": "geo,sex,n\nX,T,107\nX1,F,20\nX1,M,30\nX1,T,50\nX2,F,x\nX2,M,x\nX2,T,57\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_counts_that_sums_bound_are_reconciled_and_shown_as_hidden(name, tmp_path):
    file, spec, out = tmp_path / "t.csv", tmp_path / "s.toml", tmp_path / "counts"
    file.write_text(HIDDEN[name])
    assert run("new", spec, "--published", file).returncode == 0
    done = run("reconcile", "--perturbed", spec, "--table", file, "--out", out)
    assert done.returncode == 0, done.stderr
    assert run("check", out).returncode == 0
    assert run("export", out, "--to", "csv", "--out", tmp_path / "csv").returncode == 0
    finest = max((tmp_path / "csv").glob("*-*.csv"), key=lambda path: len(path.read_text()))
    table = pandas.read_csv(finest)
    hidden = table[table["published"].isna() & table[table.columns[0]].isin(["B", "X2"])]
    assert len(hidden) == 2
    assert hidden["released"].sum() == {"a table": 41, "levels of a code": 57}[name]
    assert (table["released"] == table["published"])[~table["published"].isna()].all()
    noted = json.loads((out / "public" / "manifest.json").read_text())["noted"]
    assert any("Nothing is published of 2 counts alone" in text for text in noted)
