"""Options that commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trueup.ledger.account import Account

INPUT, OUTPUT, LEDGER, ENGINE = "What is read", "What is written", "Ledger", "Machine"
"""Groups of options in the help of commands."""


def argument(meaning: str, **more: Any) -> Any:
    """Return a positional parameter; `more` as `typer.Argument` takes it."""
    return typer.Argument(help=meaning, show_default=False, **more)


def option(name: str, meaning: str, group: str | None = None, *, shown: bool = False, **more: Any) -> Any:
    """Return an option of a group in the command's help, which shows its default only if asked to.

    `more` as `typer.Option` takes it.
    """
    return typer.Option(name, help=meaning, rich_help_panel=group, show_default=shown, **more)


SpecPath = Annotated[Path, argument("The spec, a TOML file.")]
DataPath = Annotated[Path, option("--data", "The confidential table: CSV, Parquet or xlsx.", INPUT)]
GeographyPath = Annotated[
    Path | None, option("--geography", "The public list of places: CSV, Parquet or xlsx.", INPUT)
]
Encoding = Annotated[
    str | None, option("--encoding", "Of those CSV files that are not in UTF-8, such as latin-1.", INPUT)
]
HouseholdsPath = Annotated[
    Path | None,
    option(
        "--households",
        "The second table, where the spec links two: CSV or Parquet; --data are the persons.",
        INPUT,
    ),
]
OutPath = Annotated[Path, option("--out", "A new folder.", OUTPUT)]
BundlePath = Annotated[Path, argument("A bundle: the folder that a run wrote.")]
LedgerUrl = Annotated[
    str | None, option("--ledger", "Charge this ledger: a file, or postgresql://...", LEDGER)
]
Analyst = Annotated[str | None, option("--analyst", "Who is charged.", LEDGER)]
Key = Annotated[str | None, option("--key", "A name for this run: repeating it never draws again.", LEDGER)]
ExpectRows = Annotated[
    int | None,
    option(
        "--expect-rows",
        "How many rows the confidential table must hold; counts as the check of a rule.",
        INPUT,
        min=0,
    ),
]
Memory = Annotated[str, option("--memory", "Memory for all processes together.", ENGINE, shown=True)]
MemoryLimit = Annotated[
    str | None, option("--memory", "What it may use; what needs more is refused by name.", ENGINE)
]
Master = Annotated[
    str | None, option("--master", "Address of the Spark cluster, such as spark://host:7077.", ENGINE)
]
TakeOver = Annotated[
    bool,
    option(
        "--take-over",
        "The process of another machine that began the run, and gives no sign of life, is dead.",
        ENGINE,
    ),
]
LogFile = Annotated[
    Path | None, option("--log", "Add what the run does to this file, a line of JSON each.", OUTPUT)
]
AsJson = Annotated[bool, option("--json", "Print JSON for machines.", OUTPUT)]


def given_tables(data: Any, households: Path | None) -> Any:
    """Return the data as given, or two linked tables."""
    from trueup.files import JoinedTables

    return data if households is None else JoinedTables(data, households)


def memory_limit(memory: str | None) -> int | None:
    """Return the bytes that an option allows."""
    from trueup.files.memory import parse_memory

    return None if memory is None else parse_memory(memory)


def with_encoding(path: Any, encoding: str | None) -> Any:
    """Return the path of a file with the user's encoding, unless it is UTF-8, Parquet or a workbook."""
    if not encoding or path is None:
        return path
    from trueup.files import Encoded, is_csv
    from trueup.files.csv_files import is_utf8

    encoded = Encoded(str(path), encoding)
    return encoded if is_csv(Path(path)) and not is_utf8(Path(path)) else path


def open_account(url: str | None, analyst: str | None, key: str | None) -> Account | None:
    """Open the account that options name; without any of them, import nothing of ledgers."""
    if url is analyst is key is None:
        return None
    from trueup.ledger.account import Account

    return Account.open(url, analyst, key, keeper_folder())


def keeper_folder() -> Path | None:
    """Return the folder that the variable TRUEUP_KEEPER names, in place of the one beside an SQLite ledger."""
    named = os.environ.get("TRUEUP_KEEPER")
    return Path(named) if named else None


def refuse_idle(options: dict[str, Any], needed: str, given: Any) -> None:
    """Refuse options that have no effect without another."""
    from trueup.errors import SpecError

    if not given and (idle := [name for name, value in options.items() if value]):
        raise SpecError(f"{idle[0]} does nothing without {needed}", remedy=f"add {needed}, or leave it out")


def named_parameters(text: str, kind: str) -> tuple[str, dict[str, str]]:
    """Read a name with parameters after a colon, `NAME:PARAMETER=VALUE,..`, of a method or a law.

    Examples
    --------
    >>> named_parameters("discrete-laplace:epsilon=1/2", "law")
    ('discrete-laplace', {'epsilon': '1/2'})
    """
    from trueup.errors import SpecError

    name, _, rest = text.partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if rest else []
    if bad := [parameter for parameter, equals, _ in pairs if not equals]:
        raise SpecError(f"the parameter '{bad[0]}' of {kind} '{name}' has no value", needed="PARAMETER=VALUE")
    return name, {parameter.strip(): value.strip() for parameter, _, value in pairs}


def named_number(text: str, needed: str) -> tuple[str, float]:
    """Read the name of a table and a number after the last equals sign."""
    from trueup.errors import SpecError

    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise SpecError(f"'{text}' cannot be read", needed=needed) from None
