"""Writers of Parquet and CSV files, and of files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.errors import BundleError, ResourceError
from trueup.files.database import connect, parquet, writing_by_duckdb
from trueup.files.target import holding, lock_if_possible, refuse_occupied, remove_unheld


@contextmanager
def staged(target: Path, *, mode: int = 0o755) -> Iterator[Path]:
    """Yield a staging folder that is published if the block succeeds, and removed if it fails.

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
    """Yield a new, locked staging folder beside the output path, on the same file system."""
    try:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.staging-", dir=target.absolute().parent))
            with suppress(BlockingIOError, FileNotFoundError):  # swept before it was held
                stack.enter_context(holding(folder, lock_if_possible))
                return folder
    except OSError as error:
        raise ResourceError(
            f"cannot create a folder beside '{target}': {error.strerror}",
            remedy="free space on that disk, or choose a folder in which you may write",
        ) from None


def sweep(target: Path) -> None:
    """Remove the staging folders that killed processes have left beside an output path."""
    for folder in target.absolute().parent.glob(f".{escape(target.name)}.staging-*"):
        remove_unheld(folder)


_NO_SUCH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
"""Error numbers of a wrong path, whatever space and permissions there are."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk error into a ResourceError, and an impossible path into a BundleError."""
    try:
        yield
    except OSError as error:
        raise (BundleError if error.errno in _NO_SUCH else ResourceError)(
            f"cannot write '{path}': {error.strerror or 'the disk refuses'}",
            remedy="check space and permissions",
        ) from None


def sync(folder: Path) -> None:
    """Force every file and folder below a path to the disk."""
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
    """Rename the staging folder to its final name in one step, or raise an error if that name is taken.

    Its mode is changed afterwards, by the handle under which it was found to be this user's own.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise BundleError(
                f"'{folder}' belongs to another user", remedy="let that user publish the release"
            )
        try:
            folder.rename(target)
        except OSError:
            raise BundleError(
                f"another run has written to '{target}' in the meantime", remedy="choose another --out"
            ) from None
        os.fchmod(handle, mode)
    finally:
        os.close(handle)
    to_disk(target.absolute().parent)


def write_whole(path: Path, held: str | bytes, *, private: bool = False) -> None:
    """Write a new file that appears whole or not at all; if private, only the owner can read it.

    Examples
    --------
    >>> page = Path(tempfile.mkdtemp()) / "page.html"
    >>> write_whole(page, "whole")
    >>> page.read_text()
    'whole'
    """
    if path.exists():
        raise BundleError(f"'{path}' exists already", remedy="choose another --out")
    replace_whole(path, held, private=private)


def replace_whole(path: Path, held: str | bytes, *, private: bool = False) -> None:
    """Write or replace a file so that it appears whole or not at all."""
    with replacing(path, private=private) as part:
        part.write_bytes(held.encode() if isinstance(held, str) else held)


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary file that replaces the file at a path in one step at the end of a `with` block."""
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


def write_parquet(
    path: Path,
    columns: Mapping[str, NDArray],
    connection: Any = None,
    *,
    select: str = "*",
    together: int = 122_880,
) -> None:
    """Write equally long columns to one Parquet file.

    Parameters
    ----------
    path, columns
        The file and what it holds.
    connection
        The DuckDB connection that writes, which it must be allowed to, where several files are written; by default a
        fresh one.
    select
        SQL that selects what is written from the columns.
    together
        Rows of a group, which share their lists of texts; by default DuckDB's own number.

    Raises
    ------
    ResourceError
        If the disk refuses.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from trueup.files.source import open_table
    >>> path = Path(tempfile.mkdtemp()) / "counts.parquet"
    >>> write_parquet(path, {"area": np.array(["01", "02"]), "count": np.array([3, 4])})
    >>> open_table(path).select(["area"])["area"].tolist()
    ['01', '02']
    """
    with connection.cursor() if connection else connect(folders=[path.parent]) as writer:
        _write(path, columns, writer, "write_parquet", select, compression="zstd", row_group_size=together)


