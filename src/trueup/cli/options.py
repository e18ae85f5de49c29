"""Options that several commands share, and options of `trueup` itself, which mean the same for all commands.

One file: what an option is called and means, how its text is read, and how a command takes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from inspect import Parameter, Signature, signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from trueup.errors import SpecError

if TYPE_CHECKING:
    from trueup.ledger.account import Account

Command = TypeVar("Command", bound=Callable[..., None])
INPUT, OUTPUT, LEDGER, ENGINE = "What is read", "What is written", "Ledger", "Machine"
"""Groups of options in the help of commands."""


def argument(meaning: str, **more: Any) -> ArgumentInfo:
    """Return what a positional parameter of a command means; `more` is passed on to `typer.Argument`."""
    return typer.Argument(help=meaning, show_default=False, **more)


def option(meaning: str, group: str | None = None, *, flag: Any = ..., **more: Any) -> OptionInfo:
    """Return what an option in a group of the help means; `flag` is its name if its parameter is called otherwise.

    `more` as `typer.Option` takes it.
    """
    return typer.Option(flag, help=meaning, rich_help_panel=group, **more)


TABLES = "CSV, Parquet (file or folder), xlsx or ods. If the spec links two tables, give persons first, then households"
PUBLISHED_PLACES = "The list of places for --perturbed; by default the places in its tables."
EVERYWHERE = "Of all commands, before or after the command"
COMMON = {
    "as_json": option("Print JSON for machines.", EVERYWHERE, flag="--json"),
    "memory": option(
        "The memory for all processes together, such as 8GB. A task that needs more is done by parts or refused. By default 4GB "
        "for a release, 2GB for sums over areas, and no limit for other commands.",
        EVERYWHERE,
    ),
    "workers": option(
        "The number of processes that work at the same time; by default 1, or with Spark all its cores.",
        EVERYWHERE,
        min=1,
    ),
    "log": option("Append the progress of the run to this file, one line of JSON for each step.", EVERYWHERE),
    "encoding": option("The encoding of CSV files that are not in UTF-8, such as latin-1.", EVERYWHERE),
}
"""Options of one meaning in every command, by the parameters that take them."""

SHARED = COMMON | {
    "spec": argument("The spec, a TOML file."),
    "bundle": argument("A bundle: the folder that a run wrote."),
    "data": option(f"The confidential table: {TABLES}.", INPUT),
    "geography": option("The public list of places: CSV, Parquet, xlsx or ods.", INPUT),
    "perturbed": option("The spec of tables that somebody else published."),
    "table": option(
        "A published table (CSV, Parquet, xlsx or ods) or an S-DHC file, may be repeated; or the folder of 2020 Census "
        "noisy-measurement files."
    ),
    "out": option("A new folder.", OUTPUT),
    "method": option("A method of `trueup methods`."),
    "url": argument("The ledger: a file, or postgresql://...", metavar="LEDGER"),
    "dataset": option("The name under which the dataset is declared."),
    "ledger": option("The ledger that is charged: a file, or postgresql://...", LEDGER),
    "analyst": option("The analyst whose budget is charged.", LEDGER),
    "key": option("A name for this run; a run with the same name draws no new noise.", LEDGER),
    "expect_rows": option(
        "The number of rows that the confidential table must have; this counts as one checked rule.",
        INPUT,
        min=0,
    ),
    "areas": option(
        "Your own areas: a CSV or Parquet file with one row for each place in an area, and the area's name in the column 'area'. "
        "Write NAME=FILE if that column is called NAME."
    ),
    "take_over": option(
        "Continue a run that a process on another machine began; you state that this process has ended.",
        ENGINE,
    ),
}
"""Parameters that mean the same in several commands."""


def described(**own: Any) -> Callable[[Command], Command]:
    """Return a decorator that says what a command's parameters mean: as given here, or else as in `SHARED`.

    A text alone is the meaning of an option. The help shows defaults that say something. A name that is no parameter is a
    `TypeError`.
    """

    meanings = SHARED | own

    def decorated(command: Command) -> Command:
        parameters = signature(command, eval_str=True).parameters
        if unknown := own.keys() - parameters:
            raise TypeError(f"{command.__name__} has no parameter {min(unknown)}")
        whole = Signature([_described(each, meanings) for each in parameters.values()])
        command.__signature__ = whole  # pyright: ignore[reportFunctionMemberAccess]
        return command

    return decorated


def _described(parameter: Parameter, meanings: dict[str, Any]) -> Parameter:
    """Return a parameter of a command with its meaning, as Typer reads it."""
    if parameter.annotation is typer.Context:
        return parameter
    meaning = meanings[parameter.name]
    told, default = copy(option(meaning) if isinstance(meaning, str) else meaning), parameter.default
    if isinstance(told, OptionInfo):
        told.default = _flag(parameter.name, told)
        told.show_default = not isinstance(default, bool) and default not in (None, "", Parameter.empty)
    return parameter.replace(annotation=Annotated[parameter.annotation, told])


class AnyOrder(TyperGroup):
    """An application whose options may stand before or after the command."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Read the application's options wherever they stand, then the command."""
        own = {name: each for each in self.params if each.name in COMMON for name in each.opts}
        return super().parse_args(ctx, _moved_first(own, args))


