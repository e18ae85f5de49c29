"""What a command does, as it does it: on a terminal, in a log off it, in a file."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from trueup.files.staging import writing
from trueup.kernel.announce import telling_of_compilation
from trueup.version import __version__

Watch = Callable[[str, int, int], None]
"""Hears what is being done, how many parts of it are done, and how many there are."""


COMPILING = "compiling numerical kernels, once: what is compiled is kept"


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the running stage: with a clock on a terminal, a dated line for each elsewhere; yield the function that names it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda stage: None
    elif not console.is_terminal:
        with telling_of_compilation(lambda: say_dated(COMPILING)):
            yield say_dated
    else:
        with (
            Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            ) as shown,
            telling_of_compilation(lambda: console.print(COMPILING)),
        ):
            row = shown.add_task("starting")
            yield lambda stage: shown.update(row, description=stage)


@contextmanager
def progress_by_level(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show how many parts of every stage are done and how long the rest may take; off a terminal, a dated line now and then."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda what, done, of: None
        return
    if not console.is_terminal:
        with telling_of_compilation(lambda: say_dated(COMPILING)):
            yield LogLines().watch
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns, console=console) as shown,
        telling_of_compilation(lambda: console.print(COMPILING)),
    ):
        rows: dict[str, Any] = {}

        def watch(what: str, done: int, of: int) -> None:
            if what not in rows:
                rows[what] = shown.add_task(what, total=of)
            shown.update(rows[what], completed=done)

        yield watch


@contextmanager
def writing_log(path: Path | None, watch: Watch) -> Iterator[Watch]:
    """Add what is done to a file as well, a line of JSON each, and how the attempt ends; its owner alone may read it.

    Raises
    ------
    BundleError
        If the file cannot be written.
    """
    if path is None:
        yield watch
        return
    with writing(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "w", buffering=1) as file:

        def line(**fields: Any) -> None:
            file.write(json.dumps({"time": datetime.now().astimezone().isoformat(), **fields}) + "\n")

        def both(what: str, done: int, of: int) -> None:
            line(stage=what, done=done, of=of)
            watch(what, done, of)

        line(attempt="begun", trueup=__version__, process=os.getpid(), host=socket.gethostname())
        try:
            yield both
        except BaseException as error:
            line(attempt="ended", by=type(error).__name__)
            raise
        line(attempt="done")


class LogLines:
    """Dated lines of a run's stages, for a log: the first and the last part of each, and between them one in `PERIOD` seconds."""

    PERIOD = 30.0

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._said = 0.0

    def watch(self, what: str, done: int, of: int) -> None:
        """Say that parts of a stage are done, if it is time."""
        now = time.monotonic()
        begun = self._begun.setdefault(what, now)
        if done < of and now - self._said < self.PERIOD:
            return
        self._said = now
        left = f", about {(now - begun) / done * (of - done):.0f} s left" if 0 < done < of else ""
        say_dated(f"{what}: {done:,} of {of:,}{left}")


def say_dated(text: str) -> None:
    """Write a line with the time before it on standard error."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}", file=sys.stderr)
