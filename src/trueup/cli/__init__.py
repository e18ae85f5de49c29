"""The command `trueup`: it parses arguments, calls a function and prints the result or exits with a code."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import typer

from trueup.cli.options import AnyOrder, CompletedCommand, described, option, taken_by, with_common
from trueup.cli.printing import print_json, shown_lines
from trueup.errors import BudgetError, BusyError, ConvergenceError, TrueupError, place_of
from trueup.version import __version__

FAILURE, FAILED_CHECK, INTERRUPTED, TERMINATED = 1, 6, 130, 143

EXIT_CODES = {
    0: "done",
    FAILURE: "the system refused (space, memory, a permission, a worker, a ledger that cannot be reached: try again when that is "
    "mended) or an internal error; "
    "nothing is half-written",
    TrueupError.exit_code: "bad input: the message says what was given, what is needed, what to do",
    BudgetError.exit_code: "the ledger refused: the loss is not granted, or there is no such account or ledger",
    BusyError.exit_code: "another process works on the same folder: try again later",
    ConvergenceError.exit_code: "stopped before the answer could be called one: other settings may do",
    FAILED_CHECK: "something that was checked does not hold",
    INTERRUPTED: "interrupted",
    TERMINATED: "ended by SIGTERM or SIGHUP; a run by parts is continued by `trueup release --resume`",
}
"""With what every command ends, and what that means."""


def new_app() -> typer.Typer:
    """Return the Typer application; tracebacks never show local variables, which may hold counts."""
    app = typer.Typer(
        cls=AnyOrder,
        help="Differentially private counts that add up.",
        epilog="Begin with: trueup demo",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    @described(version=option("", callback=_show_version, is_eager=True))
    def options(
        context: typer.Context,
        as_json: bool = False,
        memory: str | None = None,
        workers: int | None = None,
        log: Path | None = None,
        encoding: str | None = None,
        version: bool = False,
    ) -> None:
        context.obj = {"as_json": as_json or None, "memory": memory, "workers": workers}
        context.obj |= {"log": log, "encoding": encoding}

    return app


def add_command(
    app: typer.Typer, command: Callable[..., None], name: str, example: str | None = None
) -> None:
    """Add a command to the application; its help lists those options of the application that it accepts."""
    said = [f"Example: {example}"] if example else []
    if taken := taken_by(command):
        said.append(f"Takes {', '.join(taken)}, too: see trueup --help.")
    app.command(name, cls=CompletedCommand, epilog="\n\n".join(said))(with_common(command))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"trueup {__version__}")
        raise typer.Exit


def run_app(app: Callable[[], Any]) -> None:
    """Run the application; turn errors into one message and an exit code."""
    ended_by: list[int] = []
    try:
        with _ended_as_interrupted(ended_by):
            app()
    except TrueupError as error:
        leave_refused(error)
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
        refused = f"the system refused: {os.strerror(error.errno or 0)}, at {place_of(error)}."
        _leave(_noted(refused, error), FAILURE)
    except Exception as error:
        if ended_by or was_interrupted(error):
            _leave_interrupted(ended_by)
        # The message of an unforeseen error may quote data: name its type and place alone.
        unforeseen = f"internal error {type(error).__name__} at {place_of(error)}; please report it."
        _leave(_noted(unforeseen, error), FAILURE)


def was_interrupted(error: BaseException) -> bool:
    """Return True if DuckDB, a compiled function or a compiler raised an error because of an interruption.

    Examples
    --------
    >>> error = SystemError("returned a result with an exception set")
    >>> was_interrupted(error), was_interrupted(ValueError())
    (False, False)
    >>> error.__cause__ = KeyboardInterrupt()
    >>> was_interrupted(error)
    True
    >>> compiling = RuntimeError("while a kernel was compiled")
    >>> compiling.__context__ = KeyboardInterrupt()
    >>> was_interrupted(compiling)
    True
    """
    if str(error) == "Query interrupted":
        return True
    below: BaseException | None = error
    while isinstance(below, SystemError | RuntimeError):
        below = below.__cause__ or below.__context__
    return isinstance(below, KeyboardInterrupt)


@contextmanager
def _ended_as_interrupted(ended_by: list[int]) -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C within the block, so that staging folders are removed."""

    def end(number: int, frame: Any) -> NoReturn:
        ended_by.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:  # a process that goes on, and those that it forks, end as they did before
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _noted(text: str, error: BaseException) -> str:
    """Return an error's message followed by its notes, such as one on the privacy loss already spent."""
    return " ".join([text, *getattr(error, "__notes__", ())])


def _leave_interrupted(ended_by: list[int]) -> NoReturn:
    if ended_by:
        _leave(f"ended by {signal.Signals(ended_by[0]).name}; nothing was published", TERMINATED)
    _leave("interrupted; nothing was published", INTERRUPTED)


