"""Releases on Spark clusters whose executors, workers and drivers are killed.

`python -m tests.releasing.on_spark` reads one line of JSON and is the driver of the release that it orders. It dies as `kill -9`
does when the task named by `die_in` has answered for the first time.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import SPARK
from tests.releasing.killing import KilledAtRandom, KilledOnce, die, die_with_executor
from trueup.run.spark import SparkCluster


class Watched:
    """A cluster whose tasks may be replaced and whose answers are counted, with the cluster's own everything else."""

    def __init__(
        self,
        cluster: SparkCluster,
        replace: Callable[[Any], Any] = lambda task: task,
        heard: Callable[[Any, int], None] = lambda task, answers: None,
    ) -> None:
        self._cluster, self._replace, self._heard = cluster, replace, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def map(self, task, items):
        """Carry out what the task is replaced by."""
        for answers, answer in enumerate(self._cluster.map(self._replace(task), items)):
            self._heard(task, answers + 1)
            yield answer


def killing(cluster: SparkCluster, moments: dict[str, str], marks: Path) -> Watched:
    """A cluster that loses an executor in every kind of task that is named with a moment."""

    def replaced(task: Any) -> Any:
        moment = moments.get(type(task).__name__)
        return KilledOnce(task, moment, marks, die_with_executor) if moment else task

    return Watched(cluster, replaced)


def killing_at_random(cluster: SparkCluster, share: float, marks: Path) -> Watched:
    """A cluster that loses an executor, or the Python process of one, in some of its tasks."""

    def replaced(task: Any) -> Any:
        end = die_with_executor if random.SystemRandom().random() < 0.5 else die
        return KilledAtRandom(task, share, marks, end)

    return Watched(cluster, replaced)


def main() -> None:
    """Release, or go on with a release, as ordered; die where ordered."""
    from trueup.ledger.account import Account
    from trueup.releasing import pipeline
    from trueup.releasing.pipeline import resume

    order = json.loads(sys.stdin.readline())
    account, fatal = Account.open(order.pop("ledger"), "ana", None), order.pop("die_in")

    def heard(task: Any, answers: int) -> None:
        if type(task).__name__ == fatal:
            die()

    with SparkCluster(order.pop("master"), SPARK) as cluster:
        executor = Watched(cluster, heard=heard)
        if folder := order.pop("resume", None):
            resume(folder, executor=executor, account=account)
        else:
            pipeline.release(**order, executor=executor, account=account)


if __name__ == "__main__":
    main()
