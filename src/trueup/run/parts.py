"""Folders of files that are committed whole and once only, and executors that store results in them.

A run that was killed goes on, whichever process writes a part and however often.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trueup.errors import BundleError, ResourceError
from trueup.files.writing import to_disk
from trueup.run import Executor, InTurn, Item, Result
from trueup.version import __version__

_RECORD = ".part"


@dataclass(frozen=True)
class Part:
    """A committed file of a run, with its digest.

    Attributes
    ----------
    name
        Name under which it was committed.
    file
        The file in the folder that holds it.
    digest
        SHA-256 of the file, keyed where the folder has a key.
    bytes
        Its size.
    seal
        The seal on the measurements that it was made from; none if it comes before them.
    """

    name: str
    file: str
    digest: str
    bytes: int
    seal: str = ""


class Parts:
    """Named files in a folder that several machines share, each of which is committed at most once.

    A writer fills a file that nobody else sees, forces it to the disk, gives it a name that holds its digest, and
    links a small record `NAME.part` to it. Making a link fails where the name exists already, so of any number
    of writers exactly one wins; the others throw their own files away and read the winner's. That is why a retried or
    a twin task cannot publish a second draw of noise.

    Parameters
    ----------
    folder
        Made if it is missing, readable by nobody else; its parent must be there.
    key
        If given, digests are keyed (HMAC): for confidential parts, of which an unkeyed digest would confirm a guess.
    seal
        Text that every part states: what it was made from.
    follows
        True if parts follow from others: one whose file was lost is made again.

    Examples
    --------
    >>> parts = Parts(Path(tempfile.mkdtemp()) / "parts")
    >>> first = parts.commit("a", lambda path: path.write_text("first"))
    >>> parts.commit("a", lambda path: path.write_text("second")) == first, parts.path("a").read_text()
    (True, 'first')
    """

    def __init__(self, folder: Path, key: bytes = b"", *, seal: str = "", follows: bool = False) -> None:
        self.folder, self._key, self._seal, self._follows = folder, key, seal, follows
        with _writing(folder.name):
            folder.mkdir(
                mode=0o700, exist_ok=True
            )  # a task that outlives its run must not bring its folder back

    def commit(self, name: str, write: Callable[[Path], object], suffix: str = "") -> Part:
        """Write a file by calling `write` and commit it under a name; return the file committed there.

        `write` is not called where the name is committed already.

        Raises
        ------
        BundleError
            If the disk refuses; nothing is left behind.
        """
        if held := self.find(name):
            return held
        with _writing(name):
            own = self._stage(name, write, suffix)
            if self._link(own):
                return own
        winner = self.part(name)
        if winner.file != own.file:  # equal content has an equal name
            (self.folder / own.file).unlink(missing_ok=True)
        return winner

    def find(self, name: str) -> Part | None:
        """Return the record of the file committed under a name, or None, without reading the file.

        Raises
        ------
        BundleError
            If its record is damaged, or it was made from other measurements.
        """
        record = self.folder / f"{name}{_RECORD}"
        try:
            held = Part(name, **json.loads(record.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            raise self._damaged(name) from None
        if held.seal != self._seal:
            raise self._damaged(name, "was made from other measurements")
        if self._follows and not (self.folder / held.file).exists():
            record.unlink(missing_ok=True)
            return None
        return held

    def part(self, name: str) -> Part:
        """Return the record of the file committed under a name, or raise BundleError if there is none."""
        if held := self.find(name):
            return held
        raise BundleError(f"part '{name}' of the run is missing", remedy="continue the run with --resume")

    def path(self, name: str) -> Path:
        """Return the path of the file committed under a name, after checking its digest.

        Raises
        ------
        BundleError
            If nothing is committed under it, or the file is not the one that was committed.
        """
        part = self.part(name)
        path = self.folder / part.file
        if not path.is_file() or path.stat().st_size != part.bytes or self._digest(path) != part.digest:
            raise self._damaged(name)
        return path

    def forget(self, name: str) -> None:
        """Remove the file committed under a name, if it can be computed again."""
        if self._follows and (held := self.find(name)):
            (self.folder / f"{name}{_RECORD}").unlink()
            (self.folder / held.file).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """Return the names under which files are committed."""
        return {p.name.removesuffix(_RECORD) for p in self.folder.glob(f"*{_RECORD}")}

    def _stage(self, name: str, write: Callable[[Path], object], suffix: str) -> Part:
        """Write a file without committing it, and return its record."""
        with self._unseen(suffix) as hidden:
            write(hidden)
            to_disk(hidden)
            digest = self._digest(hidden)
            file = f"{name}.{digest[:16]}{suffix}"
            part = Part(name, file, digest, hidden.stat().st_size, self._seal)
            hidden.replace(self.folder / part.file)
        return part

    def _link(self, part: Part) -> bool:
        """Link a file's record to its final name; return False if another process was first."""
        fields = asdict(part)
        name = fields.pop("name")
        with self._unseen(_RECORD) as hidden:
            hidden.write_text(json.dumps(fields))
            to_disk(hidden)
            try:
                os.link(hidden, self.folder / f"{name}{_RECORD}")
            except FileExistsError:
                return False
        to_disk(self.folder)
        return True

    @contextmanager
    def _unseen(self, suffix: str) -> Iterator[Path]:
        handle, name = tempfile.mkstemp(prefix=".", suffix=f"{suffix}.tmp", dir=self.folder)
        os.close(handle)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def destroy_uncommitted(self) -> None:
        """Delete every file that is not committed, without reading it."""
        committed = {part.file for name in self.names() if (part := self.find(name))}
        for path in self.folder.iterdir():
            if path.suffix != _RECORD and path.name not in committed:
                path.unlink(missing_ok=True)

    def _damaged(self, name: str, how: str = "is truncated or altered") -> BundleError:
        if self._follows:
            return BundleError(
                f"part '{name}' in '{self.folder}' {how}",
                remedy=f"remove '{self.folder / name}.*', then continue with --resume; the part is made again",
            )
        return BundleError(
            f"part '{name}' in '{self.folder}' {how}",
            needed="the file that was committed",
            remedy="restore the file, or start a new run; noise is never drawn twice in one run",
        )

    def _digest(self, path: Path) -> str:
        keyed = hmac.new(self._key, digestmod="sha256") if self._key else hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                keyed.update(block)
        return keyed.hexdigest()


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"cannot write part '{name}' of the run: {error.strerror or 'the system gives no reason'}",
            remedy="correct the cause, such as a full disk or a missing permission, then continue with --resume",
        ) from None


