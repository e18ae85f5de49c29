"""Tasks carried out by the executors of an Apache Spark cluster."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trueup.errors import SpecError, TrueupError
from trueup.run.executor import Item, Result, told
from trueup.version import __version__

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ATTEMPTS = 4
"""How often Spark tries an item whose executor is lost, unless the cluster's own settings say otherwise."""
_SETTINGS = {
    "spark.app.name": "trueup",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.ui.showConsoleProgress": "false",
    # The executors share their machines' cores: one thread each for linear algebra.
    **{
        f"spark.executorEnv.{name}": "1"
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    },
}


class SparkCluster:
    """A Spark application whose executors carry out one item per partition.

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
        Further settings of the application. A session that runs already is used as it is.

    Raises
    ------
    SpecError
        If PySpark or Java is not installed.
    TrueupError
        If the cluster cannot be reached, or its executors have another release of this package.
    """

    name = "spark"

    def __init__(self, master: str | None = None, settings: dict[str, str] | None = None) -> None:
        refuse_missing()
        self._session = _session(master, settings or {})
        self._context = self._session.sparkContext
        self.workers = int(self._context.defaultParallelism)
        self._refuse_other_release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        with _quiet():
            self._session.stop()

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; see `Executor.map`."""
        if not items:
            return
        sent = self._context.broadcast([pickle.dumps(task), *map(pickle.dumps, items)])
        with _quiet(), _told("a job of the Spark cluster"):
            positions = self._session.range(0, len(items), 1, numPartitions=len(items))
            rows = positions.mapInArrow(_carrying_out(sent), "at long, answer binary").collect()
        sent.destroy()
        for row in rows:
            answer = pickle.loads(row.answer)
            if isinstance(answer, TrueupError):
                raise answer
            yield int(row.at), answer

    def _refuse_other_release(self) -> None:
        for _, found in self.map(release_of_worker, range(self.workers)):
            if found != __version__:
                raise TrueupError(
                    f"an executor has trueup {found}, this driver has {__version__}",
                    needed="the same release on the driver and on every executor",
                    remedy="install it on the cluster's machines, or ship a packed environment with spark.archives",
                )


def release_of_worker(_: Any) -> str:
    """Tell which release of this package an executor has."""
    return __version__


def refuse_missing() -> None:
    """Raise SpecError if PySpark or Java is not installed."""
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
            "the engine 'spark' needs Java, and neither JAVA_HOME nor the path leads to it",
            needed="a Java runtime that this release of Spark supports, such as Java 17",
            remedy="install one, or set JAVA_HOME",
        )


def _session(master: str | None, settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    # Executors on this machine find the driver's interpreter; a cluster's own setting goes first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in (_SETTINGS | settings).items():
        builder = builder.config(name, value)
    with _quiet(), _told(f"the Spark master '{master or 'of the environment'}'"):
        session = (builder.master(master) if master else builder).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    return session


def _carrying_out(sent: Any) -> Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]:
    """What an executor does: look its items up in the broadcast, and answer with bytes."""

    def carry_out(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for at in batch.column(0).to_pylist():
                answer = pickle.dumps(_answer(sent.value, at))
                yield pa.RecordBatch.from_pydict({"at": [at], "answer": [answer]})

    return carry_out


def _answer(sent: list[bytes], at: int) -> Any:
    """What the task says, or its error as an answer: Spark would only try again what fails for good."""
    label = f"item {at + 1} of {len(sent) - 1}"
    try:
        return pickle.loads(sent[0])(pickle.loads(sent[at + 1]))
    except Exception as error:
        return told(error, label)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn an error of Spark into one that quotes nothing: its text may hold anything."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        raise TrueupError(
            f"{what} failed ({type(error).__name__})",
            needed="a master that can be reached, and executors with memory enough and this package installed",
            remedy="look into the logs of the cluster; then continue with --resume",
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark's remarks on other libraries' versions from users, who cannot act on them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
