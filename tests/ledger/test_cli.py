"""`trueup budget`, `trueup plan` and `trueup release --ledger` as a user runs them."""

import json

import pytest

from tests.command import run
from trueup.ledger.entries import entry_digest

SPEC = """
format = 2
title = "Two areas"
table = { name = "demo", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", epsilon = { all = "1/8", area = "1/8" } }]
"""

INIT = ("budget", "init", "ledger.db", "--dataset", "demo", "--unit", "person", "--neighbours", "add-remove")
INIT += ("--cap", "epsilon=0.5", "--public-keys", "area")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a spec, data and a ledger of half an epsilon, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "data.csv").write_text("area,n\na,300\nb,400\n")
    assert run(*INIT).returncode == 0
    return tmp_path


def release(out, *more, command="release"):
    charged = ("--ledger", "ledger.db", "--analyst", "ana") if "--ledger" not in more else ()
    return run(command, "spec.toml", "--data", "data.csv", "--out", out, *charged, *more)


def spent():
    (row,) = json.loads(run("budget", "show", "ledger.db", "--json").stdout)
    return row["spent"]


def test_releases_are_charged_until_the_cap_is_reached(place):
    assert release("one").returncode == 0
    assert release("two", command="measure").returncode == 0
    assert spent() == "1/2"
    refused = release("three")
    assert refused.returncode == 3
    assert "at most 0 of the cap 1/2" in " ".join(refused.stderr.split())
    assert not (place / "three").exists()
    events = json.loads(run("budget", "log", "ledger.db", "--json").stdout)
    assert [e["release"] for e in events] == [str(place / "one"), str(place / "two")]


def test_the_manifest_and_the_report_name_the_entry(place):
    release("one")
    manifest = json.loads((place / "one" / "public" / "manifest.json").read_text())
    lines = run("budget", "export", "ledger.db").stdout.splitlines()
    assert manifest["ledger"]["entry"] == 4
    assert manifest["ledger"]["head"] == entry_digest(lines[3])
    assert [json.loads(line)["previous"] for line in lines[1:]] == [entry_digest(line) for line in lines[:-1]]
    assert manifest["ledger"]["head"] in (place / "one" / "public" / "report.html").read_text()


def test_a_release_without_a_ledger_says_so(place):
    assert run("release", "spec.toml", "--data", "data.csv", "--out", "free").returncode == 0
    assert json.loads((place / "free" / "public" / "manifest.json").read_text())["ledger"] is None
    assert "No ledger was kept" in (place / "free" / "public" / "report.html").read_text()
    assert spent() == "0"


