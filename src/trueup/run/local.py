"""Executors that carry out tasks by processes or threads of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from trueup.errors import ResourceError, TrueupError
from trueup.run import WORKER_ENVIRONMENT, Item, Result, cores, out_of_memory, told

MAX_ITEM_ATTEMPTS = 3
"""Most attempts at an item whose worker is killed."""
MOST_THREADS = 4
"""Items that threads work on at once."""


class LocalPool:
    """A pool of worker processes of this machine, or this process itself for one worker.

    Workers are spawned, not forked: libraries with threads do not survive a fork. A worker that is killed is
    noticed by the end of its pipe, and its item is given to another one. A spawned process reads the script that it was
    started from, so a script that wants several workers does its work under `if __name__ == "__main__":`.

    Raises
    ------
    TrueupError
        In a worker that is itself about to read such a script without that line.

    Examples
    --------
    >>> with LocalPool(1) as pool:
    ...     dict(pool.map(abs, [-3, 4]))
    {0: 3, 1: 4}
    """

    name = "local"
    beside_driver = True

    def __init__(
        self,
        workers: int = 1,
        attempts: int = MAX_ITEM_ATTEMPTS,
        *,
        memory: int | None = None,
        worker_memory: int | None = None,
    ) -> None:
        if workers > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
            raise _unguarded(
                "a worker process reads the script that it was started from, and would start workers"
            )
        self.workers, self.attempts = workers, attempts
        self.memory, self.worker_memory = memory, worker_memory
        self._pool: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        for worker in self._pool:
            worker.end()
        self._pool = []

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; yield each item's position and result, in any order."""
        if self.workers == 1:
            yield from self._here(task, items)
            return
        try:
            yield from self._there(task, items)
        except BaseException:  # also where the caller stops listening
            self.__exit__()
            raise

    def grouped(self, source: Any, columns: Sequence[str], count: str, folder: Path) -> bool:
        """Return False, because this process reads every source itself."""
        return False

    def _here(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        for at, item in enumerate(items):
            try:
                result = task(item)
            except MemoryError as error:
                raise told(error, _label(task, at, len(items))) from None
            yield at, result

    def _there(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        waiting, deaths = deque(range(len(items))), Counter()
        busy: dict[Connection, tuple[_Worker, int]] = {}
        while waiting or busy:
            while waiting and (worker := self._idle(busy, len(items))):
                at = waiting.popleft()
                worker.give(task, items[at], _label(task, at, len(items)))
                busy[worker.pipe] = worker, at
            for pipe in wait(list(busy)):
                worker, at = busy.pop(pipe)  # pyright: ignore[reportArgumentType]
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self._pool.remove(worker)
                    deaths[at] += 1
                    ended, label = worker.end(), _label(task, at, len(items))
                    if ended is not None and ended >= 0:  # of its own accord, which none does that has begun
                        raise _unguarded(f"the worker of {label} ended ({ended}) without an answer") from None
                    if deaths[at] >= self.attempts:
                        raise _killed(label, ended, self.attempts) from None
                    waiting.appendleft(at)
                    continue
                if isinstance(answer, TrueupError):
                    raise answer
                yield at, answer

    def _idle(self, busy: dict[Connection, Any], items: int) -> _Worker | None:
        """Return a free worker, started if there are too few, or None if all are busy."""
        if idle := next((w for w in self._pool if w.pipe not in busy), None):
            return idle
        if len(self._pool) >= min(self.workers, items):
            return None
        self._pool.append(_Worker())
        return self._pool[-1]


class LocalThreads(LocalPool):
    """A pool of threads of this process, for compiled functions that release the interpreter lock.

    Items are worked on as they come, some at once: each may hold much. An interruption waits for those.

    Examples
    --------
    >>> dict(LocalThreads().map(abs, [-3, 4]))
    {0: 3, 1: 4}
    """

    name = "threads"

    def _here(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        pool = ThreadPoolExecutor(min(cores(), MOST_THREADS))
        try:
            left, running = iter(range(len(items))), {}
            while True:
                for at in islice(left, 2 * MOST_THREADS - len(running)):
                    running[pool.submit(task, items[at])] = at
                if not running:
                    break
                for done in wait_for(list(running), return_when=FIRST_COMPLETED).done:
                    at = running.pop(done)
                    try:
                        result = done.result()
                    except MemoryError as error:
                        raise told(error, _label(task, at, len(items))) from None
                    yield at, result
        finally:
            pool.shutdown(cancel_futures=True)


class _Worker:
    """A worker process, and the pipe by which it gets tasks."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there,), daemon=True)
        with _as_worker():
            self._process.start()
        there.close()  # the worker holds the only other end: when it dies, the pipe ends

    def give(self, task: Callable, item: Any, label: str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # a death is noticed when its answer is read
            self.pipe.send_bytes(pickle.dumps((task, item, label)))

    def end(self) -> int | None:
        """End the process; return words for the way in which it ended."""
        with suppress(OSError):
            self.pipe.close()
        self._process.join(0.1)
        ended = self._process.exitcode
        self._process.kill()
        self._process.join()
        return self._process.exitcode if ended is None else ended


@contextmanager
def _as_worker() -> Iterator[None]:
    """Set the environment variables of a worker while its process is started."""
    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    os.environ.update(WORKER_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(pipe: Connection) -> None:
    """Carry out the tasks that arrive through a pipe, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the driver's to handle
    while True:
        try:
            task, item, label = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = task(item)
        except BaseException as error:
            answer = told(error, label)
        with suppress(BrokenPipeError):
            pipe.send(answer)


def _label(task: Callable, at: int, items: int) -> str:
    name = getattr(task, "__name__", type(task).__name__).lower()
    return f"task '{name}' on part {at + 1} of {items}"


def _killed(label: str, exitcode: int | None, attempts: int) -> ResourceError:
    how = signal.Signals(-exitcode).name if exitcode else "a signal"
    return out_of_memory(
        f"the worker of {label} was killed by {how}, {attempts} times; the system does this where memory runs out"
    )


def _unguarded(what: str) -> TrueupError:
    return TrueupError(
        what,
        needed='a script that does its work under `if __name__ == "__main__":`, because every worker imports the script',
        remedy="move the call under that line, or give 1 worker",
    )