def write_csv(
    path: Path, columns: Mapping[str, NDArray], connection: Any = None, *, select: str = "*"
) -> None:
    """Write equally long columns to one CSV file with a header row."""
    with connection.cursor() if connection else connect(folders=[path.parent]) as writer:
        _write(path, columns, writer, "write_csv", select, header=True)


MAX_DICTIONARY_TEXTS = 1 << 17
"""Different texts up to which every group of a file's rows may hold a list of all."""


def hold_keys(connection: Any, keys: Mapping[str, NDArray]) -> dict[str, str]:
    """Register key columns in DuckDB for repeated use. Return the SQL of each column as a list.

    Few texts are numbers to it, which it neither compares nor compresses as texts.

    Parameters
    ----------
    connection
        The connection that writes.
    keys
        Equally long columns of texts.

    Examples
    --------
    >>> import numpy as np
    >>> with connect() as connection:
    ...     held = hold_keys(connection, {"area": np.array(["01", "02"], object)})
    ...     connection.sql(f"SELECT {held['area']}[place] FROM (VALUES (2), (1), (2)) v(place)").fetchall()
    [('02',), ('01',), ('02',)]
    """
    lists = {}
    for k, (name, column) in enumerate(keys.items()):
        connection.register("key", {"text": _held_as_objects(column), "row": np.arange(len(column))})
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE texts AS SELECT DISTINCT text FROM key WHERE text IS NOT NULL"
        )
        few = 0 < connection.execute("SELECT count(*) FROM texts").fetchall()[0][0] <= MAX_DICTIONARY_TEXTS
        if few:
            connection.execute(f"CREATE TYPE text_{k} AS ENUM (SELECT text FROM texts ORDER BY text)")
        kind = f"text_{k}" if few else "VARCHAR"
        connection.execute(
            f"CREATE TABLE key_{k} AS SELECT list(text::{kind} ORDER BY row) AS every FROM key"
        )
        lists[name] = f"(SELECT every FROM key_{k})"
    return lists


def _write(
    path: Path, columns: Mapping[str, NDArray], connection: Any, method: str, select: str, **options: Any
) -> None:
    with _handed_over(connection, columns, path.parent) as held, writing_by_duckdb(path):
        getattr(connection.sql(f"SELECT {select} FROM {held}"), method)(str(path), **options)


CHUNK, HELD = 25_000, 500_000
"""Rows of text that are held as objects at once, and that DuckDB holds; of more, each chunk is a file first."""


@contextmanager
def _handed_over(connection: Any, columns: Mapping[str, NDArray], folder: Path) -> Iterator[str]:
    """Register columns in DuckDB, and yield the SQL that selects them."""
    rows = max((len(column) for column in columns.values()), default=0)
    if rows <= CHUNK or all(column.dtype.kind != "U" for column in columns.values()):
        connection.register("given", {name: _held_as_objects(column[:]) for name, column in columns.items()})
        yield "given"
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rows-") as made:
        files = []
        for start in range(0, rows, CHUNK):
            part = slice(start, start + CHUNK)
            connection.register("chunk", {k: _held_as_objects(column[part]) for k, column in columns.items()})
            into = "INSERT INTO given" if start else "CREATE OR REPLACE TEMP TABLE given AS"
            connection.execute(f"{into} FROM chunk")
            if rows > HELD:
                files.append(Path(made) / f"{len(files):06d}.parquet")
                connection.table("given").write_parquet(str(files[-1]))
                connection.execute("TRUNCATE given")
        connection.unregister("chunk")
        yield parquet(files) if files else "given"


def _held_as_objects(column: NDArray) -> NDArray:
    """Return a column of text as Python objects, which DuckDB reads faster than text of fixed width."""
    if not column.size and column.dtype == object:
        return column.astype(str)  # objects show DuckDB their type by their values
    return column.astype(object) if column.dtype.kind == "U" and column.size else column