_RESUME: list[str] = []
"""The command that continues a run, where one was left."""


@contextmanager
def saying_resume(
    left: Path | None, command: str = "", by: type[BaseException] = BaseException
) -> Iterator[None]:
    """Print the command that resumes a run, by default this one, if an error ends the block and a path is left."""
    try:
        yield
    except by as error:
        busy = isinstance(error, BusyError)  # another process continues the run
        if left is not None and left.exists() and not busy:
            _RESUME.append(command or shlex.join(["trueup", *sys.argv[1:]]))
            print(f"continue with: {_RESUME[-1]}", file=sys.stderr)
        raise


def leave_refused(error: TrueupError, answered: Mapping[str, Any] = MappingProxyType({})) -> NoReturn:
    """Exit with an error's message and code; with `--json`, beside what was answered all the same."""
    _leave(_noted(str(error), error), error.exit_code, error, answered)


def _leave(
    text: str,
    code: int,
    error: TrueupError | None = None,
    answered: Mapping[str, Any] = MappingProxyType({}),
) -> NoReturn:
    """Exit with a message on standard error and, with `--json`, as one JSON object on standard output."""
    if "--json" in sys.argv:
        parts: dict[str, Any] = {"resume": _RESUME[-1]} if _RESUME else {}
        parts |= {"given": error.given, "needed": error.needed, "remedy": error.remedy} if error else {}
        kind = type(error).__name__ if error else None
        print_json({**answered, "error": {"message": text, "kind": kind, "exit_code": code} | parts})
    _say_error(text)
    sys.exit(code)


def _say_error(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    # A log is searched line by line, so off the terminal a message is one line.
    console.print(
        Text("error: ", style="bold red") + Text(shown_lines(text)), soft_wrap=not console.is_terminal
    )


COMMANDS = {
    "new": "new",
    "release": "release",
    "explain": "steps",
    "plan": "plan",
    "measure": "steps",
    "reconcile": "steps",
    "infer": "infer",
    "ask": "questions",
    "change": "questions",
    "assess": "assess",
    "report": "bundles",
    "export": "bundles",
    "areas": "bundles",
    "check": "bundles",
    "budget": "budget",
    "audit": "standalone",
    "methods": "standalone",
    "schema": "standalone",
    "demo": "standalone",
    "studio": "standalone",
    "synth": "standalone",
}
"""Commands and their modules, in the order of `trueup --help`; `budget` is a group of commands."""

EXAMPLES = {
    "new": "trueup new towns.toml --data people.csv --geography places.csv",
    "release": "trueup release towns.toml --data people.csv --geography places.csv --out towns",
    "explain": "trueup explain towns.toml --geography places.csv",
    "plan": "trueup plan towns.toml --geography places.csv --target town=10@95%",
    "measure": "trueup measure towns.toml --data people.csv --geography places.csv --out noisy",
    "reconcile": "trueup reconcile noisy --out towns",
    "infer": "trueup infer towns --out posterior",
    "ask": "trueup ask posterior \"'county=001' - 'county=003'\"",
    "change": "trueup change towns-2025 towns-2026 --table county",
    "assess": "trueup assess towns.toml --data counts.csv --geography places.csv --public-truth --out assessment",
    "report": "trueup report towns --shapes places.geojson --out report.html",
    "export": "trueup export towns --to xlsx --out towns.xlsx",
    "areas": "trueup areas towns --areas districts.csv --out districts.parquet",
    "check": "trueup check towns",
    "audit": "trueup audit discrete-laplace:epsilon=1",
    "methods": "trueup methods",
    "schema": "trueup schema > spec.schema.json",
    "demo": "trueup demo",
    "studio": "trueup studio",
    "synth": "trueup synth towns.toml --out made",
}
"""One example for each command, at the end of its help."""


def whole_app(asked: str | None = None) -> typer.Typer:
    """Return the application with all its commands, or with only the requested one."""
    app = new_app()
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module = import_module(f"trueup.cli.{COMMANDS[name]}")
        if name == "budget":
            app.add_typer(module.budget_group(), name=name)
        else:
            add_command(app, getattr(module, f"{name}_command"), name, EXAMPLES[name])
    return app


def main(loaded: Callable[[], None] = lambda: None) -> None:
    """Run the command line, and `loaded` before it; the exit codes are listed in `EXIT_CODES`."""
    # By default a tenth of a short command goes to searching modules for garbage.
    gc.set_threshold(200_000, 50, 50)

    def command() -> None:
        # To load all commands and read their options takes longer than to run some of them.
        app = whole_app(next(iter(sys.argv[1:]), None))
        loaded()
        app(prog_name="trueup")

    run_app(command)
