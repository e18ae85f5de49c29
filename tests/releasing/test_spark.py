"""Releases on Spark: the integers of one machine, and one draw and one charge whatever is killed."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import trueup
from tests import linked_tables
from tests.conftest import SPARK
from tests.releasing.on_spark import Watched, killing, killing_at_random
from tests.releasing.state import MOST, TERMS, copy_of, write_state
from tests.spark_cluster import standalone
from trueup.checking.bundle import check as check_bundle
from trueup.errors import TrueupError
from trueup.io.bundle.manifest import read_manifest
from trueup.ledger.account import Account
from trueup.ledger.ledger import Ledger
from trueup.model.cells import Margin
from trueup.releasing import pipeline
from trueup.releasing.again import reconcile_bundle
from trueup.releasing.pipeline import resume
from trueup.releasing.start import run_path
from trueup.run.local import LocalPool
from trueup.run.spark import SparkCluster

pytestmark = pytest.mark.thorough

HOME = Path(__file__).parents[2]


class Stopped(Exception):
    """The driver stops here."""


def stop_before(name: str):
    """A replacement that stops the driver before a kind of task."""

    def replaced(task):
        if type(task).__name__ == name:
            raise Stopped
        return task

    return replaced


def spent(url: str) -> Fraction:
    loss = Ledger.open(url).state().spent.get(("small", None))
    return loss.rho if loss else Fraction(0)


def new_ledger(folder: Path) -> str:
    url = str(folder / "ledger.db")
    Ledger.create(url).init("small", {"rho": "10"}, terms=TERMS)
    return url


def assert_whole(out: Path, url: str) -> None:
    """Every rule holds, and the ledger was charged once what the release costs."""
    assert all(check.holds for check in check_bundle(out))
    cost = Fraction(read_manifest(out)["guarantee"]["amount"])
    assert spent(url) == cost
    assert len(Ledger.open(url).state().reserved) == 1


@pytest.mark.slow
def test_executors_killed_in_every_kind_of_task_and_the_integers_of_one_machine(cluster, tmp_path):
    url, out, marks = new_ledger(tmp_path), tmp_path / "out", tmp_path / "marks"
    marks.mkdir()
    account = Account.open(url, "ana", None)
    paths = {name: str(path) for name, path in write_state(tmp_path).items()}
    moments = {"Measure": "inside", "Up": "after", "Down": "inside"}
    executor = Watched(killing(cluster, moments, marks), stop_before("Up"))
    with pytest.raises(Stopped):
        pipeline.release(**paths, out=out, executor=executor, account=account, places=MOST)
    copied = copy_of(run_path(out), tmp_path)
    resume(run_path(out), executor=killing(cluster, moments, marks), account=account)
    assert {p.name for p in marks.iterdir()} == set(moments), "nothing was killed: the test has no power"
    assert_whole(out, url)
    alone = resume(copied, executor=LocalPool(1))
    assert np.array_equal(trueup.read_release(alone.folder).counts, trueup.read_release(out).counts)


@pytest.mark.slow
def test_records_are_counted_by_spark_where_they_live(cluster, tmp_path):
    import pandas

    paths = write_state(tmp_path)
    people = pandas.read_csv(paths["data"], dtype=str)
    (tmp_path / "people").mkdir()
    people.to_parquet(tmp_path / "people" / "part.parquet")
    given = {**paths, "data": (tmp_path / "people").as_uri()}  # an address: the driver could not read it
    released = pipeline.release(**given, out=tmp_path / "out", executor=cluster, places=MOST)
    assert all(check.holds for check in check_bundle(tmp_path / "out"))
    (state,) = trueup.read_release(released.folder).sums(Margin("state"))
    assert state == len(people), "the invariant is the number of records"


@pytest.mark.slow
def test_two_tables_are_linked_by_the_driver_and_the_rest_is_shared(cluster, tmp_path, rng):
    paths = linked_tables.write_tables(tmp_path, rng, 40)
    tables = trueup.JoinedTables(paths.pop("data"), paths.pop("households"))
    pipeline.release(**paths, data=tables, out=tmp_path / "out", executor=cluster, places=4)
    assert all(check.holds for check in check_bundle(tmp_path / "out"))
    again = reconcile_bundle(tmp_path / "out", tmp_path / "again")
    assert np.array_equal(again.counts, trueup.read_release(tmp_path / "out").counts)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [10, 100])
def test_executors_and_workers_killed_at_random(cluster, tmp_path, kills):
    """Whatever Spark gives up after four deaths of one task goes on; each run draws once and pays once."""
    marks, runs = tmp_path / "marks", 0
    marks.mkdir()
    while len(list(marks.iterdir())) < kills:
        place = tmp_path / str(runs)
        place.mkdir()
        url, out = new_ledger(place), place / "out"
        paths = {name: str(path) for name, path in write_state(place).items()}
        executor, copied = Watched(killing_at_random(cluster, 0.1, marks), stop_before("Up")), None
        while not out.exists():
            account = Account.open(url, "ana", None)
            with suppress(Stopped, TrueupError):
                if (run_path(out) / "plan.json").exists():
                    resume(run_path(out), executor=executor, account=account)
                else:
                    pipeline.release(**paths, out=out, executor=executor, account=account, places=MOST)
            if copied is None and (run_path(out) / "seal.json").exists():
                copied = copy_of(run_path(out), place)
                executor = killing_at_random(cluster, 0.1, marks)
        assert_whole(out, url)
        assert not list(place.glob("out.run*"))
        assert copied is not None
        alone = resume(copied, executor=LocalPool(1))
        assert np.array_equal(trueup.read_release(alone.folder).counts, trueup.read_release(out).counts)
        runs += 1
    print(f"{len(list(marks.iterdir()))} executors and workers were killed in {runs} runs")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", ["PartTotal", "Measure", "Up", "Down"])
def test_drivers_killed_on_a_standalone_cluster_go_on(tmp_path, task):
    url, out = new_ledger(tmp_path), tmp_path / "out"
    paths = {name: str(path) for name, path in write_state(tmp_path).items()}
    with standalone(tmp_path / "cluster") as spark:
        order = {**paths, "out": str(out), "places": MOST, "ledger": url, "master": spark.url, "die_in": task}
        driver = subprocess.run(
            [sys.executable, "-m", "tests.releasing.on_spark"],
            input=json.dumps(order),
            text=True,
            cwd=HOME,
            env={**os.environ, "PYTHONPATH": f"{HOME}{os.pathsep}{HOME / 'src'}"},
            stderr=subprocess.DEVNULL,
        )
        assert driver.returncode == -signal.SIGKILL
        drawn = {p.name for p in (run_path(out) / "measured").glob("*.part")}
        assert bool(drawn) == (task != "PartTotal")
        before = {name: (run_path(out) / "measured" / name).read_text() for name in drawn}
        trueup_cli("--resume", str(run_path(out)), "--ledger", url, "--engine", spark.url)
    digests = read_manifest(out)["parts"]
    assert all(json.loads(text)["digest"] in digests.values() for text in before.values())
    assert_whole(out, url)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_worker_killed_on_a_standalone_cluster(tmp_path):
    url, out = new_ledger(tmp_path), tmp_path / "out"
    paths = {name: str(path) for name, path in write_state(tmp_path).items()}
    with standalone(tmp_path / "cluster") as spark:

        def heard(task, answers):
            if type(task).__name__ == "Measure" and answers == 1:
                spark.workers[0].kill()

        with SparkCluster(spark.url, SPARK) as cluster:
            account = Account.open(url, "ana", None)
            executor = Watched(cluster, stop_before("Up"), heard)
            with pytest.raises(Stopped):
                pipeline.release(**paths, out=out, executor=executor, account=account, places=MOST)
            copied = copy_of(run_path(out), tmp_path)
            resume(run_path(out), executor=cluster, account=account)
    assert spark.workers[0].returncode == -signal.SIGKILL
    assert_whole(out, url)
    alone = resume(copied, executor=LocalPool(2))
    assert np.array_equal(trueup.read_release(alone.folder).counts, trueup.read_release(out).counts)


def trueup_cli(*options: str) -> None:
    """Go on with a run by the command, as a user does."""
    command = [sys.executable, "-m", "trueup", "release", "--analyst", "ana"]
    subprocess.run(
        [*command, *options],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{HOME}{os.pathsep}{HOME / 'src'}"},
    )
