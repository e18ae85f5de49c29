"""A standalone Spark cluster on this machine: a master and workers in processes of their own, which tests may kill."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
PATIENCE = 120
"""Seconds that a process may take to start on a busy machine."""


@dataclass(frozen=True)
class Standalone:
    """A running cluster."""

    url: str
    master: subprocess.Popen
    workers: list[subprocess.Popen]


@contextmanager
def standalone(folder: Path, workers: int = 2, memory: str = "2g") -> Iterator[Standalone]:
    """Start a master and workers of one core each; end them all at the end."""
    port = _free_port()
    url = f"spark://{HOST}:{port}"
    running: list[subprocess.Popen] = []
    try:
        running.append(_start(folder / "master", "master.Master", "--port", str(port)))
        _wait_for(port)
        more = ("--cores", "1", "--memory", memory)
        for number in range(workers):
            work = folder / f"worker-{number}"
            running.append(_start(work, "worker.Worker", *more, "--work-dir", str(work), url))
        yield Standalone(url, running[0], running[1:])
    finally:
        for process in running:
            process.kill()
            process.wait()


def _start(folder: Path, role: str, *arguments: str) -> subprocess.Popen:
    import pyspark

    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", HOST]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*command, "--webui-port", "0", *arguments], env=environment, stdout=log, stderr=log
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def _wait_for(port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on port {port}")
