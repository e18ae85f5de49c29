"""A folder of parts, each committed whole and exactly once, whichever process writes it and however often."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from trueup.errors import BundleError, ResourceError
from trueup.files.staging import to_disk

_RECORD = ".part"


@dataclass(frozen=True)
class Part:
    """A committed part.

    Attributes
    ----------
    name
        Under which it was committed.
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
    """Named files, each committed at most once, on a file system that all workers share.

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
        What every part states that it was made from.
    follows
        Whether parts follow from others: one whose file was lost is made again.

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
        """Let `write` fill a file and commit it under a name; return what is now committed under it.

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
        """Return what is committed under a name, unread; None if there is nothing.

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
        """Return what is committed under a name, unread; raise BundleError if there is nothing."""
        if held := self.find(name):
            return held
        raise BundleError(f"part '{name}' of the run is missing", remedy="continue the run with --resume")

    def path(self, name: str) -> Path:
        """Return the file that is committed under a name, after its digest was checked.

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
        """Remove what is committed under a name, for parts that follow from others."""
        if self._follows and (held := self.find(name)):
            (self.folder / f"{name}{_RECORD}").unlink()
            (self.folder / held.file).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """Return the names under which something is committed."""
        return {p.name.removesuffix(_RECORD) for p in self.folder.glob(f"*{_RECORD}")}

    def _stage(self, name: str, write: Callable[[Path], object], suffix: str) -> Part:
        """Write a file to disk that no record names yet."""
        with self._unseen(suffix) as hidden:
            write(hidden)
            to_disk(hidden)
            digest = self._digest(hidden)
            file = f"{name}.{digest[:16]}{suffix}"
            part = Part(name, file, digest, hidden.stat().st_size, self._seal)
            hidden.replace(self.folder / part.file)
        return part

    def _link(self, part: Part) -> bool:
        """Link the record; return False if another writer was first."""
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
        """Remove, unread, every file that no record names: leftovers of slower or dead writers."""
        committed = {part.file for name in self.names() if (part := self.find(name))}
        for path in self.folder.iterdir():
            if path.suffix != _RECORD and path.name not in committed:
                path.unlink(missing_ok=True)

    def _damaged(self, name: str, how: str = "is truncated or altered") -> BundleError:
        if self._follows:
            return BundleError(
                f"part '{name}' in '{self.folder}' {how}",
                remedy=f"remove '{self.folder / name}.*', then continue with --resume: it is made again",
            )
        return BundleError(
            f"part '{name}' in '{self.folder}' {how}",
            needed="the file that was committed",
            remedy="restore it, or start a new run: noise is not drawn twice under one run",
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
            f"cannot write part '{name}' of the run: {error.strerror or 'the disk refuses'}",
            remedy="check space and permissions, then continue with --resume",
        ) from None
