"""Printing of tables, JSON and sentences by commands, and of progress on a terminal, in a log or in a file."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from trueup.files.writing import writing
from trueup.kernel import telling_of_compilation
from trueup.version import __version__


def say_repeated(key: Any) -> None:
    """Print that no noise was drawn, if an earlier release under the same key exists."""
    if key:
        print(
            f"Nothing was read, drawn or charged: this is the release that was committed under the key '{key}'. Corrected data "
            "are declared (`trueup budget data`) and released under another key."
        )


def print_json(value: Any) -> None:
    """Print values as JSON, with exact fractions as text and non-finite numbers as null."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    """Return a value in which None replaces NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


LINE_CHARACTERS = 400
"""Characters of a line off a terminal, where nothing need be folded."""


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; on a narrow terminal, its lines are broken between words."""
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    title, rows = shown(title), [[shown(cell) for cell in row] for row in rows]
    # Words are never cut: an exact amount in two pieces would be read as another one.
    words = [
        max(map(len, " ".join(column).split()), default=0) for column in zip(columns, *rows, strict=True)
    ]
    whole = (Column(name, overflow="fold", min_width=word) for name, word in zip(columns, words, strict=True))
    drawn = Table(*whole, title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        drawn.add_row(*row)
    # Names are text, never markup or emoji: '[/x]' is a name like any other.
    console = Console(width=None if sys.stdout.isatty() else LINE_CHARACTERS, markup=False, emoji=False)
    console.print(drawn)


def shown(text: str) -> str:
    """Return text with escaped control characters, which could move a terminal's cursor or change its colours."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown_lines(text: str) -> str:
    """Return several lines of text with escaped control characters."""
    return "\n".join(map(shown, text.split("\n")))


Watch = Callable[[str, int, int], None]
"""Called with what is being done, how many parts of it are done, and how many there are."""


class Tell(Protocol):
    """A function that reports progress, and that may be called with the name of a stage alone."""

    def __call__(self, what: str, done: int = 0, of: int = 0) -> None: ...


COMPILING = "compiling numerical kernels, once: what is compiled is kept"


@contextmanager
def progress(*, quiet: bool) -> Iterator[Tell]:
    """Show the current stage, the share done and the time left; in a log, print dated lines instead."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda what, done=0, of=0: None
    elif console.is_terminal:
        with _bars(console) as tell, telling_of_compilation(lambda: console.print(COMPILING)):
            yield tell
    else:
        with telling_of_compilation(lambda: say_dated(COMPILING)):
            yield LogLines().watch


@contextmanager
def _bars(console: Any) -> Iterator[Tell]:
    """Show a line for a stage without parts, and a progress bar for a stage with parts."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[parts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        stage = shown.add_task("starting", total=None, parts="")
        rows: dict[str, Any] = {}

        def tell(what: str, done: int = 0, of: int = 0) -> None:
            if of <= 1:
                if not done:
                    shown.update(stage, description=what)
                return
            if what not in rows:
                rows[what] = shown.add_task(what, total=of, parts="")
            shown.update(rows[what], completed=done, parts=f"{done:,} of {of:,}")

        yield tell


@contextmanager
def writing_log(path: Path | None, watch: Watch) -> Iterator[Watch]:
    """Also write the progress and outcome of a run to a private file, one JSON object per line.

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

        left = TimeLeft()

        def both(what: str, done: int, of: int) -> None:
            seconds = left(what, done, of)
            line(
                stage=what, done=done, of=of, **({} if seconds is None else {"seconds left": round(seconds)})
            )
            watch(what, done, of)

        line(attempt="begun", trueup=__version__, process=os.getpid(), host=socket.gethostname())
        try:
            yield both
        except BaseException as error:
            line(attempt="ended", by=type(error).__name__)
            raise
        line(attempt="done")


class TimeLeft:
    """An estimate of the seconds left in a stage; None until a part is done."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, int]] = {}

    def __call__(self, what: str, done: int, of: int) -> float | None:
        """Update the estimate by the number of finished parts, of which an earlier attempt may have done some."""
        now = time.monotonic()
        begun, before = self._begun.setdefault(what, (now, done))
        return (now - begun) / (done - before) * (of - done) if before < done < of else None


class LogLines:
    """Dated lines in a log: one for each kind of stage, and at most one more per `PERIOD` seconds.

    Stages are of a kind if they differ from a number on, as in "warming up: 5 of 100 sweeps", unless one predicts another time
    for the whole command: a prediction that is corrected by half is printed.
    """

    PERIOD = 30.0

    def __init__(self) -> None:
        self._left = TimeLeft()
        self._said = 0.0
        self._kinds: set[tuple[str, bool]] = set()

    def watch(self, what: str, done: int = 0, of: int = 0) -> None:
        """Print the current stage or the number of finished parts, if enough time has passed since the last line."""
        left, now = self._left(what, done, of), time.monotonic()
        kind, whole = re.split(r"\d", what)[0] + _predicted(what), of <= 1
        due, known = now - self._said >= self.PERIOD, (kind, whole) in self._kinds
        if (done if whole else done < of and not due) or (known and not due):
            return
        self._kinds.add((kind, whole))
        self._said = now
        parts = "" if whole else f": {done:,} of {of:,}"
        say_dated(what + parts + ("" if left is None else f", about {left:.0f} s left"))


def _predicted(text: str) -> str:
    """Return the predicted time of the whole command as text, rounded to half units; empty if it is unknown."""
    found = re.search(r"about (\d+) (second|minute)s in all", text)
    seconds = int(found[1]) * (60 if found[2] == "minute" else 1) if found else 0
    return str(round(math.log(seconds, 1.5))) if seconds else ""


def say_dated(text: str) -> None:
    """Print a line on standard error, with the time in front."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {text}", file=sys.stderr)
