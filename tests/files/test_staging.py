"""Staging: what dead processes left is swept, what living ones hold is not."""

import errno
import os
import subprocess
import sys

import pytest

from trueup.errors import BundleError, ResourceError
from trueup.files.target import holding, remove_unheld
from trueup.files.writing import staged, writing

STAGING = """
import os, signal, sys
from pathlib import Path
from trueup.files.writing import staged, writing
with staged(Path(sys.argv[1])) as folder:
    (folder / "half.txt").write_text("half")
    print(folder, flush=True)
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.readline()
"""


def staging(target, what):
    """A process that stages a folder and dies, or waits."""
    return subprocess.Popen(
        [sys.executable, "-c", STAGING, str(target), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_next_run_sweeps_what_the_dead_left_and_nothing_else(tmp_path):
    with staging(tmp_path / "out", "die") as dead, staging(tmp_path / "out", "wait") as alive:
        left, held = dead.stdout.readline().strip(), alive.stdout.readline().strip()
        dead.wait()
        neighbour = tmp_path / ".other.staging-1"
        neighbour.mkdir()
        with staged(tmp_path / "out") as folder:
            names = {str(p) for p in tmp_path.iterdir()}
            assert left not in names
            assert {held, str(neighbour), str(folder)} <= names
        alive.communicate("go on\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.staging-1", "out"]


def test_a_held_folder_is_not_removed_even_under_a_new_name(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    with holding(folder):
        moved = folder.rename(tmp_path / "b")
        remove_unheld(moved)
        assert moved.exists()
    remove_unheld(moved)
    assert not moved.exists()


def test_a_target_that_is_occupied_is_refused_before_anything_is_swept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    (tmp_path / ".out.staging-1").mkdir()
    with pytest.raises(BundleError, match="is not empty"), staged(tmp_path / "out"):
        pass
    assert (tmp_path / ".out.staging-1").exists()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, ResourceError), (errno.EACCES, ResourceError), (errno.ENOENT, BundleError)],
)
def test_what_the_disk_refuses_is_told_from_a_path_that_cannot_be(tmp_path, number, kind):
    with pytest.raises(BundleError, match=os.strerror(number)) as caught, writing(tmp_path / "out"):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is kind
