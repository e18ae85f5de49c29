"""What a call does besides its answer: processor time, memory, files opened and written."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPENED = 0x20 | 0x2 | 0x100 | 0x200 | 0x40  # opened, modified, created, deleted, moved from


@dataclass
class Seen:
    """Seconds of a processor, bytes above those held before, and files outside that were touched."""

    seconds: float = 0.0
    memory: int = 0
    touched: list[str] = field(default_factory=list)


class Outside:
    """A folder in which nothing may be opened or changed; whoever does it is seen, DuckDB as well."""

    def __init__(self, folder: Path) -> None:
        self._watch = _LIBC.inotify_init1(os.O_NONBLOCK)
        _LIBC.inotify_add_watch(self._watch, bytes(folder), _OPENED)

    def names(self) -> list[str]:
        """Return the names that were touched since it was asked last."""
        found = []
        with suppress(BlockingIOError):
            while held := os.read(self._watch, 1 << 16):
                while held:
                    _, _, _, length = struct.unpack_from("iIII", held)
                    if name := held[16 : 16 + length].rstrip(b"\0").decode():  # else whoever lists the folder
                        found.append(name)
                    held = held[16 + length :]
        return found


@contextmanager
def watched(outside: Outside) -> Iterator[Seen]:
    """Watch what is done in a block."""
    seen = Seen()
    outside.names()
    before, start = _memory("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    try:
        yield seen
    finally:
        seen.seconds = time.process_time() - start
        seen.memory = _memory("VmHWM") - before
        seen.touched = outside.names()


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)


class Opened:
    """Files that Python opened outside what it may: an audit hook, which stays for the life of the process."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.found: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple) -> None:
        if self.allowed is None or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.fsdecode(arguments[0])
        # A name alone is of an open folder, whose tree is being removed.
        if os.sep in path and not os.path.abspath(path).startswith(self.allowed):  # noqa: PTH100
            self.found.append(path)
