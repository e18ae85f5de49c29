"""One owner of a folder at a time, without any lock of the file system."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from trueup.errors import BusyError
from trueup.files import owner
from trueup.files.owner import owning


@pytest.fixture(autouse=True)
def no_locks(monkeypatch):
    """A file system whose locks hold nobody back, as over some mounts of NFS."""
    monkeypatch.setattr(fcntl, "flock", lambda handle, how: None)
    monkeypatch.setattr(fcntl, "lockf", lambda handle, how: None)


def elsewhere(folder: Path, *, silent: float = 0.0) -> Path:
    """Leave the record of an owner on another machine, who gave its last sign of life some seconds ago."""
    with owning(folder):
        pass
    path = folder / "owner" / "00002"
    path.write_text(json.dumps({"host": "other", "machine": "other", "process": 7, "begun": "1"}))
    then = path.stat().st_mtime - silent
    os.utime(path, (then, then))
    return path


def test_a_folder_has_one_owner_at_a_time(tmp_path):
    with owning(tmp_path), pytest.raises(BusyError, match=f"process {os.getpid()} on"), owning(tmp_path):
        pytest.fail("two owners")
    with owning(tmp_path) as second:
        assert second.number == 2


def test_of_many_that_begin_at_once_one_owns(tmp_path, monkeypatch):
    """All have seen that nobody owns it when they link their records."""
    at_once, owners = threading.Barrier(8), []
    monkeypatch.setattr(
        owner, "to_disk", lambda path: at_once.wait(10) if path.name.startswith(".") else None
    )

    def begin() -> None:
        with suppress(BusyError):
            owners.append(owner._next_owner(tmp_path, False))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == 1


@pytest.mark.parametrize("take_over", [False, True])
def test_a_process_of_this_machine_that_was_killed_is_followed(tmp_path, take_over):
    code = "import os, sys; from pathlib import Path; from trueup.files.owner import owning\n"
    code += "with owning(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    with owning(tmp_path, take_over=take_over) as following:
        assert following.number == 2


def test_another_process_with_the_number_of_a_dead_one_is_not_taken_for_it(tmp_path, monkeypatch):
    with owning(tmp_path):
        monkeypatch.setattr(owner, "_begun", lambda process: "later")
        with owning(tmp_path) as following:
            assert following.number == 2


def test_another_machine_is_followed_only_when_it_is_silent_and_said_to_be_dead(tmp_path):
    path = elsewhere(tmp_path)
    for take_over in (False, True):
        with (
            pytest.raises(BusyError, match="it last reported 0 s ago"),
            owning(tmp_path, take_over=take_over),
        ):
            pytest.fail("a living owner was followed")
    then = path.stat().st_mtime - owner.MAX_SILENCE_SECONDS - 1
    os.utime(path, (then, then))
    with pytest.raises(BusyError, match="--take-over"), owning(tmp_path):
        pytest.fail("nobody said that it is dead")
    with owning(tmp_path, take_over=True) as following:
        assert following.number == 3


def test_who_was_followed_goes_no_further(tmp_path):
    with owning(tmp_path) as first:
        first.refuse_followed()
        (tmp_path / "owner" / "00002").touch()
        with pytest.raises(BusyError, match="has taken over"):
            first.refuse_followed()


def test_an_owner_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(owner, "SECONDS_BETWEEN_SIGNS_OF_LIFE", 0.01)
    with owning(tmp_path) as held:
        os.utime(held.path, (0, 0))
        until = threading.Event()
        for _ in range(500):
            if held.path.stat().st_mtime > 0:
                break
            until.wait(0.01)
        assert held.path.stat().st_mtime > 0


def test_a_record_that_nobody_can_read_is_taken_for_another_machine(tmp_path):
    elsewhere(tmp_path).write_bytes(b"\xff")
    with pytest.raises(BusyError, match="it last reported"), owning(tmp_path):
        pytest.fail("an unknown owner was followed")
