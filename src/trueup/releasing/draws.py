"""Lasting records of a run's draws, which ensure that no noise is drawn twice."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trueup.errors import BundleError
from trueup.files.writing import replace_whole, to_disk
from trueup.io.bundle.manifest import seal_of
from trueup.run.parts import Part, Parts


@dataclass(frozen=True)
class Draws:
    """The draws of a run, recorded in three ways: a witness file for each draw, a journal, and a seal on all.

    A part's draw is committed by the link of its record. The witness is a file of the same name elsewhere in the run
    folder, written right after by who drew it; the journal is one file, to which the driver adds a line when it is told of a
    draw, or finds it. Where a witness or a line stands and the record does not, the draw was lost, and is not made again.
    Once every part is drawn the seal holds all their digests: from then on nothing is drawn.

    Nothing within the folder can tell a worker that was killed before it committed from one whose draw was taken away with
    all its traces before the driver was told of it. So that, and a folder taken back whole to a moment from before, is left to
    the ledger, which knows that drawing began and what was sealed.

    Attributes
    ----------
    path
        The run folder.
    measured
        The committed draws.
    names
        Names of all parts, in order.
    """

    path: Path
    measured: Parts
    names: tuple[str, ...]

    @property
    def witnesses(self) -> Path:
        """Return the folder of witness files, which exists once drawing has begun."""
        return self.path / "drawn"

    @property
    def _file(self) -> Path:
        return self.path / "seal.json"

    @property
    def _journal(self) -> Path:
        return self.path / "journal"

    def begin(self) -> None:
        """Record that drawing begins or continues, and add missing draws to the journal.

        Raises
        ------
        BundleError
            If something was drawn and is lost.
        """
        if not self.begun:
            replace_whole(self._journal, "")
        self._refuse_lost()
        self._make_witnesses()
        for name in () if self.is_sealed else self.names:
            if self.find(name):
                self.note(name)

    def _make_witnesses(self) -> None:
        self.witnesses.mkdir(mode=0o700, exist_ok=True)
        to_disk(self.path)

    def note(self, name: str) -> None:
        """Add a committed draw to the journal."""
        if name in self._noted:
            return
        self._noted[name] = _line(self._noted, name, self.measured.part(name).digest)
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(f"{self._noted[name]}\n")
        to_disk(self._journal)

    @cached_property
    def _noted(self) -> dict[str, str]:
        """Return the line of the journal for every draw."""
        noted: dict[str, str] = {}
        try:
            text = self._journal.read_text(encoding="utf-8")
            whole, end, rest = text.rpartition("\n")
            for line in whole.split("\n") if end else ():
                name, digest, _ = line.split()
                if line != _line(noted, name, digest):
                    raise ValueError("a line does not have its digest")
                noted[name] = line
            if rest:
                replace_whole(self._journal, whole + end)
        except (OSError, ValueError):
            raise BundleError(
                f"the journal '{self._journal}' of the noise that was drawn is missing or altered",
                needed="the file as the run wrote it, because it shows which noise must not be drawn again",
                remedy="restore the file, or remove the run and begin a new one with its own charge",
            ) from None
        return noted

    def _refuse_lost(self) -> None:
        """Refuse a run in which the file of a committed draw is missing."""
        for name, line in () if self.is_sealed else self._noted.items():
            held = self.find(name)
            if held is None or held.digest != line.split()[1]:
                raise self._lost(name)

    @property
    def begun(self) -> bool:
        """Return True if noise may have been drawn."""
        return self._journal.exists() or self.witnesses.exists() or self._file.exists()

    @property
    def is_sealed(self) -> bool:
        """Return True if the seal exists: every part is drawn, and no more noise is drawn."""
        return self._file.exists()

    @property
    def complete(self) -> bool:
        """Return True if every part is drawn; raise BundleError if a draw is lost."""
        if self.begun:
            self._refuse_lost()
        return self.is_sealed or (self.begun and all(self.find(name) for name in self.names))

    def find(self, name: str) -> Part | None:
        """Return the draw of a part and write its witness file; return None if no draw was ever committed.

        Raises
        ------
        BundleError
            If what was committed is missing or is not what is there.
        """
        held, witness = self.measured.find(name), self.witnesses / name
        if self.is_sealed and name not in self.parts:
            raise self._lost(name)
        drawn = witness.read_text() if witness.exists() else self.parts[name] if self.is_sealed else None
        if drawn is not None and (held is None or held.digest != drawn):
            raise self._lost(name)
        if held is not None and not witness.exists():
            self._make_witnesses()
            replace_whole(witness, held.digest)
        return held

    def seal(self) -> str:
        """Write the digests of all draws to a file, the seal, or compare the draws with the existing seal.

        Draws that were not committed are deleted, without being read, before the seal is written.

        Raises
        ------
        BundleError
            If a part is missing, or is not the one that was drawn.
        """
        self._refuse_lost()
        held = {name: self.find(name) for name in self.names}
        if not self.is_sealed:
            parts = {name: part.digest for name, part in held.items() if part}
            if lost := set(self.names) - set(parts):
                raise self._lost(min(lost))
            self.measured.destroy_uncommitted()
            text = json.dumps({"seal": seal_of(parts), "parts": parts}, indent=1)
            replace_whole(self._file, text)
        return seal_of(self.parts)

    @property
    def parts(self) -> dict[str, str]:
        """Return the digest of every part's draw, once the seal is written.

        Raises
        ------
        BundleError
            If the seal is damaged.
        """
        try:
            held = json.loads(self._file.read_text(encoding="utf-8"))
            if held["seal"] == seal_of(held["parts"]) and tuple(held["parts"]) == self.names:
                return held["parts"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        raise BundleError(
            f"the record of the run's measurements in '{self._file}' is truncated or altered",
            needed="the file as the run wrote it",
            remedy="restore the file, or remove the run and begin a new one with its own charge",
        )

    def _lost(self, name: str) -> BundleError:
        return BundleError(
            f"the measurements of part '{name}' in '{self.measured.folder}' are missing or not those that were drawn",
            needed="the files that the run wrote; the budget does not cover a second draw",
            remedy="restore them, or remove the run and begin a new one with its own charge",
        )


def _line(noted: dict[str, str], name: str, digest: str) -> str:
    """Return the next line of the journal: name, digest, and a digest that also covers the line before."""
    before = next(reversed(noted.values()), "")
    whole = hashlib.sha256(f"{before} {name} {digest}".encode()).hexdigest()
    return f"{name} {digest} {whole[:16]}"
