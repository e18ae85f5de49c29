"""What a damaged, cut, restored, full or read-only ledger does: it never grants."""

import json
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ordinary_user
from tests.ledger.helpers import begin, epsilon, ledger_at, release, request, reserve, stage
from trueup.errors import BudgetError, BundleError
from trueup.ledger.entries import Transaction, entry_digest, link
from trueup.ledger.ledger import Ledger
from trueup.ledger.request import Terms
from trueup.ledger.store import SqliteStore
from trueup.ledger.verify import verify_ledger


@pytest.fixture
def kept(tmp_path):
    """A ledger with three releases, of which no keeper has written down the last entry; its path."""
    path = tmp_path / "ledger.db"
    ledger = ledger_at(str(path))
    for i in range(3):
        release(ledger, tmp_path, f"out{i}", key=f"key {i}")
    shutil.rmtree(keeper_of(path))
    return path


def keeper_of(path):
    """The keeper's folder of a ledger."""
    return path.with_name(f"{path.name}.keeper")


def execute(path, *commands):
    """Change the file behind the ledger's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = [f"DROP TRIGGER trueup_ledger_no_{what}" for what in ("update", "delete")]
    for command in (*triggers, *commands):
        connection.execute(command)
    connection.close()


def test_an_untouched_ledger_verifies(kept):
    found = verify_ledger(Ledger.open(str(kept)), kept.parent)
    assert (found.entries, found.bundles, found.findings, found.unrecorded) == (12, 3, (), ())


TAMPERING = {
    "an amount made smaller": (
        """UPDATE trueup_ledger SET body = replace(body, '"epsilon":"1/10"', '"epsilon":"1/99"') WHERE number = 4""",
        "entry 4 of the ledger does not match its hash",
    ),
    "a hash": ("UPDATE trueup_ledger SET hash = hash || '0' WHERE number = 5", "entry 5"),
    "a row removed": ("DELETE FROM trueup_ledger WHERE number = 4", "entry 4 of the ledger is missing"),
    "the first row removed": (
        "DELETE FROM trueup_ledger WHERE number = 1",
        "entry 1 of the ledger is missing",
    ),
    "a row repeated": (
        "INSERT INTO trueup_ledger SELECT 13, body, hash || 'x' FROM trueup_ledger WHERE number = 12",
        "entry 13",
    ),
    "rubbish": (
        "UPDATE trueup_ledger SET body = 'x', hash = '" + entry_digest("x") + "' WHERE number = 6",
        "entry 6 .* cannot be read",
    ),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_found_and_nothing_granted(kept, name):
    command, where = TAMPERING[name]
    execute(kept, command)
    assert re.search(where, verify_ledger(Ledger(SqliteStore(kept))).findings[0])
    with pytest.raises(BudgetError, match=where):
        Ledger.open(str(kept))


def test_a_chain_recomputed_by_a_forger_is_found_by_the_bundles(kept):
    entries = Ledger.open(str(kept)).entries()
    commands, previous = [], entries[2].hash
    for entry in entries[3:]:
        fields = entry.fields | {"previous": previous}
        if "loss" in fields:
            fields["loss"]["epsilon"] = "1/99"
        body = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        previous = entry_digest(body)
        commands.append(
            f"UPDATE trueup_ledger SET body = '{body}', hash = '{previous}' WHERE number = {entry.number}"
        )
    execute(kept, *commands)
    forged = Ledger.open(str(kept))
    assert not verify_ledger(forged).findings
    found = verify_ledger(forged, kept.parent).findings
    assert len(found) == 3
    assert all("altered or replaced" in what for what in found)


@pytest.mark.parametrize(("left", "wrong"), [(11, 1), (9, 1), (6, 2), (3, 3)])
def test_a_cut_tail_is_found_by_the_bundles(kept, left, wrong):
    execute(kept, f"DELETE FROM trueup_ledger WHERE number > {left}")
    ledger = Ledger.open(str(kept))
    assert not verify_ledger(ledger).findings
    assert len(verify_ledger(ledger, kept.parent).findings) == wrong


def test_a_restored_backup_is_found_also_after_new_entries(kept):
    backup = kept.with_name("backup.db")
    shutil.copy(kept, backup)
    release(Ledger.open(str(kept)), kept.parent, "later")
    shutil.copy(backup, kept)
    ledger = Ledger.open(str(kept))
    assert ["older copy" in what for what in verify_ledger(ledger, kept.parent).findings] == [True]
    release(ledger, kept.parent, "after")
    assert ["altered or replaced" in what for what in verify_ledger(ledger, kept.parent).findings] == [True]


@pytest.mark.parametrize("left", [9, 3, 1])
def test_a_cut_tail_is_refused_by_the_keepers_anchor(tmp_path, left):
    path = tmp_path / "ledger.db"
    ledger = ledger_at(str(path))
    for i in range(3):
        release(ledger, tmp_path, f"out{i}")
    execute(path, f"DELETE FROM trueup_ledger WHERE number > {left}")
    for refused in (lambda: Ledger.open(str(path)), lambda: reserve(ledger, "1/10")):
        with pytest.raises(BudgetError, match=r"entry 12 of the ledger is missing|altered or damaged"):
            refused()
    assert "entry 12" in verify_ledger(Ledger.at(str(path))).findings[0]


def test_a_restored_backup_is_refused_by_the_keepers_anchor_also_after_new_entries(tmp_path):
    path, backup = tmp_path / "ledger.db", tmp_path / "backup.db"
    release(ledger_at(str(path)), tmp_path, "first")
    shutil.copy(path, backup)
    release(Ledger.open(str(path)), tmp_path, "later")
    shutil.copy(backup, path)
    with pytest.raises(BudgetError, match="an older copy was restored"):
        Ledger.open(str(path))
    hidden = keeper_of(path).rename(tmp_path / "hidden")
    release(Ledger.open(str(path)), tmp_path, "after")
    hidden.rename(keeper_of(path))
    with pytest.raises(BudgetError, match="is another one"):
        Ledger.open(str(path))


def test_an_anchor_follows_every_entry_and_is_its_owners_alone(tmp_path):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    release(ledger, tmp_path, "out")
    state = ledger.state()
    assert ledger.keeper.anchor == (state.number, state.head)
    modes = {
        p.name: p.stat().st_mode & 0o777 for p in [ledger.keeper.folder, *ledger.keeper.folder.iterdir()]
    }
    assert modes == {"ledger.db.keeper": 0o700, "key": 0o600, "anchor": 0o600}


def test_a_bundle_with_other_measurements_is_found(kept):
    manifest = kept.parent / "out1" / "public" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"0"', '"1"'))
    (found,) = verify_ledger(Ledger.open(str(kept)), kept.parent / "out1").findings
    assert "not those that were committed" in found


def test_an_entry_over_the_cap_is_found_though_its_chain_is_right(kept):
    ledger = Ledger.open(str(kept))
    entry = ledger.entries()[3]
    state = ledger.state()
    fields = entry.fields | {"entry": 13, "previous": state.head, "reservation": "new"}
    fields["loss"]["epsilon"] = "9"
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    execute(kept, f"INSERT INTO trueup_ledger VALUES (13, '{body}', '{entry_digest(body)}')")
    with pytest.raises(BudgetError, match="entry 13 of the ledger cannot be true"):
        Ledger.open(str(kept))


@pytest.mark.parametrize(
    "forged",
    [
        {"action": "return", "reservation": "drawn"},
        {"action": "return", "reservation": "given back"},
        {"action": "draw", "reservation": "given back"},
        {
            "action": "commit",
            "reservation": "open",
            "ready": "",
            "final": "",
            "manifest": "",
            "measurements": "",
        },
        {"action": "invariants", "dataset": "survey", "invariants": {"county": "x"}, "joint": None},
        {"action": "caps", "dataset": "panel", "analyst": None, "caps": {"epsilon": "1"}},
        {"action": "account", "dataset": "survey", **Terms("person", "replace").plain()},
    ],
    ids=lambda fields: f"{fields['action']} {fields.get('reservation', '')}",
)
def test_an_entry_that_cannot_follow_is_found_though_its_chain_is_right(tmp_path, forged):
    """A loss is given back before drawing alone, and nothing is drawn or committed under what was given back."""
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    for name in ("drawn", "given back", "open"):
        reservation = ledger.reserve(request(epsilon("1/10")), name)
        if name == "drawn":
            reservation.begin()
        if name == "given back":
            reservation.give_back()
    state = ledger.state()
    with ledger._store.transaction(writing=True) as transaction:
        transaction.append(link(state.number + 1, state.head, {"time": "now", **forged}))
    with pytest.raises(BudgetError, match=f"entry {state.number + 1} of the ledger cannot be read"):
        Ledger.open(str(tmp_path / "ledger.db"))


def test_bundles_without_a_ledger_are_listed(kept):
    manifest = kept.parent / "free" / "public" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"ledger": null}')
    found = verify_ledger(Ledger.open(str(kept)), kept.parent)
    assert found.unrecorded == (str(kept.parent / "free"),)
    assert not found.findings


def test_what_an_interrupted_run_left_is_no_release(kept):
    ledger = Ledger.open(str(kept))
    stage(kept.parent / ".out9.staging-x", begin(ledger, "1/10"))
    assert not verify_ledger(ledger, kept.parent).findings
    (kept.parent / ".out9.staging-x").rename(kept.parent / "out9")
    assert "without a committed entry" in verify_ledger(ledger, kept.parent).findings[0]


def test_verification_against_nothing_is_refused(kept, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match="holds no bundle"):
        verify_ledger(Ledger.open(str(kept)), tmp_path / "empty")


@pytest.mark.parametrize("command", ["UPDATE trueup_ledger SET hash = ''", "DELETE FROM trueup_ledger"])
def test_the_table_itself_is_append_only(url, command):
    ledger = ledger_at(url)
    with (
        pytest.raises(BudgetError, match="append-only"),
        ledger._store.transaction(writing=True) as transaction,
    ):
        transaction._connection.execute(command)
    assert ledger.state().number == len(ledger.entries()) == 3


def test_a_read_only_file_grants_nothing(kept):
    kept.parent.chmod(0o755)
    for parent in [*kept.parents][1:-2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    kept.chmod(0o444)
    kept.parent.chmod(0o555)
    ledger = Ledger.open(str(kept))
    with ordinary_user(), pytest.raises(BudgetError, match="no budget was granted"):
        reserve(ledger, "1/10")
    kept.parent.chmod(0o755)
    assert len(Ledger.open(str(kept)).state().reserved) == 3


FULL = """
import resource, signal, sys
from tests.ledger.helpers import reserve
from trueup.ledger.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
ledger.state()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
reserve(ledger, "1/10")
"""


def test_a_full_disk_grants_nothing(kept):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(kept)], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert run.returncode == 1
    assert "LedgerError: the ledger in the file" in run.stderr
    assert "no budget was granted" in run.stderr
    ledger = Ledger.open(str(kept))
    assert len(ledger.state().reserved) == 3
    reserve(ledger, "1/10")


def test_a_failed_write_leaves_no_trace_in_memory(kept, monkeypatch):
    ledger = Ledger.open(str(kept))

    def fail(self, entry):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "append", fail)
        with pytest.raises(BudgetError, match="disk is full"):
            reserve(ledger, "1/10")
    assert len(ledger.state().reserved) == 3


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "ledger.db").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(BudgetError, match="cannot be used"):
        Ledger.open(str(tmp_path / "ledger.db"))


@pytest.mark.parametrize("url", ["mysql://host/name", "", "http://host"])
def test_other_places_are_refused(url):
    with pytest.raises(BudgetError, match="address"):
        Ledger.open(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@localhost:1/none",
        "postgresql://me:sec/ret@localhost:1/none",
        "postgresql://me:sec%zzret@localhost:1/none",
        "postgresql://me:sec ret@localhost:1/none",
        "postgresql://me:[secret@localhost:1/none",
        "postgresql://me@localhost:1/none?password=secret",
        "postgresql://me@localhost:1/none?pasword=secret",
        "postgresql:me:secret@localhost:1/none",
    ],
)
def test_no_password_stands_in_an_error(url):
    """Whatever the client makes of it: it quotes what it takes for a port, a name or an option."""
    with pytest.raises(BudgetError) as caught:
        Ledger.open(url)
    assert not re.search(r"sec|ret\b|ret@", str(caught.value))
