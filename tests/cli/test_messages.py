"""What commands say after natural mistakes: one line off the terminal, with a remedy that works."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import trueup
from tests.areas import SPEC, write_areas
from tests.command import run
from trueup import Margin, errors
from trueup.cli import EXIT_CODES, TERMINATED
from trueup.cli.printing import LogLines, progress, writing_log
from trueup.errors import SpecError
from trueup.measuring import simulate
from trueup.model.problem import Problem


@pytest.fixture(scope="module")
def areas(tmp_path_factory):
    """Return a spec, a table and the folder they are in, whose name holds a space and no ASCII."""
    folder = tmp_path_factory.mktemp("a folder with 'é")
    return *write_areas(folder), folder


def test_off_the_terminal_a_message_is_one_line(areas):
    spec, _, folder = areas
    done = run("release", spec, "--data", folder / ("x" * 100 + ".csv"), "--out", folder / "out")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "x" * 100 in done.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(130), RuntimeError("Query interrupted")])
def test_an_interruption_says_that_nothing_was_published(error, capsys):
    """Whether it came to us, to typer or to DuckDB."""
    from trueup.cli import run_app

    def app():
        raise error

    with pytest.raises(SystemExit) as end:
        run_app(app)
    assert end.value.code == 130
    assert capsys.readouterr().err == "error: interrupted; nothing was published\n"


INTERRUPTED_BY_AN_IMPORT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *others):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = ["infer", "nowhere", "--json"]
from trueup.__main__ import run_command_line
run_command_line()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "module", ["trueup.cli", "typer", "trueup.cli.infer", "trueup.cli.printing", "numpy"]
)
def test_an_interruption_while_modules_are_loaded_is_told_as_any_other(module):
    program = INTERRUPTED_BY_AN_IMPORT.format(module=module)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "error: interrupted; nothing was published\n"
    assert json.loads(done.stdout)["error"]["exit_code"] == done.returncode == 130


def test_both_ways_to_start_the_command_are_one():
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"trueup": "trueup.__main__:run_command_line"}


def test_the_line_that_synth_prints_is_a_command(areas):
    spec, _, folder = areas
    done = run(
        "synth",
        spec,
        *["--state", "Wyoming", "--blocks", "6", "--persons", "90", "--out"],
        folder / "made up",
    )
    assert done.returncode == 0, done.stderr
    line = done.stdout.split("To release: trueup ")[1].strip()
    assert run(*shlex.split(line.replace("NEW", shlex.quote(str(folder / "out"))))).returncode == 0


def test_explain_names_the_option_that_is_missing_and_no_key_that_is_there(areas):
    done = run("explain", areas[0])
    assert done.returncode == 2
    assert "give --geography FILE," in done.stderr
    assert "keys" not in done.stderr


@pytest.mark.parametrize("name", ["areas.csv", "."])
def test_a_report_of_something_else_says_that_it_is_no_bundle(areas, name):
    folder = areas[2]
    done = run("report", folder / name, "--out", folder / "page.html")
    assert done.returncode == 2
    assert "is not a bundle" in done.stderr


def test_a_public_folder_alone_is_told_where_it_belongs(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    done = run("report", tmp_path, "--out", tmp_path / "page.html")
    assert done.returncode == 2
    assert "give the folder that holds it as" in " ".join(done.stderr.split())


def test_an_analyst_without_a_cap_is_told_the_option_that_gives_one(areas):
    spec, table, folder = areas
    caps = (
        "--cap",
        "epsilon=2",
        "--cap",
        "ana:epsilon=1",
        "--unit",
        "person",
        "--neighbours",
        "add-remove",
        "--public-keys",
        "state",
        "--public-keys",
        "county",
    )
    assert run("budget", "init", folder / "l.db", "--dataset", "areas", *caps).returncode == 0
    asked = ("--data", table, "--out", folder / "never", "--ledger", folder / "l.db", "--analyst", "bob")
    done = run("release", spec, *asked)
    assert done.returncode == 3
    assert "`trueup budget init --cap ANALYST:CURRENCY=AMOUNT`" in done.stderr


def test_a_law_on_a_lattice_is_not_audited_count_by_count():
    done = run("audit", "lattice-laplace:epsilon=1")
    assert done.returncode == 2
    assert "draws the noise of many counts together" in done.stderr


def test_tables_and_draws_that_cannot_be_are_refused_by_name(areas):
    spec = trueup.parse_spec(SPEC)
    problem = Problem.of(spec, data=areas[1])
    noisy = simulate(problem, np.zeros(3, np.int64), np.random.default_rng(0))
    with pytest.raises(SpecError, match="no level 'tract'"):
        trueup.reconcile(noisy, spec=spec).sums(Margin("tract"))
    for draws in (0, -1):
        with pytest.raises(SpecError, match="draws are requested"):
            trueup.infer(noisy, spec=spec, draws=draws)


def test_an_error_is_one_json_object_where_json_is_asked_for(areas):
    spec, table, folder = areas
    done = run("release", spec, "--data", table, "--out", folder, "--json")
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "BundleError"
    assert error["exit_code"] == done.returncode == 2
    assert error["remedy"] in error["message"]


def test_each_kind_of_error_has_the_exit_code_that_is_documented():
    kinds = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.TrueupError)
    }
    assert kinds <= set(EXIT_CODES)
    assert kinds >= {2, 3, 4, 5}


def test_a_ledger_that_cannot_be_read_is_the_system_s_refusal_and_one_that_is_not_there_the_ledger_s(
    tmp_path,
):
    (tmp_path / "ledger.db").write_text("no database" * 100)
    assert run("budget", "show", tmp_path / "ledger.db").returncode == errors.LedgerError.exit_code == 1
    assert run("budget", "show", tmp_path / "none.db").returncode == errors.BudgetError.exit_code == 3


ENDED = """
import os, signal, sys
from trueup import cli as program
def app():
    os.kill(os.getpid(), signal.{signal})
    signal.pause()
