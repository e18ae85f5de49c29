"""Draw noise in a process and in a fork of it that has the same process number, and print both.

`python -m tests.claims.forked WAY SOURCE`, where the fork has the parent's number because it is the first process of
a PID namespace inside the parent's (`namespace`), or because the parent died and the system gave its number again
(`recycled`). The noise is that of `measure` from the system's kernel (`kernel`), or with a generator that keeps its
state in the process put in its place (`openssl`, `numpy`).
"""

from __future__ import annotations

import ctypes
import os
import ssl
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.areas import SPEC
from trueup.measuring import draw, entropy
from trueup.model.build import build_cells
from trueup.model.mechanism import plan_measurements
from trueup.model.spec import parse_spec
from trueup.model.tree import Tree

NEW_PIDS, NEW_USER = 0x20000000, 0x10000000  # of <linux/sched.h>
IMPOSSIBLE = 3
"""Exit status where the system grants no such fork."""
SOURCES: dict[str, Callable[[int], bytes]] = {
    "kernel": os.urandom,
    "openssl": ssl.RAND_bytes,
    "numpy": np.random.default_rng().bytes,
}
_LAST = Path("/proc/sys/kernel/ns_last_pid")
_MOST = 1 << 16  # process numbers that are tried one after another


def noise() -> bytes:
    """Noise of one measurement of three counties of two states."""
    keys = [{}, {"state": ["01", "01", "02"]}, {"county": ["001", "003", "001"]}]
    spec = parse_spec(SPEC)
    cells = build_cells(spec, Tree.from_columns(["all", "state", "county"], keys))
    headers, guarantee = plan_measurements(spec, cells)
    drawn = [draw(cells, np.zeros(3, np.int64), headers, guarantee).flat for _ in range(20)]
    return np.concatenate(drawn).tobytes()


def namespace() -> tuple[bytes, ...]:
    """Two first processes, one the fork of the other: both have the number 1."""
    if not (_unshare(NEW_PIDS) or _unshare(NEW_PIDS | NEW_USER)):
        sys.exit(IMPOSSIBLE)
    return _said_by(_first_process)


def _first_process(say: Callable[[bytes], None]) -> None:
    noise()  # a generator with a state has one from here on
    if not _unshare(NEW_PIDS):
        os._exit(IMPOSSIBLE)
    (child,) = _said_by(lambda say: say(_numbered(1)), 1)
    say(_numbered(1))
    say(child)


def recycled() -> tuple[bytes, ...]:
    """A process that drew and died, and one with its number that its child forked later."""
    return _said_by(_mortal)


def _mortal(say: Callable[[bytes], None]) -> None:
    noise()
    number, (dead, alive) = os.getpid(), os.pipe()
    if os.fork() == 0:
        os.close(alive)
        os.read(dead, 1)  # ends where the parent does, and the grandparent waits for it
        _fork_as(number, lambda: say(_numbered(number)))
        os._exit(0)
    say(_numbered(number))


def _fork_as(number: int, work: Callable[[], None]) -> None:
    """Fork until the child has a process number, and work there."""
    for _ in range(_MOST):
        with suppress(OSError):  # only an administrator sets it: the numbers are used up instead
            _LAST.write_text(str(number - 1))
        child = os.fork()
        if child == 0:
            if os.getpid() == number:
                work()
            os._exit(0)
        os.waitpid(child, 0)
        if child == number:
            return
    os._exit(IMPOSSIBLE)


def _numbered(number: int) -> bytes:
    assert os.getpid() == number, "the test compares processes with equal numbers"
    return noise()


def _said_by(work: Callable[[Callable[[bytes], None]], None], times: int = 2) -> tuple[bytes, ...]:
    """What a fork and its descendants say, of equal lengths."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            work(lambda said: (os.write(writer, said), None)[1])
            os._exit(0)
        except Exception:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        sys.exit(status)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    size, rest = divmod(len(said), times)
    assert size > rest == 0, "a process died before it drew"
    return tuple(said[i * size : (i + 1) * size] for i in range(times))


def _unshare(flags: int) -> bool:
    return ctypes.CDLL(None, use_errno=True).unshare(flags) == 0


if __name__ == "__main__":
    way, source = sys.argv[1:]
    entropy.os = SimpleNamespace(urandom=SOURCES[source])  # type: ignore
    parent, child = {"namespace": namespace, "recycled": recycled}[way]()
    print(parent.hex(), child.hex())