class CompletedCommand(TyperCommand):
    """A command whose shell completion also offers the application's options that it accepts."""

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:
        """Return completions of an incomplete word."""
        root, taken = ctx.find_root(), taken_by(self)
        common = root.command.shell_complete(root, incomplete)
        return super().shell_complete(ctx, incomplete) + [each for each in common if each.value in taken]


def _moved_first(own: dict[str, Any], args: Sequence[str]) -> list[str]:
    """Return arguments with the given options, and the options' values, moved before all others."""
    first, rest, words = [], [], iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name not in own:
            rest.append(word)
        elif equals or own[name].is_flag:
            first.append(word)
        else:
            value = next(words, None)
            if value is None:
                raise typer.BadParameter(f"Option '{name}' requires an argument.")
            first += [word, value]
    return first + rest


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command without the parameters that are also options of the application, which supplies the values.

    Raises
    ------
    SpecError
        If an option of the application is given that the command has no use for.
    """
    whole = signature(command, eval_str=True)
    taken = [name for name in whole.parameters if name in COMMON]

    @wraps(command)
    def filled(context: typer.Context, **own: Any) -> None:
        given = context.obj or {}
        for name, value in given.items():
            if value is not None and name not in taken:
                flag = _flag(name, COMMON[name])
                raise SpecError(
                    f"`{context.command_path}` does not take the option {flag}", remedy=f"leave out {flag}"
                )
        command(**own, **{name: given[name] for name in taken if given.get(name) is not None})

    kept = [each for name, each in whole.parameters.items() if name not in COMMON]
    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    filled.__signature__ = Signature([context, *kept])  # pyright: ignore[reportAttributeAccessIssue]
    return filled


def taken_by(command: Any) -> list[str]:
    """Return the names of those application options that a command or function accepts."""
    function = unwrap(getattr(command, "callback", command))
    return [_flag(name, told) for name, told in COMMON.items() if name in signature(function).parameters]


def _flag(parameter: str, told: OptionInfo) -> str:
    return f"--{parameter.replace('_', '-')}" if told.default is ... else str(told.default)


def given_tables(paths: Sequence[str] | None, encoding: str | None) -> Any:
    """Return the given confidential table, or the two linked ones; None if none is given."""
    from trueup.files import JoinedTables

    tables = [with_encoding(path, encoding) for path in paths or ()]
    if len(tables) > 2:
        raise SpecError(
            f"--data is given {len(tables)} times",
            needed="one table, or two that the spec links: first the persons, then the households",
        )
    return JoinedTables(*tables) if len(tables) == 2 else next(iter(tables), None)


def names_in(text: str | None) -> list[str]:
    """Return the names in a text that separates them by commas; a name with a comma stands in double quotes.

    Examples
    --------
    >>> names_in('"county, town", sex'), names_in(None)
    (['county, town', 'sex'], [])
    """
    from trueup.model.columns_recognised import listed_values

    return listed_values(text or "")


def named_areas(text: str | None) -> tuple[Path | None, str]:
    """Return the path of a file of areas and the name of the column of areas, from `FILE` or `NAME=FILE`.

    Examples
    --------
    >>> named_areas("district=maps/districts.csv"), named_areas("./k=1/districts.csv")[1], named_areas(None)
    ((PosixPath('maps/districts.csv'), 'district'), 'area', (None, 'area'))
    """
    if text is None:
        return None, "area"
    name, _, path = text.partition("=")
    return (Path(path), name) if name and path and "/" not in name else (Path(text), "area")


def engine_and_cluster(text: str | None) -> tuple[str | None, str | None]:
    """Return the requested engine, and the address of the Spark cluster if one is given.

    Examples
    --------
    >>> [engine_and_cluster(text) for text in ("local", "spark", "spark://host:7077", "local[2]")]
    [('local', None), ('spark', None), ('spark', 'spark://host:7077'), ('spark', 'local[2]')]
    """
    is_cluster = text is not None and (text == "yarn" or "://" in text or "[" in text)
    return ("spark", text) if is_cluster else (text, None)


def memory_limit(memory: str | None) -> int | None:
    """Return the memory limit (bytes) that an option states."""
    from trueup.files.memory import parse_memory

    return None if memory is None else parse_memory(memory)


def opened_executor(
    engine: str | None,
    cluster: str | None,
    workers: int | None,
    *,
    memory: int | None = None,
    worker_memory: int | None = None,
) -> Any:
    """Return an open executor of the engine that the options name, for work by parts."""
    if engine == "spark":
        from trueup.run.spark import SparkCluster

        return SparkCluster(cluster, workers=workers, memory=memory, worker_memory=worker_memory)
    if engine not in (None, "local"):
        raise SpecError(
            f"there is no engine '{engine}'",
            needed="local, spark or the address of a Spark cluster; for a release, memory is also accepted",
        )
    from trueup.run.local import LocalPool

    return LocalPool(workers or 1, memory=memory, worker_memory=worker_memory)


def with_encoding(path: Any, encoding: str | None) -> Any:
    """Return the path of a file with the encoding that the user gives, unless the file needs none."""
    if not encoding or path is None:
        return path
    from trueup.files import Encoded, is_csv
    from trueup.files.csv_files import is_utf8

    encoded = Encoded(str(path), encoding)
    return encoded if is_csv(Path(path)) and not is_utf8(Path(path)) else path


def open_account(url: str | None, analyst: str | None, key: str | None) -> Account | None:
    """Open the ledger account that the options name; return None if none is named."""
    if url is analyst is key is None:
        return None
    from trueup.ledger.account import Account

    return Account.open(url, analyst, key, keeper_folder())


def keeper_folder() -> Path | None:
    """Return the keeper's folder: that of the variable TRUEUP_KEEPER or, by default, one beside an SQLite ledger."""
    named = os.environ.get("TRUEUP_KEEPER")
    return Path(named) if named else None


def refuse_idle(options: dict[str, Any], needed: str, given: Any) -> None:
    """Refuse options that have no effect unless another option is given."""
    if not given and (idle := [name for name, value in options.items() if value]):
        raise SpecError(f"{idle[0]} has no effect without {needed}", remedy=f"add {needed}, or leave it out")


def named_parameters(text: str, kind: str) -> tuple[str, dict[str, str]]:
    """Read the name of a method or law, with parameters after a colon: `NAME:PARAMETER=VALUE,..`.

    Examples
    --------
    >>> named_parameters("discrete-laplace:epsilon=1/2", "law")
    ('discrete-laplace', {'epsilon': '1/2'})
    """
    name, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if rest else []
    if bad := [parameter for parameter, equals, _ in pairs if not equals]:
        raise SpecError(f"the parameter '{bad[0]}' of {kind} '{name}' has no value", needed="PARAMETER=VALUE")
    return name, {parameter.strip(): value.strip() for parameter, _, value in pairs}


def named_number(text: str, needed: str) -> tuple[str, float]:
    """Read `TABLE=NUMBER`: return the name of the table, and the number after the last equals sign."""
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise SpecError(f"'{text}' does not end in '=' and a number", needed=needed) from None
