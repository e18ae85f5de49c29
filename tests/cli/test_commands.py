"""The commands, as a new user runs them: what they print, write, and refuse."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.areas import SPEC, TABLE, write_areas
from tests.command import run
from trueup.cli.options import described


@pytest.fixture(scope="module")
def areas(tmp_path_factory):
    """Return a folder with a spec, a table and a finished release."""
    folder = tmp_path_factory.mktemp("areas")
    spec, table = write_areas(folder)
    done = run("release", spec, "--data", table, "--out", folder / "out", "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_release_writes_a_bundle_and_says_where(areas):
    folder, said = areas
    assert all(said["checks"].values())
    assert (folder / "out" / "public" / "report.html").stat().st_size > 1000
    assert sorted(p.name for p in (folder / "out" / "public").iterdir()) == [
        "counts",
        "manifest.json",
        "measurements",
        "places.parquet",
        "report.html",
        "spec.toml",
    ]
    assert not list(folder.glob(".*staging*"))


def test_nothing_public_depends_on_the_input_file(areas):
    """No digest of the table, no timing, no seed: only `internal/` may hold them."""
    import hashlib

    folder, _ = areas
    digest = hashlib.sha256((folder / "areas.csv").read_bytes()).hexdigest()
    for path in (folder / "out" / "public").rglob("*"):
        assert path.is_dir() or digest.encode() not in path.read_bytes()
    manifest = json.loads((folder / "out" / "public" / "manifest.json").read_text())
    assert "seconds" not in json.dumps(manifest)
    internal = json.loads((folder / "out" / "internal" / "run.json").read_text())
    assert internal["input"]["hmac-sha256"] != digest


def test_check_passes_and_finds_what_was_altered(areas, tmp_path):
    import shutil

    folder, _ = areas
    done = run("check", folder / "out", "--json")
    assert done.returncode == 0
    assert all(c["holds"] for c in json.loads(done.stdout))
    forged = tmp_path / "forged"
    shutil.copytree(folder / "out", forged)
    with (forged / "public" / "spec.toml").open("a") as file:
        file.write("# touched\n")
    done = run("check", forged)
    assert done.returncode == 6
    assert "FAIL every public file is the one that was written: public/spec.toml" in done.stdout


def test_check_trusts_no_claim_of_the_manifest(areas, tmp_path):
    """A table that does not add up is found although its digest is right."""
    import shutil

    import polars

    from trueup.io.bundle.manifest import digest

    folder, _ = areas
    forged = tmp_path / "forged"
    shutil.copytree(folder / "out", forged)
    path = forged / "public" / "counts" / "state.parquet"
    polars.read_parquet(path).with_columns(polars.col("count") + 1).write_parquet(path)
    manifest_path = forged / "public" / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    manifest["files"]["counts/state.parquet"] = digest(path)
    manifest_path.write_text(json.dumps(manifest))
    done = run("check", forged)
    assert done.returncode == 6
    assert "FAIL 'state' is the sum of its cells: 01; 02" in done.stdout


def test_check_finds_a_public_file_that_nobody_vouches_for(areas, tmp_path):
    import shutil

    folder, _ = areas
    shutil.copytree(folder / "out", tmp_path / "out")
    (tmp_path / "out" / "public" / "counts" / "extra.csv").write_text("county,n\n")
    done = run("check", tmp_path / "out")
    assert done.returncode == 6
    assert "FAIL public/ holds no other file: counts/extra.csv" in done.stdout


@pytest.mark.parametrize("text", ['{"format": 2}', '{"format": 2, "kind": "release"}', "[]"])
def test_a_manifest_without_its_parts_is_damaged(text, tmp_path):
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "manifest.json").write_text(text)
    done = run("check", tmp_path)
    assert done.returncode == 2
    assert "is damaged" in done.stderr


def test_demo_refuses_a_file_in_its_place(tmp_path):
    (tmp_path / "here").write_text("")
    done = run("demo", "--out", tmp_path / "here")
    assert done.returncode == 2
    assert "is a file" in done.stderr


def test_counts_beyond_double_precision_are_refused_by_name(tmp_path):
    spec, table = write_areas(tmp_path, table=f"state,county,n\n01,001,{2**61 - 1}\n02,001,{2**60 + 1}\n")
    done = run("release", spec, "--data", table, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "may pass 2^53" in done.stderr
    assert not (tmp_path / "out").exists()


def test_bounds_that_exclude_each_other_are_named_before_data_are_read(tmp_path):
    rules = "[constraints]\nbounds = [{ level = 'all', lower = 31 }, { level = 'county', upper = 10 }]\n"
    spec, table = write_areas(tmp_path, spec=SPEC + rules)
    done = run("explain", spec, "--geography", table)
    assert done.returncode == 2
    assert "bounds of 'all', '01/001', '01/003', '02/001' contradict" in " ".join(done.stderr.split())


def test_check_finds_a_guarantee_that_the_spec_does_not_give(areas, tmp_path):
    import shutil

    folder, _ = areas
    shutil.copytree(folder / "out", tmp_path / "out")
    path = tmp_path / "out" / "public" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["guarantee"]["amount"] = "1/100"
    path.write_text(json.dumps(manifest))
    done = run("check", tmp_path / "out")
    assert done.returncode == 6
    assert "FAIL the noise and the guarantee are those of the spec" in done.stdout


@pytest.mark.thorough
def test_reconciling_the_same_measurements_gives_the_same_integers(areas, tmp_path):
    import polars

    folder, _ = areas
    for name in ("one", "two"):
        assert run("reconcile", folder / "out", "--out", tmp_path / name).returncode == 0
    tables = [
        polars.read_parquet(f / "public/counts/county.parquet")
        for f in (tmp_path / "one", tmp_path / "two", folder / "out")
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    done = run("reconcile", folder / "out", "--out", tmp_path / "mode", "--method", "multinomial-mode")
    assert done.returncode == 0
    assert run("check", tmp_path / "mode").returncode == 0


@pytest.mark.thorough
def test_measure_then_reconcile_then_report(areas, tmp_path):
    folder, _ = areas
    done = run("measure", folder / "areas.toml", "--data", folder / "areas.csv", "--out", tmp_path / "noisy")
    assert done.returncode == 0, done.stderr
    assert "epsilon = 1" in done.stdout
    assert run("check", tmp_path / "noisy").returncode == 0
    assert run("reconcile", tmp_path / "noisy", "--out", tmp_path / "counts").returncode == 0
    done = run("report", tmp_path / "counts", "--out", tmp_path / "page.html")
    assert done.returncode == 0
    assert "Areas" in (tmp_path / "page.html").read_text()
    assert run("report", tmp_path / "counts", "--out", tmp_path / "page.html").returncode == 2


def test_explain_reads_no_count(areas, tmp_path):
    folder, _ = areas
    places = tmp_path / "places.csv"
    places.write_text("state,county\n01,001\n01,003\n02,001\n")
    done = run("explain", folder / "areas.toml", "--geography", places, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["structure"] == "tree"
    assert plan["guarantee"]["amount"] == "1"
    assert [row["groups"] for row in plan["expected"]] == [1, 2, 3]
    assert "Where the budget goes" in run("explain", folder / "areas.toml", "--geography", places).stdout


def test_methods_and_schema_are_for_machines_too():
    listed = json.loads(run("methods", "--json").stdout)
    assert listed["reconcile"][0]["name"] == "tree-topdown"
    assert listed["infer"][0]["name"] == "tree-exact"
    assert json.loads(run("schema").stdout)["$id"] == "trueup-spec-2"


LEAKS = (" 30", "Traceback")
REFUSALS = [
    (SPEC.replace(', neighbours = "add-remove"', ""), TABLE, [], "privacy.neighbours"),
    (SPEC.replace('unit = "person", neighbours', "neighbours"), TABLE, [], "privacy.unit is missing"),
    (SPEC + '[reconcile]\nmethod = "tree-topdwon"\n', TABLE, [], "did you mean 'tree-topdown'"),
    (SPEC + '[reconcile]\nmethod = "tree-topdown"\nrounding = "up"\n', TABLE, [], "rounding"),
    (SPEC + '[reconcile]\nmethod = "tree-topdown"\ncolour = "red"\n', TABLE, [], "no parameter 'colour'"),
    (SPEC, TABLE.replace("30", "-30"), [], "negative"),
    (SPEC, TABLE.replace("30", "30.5"), [], "not a whole number"),
    (SPEC, TABLE.replace("n\n", "m\n", 1), [], "no column 'n'"),
    (SPEC, "state,county,n\n", [], "no rows"),
    (SPEC.replace('county = "1/2"', 'county = "0"'), TABLE, [], "above zero"),
    (SPEC.replace(', county = "1/2"', ""), TABLE, [], "give a query on 'county' a budget"),
    (SPEC + '[constraints]\nlinear = ["a + >= 2"]\n', TABLE, [], "position 5"),
    (
        SPEC + '[constraints]\nbounds = [{ level = "all", upper = 5 }]\n',
        TABLE,
        [],
        "the confidential counts break bound of",
    ),
    (SPEC, TABLE, ["--geography", "nowhere.csv"], "there is no file"),
]


@pytest.mark.parametrize(("spec", "table", "more", "message"), REFUSALS, ids=[r[3] for r in REFUSALS])
def test_refusals_name_the_fault_and_leave_nothing(spec, table, more, message, tmp_path):
    spec_path, table_path = write_areas(tmp_path, spec=spec, table=table)
    done = run("release", spec_path, "--data", table_path, "--out", tmp_path / "out", *more)
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.replace(str(tmp_path), "").split())
    assert message in said
    assert not any(leak in said for leak in LEAKS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["areas.csv", "areas.toml"]


def test_an_occupied_folder_is_refused_and_left_alone(areas):
    folder, _ = areas
    before = (folder / "out" / "public" / "manifest.json").read_bytes()
    done = run("release", folder / "areas.toml", "--data", folder / "areas.csv", "--out", folder / "out")
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (folder / "out" / "public" / "manifest.json").read_bytes() == before


def test_a_broken_rule_is_named_without_its_places(tmp_path):
    rule = '[constraints]\nbounds = [{ level = "county", lower = 0 }, { level = "state", upper = 20 }]\n'
    spec_path, table_path = write_areas(tmp_path, spec=SPEC + rule)
    done = run("release", spec_path, "--data", table_path, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "bound of 'state'" in done.stderr
    assert "02" not in done.stderr.partition("error:")[2]


@pytest.mark.thorough
def test_a_killed_run_leaves_nothing_or_everything(tmp_path):
    spec, table = write_areas(tmp_path)
    for delay in (0.3, 0.6, 0.9, 1.2):
        out = tmp_path / f"out{delay}"
        command = [sys.executable, "-m", "trueup", "release", spec, "--data", table, "--out", out]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not out.exists() or run("check", out).returncode == 0


def test_the_counties_end_to_end(data_dir, tmp_path):
    """3,143 real counties: the file's own keys are the public geography."""
    from pathlib import Path

    spec = Path(__file__).parents[2] / "examples" / "us-counties.toml"
    done = run("release", spec, "--data", data_dir / "us_counties_2010.csv", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert run("check", tmp_path / "out").returncode == 0


def test_the_blocks_end_to_end(data_dir, tmp_path):
    """25,181 real blocks in five levels."""
    from pathlib import Path

    spec = Path(__file__).parents[2] / "examples" / "blocks.toml"
    done = run("release", spec, "--data", data_dir / "ri_blocks_2010.csv.gz", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert run("check", tmp_path / "out").returncode == 0


def test_internal_is_for_the_owner_alone(areas):
    folder, _ = areas
    assert (folder / "out" / "internal").stat().st_mode & 0o077 == 0


def test_a_key_belongs_to_one_spec(tmp_path):
    spec, table = write_areas(tmp_path)
    ledger = tmp_path / "ledger.db"
    terms = (
        "--unit",
        "person",
        "--neighbours",
        "add-remove",
        "--public-keys",
        "state",
        "--public-keys",
        "county",
    )
    assert run("budget", "init", ledger, "--dataset", "areas", "--cap", "epsilon=5", *terms).returncode == 0
    charged = [
        "--ledger",
        ledger,
        "--analyst",
        "ana",
        "--key",
        "k1",
        "--data",
        table,
        "--out",
        tmp_path / "out",
    ]
    first = run("release", spec, *charged)
    assert first.returncode == 0, first.stderr
    before = (tmp_path / "out" / "public" / "manifest.json").read_bytes()
    assert run("release", spec, *charged).returncode == 0
    assert (tmp_path / "out" / "public" / "manifest.json").read_bytes() == before
    spec.write_text(SPEC.replace("Areas", "Other areas"))
    other = run("release", spec, *charged)
    assert other.returncode == 3
    assert "another spec" in " ".join(other.stderr.split())


@pytest.mark.thorough
def test_plan_names_tables_that_it_leaves_unmeasured(tmp_path):
    """The printed command, followed, shows the counts that were asked for."""
    spec = """
format = 2
title = "Homes"
table = { name = "homes", kind = "counts", counts = "home", count = "n", keys = "public" }
privacy = { unit = "home", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
attribute = [{ name = "kind", values = ["a", "b"] }, { name = "let", values = ["y", "n"] }]
query = [
  { name = "kind", attributes = ["kind"], epsilon = { area = "1/5" } },
  { name = "both", attributes = ["kind", "let"], epsilon = { area = "1/5" } },
]
"""
    (tmp_path / "s.toml").write_text(spec)
    rows = [f"{area},{kind},{let},40" for area in "NS" for kind in "ab" for let in "yn"]
    (tmp_path / "d.csv").write_text("\n".join(["area,kind,let,n", *rows]) + "\n")
    (tmp_path / "p.csv").write_text("area\nN\nS\n")
    given = [
        "--geography",
        tmp_path / "p.csv",
        "--target",
        "area x kind x let=9@90%",
        "--out",
        tmp_path / "w.toml",
    ]
    done = run("plan", tmp_path / "s.toml", *given)
    assert done.returncode == 0, done.stderr
    assert "not measured" in done.stdout
    assert " inf " not in done.stdout
    command = re.search(r"Not measured .*: area x kind\. .* trueup export BUNDLE (.*)\.\n", done.stdout)
    assert command
    assert (
        run("release", tmp_path / "w.toml", "--data", tmp_path / "d.csv", "--out", tmp_path / "r").returncode
        == 0
    )
    told = shlex.split(command[1])
    assert run("export", tmp_path / "r", *told, "--out", tmp_path / "x").returncode == 0
    lines = (tmp_path / "x" / "area-kind.csv").read_text().splitlines()
    assert len(lines) == 5
    assert all(int(line.rpartition(",")[2]) > 0 for line in lines[1:])  # margins of error


@pytest.mark.parametrize(
    "words", ["--json check {}", "check --json {}", "check {} --json", "--memory 4GB check {} --json"]
)
def test_an_option_of_all_commands_stands_anywhere(areas, words):
    folder, _ = areas
    done = run(*shlex.split(words.format(shlex.quote(str(folder / "out")))))
    assert done.returncode == 0, done.stderr
    assert all(one["holds"] for one in json.loads(done.stdout))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "check towns --workers 2",
            "`trueup check` does not take the option --workers. To do: leave out --workers.",
        ),
        ("schema --log run.log", "`trueup schema` does not take the option --log"),
        ("budget show ledger --encoding latin-1", "`trueup budget show` does not take the option --encoding"),
        ("check towns --memory", "'--memory' requires an argument"),
        ("check towns --json=yes", "'--json' does not take a value"),
        ("check towns --workers 0", "greater than or equal to 1"),
    ],
)
def test_a_command_refuses_options_of_all_commands_that_it_does_not_use(words, said):
    done = run(*shlex.split(words))
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_what_stands_after_two_dashes_is_no_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("check", "--", "--json")
    assert done.returncode == 2
    assert "--json" in done.stderr, "it is the folder's name"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("trueup check towns --", {"--help", "--json", "--memory"}),
        ("trueup --json check towns --m", {"--memory"}),
        ("trueup budget show ledger --j", {"--json"}),
        ("trueup report towns --sh", {"--shapes"}),
    ],
)
def test_a_shell_completes_options_of_all_commands_where_they_are_taken(words, completed):
    given = {"_TRUEUP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = (
        "import sys; sys.argv = ['trueup']; from trueup.cli import whole_app; whole_app()(prog_name='trueup')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == completed


def test_a_meaning_of_no_parameter_is_a_mistake():
    def command(out: str) -> None: ...

    described(out="A new file.")(command)
    with pytest.raises(TypeError, match="command has no parameter outt"):
        described(outt="A new file.")(command)
