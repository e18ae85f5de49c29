"""What a run has drawn: each committed draw leaves a witness, and all of them together a seal, so that none is drawn twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trueup.errors import BundleError
from trueup.files.staging import replace_whole, to_disk
from trueup.io.bundle.manifest import seal_of
from trueup.run.parts import Part, Parts


@dataclass(frozen=True)
class Draws:
    """The draws of a run.

    A part's draw is committed by the link of its record. The witness is a file of the same name elsewhere in the run
    folder, written right after; where it stands and the record does not, the draw was lost, and is not made again. Once
    every part is drawn the seal holds all their digests: from then on nothing is drawn.

    Attributes
    ----------
    path
        The run folder.
    measured
        The committed draws.
    names
        Of all parts, in order.
    """

    path: Path
    measured: Parts
    names: tuple[str, ...]

    @property
    def witnesses(self) -> Path:
        """The folder of witnesses; it stands from the moment that drawing begins."""
        return self.path / "drawn"

    @property
    def _file(self) -> Path:
        return self.path / "seal.json"

    def begin(self) -> None:
        """Record that drawing begins."""
        self.witnesses.mkdir(mode=0o700, exist_ok=True)
        to_disk(self.path)

    @property
    def begun(self) -> bool:
        """Whether noise may have been drawn."""
        return self.witnesses.exists() or self._file.exists()

    @property
    def is_sealed(self) -> bool:
        """Whether every part is drawn."""
        return self._file.exists()

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be drawn; BundleError if something was drawn and is lost."""
        return self.is_sealed or (self.begun and all(self.find(name) for name in self.names))

    def find(self, name: str) -> Part | None:
        """Return what was drawn for a part, and bear witness to it; None if nothing was ever committed.

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
            self.begin()
            replace_whole(witness, held.digest)
        return held

    def seal(self) -> str:
        """Seal what was drawn, once all of it is; later compare. What was not committed is destroyed unread.

        Raises
        ------
        BundleError
            If a part is missing, or is not the one that was drawn.
        """
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
        """The digest of every part, once they are sealed.

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
            f"the seal '{self._file}' on the measurements of the run is truncated or altered",
            needed="the file as the run wrote it",
            remedy="restore it, or remove the run and begin one that is charged anew",
        )

    def _lost(self, name: str) -> BundleError:
        return BundleError(
            f"the measurements of part '{name}' in '{self.measured.folder}' are missing or not those that were drawn",
            needed="the files that were committed; a second draw would be published under the charge of the first",
            remedy="restore them, or remove the run and begin one that is charged anew",
        )
