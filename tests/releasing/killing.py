"""Executors that kill the process of a task at a chosen moment, and a server of drivers that are killed so.

`python -m tests.releasing.killing` reads lines of JSON and answers each with the exit code of a forked driver. It is
killed at the moment `kill`, counted over all tasks of the run (three a task: before it, inside its first commit, and
after it), or where it calls the function named by `call`, or not at all if both are missing.

Nothing is forked here while there is a second thread: a lock that it holds at that moment is never released in the child. The
allocator of Arrow, linear algebra and the driver's sign of life had one each, and one run in some forty did not come back.
SIGUSR1 writes the stacks of a process to its standard error.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.run.tasks import executor
from trueup.files import owner
from trueup.files.database import shared_database
from trueup.run import local, parts
from trueup.run.local import LocalPool

MOMENTS = ("before", "inside", "after")


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_executor() -> None:
    """End the Spark executor of this process, then this process."""
    os.kill(executor(), signal.SIGKILL)
    die()


@dataclass(frozen=True)
class KilledOnce:
    """A task whose process is killed at a moment, the first time that one of its kind is carried out."""

    task: Callable[[Any], Any]
    moment: str
    marks: Path
    end: Callable[[], None] = die

    def __call__(self, item: Any) -> Any:
        try:
            (self.marks / type(self.task).__name__).touch(exist_ok=False)
        except FileExistsError:
            return self.task(item)
        return killed_at(self.moment, self.task, item, self.end)


def killed_at(moment: str, task: Callable[[Any], Any], item: Any, end: Callable[[], None] = die) -> Any:
    """Carry out a task and come to an end at a moment."""
    if moment == "before":
        end()
    if moment == "inside":
        parts.os.link = lambda *paths: end()
    answer = task(item)
    end()
    return answer


@dataclass(frozen=True)
class KilledAtRandom:
    """A task whose process is killed with some probability, at a moment of chance; each kill leaves a mark."""

    task: Callable[[Any], Any]
    share: float
    marks: Path
    end: Callable[[], None] = die

    def __call__(self, item: Any) -> Any:
        chance = random.SystemRandom()
        if chance.random() >= self.share:
            return self.task(item)
        os.close(tempfile.mkstemp(dir=self.marks, prefix=type(self.task).__name__)[0])
        return killed_at(chance.choice(MOMENTS), self.task, item, self.end)


class ForkedWorker(local._Worker):
    """A worker forked from its driver, which has loaded all that it needs: a death costs milliseconds."""

    def __init__(self) -> None:
        refuse_threads()
        context = multiprocessing.get_context("fork")
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=work_alone, args=(there,), daemon=True)
        self._process.start()
        there.close()


def refuse_threads() -> None:
    """Fail where a fork would copy a process that has more than one thread, of Python or below it."""
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert len(names) == 1, names


def work_alone(pipe: Any) -> None:
    """Work as a spawned process does, which has no open file of its driver and outlives it."""
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    local._work(pipe)


class RandomPool(LocalPool):
    """Worker processes that die at random, and a driver that dies after some answers."""

    def __init__(self, workers: int, share: float, marks: Path, kill: int | None) -> None:
        super().__init__(workers)
        self.share, self.marks, self.left = share, marks, kill
        local._Worker = ForkedWorker
        owner.Owner._live = lambda *_: None  # whether it lives is known on one machine without a sign

    def map(self, task, items):
        """Carry out the task in processes that may die."""
        for answer in super().map(KilledAtRandom(task, self.share, self.marks), items):
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    die()
            yield answer


class KillingPool(LocalPool):
    """Worker processes, one of which is killed in every kind of task that is named with a moment."""

    def __init__(self, workers: int, moments: dict[str, str], marks: Path) -> None:
        super().__init__(workers)
        self.moments, self.marks = moments, marks

    def map(self, task, items):
        """Carry out the task, killed where it is named."""
        moment = self.moments.get(type(task).__name__)
        return super().map(KilledOnce(task, moment, self.marks) if moment else task, items)


class DyingDriver(LocalPool):
    """A driver that carries out tasks itself and dies at the given moment, counted from 0."""

    def __init__(self, kill: int | None) -> None:
        super().__init__(1)
        self.left = kill

    def map(self, task, items):
        """Carry out a task on every item, until the moment has come."""
        for at, item in enumerate(items):
            if self.left is not None and self.left < len(MOMENTS):
                killed_at(MOMENTS[self.left], task, item)
            if self.left is not None:
                self.left -= len(MOMENTS)
            yield at, task(item)


def drive(order: dict[str, Any]) -> None:
    """Release, or go on with a release, in this process."""
    from trueup.files import JoinedTables
    from trueup.ledger.account import Account
    from trueup.releasing import pipeline
    from trueup.releasing.pipeline import resume

    ledger = order.pop("ledger", None)
    account = Account.open(ledger, "ana", None) if ledger else None
    if households := order.pop("households", None):
        order["data"] = JoinedTables(order["data"], households)
    workers, share, marks = (order.pop(name, None) for name in ("workers", "share", "marks"))
    kill = order.pop("kill", None)
    executor = RandomPool(workers, share, Path(marks), kill) if workers else DyingDriver(kill)
    if call := order.pop("call", None):
        module, _, name = call.rpartition(":")
        holder, _, name = name.rpartition(".")
        there = import_module(module)
        setattr(getattr(there, holder) if holder else there, name, lambda *a, **k: die())
    if folder := order.pop("resume", None):
        resume(folder, executor=executor, account=account)
    else:
        pipeline.release(**order, executor=executor, account=account)
    executor.__exit__()


def serve() -> None:
    """Fork a driver for every line; the first is carried out here, to another target, and loads what the others need."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    order = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as place:
        drive(order | {"out": str(Path(place) / "out")})
    for line in sys.stdin:
        shared_database.cache_clear()  # as each fork does
        refuse_threads()
        if (child := os.fork()) == 0:
            status = 1
            try:
                drive(json.loads(line))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
