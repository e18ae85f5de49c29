"""What a run that goes on may change, what it remembers of earlier attempts, and what it says when it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from unittest.mock import patch

import pandas
import pytest

from tests.command import run as trueup
from tests.releasing.bad_input import Interrupted, interrupted, release
from tests.releasing.state import write_state
from trueup.checking.bundle import check as check_bundle
from trueup.errors import DataError
from trueup.releasing import cut
from trueup.releasing.pipeline import resume
from trueup.releasing.run_folder import RunFolder
from trueup.run.local import LocalPool


class Two(LocalPool):
    """Says that it has two workers, and works alone."""

    def __init__(self, memory: int | None = None) -> None:
        super().__init__(1, memory=memory)
        self.workers = 2

    def map(self, task, items):
        """Carry out every task here."""
        return self._here(task, items)


@pytest.mark.thorough
@pytest.mark.parametrize("after", [0, 2])
def test_as_long_as_nothing_is_drawn_the_places_are_cut_anew(tmp_path, monkeypatch, after):
    run = interrupted(tmp_path, after=after, places=40)
    assert len(RunFolder(run).all_parts) == 3
    monkeypatch.setattr(cut, "MIN_LAST_LAYER_PLACES", 6)
    released = resume(run, executor=Two(3 * 10**9))
    assert all(check.holds for check in check_bundle(released.folder))
    assert released.parts > 4
    log = json.loads((released.folder / "internal" / "run.json").read_text())
    assert (log["workers"], log["memory"]) == (2, 3 * 10**9)


def test_once_something_is_drawn_the_cut_stays(tmp_path, monkeypatch):
    run = interrupted(tmp_path, after=20)
    before = RunFolder(run).plan["cut"]
    monkeypatch.setattr(cut, "MIN_LAST_LAYER_PLACES", 2)
    with patch("trueup.releasing.parts.ByParts.measure", side_effect=Interrupted), pytest.raises(Interrupted):
        resume(run, executor=Two(3 * 10**9))
    assert RunFolder(run).plan["cut"] == before


@pytest.mark.thorough
def test_one_log_holds_all_attempts(tmp_path):
    released = resume(interrupted(tmp_path, after=20), executor=LocalPool(1))
    stages = json.loads((released.folder / "internal" / "run.json").read_text())["stages"]
    assert {stage["attempt"] for stage in stages} == {1, 2}
    assert [stage["attempt"] for stage in stages if stage["what"] == "tabulating"] == [1]
    assert [stage["attempt"] for stage in stages if stage["what"] == "linking the tables"] == [2]


@pytest.mark.thorough
def test_a_table_without_a_file_is_known_by_its_counts(tmp_path):
    """An address of a cluster, a dataframe: what was read before must be what is read now."""
    paths = write_state(tmp_path)
    people = pandas.read_csv(paths["data"], dtype=str)
    run = interrupted(tmp_path, after=20, data_path=people)
    (run / "confidential" / "counts.json").unlink()
    with pytest.raises(DataError, match="differ from those with which the run began"):
        resume(run, data=people.iloc[1:], geography=paths["geography"], executor=LocalPool(1))
    released = resume(run, data=people.sample(frac=1, random_state=1), executor=LocalPool(1))
    log = json.loads((released.folder / "internal" / "run.json").read_text())
    assert len(log["input"]["hmac-sha256"]) == 64


def test_an_address_of_an_object_store_is_refused_as_target(tmp_path):
    paths = write_state(tmp_path)
    told = trueup(
        "release",
        paths["spec"],
        "--data",
        paths["data"],
        "--geography",
        paths["geography"],
        "--out",
        "s3a://a/b",
    )
    assert told.returncode == 2
    assert "hard links to draw noise only once" in " ".join(told.stderr.split())


@pytest.mark.thorough
def test_every_end_that_leaves_a_run_says_how_to_continue_it(tmp_path):
    """And the log of lines of JSON has all attempts."""
    paths = write_state(tmp_path)
    given = [
        paths["spec"],
        "--data",
        paths["data"],
        "--geography",
        paths["geography"],
        "--out",
        tmp_path / "out",
    ]
    options = ["--engine", "local", "--json", "--log", tmp_path / "log.jsonl"]
    with patch("trueup.releasing.tasks.draw", side_effect=MemoryError):
        ended = trueup("release", *given, *options)
    assert ended.returncode == 1, "the system refused it"
    assert f"continue with: trueup release --resume {tmp_path / 'out.run'}" in ended.stderr
    assert json.loads(ended.stdout)["error"]["resume"].endswith("out.run")
    assert trueup("release", "--resume", tmp_path / "out.run", *options).returncode == 0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["attempt"] for line in lines if "attempt" in line] == ["begun", "ended", "begun", "done"]
    assert {"tabulating", "measuring"} <= {line.get("stage") for line in lines}
    assert all("time" in line for line in lines)
    assert (tmp_path / "log.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.thorough
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_says_how_to_continue(tmp_path, ending):
    paths = write_state(tmp_path)
    given = [
        paths["spec"],
        "--data",
        paths["data"],
        "--geography",
        paths["geography"],
        "--out",
        tmp_path / "out",
    ]
    command = [sys.executable, "-m", "trueup", "release", *given, "--engine", "local", "--workers", "2"]
    process = subprocess.Popen(map(str, command), stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    until = time.monotonic() + 120
    while not (tmp_path / "out.run" / "journal").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(ending)
    _, said = process.communicate(timeout=120)
    assert process.returncode == (130 if ending == signal.SIGINT else 143)
    assert f"continue with: trueup release --resume {tmp_path / 'out.run'}" in said


@pytest.mark.thorough
def test_a_run_that_never_drew_and_was_refused_says_nothing_of_going_on(tmp_path):
    with pytest.raises(DataError, match="not have 3 rows"):
        release(tmp_path, expect_rows=3)
    assert not (tmp_path / "out.run").exists()
    assert release(tmp_path, expect_rows=len((tmp_path / "people.csv").read_text().splitlines()) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "reconcile", "infer"])
def test_bundles_beyond_the_memory_given_are_refused_by_name(tmp_path, command):
    release(tmp_path)
    out = ["--out", tmp_path / "other"] if command == "reconcile" else []
    said = trueup(command, tmp_path / "out", *out, "--memory", "300MB")
    assert said.returncode == 2
    assert "of memory, but at most 300 MB" in " ".join(said.stderr.split())
    assert not (tmp_path / "other").exists()
