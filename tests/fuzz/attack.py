"""Hostile files given to the readers that take files from elsewhere, and what comes of it."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.fuzz import honest
from tests.fuzz.kinds import BUNDLES, KINDS, SAME, Call, Given
from tests.fuzz.shared import one_instance
from tests.fuzz.watch import Opened, Outside, watched
from trueup.errors import TrueupError
from trueup.files import database

SECONDS, MEMORY = 10.0, 200_000_000
"""Of a processor, and bytes above those of an honest read, that a hostile file may take."""

ALONE = 10
"""Of so many files of a kind one is read by instances of DuckDB of the readers' own, the others by one that they share."""


@dataclass
class Figures:
    """What came of some hostile files."""

    made: int = 0
    read: int = 0
    slowest: float = 0.0
    most: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.made:7} made, {self.read:6} read, {len(self.faults)} faults; at most {self.slowest:.1f} s and "
            f"{self.most / 1e6:.0f} MB"
        )


class Attack:
    """Honest files in a folder, and copies of them made hostile one after the other."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.honest, self.outside = folder / "honest", folder / "work" / "outside"
        self.work = folder / "work"
        database._ALONE["threads"] = "1"  # DuckDB's own threads cost more than all that it reads here
        self.honest.mkdir()
        self.outside.mkdir(parents=True)
        self.touched = Outside(self.outside)
        for name in ("secret", "secret.parquet"):
            (self.outside / name).write_text("mine")
        honest.write_honest(self.honest)
        self.figures = {kind: Figures() for kind in KINDS}

    @cached_property
    def opened(self) -> Opened:
        """The watch on what Python opens; begun once all modules are loaded."""
        return Opened()

    def warm(self) -> None:
        """Read every kind as it is, so that modules are imported, functions compiled and their memory is known."""
        for kind in KINDS:
            for number in range(0 if kind in SAME else len(BUNDLES) if kind == "manifest" else 6):
                with (
                    self._files(kind, number, hostile=False) as calls,
                    one_instance() if number else nullcontext(),
                ):
                    for call in calls:
                        call()

    def run(self, kind: str, number: int) -> list[str]:
        """Make one hostile file of a kind, give it to those who read it, and note what came of it; return its faults."""
        figures = self.figures[kind]
        before = len(figures.faults)
        figures.made += 1
        with self._files(kind, number) as calls:
            call = self._rng(kind, number, "reader").choice(calls)
            with one_instance() if number % ALONE else nullcontext():
                self._read(figures, f"{kind} {number}", call)
            left = sorted(p.name for p in self.work.iterdir())
            if left not in (["outside"], ["given", "outside"]) or sorted(
                p.name for p in self.outside.iterdir()
            ) != [
                "secret",
                "secret.parquet",
            ]:
                figures.faults.append(f"{kind} {number}: left {left}")
            if any((self.outside / name).read_text() != "mine" for name in ("secret", "secret.parquet")):
                figures.faults.append(f"{kind} {number}: a file outside was written")
        return figures.faults[before:]

    def _read(self, figures: Figures, name: str, call: Call) -> None:
        tempfile.tempdir = str(self.folder / "out")
        own = (self.work / "given", self.folder / "out", self.honest)
        self.opened.allowed = (*_system(), *map(str, own))
        try:
            with watched(self.touched) as seen, _stopped_after(6 * SECONDS), warnings.catch_warnings():
                warnings.simplefilter("error")
                call()
            figures.read += 1
        except TrueupError:
            pass
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            figures.faults.append(f"{name}: {_place(error)}")
        self.opened.allowed = tempfile.tempdir = None
        figures.slowest, figures.most = max(figures.slowest, seen.seconds), max(figures.most, seen.memory)
        if seen.seconds > SECONDS:
            figures.faults.append(
                f"{name}: {seen.seconds:.0f} s of a processor, {getattr(call, '__name__', call)}"
            )
        if seen.memory > MEMORY:
            figures.faults.append(f"{name}: {seen.memory / 1e6:.0f} MB, {call}")
        if seen.touched or self.opened.found:
            figures.faults.append(f"{name}: opened {[*seen.touched, *self.opened.found][:3]}")
            self.opened.found.clear()

    def _rng(self, *parts: Any) -> random.Random:
        return random.Random(repr((self.seed, *parts)))

    @contextmanager
    def _files(self, kind: str, number: int, hostile: bool = True) -> Iterator[list[Call]]:
        """A hostile copy, and the calls that read it; both are removed afterwards."""
        given, out = self.work / "given", self.folder / "out"
        shutil.rmtree(given, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        yield KINDS[kind](
            Given(self.honest, given, out, self._rng(kind, number) if hostile else None, number)
        )
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(given, ignore_errors=True)


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/trueup/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:150]}"


def _system() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = Path(__file__).parents[2]
    return (
        str(own / "src"), str(own / ".venv"), sys.prefix, sys.base_prefix, paths["stdlib"],
        "/proc/", "/sys/", "/dev/null", "/dev/urandom", "/usr/", str(Path(__file__).parent), str(Path.home() / ".cache"),
    )  # fmt: skip


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Stop what runs for longer, as soon as Python gets to it."""

    def stop(*_: Any) -> None:
        raise TimeoutError("took too long")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
