"""Ownership of a folder by one process at a time, also on file systems that many machines share.

The owners of a folder stand in it one after the other: `owner/00001`, `owner/00002` and so on, each linked under its number
once, so that of any number of processes one becomes the next owner. An owner gives signs of life by touching its record, and
leaves a second file when it goes. The last record without one is that of the owner, alive or dead:

- a process of this machine that has ended is dead, and is followed at once;
- another machine's is taken for alive while it gives signs of life, by the file server's clock. If it has given none for
  `MAX_SILENCE_SECONDS` seconds, people must say that it is dead: only with `take_over` is it followed.

Who was followed while it slept finds a later record, and goes no further.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BusyError
from trueup.files.writing import to_disk

SECONDS_BETWEEN_SIGNS_OF_LIFE = 15.0
"""Seconds between two signs of life."""
MAX_SILENCE_SECONDS = 120.0
"""Seconds without one after which an owner may be dead."""
_OVER = ".over"


@dataclass(frozen=True)
class Owner:
    """A process that owns a folder, with the number of its record.

    Attributes
    ----------
    folder
        The folder that it owns.
    number
        Number of its record.
    """

    folder: Path
    number: int

    @property
    def path(self) -> Path:
        """Return the path of the owner's record."""
        return _records(self.folder) / f"{self.number:05d}"

    def refuse_followed(self) -> None:
        """Refuse to continue if another process has taken over the folder."""
        if self.path.with_name(f"{self.number + 1:05d}").exists():
            raise BusyError(
                f"another process has taken over the work on '{self.folder}'",
                needed="one process at a time",
                remedy="let the other process finish",
            )

    def _live(self, over: threading.Event) -> None:
        while not over.wait(SECONDS_BETWEEN_SIGNS_OF_LIFE):
            with suppress(OSError):
                os.utime(self.path)


@contextmanager
def owning(folder: Path, *, take_over: bool = False) -> Iterator[Owner]:
    """Make this process the owner of a folder until the end of a `with` block.

    Parameters
    ----------
    folder
        An existing folder.
    take_over
        True if a user states that an owner that no longer reports has ended.

    Raises
    ------
    BusyError
        If another process owns it, or may do so.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> with owning(folder) as first, owning(folder):
    ...     pass
    Traceback (most recent call last):
    trueup.errors.BusyError: process ... works on ...
    """
    owner, over = _next_owner(folder, take_over), threading.Event()
    beating = threading.Thread(target=owner._live, args=(over,), daemon=True)
    beating.start()
    try:
        yield owner
    finally:
        over.set()
        beating.join(timeout=1.0)  # or a process that forks next would copy one with two threads
        with suppress(OSError):  # the folder may be gone
            owner.path.with_suffix(_OVER).touch()


def _records(folder: Path) -> Path:
    return folder / "owner"


def refuse_owned(folder: Path, *, take_over: bool = False) -> int:
    """Refuse a folder that another process may own; return the number of the last owner's record, or 0."""
    with suppress(FileNotFoundError):
        last = max((int(p.name) for p in _records(folder).iterdir() if p.name.isdigit()), default=0)
        if last:
            _refuse_living(Owner(folder, last), take_over)
        return last
    return 0


def _next_owner(folder: Path, take_over: bool) -> Owner:
    _records(folder).mkdir(mode=0o700, exist_ok=True)
    last = refuse_owned(folder, take_over=take_over)
    owner = Owner(folder, last + 1)
    handle, hidden = tempfile.mkstemp(prefix=".", dir=_records(folder))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(_this_process(), file)
        to_disk(Path(hidden))
        os.link(hidden, owner.path)
        to_disk(_records(folder))
    except FileExistsError:
        raise BusyError(
            f"another process has just begun to work on '{folder}'", remedy="wait until it ends, or end it"
        ) from None
    finally:
        Path(hidden).unlink()
    return owner


def _refuse_living(owner: Owner, take_over: bool) -> None:
    if owner.path.with_suffix(_OVER).exists():
        return
    held = _record(owner.path)
    who = f"process {held.get('process', '?')} on '{held.get('host', 'another machine')}'"
    if held.get("machine") == _machine():
        if not _runs(held):
            return
        raise BusyError(f"{who} works on '{owner.folder}'", remedy="wait until it ends, or end it")
    silent = _silence(owner.path)
    if silent < MAX_SILENCE_SECONDS:
        raise BusyError(
            f"{who} works on '{owner.folder}'; it last reported {silent:.0f} s ago",
            remedy=f"wait until it ends, or end it and try again after {MAX_SILENCE_SECONDS:.0f} s",
        )
    if not take_over:
        raise BusyError(
            f"{who} works on '{owner.folder}', or has died: it has not reported for {silent:.0f} s",
            needed="confirmation that it has ended",
            remedy="make sure that it has ended, then add --take-over",
        )


def _record(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        held = json.loads(path.read_text(encoding="utf-8"))
        return held if isinstance(held, dict) else {}
    return {}


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "process": os.getpid(),
        "begun": _begun(os.getpid()),
    }


def _machine() -> str:
    """Return an identifier of this machine since its start, shared by all processes that see each other."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with suppress(OSError):
        return f"{boot.read_text(encoding='ascii').strip()} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _runs(held: dict[str, Any]) -> bool:
    """Return True if a recorded process of this machine still runs."""
    try:
        os.kill(int(held["process"]), 0)
    except ProcessLookupError:
        return False
    except (OSError, KeyError, TypeError, ValueError):
        return True
    return _begun(int(held["process"])) == held.get("begun")


def _begun(process: int) -> str:
    """Return the start time of a process, 'ended' for a dead process, or an empty text if unknown."""
    with suppress(OSError, IndexError):
        told = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return told[19] if told[0] not in "ZX" else "ended"
    return ""


def _silence(path: Path) -> float:
    """Return the seconds since the owner's last report, measured by the file server's clock alone."""
    with tempfile.TemporaryFile(dir=path.parent) as now:
        return max(0.0, os.fstat(now.fileno()).st_mtime - path.stat().st_mtime)
