"""Worker processes: every item once in the answers, whatever happens to a worker."""

import re
import subprocess
import sys

import pytest

from tests.run import tasks
from trueup.errors import BundleError, DataError, TrueupError
from trueup.run.local import LocalPool


@pytest.fixture(scope="module")
def pool():
    with LocalPool(2) as pool:
        yield pool


def test_every_item_is_answered_once(pool):
    answers = list(pool.map(tasks.squared, range(20)))
    assert sorted(answers) == [(i, i * i) for i in range(20)]


def test_a_killed_worker_is_replaced_and_its_item_done_again(pool, tmp_path):
    assert dict(pool.map(tasks.KilledOnce(tmp_path), range(6))) == {i: i * i for i in range(6)}
    assert len(list(tmp_path.iterdir())) == 3, "no worker was killed: the test has no power"


def test_a_worker_that_is_always_killed_ends_in_a_clear_error(tmp_path):
    with LocalPool(2) as pool, pytest.raises(TrueupError, match=r"SIGKILL, 3 times.*memory.*--resume"):
        list(pool.map(tasks.KilledOnce(tmp_path, always=True), [1, 2, 4]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (tasks.fail, DataError, "item 0 is bad"),
        (tasks.blunder, TrueupError, "task 'blunder' on part 1 of 1 failed with KeyError at tasks.py"),
        (tasks.exhaust, TrueupError, "needs more memory than there is"),
    ],
)
def test_errors_of_tasks_reach_the_driver_and_quote_no_data(pool, task, kind, message):
    with pytest.raises(kind, match=message) as caught:
        list(pool.map(task, [0]))
    assert "4711" not in str(caught.value)


def test_a_full_disk_of_a_worker_is_said_and_leaves_nothing(pool, tmp_path):
    with pytest.raises(BundleError, match=r"cannot write part 'draw'.*--resume"):
        list(pool.map(tasks.DiskOfSize(tmp_path), [0]))
    assert not list(tmp_path.iterdir())


def test_twins_of_one_task_publish_one_draw(pool, tmp_path):
    for attempt in range(10):
        draws = {answer for _, answer in pool.map(tasks.Draw(tmp_path / str(attempt)), range(4))}
        assert len(draws) == 1


SCRIPT = """
import sys
{before}
from trueup.run.local import LocalPool
with LocalPool({workers}) as pool:
    print(sorted(pool.map(abs, [-1, -2, -3])))
"""


def ran(folder, **parts):
    """What a script without a guard says of itself."""
    (folder / "script.py").write_text(SCRIPT.format(**{"before": "", "workers": 2} | parts))
    return subprocess.run([sys.executable, folder / "script.py"], capture_output=True, text=True, timeout=120)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "before",
    [
        "",  # every worker comes to the pool itself
        "if __name__ != '__main__': raise KeyError('whatever else goes wrong there')",
        "if __name__ != '__main__': sys.exit(0)",
    ],
)
def test_a_script_without_a_guard_is_told_to_have_one(tmp_path, before):
    run = ran(tmp_path, before=before)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert re.match(
        r"trueup\.errors\.TrueupError: the worker of task 'abs' on part [12] of 3 ended \([01]\)", last
    )
    assert 'under `if __name__ == "__main__":`' in last
    assert "give 1 worker" in last


@pytest.mark.thorough
def test_a_worker_says_so_before_the_script_does_anything_twice(tmp_path):
    assert "TrueupError: a worker process reads the script that it was started from" in ran(tmp_path).stderr


@pytest.mark.thorough
def test_a_script_without_a_guard_may_have_one_worker(tmp_path):
    assert ran(tmp_path, workers=1).stdout == "[(0, 1), (1, 2), (2, 3)]\n"
