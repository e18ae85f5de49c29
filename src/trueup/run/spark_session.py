"""The Spark session in which tasks run: its settings, and what must be installed."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trueup.errors import ResourceError, SpecError
from trueup.run import WORKER_ENVIRONMENT

ATTEMPTS = 4
"""How often Spark tries an item whose executor is lost, unless the cluster's own settings say otherwise."""
_SETTINGS = {
    "spark.app.name": "trueup",
    "spark.task.maxFailures": str(ATTEMPTS),
    "spark.ui.showConsoleProgress": "false",
    "spark.io.encryption.enabled": "true",  # what Spark spills while it counts rows is confidential
    **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
}


def refuse_missing_package() -> None:
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
    """Return our settings, except those in `settings`, `spark-defaults.conf` or `spark-submit`.

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
    """Turn an error of Spark, whose text may hold data, into one that quotes nothing."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException, RuntimeError, OSError) as error:
        raise ResourceError(
            f"{what} failed ({type(error).__name__})",
            needed="a master that can be reached, and executors with memory enough and this package installed",
            remedy="look into the logs of the cluster; then continue with --resume",
        ) from None


@contextmanager
def without_remarks() -> Iterator[None]:
    """Suppress PySpark's remarks on other libraries' versions, on which users cannot act."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
