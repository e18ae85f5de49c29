"""What an item is: a published table or figure that can be run again, and what came of it."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from papers.curves import Plot
from papers.row import Row
from trueup.errors import SpecError, TrueupError
from trueup.reporting.drawing import Block

Status = Literal["agrees", "differs", "shown only", "cannot match", "needs data", "needs package", "error"]

QUICK = 50
FEWEST = 200


@dataclass(frozen=True)
class Setting:
    """How items are run.

    Attributes
    ----------
    seed
        Of all simulations; every item draws from its own stream.
    quick
        Run a fiftieth of the replicates, at least 200; tolerances follow.
    data_dir
        The folder with census counts; None if there is none.
    """

    seed: int = 0
    quick: bool = False
    data_dir: Path | None = None

    def rng(self, item: Item) -> np.random.Generator:
        """Generator of an item: the same whatever else runs."""
        return np.random.default_rng([self.seed, zlib.crc32(item.name.encode())])

    def runs(self, number: int) -> int:
        """Number of replicates to run where a full run takes `number`."""
        return min(number, max(FEWEST, number // QUICK)) if self.quick else number

    def file(self, name: str) -> Path:
        """Path of a data file; items say in `files` which they need, so it is there."""
        if self.data_dir is None:
            raise SpecError(f"no folder with '{name}' is given", remedy="declare it in the item's `files`")
        return self.data_dir / name


@dataclass(frozen=True)
class Found:
    """What an item found.

    Attributes
    ----------
    rows
        Printed figures beside ours.
    pictures
        Blocks of the report that belong below the table: figures, charts, tables, texts.
    notes
        Sentences that hold for the whole item.
    """

    rows: tuple[Row, ...]
    pictures: tuple[Block | Plot, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict that a reader must know first."""
        verdicts = {row.verdict for row in self.rows}
        order: tuple[Status, ...] = ("differs", "cannot match", "agrees", "shown only")
        return next(status for status in order if status in verdicts)


class Item:
    """Base of the items; a class of its own file and a line in `ITEMS` make one.

    Attributes
    ----------
    name
        Name on the command line: the paper's short name, then the table: `zhu-figure-5`.
    paper
        Authors and year.
    place
        Table, figure or section of the paper.
    shows
        One sentence: what is computed, from what, with what setting.
    files
        Data files that it needs; without them it is skipped by name.
    packages
        Importable packages beyond the core that it needs (`flint`); likewise.
    seconds
        About how long a full run takes on one core: long ones start first.
    catches
        Its power: the wrong versions of the package that a full run tells from the right one, each as small as it is told
        for certain. Every one of them is a case of `tests/papers/mutations.py`.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    place: ClassVar[str]
    shows: ClassVar[str]
    files: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    seconds: ClassVar[float] = 1.0
    catches: ClassVar[tuple[str, ...]]

    def run(self, setting: Setting) -> Found:
        """Compute the figures; draw from `setting.rng(self)` and replicate `setting.runs(...)` times."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """An item with what came of it and its seconds of processor time; `needs` says what was missing or malformed."""

    name: str
    paper: str
    place: str
    shows: str
    status: Status
    found: Found
    seconds: float
    needs: str = ""
    catches: tuple[str, ...] = ()


def outcome(item: Item, setting: Setting) -> Outcome:
    """Run one item, or say what it needs, or what was wrong with what it was given."""
    start = time.process_time()
    status, needs, found = _run(item, setting)
    seconds = round(time.process_time() - start, 2)
    return Outcome(item.name, item.paper, item.place, item.shows, status, found, seconds, needs, item.catches)


def _run(item: Item, setting: Setting) -> tuple[Status, str, Found]:
    if lacks := missing(item, setting):
        return *lacks, Found(())
    try:
        found = item.run(setting)
        return found.status, "", found
    except TrueupError as error:  # the other items still run
        return "error", str(error), Found(())


def missing(item: Item, setting: Setting) -> tuple[Status, str] | None:
    """Say which packages or data files an item lacks; None if it can run."""
    if absent := [package for package in item.packages if find_spec(package) is None]:
        return "needs package", f"{', '.join(absent)} is not installed"
    folder = setting.data_dir
    if absent := [name for name in item.files if folder is None or not (folder / name).is_file()]:
        return "needs data", f"{', '.join(absent)} in --data-dir (or in the folder TRUEUP_TEST_DATA)"
    return None
