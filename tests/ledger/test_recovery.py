"""Recovery touches only what this user made: an entry of the ledger is no leave to move or open a folder."""

import json
import os
import shutil

import pytest

from tests.ledger.helpers import begin, ledger_at, release, stage
from trueup.errors import BundleError
from trueup.releasing.start import finish_removed, run_path


def forge(ledger, ready, final, manifest="0" * 64):
    """Append a commit that names any folder, as whoever may write the ledger can; return its reservation."""
    reservation = begin(ledger, "1/100")
    fields = {"reservation": reservation.name, "ready": str(ready), "final": str(final)}
    with ledger.writing() as locked:
        locked.append("commit", {**fields, "manifest": manifest, "measurements": None})
    return reservation


@pytest.fixture
def private(tmp_path):
    """A folder that nobody else may look into, and that is no bundle."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "diary.txt").write_text("secret")
    return folder


def untouched(folder):
    return (folder / "diary.txt").read_text() == "secret" and folder.stat().st_mode & 0o777 == 0o700


def test_a_commit_that_names_a_private_folder_neither_opens_nor_moves_it(tmp_path, private):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    forge(ledger, private, tmp_path / "out")
    assert ledger.recover() == []
    assert untouched(private)


def test_a_folder_of_the_right_name_without_the_committed_manifest_is_left(tmp_path, private):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    reservation = forge(ledger, tmp_path / "later", tmp_path / "out")
    named = tmp_path / f".out.ready-{reservation.name}"
    private.rename(named)
    with ledger.writing() as locked:
        commit = locked.state.commits[reservation.name]
        object.__setattr__(commit, "ready", str(named))
    assert ledger.recover() == []
    assert untouched(named)
    (named / "public").mkdir()
    (named / "public" / "manifest.json").write_text(json.dumps({"another": "bundle"}))
    assert ledger.recover() == []
    assert untouched(named)


@pytest.mark.parametrize(
    "how", ["a link", "belongs to another user", "a link to its manifest", "another place"]
)
def test_a_ready_folder_that_is_not_of_our_making_is_left(tmp_path, monkeypatch, how):
    if how == "belongs to another user" and os.geteuid():
        pytest.skip("only root can give a folder away")
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.reservation.finish_publishing", lambda *_: False)
        release(ledger, tmp_path)
    (ready,) = tmp_path.glob(".out.ready-*")
    ready.chmod(0o700)
    if how == "a link":
        ready.rename(tmp_path / "elsewhere")
        ready.symlink_to(tmp_path / "elsewhere")
    elif how == "belongs to another user":
        os.chown(ready, 65534, 65534)
    elif how == "a link to its manifest":
        manifest = ready / "public" / "manifest.json"
        manifest.rename(tmp_path / "manifest.json")
        manifest.symlink_to(tmp_path / "manifest.json")
    else:
        ready.rename(tmp_path / "elsewhere")
    assert ledger.recover() == []
    assert not (tmp_path / "out").exists()
    assert (
        tmp_path / "elsewhere" if how in ("a link", "another place") else ready
    ).stat().st_mode & 0o777 == 0o700


def test_an_own_committed_folder_is_moved_and_opened(tmp_path, monkeypatch):
    ledger = ledger_at(str(tmp_path / "ledger.db"))
    with monkeypatch.context() as patch:
        patch.setattr("trueup.ledger.reservation.finish_publishing", lambda *_: False)
        release(ledger, tmp_path)
    assert len(ledger.recover()) == 1
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_another_user_left_beside_a_target_is_neither_removed_nor_used(tmp_path):
    ledger, out = ledger_at(str(tmp_path / "ledger.db")), tmp_path / "out"
    killed = begin(ledger, "1/10")
    left = [
        tmp_path / f".out.ready-{killed.name}",
        tmp_path / ".out.staging-abcdefgh",
        run_path(out).with_name("out.run.removed"),
    ]
    for folder in left:
        folder.mkdir(mode=0o700)
        (folder / "diary.txt").write_text("secret")
        os.chown(folder, 65534, 65534)
    finish_removed(out)
    staged = stage(tmp_path / "s", reservation := begin(ledger, "1/10"))
    reservation.commit(staged, out)
    assert all(map(untouched, left))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_run_folder_of_another_user_is_refused_by_name(tmp_path):
    from tests.releasing.state import write_state
    from trueup.releasing.pipeline import release as released
    from trueup.releasing.pipeline import resume
    from trueup.run.local import LocalPool

    paths, strange = write_state(tmp_path), run_path(tmp_path / "out")
    strange.mkdir()
    os.chown(strange, 65534, 65534)
    with pytest.raises(BundleError, match="belongs to another user"):
        released(**paths, out=tmp_path / "out", executor=LocalPool(1))
    with pytest.raises(BundleError, match="belongs to another user"):
        resume(strange, executor=LocalPool(1))
    shutil.rmtree(strange)
