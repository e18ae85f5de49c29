"""Write a folder whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path

from trueup.errors import BundleError, ResourceError
from trueup.files.target import holding, lock_if_possible, refuse_occupied, remove_unheld


@contextmanager
def staged(target: Path, *, mode: int = 0o755) -> Iterator[Path]:
    """Give a staging folder beside the target; publish it if the block succeeds, else remove it.

    Until then it is the owner's alone; `mode` says who may read it afterwards. What killed runs to the
    same target have left is removed first.

    Raises
    ------
    BundleError
        If the target is occupied, or the disk refuses.

    Examples
    --------
    >>> out = Path(tempfile.mkdtemp()) / "bundle"
    >>> with staged(out) as folder:
    ...     _ = (folder / "a.txt").write_text("whole")
    >>> sorted(p.name for p in out.iterdir())
    ['a.txt']
    """
    refuse_occupied(target)
    sweep(target)
    with ExitStack() as stack:
        folder = _stage(target, stack)
        try:
            with writing(target):
                yield folder
                if folder.exists():  # a run with a ledger has moved it into place itself
                    sync(folder)
                    publish(folder, target, mode=mode)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _stage(target: Path, stack: ExitStack) -> Path:
    """Make an empty staging folder beside the target, on the same file system, and hold it."""
    try:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.staging-", dir=target.absolute().parent))
            with suppress(BlockingIOError, FileNotFoundError):  # swept before it was held
                stack.enter_context(holding(folder, lock_if_possible))
                return folder
    except OSError as error:
        raise ResourceError(
            f"cannot write beside '{target}': {error.strerror}", remedy="check permissions"
        ) from None


def sweep(target: Path) -> None:
    """Remove staging folders beside a target that nobody holds, because their processes have died."""
    for folder in target.absolute().parent.glob(f".{escape(target.name)}.staging-*"):
        remove_unheld(folder)


_NO_SUCH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
"""What is wrong with a path, whatever space and permissions there are."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk error into a ResourceError that names the path, or an impossible path into a BundleError."""
    try:
        yield
    except OSError as error:
        raise (BundleError if error.errno in _NO_SUCH else ResourceError)(
            f"cannot write '{path}': {error.strerror or 'the disk refuses'}",
            remedy="check space and permissions",
        ) from None


def sync(folder: Path) -> None:
    """Force every file and folder below to the disk."""
    for path in [*folder.rglob("*"), folder]:
        to_disk(path)


def to_disk(path: Path) -> None:
    """Force one file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(folder: Path, target: Path, *, mode: int = 0o755) -> None:
    """Rename the staging folder into place in one step, which fails if somebody was faster.

    Its mode is changed afterwards, by the handle under which it was found to be this user's own.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise BundleError(f"'{folder}' is another user's", remedy="let that user publish it")
        try:
            folder.rename(target)
        except OSError:
            raise BundleError(
                f"'{target}' was filled by another run meanwhile", remedy="choose another --out"
            ) from None
        os.fchmod(handle, mode)
    finally:
        os.close(handle)
    to_disk(target.absolute().parent)


def write_whole(path: Path, held: str | bytes, *, private: bool = False) -> None:
    """Write one new file whole or not at all; a private one is readable by its owner alone.

    Examples
    --------
    >>> page = Path(tempfile.mkdtemp()) / "page.html"
    >>> write_whole(page, "whole")
    >>> page.read_text()
    'whole'
    """
    if path.exists():
        raise BundleError(f"'{path}' exists", remedy="choose another --out")
    replace_whole(path, held, private=private)


def replace_whole(path: Path, held: str | bytes, *, private: bool = False) -> None:
    """Write one file, or replace one, whole or not at all; raise BundleError if the disk refuses."""
    with replacing(path, private=private) as part:
        part.write_bytes(held.encode() if isinstance(held, str) else held)


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Give an empty file to fill, which then replaces one whole or not at all; raise BundleError if the disk refuses."""
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        with writing(path):
            part.touch(mode=0o600 if private else 0o666)
            yield part
            to_disk(part)
            part.replace(path)
            to_disk(path.absolute().parent)
    finally:
        part.unlink(missing_ok=True)