@dataclass(frozen=True)
class KeptExecutor:
    """An executor that stores the result of each task, under a digest of the task and its items.

    Whoever gives the same task the same items again is given the answers that stand there, so that a run that was killed is
    begun again, and does what is left. Items go to workers through the folder, some in a file, and a worker that needs none
    does not read them.

    Attributes
    ----------
    executor
        Carries out the tasks.
    folder
        Readable by its owner alone, on a file system that all workers share.
    together
        Items of a file.
    """

    executor: Executor
    folder: Path
    together: int = 1

    def map(self, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Carry out a task on every item; yield each item's position and result, in any order."""
        given, done = _given(self.folder), _done(self.folder)
        edges = [*range(0, len(items), self.together), len(items)]

        def name_of(k: int) -> str:
            data = pickle.dumps((__version__, task, [items[at] for at in range(*edges[k : k + 2])]))
            name = hashlib.sha256(data).hexdigest()
            if done.find(name) is None:
                given.commit(name, lambda path: path.write_bytes(data))
            return name

        for k, name in self.executor.map(CarryOut(self.folder), InTurn(name_of, len(edges) - 1)):
            answers = pickle.loads(done.path(name).read_bytes())
            given.forget(name)
            yield from zip(range(*edges[k : k + 2]), answers)


@dataclass(frozen=True)
class CarryOut:
    """A task on the items of a file, with a stored result that is not computed again."""

    folder: Path

    def __call__(self, name: str) -> str:
        done = _done(self.folder)
        if done.find(name) is None:
            _, task, items = pickle.loads(_given(self.folder).path(name).read_bytes())
            answers: Any = [task(item) for item in items]
            done.commit(name, lambda path: path.write_bytes(pickle.dumps(answers)))
        return name


def _given(folder: Path) -> Parts:
    return Parts(folder / "given", follows=True)


def _done(folder: Path) -> Parts:
    return Parts(folder / "done", follows=True)
