"""Options that commands share, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trueup.ledger.account import Account

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
        help="Of those CSV files that are not in UTF-8, such as latin-1.",
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
KeeperFolder = Annotated[
    Path | None,
    typer.Option(
        "--keeper",
        envvar="TRUEUP_KEEPER",
        help="The folder of what the ledger's keeper keeps outside it: key of fingerprints, private log, anchor; by default "
        "beside an SQLite file.",
        show_default=False,
        show_envvar=True,
        rich_help_panel=LEDGER,
    ),
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


def given_tables(data: Any, households: Path | None) -> Any:
    """The data as they are, or two linked tables."""
    from trueup.files.table import JoinedTables

    return data if households is None else JoinedTables(data, households)


def memory_limit(memory: str | None) -> int | None:
    """The bytes that an option allows."""
    from trueup.files.memory import parse_memory

    return None if memory is None else parse_memory(memory)


def with_encoding(path: Any, encoding: str | None) -> Any:
    """The path of a file, with the encoding that the user names for it; files in UTF-8, Parquet and workbooks need none."""
    from trueup.files.csv_files import Encoded, is_utf8
    from trueup.files.paths import is_csv

    if not encoding or path is None:
        return path
    encoded = Encoded(str(path), encoding)
    return encoded if is_csv(Path(path)) and not is_utf8(Path(path)) else path


def open_account(
    url: str | None, analyst: str | None, key: str | None, keeper: Path | None = None
) -> Account | None:
    """Open the account that options name; without any of them, nothing of ledgers is loaded."""
    if url is analyst is key is None:
        return None
    from trueup.ledger.account import Account

    return Account.open(url, analyst, key, keeper)


def refuse_idle(options: dict[str, Any], needed: str, given: Any) -> None:
    """Refuse options that do nothing without another."""
    from trueup.errors import SpecError

    if not given and (idle := [name for name, value in options.items() if value]):
        raise SpecError(f"{idle[0]} does nothing without {needed}", remedy=f"add {needed}, or leave it out")
