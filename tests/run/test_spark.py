"""A small Spark cluster on this machine: every item once in the answers, whatever happens to an executor."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from tests.run import tasks
from trueup.errors import BundleError, DataError, SpecError, TrueupError
from trueup.files.source import open_table
from trueup.run import spark


def test_every_item_is_answered_once(cluster):
    assert cluster.workers == 2
    assert sorted(cluster.map(tasks.squared, range(20))) == [(i, i * i) for i in range(20)]


def test_no_items_are_no_job(cluster):
    assert list(cluster.map(tasks.squared, [])) == []


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_is_replaced_and_its_item_done_again(cluster, tmp_path, victim):
    assert dict(cluster.map(tasks.KilledOnce(tmp_path, victim=victim), range(4))) == {
        i: i * i for i in range(4)
    }
    assert len(list(tmp_path.iterdir())) == 2, "nothing was killed: the test has no power"


def test_a_worker_that_is_always_killed_ends_in_a_clear_error(cluster, tmp_path):
    with pytest.raises(TrueupError, match=r"a job of the Spark cluster failed.*logs.*--resume"):
        list(cluster.map(tasks.KilledOnce(tmp_path, always=True), [1, 2]))


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [
        (tasks.fail, DataError, "item 0 is bad"),
        (tasks.blunder, TrueupError, r"item 1 of 1 failed with KeyError at tasks.py:\d+"),
        (tasks.exhaust, TrueupError, "needs more memory than there is"),
    ],
)
def test_errors_of_tasks_reach_the_driver_and_quote_no_data(cluster, task, kind, message):
    with pytest.raises(kind, match=message) as caught:
        list(cluster.map(task, [0]))
    assert "4711" not in str(caught.value)


def test_a_full_disk_of_an_executor_is_said_and_leaves_nothing(cluster, tmp_path):
    with pytest.raises(BundleError, match=r"cannot write part 'draw'.*--resume"):
        list(cluster.map(tasks.DiskOfSize(tmp_path), [0]))
    assert not list(tmp_path.iterdir())


def test_twins_of_one_task_publish_one_draw(cluster, tmp_path):
    for attempt in range(5):
        draws = {answer for _, answer in cluster.map(tasks.Draw(tmp_path / str(attempt)), range(4))}
        assert len(draws) == 1


def test_another_release_on_an_executor_is_refused(cluster, monkeypatch):
    monkeypatch.setattr(spark, "__version__", "0.0.0")
    with pytest.raises(TrueupError, match=r"has trueup \d.*this driver has 0\.0\.0.*same version"):
        cluster._refuse_other_release()


def test_a_missing_extra_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SpecError, match=r"needs PySpark.*pip install 'trueup\[spark\]'"):
        spark.refuse_missing_package()


def test_missing_java_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SpecError, match=r"needs Java.*JAVA_HOME"):
        spark.refuse_missing_package()


def test_rows_are_counted_where_they_live(cluster, tmp_path):
    people = pandas.DataFrame({"area": ["a", "b", "a", None], "sex": ["f", "f", "f", "m"], "age": range(4)})
    (tmp_path / "people").mkdir()
    people.to_parquet(tmp_path / "people" / "part.parquet")
    assert cluster.grouped(str(tmp_path / "people"), ["area", "sex"], "rows", tmp_path / "grouped")
    found = pandas.read_parquet(tmp_path / "grouped").astype(object)
    rows = {(r.area if isinstance(r.area, str) else None, r.sex): r.rows for r in found.itertuples()}
    assert rows == {("a", "f"): 2, ("b", "f"): 1, (None, "m"): 1}


def test_a_missing_column_is_said_before_anything_is_written(cluster, tmp_path):
    pandas.DataFrame({"area": ["a"]}).to_parquet(tmp_path / "people.parquet")
    with pytest.raises(DataError, match=r"no column 'sex'.*area, sex"):
        cluster.grouped(str(tmp_path / "people.parquet"), ["area", "sex"], "rows", tmp_path / "grouped")
    assert not (tmp_path / "grouped").exists()


def test_a_table_that_is_not_in_the_catalogue_is_said(cluster, tmp_path):
    with pytest.raises(TrueupError, match=r"reading the table by Spark failed"):
        cluster.grouped("table:people", ["area"], "rows", tmp_path / "grouped")


def test_text_files_are_left_to_the_driver(cluster, tmp_path):
    (tmp_path / "people.csv").write_text("area\na\n")
    assert not cluster.grouped(str(tmp_path / "people.csv"), ["area"], "rows", tmp_path / "grouped")


@pytest.mark.parametrize("name", ["a b%20", "area=9", "w[1]{2}*?"])
def test_folders_may_have_any_name(cluster, tmp_path, name):
    people = tmp_path / name / "people"
    people.mkdir(parents=True)
    pandas.DataFrame({"area": ["a", "b", "a"]}).to_parquet(tmp_path / "part.parquet")
    shutil.copy(tmp_path / "part.parquet", people)  # PyArrow itself takes some of these names for patterns
    for source, target in ((people, "first"), (people / "part.parquet", "second")):
        assert cluster.grouped(source, ["area"], "rows", tmp_path / name / target)
        found = open_table(tmp_path / name / target).select(["area", "rows"])
        assert sorted(zip(found["area"], found["rows"])) == [("a", 2), ("b", 1)]


ALONE = """
import json, sys
from tests.conftest import SPARK
from trueup.errors import SpecError
from trueup.run.spark import SparkCluster

try:
    with SparkCluster("local[2]", SPARK, **json.loads(sys.argv[1])) as cluster:
        conf = cluster._context.getConf()
        found = [conf.get(f"spark.{name}") for name in ("task.maxFailures", "io.encryption.enabled", "app.name")]
        print(json.dumps([cluster.workers, cluster.worker_memory, *found]))
except SpecError as error:
    print(json.dumps(str(error)))
"""


def alone(folder, defaults: str, **options):
    """What an application says of itself that is started with some `spark-defaults.conf`."""
    (folder / "spark-defaults.conf").write_text(defaults)
    home = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": f"{home}{os.pathsep}{home / 'src'}",
    }
    command = [sys.executable, "-c", ALONE, json.dumps(options)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_defaults_of_spark_win_and_options_say_the_size(tmp_path):
    """Given settings (no encryption here) before those of the file, and ours (the name) where neither has one."""
    defaults = (
        "spark.task.maxFailures 9\nspark.dynamicAllocation.enabled true\nspark.shuffle.service.enabled true\n"
    )
    assert alone(tmp_path, defaults, workers=5, worker_memory=10**9) == [5, 10**9, "9", "false", "trueup"]


@pytest.mark.slow
def test_an_application_that_grows_is_refused_without_its_size(tmp_path):
    defaults = "spark.dynamicAllocation.enabled true\nspark.shuffle.service.enabled true\n"
    assert "Needed: --workers" in alone(tmp_path, defaults, workers=5)