def test_a_key_returns_the_same_bytes_and_draws_once(place):
    assert release("one", "--key", "2026").returncode == 0
    before = {p: p.read_bytes() for p in (place / "one").rglob("*") if p.is_file()}
    again = release("one", "--key", "2026", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["checks"]
    assert json.loads(again.stdout)["drawn"] is False
    assert "Nothing was read, drawn or charged" in release("one", "--key", "2026").stdout
    assert {p: p.read_bytes() for p in (place / "one").rglob("*") if p.is_file()} == before
    assert spent() == "1/4"
    moved = release("elsewhere", "--key", "2026")
    assert moved.returncode == 3
    assert "is finished in" in moved.stderr


def test_an_account_is_shown_with_its_terms_and_what_was_checked(place):
    for name, more in (("ruled", ""), ("listed", ', invariants = [{ level = "all" }]')):
        (place / f"{name}.toml").write_text(SPEC + f"constraints = {{ bounds = {BOUNDS}{more} }}\n")
    terms = ("--unit", "person", "--neighbours", "replace", "--checks", "0")
    listed = ("--list", "listed.toml", "--geography", "data.csv")
    done = run("budget", "init", "other.db", "--dataset", "demo", *terms, *listed, "--cap", "epsilon=1")
    assert done.returncode == 0, done.stderr
    charged = ("--ledger", "other.db", "--analyst", "ana")
    assert run("release", "ruled.toml", "--data", "data.csv", "--out", "ruled", *charged).returncode == 0
    (row,) = json.loads(run("budget", "show", "other.db", "--json").stdout)
    account = row["account"]
    assert (account["unit"], account["neighbours"], account["invariants"]) == ("person", "replace", ["all"])
    assert account["facts"] == ["all <= 9999"]
    assert (account["checked"], account["checks"]) == (0, 0)
    assert row["spent"] == "1/4", "its two areas under replace; a total costs nothing there"
    said = " ".join(run("budget", "show", "other.db").stdout.split())
    assert "demo all epsilon 1 1/4 3/4" in said, "the cap of the dataset, whoever draws"
    assert "Of that was charged by analyst: ana epsilon = 1/4." in said
    assert "protects one person" in said
    assert "May be published exactly, and was not yet: all." in said
    assert "'all <= 9999'" in said
    assert (
        "Compared are databases that keep these rules"
        in (place / "ruled" / "public" / "report.html").read_text()
    )


BOUNDS = '[{ level = "all", upper = 9999 }]'


def test_bad_data_cost_nothing(place):
    (place / "data.csv").write_text("area,n\na,300\nb,-4\n")
    assert release("one").returncode == 2
    assert spent() == "0"


def test_tables_made_again_from_the_measurements_cost_nothing(place):
    release("one")
    assert run("reconcile", "one", "--out", "again").returncode == 0
    assert spent() == "1/4"
    found = json.loads(run("budget", "verify", "ledger.db", "--against", ".", "--json").stdout)
    assert (found["bundles"], found["findings"]) == (2, [])


def test_verify_fails_when_the_ledger_was_replaced(place):
    release("one")
    (place / "ledger.db").unlink()
    run(*INIT)
    found = run("budget", "verify", "ledger.db", "--against", ".")
    assert found.returncode == 6
    assert "WRONG" in found.stdout


def test_export_writes_a_new_file_only(place):
    assert run("budget", "export", "ledger.db", "--out", "lines").returncode == 0
    assert (place / "lines").read_text() == run("budget", "export", "ledger.db").stdout
    assert run("budget", "export", "ledger.db", "--out", "lines").returncode == 2


@pytest.mark.thorough
def test_plan_divides_before_anything_is_spent(place):
    arguments = ("plan", "spec.toml", "--geography", "data.csv", "--total", "1/2", "--target", "all=20")
    planned = json.loads(run(*arguments, "--out", "plan.html", "--json").stdout)
    assert planned["total"] == "1/2"
    assert planned["levels"] == ["all", "area"]
    page = (place / "plan.html").read_text()
    assert "nothing was spent" in page
    assert "<svg" in page
    assert run(*arguments, "--out", "plan.html").returncode == 2
    assert "area" in run(*arguments).stdout
    assert spent() == "0"


@pytest.mark.thorough
def test_plan_writes_a_spec_that_meets_the_targets(place):
    wish = ("--geography", "data.csv", "--target", "area=30@95%", "--target", "all=40@95%")
    assert run("plan", "spec.toml", *wish, "--out", "planned.toml").returncode == 0
    again = json.loads(run("plan", "planned.toml", *wish, "--json").stdout)
    assert all(r["given"] <= r["target"]["counts"] for r in again["targets"])
    assert run("plan", "spec.toml", *wish, "--out", "planned.toml").returncode == 2


@pytest.mark.parametrize(
    "wish",
    [
        ("--weight", "area"),
        ("--weight", "area=x"),
        ("--total", "0"),
        ("--target", "b=1"),
        ("--target", "area=5@120%"),
        ("--preset", "best"),
    ],
)
def test_bad_plans_are_refused(place, wish):
    assert run("plan", "spec.toml", "--geography", "data.csv", *wish).returncode == 2
