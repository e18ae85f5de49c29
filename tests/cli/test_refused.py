"""Commands that read a bundle, given what they cannot use: refused in words, at once, with nothing written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas
import pytest

import trueup
from tests.command import ordinary_user, run

SPEC = """
format = 2
title = "Towns"
table = { name = "towns", kind = "counts", counts = "person", count = "n" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "county", column = "county" }, { name = "town", column = "town" }]
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [{ name = "total", epsilon = { all = "1/4", county = "1/4", town = "1/4" } },
         { name = "by sex", attributes = ["sex"], epsilon = { town = "1/4" } }]
"""
PLACES = pandas.DataFrame({"county": ["01", "01", "02"], "town": ["a", "b", "c"]})
TABLE = PLACES.loc[[0, 0, 1, 1, 2, 2]].assign(
    sex=["f", "m"] * 3, n=[48611, 70213, 59077, 36299, 81551, 92863]
)
MAPS = {
    "map": "area,county,town\nnorth,01,a\nnorth,01,b\nlake,01,b\n",
    "twice": "area,county,town\nnorth,01,a\nnorth,01,a\n",
    "stray": "area,county,town\nnorth,01,a\nnorth,01,z\n",
    "nameless": "area,county,town\nnorth,01,a\n,01,b\n",
    "blank": 'area,county,town\nnorth,01,a\n" ",01,b\n',
    "placeless": "area,county,town\nnorth,01,a\nnorth,01,\n",
    "header": "area,county,town\n",
    "keyless": "area,county\nnorth,01\n",
    "bysex": "sex,county,town\nnorth,01,a\n",
    "words": "county,town,sex,n\n01,a,f,many\n",
    "empty": "",
}


def _without(name: str):
    return lambda bundle: (bundle / "public" / name).unlink()


def _cut(name: str):
    def cut(bundle: Path) -> None:
        path = bundle / "public" / name
        path.write_bytes(path.read_bytes()[:100])

    return cut


def _added(name: str):
    def add(bundle: Path) -> None:
        path = bundle / "public" / name
        path.write_text(f"{path.read_text()}\nnonsense\n")

    return add


DAMAGED = {
    "unlisted": _without("manifest.json"),
    "halved": _cut("manifest.json"),
    "unmeasured": _without("measurements/part-0-00000.parquet"),
    "torn": _cut("measurements/part-0-00000.parquet"),
    "placelost": _without("places.parquet"),
    "uncounted": _cut("counts/town-sex.parquet"),
    "altered": _added("spec.toml"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A bundle, copies of it with a fault, and maps of areas, most of them with one."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "towns.toml").write_text(SPEC)
    (folder / "other.toml").write_text(SPEC.replace('["f", "m"]', '["f", "m", "x"]'))
    (folder / "asked.toml").write_text(f'{SPEC}[infer]\nmethod = "tree-exakt"\n')
    (folder / "misfit.toml").write_text(f'{SPEC}[infer]\nmethod = "histogram-gibbs"\n')
    TABLE.to_csv(folder / "towns.csv", index=False)
    PLACES.to_csv(folder / "places.csv", index=False)
    for name, text in MAPS.items():
        (folder / f"{name}.csv").write_text(text)
    trueup.release(folder / "towns.toml", TABLE, folder / "bundle", geography=PLACES)
    for name, damage in DAMAGED.items():
        damage(shutil.copytree(folder / "bundle", folder / name))
    (folder / "nothing").mkdir()
    return folder


INFER, AREAS = "infer bundle", "areas bundle --out areas.csv --areas"
ASSESS = "assess towns.toml --geography places.csv --data towns.csv --out out"
PLAN = "plan towns.toml --geography places.csv"
RELEASE = "release towns.toml --data towns.csv --geography places.csv --out out"
REFUSED = {
    "infer": "no source is given",
    "infer nowhere": "no file or folder 'nowhere'.* To do: check the path",
    "infer nothing": "no file public/manifest.json",
    f"{INFER} --out bundle/public/posterior": "lies inside the bundle 'bundle'",
    f"{ASSESS} --infer-replicates 5": "--infer-replicates has no effect without --infer",
    "infer bundle/public": "give the folder that holds it",
    "infer towns.toml": "add --table with each S-DHC file",
    "infer towns.csv": "'towns.csv' is not TOML",
    "infer unlisted": "no file public/manifest.json",
    "infer halved": "manifest of 'halved' is damaged. To do: restore",
    "infer unmeasured": "part-0-00000.parquet of 'unmeasured' is missing",
    "infer torn": "part-0-00000.parquet of 'torn' is not the file that was written",
    "infer placelost": "places.parquet of 'placelost' is missing",
    "infer altered": "spec.toml of 'altered' is not the file that was written",
    "infer uncounted": "town-sex.parquet of 'uncounted' is not the file",
    f"{INFER} --level 0": "level 0 is not a probability",
    f"{INFER} --level 100": "level 100 is not a probability",
    f"{INFER} --level -5%": "level -5% is not a probability",
    f"{INFER} --level 150%": "level 150% is not a probability",
    f"{INFER} --level nan": "level nan is not a probability",
    f"{INFER} --draws 0": "greater than or equal to 1",
    f"{INFER} --draws many": "valid integer",
    f"{INFER} --draws 100000000000000": "this machine has .* fewer draws",
    f"{INFER} --workers 0": "greater than or equal to 1",
    f"{INFER} --tier chains": "'tree-exact': tier is not 'auto', 'exact' or 'approximate'",
    f"{INFER} --tier best": "'tree-exact': tier is not 'auto', 'exact' or 'approximate'",
    f"{INFER} --minutes .5": "0.5 minutes are given as the time limit. Needed: at least 1",
    f"{INFER} --minutes soon": "valid number",
    f"{INFER} --within county=09": "level 'county' has no place '09'",
    f"{INFER} --within town=a": "is not a place with others below it",
    f"{INFER} --within nonsense": "levels: all, county",
    f"{INFER} --out nothing/below/out": "parent folder of 'nothing/below/out' does not exist",
    f"{INFER} --out towns.csv": "'towns.csv' is a file",
    f"{INFER} --out bundle": "'bundle' is not empty",
    f"{INFER} --csv": "--csv has no effect without --out",
    f"{INFER} --by sex": "--by has no effect without --areas",
    f"{INFER} --encoding latin-1": "--encoding has no effect without --perturbed",
    f"{INFER} --geography places.csv": "--geography has no effect without --perturbed",
    f"{INFER} --table towns.csv": "which holds its own measurements",
    "infer --table towns.csv": "no source is given.* --perturbed SPEC",
    "infer towns.toml --table nothing --table towns.csv": "noisy-measurement files is given together with other tables",
    f"{INFER} --perturbed towns.toml": "together with 'bundle'",
    f"{INFER} --estimates new.csv": "without S-DHC tables",
    f"{INFER} --memory lots": "such as 4GB or 800MB",
    f"{INFER} --memory 1MB": "raise --memory",
    f"{INFER} --areas nowhere.csv": "there is no file 'nowhere.csv'",
    f"{INFER} --areas twice.csv": "area 'north' lists the place '01/a' twice",
    f"{INFER} --areas stray.csv": "'north' lists '01/z', which is no place",
    f"{INFER} --areas nameless.csv": "a row without an area or a place",
    f"{INFER} --areas blank.csv": "a row without an area or a place",
    f"{INFER} --areas placeless.csv": "a row without an area or a place",
    f"{INFER} --areas header.csv": "'header.csv' is empty",
    f"{INFER} --areas empty.csv": "'empty.csv' is empty",
    f"{INFER} --areas keyless.csv": "no column 'town'",
    f"{INFER} --areas district=map.csv": "no column 'district'",
    f"{INFER} --areas sex=bysex.csv": "the name of a level or an attribute",
    f"{INFER} --areas map.csv --by age": "attribute 'age' is not declared",
    f"{INFER} --areas map.csv --by sex,sex": "names an attribute twice",
    "infer --perturbed nowhere.toml --table towns.csv": "cannot read the spec 'nowhere.toml'",
    "infer --perturbed towns.csv --table towns.csv": "'towns.csv' is not TOML",
    "infer --perturbed towns.toml --table towns.csv": "published is missing",
    "areas nowhere --out areas.csv --areas map.csv": "'nowhere' is not a bundle",
    "areas uncounted --out areas.csv --areas map.csv": "town-sex.parquet of 'uncounted' is not the file",
    f"{AREAS} nowhere.csv": "there is no file 'nowhere.csv'",
    f"{AREAS} twice.csv": "area 'north' lists the place '01/a' twice",
    f"{AREAS} stray.csv": "'north' lists '01/z'",
    f"{AREAS} nameless.csv": "a row without an area or a place",
    f"{AREAS} blank.csv": "a row without an area or a place",
    f"{AREAS} header.csv": "'header.csv' is empty",
    f"{AREAS} keyless.csv": "no column 'town'",
    f"{AREAS} map.csv --by age": "attribute 'age' is not declared",
    f"{AREAS} map.csv --memory lots": "such as 4GB or 800MB",
    "areas bundle --areas map.csv --out towns.csv": "'towns.csv' exists",
    "areas bundle --areas map.csv --out areas.xlsx": "one of .parquet, .csv",
    "areas bundle --areas map.csv --out nothing/below/a.csv": "create it first",
    "export nowhere --to csv": "there is no folder 'nowhere'",
    "export uncounted --to csv": "town-sex.parquet of 'uncounted' is not the file",
    "export bundle --to doc": "one of csv, xlsx",
    "export bundle --to csv --out nothing/below/out": "create it first",
    "export bundle --to csv --out bundle": "'bundle' is not empty",
    "export bundle --to csv --table village": "one of all, county, town",
    "export bundle --to csv --wide age": "attribute 'age' is not declared",
    "export bundle --to csv --level 100": "level 100 is not a probability",
    "export bundle --to csv --agency ABC": "--agency has no effect without --to sdmx-csv",
    "export bundle --to xlsx --for-spreadsheets": "--for-spreadsheets has no effect without --to csv",
    "export bundle --to xlsx --out tables": "a name that ends in .xlsx",
    "export bundle --to sdmx-csv --agency 1": "not the identifier of an SDMX agency",
    f"{ASSESS} --replicates 0": "a whole number from 40",
    f"{ASSESS} --level 100": "level 100 is not a probability",
    f"{ASSESS} --method best": "method 'best' is unknown",
    f"{ASSESS} --method tree-topdown:best=1": "no parameter 'best'",
    f"{ASSESS} --method histogram-tree": "does not fit",
    f"{ASSESS} --comparator interval": "comparator 'interval' is unknown",
    f"{ASSESS} --comparator rounded": "is given the parameters none",
    f"{ASSESS} --comparator swapping:rate=2": "above 0 and at most 1",
    f"{ASSESS} --interval best": "interval rule 'best' is unknown",
    f"{ASSESS} --infer best": "inference method 'best' is unknown",
    f"{ASSESS} --budget-scale 0": "a number above zero",
    f"{ASSESS} --threshold town=many": "TABLE=COUNT",
    f"{ASSESS} --threshold village=3": "a published table",
    f"{ASSESS} --published words.csv": "not a whole number",
    f"{ASSESS} --data bundle": "together with other tables",
    f"{ASSESS} --data towns.csv": "the spec does not link it to the first",
    f"{ASSESS} --workers 0": "greater than or equal to 1",
    f"{ASSESS.replace('towns.csv', 'words.csv')}": "not a whole number",
    f"{ASSESS.replace('--out out', '--out bundle')}": "'bundle' is not empty",
    "assess other.toml --geography places.csv --data bundle --out out": "levels and attributes are those of the spec",
    f"{PLAN} --total 0": "a number above zero",
    f"{PLAN} --weight town": "TABLE=NUMBER",
    f"{PLAN} --weight town=-1": "a finite number, 0 or more",
    f"{PLAN} --target town=5@100%": "less than 100%",
    f"{PLAN} --target village=5": "there is no level 'village'",
    f"{PLAN} --target town=5 --target town=6": "two targets are given for 'town'",
    f"{PLAN} --preset relative --weight town=2": "either a preset, or weights and targets",
    f"{PLAN} --preset best": "relative or no-worse",
    f"{PLAN} --areas map.csv": "--areas has no effect without a --target on 'area'",
    f"{PLAN} --areas twice.csv --target area=5": "area 'north' lists the place '01/a' twice",
    f"{PLAN} --out towns.csv": "'towns.csv' exists already. To do: choose another --out",
    f"{PLAN} --out towns.toml": "'towns.toml' exists already. To do: choose another --out",
    f"{PLAN} --out nothing/below/x.toml": "create it first",
    f"{PLAN} --out new.txt": "or .toml for a spec",
    f"{PLAN} --out new.html --out new.html": "a different path for each",
    f"{RELEASE} --data towns.csv --data towns.csv": "--data is given 3 times",
    f"{RELEASE} --take-over": "--take-over is an option of a release by parts",
    f"{RELEASE} --worker-memory 1GB": "--worker-memory is an option of a release by parts",
    f"{RELEASE} --engine local --take-over": "no interrupted run in '.*out.run'",
    f"{RELEASE} --data towns.csv": "the spec does not link it to the first",
    RELEASE.replace("towns.toml", "asked.toml"): "did you mean 'tree-exact'",
    RELEASE.replace("towns.toml", "misfit.toml"): "'histogram-gibbs' does not fit",
    "explain asked.toml --geography places.csv": "did you mean 'tree-exact'",
    "explain misfit.toml --geography places.csv": "'histogram-gibbs' does not fit",
}


def held(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("command", REFUSED)
def test_what_cannot_be_used_is_refused_before_anything_is_done(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "300")
    before = held(folder)
    done = run(*command.split())
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    assert re.search(REFUSED[command], said), said
    assert "Traceback" not in said
    assert not re.search("drawing|simulating|reconciling", done.stderr), "long work had begun"
    assert held(folder) == before, "nothing is left half-written"


@pytest.mark.parametrize(
    "command",
    [
        f"{INFER} --out locked/out",
        f"{INFER} --draws 5 --out locked/out --csv",
        "areas bundle --areas map.csv --out locked/a.csv",
        "export bundle --to csv --out locked/out",
        "export bundle --to xlsx --out locked/out.xlsx",
        ASSESS.replace("--out out", "--out locked/out"),
        f"{PLAN} --out locked/page.html",
    ],
)
def test_a_folder_that_may_not_be_written_to_is_refused_before_anything_is_done(command, folder, monkeypatch):
    for parent in [folder, *folder.parents][:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    locked = folder / "locked"
    locked.mkdir(mode=0o555, exist_ok=True)
    monkeypatch.chdir(folder)
    with ordinary_user():
        done = run(*command.split())
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 1, said
    assert "Permission denied" in said
    assert "in which you may write" in said or "get permission to write" in said
    assert not re.search("drawing|simulating", said), "long work had begun"
    assert not list(locked.iterdir())


def test_too_little_memory_for_areas_is_said(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = run(*f"{AREAS} map.csv --memory 1KB".split())
    assert done.returncode == 1
    assert "raise --memory" in " ".join(done.stderr.split())
    assert not (folder / "areas.csv").exists()


def test_a_tier_of_histograms_that_does_not_exist_names_those_that_do(tmp_path):
    spec = SPEC.replace('["f", "m"] }]', '["f", "m"] }, { name = "age", values = ["old", "young"] }]')
    spec = spec.replace('attributes = ["sex"]', 'attributes = ["sex", "age"]').replace('county = "1/4", ', "")
    spec = spec.replace(
        "query = [", 'query = [{ name = "by age", attributes = ["age"], epsilon = { county = "1/8" } },\n'
    )
    spec = spec.replace(
        "query = [", 'query = [{ name = "sex", attributes = ["sex"], epsilon = { county = "1/8" } },\n'
    )
    (tmp_path / "towns.toml").write_text(spec)
    table = TABLE.assign(age=["old", "young"] * 3)
    trueup.release(tmp_path / "towns.toml", table, tmp_path / "bundle", geography=PLACES)
    done = run("infer", tmp_path / "bundle", "--tier", "best", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]["message"]
    assert "'histogram-gibbs'" in error
    assert "chains" in error
    assert "approximate" in error
