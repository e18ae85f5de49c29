"""`trueup budget`: caps, spending, and checks of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from trueup.cli import FAILED_CHECK, add_command
from trueup.cli.options import (
    AsJson,
    DataPaths,
    Encoding,
    GeographyPath,
    argument,
    given_tables,
    keeper_folder,
    option,
)
from trueup.cli.printing import print_json, print_table
from trueup.errors import SpecError

Url = Annotated[str, argument("The ledger: a file, or postgresql://...", metavar="LEDGER")]
Dataset = Annotated[str, option("--dataset", "The name under which the dataset is declared.")]
CapOption = Annotated[
    list[str],
    option(
        "--cap", "A cap, such as epsilon=1 or rho=1/2; for the analyst ana, ana:epsilon=1/2; may be repeated."
    ),
]
Unit = Annotated[str | None, option("--unit", "Who is protected, such as person.")]
NeighboursOption = Annotated[
    str | None,
    option("--neighbours", "The neighbour relation, which defines one step: add-remove or replace."),
]
ChecksOption = Annotated[
    int | None,
    option(
        "--checks",
        "The number of rules that may be checked on confidential counts without being listed; by default 3.",
        min=0,
    ),
]
ListedOption = Annotated[
    list[Path] | None,
    option(
        "--list",
        "A spec whose invariants may be published, and whose rules may be checked without using up checks.",
    ),
]
Renews = Annotated[
    str, option("--renews", "Write yearly if the caps hold for each calendar year (UTC) anew.")
]
Series = Annotated[
    str, option("--series", "Write monthly if the first data of each month need no declaration.")
]
Sign = Annotated[bool, option("--sign", "Sign every later entry with a key in the keeper's folder.")]
PublicKeys = Annotated[
    list[str] | None,
    option(
        "--public-keys",
        "A column of the confidential table whose values are public, so that specs may take their places from it.",
    ),
]
Against = Annotated[
    Path | None, option("--against", "The bundle, or folder of bundles, to compare with the ledger.")
]
Out = Annotated[Path | None, option("--out", "The file to write; by default the entries are printed.")]


def budget_group() -> typer.Typer:
    """Return the group of `trueup budget` commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Show the caps, what was spent, and whether the ledger is in order."
    )
    for command in (init, data, grant, show, log, verify):
        add_command(group, command, command.__name__)
    add_command(group, export_entries, "export")
    return group


def init(
    url: Url,
    dataset: Dataset,
    cap: CapOption,
    unit: Unit = None,
    neighbours: NeighboursOption = None,
    checks: ChecksOption = None,
    listed: ListedOption = None,
    geography: GeographyPath = None,
    renews: Renews = "",
    series: Series = "",
    public_keys: PublicKeys = None,
    sign: Sign = False,
    as_json: AsJson = False,
) -> None:
    """Make a ledger if there is none; declare a dataset's unit, neighbour relation and caps, which are final."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.state import parse_caps

    caps, analysts = parse_caps(cap)
    terms = _terms_of_options(unit, neighbours, checks, listed, geography, renews, series, public_keys or [])
    ledger = Ledger.create(url, keeper_folder())
    if sign:
        ledger.sign()
    ledger.init(dataset, caps, analysts, terms=terms)
    _show_ledger(ledger, as_json=as_json)


def data(
    url: Url,
    dataset: Dataset,
    table: DataPaths,
    encoding: Encoding = None,
) -> None:
    """Declare a new version of an account's data, such as corrected data, whose checks are counted anew."""
    from trueup.ledger.ledger import Ledger

    ledger = Ledger.open(url, keeper_folder())
    ledger.declare(dataset, given_tables(table, encoding))
    versions = len(ledger.state().shown[dataset].data)
    print(
        f"Dataset '{dataset}' has {versions} version{'s' * (versions > 1)} of its data; what was spent stays spent."
    )


def grant(
    url: Url,
    analyst: Annotated[str, argument("A role of the server.")],
) -> None:
    """Allow a role of a PostgreSQL server to draw in its own name, but not to declare anything."""
    from trueup.ledger.ledger import Ledger

    Ledger.open(url).grant(analyst)
    print(f"'{analyst}' may draw from this ledger in that name, and declares nothing.")


def _terms_of_options(
    unit: str | None,
    neighbours: Any,
    checks: int | None,
    listed: list[Path] | None,
    geography: Path | None,
    renews: Any = "",
    series: Any = "",
    public: Sequence[str] = (),
) -> Any:
    """Return the terms of an account that the options state, or None if no option states any."""
    from trueup.ledger.request import DEFAULT_UNLISTED_RULES, Terms
    from trueup.model.problem import public_cells
    from trueup.model.spec import load_spec

    if (
        unit is None
        and neighbours is None
        and not (listed or checks is not None or renews or series or public)
    ):
        return None
    if unit is None or neighbours is None:
        raise SpecError(
            f"the account is described without {'--unit' if unit is None else '--neighbours'}",
            needed="the unit that is protected, and the neighbour relation: add-remove or replace",
            remedy="give both --unit and --neighbours",
        )
    terms = Terms(
        unit,
        neighbours,
        checks=DEFAULT_UNLISTED_RULES if checks is None else checks,
        renews=renews,
        series=series,
        public=tuple(public),
    )
    for path in listed or []:
        spec = load_spec(path)
        terms = terms.listing(spec, public_cells(spec, geography, geography))
    return terms


def show(url: Url, as_json: AsJson = False) -> None:
    """Show caps, what was spent and what is left, for every dataset and analyst."""
    from trueup.ledger.ledger import Ledger

    _show_ledger(Ledger.open(url), as_json=as_json)


def log(url: Url, as_json: AsJson = False) -> None:
    """List every reservation and whether its release was committed."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.summary import history

    rows = history(Ledger.open(url).state())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    columns = ["entry", "time", "dataset", "analyst", "cost", "key", "release"]
    print_table("", columns, [[str(value) for value in asdict(row).values()] for row in rows])


def export_entries(url: Url, out: Out = None) -> None:
    """Write all entries as one line of canonical JSON each; every line holds the SHA-256 digest of the line before."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.summary import write_lines

    entries = Ledger.open(url).entries()
    if out is None:
        print("\n".join(entry.body for entry in entries))
    else:
        write_lines(out, entries)


def verify(url: Url, against: Against = None, as_json: AsJson = False) -> None:
    """Recompute the ledger's hash chain and caps, and compare them with published bundles."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.verify import verify_ledger as verify_ledger

    found = verify_ledger(Ledger.at(url), against)
    if as_json:
        print_json(asdict(found))
    else:
        _say(found)
    if found.findings:
        raise typer.Exit(FAILED_CHECK)


def _show_ledger(ledger: Any, *, as_json: bool) -> None:
    from trueup.ledger.summary import balances, picture

    state = ledger.state()
    rows = balances(state)
    if as_json:
        print_json([{**asdict(row), "account": picture(state, row.dataset)} for row in rows])
        return
    columns = ["dataset", "analyst", "currency", "cap", "spent", "left"]
    named = (asdict(row) | {"analyst": row.analyst or "all"} for row in rows)
    print_table("", columns, [[str(value) for value in row.values()] for row in named])
    for dataset in dict.fromkeys(row.dataset for row in rows):
        print("\n".join(picture(state, dataset)["sentences"]))


def _say(found: Any) -> None:
    print(f"{found.entries} entries, head {found.head}; {found.bundles} bundles compared.")
    for folder in found.unrecorded:
        print(f"{folder}: kept no ledger.")
    for finding in found.findings:
        print(f"WRONG: {finding}.")
    if not found.findings:
        print("Nothing is wrong.")
