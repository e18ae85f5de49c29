"""`trueup budget`: caps, spending, and checks of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from trueup.cli import FAILED_CHECK, add_command
from trueup.cli.options import argument, described, given_tables, keeper_folder, option
from trueup.cli.printing import print_json, print_table
from trueup.errors import SpecError


def budget_group() -> typer.Typer:
    """Return the group of `trueup budget` commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Show the caps, what was spent, and whether the ledger is in order."
    )
    for command in (init, data, grant, show, log, verify):
        add_command(group, command, command.__name__)
    add_command(group, export_entries, "export")
    return group


@described(
    cap="A cap, such as epsilon=1 or rho=1/2; for the analyst ana, ana:epsilon=1/2; may be repeated.",
    unit="Who is protected, such as person.",
    neighbours="The neighbour relation, which defines one step: add-remove or replace.",
    checks=option(
        "The number of rules that may be checked on confidential counts without being listed; by default 3.",
        min=0,
    ),
    listed=option(
        "A spec whose invariants may be published, and whose rules may be checked without using up checks.",
        flag="--list",
    ),
    renews="Write yearly if the caps hold for each calendar year (UTC) anew.",
    series="Write monthly if the first data of each month need no declaration.",
    public_keys="A column of the confidential table whose values are public, so that specs may take their places from it.",
    sign="Sign every later entry with a key in the keeper's folder.",
)
def init(
    url: str,
    dataset: str,
    cap: list[str],
    unit: str | None = None,
    neighbours: str | None = None,
    checks: int | None = None,
    listed: list[Path] | None = None,
    geography: Path | None = None,
    renews: str = "",
    series: str = "",
    public_keys: list[str] | None = None,
    sign: bool = False,
    as_json: bool = False,
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


@described()
def data(url: str, dataset: str, data: list[str], encoding: str | None = None) -> None:
    """Declare a new version of an account's data, such as corrected data, whose checks are counted anew."""
    from trueup.ledger.ledger import Ledger

    ledger = Ledger.open(url, keeper_folder())
    ledger.declare(dataset, given_tables(data, encoding))
    versions = len(ledger.state().shown[dataset].data)
    print(
        f"Dataset '{dataset}' has {versions} version{'s' * (versions > 1)} of its data; what was spent stays spent."
    )


@described(analyst=argument("A role of the server."))
def grant(url: str, analyst: str) -> None:
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


@described()
def show(url: str, as_json: bool = False) -> None:
    """Show caps, what was spent and what is left, for every dataset and analyst."""
    from trueup.ledger.ledger import Ledger

    _show_ledger(Ledger.open(url), as_json=as_json)


@described()
def log(url: str, as_json: bool = False) -> None:
    """List every reservation and whether its release was committed."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.summary import history

    rows = history(Ledger.open(url).state())
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    columns = ["entry", "time", "dataset", "analyst", "cost", "key", "release"]
    print_table("", columns, [[str(value) for value in asdict(row).values()] for row in rows])


@described(
    out="The file to write; by default the entries are printed.",
)
def export_entries(url: str, out: Path | None = None) -> None:
    """Write all entries as one line of canonical JSON each; every line holds the SHA-256 digest of the line before."""
    from trueup.ledger.ledger import Ledger
    from trueup.ledger.summary import write_lines

    entries = Ledger.open(url).entries()
    if out is None:
        print("\n".join(entry.body for entry in entries))
    else:
        write_lines(out, entries)


@described(
    against="The bundle, or folder of bundles, to compare with the ledger.",
)
def verify(url: str, against: Path | None = None, as_json: bool = False) -> None:
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
