"""The command: by blocks from the first line to the last, and what it says of a mistake."""

import json

import pytest

from tests.command import run as trueup
from tests.releasing.bad_input import interrupted
from tests.releasing.state import TERMS, write_state
from trueup.model.problem import Problem, public_cells
from trueup.model.spec import load_spec
from trueup.releasing.engine import default_engine, whole_bytes


def options(folder):
    """Options of a release of the small state."""
    paths = write_state(folder)
    return [
        paths["spec"],
        "--data",
        paths["data"],
        "--geography",
        paths["geography"],
        "--out",
        folder / "out",
    ]


@pytest.mark.thorough
def test_a_release_by_parts_and_its_check(tmp_path):
    said = json.loads(trueup("release", *options(tmp_path), "--engine", "local", "--json").stdout)
    assert said["method"]["method"] == "histogram-tree"
    assert said["tables"][-1] == "block x race x age"
    assert trueup("check", tmp_path / "out").returncode == 0
    page = (tmp_path / "out" / "public" / "report.html").read_text()
    assert "Report on a release of counts" in page
    log = json.loads((tmp_path / "out" / "internal" / "run.json").read_text())
    assert log["engine"] == "local"
    assert {"measuring", "down from state"} <= {stage["what"] for stage in log["stages"]}


@pytest.mark.thorough
def test_an_interrupted_release_goes_on_from_its_folder_alone(tmp_path):
    run = interrupted(tmp_path)
    assert trueup("release", "--resume", run).returncode == 0
    assert not run.exists()
    assert trueup("check", tmp_path / "out").returncode == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--engine", "cluster"], "there is no engine 'cluster'"),
        (["--engine", "local", "--memory", "lots"], "the memory 'lots' is not a size"),
    ],
)
def test_mistakes_of_options_are_named(tmp_path, more, message):
    run = trueup("release", *options(tmp_path), *more)
    assert run.returncode == 2
    assert message in " ".join(run.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_missing_argument_is_named(tmp_path):
    run = trueup("release", "--out", tmp_path / "out")
    assert run.returncode == 2
    assert "the spec is missing" in run.stderr


def test_explain_names_the_engine(tmp_path):
    paths = write_state(tmp_path)
    spec = load_spec(paths["spec"])
    cells = public_cells(spec, geography=paths["geography"])
    assert default_engine(Problem(spec, cells), whole_bytes(cells)) == "memory"
    assert default_engine(Problem(spec, cells), whole_bytes(cells) - 1) == "local"
    said = trueup("explain", paths["spec"], "--geography", paths["geography"], "--memory", "10KB")
    assert "Engine: by parts" in said.stdout


@pytest.mark.thorough
def test_a_key_that_was_released_draws_nothing_again(tmp_path):
    from trueup.ledger.ledger import Ledger

    url = str(tmp_path / "ledger.db")
    Ledger.create(url).init("small", {"rho": "10"}, terms=TERMS)
    charged = ["--ledger", url, "--analyst", "ana", "--key", "first", "--engine", "local", "--json"]
    first = trueup("release", *options(tmp_path), *charged)
    manifest = (tmp_path / "out" / "public" / "manifest.json").read_bytes()
    again = trueup("release", *options(tmp_path), *charged)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert json.loads(first.stdout)["tables"] == json.loads(again.stdout)["tables"]
    assert (tmp_path / "out" / "public" / "manifest.json").read_bytes() == manifest
    assert len(Ledger.open(url).state().reserved) == 1
