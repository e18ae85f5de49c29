"""Executors that carry out tasks on one machine or several, and deadlines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from trueup.errors import ConvergenceError, ResourceError, SpecError, TrueupError, place_of

DEFAULT_MINUTES = 10.0
"""Wall time that `infer` may take where nothing else is asked for."""
MIN_MINUTES = 1.0


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def told_time(seconds: float) -> str:
    """Return words for a duration in seconds."""
    if seconds < 1.5:
        return "a second"
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


@dataclass(frozen=True)
class Deadline:
    """A point in time at which work must end, and the time allowed until then.

    Attributes
    ----------
    ends
        Reading of `time.monotonic` (seconds).
    allowed
        Seconds from the beginning.

    Examples
    --------
    >>> Deadline.of(2).allowed
    120.0
    >>> Deadline.of(2).left() > 100, Deadline.of(2).passed
    (True, False)
    """

    ends: float
    allowed: float

    @classmethod
    def of(cls, minutes: float | None = None, *, began: float | None = None) -> Deadline:
        """Return the deadline of a command, given its time limit in minutes and when it began.

        Raises
        ------
        SpecError
            If less than one minute is given.
        """
        minutes = DEFAULT_MINUTES if minutes is None else minutes
        if not minutes >= MIN_MINUTES:
            raise SpecError(f"{minutes:g} minutes are given as the time limit", needed="at least 1 minute")
        return cls((time.monotonic() if began is None else began) + 60 * minutes, 60.0 * minutes)

    def left(self, share: float = 1.0) -> float:
        """Return the seconds until a given share of the allowed time is over; negative after that."""
        return self.ends - (1 - share) * self.allowed - time.monotonic()

    def sooner(self, share: float) -> Deadline:
        """Return an earlier deadline, for work that may take a given share of the allowed time.

        Examples
        --------
        >>> Deadline.of(2).sooner(0.5).allowed, Deadline.of(2).sooner(0.5).left() < 61
        (60.0, True)
        """
        return Deadline(self.ends - (1 - share) * self.allowed, share * self.allowed)

    def in_all(self, seconds: float) -> str:
        """Return words for the predicted duration of the whole command, given the seconds still needed.

        Examples
        --------
        >>> Deadline.of(2).in_all(90), Deadline.of(9).in_all(300)
        ('about 90 seconds in all', 'about 5 minutes in all')
        """
        return f"about {told_time(self.allowed - self.left() + seconds)} in all"

    def spent(self, method: str, done: str, remedy: str) -> ConvergenceError:
        """Return the error for a deadline that passed before there was a result.

        Examples
        --------
        >>> str(Deadline.of(2).spent("some-method", "3 sweeps", "allow more minutes"))
        "method 'some-method' had 2 minutes, which were spent after 3 sweeps. To do: allow more minutes."
        """
        given = f"method '{method}' had {self.allowed / 60:g} minutes, which were spent after {done}"
        return ConvergenceError(given, remedy=remedy)

    @property
    def passed(self) -> bool:
        """Return True if the deadline has passed."""
        return self.left() <= 0


WORKER_ENVIRONMENT = {
    # The workers share their machine's cores: one thread each for linear algebra.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    # Tables of a hundred megabytes come and go: a heap that keeps their room spares the system from clearing it each time,
    # a quarter of the processor time otherwise. Read by glibc; the largest memory stays what it was.
    "MALLOC_MMAP_THRESHOLD_": "2000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
}
"""Environment variables of a worker, set before it starts."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class InTurn(Sequence[Item]):
    """Items of a sequence that are created only when they are needed, to save memory.

    Examples
    --------
    >>> list(InTurn(abs, 3))
    [0, 1, 2]
    """

    def __init__(self, make: Callable[[int], Item], count: int) -> None:
        self._make, self._count = make, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> Item:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._make(at)


def runs_of(before: NDArray[np.integer], most: int) -> list[tuple[int, int]]:
    """Return the `(first, end)` of runs of parts that have about `most` cells in each run.

    Examples
    --------
    >>> runs_of(np.array([0, 3, 6, 9]), 5)
    [(0, 2), (2, 4)]
    """
    return [*pairwise([*np.unique(before // most, return_index=True)[1].tolist(), len(before)])]


class Executor(Protocol):
    """A way to carry out one task on many items by workers.

    A task is **carried out at least once**: a worker may be killed after its work and before its answer, and an
    engine may start a twin of a slow task. So a task leaves what it makes in `run.parts.Parts`, where the first
    writer wins, and answers with little more than names.

    Attributes
    ----------
    name
        Name of the engine, for logs.
    workers
        Number of tasks that run at once; the memory that a task may use follows from it.
    memory
        Bytes that all workers may use together, where that is said.
    worker_memory
        Bytes that each worker may use, where that is known; else they share what the run may use.
    beside_driver
        True if the workers share the driver's machine, and its memory.
    """

    name: str
    workers: int
    memory: int | None
    worker_memory: int | None
    beside_driver: bool

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; yield each item's position and result, in any order.

        Parameters
        ----------
        task
            A callable that pickles: a module's function, or a frozen dataclass with `__call__`.
        items
            Arguments of the task, one for each call; each can be pickled.

        Raises
        ------
        TrueupError
            The error that the task raised, or that a worker was lost repeatedly. Other tasks of the map are then
            given up; what they left in parts stays.
        """
        ...

    def grouped(self, source: Any, columns: Sequence[str], count: str, folder: Path) -> bool:
        """Count equal rows of a table of records where it is stored; return False if that is not possible.

        Parameters
        ----------
        source
            The confidential table as the user gave it.
        columns
            Columns in which rows must agree to be counted together.
        count
            Name of the column for the number of rows.
        folder
            A new folder, for Parquet; on a file system that the workers share.

        Returns
        -------
        bool
            False where the source is left to the driver; nothing was written then.

        Raises
        ------
        DataError
            If a column is missing.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...


def told(error: BaseException, label: str) -> TrueupError:
    """Return an exception of a task as an error that quotes no data and can be sent between processes.

    Examples
    --------
    >>> print(told(KeyError("a confidential value"), "measuring part 3"))
    measuring part 3 failed with KeyError at unknown place. To do: report this as an error in trueup; then continue with --resume.
    """
    if isinstance(error, TrueupError):
        return error
    if isinstance(error, MemoryError):
        return out_of_memory(f"{label} needs more memory than there is")
    return ResourceError(
        f"{label} failed with {type(error).__name__} at {place_of(error)}",
        remedy="report this as an error in trueup; then continue with --resume",
    )


def out_of_memory(what: str) -> ResourceError:
    """Return the error for a lack of memory, with advice on what to do."""
    return ResourceError(
        what,
        remedy="free memory or give fewer --workers, then continue with --resume; or start anew with a smaller --memory",
    )
