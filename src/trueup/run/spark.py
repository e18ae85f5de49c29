"""Tasks carried out by the executors of an Apache Spark cluster, and the Spark session for them.

One file: the session serves these tasks alone.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trueup.errors import DataError, ResourceError, SpecError, TrueupError
from trueup.files import files_of, is_address, is_parquet
from trueup.run import WORKER_ENVIRONMENT, Item, Result, told
from trueup.version import __version__

if TYPE_CHECKING:
    from pyarrow import RecordBatch


MAX_ITEM_ATTEMPTS = 4
"""Most attempts of Spark at an item whose executor is lost, unless the cluster's settings say otherwise."""
_SETTINGS = {
    "spark.app.name": "trueup",
    "spark.task.maxFailures": str(MAX_ITEM_ATTEMPTS),
    "spark.ui.showConsoleProgress": "false",
    "spark.io.encryption.enabled": "true",  # what Spark spills while it counts rows is confidential
    **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
}


def refuse_missing_package() -> None:
    """Raise an error if PySpark or Java is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise SpecError(
            "the engine 'spark' needs PySpark, which is not installed",
            remedy="pip install 'trueup[spark]'",
        ) from None
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and (Path(home) / "bin" / "java").is_file())):
        raise SpecError(
            "the engine 'spark' needs Java, which was found neither at JAVA_HOME nor in a directory of PATH",
            needed="a Java runtime that this version of Spark supports, such as Java 17",
            remedy="install one, or set JAVA_HOME",
        )


def session_of(master: str | None, settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    # Executors on this machine find the driver's interpreter; a cluster's own setting goes first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with without_remarks(), quoting_nothing(f"the Spark master '{master or 'of the environment'}'"):
        builder = SparkSession.builder
        for name, value in (_unset(settings) | settings).items():
            builder = builder.config(name, value)
        session = (builder.master(master) if master else builder).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    return session


def _unset(settings: dict[str, str]) -> dict[str, str]:
    """Return the Spark settings of this package, except those that the user has set.

    Spark reads those when its Java process starts, before any session.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
    told = SparkConf()
    return {
        name: value
        for name, value in _SETTINGS.items()
        if not told.contains(name)
        or told.get(name) == "pyspark-shell"  # the name that PySpark gives any program
    }


@contextmanager
def quoting_nothing(what: str) -> Iterator[None]:
    """Replace errors of Spark, which may quote data, by an error that quotes nothing."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        raise ResourceError(
            f"{what} failed ({type(error).__name__})",
            needed="a master that can be reached, and executors with enough memory and with this package installed",
            remedy="correct what the logs of the cluster name, then continue with --resume",
        ) from None


@contextmanager
def without_remarks() -> Iterator[None]:
    """Suppress PySpark's warnings on versions of other libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


TABLE = "table:"
"""Begins the name of a table in Spark's catalogue."""
SECONDS_BETWEEN_POLLS = 0.2
"""Seconds between two checks for answers of a running job."""
_GROUP = "trueup"


