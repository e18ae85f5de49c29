"""Checks of output paths before anything is written, and locks that keep other processes away."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trueup.errors import BundleError, BusyError, ResourceError


def refuse_occupied(target: Path) -> None:
    """Refuse an output path that is a link, a file or a folder with content."""
    if target.is_symlink():
        raise BundleError(
            f"'{target}' is a symbolic link",
            needed="a new or empty folder",
            remedy="give the folder that the link points to",
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BundleError(
            f"'{target}' is {'not empty' if target.is_dir() else 'a file'}",
            needed="a new or empty folder",
            remedy="choose another --out",
        )
    _refuse_orphan(target)


def refuse_file(file: Path, option: str = "--out") -> None:
    """Refuse an output file that already exists, or whose folder does not exist."""
    if file.exists() or file.is_symlink():
        raise BundleError(f"'{file}' exists already", remedy=f"choose another {option}")
    if not file.absolute().parent.is_dir():
        raise BundleError(f"the folder of '{file}' does not exist", remedy="create it first")
    _refuse_locked(file)


_STORE = re.compile(r"(s3[an]?|gs|r2|oss|abfss?|wasbs?|adl|dbfs|hdfs|https?):/")
"""Begins an address of an object store, or of a file system without hard links, as a path."""


def _refuse_orphan(target: Path) -> None:
    if _STORE.match(str(target)):
        raise BundleError(
            f"'{target}' is in an object store, where a run cannot keep its working folder",
            needed="a folder on a file system that all machines of the run share, such as NFS, Lustre, GPFS, CephFS, EFS or "
            "FSx; a run needs hard links to draw noise only once",
            remedy="give such a folder as --out, and copy the published files to the store afterwards",
        )
    if not target.absolute().parent.is_dir():
        raise BundleError(f"the parent folder of '{target}' does not exist", remedy="create it first")
    _refuse_locked(target)


def _refuse_locked(target: Path) -> None:
    effective = os.access in os.supports_effective_ids
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK, effective_ids=effective):
        raise ResourceError(
            f"cannot create a folder beside '{target}': Permission denied",
            remedy="get permission to write in that folder, or choose another one",
        )


@contextmanager
def claimed(target: Path) -> Iterator[None]:
    """Keep other runs away from an output path until the end of the block or of this process.

    A run claims its target before it is charged, so that of several runs to one target one is charged. The claim is a
    lock on a hidden file beside the target; nothing but the lock says who is alive.

    Raises
    ------
    BundleError
        If another run claims it, its parent does not exist, or the disk refuses.

    Examples
    --------
    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp()) / "bundle"
    >>> with claimed(out), claimed(out):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
    trueup.errors.BusyError: another run writes to ...
    """
    _refuse_orphan(target)
    path = _claim_of(target)
    try:
        handle = _locked(path, time.monotonic() + MAX_CLAIM_SECONDS)
    except OSError as error:
        raise ResourceError(
            f"cannot create a folder beside '{target}': {error.strerror}",
            remedy="free space on that disk, or choose a folder in which you may write",
        ) from None
    if handle is None:
        raise BusyError(
            f"another run writes to '{target}'; nothing was drawn or charged",
            remedy="wait for it, or choose another --out",
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: whoever opened it meanwhile sees that it is gone
        os.close(handle)


def is_claimed(target: Path) -> bool:
    """Return True if another running process has claimed an output path."""
    try:
        handle = os.open(_claim_of(target), os.O_RDWR)
    except FileNotFoundError:
        return not target.absolute().parent.is_dir()  # a folder that cannot be seen from here says nothing
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


MAX_CLAIM_SECONDS = 1.0
"""Seconds for which a claim is tried: whoever looks whether a run is alive holds its lock for an instant."""


_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def lock_if_possible(handle: int) -> None:
    """Lock an open file, or raise BlockingIOError. On a file system without locks, do nothing."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _claim_of(target: Path) -> Path:
    return target.absolute().with_name(f".{target.absolute().name}.claim")


def _locked(path: Path, until: float) -> int | None:
    """Return a handle of the file that locks a path, or None if another process holds the lock."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_if_possible(handle)
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if time.monotonic() > until:
            return None
        time.sleep(0.01)


def is_own(folder: Path) -> bool:
    """Return True if a path is a folder of this process's user and not a link.

    Examples
    --------
    >>> import tempfile
    >>> is_own(Path(tempfile.mkdtemp())), is_own(Path("/proc/self/cwd"))
    (True, False)
    """
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def refuse_strange(folder: Path) -> None:
    """Refuse a folder that is a link or belongs to another user, whose content must not be trusted."""
    if not is_own(folder):
        raise BundleError(
            f"'{folder}' {'is a symbolic link' if folder.is_symlink() else 'belongs to another user'}",
            needed="a folder that this user created",
            remedy="work as the user who created it, or choose another one",
        )


def remove_unheld(folder: Path) -> None:
    """Remove a folder of this user, unless another process has locked it or locks are not supported."""
    with suppress(OSError), holding(folder):
        if is_own(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _lock_or_raise(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def holding(folder: Path, lock: Callable[[int], None] = _lock_or_raise) -> Iterator[None]:
    """Keep a folder locked, even after a rename, until the end of the block or of the process.

    Raises
    ------
    BlockingIOError
        If another process holds it.
    FileNotFoundError
        If it is gone.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with holding(folder), holding(folder):
    ...     pass
    Traceback (most recent call last):
    BlockingIOError: [Errno 11] Resource temporarily unavailable
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lock(handle)
        folder.stat()
        yield
    finally:
        os.close(handle)
