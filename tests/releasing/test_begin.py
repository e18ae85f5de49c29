"""Where a run begins, and that no copy of it, nor another run at the same place, publishes a second draw."""

import errno
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.releasing.bad_input import Interrupted, account, interrupted, release
from tests.releasing.state import write_state
from trueup.checking.bundle import check as check_bundle
from trueup.errors import BudgetError, BundleError, BusyError
from trueup.files.owner import owning
from trueup.io.bundle.read import read_release
from trueup.model.problem import Problem
from trueup.releasing import pipeline
from trueup.releasing.pipeline import resume
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.start import new_run, run_path
from trueup.run.local import LocalPool


@pytest.mark.thorough
def test_what_a_killed_beginning_left_is_not_taken_for_the_next_one(tmp_path):
    with patch.object(RunFolder, "write_plan", side_effect=Interrupted), pytest.raises(Interrupted):
        release(tmp_path)
    release(tmp_path, places=12)  # another cut, so other bundles under the same names
    assert all(check.holds for check in check_bundle(tmp_path / "out"))


def test_a_folder_that_is_not_ours_is_neither_used_nor_removed(tmp_path):
    own = tmp_path / "out.run" / "thesis.txt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(BundleError, match="is not empty"):
        release(tmp_path)
    assert own.read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_a_link_in_place_of_the_run_folder_is_refused(tmp_path):
    (tmp_path / "else").mkdir()
    (tmp_path / "out.run").symlink_to(tmp_path / "else")
    with pytest.raises(BundleError, match="is a symbolic link"):
        release(tmp_path)
    assert not list((tmp_path / "else").iterdir())


def test_an_open_folder_is_closed_to_others_before_anything_is_written(tmp_path):
    (tmp_path / "out.run").mkdir()
    (tmp_path / "out.run").chmod(0o777)
    assert interrupted(tmp_path).stat().st_mode & 0o777 == 0o700


def test_two_cannot_begin_at_one_place(tmp_path):
    """Otherwise the second one's plan would stand where the first one's workers read theirs."""
    with (
        new_run(tmp_path / "out.run", False),
        pytest.raises(BusyError, match="works on"),
        new_run(tmp_path / "out.run", False),
    ):
        pass


@pytest.mark.thorough
def test_a_run_at_work_is_busy_and_was_not_interrupted(tmp_path):
    run = interrupted(tmp_path)
    with owning(run), pytest.raises(BusyError, match="works on"):
        release(tmp_path)
    with pytest.raises(BundleError, match="was interrupted"):
        release(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_will_do(tmp_path, monkeypatch, number):
    def none(handle, how):
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", none)
    released = resume(interrupted(tmp_path), executor=LocalPool(1))
    assert {p.name for p in released.folder.parent.iterdir()} >= {"out", "spec.toml"}
    assert not list(tmp_path.glob("out.run*"))


def test_a_run_begun_at_a_relative_path_is_found_from_elsewhere(tmp_path, monkeypatch):
    begun = interrupted(tmp_path)
    for where, given in ((tmp_path, "out.run"), (tmp_path.parent, Path(tmp_path.name, "out.run"))):
        monkeypatch.chdir(where)
        with patch("trueup.releasing.pipeline._carried_out") as carried:
            resume(given, executor=LocalPool(1))
        assert carried.call_args.args[0].folder.path == begun


def test_begun_at_a_relative_path_tasks_are_told_an_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with patch("trueup.releasing.pipeline._carried_out") as carried:
        pipeline.release(**write_state(tmp_path), out="out", executor=LocalPool(1))
    assert carried.call_args.args[0].folder.path == tmp_path / "out.run"


@pytest.mark.thorough
def test_a_copy_of_a_run_is_refused(tmp_path):
    run = interrupted(tmp_path, after=13)
    shutil.copytree(run, tmp_path / "copy.run")
    resume(run, executor=LocalPool(1))
    (tmp_path / "out").rename(tmp_path / "published")
    with pytest.raises(BundleError, match="was copied or moved"):
        resume(tmp_path / "copy.run", executor=LocalPool(1))
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_run_that_is_put_back_after_its_release_draws_nothing(tmp_path):
    run = interrupted(tmp_path, after=13, account=account(tmp_path))  # all is checked, nothing drawn
    shutil.copytree(run, tmp_path / "backup")
    resume(run, executor=LocalPool(1), account=account(tmp_path))
    (tmp_path / "out").rename(tmp_path / "published")
    (tmp_path / "backup").rename(run)
    with pytest.raises(BudgetError, match="the run is already released"):
        resume(run, executor=LocalPool(1), account=account(tmp_path))
    assert not RunFolder(run).measured.names()
    account(tmp_path)  # finishes what was committed: a second draw is not among it
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_run_that_is_put_back_from_before_it_drew_draws_nothing_again(tmp_path):
    """The ledger knows that drawing began, and the folder does not."""
    run = interrupted(tmp_path, after=5, account=account(tmp_path))  # its data are read in part
    shutil.copytree(run, tmp_path / "backup")
    with pytest.raises(Interrupted), patch("trueup.releasing.tasks.write_measured", side_effect=Interrupted):
        resume(run, executor=LocalPool(1), account=account(tmp_path))
    shutil.rmtree(run)
    (tmp_path / "backup").rename(run)
    with pytest.raises(BudgetError, match="is an older copy"):
        resume(run, executor=LocalPool(1), account=account(tmp_path))
    assert not RunFolder(run).measured.names()


def test_an_altered_spec_in_the_run_folder_is_refused(tmp_path):
    run = interrupted(tmp_path)
    (run / "spec.toml").write_text((run / "spec.toml").read_text().replace("lower = 1", "lower = 0"))
    with pytest.raises(BundleError, match=r"the spec in .* was altered"):
        resume(run, executor=LocalPool(1))


def test_a_run_of_an_older_format_is_refused_by_name(tmp_path):
    (tmp_path / "plan.json").write_text('{"format": 0, "trueup": "0.0.1"}')
    with pytest.raises(
        BundleError, match=r"begun by trueup 0.0.1 \(format 0; this is \d+\).*with that version"
    ):
        resume(tmp_path, executor=LocalPool(1))
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_task_that_outlives_its_run_does_not_bring_the_folder_back(tmp_path):
    run = run_path(tmp_path / "out")
    with pytest.raises(BundleError, match="cannot write part 'measured'"):
        RunFolder(run).measured.commit("2-00000", lambda path: path.write_text("late"))
    assert not run.exists()


@pytest.mark.thorough
def test_a_folder_may_have_a_pattern_for_a_name(tmp_path):
    place = tmp_path / "wave[1]*"
    place.mkdir()
    release(place)
    assert all(check.holds for check in check_bundle(place / "out"))
    assert read_release(place / "out").counts.any()


def test_an_interruption_says_how_to_go_on(tmp_path, capsys):
    from trueup.cli.release import RunOptions, release_by_parts

    paths = write_state(tmp_path)
    problem = Problem.of(paths["spec"], paths["geography"])
    with (
        patch("trueup.releasing.tasks.draw", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        release_by_parts(
            problem,
            str(paths["data"]),
            tmp_path / "out",
            None,
            None,
            RunOptions("local", None, 1, None, 4 * 10**9, False, None, True),
        )
    assert f"continue with: trueup release --resume {tmp_path / 'out.run'}" in capsys.readouterr().err