class SparkCluster:
    """A Spark application whose executors carry out tasks, one item in each partition.

    The items travel in one broadcast; a partition holds the position of its item only. Executors need the same
    release of this package and sight of the folder in which tasks leave their parts. Spark tries an item
    again whose executor is lost, and may start twins of slow ones where speculation is on: both are safe, since
    parts are committed once.

    Parameters
    ----------
    master
        Address of the cluster, such as `spark://host:7077`, `yarn` or `local[2]`; None for what the
        environment or `spark-submit` has set.
    settings
        Further settings of the application, before those of `spark-defaults.conf`, before those that are set here. A session
        that runs already is used as it is.
    workers
        Number of tasks that run at once; by default the cores that the application has when it begins.
    memory, worker_memory
        Bytes that all of them may use together, or each.

    Raises
    ------
    SpecError
        If PySpark or Java is not installed, or the application grows and shrinks and it is not said to what.
    TrueupError
        If the cluster cannot be reached, or its executors have another release of this package.
    """

    name = "spark"
    beside_driver = False

    def __init__(
        self,
        master: str | None = None,
        settings: dict[str, str] | None = None,
        *,
        workers: int | None = None,
        memory: int | None = None,
        worker_memory: int | None = None,
    ) -> None:
        refuse_missing_package()
        from pyspark.sql import SparkSession

        self._borrowed = SparkSession.getActiveSession() is not None
        self._session = session_of(master, settings or {})
        self._context = self._session.sparkContext
        self.memory, self.worker_memory = memory, worker_memory
        if workers is None or worker_memory is None:
            try:
                self._refuse_elastic()
            except SpecError:
                self.__exit__()
                raise
        self._refuse_other_release()
        # Executors register one by one; after a job that waited for the first, most of them are counted.
        self.workers = workers or int(self._context.defaultParallelism)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if not self._borrowed:
            self._session.stop()

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; yield each item's position and result, in any order."""
        if not items:
            return
        sent = self._context.broadcast([pickle.dumps(task), *map(pickle.dumps, items)])
        try:
            yield from _distinct_answers(self._answers(sent, len(items)))
        finally:
            self._context.cancelJobGroup(_GROUP)
            sent.destroy()

    def _answers(self, sent: Any, items: int) -> Iterator[tuple[int, bytes]]:
        """Yield positions and results as soon as tasks finish, before the Spark job ends."""
        answers = self._context.accumulator([], _Collected())
        positions = self._session.range(0, items, 1, numPartitions=items)
        with without_remarks():
            job = positions.mapInArrow(_carrying_out(sent, answers), "at long")

        def run() -> None:
            self._context.setJobGroup(_GROUP, "tasks of trueup", interruptOnCancel=True)
            with quoting_nothing("a job of the Spark cluster"):
                job.collect()

        yield from _while_running(run, lambda: answers.value)

    def grouped(self, source: Any, columns: Sequence[str], count: str, folder: Path) -> bool:
        """Count equal rows of a table where it is stored; return False if Spark cannot read it."""
        if is_address(source):
            name = str(source)
        elif isinstance(source, str | Path) and all(map(is_parquet, files_of(Path(source)))):
            path = Path(source).absolute()
            # A path that exists is escaped, so that Spark does not read it as a pattern.
            escaped = re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path))
            name = _address(Path(escaped) if path.exists() else path)
        else:
            return False  # text is read by the driver, which holds it to the header's dialect
        read = self._session.read
        with quoting_nothing("reading the table by Spark"):
            table = (
                read.table(name.removeprefix(TABLE))
                if name.startswith(TABLE)
                else read.option("recursiveFileLookup", True).parquet(name)
            )
        if missing := sorted(set(columns) - set(table.columns)):
            raise DataError(
                f"'{name}' has no column '{missing[0]}'", needed=f"the columns {', '.join(columns)}"
            )
        with quoting_nothing("tabulating by Spark"):
            rows = table.groupBy(*columns).count().withColumnRenamed("count", count)
            rows.write.parquet(_address(folder))
        return True

    def _refuse_elastic(self) -> None:
        """Raise an error if the number of executors of the Spark application may change."""
        if self._context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
            raise SpecError(
                "Spark adds and removes executors (spark.dynamicAllocation.enabled), so that the number of tasks and "
                "their memory are not known",
                needed="--workers, the most cores that the application may use, and --worker-memory, what each may use in "
                "addition to the JVM",
                remedy="give --workers and --worker-memory",
            )

    def _refuse_other_release(self) -> None:
        for _, found in self.map(release_of_worker, range(self._context.defaultParallelism)):
            if found != __version__:
                raise TrueupError(
                    f"an executor has trueup {found}, this driver has {__version__}",
                    needed="the same version on the driver and on every executor",
                    remedy="install it on the cluster's machines, or ship a packed environment with spark.archives",
                )


def _address(path: Path) -> str:
    """Return a local path with the scheme `file:`, which Spark needs for local files."""
    return f"file://{path.absolute()}"


def release_of_worker(_: Any) -> str:
    """Return the version of this package that is installed on an executor."""
    return __version__


class _Collected:
    """An accumulator of task results, in the form that PySpark requires."""

    def zero(self, value: list) -> list:
        return []

    def addInPlace(self, value1: list, value2: list) -> list:
        return value1 + value2


def _while_running(job: Callable[[], None], answers: Callable[[], list]) -> Iterator[Any]:
    """Yield results while a Spark job runs, and raise the job's errors."""
    seen = 0
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job)
        while True:
            over = wait([running], SECONDS_BETWEEN_POLLS).done
            news = answers()[seen:]
            seen += len(news)
            yield from news
            if over:
                return running.result()


def _distinct_answers(answers: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, Any]]:
    """Yield the first result for every position, or raise the error that a task returned."""
    seen: set[int] = set()
    for at, pickled in answers:
        answer = pickle.loads(pickled)
        if isinstance(answer, TrueupError):
            raise answer
        if at not in seen:
            seen.add(at)
            yield at, answer


def _carrying_out(sent: Any, answers: Any) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """Return the function that an executor runs: it carries out items and sends results to the driver."""

    def carry_out(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                answers.add([(at, pickle.dumps(_answer(sent.value, at)))])
            yield batch.rename_columns(["at"])

    return carry_out


def _answer(sent: list[bytes], at: int) -> Any:
    """Return the result of a task or its error, because Spark repeats a task that raises an error."""
    label = f"item {at + 1} of {len(sent) - 1}"
    try:
        return pickle.loads(sent[0])(pickle.loads(sent[at + 1]))
    except Exception as error:
        return told(error, label)
