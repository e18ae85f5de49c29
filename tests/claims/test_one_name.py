"""Claim: a ledger grants what its caps allow, by whatever names its file is reached.

On the version before, 8 processes on two hard links of one file were granted 40 of a cap of 20: each name had a write-ahead
log of its own.
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledger.helpers import ledger_at, reserve
from trueup.errors import BudgetError
from trueup.ledger import store
from trueup.ledger.ledger import Ledger
from trueup.ledger.store import refuse_second_name

CAP = 20
KILLED = """
import os, signal, sys
from tests.ledger.helpers import reserve
from trueup.ledger.ledger import Ledger
for _ in range(3):
    reserve(Ledger.open(sys.argv[1]), "1/100")
os.kill(os.getpid(), signal.SIGKILL)
"""


def granted(*urls, prefix=(), processes=4):
    """How often processes are granted a hundredth, each by one of the names in turn."""
    command = [*prefix, sys.executable, "-m", "tests.ledger.worker"]
    workers = [
        subprocess.Popen(
            [*command, urls[i % len(urls)], "reserve", "10"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    said = [worker.communicate(timeout=300) for worker in workers]
    assert all(out or "BudgetError" in err for out, err in said), said
    return sum(int(out) for out, _ in said if out)


@pytest.fixture
def ledger(tmp_path):
    """A ledger of twenty hundredths."""
    (tmp_path / "a").mkdir()
    ledger_at(str(tmp_path / "a" / "ledger.db"), f"{CAP}/100")
    return tmp_path / "a" / "ledger.db"


def spent(path):
    return len(Ledger.open(str(path)).state().reserved)


@pytest.mark.thorough
def test_two_hard_links_are_refused_by_name_and_grant_nothing(ledger, tmp_path):
    other = tmp_path / "other.db"
    os.link(ledger, other)
    assert granted(str(ledger), str(other), processes=8) == 0
    for path in (ledger, other):
        with pytest.raises(BudgetError, match="2 names"):
            Ledger.open(str(path))
    other.unlink()
    assert spent(ledger) == 0
    assert granted(str(ledger)) == CAP


def test_a_link_made_while_the_ledger_is_used_stops_both_names(ledger, tmp_path):
    held = Ledger.open(str(ledger))
    reserve(held, "1/100")
    os.link(ledger, tmp_path / "other.db")
    with pytest.raises(BudgetError, match="2 names"):
        reserve(held, "1/100")


@pytest.mark.thorough
def test_symbolic_links_and_mounted_folders_are_the_same_name(ledger, tmp_path):
    (tmp_path / "link.db").symlink_to(ledger)
    (tmp_path / "folder").symlink_to(ledger.parent)
    assert granted(str(ledger), str(tmp_path / "link.db"), str(tmp_path / "folder" / ledger.name)) == CAP
    assert spent(ledger) == CAP


def test_a_ledger_that_is_moved_takes_along_everything_that_was_granted(ledger, tmp_path):
    """With a write-ahead log, entries of a killed process stayed behind in a file beside the old name."""
    subprocess.run([sys.executable, "-c", KILLED, str(ledger)], check=False)
    assert sorted(p.name for p in ledger.parent.iterdir()) == ["ledger.db", "ledger.db.keeper"]
    moved = ledger.rename(tmp_path / "moved.db")
    assert spent(moved) == 3


MOUNT = "touch {new} && mount --bind {old} {new} && exec "


def mounting():
    """Whether this process may mount in a namespace of its own."""
    return (
        shutil.which("unshare")
        and not subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    )


@pytest.mark.thorough
def test_a_file_that_is_mounted_singly_is_refused_by_name(ledger, tmp_path, monkeypatch):
    other = tmp_path / "other.db"
    if mounting():
        mount = ["unshare", "-m", "sh", "-c", MOUNT.format(old=ledger, new=other) + '"$@"', "sh"]
        assert granted(str(ledger), str(other), prefix=mount) == CAP, "the file's own name is granted the cap"
        assert granted(str(other), prefix=mount) == 0
        command = [*mount, sys.executable, "-m", "tests.ledger.worker", str(other), "reserve", "1"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "is mounted as a single file" in told.stderr
    else:  # the system grants no mounts: what it would say of one is put in its place
        mounts = {ledger: "mnt_id: 7", ledger.parent: "mnt_id: 1"}
        monkeypatch.setattr(store, "_mount_of", mounts.__getitem__)
        with pytest.raises(BudgetError, match="mounted as a single file"):
            refuse_second_name(ledger)


def test_looking_at_the_file_gives_up_no_lock(ledger):
    """Closing a handle of a file gives up all of a process's record locks on it, unless it was opened for its path alone."""
    held = sqlite3.connect(ledger, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    refuse_second_name(ledger)
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.2, isolation_level=None).execute('BEGIN IMMEDIATE')"
    with contextlib.closing(held):
        told = subprocess.run(
            [sys.executable, "-c", other, str(ledger)], capture_output=True, text=True, check=False
        )
    assert "locked" in told.stderr


@pytest.mark.thorough
def test_the_bar_is_able_to_fail(ledger, tmp_path):
    """Two names without the refusal, with a write-ahead log each, are granted more than the cap."""
    other = tmp_path / "other.db"
    os.link(ledger, other)
    broken = f"""
import sys
from trueup.ledger import store
store.refuse_second_name = lambda path: None
store._leave_log = lambda connection: connection.execute("PRAGMA journal_mode = WAL")
from tests.ledger import worker
worker.reserves(sys.argv[1], {CAP})
"""
    run = [sys.executable, "-c", broken]
    keepers = [sqlite3.connect(p) for p in (ledger, other)]
    for keeper in keepers:  # a connection that has read keeps its name's log
        keeper.execute("PRAGMA journal_mode = WAL")
        keeper.execute("SELECT count(*) FROM sqlite_master").fetchone()
    workers = [subprocess.Popen([*run, str(p)], stdout=subprocess.PIPE, text=True) for p in (ledger, other)]
    total = sum(int(w.communicate(timeout=120)[0] or 0) for w in workers)
    for keeper in keepers:
        keeper.close()
    assert total > CAP
    assert Path(other).exists()