program.run_app(app)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_run_that_is_told_to_end_says_so(name):
    done = subprocess.run(
        [sys.executable, "-c", ENDED.format(signal=name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == TERMINATED
    assert f"ended by {name}" in done.stderr


def test_a_process_that_goes_on_after_a_command_ends_by_signals_as_before():
    numbers = signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    assert run("schema").returncode == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_log_has_a_line_now_and_then_with_the_time_left(capsys, monkeypatch):
    clock = (
        time for time in (0.0, 10.0, 40.0, 80.0) for _ in range(2)
    )  # for the time left, for when to say it
    monkeypatch.setattr("trueup.cli.printing.time.monotonic", lambda: next(clock))
    lines = LogLines()
    for done in range(4):
        lines.watch("measuring", done, 3)
    said = capsys.readouterr().err.splitlines()
    assert [line[21:] for line in said] == ["measuring: 2 of 3, about 20 s left", "measuring: 3 of 3"]


def test_lines_of_json_have_the_time_left_too(tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 40.0, 80.0])
    monkeypatch.setattr("trueup.cli.printing.time.monotonic", lambda: next(clock))
    seen = []
    with writing_log(tmp_path / "log.jsonl", lambda *given: seen.append(given)) as watch:
        for done in range(1, 5):  # one part was done by an earlier attempt
            watch("measuring", done, 4)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line.get("seconds left") for line in lines if "stage" in line] == [None, 20, 20, None]
    assert len(seen) == 4


def test_a_stage_without_parts_is_said_once(capsys):
    lines = LogLines()
    for done in (0, 1):
        lines.watch("reading the spec", done, 1)
    lines.watch("writing")
    assert [line[21:] for line in capsys.readouterr().err.splitlines()] == ["reading the spec", "writing"]


def test_a_kind_of_stage_is_said_once_in_a_while(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("trueup.cli.printing.time.monotonic", lambda: now[0])
    lines = LogLines()
    for done in range(90):  # a second each
        lines.watch(f"warming up: {done} of 90 sweeps")
        lines.watch("drawing", 1000, 1000)
        now[0] += 1.0
    said = [line[21:] for line in capsys.readouterr().err.splitlines()]
    assert said[:2] == ["warming up: 0 of 90 sweeps", "drawing: 1,000 of 1,000"]
    assert 4 <= len(said) <= 6


def test_a_prediction_that_changes_is_said_again(capsys):
    lines = LogLines()
    for sweeps, seconds in ((8, 10), (9, 11), (64, 45), (512, 180)):
        lines.watch(
            f"the Markov chains are too short; {sweeps} sweeps to a draw, about {seconds} seconds in all predicted"
        )
    said = capsys.readouterr().err.splitlines()
    assert [line.split("; ")[1].split()[0] for line in said] == ["8", "64", "512"]


def test_on_a_terminal_parts_have_a_bar_and_their_number(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with progress(quiet=False) as tell:
        tell("reading")
        tell("drawing", 3, 4)
    said = capsys.readouterr().err
    assert "reading" in said
    assert "drawing" in said
    assert "3 of 4" in said
