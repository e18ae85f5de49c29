"""Tasks that the tests of executors carry out in other processes."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from trueup.errors import DataError
from trueup.run.parts import Parts


def squared(item: int) -> int:
    """An honest task."""
    return item * item


def fail(item: int) -> int:
    """A task that raises what is told to users."""
    raise DataError(f"item {item} is bad")


def blunder(item: int) -> int:
    """A task with a mistake whose message quotes data."""
    raise KeyError("confidential 4711")


def exhaust(item: int) -> int:
    """A task that memory does not suffice for."""
    raise MemoryError


def executor() -> int:
    """The Spark executor of this worker: the parent of the daemon that forked it."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class KilledOnce:
    """Kill the worker, or the executor that it belongs to, the first time that an odd item comes."""

    folder: Path
    always: bool = False
    victim: str = "worker"

    def __call__(self, item: int) -> int:
        mark = self.folder / str(item)
        if item % 2 and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid() if self.victim == "worker" else executor(), signal.SIGKILL)
        return squared(item)


@dataclass(frozen=True)
class Draw:
    """Commit a fresh draw under one name, as twins of one task do; answer with what is committed."""

    folder: Path
    size: int = 100_000

    def __call__(self, item: int) -> str:
        parts = Parts(self.folder)
        parts.commit("draw", lambda path: path.write_bytes(os.urandom(self.size)))
        return parts.path("draw").read_bytes().hex()


@dataclass(frozen=True)
class DiskOfSize:
    """Commit more than the disk takes."""

    folder: Path

    def __call__(self, item: int) -> None:
        import resource

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        try:
            Draw(self.folder)(item)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
