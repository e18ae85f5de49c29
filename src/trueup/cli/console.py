"""What every command shares: options, progress, JSON, errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trueup.errors import BudgetError, BusyError, ConvergenceError, TrueupError, place_of
from trueup.files.staging import writing
from trueup.version import __version__

if TYPE_CHECKING:
    from trueup.ledger.account import Account

Watch = Callable[[str, int, int], None]
"""Hears what is being done, how many parts of it are done, and how many there are."""

FAILURE, FAILED_CHECK, INTERRUPTED, TERMINATED = 1, 6, 130, 143

EXIT_CODES = {
    0: "done",
    FAILURE: "the system refused (a full disk, a missing permission) or an internal error; nothing is half-written",
    TrueupError.exit_code: "bad input: the message says what was given, what is needed, what to do",
    BudgetError.exit_code: "the ledger refused the privacy loss",
    BusyError.exit_code: "another process works on the same folder: try again later",
    ConvergenceError.exit_code: "stopped before the answer could be called one: other settings may do",
    FAILED_CHECK: "something that was checked does not hold",
    INTERRUPTED: "interrupted",
    TERMINATED: "ended by SIGTERM or SIGHUP; a run by parts is continued by `trueup release --resume`",
}
"""With what every command ends, and what that means."""

INPUT, OUTPUT, LEDGER, ENGINE = "What is read", "What is written", "Ledger", "Machine"
"""Groups of options in the help of commands."""

SpecPath = Annotated[Path, typer.Argument(help="The spec, a TOML file.", show_default=False)]
DataPath = Annotated[
    Path,
    typer.Option(
        "--data",
        help="The confidential table: CSV, Parquet or xlsx.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
GeographyPath = Annotated[
    Path | None,
    typer.Option(
        "--geography",
        help="The public list of places: CSV, Parquet or xlsx.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        help="Of CSV files that are not in UTF-8, such as latin-1.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
HouseholdsPath = Annotated[
    Path | None,
    typer.Option(
        "--households",
        help="The second table, where the spec links two: CSV or Parquet; --data are the persons.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
OutPath = Annotated[
    Path, typer.Option("--out", help="A new folder.", show_default=False, rich_help_panel=OUTPUT)
]
BundlePath = Annotated[
    Path, typer.Argument(help="A bundle: the folder that a run wrote.", show_default=False)
]
LedgerUrl = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="Charge this ledger: a file, or postgresql://...",
        show_default=False,
        rich_help_panel=LEDGER,
    ),
]
Analyst = Annotated[
    str | None, typer.Option("--analyst", help="Who is charged.", show_default=False, rich_help_panel=LEDGER)
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="A name for this run: repeating it never draws again.",
        show_default=False,
        rich_help_panel=LEDGER,
    ),
]
ExpectRows = Annotated[
    int | None,
    typer.Option(
        "--expect-rows",
        min=0,
        help="How many rows the confidential table must hold; counts as the check of a rule.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
Memory = Annotated[
    str, typer.Option("--memory", help="Memory for all processes together.", rich_help_panel=ENGINE)
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="What it may use; what needs more is refused by name.",
        show_default=False,
        rich_help_panel=ENGINE,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=OUTPUT)]


def new_app() -> typer.Typer:
    """Make the application; tracebacks never show local variables, which may hold counts."""
    app = typer.Typer(
        help="Differentially private counts that add up.",
        epilog="Begin with: trueup demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
    ) -> None:
        pass

    return app


def given_tables(data: Any, households: Path | None) -> Any:
    """The data as they are, or two linked tables."""
    from trueup.files.table import JoinedTables

    return data if households is None else JoinedTables(data, households)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trueup {__version__}")
        raise typer.Exit


def run_app(app: Callable[[], Any]) -> None:
    """Run the application; turn errors into one message and an exit code."""
    ended_by: list[int] = []
    _end_as_interrupted(ended_by)
    try:
        app()
    except TrueupError as error:
        _leave(str(error), error.exit_code, error)
    except KeyboardInterrupt:
        _leave_interrupted(ended_by)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer leaves without a word
            _leave_interrupted(ended_by)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILURE)
    except MemoryError:
        _leave(
            "this needs more memory than there is; give it more, or a smaller --memory where that is an option",
            FAILURE,
        )
    except OSError as error:  # those that have a cause in the data or in paths are told where they arise
        _leave(f"the system refused: {os.strerror(error.errno or 0)}, at {place_of(error)}", FAILURE)
    except Exception as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of an interruption
            _leave_interrupted(ended_by)
        # The message of an unforeseen error may quote data: name its type and place alone.
        _leave(f"internal error {type(error).__name__} at {place_of(error)}; please report it", FAILURE)


def _end_as_interrupted(ended_by: list[int]) -> None:
    """Let SIGTERM and SIGHUP end the run as Ctrl-C does: what is staged goes, what was promised stays."""

    def end(number: int, frame: Any) -> NoReturn:
        ended_by.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end)


def _leave_interrupted(ended_by: list[int]) -> NoReturn:
    if ended_by:
        _leave(f"ended by {signal.Signals(ended_by[0]).name}; nothing was published", TERMINATED)
    _leave("interrupted; nothing was published", INTERRUPTED)


_RESUME: list[str] = []
"""The command that continues a run, where one was left."""


def say_resume(command: str) -> None:
    """Say how a run is continued that something has ended."""
    _RESUME.append(command)
    print(f"continue with: {command}", file=sys.stderr)


def _leave(text: str, code: int, error: TrueupError | None = None) -> NoReturn:
    """End with a message: words on the terminal, one JSON object on standard output for machines."""
    if "--json" in sys.argv:
        parts: dict[str, Any] = {"resume": _RESUME[-1]} if _RESUME else {}
        parts |= {"given": error.given, "needed": error.needed, "remedy": error.remedy} if error else {}
        kind = type(error).__name__ if error else None
        print_json({"error": {"message": text, "kind": kind, "exit_code": code} | parts})
    _say_error(text)
    sys.exit(code)


def _say_error(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    # A log is searched line by line, so off the terminal a message is one line.
    console.print(Text("error: ", style="bold red") + Text(text), soft_wrap=not console.is_terminal)


def say_repeated(key: Any) -> None:
    """Say that nothing was drawn, where a release was committed under a key before."""
    if key:
        print(
            f"Nothing was drawn and nothing charged: this is the release that was committed under the key '{key}'."
        )


def print_json(value: Any) -> None:
    """Print a record as JSON; exact fractions become text."""
    print(json.dumps(value, indent=2, default=str))


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the running stage: with a clock on a terminal, a dated line for each elsewhere; yield the function that names it."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda stage: None
    elif not console.is_terminal:
        yield say_dated
    else:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as shown:
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
        yield LogLines().watch
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as shown:
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


def memory_limit(memory: str | None) -> int | None:
    """The bytes that an option allows."""
    from trueup.files.memory import parse_memory

    return None if memory is None else parse_memory(memory)


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


WIDE = 400
"""Characters of a line off a terminal, where nothing need be folded."""


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; a terminal's width folds it between words only."""
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    # Words are never cut: an exact amount in two pieces would be read as another one.
    words = [
        max(map(len, " ".join(column).split()), default=0) for column in zip(columns, *rows, strict=True)
    ]
    whole = (Column(name, overflow="fold", min_width=word) for name, word in zip(columns, words, strict=True))
    drawn = Table(*whole, title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        drawn.add_row(*row)
    Console(width=None if sys.stdout.isatty() else WIDE).print(drawn)


def compile_first(*, quiet: bool, posterior: bool = False) -> None:
    """Load or compile the kernels before any data is read; say so where it took time."""
    from trueup.kernel import warm

    seconds = warm.warm_up_posterior() if posterior else warm.warm_up()
    if seconds > 2 and not quiet:  # from the cache it takes about one
        print(
            f"made the numerical kernels ready in {seconds:.1f} s (compiled on the first run, then cached)",
            file=sys.stderr,
        )


def with_encoding(path: Any, encoding: str | None) -> Any:
    """The path of a file, with the encoding that the user names for it; Parquet and workbooks have none."""
    from trueup.files.csv_files import Encoded
    from trueup.files.paths import is_csv

    return Encoded(str(path), encoding) if encoding and path is not None and is_csv(Path(path)) else path


def open_account(url: str | None, analyst: str | None, key: str | None) -> Account | None:
    """Open the account that options name; without any of them, nothing of ledgers is loaded."""
    if url is analyst is key is None:
        return None
    from trueup.ledger.account import Account

    return Account.open(url, analyst, key)
