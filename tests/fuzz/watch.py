"""What a call does besides its answer: processor time, memory, files opened and written."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def watched(outside: Path) -> Iterator[Seen]:
    """Watch what is done in a block; whatever opens or changes a file of the folder `outside` is seen, DuckDB as well."""
    seen, watch = Seen(), _LIBC.inotify_init1(os.O_NONBLOCK)
    _LIBC.inotify_add_watch(watch, bytes(outside), _OPENED)
    before, start = _memory("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    try:
        yield seen
    finally:
        seen.seconds = time.process_time() - start
        seen.memory = _memory("VmHWM") - before
        seen.touched = list(_names(watch))
        os.close(watch)


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise AssertionError(name)


def _names(watch: int) -> Iterator[str]:
    try:
        held = os.read(watch, 1 << 16)
    except BlockingIOError:
        return
    while held:
        _, _, _, length = struct.unpack_from("iIII", held)
        yield held[16 : 16 + length].rstrip(b"\0").decode()
        held = held[16 + length :]


class Opened:
    """Files that Python opened outside what it may: an audit hook, which stays for the life of the process."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.found: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple) -> None:
        if self.allowed is None or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100
        if not path.startswith(self.allowed):
            self.found.append(path)
