"""A project folder, with the spec in `spec.toml` and other choices in `studio.json`."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from trueup import Spec, parse_spec
from trueup.errors import BundleError, BusyError, TrueupError
from trueup.files.writing import replace_whole

_CHANGING = threading.Lock()
"""Lock between pages sent at once, one of which is older; the folder's claim keeps other processes out."""


@dataclass(frozen=True)
class Choices:
    """Choices that are not part of the spec: paths and public words, but no value of the confidential table.

    Attributes
    ----------
    revision
        Grows with every change, so that a page which is out of date can be told.
    table, places
        Paths of the confidential table and of the public list of places; no places where the table's own are public.
    left
        Columns of the table that the spec does not use.
    shapes
        Path of the outlines of places, or empty.
    wishes
        Margins of error (counts) by table; those of the other tables follow.
    sizes
        The same for the counts of one size, by the least of them and their table.
    confidence
        In per cent, of all margins.
    total
        A fixed budget, or empty for the least that meets the wishes.
    out, ledger, analyst
        Output folder of the release, and ledger and analyst whose budget is charged.
    records
        Supposed distribution of the number of records of a unit, or empty.
    pending
        TOML that was typed and cannot be read yet.
    candidates
        The spec before it was planned, which still has the tables that the plan left out.
    """

    revision: int = 0
    table: str = ""
    places: str = ""
    left: tuple[str, ...] = ()
    shapes: str = ""
    wishes: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    confidence: float = 95.0
    total: str = ""
    out: str = ""
    ledger: str = ""
    analyst: str = ""
    records: str = ""
    pending: str = ""
    candidates: str = ""


class Outdated(BusyError):
    """An error for a form that was sent from a page older than the latest change to the project."""


@dataclass(frozen=True)
class Project:
    """A project folder of the studio."""

    folder: Path

    @classmethod
    def at(cls, folder: str | Path) -> Project:
        """Open a project folder; create it, readable by its owner alone, if it does not exist.

        Raises
        ------
        BundleError
            If the disk refuses, or others may write into the folder.
        """
        path = Path(folder).absolute()
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            held = path.stat()
        except OSError as error:
            raise BundleError(
                f"cannot make the folder '{path}': {error.strerror}", remedy="choose another --folder"
            ) from None
        if held.st_uid != os.getuid() or held.st_mode & 0o022:
            raise BundleError(
                f"others may write into the folder '{path}'",
                needed="a folder that only you can write to",
                remedy=f"chmod 700 '{path}', or choose another --folder",
            )
        return cls(path)

    @property
    def choices(self) -> Choices:
        """Return the choices stored in the folder."""
        try:
            held = json.loads((self.folder / "studio.json").read_text(encoding="utf-8"))
            known = {f.name for f in fields(Choices)}
            given = {name: value for name, value in held.items() if name in known}
            return Choices(**{**given, "left": tuple(given.get("left", ()))})
        except FileNotFoundError:
            return Choices()
        except (OSError, ValueError, TypeError, AttributeError):
            raise BundleError(
                f"'{self.folder / 'studio.json'}' cannot be read",
                remedy="remove the file; the spec in the same folder is kept, but paths and choices must be entered again",
            ) from None

    @property
    def text(self) -> str:
        """Return the TOML of the spec; empty before there is one."""
        try:
            return (self.folder / "spec.toml").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    @property
    def spec(self) -> Spec | None:
        """Return the spec; None before there is one."""
        return parse_spec(self.text) if self.text else None

    def change(self, revision: int | None, *, text: str | None = None, **choices: Any) -> Choices:
        """Store a changed spec and other choices.

        Parameters
        ----------
        revision
            That of the page which was sent; None for a change that overtakes nothing.

        Raises
        ------
        Outdated
            If another page was sent meanwhile; what was typed is not lost, since nothing is written.
        """
        with _CHANGING:
            now = self.choices
            if revision is not None and revision != now.revision:
                raise Outdated(
                    "this page is out of date: a choice was changed on another page; nothing was changed here",
                    remedy="go back, copy what you typed, and load the page again",
                )
            if text is not None:
                replace_whole(self.folder / "spec.toml", text, private=True)
            new = replace(now, **choices, revision=now.revision + 1)
            held = json.dumps(asdict(new), indent=1, ensure_ascii=False)
            replace_whole(self.folder / "studio.json", held, private=True)
            return new

    def set_text(self, revision: int | None, text: str) -> None:
        """Store a spec as the user wrote it; if it has faults, keep the text for correction and report them."""
        clean = text.replace("\r\n", "\n")
        try:
            parse_spec(clean)
        except TrueupError:
            self.change(revision, pending=clean)
            raise
        self.change(revision, text=clean, pending="", candidates="")
