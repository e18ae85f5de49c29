"""What every command shares: options, progress, JSON, errors and exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from trueup.errors import ConvergenceError, TrueupError, place_of
from trueup.version import __version__

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130

SpecPath = Annotated[Path, typer.Argument(help="The spec, a TOML file.", show_default=False)]
DataPath = Annotated[
    Path, typer.Option("--data", help="The confidential table: CSV or Parquet.", show_default=False)
]
GeographyPath = Annotated[
    Path | None,
    typer.Option("--geography", help="The public list of places: CSV or Parquet.", show_default=False),
]
OutPath = Annotated[Path, typer.Option("--out", help="A new folder.", show_default=False)]
BundlePath = Annotated[
    Path, typer.Argument(help="A bundle: the folder that a run wrote.", show_default=False)
]
LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", help="Charge this ledger: a file, or postgresql://...", show_default=False),
]
Analyst = Annotated[str | None, typer.Option("--analyst", help="Who is charged.", show_default=False)]
Key = Annotated[
    str | None,
    typer.Option("--key", help="A name for this run: repeating it never draws again.", show_default=False),
]
Memory = Annotated[str, typer.Option("--memory", help="Memory for all processes together.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def new_app() -> typer.Typer:
    """Make the application; tracebacks never show local variables, which may hold counts."""
    app = typer.Typer(
        help="Differentially private counts that add up.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True)] = False,
    ) -> None:
        pass

    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trueup {__version__}")
        raise typer.Exit


def run_app(app: Callable[[], Any]) -> None:
    """Run the application; turn errors into one message and an exit code."""
    try:
        app()
    except TrueupError as error:
        _say_error(str(error))
        sys.exit(FAILURE if isinstance(error, ConvergenceError) else BAD_INPUT)
    except KeyboardInterrupt:
        _leave_interrupted()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer leaves without a word
            _leave_interrupted()
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(FAILURE)
    except OSError as error:  # those that have a cause in the data or in paths are told where they arise
        _say_error(f"the system refused: {os.strerror(error.errno or 0)}, at {place_of(error)}")
        sys.exit(FAILURE)
    except Exception as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of an interruption
            _leave_interrupted()
        # The message of an unforeseen error may quote data: name its type and place alone.
        _say_error(f"internal error {type(error).__name__} at {place_of(error)}; please report it")
        sys.exit(FAILURE)


def _leave_interrupted() -> NoReturn:
    _say_error("interrupted; nothing was published")
    sys.exit(INTERRUPTED)


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
    """Show the running stage on the terminal; yield the function that names it."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage: None
        return
    with console.status("starting") as status:
        yield lambda stage: status.update(f"{stage} ...")


@contextmanager
def progress_by_level(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show how many bundles of every level are done; off the terminal, one line for each that is finished."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal:
        yield lambda what, done, of: None if quiet or done < of else console.print(f"{what}: done")
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as shown:
        rows: dict[str, Any] = {}

        def watch(what: str, done: int, of: int) -> None:
            if what not in rows:
                rows[what] = shown.add_task(what, total=of)
            shown.update(rows[what], completed=done)

        yield watch


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Column, Table

    # Words that do not fit are folded: an exact amount that is cut short would be another one.
    whole = (Column(name, overflow="fold") for name in columns)
    drawn = Table(*whole, title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for row in rows:
        drawn.add_row(*row)
    Console().print(drawn)


def compile_first(*, quiet: bool, posterior: bool = False) -> None:
    """Load or compile the kernels before any data is read; say so where it took time."""
    from trueup.kernel import warm

    seconds = warm.warm_up_posterior() if posterior else warm.warm_up()
    if seconds > 2 and not quiet:  # from the cache it takes about one
        print(
            f"made the numerical kernels ready in {seconds:.1f} s (compiled on the first run, then cached)",
            file=sys.stderr,
        )
